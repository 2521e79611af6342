//! The rows of a block side by side: the decoded form that point reads go by \[L-Store §6.3,
//! Table 9: reading all columns of a row\].
//!
//! Columns decoded one by one cost a cache miss per value. A [`RowBlock`] holds fixed-width values
//! of 4,096 rows row by row, so that a row costs one or two. It lives in the bounded cache like
//! every decoded frame.
//!
//! Of a range there are up to two kinds of blocks: with the columns of the first read that asked
//! for several, as most reads of a table ask for the same few, and with all columns, for reads of
//! others that ask for a good part of them.
//!
//! Invariant: a block is made of immutable chunks and never changes.

use crate::base::{ChunkBase, ChunkColumn};
use crate::types::{Physical, each_word, physical, set_word};
use arrow_array::Array;
use std::sync::{Arc, OnceLock};
use strandline_base::{BLOCK_ROWS, ColumnId, RANGE_ROWS, Result, SqlType, Value};
use strandline_storage::cache::{Cache, Slot};

/// Most columns of a row: NULLs are the bits of one word.
const COLUMNS_MAX: usize = 64;
/// A block of all columns is made for reads of at least this part of them; more would go unused.
const WORTH: usize = 4;

/// The blocks of a range, made on demand.
#[derive(Debug, Default)]
pub struct RowBlocks {
    /// with the columns of the first read of several
    first: OnceLock<Box<Blocks>>,
    /// with all columns
    all: OnceLock<Box<Blocks>>,
}

#[derive(Debug)]
struct Blocks {
    /// by column id
    places: Vec<Place>,
    /// values per row
    width: usize,
    blocks: [OnceLock<Slot<RowBlock>>; RANGE_ROWS / BLOCK_ROWS],
}

/// Where a column is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// the place in the row
    Here(u8, SqlType),
    /// in blocks of all columns
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

/// One row of a block.
pub struct BlockRow<'a> {
    places: &'a [Place],
    nulls: u64,
    values: &'a [u64],
}

impl BlockRow<'_> {
    /// Sets `out` to the value of a column; false if the block does not hold the column.
    #[inline]
    pub fn read(&self, column: ColumnId, out: &mut Value) -> bool {
        let Some(Place::Here(place, sql_type)) = self.places.get(column.0 as usize) else {
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
    physical(column.sql_type()) == Physical::Word
}

impl Blocks {
    /// Blocks of the columns that `is_wanted` says, as many as there is room for.
    fn of(chunks: &ChunkBase, is_wanted: impl Fn(ColumnId) -> bool) -> Box<Self> {
        let mut width = 0;
        let place = |(id, column): (usize, &Option<Arc<ChunkColumn>>)| match column {
            Some(column) if is_word(column) => {
                if !is_wanted(ColumnId(id as u32)) {
                    return Place::LeftOut;
                }
                if width == COLUMNS_MAX {
                    return Place::InNoBlock;
                }
                width += 1;
                Place::Here((width - 1) as u8, column.sql_type())
            }
            _ => Place::InNoBlock,
        };
        let places = chunks.columns.iter().enumerate().map(place).collect();
        Box::new(Self {
            places,
            width,
            blocks: [const { OnceLock::new() }; RANGE_ROWS / BLOCK_ROWS],
        })
    }

    #[inline]
    fn place(&self, column: ColumnId) -> Place {
        let place = self.places.get(column.0 as usize);
        *place.unwrap_or(&Place::InNoBlock)
    }

    /// Whether it has what any block has of `columns`.
    #[inline]
    fn holds(&self, mut columns: impl Iterator<Item = ColumnId>) -> bool {
        columns.all(|column| !matches!(self.place(column), Place::LeftOut))
    }

    /// Whether to make a block for a read of `columns`.
    fn is_worth(&self, columns: impl Iterator<Item = ColumnId>) -> bool {
        let held = columns.filter(|column| matches!(self.place(*column), Place::Here(..)));
        let held = held.count();
        held >= 2 && held * WORTH >= self.width
    }

    fn read(&self, chunks: &ChunkBase, block: usize) -> Result<RowBlock> {
        let rows = BLOCK_ROWS.min(chunks.rows as usize - block * BLOCK_ROWS);
        let mut columns = Vec::with_capacity(self.width);
        for (chunk, place) in chunks.columns.iter().zip(&self.places) {
            if let (Some(chunk), Place::Here(place, sql_type)) = (chunk, place) {
                columns.push((usize::from(*place), *sql_type, chunk.one_block(block)?));
            }
        }
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

impl ChunkBase {
    /// Gives `read` the row at `slot`, if making its block for `columns` is worth it or has been.
    #[inline]
    pub fn read_row(
        &self,
        slot: usize,
        columns: impl Iterator<Item = ColumnId> + Clone,
        cache: &Arc<Cache>,
        mut read: impl FnMut(BlockRow<'_>),
    ) -> Result<()> {
        if slot >= self.rows as usize {
            return Ok(());
        }
        let Some(blocks) = self.blocks_for(columns.clone()) else {
            return Ok(());
        };
        let (block, row) = (slot / BLOCK_ROWS, slot % BLOCK_ROWS);
        let mut give = |RowBlock { words, has_nulls }: &RowBlock| {
            let first = usize::from(*has_nulls);
            let stride = first + blocks.width;
            let words = &words[row * stride..(row + 1) * stride];
            read(BlockRow {
                places: &blocks.places,
                nulls: if *has_nulls { words[0] } else { 0 },
                values: &words[first..],
            });
        };
        if let Some(frame) = blocks.blocks[block].get()
            && frame.with(&mut give).is_some()
        {
            return Ok(());
        }
        if let Some(loaded) = self.load_block(blocks, block, columns, cache)? {
            give(&loaded);
        }
        Ok(())
    }

    /// The blocks for a read of `columns`; None if columns by themselves are as good.
    #[inline]
    fn blocks_for(&self, columns: impl Iterator<Item = ColumnId> + Clone) -> Option<&Blocks> {
        let RowBlocks { first, all } = &self.row_blocks;
        match first.get() {
            Some(first) if first.holds(columns.clone()) => Some(first),
            Some(_) => Some(all.get_or_init(|| Blocks::of(self, |_| true))),
            None => self.first_blocks(columns),
        }
    }

    /// Begins with blocks of `columns`, or of all if those are most of them.
    #[cold]
    fn first_blocks(&self, columns: impl Iterator<Item = ColumnId> + Clone) -> Option<&Blocks> {
        columns.clone().nth(1)?;
        let is_held = |column: &ColumnId| self.column(*column).is_some_and(|c| is_word(c));
        let wanted: Vec<ColumnId> = columns.filter(is_held).collect();
        if wanted.len() < 2 {
            return None;
        }
        let held = self.columns.iter().flatten().filter(|c| is_word(c)).count();
        let takes_all = wanted.len() * 2 >= held;
        let blocks = || Blocks::of(self, |column| takes_all || wanted.contains(&column));
        Some(self.row_blocks.first.get_or_init(blocks))
    }

    /// The block, made now; None if it is not worth that for a read of `columns`.
    #[cold]
    fn load_block(
        &self,
        blocks: &Blocks,
        block: usize,
        columns: impl Iterator<Item = ColumnId>,
        cache: &Arc<Cache>,
    ) -> Result<Option<Arc<RowBlock>>> {
        if !blocks.is_worth(columns) {
            return Ok(None);
        }
        let frame = blocks.blocks[block].get_or_init(|| Slot::new(cache));
        let loaded = frame.get_or_load(|| {
            let block = blocks.read(self, block)?;
            let bytes = block.words.capacity() * 8;
            Ok((block, bytes))
        })?;
        Ok(Some(loaded))
    }
}
