//! Where bytes live: a [`Device`] is one flat directory of files; everything above it reads and
//! writes through these two traits, so that a simulated device can tear, drop, fail and crash.

use std::fmt::Debug;
use std::sync::Arc;
use strandline_base::Result;

/// One directory of files on one tier. Names are plain file names without separators.
pub trait Device: Send + Sync + Debug + 'static {
    /// Creates `name`, which must not exist. The name itself is durable only after
    /// [`Device::sync_directory`].
    fn create(&self, name: &str) -> Result<Arc<dyn File>>;
    /// Opens an existing file for reading and writing.
    fn open(&self, name: &str) -> Result<Arc<dyn File>>;
    /// Removes a file. Open handles stay readable until dropped.
    fn remove(&self, name: &str) -> Result<()>;
    /// Renames a file, replacing `to` if it exists.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// The names of all files, sorted.
    fn list(&self) -> Result<Vec<String>>;
    /// Makes creations, removals and renames durable.
    fn sync_directory(&self) -> Result<()>;
    /// Takes the exclusive writer's lock on the whole directory for as long as the guard lives;
    /// an error names the holder's process id.
    fn lock(&self) -> Result<Box<dyn Send + Sync>>;
    /// Where this device is, for messages: a path or `memory`.
    fn location(&self) -> String;
}

/// One file. All methods may be called from many threads.
pub trait File: Send + Sync + Debug + 'static {
    /// The file's name on its device, for messages.
    fn name(&self) -> &str;
    /// Fills `buf` from `offset`; reading past the end is a corruption error naming both.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Writes all of `buf` at `offset`, growing the file if needed.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()>;
    /// Makes all earlier writes of this file durable (fdatasync).
    fn sync(&self) -> Result<()>;
    /// The file's length in bytes.
    fn len(&self) -> Result<u64>;
    /// Whether the file is empty.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Cuts or extends (with zeros) the file to `len` bytes. Extending allocates the space, so
    /// that later writes inside it cannot fail for want of room.
    fn set_len(&self, len: u64) -> Result<()>;
}
