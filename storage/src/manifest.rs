//! CONTRACT (helper `storage` replaces the bodies).
use std::sync::Arc;
use strandline_base::Result;
use strandline_device::Device;

/// The database's root: a sequence of opaque edits (encoded by the engine), each atomic and
/// durable when `append` returns, compacted into a snapshot from time to time.
pub struct Manifest;

impl Manifest {
    /// True if the device holds a database (of any version), false if it is empty; a directory
    /// with other files in it is an error that says it is not a Strandline database.
    pub fn exists(_device: &dyn Device) -> Result<bool> {
        todo!()
    }
    /// Creates the superblock and generation 1 with `snapshot` as its first record.
    pub fn create(_device: Arc<dyn Device>, _snapshot: &[u8]) -> Result<Self> {
        todo!()
    }
    /// Opens and returns the snapshot followed by all whole edits. A newer format version is an
    /// error that names both versions.
    pub fn open(_device: Arc<dyn Device>) -> Result<(Self, Vec<Vec<u8>>)> {
        todo!()
    }
    /// Appends one edit; durable on return. After a failed sync all later calls fail.
    pub fn append(&self, _edit: &[u8]) -> Result<()> {
        todo!()
    }
    /// Bytes of edits since the snapshot and of the snapshot, so that the engine can decide.
    pub fn should_compact(&self) -> bool {
        todo!()
    }
    /// Starts the next generation with `snapshot` and switches the superblock to it atomically.
    pub fn compact(&self, _snapshot: &[u8]) -> Result<()> {
        todo!()
    }
}
