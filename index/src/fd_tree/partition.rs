//! Filters of a level, each for the data entries from one entry up to the next filter. They are
//! written with the blocks of the same batch, and read when a lookup first needs them, so that an
//! opened tree knows what is absent as well. A filter for which the filters' memory has no room is
//! read by blocks, which the pool keeps: of each lookup at most one, and one more for its size.
//!
//! ```text
//! 0   u32  CRC-32C over tree, number, 1, and the bytes from 4 up to the end of the lines
//! 4   u16  version of the format
//! 6   u16  lines
//! 8   u64  run of the level
//! 16  u64  ordinal of the block among the filter blocks of its run
//! 24  ...  lines of 32 bytes: eight u32
//! ```

use super::block::{Identity, index_name};
use super::filter::{Filter, LINE_BYTES};
use super::filter_memory::{FilterMemory, FilterShare};
use std::sync::Arc;
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::sync::OnceLock;
use strandline_base::{Error, Result, checksum};
use strandline_storage::level_blocks::LevelBlocks;
use strandline_storage::pool::{FrameHandle, Pool};

const VERSION: u16 = 1;
const HEADER_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 4;
/// In the checksum: tells a block of a filter from a block of entries.
const KIND: u64 = 1;
/// The most blocks of a filter.
const BLOCKS_MAX: usize = if cfg!(test) { 2 } else { 16 };

/// Where filters that are not in memory come from, and what keeps them.
#[derive(Clone, Copy)]
pub(super) struct FilterSource<'a> {
    pub tree: u64,
    pub blocks: &'a dyn LevelBlocks,
    /// keeps blocks of filters for which there is no memory
    pub pool: &'a Arc<Pool>,
    pub memory: &'a Arc<FilterMemory>,
}

/// The filter of a part of a level.
#[derive(Debug)]
pub(super) struct Partition {
    /// the first entry; empty for the first filter of a level
    pub first: Box<[u8]>,
    /// the run in which it was written
    pub run: u64,
    /// ordinal of its first block among the filter blocks of its run
    pub ordinal: u64,
    /// its blocks; none before it is written
    pub numbers: Vec<u64>,
    /// its blocks belong to another level, which has taken it over
    pub is_lent: bool,
    content: Arc<Content>,
}

/// What is in memory of a filter.
#[derive(Debug, Default)]
struct Content {
    /// empty after an opening, until it is read, and while memory has no room for it
    whole: OnceLock<Resident>,
    /// the number of its lines, as soon as it is known
    lines: OnceLock<usize>,
    /// the frames of its blocks, as soon as one is read by itself
    frames: OnceLock<Box<[FrameHandle<Filter>]>>,
}

/// A filter in memory; one that is not written yet has no share of the filters' memory.
#[derive(Debug)]
struct Resident {
    filter: Arc<Filter>,
    _share: Option<FilterShare>,
}

/// Lines that fit into a block.
fn lines_a_block(block_bytes: usize) -> usize {
    block_bytes.saturating_sub(HEADER_BYTES) / LINE_BYTES
}

/// Data entries of a whole filter; 0 if blocks are too small for one.
pub(super) fn entries_max(block_bytes: usize, filter_bits: usize) -> usize {
    Filter::entries_of(BLOCKS_MAX * lines_a_block(block_bytes), filter_bits)
}

impl Partition {
    /// A filter that was written.
    pub fn stored(first: Box<[u8]>, run: u64, ordinal: u64, numbers: Vec<u64>) -> Self {
        Self {
            first,
            run,
            ordinal,
            numbers,
            is_lent: false,
            content: Arc::default(),
        }
    }

    /// A filter that is not written.
    pub fn of(first: Box<[u8]>, run: u64, ordinal: u64, filter: Arc<Filter>) -> Self {
        let partition = Self::stored(first, run, ordinal, Vec::new());
        partition.content.set(filter, None);
        partition
    }

    /// As [`Partition::stored`], of this filter, which stays in memory if there is room.
    pub fn written(self, filter: Arc<Filter>, memory: &Arc<FilterMemory>) -> Self {
        let _is_new = self.content.lines.set(filter.lines());
        if let Some(share) = memory.take(filter.memory_bytes()) {
            self.content.set(filter, Some(share));
        }
        self
    }

    /// The same filter for a level that it does not belong to any more.
    pub fn lent(&self) -> Self {
        Self {
            first: self.first.clone(),
            numbers: self.numbers.clone(),
            content: self.content.clone(),
            is_lent: true,
            ..*self
        }
    }

    /// Its blocks, if they are those of its level.
    pub fn owned(&self) -> &[u64] {
        match self.is_lent {
            true => &[],
            false => &self.numbers,
        }
    }

    /// Bytes of memory, without blocks in the pool.
    pub fn memory_bytes(&self) -> usize {
        let own = size_of::<Self>() + size_of::<Content>();
        let frames = self.content.frames.get();
        let frames = frames.map_or(0, |frames| size_of_val(&**frames));
        let lists = self.first.len() + size_of_val(self.numbers.as_slice()) + frames;
        own + lists + self.in_memory().map_or(0, |filter| filter.memory_bytes())
    }

    /// The filter, if it is in memory.
    pub fn in_memory(&self) -> Option<&Filter> {
        self.content.whole.get().map(|whole| &*whole.filter)
    }

    fn places(&self, tree: u64) -> impl Iterator<Item = Identity> {
        let numbers = self.numbers.iter().zip(self.ordinal..);
        numbers.map(move |(number, ordinal)| Identity {
            tree,
            number: *number,
            run: self.run,
            ordinal,
        })
    }

    /// The numbers of its blocks that are damaged or cannot be read on the device.
    pub fn unreadable(&self, tree: u64, blocks: &dyn LevelBlocks) -> Vec<u64> {
        let is_unreadable = |at: &Identity| {
            let bytes = blocks.read(at.number).ok();
            let taken = bytes.and_then(|bytes| take_block(&bytes, *at, &mut Filter::default()));
            taken.is_none()
        };
        let places = self.places(tree).filter(is_unreadable);
        places.map(|at| at.number).collect()
    }

    /// Whether there may be a data entry with this hash; false is certain. A filter that is not in
    /// memory is read: all of it if there is room, else the block that tells.
    ///
    /// # Errors
    /// The device's; XX001 if a block is damaged.
    pub fn may_contain(&self, hash: u64, source: FilterSource<'_>) -> Result<bool> {
        if let Some(filter) = self.in_memory() {
            return Ok(filter.may_contain(hash));
        }
        let bytes = self.numbers.len() * source.blocks.block_bytes();
        if let Some(share) = source.memory.take(bytes) {
            let filter = self.read(source.tree, source.blocks)?;
            return Ok(self.content.set(filter, Some(share)).may_contain(hash));
        }
        let a_block = lines_a_block(source.blocks.block_bytes()).max(1);
        let lines = match self.content.lines.get() {
            Some(lines) => *lines,
            None => {
                // All blocks but the last one are full.
                let last = self.numbers.len().saturating_sub(1);
                let of_last = self.block(last, source, |block| block.lines())?;
                *self.content.lines.get_or_init(|| last * a_block + of_last)
            }
        };
        let line = Filter::line_of(hash, lines);
        let is_there = |block: &Filter| block.line_may_contain(line % a_block, hash);
        self.block(line / a_block, source, is_there)
    }

    /// The filter.
    ///
    /// # Errors
    /// The device's; XX001 if a block is damaged.
    pub fn read(&self, tree: u64, blocks: &dyn LevelBlocks) -> Result<Arc<Filter>> {
        if let Some(whole) = self.content.whole.get() {
            return Ok(whole.filter.clone());
        }
        let mut filter = Filter::default();
        let read = blocks.read_many(&self.numbers)?;
        for (at, bytes) in self.places(tree).zip(read) {
            take_block(&bytes, at, &mut filter).ok_or_else(|| damaged(at))?;
        }
        Ok(Arc::new(filter))
    }

    /// What `look` finds in one of the filter's blocks, which the pool keeps.
    fn block<R>(
        &self,
        nth: usize,
        source: FilterSource<'_>,
        look: impl FnOnce(&Filter) -> R,
    ) -> Result<R> {
        let load = || {
            let places = &mut self.places(source.tree);
            let at = places.nth(nth).ok_or_else(|| {
                let what = format!(
                    "a filter of {} blocks has no block {nth}",
                    self.numbers.len()
                );
                Error::corrupt(index_name(source.tree), what)
            })?;
            let bytes = source.blocks.read(at.number)?;
            let mut filter = Filter::default();
            take_block(&bytes, at, &mut filter).ok_or_else(|| damaged(at))?;
            let bytes = filter.memory_bytes();
            Ok((filter, bytes))
        };
        let frames = (source.pool.budget_bytes() > 0).then(|| {
            let numbers = self.numbers.iter();
            let frames = || numbers.map(|_| FrameHandle::new(source.pool)).collect();
            self.content.frames.get_or_init(frames)
        });
        match frames.and_then(|frames| frames.get(nth)) {
            Some(frame) => Ok(look(&*frame.get_or_load(load)?)),
            None => Ok(look(&load()?.0)),
        }
    }
}

impl Content {
    /// Keeps a filter, unless another caller has done so.
    fn set(&self, filter: Arc<Filter>, share: Option<FilterShare>) -> &Filter {
        let resident = || Resident {
            filter,
            _share: share,
        };
        &self.whole.get_or_init(resident).filter
    }
}

fn damaged(at: Identity) -> Error {
    let place = format!("block {} of {}", at.number, index_name(at.tree));
    Error::corrupt(place, "the filter in it is damaged: build the index anew")
}

/// Blocks that a filter takes on the device.
pub(super) fn blocks_of(filter: &Filter, block_bytes: usize) -> usize {
    filter.lines().div_ceil(lines_a_block(block_bytes).max(1))
}

/// The bytes of a filter's block with this place among its blocks, filled up to `block_bytes`.
pub(super) fn encode_block(
    filter: &Filter,
    nth: usize,
    at: Identity,
    block_bytes: usize,
) -> Vec<u8> {
    let a_block = lines_a_block(block_bytes);
    let from = nth * a_block;
    let lines = filter.lines().saturating_sub(from).min(a_block);
    let mut bytes = Vec::with_capacity(block_bytes);
    bytes.put_u32(0);
    bytes.put_u16(VERSION);
    bytes.put_u16(lines as u16);
    bytes.put_u64(at.run);
    bytes.put_u64(at.ordinal);
    filter.put_lines(from, lines, &mut bytes);
    let rest = bytes.get(CHECKSUM_BYTES..).unwrap_or_default();
    let sum = checksum(&[at.tree, at.number, KIND], rest);
    if let Some(place) = bytes.get_mut(..CHECKSUM_BYTES) {
        place.copy_from_slice(&sum.to_le_bytes());
    }
    bytes.resize(block_bytes, 0);
    bytes
}

/// Appends the lines of a block that belongs at `at`; None if it is damaged or another one.
fn take_block(bytes: &[u8], at: Identity, filter: &mut Filter) -> Option<()> {
    let mut reader = ByteReader::new(bytes);
    let sum = reader.u32()?;
    let (version, lines) = (reader.u16()?, usize::from(reader.u16()?));
    let place = (reader.u64()?, reader.u64()?);
    let used = HEADER_BYTES + lines * LINE_BYTES;
    let rest = bytes.get(CHECKSUM_BYTES..used)?;
    let is_whole = checksum(&[at.tree, at.number, KIND], rest) == sum;
    if !is_whole || version != VERSION || place != (at.run, at.ordinal) {
        return None;
    }
    filter.take_lines(lines, &mut reader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_storage::level_blocks::MemoryBlocks;

    /// A filter comes back from its blocks, and damage of any byte of them is an error.
    #[test]
    fn comes_back_whole_or_not_at_all() {
        let filter = Arc::new(Filter::new(entries_max(256, 10), 10));
        assert_eq!(blocks_of(&filter, 256), 2);
        for hash in 0..300_u64 {
            filter.add(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        }
        let at = |nth: u64| Identity {
            tree: 9,
            number: 4 + nth,
            run: 5,
            ordinal: 70 + nth,
        };
        let mut encoded: Vec<_> = (0..2)
            .map(|nth| (4 + nth, encode_block(&filter, nth as usize, at(nth), 256)))
            .collect();
        let read = |encoded: &[(u64, Vec<u8>)], ordinal, run| {
            let blocks = MemoryBlocks::new(256);
            blocks.write(encoded).unwrap();
            let partition = Partition::stored(Box::default(), run, ordinal, vec![4, 5]);
            partition.read(9, &blocks)
        };
        let again = read(&encoded, 70, 5).unwrap();
        let lines = |filter: &Filter| {
            let mut bytes = Vec::new();
            filter.put_lines(0, 99, &mut bytes);
            bytes
        };
        assert_eq!(lines(&again), lines(&filter));
        assert!(read(&encoded, 69, 5).is_err() && read(&encoded, 70, 6).is_err());
        for byte in 0..HEADER_BYTES + 7 * LINE_BYTES {
            encoded[1].1[byte] ^= 8;
            let error = read(&encoded, 70, 5).unwrap_err().to_string();
            assert!(
                error.contains("block 5 of index levels-00000009"),
                "byte {byte}: {error}"
            );
            encoded[1].1[byte] ^= 8;
        }
    }
}
