//! One column of one range as readers see it: decoded blocks, kept in frames of the pool.
//!
//! Scans decode fixed-width columns from encoded bytes each time, and keep text decoded; point
//! reads keep single blocks, of integers encoded ([`StoredBlock`]). A chunk that is large beside
//! the pool is only ever read by blocks.

use super::stored_chunk::{BlockForm, StoredBlock, StoredChunk};
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
    blocks: [OnceLock<FrameHandle<StoredBlock>>; RANGE_ROWS / BLOCK_ROWS],
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

    /// The bytes that a scan requests from the store, if any.
    pub fn scan_request(&self) -> Option<Extent> {
        let is_read_by_blocks = !self.decodes_cheaply() && self.exceeds_frames();
        match is_read_by_blocks {
            _ if self.is_resident() => None,
            true => self.stored.footer_request(),
            false => self.stored.whole_request(),
        }
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
            arrays.push(self.stored.values(&*slot.get_or_load(load)?, block)?);
        }
        let array = match arrays.as_slice() {
            [one] => one.clone(),
            several => {
                let parts: Vec<&dyn Array> = several.iter().map(AsRef::as_ref).collect();
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

    fn block_frame(&self, block: usize) -> &FrameHandle<StoredBlock> {
        self.frames().blocks[block].get_or_init(|| FrameHandle::new(&self.pool))
    }

    /// A block for point reads, and its bytes in memory. It is read unless the chunk's encoded
    /// bytes are in memory.
    fn sized_block(&self, block: usize, access: Access) -> Result<(StoredBlock, usize)> {
        let encoded = self.frames.get().and_then(|frames| frames.encoded.get());
        let read = match encoded {
            Some(encoded) => StoredBlock::Decoded(self.decode(&encoded, block..block + 1, None)?.0),
            None => self.stored.block_as(BlockForm::Packed, block, access)?,
        };
        let bytes = read.memory_bytes();
        Ok((read, bytes))
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
        let (array, is_patched) = self.decode(&encoded, blocks, patches)?;
        Ok(BlockValues {
            array,
            was_decoded: true,
            is_patched,
        })
    }

    /// Decodes consecutive blocks; whether `patches` have been applied.
    fn decode(
        &self,
        encoded: &CheckedChunk,
        blocks: Range<usize>,
        patches: Option<&WordPatches<'_>>,
    ) -> Result<(ArrayRef, bool)> {
        let (footer, sql_type) = (self.stored.footer()?, self.stored.sql_type());
        let decoded = encoded.decode(sql_type, footer, blocks, patches);
        decoded.map_err(|e| e.context(self.stored.place()))
    }

    /// One value, if it is in memory, in a form in which it is read by itself.
    fn value_in_memory(&self, row: usize) -> Result<Option<Value>> {
        let Some(frames) = self.frames.get() else {
            return Ok(None);
        };
        let sql_type = self.stored.sql_type();
        let whole = frames.whole.with(|array| value_at(sql_type, array, row));
        if whole.is_some() {
            return Ok(whole);
        }
        let frame = frames.blocks[row / BLOCK_ROWS].get();
        let value = |read: &StoredBlock| read.value(sql_type, row % BLOCK_ROWS);
        frame.and_then(|frame| frame.with(value)).transpose()
    }

    /// Reads one value; only its block is read and decoded if it is not in memory.
    pub fn value(&self, row: usize) -> Result<Value> {
        if let Some(value) = self.value_in_memory(row)? {
            return Ok(value);
        }
        let (block, at) = (row / BLOCK_ROWS, row % BLOCK_ROWS);
        let slot = self.block_frame(block);
        let read = slot.get_or_load(|| {
            if !self.is_resident() {
                return self.sized_block(block, Access::Random);
            }
            // A scan has left the encoded bytes.
            let read = StoredBlock::Decoded(self.blocks(block..block + 1, None)?.array);
            let bytes = read.memory_bytes();
            Ok((read, bytes))
        })?;
        read.value(self.stored.sql_type(), at)
    }

    /// The values of several columns of a row, given with the columns' positions. Blocks that are
    /// not in memory are read together, and kept.
    pub fn row_values<'a>(
        columns: impl Iterator<Item = (usize, &'a Arc<Self>)>,
        row: usize,
        mut give: impl FnMut(usize, Value),
    ) -> Result<()> {
        let mut missing: Vec<(usize, &Self)> = Vec::new();
        for (at, column) in columns {
            match column.value_in_memory(row)? {
                Some(value) => give(at, value),
                None if column.is_resident() => give(at, column.value(row)?),
                None => missing.push((at, column)),
            }
        }
        if let [(at, column)] = missing.as_slice() {
            // Readers of the same block wait for one of them.
            give(*at, column.value(row)?);
            return Ok(());
        }
        let (block, row) = (row / BLOCK_ROWS, row % BLOCK_ROWS);
        let chunks: Vec<&StoredChunk> = missing.iter().map(|(_, column)| &column.stored).collect();
        let how = (Access::Random, BlockForm::Packed);
        StoredChunk::blocks_together(&chunks, block, how, |n, read| {
            let (at, column) = missing[n];
            give(at, read.value(column.stored.sql_type(), row)?);
            let bytes = read.memory_bytes();
            column
                .block_frame(block)
                .get_or_load(|| Ok((read, bytes)))?;
            Ok(())
        })
    }

    /// Whether the values of a block are in memory, encoded or decoded.
    pub(super) fn has_block(&self, block: usize) -> bool {
        let is_filled = |frames: &Frames| {
            let frame = frames.blocks[block].get();
            frame.is_some_and(FrameHandle::is_filled)
        };
        self.is_resident() || self.frames.get().is_some_and(|frames| is_filled(frames))
    }

    /// The values of a block of several columns. What is not in memory is read together; it takes
    /// no place in the pool.
    pub(super) fn blocks_together(columns: &[&Self], block: usize) -> Result<Vec<ArrayRef>> {
        let mut arrays = Vec::with_capacity(columns.len());
        for column in columns {
            arrays.push(column.block_in_memory(block)?);
        }
        let missing = |(at, array): (usize, &Option<ArrayRef>)| array.is_none().then_some(at);
        let missing: Vec<usize> = arrays.iter().enumerate().filter_map(missing).collect();
        let chunks: Vec<&StoredChunk> = missing.iter().map(|&at| &columns[at].stored).collect();
        let how = (Access::Random, BlockForm::Decoded);
        StoredChunk::blocks_together(&chunks, block, how, |n, read| {
            arrays[missing[n]] = Some(columns[missing[n]].stored.values(&read, block)?);
            Ok(())
        })?;
        Ok(arrays.into_iter().flatten().collect())
    }

    fn block_in_memory(&self, block: usize) -> Result<Option<ArrayRef>> {
        if self.is_resident() {
            return Ok(Some(self.blocks(block..block + 1, None)?.array));
        }
        let frame = self.frames.get().and_then(|f| f.blocks[block].get());
        let read = frame.and_then(FrameHandle::get);
        read.map(|read| self.stored.values(&read, block))
            .transpose()
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
