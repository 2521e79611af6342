//! Commits that arrive while a serializable transaction validates its reads.
//!
//! A validation examines all commits since its snapshot. Commits that arrive during this time are
//! handed to it as log records; it examines them in a second, short step under the log's lock.
//!
//! Invariant: for every commit and every watch that begins, one of two holds. Either the commit's
//! timestamp is queued before the watch's owner looks at any row, or the watch gets the commit's
//! record. (The committer queues, then checks for watches; the owner registers, then looks. All
//! four operations are in one total order.)
//!
//! Lock order: the log's lock → `watches`, which is held only to push and to take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strandline_base::sync::Mutex;

/// The watches of a database.
#[derive(Default)]
pub struct CommitWatches {
    count: AtomicUsize,
    watches: Mutex<Watches>,
}

#[derive(Default)]
struct Watches {
    next: u64,
    open: Vec<(u64, Vec<Arc<[u8]>>)>,
}

/// Collects the records of commits until it is dropped.
pub struct CommitWatch<'a> {
    watches: &'a CommitWatches,
    id: u64,
}

impl CommitWatches {
    /// Begins to collect the records of commits.
    pub fn watch(&self) -> CommitWatch<'_> {
        let mut watches = self.watches.lock();
        let id = watches.next;
        watches.next += 1;
        watches.open.push((id, Vec::new()));
        self.count.fetch_add(1, Ordering::SeqCst);
        CommitWatch { watches: self, id }
    }

    /// Hands the record of a queued commit to the watches. The caller holds the log's lock.
    pub fn note(&self, record: &[u8]) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let record: Arc<[u8]> = record.into();
        for (_, records) in &mut self.watches.lock().open {
            records.push(record.clone());
        }
    }
}

impl CommitWatch<'_> {
    /// Takes the records since the last call.
    pub fn take(&self) -> Vec<Arc<[u8]>> {
        let mut watches = self.watches.watches.lock();
        let own = watches.open.iter_mut().find(|(id, _)| *id == self.id);
        own.map(|(_, records)| std::mem::take(records))
            .unwrap_or_default()
    }
}

impl Drop for CommitWatch<'_> {
    fn drop(&mut self) {
        let mut watches = self.watches.watches.lock();
        watches.open.retain(|(id, _)| *id != self.id);
        self.watches.count.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_gets_what_comes_while_it_is_open() {
        let watches = CommitWatches::default();
        watches.note(b"before");
        let (first, second) = (watches.watch(), watches.watch());
        watches.note(b"one");
        assert_eq!(first.take(), [Arc::from(b"one".as_slice())]);
        assert!(first.take().is_empty());
        drop(first);
        watches.note(b"two");
        assert_eq!(second.take().len(), 2);
        drop(second);
        assert_eq!(watches.count.load(Ordering::SeqCst), 0);
        assert!(watches.watches.lock().open.is_empty());
    }
}
