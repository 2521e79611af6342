//! One column or the row metadata of a range on disk: where it is, and its decoded forms, which
//! live in frames of the bounded cache.
//!
//! Scans decode fixed-width columns from encoded bytes each time, and keep text decoded; point
//! reads keep single blocks. A chunk that is large beside the cache is only ever read by blocks.

use super::row_meta::RowMeta;
use arrow_array::{Array, ArrayRef};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use strandline_base::value_words::{Physical, physical};
use strandline_base::{BLOCK_ROWS, Error, RANGE_ROWS, Result, SqlType, Value};
use strandline_column::chunk::{self, CheckedChunk, ChunkFooter};
use strandline_column::types::value_at;
use strandline_column::word_patches::WordPatches;
use strandline_storage::cache::{Cache, Slot};
use strandline_storage::file::data_file::DataFile;
use strandline_storage::file::{Access, Extent};

/// A column of more than one part in so many of the cache's budget is not decoded as a whole.
const WHOLE_PART: usize = 4;

/// The row metadata of a range on disk.
#[derive(Debug)]
pub struct MetaBlob {
    /// where it is
    pub file: Arc<DataFile>,
    /// where in the file
    pub extent: Extent,
    frame: Slot<RowMeta>,
}

impl MetaBlob {
    /// A blob that is read on demand through `cache`.
    pub fn new(file: Arc<DataFile>, extent: Extent, cache: &Arc<Cache>) -> Arc<Self> {
        Arc::new(Self {
            file,
            extent,
            frame: Slot::new(cache),
        })
    }
    /// Whether it is in memory.
    pub fn is_loaded(&self) -> bool {
        self.frame.is_filled()
    }
    /// The decoded metadata.
    pub fn load(&self) -> Result<Arc<RowMeta>> {
        self.frame.get_or_load(|| {
            let meta = self.verify()?;
            let bytes = meta.memory_bytes();
            Ok((meta, bytes))
        })
    }
    /// Reads and decodes it without the cache.
    pub fn verify(&self) -> Result<RowMeta> {
        let bytes = self.file.read(self.extent, Access::Random)?;
        let offset = self.extent.offset;
        RowMeta::decode(&bytes, self.file.identity(offset), &self.file.place(offset))
    }
}

/// One column of one range.
#[derive(Debug)]
pub struct ChunkColumn {
    /// where it is
    pub file: Arc<DataFile>,
    /// where in the file
    pub extent: Extent,
    sql_type: SqlType,
    cache: Arc<Cache>,
    footer: OnceLock<Arc<ChunkFooter>>,
    bounds: OnceLock<ColumnBounds>,
    frames: OnceLock<Box<Frames>>,
}

/// Bounds and NULLs of a whole chunk.
#[derive(Debug)]
pub struct ColumnBounds {
    /// no value is smaller; None: not known, or no value
    pub min: Option<Value>,
    /// no value is larger; None: not known, or no value
    pub max: Option<Value>,
    /// NULLs
    pub nulls: u64,
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
    encoded: Slot<CheckedChunk>,
    whole: Slot<ArrayRef>,
    blocks: [OnceLock<Slot<ArrayRef>>; RANGE_ROWS / BLOCK_ROWS],
}

impl ChunkColumn {
    /// A chunk that is read on demand through `cache`.
    pub fn new(
        file: Arc<DataFile>,
        extent: Extent,
        sql_type: SqlType,
        cache: &Arc<Cache>,
    ) -> Arc<Self> {
        Arc::new(Self {
            file,
            extent,
            sql_type,
            cache: cache.clone(),
            footer: OnceLock::new(),
            bounds: OnceLock::new(),
            frames: OnceLock::new(),
        })
    }

    fn identity(&self) -> u64 {
        self.file.identity(self.extent.offset)
    }

    fn frames(&self) -> &Frames {
        self.frames.get_or_init(|| {
            Box::new(Frames {
                encoded: Slot::new(&self.cache),
                whole: Slot::new(&self.cache),
                blocks: [const { OnceLock::new() }; RANGE_ROWS / BLOCK_ROWS],
            })
        })
    }

    fn place(&self) -> String {
        self.file.place(self.extent.offset)
    }

    /// Block places, bounds and null counts; read once, then kept.
    pub fn footer(&self) -> Result<&Arc<ChunkFooter>> {
        if let Some(footer) = self.footer.get() {
            return Ok(footer);
        }
        let footer = self.read_footer().map_err(|e| e.context(self.place()))?;
        Ok(self.footer.get_or_init(|| Arc::new(footer)))
    }

    fn read_footer(&self) -> Result<ChunkFooter> {
        let tail = |len: usize| {
            let len = (len as u64).min(self.extent.len);
            let offset = self.extent.offset + (self.extent.len - len);
            self.file.read(Extent { offset, len }, Access::Random)
        };
        let len = ChunkFooter::encoded_len(&tail(chunk::TRAILER_BYTES)?)?;
        ChunkFooter::decode(self.sql_type, self.identity(), &tail(len)?)
    }

    /// Whether the footer has been read.
    pub fn has_footer(&self) -> bool {
        self.footer.get().is_some()
    }

    /// The chunk's bounds, if the footer has been read.
    pub fn known_bounds(&self) -> Option<&ColumnBounds> {
        Some(self.bounds_of(self.footer.get()?))
    }

    /// The chunk's bounds.
    pub fn column_bounds(&self) -> Result<&ColumnBounds> {
        Ok(self.bounds_of(self.footer()?))
    }

    fn bounds_of(&self, footer: &ChunkFooter) -> &ColumnBounds {
        self.bounds.get_or_init(|| ColumnBounds {
            min: footer.min(),
            max: footer.max(),
            nulls: footer.nulls() as u64,
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
        physical(self.sql_type) != Physical::Bytes
    }

    /// Whether the column is too large to be kept decoded as a whole: it is then read, decoded and
    /// kept block by block. Wide values that updates have put into narrow rows make it so.
    fn exceeds_frames(&self) -> bool {
        self.extent.len > (self.cache.budget_bytes() / WHOLE_PART) as u64
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

    fn block_frame(&self, block: usize) -> &Slot<ArrayRef> {
        self.frames().blocks[block].get_or_init(|| Slot::new(&self.cache))
    }

    /// A decoded block and its bytes in memory.
    fn sized_block(&self, block: usize, access: Access) -> Result<(ArrayRef, usize)> {
        let array = self.block(block, access)?;
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
                let array = self.verify()?;
                let bytes = array.get_array_memory_size();
                Ok((array, bytes))
            })?;
            return Ok(BlockValues {
                array: part(&whole),
                was_decoded: true,
                is_patched: false,
            });
        }
        let footer = self.footer()?;
        let located = |e: Error| e.context(self.place());
        let encoded = frames.encoded.get_or_load(|| {
            let bytes = self.file.read(self.extent, Access::Sequential)?;
            let checked = CheckedChunk::new(footer, self.identity(), bytes);
            let checked = checked.map_err(located)?;
            let bytes = checked.memory_bytes();
            Ok((checked, bytes))
        })?;
        let decoded = encoded.decode(self.sql_type, footer, blocks, patches);
        let (array, is_patched) = decoded.map_err(located)?;
        Ok(BlockValues {
            array,
            was_decoded: true,
            is_patched,
        })
    }

    /// Reads one value; only its block is read and decoded if it is not in memory.
    pub fn value(&self, row: usize) -> Result<Value> {
        let frames = self.frames();
        let value_at = |array: &ArrayRef, row| value_at(self.sql_type, array, row);
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

    /// The type of its values.
    pub fn sql_type(&self) -> SqlType {
        self.sql_type
    }

    /// The values of one block; only that is read if the column is not in memory.
    pub(crate) fn one_block(&self, block: usize) -> Result<ArrayRef> {
        if self.is_resident() {
            return Ok(self.blocks(block..block + 1, None)?.array);
        }
        self.block(block, Access::Random)
    }

    fn block(&self, block: usize, access: Access) -> Result<ArrayRef> {
        let footer = self.footer()?;
        let read = |range: Range<u64>| {
            let offset = self.extent.offset + range.start;
            let len = range.end - range.start;
            self.file.read(Extent { offset, len }, access)
        };
        let bytes = read(footer.block_range(block))?;
        let shared = footer.shared_range().map(read).transpose()?;
        let (identity, shared) = (self.identity(), shared.as_deref());
        chunk::decode_block(self.sql_type, footer, identity, block, &bytes, shared)
            .map_err(|e| e.context(self.place()))
    }

    /// Reads and decodes everything without the cache, for `check`.
    pub fn verify(&self) -> Result<ArrayRef> {
        let bytes = self.file.read(self.extent, Access::Sequential)?;
        chunk::decode_chunk(self.sql_type, self.footer()?, self.identity(), &bytes)
            .map_err(|e| e.context(self.place()))
    }
}
