//! What the trees on the pages of a file have in common: the root's page, the part of an entry
//! behind its key, the number of entries, and the error for a damaged node.

use std::sync::atomic::AtomicUsize as Counter; // counts entries; no part of a protocol
use std::sync::atomic::Ordering::Relaxed;
use strandline_base::{CommitTs, Error};
use strandline_storage::pages::{PageFileId, PageNumber};

/// The root's page: the first one behind the file's header page.
pub(crate) const ROOT: PageNumber = PageNumber(1);

/// Where a body is no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damage(pub &'static str);

/// The error for a damaged node.
pub(crate) fn damaged(file: PageFileId, number: PageNumber, damage: Damage) -> Error {
    let place = format!("page {} of page file {}", number.0, file.0);
    Error::corrupt(place, damage.0).with_hint("REINDEX builds the index anew from its rows.")
}

/// The part of an entry behind its bytes or its box.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// of a leaf's entry: nothing
    Live,
    /// of a leaf's entry that no snapshot at or after the timestamp needs
    Retired(CommitTs),
    /// of an inner node's entry: the node that the entry stands for
    Child(PageNumber),
}

/// The number of entries. It is not stored; an opened tree begins with an estimate.
#[derive(Default)]
pub(crate) struct Count {
    begun_with: Counter,
    added: Counter,
    removed: Counter,
}

impl Count {
    /// The present number.
    pub fn get(&self) -> usize {
        let (added, removed) = self.changes();
        let held = self.begun_with.load(Relaxed).wrapping_add(added);
        (held.wrapping_sub(removed) as isize).max(0) as usize
    }
    /// The numbers of entries added and removed since the tree was opened.
    pub fn changes(&self) -> (usize, usize) {
        (self.added.load(Relaxed), self.removed.load(Relaxed))
    }
    /// Counts a change.
    pub fn note(&self, added: usize, removed: usize) {
        self.added.fetch_add(added, Relaxed);
        self.removed.fetch_add(removed, Relaxed);
    }
    /// Sets the number that there was at `changes`.
    pub fn set(&self, (added, removed): (usize, usize), held: usize) {
        let begun_with = held.wrapping_sub(added).wrapping_add(removed);
        self.begun_with.store(begun_with, Relaxed);
    }
}

#[cfg(all(test, not(shuttle)))]
pub(crate) mod tests;
