//! The rows of a block side by side: the decoded form that point reads go by \[L-Store §6.3,
//! Table 9: reading all columns of a row\].
//!
//! Columns decoded one by one cost a cache miss per value. A [`RowBlock`] holds the fixed-width
//! values of 4,096 rows row by row, so that a row costs one or two. It is made when a point read
//! asks for a good part of the columns, and lives in the bounded cache like every decoded frame.
//!
//! Invariant: a block is made of immutable chunks and never changes.

use crate::base::{ChunkBase, ChunkColumn};
use crate::types::{Physical, each_word, physical, set_word};
use std::sync::{Arc, OnceLock};
use strandline_base::{BLOCK_ROWS, ColumnId, RANGE_ROWS, Result, SqlType, Value};
use strandline_storage::cache::{Cache, Slot};

/// Most columns of a row: NULLs are the bits of one word.
const COLUMNS_MAX: usize = 64;
/// A block is made for reads of at least this part of its columns; more would go unused.
const WORTH: usize = 4;

/// The blocks of a range, made on demand.
#[derive(Debug, Default)]
pub struct RowBlocks(OnceLock<Box<Blocks>>);

#[derive(Debug)]
struct Blocks {
    /// by column id: place in the row and type, if the column is in it
    places: Vec<Option<(u8, SqlType)>>,
    /// values per row
    width: usize,
    blocks: [OnceLock<Slot<RowBlock>>; RANGE_ROWS / BLOCK_ROWS],
}

/// Row by row a word of NULL bits and the values.
#[derive(Debug)]
struct RowBlock(Vec<u64>);

/// One row of a block.
pub struct BlockRow<'a> {
    places: &'a [Option<(u8, SqlType)>],
    words: &'a [u64],
}

impl BlockRow<'_> {
    /// Sets `out` to the value of a column; false if blocks do not hold the column.
    #[inline]
    pub fn read(&self, column: ColumnId, out: &mut Value) -> bool {
        let Some(Some((place, sql_type))) = self.places.get(column.0 as usize) else {
            return false;
        };
        match self.words[0] >> place & 1 {
            0 => set_word(out, *sql_type, self.words[1 + usize::from(*place)]),
            _ => *out = Value::Null,
        }
        true
    }
}

impl Blocks {
    fn of(chunks: &ChunkBase) -> Self {
        let mut width = 0;
        let place = |column: &Option<Arc<ChunkColumn>>| {
            let sql_type = column.as_ref()?.sql_type();
            (physical(sql_type) == Physical::Word && width < COLUMNS_MAX).then(|| {
                width += 1;
                ((width - 1) as u8, sql_type)
            })
        };
        let places = chunks.columns.iter().map(place).collect();
        Self {
            places,
            width,
            blocks: [const { OnceLock::new() }; RANGE_ROWS / BLOCK_ROWS],
        }
    }

    #[inline]
    fn place(&self, column: ColumnId) -> Option<(u8, SqlType)> {
        *self.places.get(column.0 as usize)?
    }

    fn read(&self, chunks: &ChunkBase, block: usize) -> Result<RowBlock> {
        let rows = BLOCK_ROWS.min(chunks.rows as usize - block * BLOCK_ROWS);
        let stride = self.width + 1;
        let mut words = vec![0; rows * stride];
        for (chunk, place) in chunks.columns.iter().zip(&self.places) {
            let (Some(chunk), Some((place, sql_type))) = (chunk, place) else {
                continue;
            };
            let place = usize::from(*place);
            let array = chunk.one_block(block)?;
            let mut rows = words.chunks_exact_mut(stride);
            each_word(*sql_type, &array, |word| {
                let Some(values) = rows.next() else { return };
                match word {
                    Some(word) => values[1 + place] = word,
                    None => values[0] |= 1 << place,
                }
            });
        }
        Ok(RowBlock(words))
    }
}

impl ChunkBase {
    /// Gives `read` the row at `slot`, if making its block for `columns` is worth it or has been.
    #[inline]
    pub fn read_row(
        &self,
        slot: usize,
        columns: impl Iterator<Item = ColumnId>,
        cache: &Arc<Cache>,
        mut read: impl FnMut(BlockRow<'_>),
    ) -> Result<()> {
        if slot >= self.rows as usize {
            return Ok(());
        }
        let blocks = self.row_blocks.0.get_or_init(|| Box::new(Blocks::of(self)));
        let (block, row) = (slot / BLOCK_ROWS, slot % BLOCK_ROWS);
        let mut give = |RowBlock(words): &RowBlock| {
            let stride = blocks.width + 1;
            read(BlockRow {
                places: &blocks.places,
                words: &words[row * stride..(row + 1) * stride],
            });
        };
        if let Some(frame) = blocks.blocks[block].get()
            && frame.with(&mut give).is_some()
        {
            return Ok(());
        }
        let held = columns.filter(|column| blocks.place(*column).is_some());
        if let Some(loaded) = self.load_block(blocks, block, held.count(), cache)? {
            give(&loaded);
        }
        Ok(())
    }

    /// The block, made now; None if `wanted` of its columns are too few for that.
    #[cold]
    fn load_block(
        &self,
        blocks: &Blocks,
        block: usize,
        wanted: usize,
        cache: &Arc<Cache>,
    ) -> Result<Option<Arc<RowBlock>>> {
        if wanted < 2 || wanted * WORTH < blocks.width {
            return Ok(None);
        }
        let frame = blocks.blocks[block].get_or_init(|| Slot::new(cache));
        let loaded = frame.get_or_load(|| {
            let block = blocks.read(self, block)?;
            let bytes = block.0.capacity() * 8;
            Ok((block, bytes))
        })?;
        Ok(Some(loaded))
    }
}
