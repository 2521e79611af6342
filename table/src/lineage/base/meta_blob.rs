//! The row metadata of a range on disk, and the frame that it is decoded into.

use super::row_meta::RowMeta;
use std::sync::Arc;
use strandline_base::Result;
use strandline_storage::file::data_file::DataFile;
use strandline_storage::file::{Access, Extent};
use strandline_storage::pool::{FrameHandle, Pool};

/// The row metadata of a range on disk.
#[derive(Debug)]
pub struct MetaBlob {
    /// where it is
    pub file: Arc<DataFile>,
    /// where in the file
    pub extent: Extent,
    frame: FrameHandle<RowMeta>,
}

impl MetaBlob {
    /// A blob that is read on demand into `pool`.
    pub fn new(file: Arc<DataFile>, extent: Extent, pool: &Arc<Pool>) -> Arc<Self> {
        Arc::new(Self {
            file,
            extent,
            frame: FrameHandle::new(pool),
        })
    }
    /// Whether it is in memory.
    pub fn is_loaded(&self) -> bool {
        self.frame.is_filled()
    }
    /// The bytes that loading it requests from the store, if any.
    pub fn request(&self) -> Option<Extent> {
        let is_wanted = !self.is_loaded() && self.file.block_needs_request(self.extent);
        is_wanted.then_some(self.extent)
    }
    /// The decoded metadata.
    pub fn load(&self) -> Result<Arc<RowMeta>> {
        self.frame.get_or_load(|| {
            let meta = self.read(Access::Random)?;
            let bytes = meta.memory_bytes();
            Ok((meta, bytes))
        })
    }
    /// Reads and decodes it from the device, past the caches.
    pub fn verify(&self) -> Result<RowMeta> {
        self.read(Access::Sequential)
    }
    fn read(&self, access: Access) -> Result<RowMeta> {
        let offset = self.extent.offset;
        let (identity, place) = (self.file.identity(offset), self.file.place(offset));
        self.file.read_block(self.extent, access, |bytes| {
            RowMeta::decode(bytes, identity, &place)
        })
    }
}
