//! Commit: a transaction's record goes into the log, in the order of the commit timestamps.
//!
//! Validate (serializable only) → take the log's lock → check the commits since the validation →
//! draw the timestamp → append → enqueue → release → wait until the record is durable → finish →
//! stamp.
//!
//! Invariant: after a failed append the transaction is rolled back. After a failed wait for
//! durability its outcome is unknown until the database is opened again, and the log refuses all
//! further records.

use super::validation::Validation;
use super::{Transaction, TxnState};
use crate::catalog::edit::CatalogEdit;
use crate::db::Db;
use crate::maintenance::reserve::{is_full_disk, only_frees};
use crate::manifest_state::to_json;
use crate::redo;
use strandline_base::sync::{Mutex, MutexGuard, RwLockReadGuard};
use strandline_base::{CommitTs, Error, Result};
use strandline_storage::wal::{self, Lsn};
use strandline_txn::{Durability, StartWord, TxnSlot};

/// A commit that is in the log and not complete yet.
pub(super) struct Appended<'a> {
    pub ts: CommitTs,
    pub end: Lsn,
    /// keeps checkpoints from covering the commit until it is complete
    _completing: Option<RwLockReadGuard<'a, ()>>,
}

/// The slot of a committing transaction. If the commit panics after it was queued and the log has
/// failed, drop removes it from the queue. Otherwise the commits behind it would wait for ever.
pub(super) struct CommittingSlot<'a>(pub &'a Db, pub Option<TxnSlot>);

impl CommittingSlot<'_> {
    fn get(&self) -> &TxnSlot {
        self.1.as_ref().expect("there until it is taken")
    }
    fn into_slot(mut self) -> TxnSlot {
        self.1.take().expect("taken once")
    }
}

impl Drop for CommittingSlot<'_> {
    fn drop(&mut self) {
        if let Some(slot) = &self.1
            && self.0.check_writable().is_err()
        {
            slot.abort();
        }
    }
}

impl Transaction {
    /// Commits. Returns the commit timestamp once the stable timestamp has passed it. If the
    /// transaction has written nothing, it returns the stable timestamp.
    ///
    /// # Errors
    /// Also the errors of deferred constraints. The transaction is then rolled back.
    pub fn commit(&self) -> Result<CommitTs> {
        let mut state = self.state.lock();
        state.check_open()?;
        if state.has_deferred() {
            drop(state);
            self.run_all_deferred()?;
            state = self.state.lock();
            state.check_open()?;
        }
        let has_changes = state.redo.len() > redo::HEADER_BYTES || state.catalog_changed;
        let Some(slot) = state.slot.take_if(|_| has_changes) else {
            return self.end_unchanged(state);
        };
        let slot = CommittingSlot(&self.db, Some(slot));
        match self.append(&mut state, slot.get()) {
            Ok(appended) => {
                let committed = self.complete(&mut state, slot, appended);
                drop(state);
                // The commit stands, even if the session is cancelled during the pause.
                let _ = self.pay_for_writes(&mut || self.check_cancelled());
                committed
            }
            Err(error) => {
                self.give_up(state, slot.into_slot());
                Err(error)
            }
        }
    }

    #[cold]
    fn run_all_deferred(&self) -> Result<()> {
        let outcome = self.run_deferred(&|_, _| true);
        outcome.inspect_err(|_| self.rollback())
    }

    /// Ends a transaction that has no changes, or has undone all of them.
    #[inline(never)]
    fn end_unchanged(&self, mut state: MutexGuard<'_, TxnState>) -> Result<CommitTs> {
        let settled = self.settle_dependencies(&state);
        match state.slot.take() {
            None => self.end_unwritten(&mut state),
            // The transaction still holds row locks, which end here.
            Some(slot) => self.give_up(state, slot),
        }
        settled.map(|()| self.db.stable())
    }

    /// Undoes all changes.
    #[inline(never)]
    fn give_up(&self, mut state: MutexGuard<'_, TxnState>, slot: TxnSlot) {
        let undone = self.abort(&mut state, Some(slot));
        drop(state);
        self.release(&undone);
    }

    /// Waits until all commits in this transaction's speculative snapshots are durable.
    fn settle_dependencies(&self, state: &TxnState) -> Result<()> {
        if state.depends_on == CommitTs::ZERO {
            return Ok(());
        }
        let failed = |error: Error| {
            error.context("a transaction whose changes were read could not be committed")
        };
        let wal = self.db.wal();
        if self.db.stable() < state.depends_on {
            let end = wal.end_lsn();
            wal.wait_durable(end).map_err(failed)?;
            self.db.txns().finish_through(end.0);
        }
        // The stable timestamp may have passed an aborted one.
        wal.check_usable().map_err(failed)
    }

    /// Appends the record to the log. A record that only frees space may use the disk reserve.
    fn append_in_space(
        &self,
        record: &mut [u8],
        stamp: &mut dyn FnMut(&mut [u8], Lsn) -> Result<()>,
    ) -> Result<wal::Appended> {
        self.db.check_space(record)?;
        match self.db.wal().append(record, stamp) {
            Err(error) => self.append_in_reserve(error, record, stamp),
            appended => {
                if self.db.reserve.is_full() && !self.db.has_given_up_reserve() {
                    self.db.reserve.note_room();
                }
                appended
            }
        }
    }

    #[cold]
    fn append_in_reserve(
        &self,
        error: Error,
        record: &mut [u8],
        stamp: &mut dyn FnMut(&mut [u8], Lsn) -> Result<()>,
    ) -> Result<wal::Appended> {
        if !is_full_disk(&error) {
            return Err(error);
        }
        let cause = self.db.note_full_log(error);
        match only_frees(record) && self.db.give_up_reserve(&cause) {
            true => self.db.wal().append(record, stamp),
            false => Err(self.db.full_disk()),
        }
    }

    /// Makes bulk loads durable, and puts changes of definitions into the record.
    #[cold]
    fn prepare_loads_and_definitions(
        &self,
        state: &mut TxnState,
    ) -> Result<Option<RwLockReadGuard<'_, ()>>> {
        // A checkpoint that covers this commit must find its loaded ranges stamped.
        let completing = state.has_loads().then(|| self.db.completing.read());
        if state.catalog_changed {
            // The catalog that was changed: no other transaction changes it until this commit ends.
            let before = self.db.catalogs.at(CommitTs::MAX)?;
            let edit = CatalogEdit::between(&before, &state.catalog);
            redo::put_definition(&mut state.redo, &to_json(&edit)?);
        }
        if state.has_loads() {
            self.db.device().sync_directory()?;
        }
        Ok(completing)
    }

    pub(super) fn append(&self, state: &mut TxnState, slot: &TxnSlot) -> Result<Appended<'_>> {
        let reads = self.reads.as_ref().map(Mutex::lock);
        let validation = match (&reads, &state.snapshot) {
            (Some(reads), Some(snapshot)) if !reads.is_empty() => Some(Validation::begin(
                &self.db,
                reads,
                snapshot.ts(),
                slot.word(),
            )?),
            _ => None,
        };
        let completing = match state.has_loads() || state.catalog_changed {
            true => self.prepare_loads_and_definitions(state)?,
            false => None,
        };
        let txns = self.db.txns();
        // A commit that depends on a commit that is not durable yet must not finish before it.
        let depends = state.depends_on > self.db.stable();
        let durability = match self.synchronous_commit() || depends {
            true => Durability::Logged,
            false => Durability::Relaxed,
        };
        let catalog = state.catalog_changed.then(|| state.catalog.clone());
        let mut ts = CommitTs::ZERO;
        let mut record = std::mem::take(&mut state.redo);
        let is_queued = &mut state.is_queued;
        let appended = self
            .db
            .identities
            .log_with(&mut record, redo::put_drawn, |record| {
                self.append_in_space(record, &mut |bytes, end| {
                    if let Some(validation) = &validation {
                        validation.finish()?;
                    }
                    ts = txns.tick();
                    redo::set_commit_ts(bytes, ts);
                    if let Some(catalog) = &catalog {
                        // Snapshots at or after `ts` begin only after the commit is queued and
                        // finished.
                        self.db.catalogs.add(ts, catalog.clone());
                    }
                    *is_queued = true;
                    txns.enqueue(slot, ts, end.0, durability);
                    self.db.commit_watches.note(bytes);
                    Ok(())
                })
            });
        state.redo = record;
        Ok(Appended {
            ts,
            end: appended?.end,
            _completing: completing,
        })
    }

    pub(super) fn complete(
        &self,
        state: &mut TxnState,
        slot: CommittingSlot<'_>,
        appended: Appended<'_>,
    ) -> Result<CommitTs> {
        let (ts, end) = (appended.ts, appended.end);
        let txns = self.db.txns();
        slot.get().announce();
        if !self.synchronous_commit() {
            txns.finish_through(0);
        }
        if txns.stable() < ts {
            if let Err(error) = self.db.wal().wait_durable(end) {
                self.leave_unknown(state, slot.get(), ts);
                return Err(error.context("the commit's outcome is unknown"));
            }
            txns.finish_through(end.0);
        }
        for written in &state.written {
            written.stamp(StartWord::committed(ts));
        }
        if let Some(rare) = &mut state.rare {
            rare.moved.note_committed(ts);
        }
        self.db.note_commit(end, state.redo.len());
        self.finish(state, Some(slot.into_slot()));
        Ok(ts)
    }

    /// Leaves a commit whose outcome is unknown until the next open; until then no transaction sees
    /// it. The slot is never reused, since the records keep its word.
    #[cold]
    fn leave_unknown(&self, state: &mut TxnState, slot: &TxnSlot, ts: CommitTs) {
        if state.catalog_changed {
            self.db.catalogs.take_back(ts);
        }
        slot.abort();
        // Transactions that wait for its locks continue, and are refused when they commit.
        self.leave_undecided(state);
    }
}
