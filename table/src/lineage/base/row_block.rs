//! The rows of a block in row order: the decoded form that point reads use \[L-Store §6.3, Table 9:
//! reading all columns of a row\].
//!
//! Columns decoded one by one cost a cache miss per value. A [`RowBlock`] holds fixed-width values
//! of 4,096 rows row by row, so that a row costs one or two. It lives in the bounded pool like
//! every decoded frame.
//!
//! The rows of a range are decoded for the columns that reads ask for, as most reads of a table ask
//! for the same few: up to [`SETS`] sets of columns, each at most half. Reads of most columns
//! use blocks of all columns; so do further sets, if they are a large part of all columns.
//!
//! A block is made once the columns asked for are in memory: by the second read of 4,096 rows while
//! memory has them, or after a scan. A first read may be the only one. It reads the columns that it
//! asks for, and no others ([`ChunkColumn::row_values`]).
//!
//! While the pool has no room, a block is made by one of [`HOT_READS`] reads only, and only if few
//! frames were loaded meanwhile ([`Misses::are_few`]): it may take twenty times the memory of the
//! encoded columns, and saves less than a microsecond of a read, whereas what leaves for it is read
//! of the device again. For the same reason a block leaves when its turn comes, however often it is
//! read ([`FrameHandle::peek`]).
//!
//! Invariant: a block is made of immutable chunks and never changes.

use super::chunk_column::ChunkColumn;
use arrow_array::Array;
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_base::sync::{AtomicU16, AtomicU32, OnceLock, Ordering};
use strandline_base::value_words::{Physical, physical, set_word};
use strandline_base::{BLOCK_ROWS, ColumnId, RANGE_ROWS, Result, SqlType, Value};
use strandline_column::types::each_word;
use strandline_storage::pool::{FrameHandle, Pool};

/// Most columns of a row: NULLs are the bits of one word.
const COLUMNS_MAX: usize = 64;
/// A block is made for reads of at least this part of its columns; more would go unused.
const WORTH: usize = 4;
/// Sets of columns that have blocks of their own.
const SETS: usize = 3;

/// Reads of 4,096 rows for which a block may be made in a full pool.
const HOT_READS: u16 = 1024;

/// The part of the pool's budget that is free in a pool with room.
const ROOM_PART: usize = 8;

/// So many reads of a fast device take about as long as a block saves in [`HOT_READS`] reads.
const WORTH_MISSES: u64 = 8;

/// The blocks of a range, made on demand.
#[derive(Debug, Default)]
pub struct RowBlocks {
    /// by block
    refused: [Misses; RANGE_ROWS / BLOCK_ROWS],
    /// blocks with the columns of frequent reads
    sets: [OnceLock<Box<Blocks>>; SETS],
    /// with all columns
    all: OnceLock<Box<Blocks>>,
}

/// Reads that found no room for a block, and what the pool has loaded meanwhile.
#[derive(Debug, Default)]
struct Misses {
    /// wraps
    reads: AtomicU16,
    /// the pool's misses at the first of the last [`HOT_READS`] reads; wraps
    before: AtomicU32,
}

impl Misses {
    /// Counts a read. Whether it is the last of [`HOT_READS`], during which the pool has loaded few
    /// frames: a block of `bytes` costs about its part of the frames' bytes of such misses.
    fn are_few(&self, bytes: usize, pool: &Pool) -> bool {
        let reads = self.reads.fetch_add(1, Ordering::Relaxed);
        let misses = || pool.misses() as u32;
        if reads.is_multiple_of(HOT_READS) {
            self.before.store(misses(), Ordering::Relaxed);
        }
        if reads % HOT_READS != HOT_READS - 1 {
            return false;
        }
        let during = misses().wrapping_sub(self.before.load(Ordering::Relaxed));
        u64::from(during).saturating_mul(bytes as u64)
            <= (pool.frame_bytes() as u64).saturating_mul(WORTH_MISSES)
    }
}

#[derive(Debug)]
struct Blocks {
    /// by column id
    places: Vec<BlockColumn>,
    /// values per row
    width: usize,
    blocks: [OnceLock<FrameHandle<RowBlock>>; RANGE_ROWS / BLOCK_ROWS],
}

/// Where a column is.
#[derive(Clone, Copy, Debug)]
enum BlockColumn {
    /// the place in the row
    Here(u8, SqlType),
    /// perhaps in other blocks
    LeftOut,
    /// in the chunk only
    InNoBlock,
}

/// Row by row the values, after a word of NULL bits if there is a NULL in the block.
#[derive(Debug)]
struct RowBlock {
    words: Vec<u64>,
    has_nulls: bool,
}

/// The chunks that a range's blocks are made of.
#[derive(Clone, Copy)]
pub struct RowChunks<'a> {
    /// slots in use
    pub rows: u32,
    /// by column id; None: the column was added after the chunks were written
    pub columns: &'a [Option<Arc<ChunkColumn>>],
}

/// One row of a block.
pub struct BlockRow<'a> {
    places: &'a [BlockColumn],
    nulls: u64,
    values: &'a [u64],
}

impl BlockRow<'_> {
    /// Sets `out` to the value of a column; false if the block does not hold the column.
    #[inline]
    pub fn read(&self, column: ColumnId, out: &mut Value) -> bool {
        let Some(BlockColumn::Here(place, sql_type)) = self.places.get(column.0 as usize) else {
            return false;
        };
        match self.nulls >> place & 1 {
            0 => set_word(out, *sql_type, self.values[usize::from(*place)]),
            _ => *out = Value::Null,
        }
        true
    }
}

/// Whether values of the column fit in blocks.
fn is_word(column: &ChunkColumn) -> bool {
    physical(column.stored.sql_type()) == Physical::Word
}

impl Blocks {
    /// Blocks of the columns that `is_wanted` selects, as many as fit.
    fn of(chunks: RowChunks<'_>, is_wanted: impl Fn(ColumnId) -> bool) -> Box<Self> {
        let mut width = 0;
        let place = |(id, column): (usize, &Option<Arc<ChunkColumn>>)| match column {
            Some(column) if is_word(column) => {
                if width == COLUMNS_MAX || !is_wanted(ColumnId(id as u32)) {
                    return BlockColumn::LeftOut;
                }
                width += 1;
                BlockColumn::Here((width - 1) as u8, column.stored.sql_type())
            }
            _ => BlockColumn::InNoBlock,
        };
        let places = chunks.columns.iter().enumerate().map(place).collect();
        Box::new(Self {
            places,
            width,
            blocks: [const { OnceLock::new() }; RANGE_ROWS / BLOCK_ROWS],
        })
    }

    #[inline]
    fn place(&self, column: ColumnId) -> BlockColumn {
        let place = self.places.get(column.0 as usize);
        *place.unwrap_or(&BlockColumn::InNoBlock)
    }

    #[inline]
    fn row<'a>(&'a self, block: &'a RowBlock, row: usize) -> BlockRow<'a> {
        let first = usize::from(block.has_nulls);
        let stride = first + self.width;
        let words = &block.words[row * stride..(row + 1) * stride];
        BlockRow {
            places: &self.places,
            nulls: if block.has_nulls { words[0] } else { 0 },
            values: &words[first..],
        }
    }

    /// Whether it has all of `columns` that any block can have.
    #[inline]
    fn holds(&self, mut columns: impl Iterator<Item = ColumnId>) -> bool {
        columns.all(|column| !matches!(self.place(column), BlockColumn::LeftOut))
    }

    /// Whether to make a block for a read of `columns`.
    fn is_worth(&self, columns: impl Iterator<Item = ColumnId>) -> bool {
        let held = columns.filter(|column| matches!(self.place(*column), BlockColumn::Here(..)));
        let held = held.count();
        held >= 2 && held * WORTH >= self.width
    }

    fn read(&self, chunks: RowChunks<'_>, block: usize) -> Result<RowBlock> {
        let rows = BLOCK_ROWS.min(chunks.rows as usize - block * BLOCK_ROWS);
        let (mut held, mut places) = (Vec::new(), Vec::new());
        for (chunk, place) in chunks.columns.iter().zip(&self.places) {
            if let (Some(chunk), BlockColumn::Here(place, sql_type)) = (chunk, place) {
                held.push(&**chunk);
                places.push((usize::from(*place), *sql_type));
            }
        }
        let arrays = ChunkColumn::blocks_together(&held, block)?;
        let columns = places.into_iter().zip(arrays);
        let columns: Vec<_> = columns
            .map(|((place, t), array)| (place, t, array))
            .collect();
        let has_nulls = columns
            .iter()
            .any(|(.., array)| array.logical_null_count() > 0);
        let first = usize::from(has_nulls);
        let stride = first + self.width;
        let mut words = vec![0; rows * stride];
        for (place, sql_type, array) in columns {
            let mut rows = words.chunks_exact_mut(stride);
            each_word(sql_type, &array, |word| {
                let Some(values) = rows.next() else { return };
                match word {
                    Some(word) => values[first + place] = word,
                    None => values[0] |= 1 << place,
                }
            });
        }
        Ok(RowBlock { words, has_nulls })
    }
}

impl RowBlocks {
    /// Gives `read` the row at `slot`, if there is a block for `columns` or making one is worth it.
    #[inline]
    pub fn read_row(
        &self,
        chunks: RowChunks<'_>,
        slot: usize,
        columns: impl Iterator<Item = ColumnId> + Clone,
        pool: &Arc<Pool>,
        mut read: impl FnMut(BlockRow<'_>),
    ) -> Result<()> {
        if slot >= chunks.rows as usize {
            return Ok(());
        }
        let (block, row) = (slot / BLOCK_ROWS, slot % BLOCK_ROWS);
        let Self { sets, all, .. } = self;
        let sets = sets.iter().map_while(OnceLock::get);
        let sets = sets.filter(|set| set.holds(columns.clone()));
        for blocks in sets.chain(all.get()) {
            let give = |block: &RowBlock| read(blocks.row(block, row));
            if let Some(frame) = blocks.blocks[block].get()
                && frame.peek(give).is_some()
            {
                return Ok(());
            }
        }
        if let Some((blocks, loaded)) = self.load_block(chunks, block, columns, pool)? {
            read(blocks.row(&loaded, row));
        }
        Ok(())
    }

    /// Whether a read may make a block with `columns` columns; counts it if there is no room.
    fn may_make(&self, block: usize, columns: usize, pool: &Pool) -> bool {
        let bytes = columns * BLOCK_ROWS * size_of::<u64>();
        // What has just left makes no room.
        let room = bytes.max(pool.budget_bytes() / ROOM_PART);
        pool.has_room_for(room) || self.refused[block].are_few(bytes, pool)
    }

    /// A block for a read of `columns`, made now; None if that is not worth it, or if the device
    /// would have to be asked for one of `columns`.
    #[cold]
    fn load_block(
        &self,
        chunks: RowChunks<'_>,
        block: usize,
        columns: impl Iterator<Item = ColumnId> + Clone,
        pool: &Arc<Pool>,
    ) -> Result<Option<(&Blocks, Arc<RowBlock>)>> {
        let is_cold = |column: ColumnId| match chunks.columns.get(column.0 as usize) {
            Some(Some(chunk)) => is_word(chunk) && !chunk.has_block(block),
            _ => false,
        };
        if columns.clone().any(is_cold) || !self.may_make(block, columns.clone().count(), pool) {
            return Ok(None);
        }
        let Some(blocks) = self.blocks_for(chunks, columns) else {
            return Ok(None);
        };
        let frame = blocks.blocks[block].get_or_init(|| FrameHandle::new(pool));
        let loaded = frame.get_or_load(|| {
            let block = blocks.read(chunks, block)?;
            let bytes = block.words.capacity() * 8;
            Ok((block, bytes))
        })?;
        Ok(Some((blocks, loaded)))
    }

    /// The blocks to make for reads of `columns`; None if the columns by themselves are as good.
    fn blocks_for(
        &self,
        chunks: RowChunks<'_>,
        columns: impl Iterator<Item = ColumnId> + Clone,
    ) -> Option<&Blocks> {
        let is_held = |column: &ColumnId| {
            let chunk = chunks.columns.get(column.0 as usize);
            matches!(chunk, Some(Some(chunk)) if is_word(chunk))
        };
        let mut several = columns.clone().filter(is_held);
        let one = several.next()?;
        several.find(|column| *column != one)?;
        let wanted: BTreeSet<ColumnId> = columns.filter(is_held).collect();
        let suits = |blocks: &Blocks| {
            let wanted = wanted.iter().copied();
            blocks.holds(wanted.clone()) && blocks.is_worth(wanted)
        };
        let held = chunks
            .columns
            .iter()
            .flatten()
            .filter(|c| is_word(c))
            .count();
        let Self { sets, all, .. } = self;
        if wanted.len() * 2 <= held && wanted.len() <= COLUMNS_MAX {
            for set in sets {
                let set = set.get_or_init(|| Blocks::of(chunks, |column| wanted.contains(&column)));
                if suits(set) {
                    return Some(set);
                }
            }
        }
        if wanted.len() * WORTH < held.min(COLUMNS_MAX) {
            return None;
        }
        let all = all.get_or_init(|| Blocks::of(chunks, |_| true));
        all.is_worth(wanted.into_iter()).then_some(all)
    }
}
