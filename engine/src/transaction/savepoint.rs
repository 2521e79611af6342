//! Savepoints: rolling back to a point within a transaction.
//!
//! Records written since become tombstones, the redo buffer is truncated, and the locks taken since
//! end: row locks with their records, and explicit locks on storages and the catalog. Transactions
//! that wait for this one then look again, while it continues. The rollback of a whole transaction
//! undoes its changes in the same way.

use super::lists::shrink_lists;
use super::rare_work::RareMark;
use super::release::Undone;
use super::{Transaction, TxnState};
use crate::catalog::Catalog;
use crate::redo;
use crate::store::{Hold, Store};
use std::sync::Arc;
use strandline_base::Result;
use strandline_txn::StartWord;

/// A storage with which a transaction is registered. It is listed twice if the transaction first
/// wrote it and later changed its definition.
pub(super) struct HeldStore {
    pub store: Arc<Store>,
    pub hold: Hold,
}

/// A point to roll back to.
#[derive(Clone)]
pub struct Savepoint {
    redo: usize,
    written: usize,
    /// memory of the writes in bytes
    bytes: usize,
    entries: usize,
    rare: RareMark,
    stores: usize,
    locks_ddl: bool,
    catalog: Arc<Catalog>,
    catalog_changed: bool,
}

impl Transaction {
    /// A point to roll back to. Statement-level atomicity uses it too.
    pub fn savepoint(&self) -> Savepoint {
        let state = self.state.lock();
        Savepoint {
            redo: state.redo.len(),
            written: state.written.len(),
            bytes: state.footprint.bytes,
            entries: state.entries.len(),
            rare: state.rare_mark(),
            stores: state.stores.len(),
            locks_ddl: state.locks_ddl,
            catalog: state.catalog.clone(),
            catalog_changed: state.catalog_changed,
        }
    }

    /// Undoes everything (rows and DDL) since the savepoint and ends the locks taken since.
    pub fn rollback_to(&self, savepoint: &Savepoint) -> Result<()> {
        let mut state = self.state.lock();
        state.check_open()?;
        // A record begun after the savepoint starts over with its header.
        let redo = match state.slot {
            Some(_) => savepoint.redo.max(redo::HEADER_BYTES),
            None => 0,
        };
        state.redo.truncate(redo);
        let had_written = state.written.len() > savepoint.written;
        let undone = Undone::of(&mut state, savepoint.written, savepoint.bytes);
        let shown = &mut state.footprint.shown;
        self.db.backpressure.show(shown, savepoint.bytes);
        take_back_keys(&mut state, savepoint.entries, &savepoint.rare);
        if undo(&mut state, savepoint.written, &savepoint.rare) {
            self.db.give_up_lost_files();
        }
        if let Some(rare) = &mut state.rare {
            rare.go_back_in_checks(&savepoint.rare);
        }
        shrink_lists(&mut state);
        state.catalog = savepoint.catalog.clone();
        state.catalog_changed = savepoint.catalog_changed;
        self.hints.set_plain(!state.catalog_changed);
        let has_released = self.release_since(&mut state, savepoint);
        if let Some(slot) = state.slot.as_ref().filter(|_| had_written || has_released) {
            slot.let_go();
        }
        drop(state);
        self.release(&undone);
        Ok(())
    }

    /// Ends the holds on storages and the catalog taken since the savepoint; returns whether there
    /// were any.
    fn release_since(&self, state: &mut TxnState, savepoint: &Savepoint) -> bool {
        let word = state.own_word();
        let locks_ddl = state.locks_ddl && !savepoint.locks_ddl;
        if locks_ddl {
            self.db.release_ddl(word);
            state.locks_ddl = false;
        }
        let since = state.stores.split_off(savepoint.stores);
        for held in &since {
            held.store.release_hold(word, held.hold);
        }
        if !since.is_empty() {
            self.hints.forget_registered();
        }
        locks_ddl || !since.is_empty()
    }

    /// Ends all holds on storages and the catalog.
    pub(super) fn release_locks(&self, state: &mut TxnState, word: StartWord) {
        while let Some(held) = state.stores.pop() {
            held.store.release(word);
        }
        if std::mem::take(&mut state.locks_ddl) {
            self.db.release_ddl(word);
        }
    }
}

/// Removes the index entries from the given positions on. It must run before the rollback is
/// visible to others, so that no later writer of the rows relies on an entry.
pub(super) fn take_back_keys(state: &mut TxnState, entries: usize, mark: &RareMark) {
    state.entries.take_back(entries);
    if let Some(rare) = &mut state.rare {
        rare.take_back_keys(mark);
    }
}

/// Undoes all work from the given positions on. Returns whether indexes in files are back, whose
/// files may have been lost meanwhile.
pub(super) fn undo(state: &mut TxnState, written: usize, mark: &RareMark) -> bool {
    if let Some(rare) = &state.rare {
        rare.forget_loads(mark);
    }
    for written in state.written.drain(written..) {
        written.stamp(StartWord::ABORTED);
    }
    let rare = state.rare.as_mut();
    rare.is_some_and(|rare| rare.undo(mark))
}
