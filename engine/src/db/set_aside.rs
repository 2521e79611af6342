//! The list of failed work on tables that is set aside: see `maintenance::set_aside`.
//!
//! Lock order: `entries` is taken with nothing else held, and held only to look and to change.

use super::pauses::Pauses;
use crate::catalog::index_file::IndexFile;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strandline_base::sync::Mutex;
use strandline_base::{Error, RangeNo, StorageId};

/// The first pause before work is tried again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);

/// A piece of a checkpoint's work on one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    /// the merge of a range
    Merge(RangeNo),
    /// moving a range's columns out of mostly superseded chunk files
    Compact(RangeNo),
    /// merging runs into one
    UniteRuns,
    /// writing the records that are in no run
    WriteRecords,
    /// writing the files of its indexes
    StoreIndexes,
    /// reading the entries in a file, to remove those that no reader needs
    SweepIndex(IndexFile),
    /// compacting the levels of an index, or moving its LIDBlocks to its tree
    CompactIndex(IndexFile),
    /// moving its indexes from memory into levels
    MoveIndexes,
    /// copying what it needs of the log, while it is closed off
    KeepLog,
    /// restoring its rows when the database was opened
    Restore,
    /// building its indexes when the database was opened
    BuildIndexes,
}

impl Work {
    /// Whether the log is not cut as long as this fails.
    pub fn keeps_log(self) -> bool {
        matches!(
            self,
            Self::WriteRecords | Self::StoreIndexes | Self::KeepLog
        )
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Merge(range) => write!(f, "the merge of range {}", range.0),
            Self::Compact(range) => {
                write!(f, "the compaction of the chunk files of range {}", range.0)
            }
            Self::UniteRuns => f.write_str("the union of its update runs"),
            Self::WriteRecords => f.write_str("writing its records into an update run"),
            Self::StoreIndexes => f.write_str("writing the files of its indexes"),
            Self::SweepIndex(file) => write!(f, "sweeping the index in {}", file.name()),
            Self::CompactIndex(file @ IndexFile::Blocks(_)) => {
                write!(
                    f,
                    "moving LIDBlocks to the tree of the index in {}",
                    file.name()
                )
            }
            Self::CompactIndex(file) => write!(f, "compacting the index in {}", file.name()),
            Self::MoveIndexes => f.write_str("moving its indexes from memory into levels"),
            Self::KeepLog => f.write_str("moving its part of the log into a file"),
            Self::Restore => f.write_str("restoring its rows"),
            Self::BuildIndexes => f.write_str("building its indexes"),
        }
    }
}

/// Work that is set aside.
#[derive(Debug, Default)]
pub(crate) struct SetAside {
    entries: Mutex<BTreeMap<(StorageId, Work), Entry>>,
    /// the number of entries
    count: AtomicUsize,
    /// bytes of ranges that cannot be merged, at the last check
    held_bytes: AtomicUsize,
}

/// A piece of work that is set aside.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub failure: Error,
    pub pauses: Pauses,
}

impl SetAside {
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    pub fn get(&self, storage: StorageId, work: Work) -> Option<Entry> {
        if self.is_empty() {
            return None;
        }
        self.entries.lock().get(&(storage, work)).cloned()
    }

    /// Sets `work` aside; returns true if it is new in the list, or failed with another error.
    pub fn fail(&self, storage: StorageId, work: Work, failure: &Error, now_us: u64) -> bool {
        let mut entries = self.entries.lock();
        let mut is_new = false;
        let entry = entries.entry((storage, work)).or_insert_with(|| {
            is_new = true;
            Entry {
                failure: failure.clone(),
                pauses: Pauses::new(FIRST_PAUSE, LONGEST_PAUSE),
            }
        });
        is_new |= entry.failure.sqlstate() != failure.sqlstate();
        entry.failure = failure.clone();
        entry.pauses.grow(now_us);
        self.count.store(entries.len(), Ordering::Relaxed);
        is_new
    }

    /// Removes `work` after its success; returns whether it had been set aside.
    pub fn succeed(&self, storage: StorageId, work: Work) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut entries = self.entries.lock();
        let was_there = entries.remove(&(storage, work)).is_some();
        self.count.store(entries.len(), Ordering::Relaxed);
        was_there
    }

    /// Removes the work on storages that are not `live`.
    pub fn retain(&self, live: impl Fn(StorageId) -> bool) {
        let mut entries = self.entries.lock();
        entries.retain(|(storage, _), _| live(*storage));
        self.count.store(entries.len(), Ordering::Relaxed);
    }

    pub fn all(&self) -> Vec<((StorageId, Work), Entry)> {
        let entries = self.entries.lock();
        let entries = entries.iter();
        entries.map(|(key, entry)| (*key, entry.clone())).collect()
    }

    /// Records the bytes of tails that no merge can free.
    pub fn note_held(&self, bytes: usize) {
        self.held_bytes.store(bytes, Ordering::Relaxed);
    }
    /// Bytes of tails that no merge can free, at the last check.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }
}
