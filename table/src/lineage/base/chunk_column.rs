//! One column of one range as readers see it: decoded blocks, kept in frames of the pool.
//!
//! Scans decode fixed-width columns from encoded bytes each time, and keep text decoded; point
//! reads keep single blocks. A chunk that is large beside the pool is only ever read by blocks.

use super::stored_chunk::StoredChunk;
use arrow_array::{Array, ArrayRef};
use std::ops::Range;
use std::sync::Arc;
use strandline_base::sync::OnceLock;
use strandline_base::{BLOCK_ROWS, Error, RANGE_ROWS, Result, SqlType, Value};
use strandline_column::chunk::CheckedChunk;
use strandline_column::types::{is_of_any_length, value_at};
use strandline_column::word_patches::WordPatches;
use strandline_storage::file::data_file::DataFile;
use strandline_storage::file::{Access, Extent};
use strandline_storage::pool::{FrameHandle, Pool};

/// A column of more than one part in so many of the pool's budget is not decoded as a whole.
const WHOLE_PART: usize = 4;

/// One column of one range.
#[derive(Debug)]
pub struct ChunkColumn {
    /// where it is, and its bytes
    pub stored: StoredChunk,
    pool: Arc<Pool>,
    frames: OnceLock<Box<Frames>>,
}

/// Blocks of a column.
pub struct BlockValues {
    /// the values
    pub array: ArrayRef,
    /// whether they were not found decoded
    pub was_decoded: bool,
    /// whether the patches have been applied
    pub is_patched: bool,
}

#[derive(Debug)]
struct Frames {
    encoded: FrameHandle<CheckedChunk>,
    whole: FrameHandle<ArrayRef>,
    blocks: [OnceLock<FrameHandle<ArrayRef>>; RANGE_ROWS / BLOCK_ROWS],
}

impl ChunkColumn {
    /// A chunk that is read on demand into `pool`.
    pub fn new(
        file: Arc<DataFile>,
        extent: Extent,
        sql_type: SqlType,
        pool: &Arc<Pool>,
    ) -> Arc<Self> {
        Arc::new(Self {
            stored: StoredChunk::new(file, extent, sql_type, pool),
            pool: pool.clone(),
            frames: OnceLock::new(),
        })
    }

    fn frames(&self) -> &Frames {
        self.frames.get_or_init(|| {
            Box::new(Frames {
                encoded: FrameHandle::new(&self.pool),
                whole: FrameHandle::new(&self.pool),
                blocks: [const { OnceLock::new() }; RANGE_ROWS / BLOCK_ROWS],
            })
        })
    }

    /// Whether a scan would find the column in memory.
    pub fn is_resident(&self) -> bool {
        let Some(frames) = self.frames.get() else {
            return false;
        };
        frames.whole.is_filled() || frames.encoded.is_filled()
    }

    /// Whether decoding is so cheap that scans decode the encoded bytes each time, rather than
    /// keep the decoded array: they then read less memory, and may patch the array in place.
    fn decodes_cheaply(&self) -> bool {
        !is_of_any_length(self.stored.sql_type())
    }

    /// Whether the column is too large to be kept decoded as a whole: it is then read, decoded and
    /// kept block by block. Wide values that updates have put into narrow rows make it so.
    fn exceeds_frames(&self) -> bool {
        self.stored.extent.len > (self.pool.budget_bytes() / WHOLE_PART) as u64
    }

    /// The values of consecutive blocks, each in a frame of its own.
    fn single_blocks(&self, blocks: Range<usize>) -> Result<BlockValues> {
        let mut was_decoded = false;
        let mut arrays = Vec::with_capacity(blocks.len());
        for block in blocks {
            let slot = self.block_frame(block);
            was_decoded |= !slot.is_filled();
            let load = || self.sized_block(block, Access::Sequential);
            arrays.push(slot.get_or_load(load)?);
        }
        let array = match arrays.as_slice() {
            [one] => ArrayRef::clone(one),
            several => {
                let parts: Vec<&dyn Array> = several.iter().map(|a| a.as_ref().as_ref()).collect();
                arrow_select::concat::concat(&parts)
                    .map_err(|e| Error::internal(format!("joining blocks: {e}")))?
            }
        };
        Ok(BlockValues {
            array,
            was_decoded,
            is_patched: false,
        })
    }

    fn block_frame(&self, block: usize) -> &FrameHandle<ArrayRef> {
        self.frames().blocks[block].get_or_init(|| FrameHandle::new(&self.pool))
    }

    /// A decoded block and its bytes in memory.
    fn sized_block(&self, block: usize, access: Access) -> Result<(ArrayRef, usize)> {
        let array = self.stored.block(block, access)?;
        let bytes = array.get_array_memory_size();
        Ok((array, bytes))
    }

    /// The values of consecutive blocks. `patches` are applied while that needs no copy.
    pub fn blocks(
        &self,
        blocks: Range<usize>,
        patches: Option<&WordPatches<'_>>,
    ) -> Result<BlockValues> {
        let frames = self.frames();
        let part = |whole: &ArrayRef| {
            let first = blocks.start * BLOCK_ROWS;
            let end = whole.len().min(blocks.end * BLOCK_ROWS);
            whole.slice(first, end - first)
        };
        if let Some(part) = frames.whole.with(part) {
            return Ok(BlockValues {
                array: part,
                was_decoded: false,
                is_patched: false,
            });
        }
        if !self.decodes_cheaply() && self.exceeds_frames() {
            return self.single_blocks(blocks);
        }
        if !self.decodes_cheaply() {
            let whole = frames.whole.get_or_load(|| {
                let array = self.stored.whole()?;
                let bytes = array.get_array_memory_size();
                Ok((array, bytes))
            })?;
            return Ok(BlockValues {
                array: part(&whole),
                was_decoded: true,
                is_patched: false,
            });
        }
        let encoded = frames.encoded.get_or_load(|| {
            let encoded = self.stored.encoded()?;
            let bytes = encoded.memory_bytes();
            Ok((encoded, bytes))
        })?;
        let (footer, sql_type) = (self.stored.footer()?, self.stored.sql_type());
        let decoded = encoded.decode(sql_type, footer, blocks, patches);
        let decoded = decoded.map_err(|e| e.context(self.stored.place()));
        let (array, is_patched) = decoded?;
        Ok(BlockValues {
            array,
            was_decoded: true,
            is_patched,
        })
    }

    /// Reads one value; only its block is read and decoded if it is not in memory.
    pub fn value(&self, row: usize) -> Result<Value> {
        let frames = self.frames();
        let value_at = |array: &ArrayRef, row| value_at(self.stored.sql_type(), array, row);
        if let Some(value) = frames.whole.with(|array| value_at(array, row)) {
            return Ok(value);
        }
        let (block, at) = (row / BLOCK_ROWS, row % BLOCK_ROWS);
        let slot = self.block_frame(block);
        if let Some(value) = slot.with(|array| value_at(array, at)) {
            return Ok(value);
        }
        let array = slot.get_or_load(|| self.sized_block(block, Access::Random))?;
        Ok(value_at(&array, at))
    }

    /// The values of one block; only that is read if the column is not in memory. It takes no
    /// place in the pool.
    pub(crate) fn one_block(&self, block: usize, access: Access) -> Result<ArrayRef> {
        if self.is_resident() {
            return Ok(self.blocks(block..block + 1, None)?.array);
        }
        self.stored.block(block, access)
    }
}
