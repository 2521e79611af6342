//! Figures of a tree: entries, blocks, memory.

use super::block::{ENTRY_OVERHEAD_MAX, HEADER_BYTES};
use super::scan::ENTRY_BYTES_MAX;
use super::tree::FdTree;

impl FdTree {
    /// Entries.
    pub fn len(&self) -> usize {
        let state = self.shared.state.lock();
        state.inserts.saturating_sub(state.deletes) as usize
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Blocks of levels, those included that are reclaimed and not freed yet.
    pub fn blocks(&self) -> usize {
        self.shared.blocks.used()
    }

    /// Number, blocks, and whether it has only fences, of every level; top down.
    pub fn levels(&self) -> Vec<(u32, u64, bool)> {
        let state = self.shared.state.lock();
        let slots = state.slots.iter();
        slots
            .map(|slot| (slot.number, slot.blocks(), slot.level.only_fences))
            .collect()
    }

    /// Blocks of the filters of all levels, those included that a compaction replaces.
    pub fn filter_blocks(&self) -> u64 {
        let state = self.shared.state.lock();
        let old = state.old.iter().flat_map(|old| &old.slots);
        let slots = state.slots.iter().chain(old);
        slots.map(|slot| slot.level.filter_blocks()).sum()
    }

    /// The longest entry that a block can hold.
    pub fn entry_bytes_max(&self) -> usize {
        let room = self
            .shared
            .blocks
            .block_bytes()
            .saturating_sub(HEADER_BYTES);
        room.saturating_sub(2 * ENTRY_OVERHEAD_MAX)
            .min(ENTRY_BYTES_MAX)
    }

    /// Bytes of memory: the heads, the levels' lists of blocks and filters, the entries of a load.
    pub fn memory_bytes(&self) -> usize {
        let state = self.shared.state.lock();
        let old = state.old.as_ref();
        let slots = state
            .slots
            .iter()
            .chain(old.iter().flat_map(|old| &old.slots));
        let lists: usize = slots.map(|slot| slot.level.memory_bytes()).sum();
        let loaded = old.and_then(|old| old.loaded.as_ref());
        let loaded = loaded.map_or(0, |loaded| loaded.memory_bytes());
        state.head.bytes() + old.map_or(0, |old| old.head.bytes()) + lists + loaded
    }

    /// Reclaimed blocks that are not freed yet.
    pub fn unfreed_blocks(&self) -> usize {
        self.shared.state.lock().unfreed()
    }
}
