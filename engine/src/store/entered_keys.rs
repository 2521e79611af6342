//! The index entries that a transaction has made for the rows it has inserted. A rollback removes
//! them: nobody else has seen the rows.

use crate::store::StoredIndex;
use std::sync::Arc;
use strandline_base::{CommitTs, RowId};
use strandline_index::KeyBytes;

/// The indexes that a list of entries names by their place: an entry keeps four bytes and no
/// reference count, which all writers of an index would share.
#[derive(Default)]
pub(super) struct IndexList(Vec<Arc<StoredIndex>>);

impl IndexList {
    /// The place of an index, which is added if it is new.
    #[inline]
    pub fn place_of(&mut self, index: &Arc<StoredIndex>) -> u32 {
        let mut known = self.0.iter();
        let place = known.position(|known| Arc::ptr_eq(known, index));
        let place = place.unwrap_or_else(|| {
            self.0.push(index.clone());
            self.0.len() - 1
        });
        place as u32
    }

    /// The index at a place that [`IndexList::place_of`] has given.
    #[inline]
    pub fn at(&self, place: u32) -> &StoredIndex {
        &self.0[place as usize]
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct EnteredKeys {
    indexes: IndexList,
    rows: Vec<Entered>,
    /// bytes that the keys take on the heap
    heap: usize,
}

/// An inserted row's key, 32 bytes.
struct Entered {
    bytes: KeyBytes,
    row: RowId,
    /// among the indexes
    index: u32,
}

impl EnteredKeys {
    /// `row` has been entered under `bytes`.
    pub fn push(&mut self, index: &Arc<StoredIndex>, bytes: KeyBytes, row: RowId) {
        self.heap += bytes.heap_bytes();
        let index = self.indexes.place_of(index);
        self.rows.push(Entered { bytes, row, index });
    }

    /// Entries made so far.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Removes the entries from the `first`-th on from their indexes. Must run before the rollback
    /// is visible to others, so that no later writer of the rows relies on an entry.
    pub fn take_back(&mut self, first: usize) {
        for entered in self.rows.drain(first..) {
            self.heap -= entered.bytes.heap_bytes();
            let index = &self.indexes.at(entered.index).index;
            // An entry that stays leads to a row that nobody sees.
            let _ = index.retire(&entered.bytes, entered.row, CommitTs::ZERO);
        }
    }

    /// Bytes reserved for the list of entries, and those of the keys.
    pub fn memory_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Entered>() + self.heap
    }

    /// Makes room for further entries by an eighth at a time.
    pub fn make_room(&mut self, more: usize) {
        if self.rows.capacity() - self.rows.len() < more {
            self.rows.reserve_exact(more.max(self.rows.capacity() / 8));
        }
    }

    /// Releases the list's unused capacity.
    pub fn shrink(&mut self) {
        self.rows.shrink_to_fit();
    }
}
