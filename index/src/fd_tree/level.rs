//! A level: a run of blocks, which readers find by ordinal.
//!
//! Invariants:
//! 1. A block that a reader can reach by a fence is in the list before the fence is published.
//! 2. A place changes only from memory to the device, or, for the last block, to a longer block.

use super::block::{Block, Identity, index_name};
use super::filter::Filter;
use std::sync::Arc;
use strandline_base::sync::RwLock;
use strandline_base::{Error, Result};
use strandline_storage::level_blocks::LevelBlocks;
use strandline_storage::pool::{FrameHandle, Pool};

/// Where a block is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// its number; the handle of its frame, once a lookup has read it
    Stored(u64, Option<FrameHandle<Block>>),
    Memory(Arc<Block>),
}

/// A run of blocks. Ordinals begin at `first`, which is above 0 if the level was opened in the
/// middle of a compaction.
#[derive(Debug)]
pub(super) struct Level {
    pub run: u64,
    /// has no data entries
    pub only_fences: bool,
    first: u64,
    /// of the keys of all data entries; None after an opening
    filter: Option<Filter>,
    places: RwLock<Vec<Place>>,
}

impl Level {
    pub fn new(run: u64, only_fences: bool, filter: Option<Filter>) -> Self {
        Self {
            filter,
            ..Self::opened(run, only_fences, 0, Vec::new())
        }
    }

    pub fn opened(run: u64, only_fences: bool, first: u64, numbers: Vec<u64>) -> Self {
        let places = numbers
            .into_iter()
            .map(|number| Place::Stored(number, None))
            .collect();
        Self {
            run,
            only_fences,
            first,
            filter: None,
            places: RwLock::new(places),
        }
    }

    /// The ordinal behind the last block.
    pub fn end(&self) -> u64 {
        self.first + self.places.read().len() as u64
    }

    /// Bytes of the list and the filter.
    pub fn memory_bytes(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, Filter::memory_bytes);
        self.places.read().capacity() * size_of::<Place>() + filter
    }

    pub fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    /// Whether there may be a data entry of a key with this hash; false is certain.
    pub fn may_contain(&self, hash: u64) -> bool {
        let filter = self.filter.as_ref();
        !self.only_fences && filter.is_none_or(|filter| filter.may_contain(hash))
    }

    /// The handle of a stored block's frame; None if the pool keeps nothing.
    pub fn frame(&self, ordinal: u64, pool: &Arc<Pool>) -> Option<FrameHandle<Block>> {
        if pool.budget_bytes() == 0 {
            return None;
        }
        if let Place::Stored(_, frame @ Some(_)) = self.place(ordinal)? {
            return frame;
        }
        let at = usize::try_from(ordinal.checked_sub(self.first)?).ok()?;
        match self.places.write().get_mut(at)? {
            Place::Stored(_, frame) => {
                Some(frame.get_or_insert_with(|| FrameHandle::new(pool)).clone())
            }
            Place::Memory(_) => None,
        }
    }

    pub fn place(&self, ordinal: u64) -> Option<Place> {
        let at = usize::try_from(ordinal.checked_sub(self.first)?).ok()?;
        self.places.read().get(at).cloned()
    }

    /// The number of a block; None if it is not stored.
    pub fn number(&self, ordinal: u64) -> Option<u64> {
        match self.place(ordinal)? {
            Place::Stored(number, _) => Some(number),
            Place::Memory(_) => None,
        }
    }

    /// Sets the place of a block, which may be the next one.
    pub fn set(&self, ordinal: u64, place: Place) {
        let mut places = self.places.write();
        let at = (ordinal - self.first) as usize;
        match places.get_mut(at) {
            Some(known) => *known = place,
            None => {
                debug_assert_eq!(at, places.len(), "blocks are added in order");
                places.push(place);
            }
        }
    }

    pub fn read(&self, ordinal: u64, tree: u64, blocks: &dyn LevelBlocks) -> Result<Arc<Block>> {
        match self.place(ordinal) {
            Some(Place::Memory(block)) => Ok(block),
            Some(Place::Stored(number, frame)) => {
                if let Some(block) = frame.and_then(|frame| frame.get()) {
                    return Ok(block);
                }
                let bytes = blocks.read(number)?;
                let run = self.run;
                let at = Identity {
                    tree,
                    number,
                    run,
                    ordinal,
                };
                Ok(Arc::new(Block::decode(&bytes, at)?))
            }
            None => Err(Error::corrupt(
                format!("{}, run {}", index_name(tree), self.run),
                format!("a fence leads to block {ordinal}, which the run does not have"),
            )),
        }
    }
}
