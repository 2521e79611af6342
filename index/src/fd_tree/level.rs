//! A level: a run of blocks, which readers find by ordinal.
//!
//! Invariants:
//! 1. A block that a reader can reach by a fence is in the list before the fence is published.
//! 2. A place changes only from memory to the device, or, for the last block, to a longer block.
//! 3. If the level has filters, every data entry that a reader can reach is in the filter of its
//!    partition: the last one whose first entry is not greater, if there is one. Of keys below the
//!    first partition nothing is known.

use super::block::{Block, Identity, index_name};
use super::filter::hash_of_entry;
use super::partition::Partition;
use crate::key_hash::hash_bytes;
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

/// What a lookup asks the filters for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// an entry, or the bytes of a key
    bytes: &'a [u8],
    is_key: bool,
    hash: u64,
}

impl<'a> Wanted<'a> {
    pub fn entry(entry: &'a [u8]) -> Self {
        Self {
            bytes: entry,
            is_key: false,
            hash: hash_of_entry(entry),
        }
    }

    pub fn key(key: &'a [u8]) -> Self {
        Self {
            bytes: key,
            is_key: true,
            hash: hash_bytes(key),
        }
    }
}

/// A run of blocks. Ordinals begin at `first`, which is above 0 if the level was opened in the
/// middle of a compaction.
#[derive(Debug)]
pub(super) struct Level {
    pub run: u64,
    /// has no data entries
    pub only_fences: bool,
    first: u64,
    /// bits of the filters for each data entry; 0: none
    pub filter_bits: usize,
    /// the filters of data entries, in order
    partitions: RwLock<Vec<Arc<Partition>>>,
    places: RwLock<Vec<Place>>,
}

impl Level {
    pub fn new(run: u64, only_fences: bool, filter_bits: usize) -> Self {
        Self::opened(run, only_fences, 0, Vec::new()).with_filters(filter_bits, Vec::new())
    }

    /// The level with filters of all its data entries.
    pub fn with_filters(self, filter_bits: usize, partitions: Vec<Arc<Partition>>) -> Self {
        Self {
            filter_bits,
            partitions: RwLock::new(partitions),
            ..self
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
            filter_bits: 0,
            partitions: RwLock::default(),
            places: RwLock::new(places),
        }
    }

    /// The ordinal behind the last block.
    pub fn end(&self) -> u64 {
        self.first + self.places.read().len() as u64
    }

    /// Bytes of the list and of the filters in memory.
    pub fn memory_bytes(&self) -> usize {
        let partitions = self.partitions.read();
        let filters = partitions.iter().map(|one| one.memory_bytes());
        self.places.read().capacity() * size_of::<Place>() + filters.sum::<usize>()
    }

    /// The filters.
    pub fn partitions(&self) -> Vec<Arc<Partition>> {
        self.partitions.read().clone()
    }

    /// Blocks of the filters.
    pub fn filter_blocks(&self) -> u64 {
        let partitions = self.partitions.read();
        partitions.iter().map(|one| one.numbers.len() as u64).sum()
    }

    /// Adds a filter of the data entries from its first one on.
    pub fn push_partition(&self, partition: Arc<Partition>) {
        self.partitions.write().push(partition);
    }

    /// The filter of the same entries is on the device.
    pub fn store_partition(&self, stored: &Arc<Partition>) {
        let mut partitions = self.partitions.write();
        let at = partitions.partition_point(|one| one.first < stored.first);
        if let Some(known) = partitions.get_mut(at) {
            debug_assert_eq!(known.first, stored.first);
            *known = stored.clone();
        }
    }

    /// Removes the filters of entries up to `wave`, which nobody looks for here any more. Returns
    /// their blocks.
    pub fn pass_partitions(&self, wave: &[u8]) -> Vec<u64> {
        let mut partitions = self.partitions.write();
        let begun = partitions.partition_point(|one| *one.first <= *wave);
        let passed = partitions.drain(..begun.saturating_sub(1));
        passed.flat_map(|one| one.numbers.clone()).collect()
    }

    /// Whether there may be this data entry, or one of this key; false is certain. Reads a filter
    /// that is not in memory.
    pub fn may_contain(
        &self,
        wanted: Wanted<'_>,
        tree: u64,
        blocks: &dyn LevelBlocks,
    ) -> Result<bool> {
        if self.only_fences || self.filter_bits == 0 {
            return Ok(!self.only_fences);
        }
        let mut unread = Vec::new();
        {
            let partitions = self.partitions.read();
            let begun = partitions.partition_point(|one| *one.first <= *wanted.bytes);
            let Some(floor) = begun.checked_sub(1) else {
                return Ok(true);
            };
            for (at, one) in partitions.iter().enumerate().skip(floor) {
                if at > floor && !(wanted.is_key && one.first.starts_with(wanted.bytes)) {
                    break;
                }
                match one.in_memory() {
                    Some(filter) if filter.may_contain(wanted.hash) => return Ok(true),
                    Some(_) => {}
                    None => unread.push(one.clone()),
                }
            }
        }
        for partition in unread {
            let filter = partition.filter(tree, self.run, blocks)?;
            if filter.may_contain(wanted.hash) {
                return Ok(true);
            }
        }
        Ok(false)
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

    /// A block.
    ///
    /// # Errors
    /// The device's; XX001 if the block is damaged, or if there is none.
    pub fn read(&self, ordinal: u64, tree: u64, blocks: &dyn LevelBlocks) -> Result<Arc<Block>> {
        match self.in_memory(ordinal, tree)? {
            Ok(block) => Ok(block),
            Err(number) => self.decode(ordinal, number, tree, &blocks.read(number)?),
        }
    }

    /// A block, read from the device if it is stored, though the pool may have it.
    ///
    /// # Errors
    /// As [`Level::read`].
    pub fn read_stored(
        &self,
        ordinal: u64,
        tree: u64,
        blocks: &dyn LevelBlocks,
    ) -> Result<Arc<Block>> {
        match self.number(ordinal) {
            Some(number) => self.decode(ordinal, number, tree, &blocks.read(number)?),
            None => self.read(ordinal, tree, blocks),
        }
    }

    /// Blocks, in this order. Those that are not in memory are read at the same time.
    ///
    /// # Errors
    /// As [`Level::read`].
    pub fn read_many(
        &self,
        ordinals: &[u64],
        tree: u64,
        blocks: &dyn LevelBlocks,
    ) -> Result<Vec<Arc<Block>>> {
        let found = ordinals
            .iter()
            .map(|ordinal| self.in_memory(*ordinal, tree));
        let found: Vec<_> = found.collect::<Result<_>>()?;
        let unread: Vec<u64> = found
            .iter()
            .filter_map(|one| one.as_ref().err().copied())
            .collect();
        let mut read = blocks.read_many(&unread)?.into_iter();
        let found = found
            .into_iter()
            .zip(ordinals)
            .map(|(one, ordinal)| match one {
                Ok(block) => Ok(block),
                Err(number) => {
                    let bytes = read.next().unwrap_or_default();
                    self.decode(*ordinal, number, tree, &bytes)
                }
            });
        found.collect()
    }

    /// A block in memory, or its number.
    fn in_memory(&self, ordinal: u64, tree: u64) -> Result<std::result::Result<Arc<Block>, u64>> {
        match self.place(ordinal) {
            Some(Place::Memory(block)) => Ok(Ok(block)),
            Some(Place::Stored(number, frame)) => {
                Ok(frame.and_then(|frame| frame.get()).ok_or(number))
            }
            None => Err(Error::corrupt(
                format!("{}, run {}", index_name(tree), self.run),
                format!("a fence leads to block {ordinal}, which the run does not have"),
            )),
        }
    }

    fn decode(&self, ordinal: u64, number: u64, tree: u64, bytes: &[u8]) -> Result<Arc<Block>> {
        let at = Identity {
            tree,
            number,
            run: self.run,
            ordinal,
        };
        Ok(Arc::new(Block::decode(bytes, at)?))
    }
}
