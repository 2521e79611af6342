//! Transactions: begin, savepoints, catalog changes, commit and rollback.
//!
//! Invariants:
//! 1. A transaction's records carry its word until they are stamped, after the outcome is fixed.
//! 2. Locks on storages and the catalog end only after the outcome is visible to everybody.
//! 3. The catalog that a statement goes by is the one valid at its snapshot (or the transaction's
//!    own, once it has changed it); see `catalog_versions`.
//! 4. After a failed append the transaction is rolled back; after a failed wait for durability its
//!    outcome is unknown until the database is opened again, and the log refuses everything.
//!
//! Lock order: `state` of the transaction → log → catalog versions → commit queue. Waiting for
//! others happens with `state` released.

use crate::catalog::Catalog;
use crate::db::{Adopted, Db};
use crate::key_build::forget_loaded;
use crate::manifest_state::to_json;
use crate::redo;
use crate::settings::TxnOptions;
use crate::statement::Statement;
use crate::store::{KeyColumns, Store, Waiting};
use parking_lot::{Mutex, RwLockReadGuard};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strandline_base::{CommitTs, Error, ErrorKind, RangeNo, Result, RowId, SqlState};
use strandline_storage::wal::Lsn;
use strandline_table::data_file::DataFile;
use strandline_table::schema::StorageSchema;
use strandline_table::write::Written;
use strandline_txn::{Durability, Isolation, SnapshotGuard, StartWord, TxnSlot, Visibility};

/// A transaction. Shared by the plan nodes of its statements; one statement at a time writes.
/// Dropping the last reference without commit rolls back.
pub struct Transaction {
    db: Arc<Db>,
    options: TxnOptions,
    pub(crate) state: Mutex<TxnState>,
}

/// What a transaction has done so far.
pub(crate) struct TxnState {
    /// claimed by the first write
    slot: Option<TxnSlot>,
    pub(crate) statement: u32,
    /// the log record under construction
    pub(crate) redo: Vec<u8>,
    pub(crate) written: Vec<Written>,
    /// index entries of rows this transaction inserted, bulk-loaded ones excepted
    pub(crate) entries: Vec<(Arc<KeyColumns>, u64, RowId)>,
    /// storages this transaction is registered with
    stores: Vec<Arc<Store>>,
    /// storages that got columns, with their schemas before, for rollback
    grown: Vec<(Arc<Store>, Arc<StorageSchema>)>,
    /// bulk-loaded ranges
    pub(crate) loads: Vec<Load>,
    catalog: Arc<Catalog>,
    catalog_changed: bool,
    /// the snapshot of the whole transaction under snapshot isolation
    snapshot: Option<SnapshotGuard>,
    ended: bool,
}

impl TxnState {
    /// 25P01 if the transaction has ended: nobody would stamp what it writes now.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.ended {
            return Err(ended());
        }
        Ok(())
    }
}

/// A bulk-loaded range. What a rollback has to undo is in the range: nothing is kept per row.
pub(crate) struct Load {
    /// removed on rollback
    pub(crate) file: Arc<DataFile>,
    pub(crate) store: Arc<Store>,
    pub(crate) range: RangeNo,
}

/// A commit that is in the log and not complete yet.
struct Appended<'a> {
    ts: CommitTs,
    end: Lsn,
    /// keeps checkpoints from covering it until it is
    _completing: Option<RwLockReadGuard<'a, ()>>,
}

/// A point to roll back to.
#[derive(Clone)]
pub struct Savepoint {
    redo: usize,
    written: usize,
    entries: usize,
    loads: usize,
    grown: usize,
    catalog: Arc<Catalog>,
    catalog_changed: bool,
}

impl Transaction {
    pub(crate) fn new(db: Arc<Db>, options: TxnOptions) -> Result<Arc<Self>> {
        let snapshot = match options.isolation {
            Isolation::ReadCommitted => None,
            _ => Some(db.txns().snapshot(None)?),
        };
        let catalog = match &snapshot {
            Some(snapshot) => db.catalog_at(snapshot.ts())?,
            // Each statement looks again.
            None => db.catalog(),
        };
        let state = TxnState {
            slot: None,
            statement: 0,
            redo: Vec::new(),
            written: Vec::new(),
            entries: Vec::new(),
            stores: Vec::new(),
            grown: Vec::new(),
            loads: Vec::new(),
            catalog,
            catalog_changed: false,
            snapshot,
            ended: false,
        };
        Ok(Arc::new(Self {
            db,
            options,
            state: Mutex::new(state),
        }))
    }

    /// The database.
    pub fn db(&self) -> &Arc<Db> {
        &self.db
    }
    /// How it runs.
    pub fn options(&self) -> &TxnOptions {
        &self.options
    }
    /// The catalog this transaction sees, its own DDL included.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.state.lock().catalog.clone()
    }
    /// Whether the transaction has written anything.
    pub fn has_written(&self) -> bool {
        let state = self.state.lock();
        !state.written.is_empty() || state.catalog_changed
    }

    pub(crate) fn has_changed_catalog(&self) -> bool {
        self.state.lock().catalog_changed
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.options.cancel.load(Ordering::Relaxed)
    }

    /// 57014 if the statement has been cancelled.
    pub fn check_cancelled(&self) -> Result<()> {
        if self.is_cancelled() {
            return Err(Error::new(
                ErrorKind::Cancelled,
                SqlState::QUERY_CANCELED,
                "canceling statement due to user request",
            ));
        }
        Ok(())
    }

    /// Waits for the transaction behind `holder`.
    pub(crate) fn wait_for(&self, holder: StartWord) -> Result<()> {
        let word = self.word()?;
        self.waiting(&|| self.is_cancelled()).wait(word, holder)
    }

    fn waiting<'a>(&'a self, cancelled: &'a dyn Fn() -> bool) -> Waiting<'a> {
        Waiting {
            txns: self.db.txns(),
            timeout: self.options.lock_timeout,
            cancelled,
        }
    }

    /// The transaction's start word, claimed now if this is its first write.
    pub(crate) fn word(&self) -> Result<StartWord> {
        let mut state = self.state.lock();
        if let Some(slot) = &state.slot {
            return Ok(slot.word());
        }
        if self.options.read_only {
            return Err(Error::invalid(
                SqlState::READ_ONLY_SQL_TRANSACTION,
                "cannot write in a read-only transaction",
            ));
        }
        state.check_open()?;
        self.db.check_writable()?;
        let slot = self.db.txns().begin()?;
        let word = slot.word();
        redo::begin(&mut state.redo);
        state.slot = Some(slot);
        Ok(word)
    }

    /// Registers as a writer of `store`, waiting for a definition change of its table to finish.
    pub(crate) fn lock_store(&self, store: &Arc<Store>) -> Result<StartWord> {
        let word = self.word()?;
        if self
            .state
            .lock()
            .stores
            .iter()
            .any(|s| Arc::ptr_eq(s, store))
        {
            return Ok(word);
        }
        store.lock_shared(word, &self.waiting(&|| self.is_cancelled()))?;
        self.state.lock().stores.push(store.clone());
        Ok(word)
    }

    /// Edits the transaction's catalog. Waits for other DDL; then, for every table whose
    /// definition changes, for that table's writers. New storages come into being empty.
    /// Duplicate names are the editor's business.
    pub fn change_catalog(&self, edit: &mut dyn FnMut(&mut Catalog) -> Result<()>) -> Result<()> {
        let word = self.word()?;
        let cancelled = || self.is_cancelled();
        let waiting = self.waiting(&cancelled);
        self.db.lock_ddl(word, &waiting)?;
        let before = self.ddl_base()?;
        let mut catalog = Catalog::clone(&before);
        edit(&mut catalog)?;
        check_storable(&catalog)?;
        for (id, old) in &before.tables {
            if catalog.tables.get(id).is_none_or(|new| new != old) {
                let store = self.db.store(old.storage)?;
                store.lock_exclusive(word, &waiting)?;
                let mut state = self.state.lock();
                if !state.stores.iter().any(|s| Arc::ptr_eq(s, &store)) {
                    state.stores.push(store);
                }
            }
        }
        let mut adopted = Adopted::default();
        let outcome = self
            .db
            .adopt_storages(&before, &catalog, word, &mut adopted);
        let mut state = self.state.lock();
        state.stores.extend(adopted.created);
        state.grown.extend(adopted.grown);
        outcome?;
        state.catalog = Arc::new(catalog);
        state.catalog_changed = true;
        Ok(())
    }

    /// The catalog that a change starts from: the newest one, unless this transaction has changed
    /// it already.
    fn ddl_base(&self) -> Result<Arc<Catalog>> {
        let state = self.state.lock();
        if state.catalog_changed {
            return Ok(state.catalog.clone());
        }
        let newest = self.db.catalog();
        if state.snapshot.is_some() && !Arc::ptr_eq(&newest, &state.catalog) {
            return Err(Error::new(
                ErrorKind::Conflict,
                SqlState::SERIALIZATION_FAILURE,
                "could not serialize access due to a concurrent change of the catalog",
            )
            .with_hint("Retry the transaction."));
        }
        Ok(newest)
    }

    /// Starts a statement: the next statement number and, under read committed, a new snapshot.
    pub fn begin_statement(self: &Arc<Self>) -> Result<Arc<Statement>> {
        let mut state = self.state.lock();
        state.check_open()?;
        state.statement += 1;
        let snapshot = match &state.snapshot {
            Some(snapshot) => snapshot.clone(),
            // It ends with the statement: an idle transaction keeps nothing from being merged.
            None => self.db.txns().snapshot(None)?,
        };
        if state.snapshot.is_none() && !state.catalog_changed {
            state.catalog = self.db.catalog_at(snapshot.ts())?;
        }
        let own = state.slot.as_ref().map_or(StartWord(0), TxnSlot::word);
        let visibility = Visibility {
            ts: snapshot.ts(),
            own,
            statement: state.statement,
        };
        drop(state);
        Ok(Arc::new(Statement::new(self.clone(), snapshot, visibility)))
    }

    /// A point to roll back to. Statement-level atomicity uses it too.
    pub fn savepoint(&self) -> Savepoint {
        let state = self.state.lock();
        Savepoint {
            redo: state.redo.len(),
            written: state.written.len(),
            entries: state.entries.len(),
            loads: state.loads.len(),
            grown: state.grown.len(),
            catalog: state.catalog.clone(),
            catalog_changed: state.catalog_changed,
        }
    }

    /// Undoes everything (rows and DDL) since the savepoint.
    pub fn rollback_to(&self, savepoint: &Savepoint) -> Result<()> {
        let mut state = self.state.lock();
        state.check_open()?;
        // A record begun after the savepoint starts over with its header.
        let redo = match state.slot {
            Some(_) => savepoint.redo.max(redo::HEADER_BYTES),
            None => 0,
        };
        state.redo.truncate(redo);
        undo(
            &mut state,
            savepoint.written,
            savepoint.entries,
            savepoint.loads,
            savepoint.grown,
        );
        state.catalog = savepoint.catalog.clone();
        state.catalog_changed = savepoint.catalog_changed;
        Ok(())
    }

    /// Returns the commit timestamp once the stable timestamp has passed it (if nothing was
    /// written: the stable timestamp).
    pub fn commit(&self) -> Result<CommitTs> {
        let mut state = self.state.lock();
        state.check_open()?;
        let Some(slot) = state.slot.take() else {
            self.finish(&mut state, None);
            return Ok(self.db.stable());
        };
        if state.redo.len() <= redo::HEADER_BYTES && !state.catalog_changed {
            // Everything was rolled back to savepoints.
            slot.abort();
            self.finish(&mut state, Some(slot));
            return Ok(self.db.stable());
        }
        match self.append(&mut state, &slot) {
            Ok(appended) => self.complete(&mut state, slot, appended),
            Err(error) => {
                slot.abort();
                undo(&mut state, 0, 0, 0, 0);
                self.finish(&mut state, Some(slot));
                Err(error)
            }
        }
    }

    fn append(&self, state: &mut TxnState, slot: &TxnSlot) -> Result<Appended<'_>> {
        // A checkpoint that covers this commit must find its loaded ranges stamped.
        let completing = (!state.loads.is_empty()).then(|| self.db.completing.read());
        if state.catalog_changed {
            let json = to_json(&*state.catalog)?;
            redo::put_catalog(&mut state.redo, &json);
        }
        if !state.loads.is_empty() {
            self.db.device().sync_directory()?;
        }
        let txns = self.db.txns();
        let durability = match self.options.synchronous_commit {
            true => Durability::Logged,
            false => Durability::Relaxed,
        };
        let catalog = state.catalog_changed.then(|| state.catalog.clone());
        let mut ts = CommitTs::ZERO;
        let mut record = std::mem::take(&mut state.redo);
        let appended = self.db.identities.log_with(&mut record, |record| {
            self.db.wal().append(record, &mut |bytes, end| {
                ts = txns.tick();
                redo::set_commit_ts(bytes, ts);
                if let Some(catalog) = &catalog {
                    // No snapshot at or after `ts` begins before it is queued and finished.
                    self.db.catalogs.add(ts, catalog.clone());
                }
                txns.enqueue(slot, ts, end.0, durability);
            })
        });
        state.redo = record;
        Ok(Appended {
            ts,
            end: appended?.end,
            _completing: completing,
        })
    }

    fn complete(
        &self,
        state: &mut TxnState,
        slot: TxnSlot,
        appended: Appended<'_>,
    ) -> Result<CommitTs> {
        let (ts, end) = (appended.ts, appended.end);
        let txns = self.db.txns();
        if !self.options.synchronous_commit {
            txns.finish_through(0);
        }
        if txns.stable() < ts {
            if let Err(error) = self.db.wal().wait_durable(end) {
                // The outcome is unknown until the next open; until then nobody sees it. The slot
                // is never reused: the records keep its word.
                if state.catalog_changed {
                    self.db.catalogs.take_back(ts);
                }
                slot.abort();
                state.ended = true;
                // Those who wait for the locks go on, and are refused when they commit.
                self.release_locks(state, slot.word());
                return Err(error.context("the commit's outcome is unknown"));
            }
            txns.finish_through(end.0);
        }
        for written in &state.written {
            written.stamp(StartWord::committed(ts));
        }
        self.db.note_commit(end, state.redo.len());
        self.finish(state, Some(slot));
        Ok(ts)
    }

    /// Undoes everything.
    pub fn rollback(&self) {
        let mut state = self.state.lock();
        if state.ended {
            return;
        }
        let slot = state.slot.take();
        if let Some(slot) = &slot {
            slot.abort();
        }
        undo(&mut state, 0, 0, 0, 0);
        self.db.note_abort();
        self.finish(&mut state, slot);
    }

    fn finish(&self, state: &mut TxnState, slot: Option<TxnSlot>) {
        state.ended = true;
        state.snapshot = None;
        state.written = Vec::new();
        state.entries = Vec::new();
        state.loads = Vec::new();
        state.grown = Vec::new();
        let Some(slot) = slot else { return };
        self.release_locks(state, slot.word());
        slot.stamped();
    }

    fn release_locks(&self, state: &mut TxnState, word: StartWord) {
        for store in state.stores.drain(..) {
            store.release(word);
        }
        self.db.release_ddl(word);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.rollback();
    }
}

/// Turns everything from the given positions on into nothing.
fn undo(state: &mut TxnState, written: usize, entries: usize, loads: usize, grown: usize) {
    for load in &state.loads[loads..] {
        if let Some(range) = load.store.lineage.range(load.range) {
            forget_loaded(&load.store, &range);
        }
    }
    for written in state.written.drain(written..) {
        written.stamp(StartWord::ABORTED);
    }
    for (key, hash, row) in state.entries.drain(entries..) {
        key.index.remove(hash, row);
    }
    for load in state.loads.drain(loads..) {
        load.file.doom();
    }
    for (store, schema) in state.grown.drain(grown..).rev() {
        store.lineage.take_back_schema(schema);
    }
}

fn ended() -> Error {
    Error::invalid(
        SqlState::NO_ACTIVE_SQL_TRANSACTION,
        "the transaction has already been committed or rolled back",
    )
}

/// A definition that JSON cannot carry (a NaN default of an added column) would make the database
/// unreadable: refuse it now.
fn check_storable(catalog: &Catalog) -> Result<()> {
    let json = to_json(catalog)?;
    match serde_json::from_slice::<Catalog>(&json) {
        Ok(back) if back == *catalog => Ok(()),
        _ => Err(Error::unsupported(
            "the definition has a value that the catalog cannot store (NaN or infinity)",
        )),
    }
}

#[cfg(test)]
mod tests;
