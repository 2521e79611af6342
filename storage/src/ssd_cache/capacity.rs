//! The capacity tier as the cache sees it.

use std::fmt::Debug;

use strandline_base::Result;

use super::settings::BlockKey;
use crate::file::Access;

/// The files of the capacity tier. Rules of durability: `strandline_device`.
pub trait Capacity: Send + Sync + Debug + 'static {
    /// The bytes of a block.
    fn read(&self, block: BlockKey, access: Access) -> Result<Vec<u8>>;
    /// Writes a block in its place. Durable after [`Capacity::sync`].
    fn write(&self, block: BlockKey, bytes: &[u8]) -> Result<()>;
    /// Makes the earlier writes of `file` durable.
    fn sync(&self, file: u64) -> Result<()>;
}
