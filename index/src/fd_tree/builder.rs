//! The levels that a compaction writes [FD+ §2.3, merge-execute]: the target, which takes all data
//! entries, and levels above it that have only fences.
//!
//! A new block gets its fence in the level above at once. The caller publishes blocks before the
//! fences that lead to them.

use super::batch::Batch;
use super::block::{Block, Kind, Limits, OpenBlock, index_name};
use super::filtering::Filtering;
use super::level::{Kept, Level};
use super::places::Place;
use super::state::{Settings, Shared};
use std::sync::Arc;
use strandline_base::{Error, Result};

/// One level under construction.
#[derive(Debug)]
struct Building {
    level: Arc<Level>,
    open: OpenBlock,
    /// ordinal of `open`; None before the first block
    ordinal: Option<u64>,
    /// where an earlier state of `open` has been written
    stored: Option<u64>,
    /// where earlier states of sealed blocks have been written
    replaced: Vec<u64>,
    is_changed: bool,
    sealed: Vec<(u64, Arc<Block>)>,
    /// blocks that are published and not written
    unwritten: Vec<(u64, Arc<Block>)>,
}

/// The levels under construction, top down; the last one is the target.
#[derive(Debug)]
pub(super) struct Builders {
    levels: Vec<Building>,
    limits: Limits,
    /// fences for the new head that are not published yet
    pub head_fences: Vec<(Box<[u8]>, u64)>,
    /// the last block of the level below to which the target has a fence
    pub last_fence: Option<u64>,
    /// whether the target has data entries; true after an opening
    pub has_data: bool,
    /// the target's filters
    filters: Filtering,
    /// blocks with which the target begins, not published yet
    kept: Option<Kept>,
    /// blocks written
    pub written: u64,
}

impl Builders {
    pub fn new(settings: &Settings, block_bytes: usize, levels: &[Arc<Level>]) -> Self {
        levels.iter().for_each(|level| level.begin_writing());
        let limits = Limits {
            bytes: block_bytes,
            entries: settings.block_entries_max,
        };
        let building = |level: &Arc<Level>| Building {
            level: level.clone(),
            open: OpenBlock::new(limits),
            ordinal: None,
            stored: None,
            replaced: Vec::new(),
            is_changed: false,
            sealed: Vec::new(),
            unwritten: Vec::new(),
        };
        Self {
            levels: levels.iter().map(building).collect(),
            limits,
            head_fences: Vec::new(),
            last_fence: None,
            has_data: false,
            filters: Filtering::new(block_bytes, levels.last()),
            kept: None,
            written: levels.iter().map(|level| level.end() - level.kept()).sum(),
        }
    }

    /// Goes on with the last block of each level, after an opening.
    pub fn resume(&mut self, shared: &Shared) -> Result<()> {
        self.has_data = true;
        for building in &mut self.levels {
            let own = building.level.kept()..building.level.end();
            let Some(last) = own.last() else {
                continue;
            };
            let Some(number) = building.level.number(last) else {
                continue;
            };
            let block = shared.read(&building.level, last)?;
            building.open = OpenBlock::of(&block, self.limits).ok_or_else(|| {
                let place = format!("block {number} of {}", index_name(shared.settings.tree));
                Error::corrupt(place, "its entries are not in order: build the index anew")
            })?;
            building.ordinal = Some(last);
            building.stored = Some(number);
        }
        Ok(())
    }

    /// The target begins with blocks of the level that it replaces, which have these first keys.
    /// Nothing has been added before. They are published with the first blocks.
    pub fn keep(&mut self, kept: Kept, first_keys: &[Box<[u8]>]) {
        let target = self.levels.len() - 1;
        self.has_data = true;
        self.filters.keep(&kept);
        for (key, ordinal) in first_keys.iter().zip(0..kept.blocks()) {
            self.add_fence(target, key, ordinal);
        }
        self.kept = Some(kept);
    }

    /// Adds what is left of all entries with one key: a fence to the levels below, a data entry.
    pub fn add(&mut self, key: &[u8], fence: Option<u64>, data: Option<bool>) {
        let fence = fence.filter(|to| self.last_fence.is_none_or(|last| *to > last));
        let data = data.map(|is_insert| {
            if is_insert {
                Kind::Insert
            } else {
                Kind::Delete
            }
        });
        let kinds = match (fence.map(Kind::Fence), data) {
            (None, None) => return,
            (Some(fence), Some(data)) => &[fence, data][..],
            (Some(kind), None) | (None, Some(kind)) => &[kind][..],
        };
        self.has_data |= data.is_some();
        let target = self.levels.len() - 1;
        if data.is_some() {
            self.filters.add(key);
        }
        if !self.push_if_room(target, key, kinds) {
            self.begin_block(target, key);
            if let (None, Some(last)) = (fence, self.last_fence) {
                self.push(target, key, Kind::Fence(last));
            }
            for kind in kinds {
                self.push(target, key, *kind);
            }
        }
        self.last_fence = fence.or(self.last_fence);
    }

    /// Appends entries with one key to the open block. False: there is none, or it has no room.
    fn push_if_room(&mut self, at: usize, key: &[u8], kinds: &[Kind]) -> bool {
        let building = self.levels.get_mut(at);
        let Some(building) = building.filter(|level| level.ordinal.is_some()) else {
            return false;
        };
        let has_room = building.open.push_if_room(key, kinds);
        building.is_changed |= has_room;
        has_room
    }

    fn push(&mut self, at: usize, key: &[u8], kind: Kind) {
        if let Some(building) = self.levels.get_mut(at) {
            building.open.push(key, kind);
            building.is_changed = true;
        }
    }

    /// Seals the open block of a level and begins the next one, with its fence in the level above.
    fn begin_block(&mut self, at: usize, key: &[u8]) {
        let levels = self.levels.len();
        let Some(building) = self.levels.get_mut(at) else {
            return;
        };
        let next = match building.ordinal {
            Some(ordinal) => {
                let open = OpenBlock::new(self.limits);
                let block = std::mem::replace(&mut building.open, open);
                building.sealed.push((ordinal, Arc::new(block.block())));
                ordinal + 1
            }
            None => {
                let kept = self.kept.as_ref().filter(|_| at + 1 == levels);
                building.level.end() + kept.map_or(0, Kept::blocks)
            }
        };
        building.ordinal = Some(next);
        building.replaced.extend(building.stored.take());
        self.add_fence(at, key, next);
    }

    /// Adds the fence to a block of a level to the level above.
    fn add_fence(&mut self, at: usize, first_key: &[u8], ordinal: u64) {
        let key = if ordinal == 0 { &[][..] } else { first_key };
        let fence = Kind::Fence(ordinal);
        match at.checked_sub(1) {
            None => self.head_fences.push((key.into(), ordinal)),
            Some(above) => {
                if !self.push_if_room(above, key, &[fence]) {
                    self.begin_block(above, key);
                    self.push(above, key, fence);
                }
            }
        }
    }

    /// Makes the blocks reachable: kept ones, whole ones, and the open ones as they are.
    pub fn publish(&mut self) {
        if let (Some(target), Some(kept)) = (self.levels.last(), self.kept.take()) {
            target.level.keep(kept);
        }
        for building in &mut self.levels {
            for (ordinal, block) in building.sealed.drain(..) {
                building.level.set(ordinal, Place::Memory(block.clone()));
                building.unwritten.push((ordinal, block));
            }
            if let (Some(ordinal), true) = (building.ordinal, building.is_changed) {
                let block = Arc::new(building.open.block());
                building.level.set(ordinal, Place::Memory(block));
            }
        }
    }

    /// All blocks are written, and no more are added.
    pub fn end(&self) {
        self.levels.iter().for_each(|one| one.level.end_writing());
    }

    /// Published whole blocks that are not written.
    pub fn unwritten(&self) -> u64 {
        let unwritten = self.levels.iter().map(|level| level.unwritten.len());
        unwritten.sum::<usize>() as u64
    }

    /// All published blocks that are not written, the open ones as they are, and the filters of
    /// their entries. Nothing is added before [`Builders::end_batch`].
    pub fn begin_batch(&mut self, shared: &Shared) -> Result<Batch> {
        let mut blocks = Vec::new();
        for building in &self.levels {
            let of = |(ordinal, block)| (building.level.clone(), ordinal, block);
            blocks.extend(building.unwritten.iter().cloned().map(of));
            if let (Some(ordinal), true) = (building.ordinal, building.is_changed) {
                blocks.push(of((ordinal, Arc::new(building.open.block()))));
            }
        }
        Batch::of(shared, blocks, self.filters.unwritten().to_vec())
    }

    /// The batch is written: syncs it. Returns the blocks that have become superfluous.
    pub fn end_batch(&mut self, shared: &Shared, batch: Batch) -> Result<Vec<u64>> {
        self.written += batch.len();
        batch.sync(shared)?;
        self.filters.clear();
        let mut superfluous = Vec::new();
        for building in &mut self.levels {
            building.unwritten.clear();
            superfluous.append(&mut building.replaced);
            if building.is_changed {
                let now = building.ordinal.and_then(|at| building.level.number(at));
                superfluous.extend(std::mem::replace(&mut building.stored, now));
            }
            building.is_changed = false;
        }
        Ok(superfluous)
    }
}
