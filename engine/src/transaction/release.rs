//! Releases the memory of undone writes: the tombstones' pages are freed at once.
//!
//! A rollback, of a transaction or to a savepoint, turns records into tombstones. If nothing else
//! is pending, no merge removes them. So the rollback itself releases their memory (see
//! `strandline_tail::release`). It does so after its locks have ended and with the transaction
//! unlocked, so that others continue.
//!
//! A release examines all records of a tail. It runs only where enough tombstones justify this.
//! Fewer than [`RELEASED_MIN`] tombstones, or a small part of a tail's records, wait for the next
//! checkpoint that finds the range due.

use super::footprint::Touched;
use super::{Transaction, TxnState};
use crate::db::backpressure::SMALL_BYTES;
use crate::store::TableStore;
use std::sync::atomic::Ordering;
use strandline_base::{RowId, StorageId};

/// With fewer undone writes, the tombstones wait for a checkpoint.
const RELEASED_MIN: usize = 256;

/// The tombstones that a rollback has left.
#[must_use = "its memory is not free yet"]
pub(super) struct Undone {
    /// number of undone records and rows
    writes: usize,
    ranges: Vec<Touched>,
}

impl Undone {
    /// The tombstones that will remain when all writes after the first `written` are undone.
    /// `bytes` is the memory of the writes before.
    pub fn of(state: &mut TxnState, written: usize, bytes: usize) -> Self {
        Self {
            writes: state.written.len() - written,
            ranges: state.footprint.cut(written, bytes),
        }
    }
}

impl Transaction {
    /// Records a change of `row` that takes `bytes`; it is the last one in the list of writes.
    #[inline]
    pub(crate) fn note_write(
        &self,
        state: &mut TxnState,
        (storage, row): (StorageId, RowId),
        bytes: usize,
    ) {
        let footprint = &mut state.footprint;
        footprint.note(storage, row, bytes, state.written.len());
        self.db
            .backpressure
            .show(&mut footprint.shown, footprint.bytes);
        if footprint.bytes >= SMALL_BYTES {
            self.count_lists(state, bytes);
        }
        // One statement at a time writes.
        let unpaid = self.unpaid.load(Ordering::Relaxed);
        self.unpaid.store(unpaid + bytes, Ordering::Relaxed);
    }

    /// Releases the memory of the undone writes. The caller holds no lock.
    pub(super) fn release(&self, undone: &Undone) {
        if undone.writes < RELEASED_MIN {
            return;
        }
        let mut has_released = false;
        for touched in &undone.ranges {
            if let Ok(store) = self.db.store(touched.storage) {
                let Touched { range, tails, .. } = *touched;
                has_released |= store.rows().release_undone(range, tails, touched.records);
            }
        }
        if has_released {
            // Scans between two batches hold pages too.
            self.db.open_readers.let_go();
        }
    }
}
