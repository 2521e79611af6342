//! Retired entries that a snapshot may still need, in memory.
//!
//! Invariants:
//! 1. An entry is in both maps or in none.
//! 2. A change of an entry here is made under the latch of its key, so that an entry that is added
//!    again is not removed.
//! 3. At most `bytes_max` bytes wait. An entry that finds no room stays in the tree: the sweep
//!    removes it.

use std::collections::{BTreeMap, BTreeSet};
use strandline_base::CommitTs;
use strandline_base::sync::Mutex;

/// Bytes of an entry in both maps besides its own, about.
const OVERHEAD_BYTES: usize = 80;

/// Retired entries by the timestamp from which on no snapshot needs them.
#[derive(Debug)]
pub(super) struct Retired {
    waiting: Mutex<Waiting>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Waiting {
    since: BTreeMap<Box<[u8]>, CommitTs>,
    by_time: BTreeSet<(CommitTs, Box<[u8]>)>,
    bytes: usize,
}

impl Waiting {
    fn remove(&mut self, entry: &[u8]) {
        if let Some((entry, since)) = self.since.remove_entry(entry) {
            self.bytes -= 2 * entry.len() + OVERHEAD_BYTES;
            self.by_time.remove(&(since, entry));
        }
    }
}

impl Retired {
    pub fn new(bytes_max: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            bytes_max,
        }
    }

    pub fn memory_bytes(&self) -> usize {
        self.waiting.lock().bytes
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.lock().since.is_empty()
    }

    /// Keeps an entry until the oldest snapshot is `since`.
    pub fn put(&self, entry: &[u8], since: CommitTs) {
        let mut waiting = self.waiting.lock();
        waiting.remove(entry);
        let bytes = 2 * entry.len() + OVERHEAD_BYTES;
        if waiting.bytes + bytes <= self.bytes_max {
            waiting.bytes += bytes;
            waiting.since.insert(entry.into(), since);
            waiting.by_time.insert((since, entry.into()));
        }
    }

    /// The entry is needed again, or gone.
    pub fn forget(&self, entry: &[u8]) {
        self.waiting.lock().remove(entry);
    }

    /// Those that are among these entries, which are sorted.
    pub fn among<'e>(&self, entries: &[&'e [u8]]) -> Vec<&'e [u8]> {
        let waiting = self.waiting.lock();
        let position = |entry: &[u8]| entries.binary_search(&entry).ok();
        let found = waiting.since.keys().filter_map(|entry| position(entry));
        found.filter_map(|at| entries.get(at).copied()).collect()
    }

    /// Up to `at_most` entries that no snapshot needs, which stay here.
    pub fn expired(&self, oldest: CommitTs, at_most: usize) -> Vec<Box<[u8]>> {
        let waiting = self.waiting.lock();
        let expired = waiting.by_time.iter();
        let expired = expired
            .take_while(|(since, _)| *since <= oldest)
            .take(at_most);
        expired.map(|(_, entry)| entry.clone()).collect()
    }

    /// Takes an entry out if no snapshot needs it. Returns whether this is so.
    pub fn take(&self, entry: &[u8], oldest: CommitTs) -> bool {
        let mut waiting = self.waiting.lock();
        let is_expired = waiting
            .since
            .get(entry)
            .is_some_and(|since| *since <= oldest);
        if is_expired {
            waiting.remove(entry);
        }
        is_expired
    }
}
