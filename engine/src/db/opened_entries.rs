//! How far maintenance has compared the entries of an opened index with their rows
//! (`maintenance::opened_entries`).

use crate::store::StoredIndex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use strandline_base::RowId;
use strandline_base::sync::Mutex;
use strandline_index::KeyBytes;

/// The comparison that goes on in the next turn.
pub(crate) type OpenedEntries = Mutex<Option<Comparison>>;

/// How far the comparison of an index has come.
pub(crate) struct Comparison {
    pub(crate) index: Weak<StoredIndex>,
    /// of the entries that have been read, by range; those not compared yet
    pub(crate) sums: BTreeMap<u32, EntrySum>,
    /// the ranges whose entries are, or may be, others than those of their rows
    pub(crate) differing: BTreeSet<u32>,
    pub(crate) stage: Stage,
}

/// What a turn goes on with.
pub(crate) enum Stage {
    /// sums of the entries of all ranges
    Sum(Walk),
    /// each sum is compared with the rows of its range
    CompareSums,
    /// the entries of the first ranges that differ are gathered, and compared with their rows
    Gather(Part),
}

/// The ranges whose entries are gathered in one walk.
pub(crate) struct Part {
    pub(crate) ranges: BTreeSet<u32>,
    /// those that have been read
    pub(crate) entries: Vec<(RowId, u64)>,
    pub(crate) walk: Walk,
}

/// Where a walk over all entries of an index goes on.
pub(crate) enum Walk {
    /// the first key that was not read; None: nothing was
    From(Option<KeyBytes>),
    Done,
}

/// A sum over entries that is the same for the same entries in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EntrySum {
    entries: u64,
    hashes: u64,
}

impl EntrySum {
    /// Adds an entry, given by a hash of its row and its key.
    pub(crate) fn add(&mut self, hash: u64) {
        self.entries += 1;
        self.hashes = self.hashes.wrapping_add(hash);
    }
}

impl Comparison {
    pub(crate) fn of(index: &Arc<StoredIndex>) -> Self {
        Self {
            index: Arc::downgrade(index),
            sums: BTreeMap::new(),
            differing: BTreeSet::new(),
            stage: Stage::Sum(Walk::From(None)),
        }
    }

    pub(crate) fn is_of(&self, index: &Arc<StoredIndex>) -> bool {
        std::ptr::eq(self.index.as_ptr(), Arc::as_ptr(index))
    }

    /// Whether its index is still there and has entries that have not been compared.
    pub(crate) fn goes_on(&self) -> bool {
        let index = self.index.upgrade();
        index.is_some_and(|index| index.is_usable() && has_unknown(&index))
    }

    /// Begins with the next ranges that differ, at most so many; false: there are none.
    pub(crate) fn begin_part(&mut self, ranges: usize) -> bool {
        let ranges: BTreeSet<u32> = self.differing.iter().copied().take(ranges).collect();
        let is_there = !ranges.is_empty();
        self.differing.retain(|no| !ranges.contains(no));
        self.stage = Stage::Gather(Part {
            ranges,
            entries: Vec::new(),
            walk: Walk::From(None),
        });
        is_there
    }
}

/// Whether entries of an index have not been compared with their rows.
pub(crate) fn has_unknown(index: &StoredIndex) -> bool {
    index.moved_rows().is_some_and(|moved| moved.are_unknown())
}
