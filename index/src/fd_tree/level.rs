//! A level: a run of blocks, which readers find by ordinal.
//!
//! Invariants:
//! 1. A block that a reader can reach by a fence is in the list before the fence is published.
//! 2. A place changes only while blocks are written to the level ([`Places`]).
//! 3. If the level has filters, every data entry that a reader can reach is in the filter of its
//!    partition: the last one whose first entry is not greater, if there is one. Of keys below the
//!    first partition nothing is known.
//! 4. The first blocks may be kept ones: a compaction took them from a level that it replaced
//!    (`keep`). A block and a filter name the run in which they were written. A level's own run is
//!    the last one, and only blocks of it are written or change.

use super::block::{Block, Identity, index_name};
use super::filter::{FilterForm, FilterOf};
use super::partition::{FilterSource, Partition};
use super::partitions::Partitions;
use super::places::{Place, Places};
use crate::key_hash::hash_bytes;
use std::sync::Arc;
use strandline_base::sync::RwLock;
use strandline_base::{Error, Result};
use strandline_storage::level_blocks::LevelBlocks;
use strandline_storage::pool::{FrameHandle, Pool};

/// A block on the device: its number, and the run in which it was written.
#[derive(Clone, Copy, Debug)]
struct Stored {
    number: u64,
    run: u64,
}

/// What a lookup asks the filters for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// an entry, or the bytes of a key
    bytes: &'a [u8],
    is_key: bool,
    /// by which filters of this form are asked
    hash: (FilterOf, u64),
}

impl<'a> Wanted<'a> {
    /// `of`: the form of most filters.
    pub fn entry(entry: &'a [u8], of: FilterOf) -> Self {
        Self {
            bytes: entry,
            is_key: false,
            hash: (of, of.hash(entry)),
        }
    }

    pub fn key(key: &'a [u8]) -> Self {
        Self {
            bytes: key,
            is_key: true,
            hash: (FilterOf::Keys, hash_bytes(key)),
        }
    }

    /// The hash by which filters of a form are asked; None: they do not tell.
    fn hash(&self, of: FilterOf) -> Option<u64> {
        match self.hash {
            (known, hash) if known == of => Some(hash),
            _ if self.is_key => None,
            _ => Some(of.hash(self.bytes)),
        }
    }
}

/// Blocks and filters that a level takes over from one that a compaction replaces.
#[derive(Debug, Default)]
pub(super) struct Kept {
    places: Vec<Place>,
    runs: Vec<(u64, u64)>,
    partitions: Vec<Arc<Partition>>,
}

impl Kept {
    /// Blocks, from the level's first one on.
    pub fn blocks(&self) -> u64 {
        self.places.len() as u64
    }

    pub fn has_filters(&self) -> bool {
        !self.partitions.is_empty()
    }
}

/// A run of blocks, the first of which may be of other runs. Ordinals begin at `first`, which is
/// above 0 if the level was opened in the middle of a compaction.
#[derive(Debug)]
pub(super) struct Level {
    /// the run of the blocks that are written to it
    pub run: u64,
    /// has no data entries
    pub only_fences: bool,
    first: u64,
    pub filters: FilterForm,
    /// the filters of data entries, in order
    partitions: RwLock<Partitions>,
    places: Places,
    /// the runs in which blocks were written, each from an ordinal on
    runs: RwLock<Vec<(u64, u64)>>,
}

impl Level {
    pub fn new(run: u64, only_fences: bool, filters: FilterForm) -> Self {
        Self::opened(vec![(0, run)], only_fences, 0, Vec::new()).with_filters(filters, Vec::new())
    }

    /// The level with filters of all its data entries.
    pub fn with_filters(self, filters: FilterForm, partitions: Vec<Arc<Partition>>) -> Self {
        Self {
            filters,
            partitions: RwLock::new(Partitions::of(partitions)),
            ..self
        }
    }

    /// The level with these blocks. `runs`: those in which they were written, each from an
    /// ordinal on; the last is its own.
    pub fn opened(runs: Vec<(u64, u64)>, only_fences: bool, first: u64, numbers: Vec<u64>) -> Self {
        let places = Places::of(numbers);
        places.close();
        Self {
            run: runs.last().map_or(0, |(_, run)| *run),
            only_fences,
            first,
            filters: FilterForm::default(),
            partitions: RwLock::default(),
            places,
            runs: RwLock::new(runs),
        }
    }

    /// The ordinal behind the last block.
    pub fn end(&self) -> u64 {
        self.first + self.places.len()
    }

    /// The runs of the blocks, each from an ordinal on; the last is its own.
    pub fn runs(&self) -> Vec<(u64, u64)> {
        self.runs.read().clone()
    }

    /// Blocks that were kept: the ordinal of the first block of its own run.
    pub fn kept(&self) -> u64 {
        self.runs.read().last().map_or(0, |(from, _)| *from)
    }

    /// Its blocks before `end`, whose entries are below `key`, and their filters. The last of these
    /// may have entries from `key` on, too, which only makes it err more.
    pub fn before(&self, end: u64, key: &[u8]) -> Kept {
        let runs = self.runs.read();
        let runs = runs.iter().filter(|(from, _)| *from < end);
        let partitions = self.partitions.read();
        let begun = partitions.before(key);
        Kept {
            places: (0..end).map_while(|at| self.places.get(at)).collect(),
            runs: runs.copied().collect(),
            partitions: partitions.list().iter().take(begun).cloned().collect(),
        }
    }

    /// Takes blocks and filters over, before those of its own. It has no block yet.
    pub fn keep(&self, kept: Kept) {
        debug_assert!(self.end() == 0, "kept blocks are the first");
        let mut runs = kept.runs;
        runs.push((kept.places.len() as u64, self.run));
        *self.runs.write() = runs;
        for (at, place) in (0..).zip(kept.places) {
            self.places.set(at, place);
        }
        self.partitions.write().put_first(kept.partitions);
    }

    /// Another level has taken over the filters of entries before `key`. The last of them is lent:
    /// it still tells the absent keys from `key` on.
    pub fn give_filters(&self, key: &[u8]) {
        let mut partitions = self.partitions.write();
        let begun = partitions.before(key);
        let lent = partitions.take_first(begun).pop();
        partitions.put_first(lent.map(|one| Arc::new(one.lent())).into_iter().collect());
    }

    /// Bytes of the list and of the filters in memory.
    pub fn memory_bytes(&self) -> usize {
        let partitions = self.partitions.read();
        let filters = partitions.list().iter().map(|one| one.memory_bytes());
        self.places.memory_bytes() + partitions.list_bytes() + filters.sum::<usize>()
    }

    /// The filters.
    pub fn partitions(&self) -> Vec<Arc<Partition>> {
        self.partitions.read().list().to_vec()
    }

    /// Blocks of the filters.
    pub fn filter_blocks(&self) -> u64 {
        let partitions = self.partitions.read();
        let blocks = partitions.list().iter().map(|one| one.owned().len() as u64);
        blocks.sum()
    }

    /// Adds a filter of the data entries from its first one on.
    pub fn push_partition(&self, partition: Arc<Partition>) {
        self.partitions.write().push(partition);
    }

    /// The filter of the same entries is on the device.
    pub fn store_partition(&self, stored: &Arc<Partition>) {
        self.partitions.write().replace(stored);
    }

    /// Removes the filters of entries up to `wave`, which nobody looks for here any more. Returns
    /// their blocks.
    pub fn pass_partitions(&self, wave: &[u8]) -> Vec<u64> {
        let mut partitions = self.partitions.write();
        let passed = partitions.up_to(wave).saturating_sub(1);
        let passed = partitions.take_first(passed);
        passed.iter().flat_map(|one| one.owned().to_vec()).collect()
    }

    /// Whether there may be this data entry, or one of this key; false is certain. Reads of a
    /// filter that is not in memory what it needs.
    pub fn may_contain(&self, wanted: Wanted<'_>, source: FilterSource<'_>) -> Result<bool> {
        if self.only_fences || self.filters.bits == 0 {
            return Ok(!self.only_fences);
        }
        let Some(hash) = wanted.hash(self.filters.of) else {
            return Ok(true);
        };
        let mut unread = Vec::new();
        {
            let partitions = self.partitions.read();
            let Some(floor) = partitions.up_to(wanted.bytes).checked_sub(1) else {
                return Ok(true);
            };
            for (at, one) in partitions.list().iter().enumerate().skip(floor) {
                if at > floor && !(wanted.is_key && one.first.starts_with(wanted.bytes)) {
                    break;
                }
                match one.in_memory() {
                    Some(filter) if filter.may_contain(hash) => return Ok(true),
                    Some(_) => {}
                    None => unread.push(one.clone()),
                }
            }
        }
        for partition in unread {
            if partition.may_contain(hash, source)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Blocks are written to it from now on. Nobody reads it yet.
    pub fn begin_writing(&self) {
        self.places.open();
    }

    /// No block is written to it any more.
    pub fn end_writing(&self) {
        self.places.close();
    }

    /// The position of an ordinal in the list; None if the level was opened behind it.
    fn position(&self, ordinal: u64) -> Option<u64> {
        ordinal.checked_sub(self.first)
    }

    /// The handle of a stored block's frame; None if the pool keeps nothing, or if the block is the
    /// last one and may change.
    pub fn frame(&self, ordinal: u64, pool: &Arc<Pool>) -> Option<FrameHandle<Block>> {
        if pool.budget_bytes() == 0 {
            return None;
        }
        self.places.frame(self.position(ordinal)?, pool)
    }

    /// What `look` finds in a block that is in memory; None if it is not. It must not look at this
    /// level's blocks.
    pub fn look<R>(&self, ordinal: u64, look: impl FnOnce(&Block) -> R) -> Option<R> {
        self.places.look(self.position(ordinal)?, look)
    }

    /// Where a block is, and the run in which it was written.
    fn place_and_run(&self, ordinal: u64) -> Option<(Place, u64)> {
        let place = self.places.get(self.position(ordinal)?)?;
        let runs = self.runs.read();
        let begun = runs.partition_point(|(from, _)| *from <= ordinal);
        let (_, run) = runs.get(begun.checked_sub(1)?)?;
        Some((place, *run))
    }

    /// The number of a block; None if it is not stored.
    pub fn number(&self, ordinal: u64) -> Option<u64> {
        self.places.number(self.position(ordinal)?)
    }

    /// The numbers of the blocks from an ordinal on; None of a block that is not stored.
    pub fn numbers(&self, from: u64) -> Vec<Option<u64>> {
        let from = from.max(self.first);
        (from..self.end()).map(|at| self.number(at)).collect()
    }

    /// Sets the place of a block, which may be the next one.
    pub fn set(&self, ordinal: u64, place: Place) {
        debug_assert!(ordinal >= self.kept(), "a kept block does not change");
        self.places.set(ordinal - self.first, place);
    }

    /// A block.
    ///
    /// # Errors
    /// The device's; XX001 if the block is damaged, or if there is none.
    pub fn read(&self, ordinal: u64, tree: u64, blocks: &dyn LevelBlocks) -> Result<Arc<Block>> {
        match self.in_memory(ordinal, tree)? {
            Ok(block) => Ok(block),
            Err(stored) => self.decode(ordinal, stored, tree, blocks.read(stored.number)?),
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
        match self.place_and_run(ordinal) {
            Some((Place::Stored(number, _), run)) => {
                let stored = Stored { number, run };
                self.decode(ordinal, stored, tree, blocks.read(number)?)
            }
            _ => self.read(ordinal, tree, blocks),
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
            .filter_map(|one| one.as_ref().err().map(|stored| stored.number))
            .collect();
        let mut read = blocks.read_many(&unread)?.into_iter();
        let found = found
            .into_iter()
            .zip(ordinals)
            .map(|(one, ordinal)| match one {
                Ok(block) => Ok(block),
                Err(stored) => {
                    let bytes = read.next().unwrap_or_default();
                    self.decode(*ordinal, stored, tree, bytes)
                }
            });
        found.collect()
    }

    /// A block in memory, or where it is stored.
    fn in_memory(
        &self,
        ordinal: u64,
        tree: u64,
    ) -> Result<std::result::Result<Arc<Block>, Stored>> {
        match self.place_and_run(ordinal) {
            Some((Place::Memory(block), _)) => Ok(Ok(block)),
            Some((Place::Stored(number, frame), run)) => {
                let stored = Stored { number, run };
                Ok(frame.and_then(|frame| frame.get()).ok_or(stored))
            }
            None => Err(Error::corrupt(
                format!("{}, run {}", index_name(tree), self.run),
                format!("a fence leads to block {ordinal}, which the run does not have"),
            )),
        }
    }

    fn decode(
        &self,
        ordinal: u64,
        stored: Stored,
        tree: u64,
        bytes: Vec<u8>,
    ) -> Result<Arc<Block>> {
        let Stored { number, run } = stored;
        let at = Identity {
            tree,
            number,
            run,
            ordinal,
        };
        Ok(Arc::new(Block::decode(bytes, at)?))
    }
}
