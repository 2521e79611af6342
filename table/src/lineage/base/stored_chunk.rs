//! One column of one range on disk: its position, its footer, and decoding of its blocks. It keeps
//! no block in memory.

use arrow_array::{Array, ArrayRef};
use std::ops::Range;
use std::sync::Arc;
use strandline_base::sync::OnceLock;
use strandline_base::{Error, Result, SqlType, Value};
use strandline_column::chunk::{
    self, CheckedChunk, ChunkFooter, FOOTER_BYTES_MAX, PackedBlock, PackedLayout,
};
use strandline_column::types::value_at;
use strandline_storage::file::batch::{self, FetchedBlock};
use strandline_storage::file::data_file::DataFile;
use strandline_storage::file::{Access, Extent, StoredFile};
use strandline_storage::pool::Pool;

/// The inverse share of the pool up to which footers are kept that nobody has asked for.
const KEPT_PART: usize = 16;

/// Bytes of the blocks of several chunks that are read at a time, unless one block has more: so
/// much memory a reader takes beside the pool.
const BATCH_BYTES: u64 = 1 << 20;

/// A chunk in a data file.
#[derive(Debug)]
pub struct StoredChunk {
    /// where it is
    pub file: Arc<DataFile>,
    /// where in the file
    pub extent: Extent,
    sql_type: SqlType,
    /// counts the footer
    pool: Arc<Pool>,
    footer: OnceLock<Arc<ChunkFooter>>,
    bounds: OnceLock<ColumnBounds>,
}

/// A block in memory whose checksum has been compared.
#[derive(Debug)]
pub enum StoredBlock {
    /// encoded, for single values
    Packed(PackedBlock),
    /// all values
    Decoded(ArrayRef),
}

/// The form in which blocks are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockForm {
    /// [`StoredBlock::Packed`] where the codec allows it
    Packed,
    /// [`StoredBlock::Decoded`]
    Decoded,
}

impl StoredBlock {
    /// The value of a row of the block, of a chunk of type `t`.
    #[inline]
    pub fn value(&self, t: SqlType, row: usize) -> Result<Value> {
        match self {
            Self::Packed(packed) => packed.value(row),
            Self::Decoded(array) => Ok(value_at(t, array, row)),
        }
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Packed(packed) => packed.memory_bytes(),
            Self::Decoded(array) => array.get_array_memory_size(),
        }
    }
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

impl StoredChunk {
    /// The chunk at `extent` of `file`; nothing of it has been read. Its footer, once read, takes
    /// memory of `pool`.
    pub fn new(file: Arc<DataFile>, extent: Extent, sql_type: SqlType, pool: &Arc<Pool>) -> Self {
        Self {
            file,
            extent,
            sql_type,
            pool: pool.clone(),
            footer: OnceLock::new(),
            bounds: OnceLock::new(),
        }
    }

    /// The type of its values.
    pub fn sql_type(&self) -> SqlType {
        self.sql_type
    }

    fn identity(&self) -> u64 {
        self.file.identity(self.extent.offset)
    }

    /// File and offset, for messages.
    pub fn place(&self) -> String {
        self.file.place(self.extent.offset)
    }

    /// Block places, bounds and null counts; read once, then kept.
    pub fn footer(&self) -> Result<&Arc<ChunkFooter>> {
        if let Some(footer) = self.footer.get() {
            return Ok(footer);
        }
        let footer = self.read_footer().map_err(|e| e.context(self.place()))?;
        Ok(self.keep(footer))
    }

    /// Keeps the bounds of a chunk that was just written.
    pub fn keep_bounds(&self, footer: &ChunkFooter) {
        self.bounds_of(footer);
    }

    /// Keeps the footer of a chunk that was just written, unless kept bytes have more than a
    /// [`KEPT_PART`]th of the pool.
    pub fn keep_written(&self, footer: ChunkFooter) {
        let kept_bytes = self.pool.kept_bytes() + footer.memory_bytes();
        if kept_bytes <= self.pool.budget_bytes() / KEPT_PART {
            self.keep(footer);
        }
    }

    fn keep(&self, footer: ChunkFooter) -> &Arc<ChunkFooter> {
        self.footer.get_or_init(|| {
            self.pool.add_kept_bytes(footer.memory_bytes());
            Arc::new(footer)
        })
    }

    fn read_footer(&self) -> Result<ChunkFooter> {
        let decode = |end: &[u8]| self.decode_footer(end);
        self.file.read_block(self.end(), Access::Random, decode)
    }

    fn decode_footer(&self, end: &[u8]) -> Result<ChunkFooter> {
        ChunkFooter::decode(self.sql_type, self.identity(), end)
    }

    /// The chunk's last bytes, which have the whole footer. They are read together, as one block of
    /// the block cache. A chunk that is not longer is read as a whole, whatever is wanted of it.
    fn end(&self) -> Extent {
        let len = self.extent.len.min(FOOTER_BYTES_MAX as u64);
        let offset = self.extent.offset + (self.extent.len - len);
        Extent { offset, len }
    }

    /// Whether the footer has been read.
    pub fn has_footer(&self) -> bool {
        self.footer.get().is_some()
    }

    /// The bytes that reading the footer requests from the store, if any.
    pub fn footer_request(&self) -> Option<Extent> {
        let end = (!self.has_footer()).then(|| self.end())?;
        self.file.block_needs_request(end).then_some(end)
    }

    /// The bytes that reading everything requests from the store, if any.
    pub fn whole_request(&self) -> Option<Extent> {
        let needs_all = self.file.scan_needs_request(self.extent);
        needs_all
            .then_some(self.extent)
            .or_else(|| self.footer_request())
    }

    /// The chunk's bounds, if the footer has been read or the chunk was written by this process.
    pub fn known_bounds(&self) -> Option<&ColumnBounds> {
        let known = self.bounds.get();
        known.or_else(|| Some(self.bounds_of(self.footer.get()?)))
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

    /// Reads and decodes one block, as [`StoredChunk::blocks_together`] does.
    pub fn block(&self, block: usize, access: Access) -> Result<ArrayRef> {
        let read = self.block_as(BlockForm::Decoded, block, access)?;
        self.values(&read, block)
    }

    /// Reads one block, as [`StoredChunk::blocks_together`] does.
    pub fn block_as(&self, form: BlockForm, block: usize, access: Access) -> Result<StoredBlock> {
        let mut blocks = Vec::with_capacity(1);
        Self::blocks_together(&[self], block, (access, form), |_, read| {
            blocks.push(read);
            Ok(())
        })?;
        let read = blocks.pop();
        read.ok_or_else(|| Error::internal("a chunk's block was not read"))
    }

    /// The values of block `block` of this chunk, which has been read.
    pub fn values(&self, read: &StoredBlock, block: usize) -> Result<ArrayRef> {
        match read {
            StoredBlock::Decoded(array) => Ok(array.clone()),
            StoredBlock::Packed(packed) => {
                let decoded = packed.decode(self.footer()?, block);
                decoded.map_err(|e| e.context(self.place()))
            }
        }
    }

    /// Reads block `block` of several chunks of a range, and gives it with the chunks' positions.
    /// It asks the device for the footers that are not known, as one batch, and then for the
    /// blocks, in batches of about [`BATCH_BYTES`]. What the blocks of a chunk share is part of the
    /// batch if the footer does not have it.
    pub fn blocks_together(
        chunks: &[&Self],
        block: usize,
        (access, form): (Access, BlockForm),
        mut give: impl FnMut(usize, StoredBlock) -> Result<()>,
    ) -> Result<()> {
        Self::read_footers(chunks)?;
        let mut first = 0;
        while first < chunks.len() {
            let (mut wanted, mut bytes, mut end) = (Vec::new(), 0, first);
            while let Some(chunk) = chunks.get(end) {
                let before = wanted.len();
                chunk.add_parts(block, &mut wanted)?;
                let more: u64 = wanted[before..].iter().map(|(_, part)| part.len).sum();
                if end > first && bytes + more > BATCH_BYTES {
                    wanted.truncate(before);
                    break;
                }
                bytes += more;
                end += 1;
            }
            let fetched = batch::fetch(&wanted, access)?;
            let mut parts = fetched.into_iter();
            for (at, chunk) in chunks.iter().enumerate().take(end).skip(first) {
                let decoded = chunk.decode_parts(block, form, &mut parts);
                give(at, decoded.map_err(|e| e.context(chunk.place()))?)?;
            }
            first = end;
        }
        Ok(())
    }

    /// Reads the footers that are not known of chunks that are longer than their ends. A shorter
    /// chunk's footer comes with its block.
    fn read_footers(chunks: &[&Self]) -> Result<()> {
        let is_unknown = |chunk: &&&Self| !chunk.has_footer() && !chunk.is_short();
        let unknown: Vec<&Self> = chunks.iter().filter(is_unknown).copied().collect();
        let ends = unknown
            .iter()
            .map(|chunk| (chunk.file.stored(), chunk.end()));
        let fetched = batch::fetch(&ends.collect::<Vec<_>>(), Access::Random)?;
        for (chunk, end) in unknown.into_iter().zip(fetched) {
            let footer = chunk.decode_footer(end.bytes());
            let footer = footer.map_err(|e| e.context(chunk.place()))?;
            end.note_checked();
            chunk.keep(footer);
        }
        Ok(())
    }

    /// Whether the chunk is no longer than its end.
    fn is_short(&self) -> bool {
        self.end() == self.extent
    }

    /// Whether the whole chunk is read for a block: a short one is, unless its footer is known and
    /// has all of the block, whose values are the same.
    fn is_read_whole(&self, block: usize) -> bool {
        let has_bytes = |footer: &Arc<ChunkFooter>| !footer.block_range(block).is_empty();
        self.is_short() && self.footer.get().is_none_or(has_bytes)
    }

    /// Adds the parts of the chunk to read for a block: the whole chunk; or the block and, if its
    /// footer does not have it, what the blocks share.
    fn add_parts<'a>(
        &'a self,
        block: usize,
        parts: &mut Vec<(&'a StoredFile, Extent)>,
    ) -> Result<()> {
        let file = self.file.stored();
        if self.is_read_whole(block) {
            parts.push((file, self.extent));
            return Ok(());
        }
        let footer = self.footer()?;
        let extent = |range: Range<u64>| Extent {
            offset: self.extent.offset + range.start,
            len: range.end - range.start,
        };
        parts.push((file, extent(footer.block_range(block))));
        parts.extend(footer.shared_range().map(|range| (file, extent(range))));
        Ok(())
    }

    /// Decodes a block from the parts that [`StoredChunk::add_parts`] has named.
    fn decode_parts<'a>(
        &self,
        block: usize,
        form: BlockForm,
        parts: &mut impl Iterator<Item = FetchedBlock<'a>>,
    ) -> Result<StoredBlock> {
        let mut next = || {
            let part = parts.next();
            part.ok_or_else(|| Error::internal("a part of a chunk was not read"))
        };
        let first = next()?;
        // The footer may have become known since.
        if first.bytes().len() as u64 == self.extent.len {
            let bytes = first.bytes();
            let footer = match self.footer.get() {
                Some(footer) => footer,
                None => self.keep(self.decode_footer(bytes)?),
            };
            let part = |range: Range<u64>| bytes.get(range.start as usize..range.end as usize);
            let encoded = part(footer.block_range(block)).unwrap_or_default();
            let shared = footer.shared_range().and_then(part);
            let read = match self.layout(form, footer, block, encoded)? {
                Some(layout) => StoredBlock::Packed(layout.with_bytes(encoded.to_vec())),
                None => StoredBlock::Decoded(self.decode_block(footer, block, encoded, shared)?),
            };
            first.note_checked();
            return Ok(read);
        }
        let footer = self.footer()?;
        let shared = footer.shared_range().map(|_| next()).transpose()?;
        if let Some(layout) = self.layout(form, footer, block, first.bytes())? {
            first.note_checked();
            return Ok(StoredBlock::Packed(layout.with_bytes(first.into_bytes())));
        }
        let bytes = shared.as_ref().map(FetchedBlock::bytes);
        let array = self.decode_block(footer, block, first.bytes(), bytes)?;
        first.note_checked();
        if let Some(shared) = shared {
            shared.note_checked();
        }
        Ok(StoredBlock::Decoded(array))
    }

    /// The layout of a block that is wanted for single values, if it has one.
    fn layout(
        &self,
        form: BlockForm,
        footer: &ChunkFooter,
        block: usize,
        bytes: &[u8],
    ) -> Result<Option<PackedLayout>> {
        match form {
            BlockForm::Packed => {
                PackedLayout::of(self.sql_type, footer, self.identity(), block, bytes)
            }
            BlockForm::Decoded => Ok(None),
        }
    }

    fn decode_block(
        &self,
        footer: &ChunkFooter,
        block: usize,
        bytes: &[u8],
        shared: Option<&[u8]>,
    ) -> Result<ArrayRef> {
        chunk::decode_block(self.sql_type, footer, self.identity(), block, bytes, shared)
    }

    /// Reads everything from the device, past the block cache, and compares every checksum; the
    /// values.
    pub fn verify(&self) -> Result<ArrayRef> {
        let verified = || {
            let bytes = self.file.read(self.extent, Access::Sequential)?;
            let footer = self.decode_footer(&bytes)?;
            chunk::decode_chunk(self.sql_type, &footer, self.identity(), &bytes)
        };
        verified().map_err(|e| e.context(self.place()))
    }

    /// Reads the encoded bytes and compares their checksums.
    pub fn encoded(&self) -> Result<CheckedChunk> {
        let (footer, identity) = (self.footer()?, self.identity());
        let check = |bytes: &[u8]| CheckedChunk::check(footer, identity, bytes);
        let read = self.file.read_scanned(self.extent, check);
        let (bytes, shared) = read.map_err(|e| e.context(self.place()))?;
        Ok(CheckedChunk::of_checked(bytes, shared))
    }

    /// Reads and decodes everything.
    pub fn whole(&self) -> Result<ArrayRef> {
        let (footer, identity) = (self.footer()?, self.identity());
        let decode = |bytes: &[u8]| chunk::decode_chunk(self.sql_type, footer, identity, bytes);
        let read = self.file.read_scanned(self.extent, decode);
        Ok(read.map_err(|e| e.context(self.place()))?.1)
    }
}

impl Drop for StoredChunk {
    fn drop(&mut self) {
        if let Some(footer) = self.footer.get() {
            self.pool.remove_kept_bytes(footer.memory_bytes());
        }
    }
}
