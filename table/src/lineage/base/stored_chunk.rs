//! One column of one range on disk: its position, its footer, and decoding of its blocks. It keeps
//! no block in memory.

use arrow_array::ArrayRef;
use std::ops::Range;
use std::sync::Arc;
use strandline_base::sync::OnceLock;
use strandline_base::{Result, SqlType, Value};
use strandline_column::chunk::{self, CheckedChunk, ChunkFooter};
use strandline_storage::file::data_file::DataFile;
use strandline_storage::file::{Access, Extent};

/// A chunk in a data file.
#[derive(Debug)]
pub struct StoredChunk {
    /// where it is
    pub file: Arc<DataFile>,
    /// where in the file
    pub extent: Extent,
    sql_type: SqlType,
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
    /// The chunk at `extent` of `file`; nothing of it has been read.
    pub fn new(file: Arc<DataFile>, extent: Extent, sql_type: SqlType) -> Self {
        Self {
            file,
            extent,
            sql_type,
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

    /// Reads and decodes one block.
    pub fn block(&self, block: usize, access: Access) -> Result<ArrayRef> {
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

    /// Reads the encoded bytes and compares their checksums.
    pub fn encoded(&self) -> Result<CheckedChunk> {
        let footer = self.footer()?;
        let bytes = self.file.read(self.extent, Access::Sequential)?;
        let checked = CheckedChunk::new(footer, self.identity(), bytes);
        checked.map_err(|e| e.context(self.place()))
    }

    /// Reads and decodes everything.
    pub fn whole(&self) -> Result<ArrayRef> {
        let bytes = self.file.read(self.extent, Access::Sequential)?;
        chunk::decode_chunk(self.sql_type, self.footer()?, self.identity(), &bytes)
            .map_err(|e| e.context(self.place()))
    }
}
