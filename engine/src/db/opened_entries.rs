//! How far maintenance has compared the entries of an opened index with their rows
//! (`maintenance::opened_entries`).

use crate::store::StoredIndex;
use std::ops::Range;
use std::sync::{Arc, Weak};
use strandline_base::RowId;
use strandline_base::sync::Mutex;
use strandline_index::KeyBytes;

/// The comparison that goes on in the next turn.
pub(crate) type OpenedEntries = Mutex<Option<Comparison>>;

/// How far the comparison of an index has come.
pub(crate) struct Comparison {
    pub(crate) index: Weak<StoredIndex>,
    /// the ranges of the part
    pub(crate) part: Range<u32>,
    /// the entries of the part that have been read
    pub(crate) entries: Vec<(RowId, u64)>,
    /// whether there are entries of later ranges
    pub(crate) are_later: bool,
    /// where the walk goes on
    pub(crate) walk: Walk,
}

/// A walk over all entries of an index.
pub(crate) enum Walk {
    /// the first key that was not read; None: nothing was
    From(Option<KeyBytes>),
    Done,
}

impl Comparison {
    /// The comparison of the rows in the ranges of `part`.
    pub(crate) fn of(index: &Arc<StoredIndex>, part: Range<u32>) -> Self {
        Self {
            index: Arc::downgrade(index),
            part,
            entries: Vec::new(),
            are_later: false,
            walk: Walk::From(None),
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
}

/// Whether entries of an index have not been compared with their rows.
pub(crate) fn has_unknown(index: &StoredIndex) -> bool {
    index.moved_rows().is_some_and(|moved| moved.are_unknown())
}
