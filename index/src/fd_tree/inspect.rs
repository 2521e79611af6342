//! Figures of a tree: entries, blocks, memory; and of each of its levels, for which all blocks are
//! read.

use super::block::{ENTRY_OVERHEAD_MAX, HEADER_BYTES};
use super::drive::Use;
use super::head::Head;
use super::scan::ENTRY_BYTES_MAX;
use super::state::{Shared, Slot};
use super::tree::FdTree;

/// The side of a compaction that a head or a level is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// no compaction changes it
    Only,
    /// a compaction writes it: keys up to the wavefront are found there
    New,
    /// a compaction replaces it: keys behind the wavefront are found there
    Old,
}

/// Figures of a head, which is level 0, or of a level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelFigures {
    /// its number; of a head 0
    pub level: u32,
    pub side: Side,
    /// blocks of entries; those that a compaction has not written yet are in memory; of a head 0
    pub blocks: u64,
    /// blocks of filters on the device
    pub filter_blocks: u64,
    /// inserts and deletes in the blocks that can be read
    pub data_entries: u64,
    /// fences in the blocks that can be read
    pub fences: u64,
    /// bytes used of the blocks that can be read, headers included; of a head the bytes of memory
    pub used_bytes: u64,
    /// bytes of the blocks that can be read; of a head its budget
    pub capacity_bytes: u64,
    /// the numbers of the blocks of entries and filters that are damaged or cannot be read,
    /// ascending
    pub unreadable: Vec<u64>,
}

/// Figures of a tree at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeFigures {
    /// head and levels, top down: those that a compaction writes, those that it replaces, and those
    /// below it
    pub levels: Vec<LevelFigures>,
    /// bytes of the entry up to which a compaction under way has come; None: there is none, or it
    /// has not begun
    pub wavefront: Option<Vec<u8>>,
}

impl FdTree {
    /// Entries.
    pub fn len(&self) -> usize {
        let state = self.shared.state.lock();
        state.inserts.saturating_sub(state.deletes) as usize
    }

    /// Modifications of entries since the opening.
    pub fn changes(&self) -> u64 {
        self.shared.state.lock().changes
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
        let old = state.old.iter().flat_map(|old| old.slots.iter());
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
            .chain(old.iter().flat_map(|old| old.slots.iter()));
        let lists: usize = slots.map(|slot| slot.level.memory_bytes()).sum();
        let loaded = old.and_then(|old| old.loaded.as_ref());
        let loaded = loaded.map_or(0, |loaded| loaded.memory_bytes());
        state.head.bytes() + old.map_or(0, |old| old.head.bytes()) + lists + loaded
    }

    /// Reads all blocks, while compactions wait. Blocks that cannot be read are listed.
    pub fn figures(&self) -> TreeFigures {
        let _turn = self.drive.take(&self.shared, Use::Hold);
        let budget = self.head_budget();
        let (era, head, slots, old) = {
            let state = self.shared.state.lock();
            let (head, slots) = (state.head.clone(), state.slots.clone());
            (state.enter(), head, slots, state.old.clone())
        };
        let new_levels = old.as_ref().map_or(0, |old| old.new_levels);
        let (new, below) = slots.split_at(new_levels);
        let head_side = if old.is_some() { Side::New } else { Side::Only };
        let mut levels = vec![of_head(&head, head_side, budget)];
        levels.extend(
            new.iter()
                .map(|slot| of_level(&self.shared, slot, Side::New)),
        );
        if let Some(old) = &old {
            levels.push(of_head(&old.head, Side::Old, budget));
            let replaced = old.slots.iter();
            levels.extend(replaced.map(|slot| of_level(&self.shared, slot, Side::Old)));
        }
        levels.extend(
            below
                .iter()
                .map(|slot| of_level(&self.shared, slot, Side::Only)),
        );
        drop(era);
        TreeFigures {
            levels,
            wavefront: old.and_then(|old| old.wavefront).map(Into::into),
        }
    }

    /// Reclaimed blocks that are not freed yet.
    pub fn unfreed_blocks(&self) -> usize {
        self.shared.state.lock().unfreed()
    }
}

fn of_head(head: &Head, side: Side, budget: usize) -> LevelFigures {
    LevelFigures {
        level: 0,
        side,
        blocks: 0,
        filter_blocks: 0,
        data_entries: head.data.len() as u64,
        fences: head.fences.len() as u64,
        used_bytes: head.bytes() as u64,
        capacity_bytes: budget as u64,
        unreadable: Vec::new(),
    }
}

fn of_level(shared: &Shared, slot: &Slot, side: Side) -> LevelFigures {
    let mut figures = LevelFigures {
        level: slot.number,
        side,
        blocks: slot.blocks(),
        filter_blocks: slot.level.filter_blocks(),
        data_entries: 0,
        fences: 0,
        used_bytes: 0,
        capacity_bytes: 0,
        unreadable: Vec::new(),
    };
    let tree = shared.settings.tree;
    for ordinal in slot.live_from..slot.level.end() {
        // From the device, although a cache may have it.
        let stored = slot.level.number(ordinal);
        match slot.level.read_stored(ordinal, tree, &*shared.blocks) {
            Ok(block) => {
                let data = block.iter().filter(|(_, kind)| kind.is_data()).count();
                figures.data_entries += data as u64;
                figures.fences += (block.len() - data) as u64;
                figures.used_bytes += block.used_bytes() as u64;
                figures.capacity_bytes += shared.blocks.block_bytes() as u64;
            }
            Err(_) => figures.unreadable.extend(stored),
        }
    }
    for partition in slot.level.partitions().iter().filter(|one| !one.is_lent) {
        let unreadable = partition.unreadable(tree, &*shared.blocks);
        figures.unreadable.extend(unreadable);
    }
    figures.unreadable.sort_unstable();
    figures
}
