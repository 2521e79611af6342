//! The keys that a transaction has entered for rows it has updated: what has to go if it is rolled
//! back, and which rows have left a key once it has committed. See `maintenance::key_sweep`.

use crate::store::KeyColumns;
use std::sync::Arc;
use strandline_base::{CommitTs, RowId};

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct MovedKeys {
    keys: Vec<Arc<KeyColumns>>,
    rows: Vec<Moved>,
}

/// An updated row's key, 24 bytes.
struct Moved {
    hash: u64,
    row: RowId,
    /// among the keys
    key: u32,
    /// the row had no such entry before
    is_new: bool,
}

impl MovedKeys {
    /// Enters the key of an updated row, whose record has been written, into the index; None: a
    /// part of it is NULL. `others` gets the rows that were under the key's hash before.
    pub fn enter(
        &mut self,
        key: &Arc<KeyColumns>,
        hash: Option<u64>,
        row: RowId,
        others: &mut Vec<RowId>,
    ) {
        let is_new =
            hash.is_some_and(|hash| key.sweep.row_keys.enter(&*key.index, hash, row, others));
        let known = self.keys.iter().position(|known| Arc::ptr_eq(known, key));
        let at = known.unwrap_or_else(|| {
            self.keys.push(key.clone());
            self.keys.len() - 1
        });
        self.rows.push(Moved {
            hash: hash.unwrap_or_default(),
            row,
            key: at as u32,
            is_new,
        });
    }

    /// Keys entered so far.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// The updates from the `first`-th on are rolled back. Only before others may write the rows
    /// again: while they are this transaction's nobody else relies on the entries.
    pub fn take_back(&mut self, first: usize) {
        for moved in self.rows.drain(first..).filter(|moved| moved.is_new) {
            self.keys[moved.key as usize]
                .index
                .remove(moved.hash, moved.row);
        }
    }

    /// The updates were committed at `ts`.
    pub fn note_committed(&mut self, ts: CommitTs) {
        for moved in self.rows.drain(..) {
            self.keys[moved.key as usize].sweep.note_left(moved.row, ts);
        }
    }
}
