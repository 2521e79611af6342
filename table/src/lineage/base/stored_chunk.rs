//! One column of one range on disk: its position, its footer, and decoding of its blocks. It keeps
//! no block in memory.

use arrow_array::ArrayRef;
use std::ops::Range;
use std::sync::Arc;
use strandline_base::sync::OnceLock;
use strandline_base::{Result, SqlType, Value};
use strandline_column::chunk::{self, CheckedChunk, ChunkFooter, FOOTER_BYTES_MAX};
use strandline_storage::file::data_file::DataFile;
use strandline_storage::file::{Access, Extent};
use strandline_storage::pool::Pool;

/// The inverse share of the pool up to which footers are kept that nobody has asked for.
const KEPT_PART: usize = 16;

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

    /// Reads and decodes one block: one read, and one more if the blocks share bytes that are not
    /// in the footer. A footer that is not known yet is read before, in one read.
    pub fn block(&self, block: usize, access: Access) -> Result<ArrayRef> {
        let read = match self.end() == self.extent {
            true => self.block_of_short(block, access),
            false => self.block_of_long(block, access),
        };
        read.map_err(|e| e.context(self.place()))
    }

    fn block_of_short(&self, block: usize, access: Access) -> Result<ArrayRef> {
        self.file.read_block(self.extent, access, |bytes| {
            let footer = match self.footer.get() {
                Some(footer) => footer,
                None => self.keep(self.decode_footer(bytes)?),
            };
            let part = |range: Range<u64>| bytes.get(range.start as usize..range.end as usize);
            let encoded = part(footer.block_range(block)).unwrap_or_default();
            let shared = footer.shared_range().and_then(part);
            self.decode_block(footer, block, encoded, shared)
        })
    }

    fn block_of_long(&self, block: usize, access: Access) -> Result<ArrayRef> {
        let footer = self.footer()?;
        let extent = |range: Range<u64>| Extent {
            offset: self.extent.offset + range.start,
            len: range.end - range.start,
        };
        let encoded = extent(footer.block_range(block));
        self.file.read_block(encoded, access, |encoded| {
            let Some(shared) = footer.shared_range() else {
                return self.decode_block(footer, block, encoded, None);
            };
            self.file.read_block(extent(shared), access, |shared| {
                self.decode_block(footer, block, encoded, Some(shared))
            })
        })
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
