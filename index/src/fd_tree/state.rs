//! What readers, writers and the compaction share.
//!
//! Invariants: I6 (see `fd_tree`); `slots` are the levels below the new head, top down, the old
//! head's levels are those of `old.slots` followed by `slots` from `old.new_levels` on.

use super::block::Block;
use super::filter::FilterOf;
use super::filter_memory::FilterMemory;
use super::head::{Change, Head};
use super::level::{Level, Wanted};
use super::loaded::Loaded;
use super::partition::FilterSource;
use super::progress::Work;
use std::collections::VecDeque;
use std::sync::Arc;
use strandline_base::Result;
use strandline_base::sync::Mutex;
use strandline_storage::level_blocks::LevelBlocks;
use strandline_storage::pool::Pool;

/// How a compaction goes beside readers and writers. All but `Fc` are for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// FD+FC [FD+ §4]
    Fc,
    /// FD+XM: everybody waits for a compaction [FD+ §3]
    Xm,
    /// FD+DS: the old levels stay to the end; doubles the space [FD+ §3]
    Ds,
    /// FD+FC with half of the head's budget for each head
    FcNoSharing,
    /// FD+FC that moves one key at a time
    FcTuple,
}

/// Settings of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// the tree's identity, in the checksum of every block
    pub tree: u64,
    pub mode: Mode,
    /// budget of the head in bytes; a compaction begins when data take half of what fences leave.
    /// A head of shared memory (`HeadMemory`) has its own
    pub head_bytes: usize,
    /// the head's capacity in blocks, kappa 0
    pub head_blocks: u64,
    /// the size ratio of neighbouring levels, gamma
    pub ratio: u64,
    /// the most entries of a block
    pub block_entries_max: usize,
    /// bytes that a compaction gathers before it writes them
    pub batch_bytes: usize,
    /// bits of a level's filter for each of its entries; 0: no filters
    pub filter_bits: usize,
    /// what new filters have of each entry; those of older levels stay as they are
    pub filter_of: FilterOf,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tree: 0,
            mode: Mode::Fc,
            head_bytes: 256 << 10,
            head_blocks: 64,
            ratio: 8,
            block_entries_max: u16::MAX as usize,
            batch_bytes: 4 << 20,
            filter_bits: 10,
            filter_of: FilterOf::Keys,
        }
    }
}

impl Settings {
    /// The capacity of a level in blocks, kappa.
    pub fn capacity(&self, level: u32) -> u64 {
        let factor = self.ratio.checked_pow(level).unwrap_or(u64::MAX);
        self.head_blocks.saturating_mul(factor)
    }

    /// Whether a level may have so many blocks: its capacity, and what a compaction may exceed it
    /// by.
    pub fn holds(&self, level: u32, blocks: u64) -> bool {
        let capacity = self.capacity(level);
        blocks <= capacity.saturating_add(capacity / 4).saturating_add(2)
    }
}

/// A level and its number.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub number: u32,
    pub level: Arc<Level>,
    /// the first block that is not reclaimed
    pub live_from: u64,
}

impl Slot {
    pub fn blocks(&self) -> u64 {
        self.level.end() - self.live_from
    }
}

/// The levels that a lookup goes down, top down, as they were when it took them.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// levels that a compaction replaces
    old: Option<Arc<Vec<Slot>>>,
    slots: Arc<Vec<Slot>>,
    /// those that the compaction writes, which are not part of the path
    skipped: usize,
}

impl Path {
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Slot> {
        let old = self.old.iter().flat_map(|old| old.iter());
        old.chain(self.slots.iter().skip(self.skipped))
    }

    pub fn len(&self) -> usize {
        let old = self.old.as_ref().map_or(0, |old| old.len());
        old + self.slots.len().saturating_sub(self.skipped)
    }
}

/// The old part of the tree during a compaction.
#[derive(Clone, Debug, Default)]
pub(super) struct Old {
    pub head: Head,
    /// entries of a load, between the head and the levels; memory only
    pub loaded: Option<Arc<Loaded>>,
    pub slots: Arc<Vec<Slot>>,
    /// levels of the state that the compaction writes
    pub new_levels: usize,
    /// None: nothing has been processed
    pub wavefront: Option<Box<[u8]>>,
    /// where the wavefront fence points
    pub pointer: Option<u64>,
    /// the last fence to the levels below that has been moved
    pub last_fence: Option<u64>,
    /// how far the compaction is; memory only
    pub work: Work,
}

impl Old {
    /// Whether the entry is found from the old head.
    pub fn has(&self, key: &[u8]) -> bool {
        self.wavefront.as_deref().is_none_or(|wave| key > wave)
    }
}

/// Blocks that nobody finds any more and that are not free yet.
#[derive(Debug, Default)]
pub(super) struct Reclaimed {
    era: Arc<()>,
    garbage: VecDeque<(Arc<()>, Vec<u64>)>,
    released: Vec<u64>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub head: Head,
    /// bytes that the head may take; memory only
    pub head_budget: usize,
    /// shared with the lookups under way
    pub slots: Arc<Vec<Slot>>,
    pub old: Option<Old>,
    pub inserts: u64,
    pub deletes: u64,
    pub next_run: u64,
    /// loads begun
    pub loads: u64,
    /// compactions begun
    pub begun: u64,
    /// modifications of entries since the opening
    pub changes: u64,
    /// those that the newest image has; None: none was written
    pub saved: Option<u64>,
    pub reclaimed: Reclaimed,
}

impl State {
    /// As long as the result lives, blocks that are reclaimed from now on are not freed.
    pub fn enter(&self) -> Arc<()> {
        self.reclaimed.era.clone()
    }

    /// Readers that come from now on cannot reach these blocks.
    pub fn reclaim(&mut self, blocks: Vec<u64>) {
        if !blocks.is_empty() {
            let era = std::mem::take(&mut self.reclaimed.era);
            self.reclaimed.garbage.push_back((era, blocks));
        }
    }

    /// Takes the blocks that no reader can reach.
    pub fn take_released(&mut self) -> Vec<u64> {
        while let Some((era, _)) = self.reclaimed.garbage.front() {
            if Arc::strong_count(era) > 1 {
                break;
            }
            if let Some((_, blocks)) = self.reclaimed.garbage.pop_front() {
                self.reclaimed.released.extend(blocks);
            }
        }
        std::mem::take(&mut self.reclaimed.released)
    }

    /// Gives back what [`State::take_released`] has given, after a failure.
    pub fn put_released(&mut self, blocks: Vec<u64>) {
        self.reclaimed.released.extend(blocks);
    }

    /// Reclaimed blocks that are not freed yet.
    pub fn unfreed(&self) -> usize {
        let held: usize = self
            .reclaimed
            .garbage
            .iter()
            .map(|(_, blocks)| blocks.len())
            .sum();
        held + self.reclaimed.released.len()
    }

    pub fn count(&mut self, change: Change) {
        let is_counted = |number: u64, by| number.checked_add_signed(by).is_some();
        debug_assert!(is_counted(self.inserts, change.inserts), "I5: {change:?}");
        debug_assert!(is_counted(self.deletes, change.deletes), "I5: {change:?}");
        self.inserts = self.inserts.saturating_add_signed(change.inserts);
        self.deletes = self.deletes.saturating_add_signed(change.deletes);
    }

    /// The levels below the old head, top down.
    pub fn old_path(&self, old: &Old) -> Path {
        Path {
            old: Some(old.slots.clone()),
            slots: self.slots.clone(),
            skipped: old.new_levels,
        }
    }

    /// The levels below the new head, top down.
    pub fn new_path(&self) -> Path {
        Path {
            old: None,
            slots: self.slots.clone(),
            skipped: 0,
        }
    }

    /// The levels in which a key is looked for, top down, and the block of the first (I6).
    pub fn path(&self, key: &[u8]) -> (Option<u64>, Path) {
        match &self.old {
            Some(old) if old.has(key) => {
                let pointer = old.head.floor_fence(key).or(old.pointer);
                (pointer, self.old_path(old))
            }
            _ => (self.head.floor_fence(key), self.new_path()),
        }
    }

    /// Whether the entry is there, if memory tells.
    pub fn find_in_memory(&self, key: &[u8]) -> Option<bool> {
        let new = self.head.data.get(key);
        let old = self.old.as_ref().filter(|old| old.has(key));
        let data = new.or_else(|| old?.head.data.get(key));
        let is_loaded = || old?.loaded.as_ref()?.contains(key).then_some(true);
        data.map(|data| data.is_insert).or_else(is_loaded)
    }
}

/// The state with what it needs to read blocks.
#[derive(Debug)]
pub(super) struct Shared {
    pub settings: Settings,
    pub blocks: Arc<dyn LevelBlocks>,
    /// keeps blocks that lookups read
    pub pool: Arc<Pool>,
    /// the memory for filters
    pub filters: Arc<FilterMemory>,
    pub state: Mutex<State>,
}

impl Shared {
    /// A block, for a reader that passes it once: it enters no cache.
    pub fn read(&self, level: &Level, ordinal: u64) -> Result<Arc<Block>> {
        level.read(ordinal, self.settings.tree, &*self.blocks)
    }

    /// Blocks, as [`Shared::read`] gives them, read at the same time.
    pub fn read_many(&self, level: &Level, ordinals: &[u64]) -> Result<Vec<Arc<Block>>> {
        level.read_many(ordinals, self.settings.tree, &*self.blocks)
    }

    /// A block on the path of a lookup, which is kept in the pool.
    pub fn read_cached(&self, level: &Level, ordinal: u64) -> Result<Arc<Block>> {
        match level.frame(ordinal, &self.pool) {
            Some(frame) => frame.get_or_load(|| {
                let block = self.read(level, ordinal)?;
                let block = Arc::unwrap_or_clone(block);
                let bytes = block.memory_bytes();
                Ok((block, bytes))
            }),
            None => self.read(level, ordinal),
        }
    }

    /// What `look` finds in a block on the path of a lookup, which is kept in the pool.
    pub fn look<R>(
        &self,
        level: &Level,
        ordinal: u64,
        mut look: impl FnMut(&Block) -> R,
    ) -> Result<R> {
        match level.look(ordinal, &mut look) {
            Some(found) => Ok(found),
            None => Ok(look(&*self.read_cached(level, ordinal)?)),
        }
    }

    /// Whether a level may have what is wanted; false is certain.
    pub fn may_contain(&self, level: &Level, wanted: Wanted<'_>) -> Result<bool> {
        level.may_contain(wanted, self.filter_source())
    }

    /// Where filters that are not in memory come from.
    pub fn filter_source(&self) -> FilterSource<'_> {
        FilterSource {
            tree: self.settings.tree,
            blocks: &*self.blocks,
            pool: &self.pool,
            memory: &self.filters,
        }
    }
}
