//! What a checkpoint did, and how it ended.

use strandline_base::Error;

/// What a checkpoint did.
#[derive(Clone, Debug, Default)]
pub struct CheckpointReport {
    /// ranges merged into new chunks
    pub merged_ranges: u64,
    /// records written into runs
    pub run_records: u64,
    /// mostly superseded chunk files whose columns were written anew
    pub compacted_files: u64,
    /// bytes of new chunk and run files
    pub bytes_written: u64,
}

impl CheckpointReport {
    /// Adds the work of another part.
    pub(crate) fn add(&mut self, other: &Self) {
        self.merged_ranges += other.merged_ranges;
        self.run_records += other.run_records;
        self.compacted_files += other.compacted_files;
        self.bytes_written += other.bytes_written;
    }
}

/// How a checkpoint ended that changed the manifest.
pub(crate) struct CheckpointOutcome {
    pub report: CheckpointReport,
    /// storages were written or dropped
    pub has_changed: bool,
    /// the device refused something that other tables need as well: the disk is full
    pub failure: Option<Error>,
    /// the first table whose records could not be written
    pub behind: Option<Error>,
}
