//! The work of opening a database. It is bounded by the log since the last checkpoint and by the
//! records that had not been merged then \[L-Store §5.1.3\].

use std::sync::atomic::{AtomicU64, Ordering};

/// Work done by recovery. All zero for a newly created database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Bytes of log that were read, from the last checkpoint's position to the end.
    pub log_bytes: u64,
    /// Transactions in them.
    pub log_records: u64,
    /// Row operations of commits after the checkpoint, applied again.
    pub row_operations: u64,
    /// Ranges that the manifest lists, which take opening no more than their places in files.
    pub ranges: u64,
    /// Records of update runs that were put back into tails and insert ranges.
    pub run_records: u64,
    /// Threads that did so.
    pub threads: u64,
    /// How long it all took by the wall clock, in microseconds.
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
    /// All that have been added.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
