//! The keys that a transaction has entered for rows it has updated: what has to go if it is rolled
//! back, and which rows have left a key once it has committed. See `maintenance::key_sweep`.

use crate::store::KeyColumns;
use std::sync::Arc;
use strandline_base::{CommitTs, Result, RowId};
use strandline_index::KeyBytes;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct MovedKeys {
    keys: Vec<Arc<KeyColumns>>,
    rows: Vec<Moved>,
}

/// An updated row's key, 32 bytes.
struct Moved {
    bytes: Option<KeyBytes>,
    row: RowId,
    /// among the keys
    key: u32,
    /// the row had no such entry before
    is_new: bool,
}

impl MovedKeys {
    /// Enters the key of an updated row, whose record has been written, into the index; None: a
    /// part of it is NULL. `others` gets the rows that were under these bytes before.
    pub fn enter(
        &mut self,
        key: &Arc<KeyColumns>,
        bytes: Option<KeyBytes>,
        row: RowId,
        others: &mut Vec<RowId>,
    ) -> Result<()> {
        let is_new = match &bytes {
            Some(bytes) => key.sweep.row_keys.enter(&*key.index, bytes, row, others)?,
            None => false,
        };
        let known = self.keys.iter().position(|known| Arc::ptr_eq(known, key));
        let at = known.unwrap_or_else(|| {
            self.keys.push(key.clone());
            self.keys.len() - 1
        });
        self.rows.push(Moved {
            bytes,
            row,
            key: at as u32,
            is_new,
        });
        Ok(())
    }

    /// Keys entered so far.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// The updates from the `first`-th on are rolled back. Only before others may write the rows
    /// again: while they are this transaction's nobody else relies on the entries.
    pub fn take_back(&mut self, first: usize) {
        for moved in self.rows.drain(first..).filter(|moved| moved.is_new) {
            if let Some(bytes) = &moved.bytes {
                let index = &self.keys[moved.key as usize].index;
                // An entry that stays leads to a row that has another key: readers see that.
                let _ = index.retire(bytes, moved.row, CommitTs::ZERO);
            }
        }
    }

    /// The updates were committed at `ts`.
    pub fn note_committed(&mut self, ts: CommitTs) {
        for moved in self.rows.drain(..) {
            self.keys[moved.key as usize].sweep.note_left(moved.row, ts);
        }
    }
}
