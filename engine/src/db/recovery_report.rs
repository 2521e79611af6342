//! The work of opening a database. It is bounded by the log since the last checkpoint and by the
//! records that were not merged then \[L-Store §5.1.3\].

use std::sync::atomic::{AtomicU64, Ordering};

/// Work done by recovery. All zero for a newly created database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Bytes of log read, from the last checkpoint's position to the end.
    pub log_bytes: u64,
    /// Transactions in this log.
    pub log_records: u64,
    /// Row operations of commits after the checkpoint, applied again.
    pub row_operations: u64,
    /// Ranges listed in the manifest. Opening takes no more of them than their positions in files.
    pub ranges: u64,
    /// Records of update runs restored into tails and insert ranges.
    pub run_records: u64,
    /// Rows whose entries were added again to indexes in levels: of commits after the checkpoint.
    pub entered_rows: u64,
    /// Threads that restored them.
    pub threads: u64,
    /// Duration by the wall clock, in microseconds.
    pub micros: u64,
}

/// A counter shared by several threads.
#[derive(Debug, Default)]
pub(crate) struct Restored(AtomicU64);

impl Restored {
    /// Adds `records`.
    pub fn add(&self, records: u64) {
        self.0.fetch_add(records, Ordering::Relaxed);
    }
    /// The sum of all added numbers.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
