//! The keys that a transaction has entered for updated rows. A rollback removes the new entries,
//! and notes the rows of all others; after a commit the list gives the rows that have left a key.
//! See `maintenance::key_sweep`.

use super::entered_keys::IndexList;
use crate::store::{EntryKey, StoredIndex};
use std::sync::Arc;
use strandline_base::{CommitTs, Result, RowId};
use strandline_index::KeyBytes;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct MovedKeys {
    indexes: IndexList,
    rows: Vec<Moved>,
    /// bytes that the keys take on the heap
    heap: usize,
}

/// An updated row's key, 32 bytes.
struct Moved {
    bytes: Option<KeyBytes>,
    row: RowId,
    /// among the indexes
    index: u32,
    /// the row had no such entry before, and no committed version needs it
    is_new: bool,
}

impl MovedKeys {
    /// Enters the key of an updated row, whose record has been written, into the index; None: it
    /// has no entry now. `others` gets the rows that were under a unique key's bytes before.
    pub fn enter(
        &mut self,
        index: &Arc<StoredIndex>,
        key: Option<EntryKey>,
        row: RowId,
        others: &mut Vec<RowId>,
    ) -> Result<()> {
        // Of an entry that is there the build takes no notice.
        let is_filling = index.is_filling();
        let is_new = index.sweep.row_keys.enter(|| {
            index.note_moved_row(row);
            match &key {
                Some(key) => index.enter(key, row, others),
                None => Ok(false),
            }
        })?;
        self.heap += key.as_ref().map_or(0, |key| key.bytes.heap_bytes());
        self.rows.push(Moved {
            bytes: key.map(|key| key.bytes),
            row,
            index: self.indexes.place_of(index),
            is_new: is_new && !is_filling,
        });
        Ok(())
    }

    /// Bytes reserved for the list of keys, and those of the keys.
    pub fn memory_bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Moved>() + self.heap
    }

    /// Makes room for further keys by an eighth at a time.
    pub fn make_room(&mut self, more: usize) {
        if self.rows.capacity() - self.rows.len() < more {
            self.rows.reserve_exact(more.max(self.rows.capacity() / 8));
        }
    }

    /// Releases the list's unused capacity.
    pub fn shrink(&mut self) {
        self.rows.shrink_to_fit();
    }

    /// Keys entered so far.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Rolls back the updates from the `first`-th on. Must run before other transactions may write
    /// the rows: until then no other transaction relies on the entries.
    pub fn take_back(&mut self, first: usize) {
        for moved in self.rows.drain(first..) {
            let Some(bytes) = &moved.bytes else { continue };
            self.heap -= bytes.heap_bytes();
            let index = self.indexes.at(moved.index);
            let retire = || index.index.retire(bytes, moved.row, CommitTs::ZERO);
            // An entry that stays leads to a row that has another key: readers see that, and the
            // sweep removes it if no version needs it.
            if !moved.is_new || retire().is_err() {
                index.sweep.note_undone(moved.row);
            }
        }
    }

    /// The updates were committed at `ts`.
    pub fn note_committed(&mut self, ts: CommitTs) {
        self.heap = 0;
        for moved in self.rows.drain(..) {
            let index = self.indexes.at(moved.index);
            index.sweep.note_left(moved.row, ts);
        }
    }
}
