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

use crate::catalog::{Catalog, TableDef};
use crate::db::{Adopted, Db};
use crate::key_build::forget_loaded;
use crate::manifest_state::to_json;
use crate::read_set::{ReadSet, ScanRead};
use crate::redo;
use crate::scan::ScanRequest;
use crate::settings::{ConflictPolicy, TxnOptions};
use crate::statement::{Statement, column_of};
use crate::store::{KeyColumns, Store, Waiting};
use crate::validation::Validation;
use glance::Glance;
use parking_lot::{Mutex, RwLockReadGuard};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strandline_base::{
    ColumnId, CommitTs, Error, ErrorKind, RangeNo, Result, RowId, SqlState, Value,
};
use strandline_storage::wal::Lsn;
use strandline_table::data_file::DataFile;
use strandline_table::schema::StorageSchema;
use strandline_table::write::Written;
use strandline_txn::{
    Durability, Isolation, SnapshotGuard, StartWord, TxnSlot, TxnStatus, Visibility,
};

mod glance;

/// A transaction. Shared by the plan nodes of its statements; one statement at a time writes.
/// Dropping the last reference without commit rolls back.
pub struct Transaction {
    db: Arc<Db>,
    options: TxnOptions,
    pub(crate) state: Mutex<TxnState>,
    pub(crate) glance: Glance,
    /// what a serializable transaction has read
    reads: Option<Mutex<ReadSet>>,
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
    /// may hold the right to change the catalog
    locks_ddl: bool,
    /// the snapshot of the whole transaction, unless it is read committed
    snapshot: Option<SnapshotGuard>,
    /// the newest speculative snapshot: what it sees must be durable before this ends well
    depends_on: CommitTs,
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

    /// The transaction's word, or 0 if it has written nothing.
    pub(crate) fn own_word(&self) -> StartWord {
        self.slot.as_ref().map_or(StartWord(0), TxnSlot::word)
    }

    /// Whether it has a catalog of its own.
    pub(crate) fn has_changed_catalog(&self) -> bool {
        self.catalog_changed
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
            _ => Some(take_snapshot(&db, &options)?),
        };
        let catalog = match &snapshot {
            Some(snapshot) => db.catalog_at(snapshot.ts())?,
            // Each statement looks again.
            None => db.catalog(),
        };
        let reads = (options.isolation == Isolation::Serializable).then(Mutex::default);
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
            locks_ddl: false,
            snapshot,
            depends_on: CommitTs::ZERO,
            ended: false,
        };
        Ok(Arc::new(Self {
            db,
            options,
            state: Mutex::new(state),
            glance: Glance::new(),
            reads,
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
    /// Whether the next statement goes by `catalog`, as far as is known now.
    pub fn goes_by(&self, catalog: &Arc<Catalog>) -> bool {
        let state = self.state.lock();
        if state.snapshot.is_some() || state.catalog_changed {
            return Arc::ptr_eq(&state.catalog, catalog);
        }
        self.db.goes_by(catalog)
    }
    /// The catalog that the next statement goes by, as far as is known now.
    pub fn next_catalog(&self) -> Arc<Catalog> {
        let state = self.state.lock();
        if state.snapshot.is_some() || state.catalog_changed {
            return state.catalog.clone();
        }
        self.db.catalog()
    }
    /// The catalog this transaction sees, its own DDL included.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.state.lock().catalog.clone()
    }
    /// Whether the transaction has written anything.
    pub fn has_written(&self) -> bool {
        let state = self.state.lock();
        !state.written.is_empty() || state.has_changed_catalog()
    }

    pub(crate) fn has_changed_catalog(&self) -> bool {
        self.state.lock().has_changed_catalog()
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

    /// Waits for the transaction behind `holder`; a speculative one only until that is
    /// pre-committed. 40001 at once if this one never waits.
    pub(crate) fn wait_for(&self, holder: StartWord) -> Result<()> {
        let word = self.word()?;
        if self.options.conflicts == ConflictPolicy::Abort {
            return Err(never_waits());
        }
        let txns = self.db.txns();
        let speculative = self.options.speculative;
        let in_the_way = || !speculative || txns.status(holder) == TxnStatus::InProgress;
        self.waiting(&|| self.is_cancelled())
            .wait_while(word, holder, &in_the_way)
    }

    /// What a new statement would see under read committed.
    pub(crate) fn newest_moment(&self) -> CommitTs {
        if !self.options.speculative {
            return self.db.stable();
        }
        let newest = self.db.txns().queued();
        self.depend_on(&mut self.state.lock(), newest);
        newest
    }

    fn depend_on(&self, state: &mut TxnState, moment: CommitTs) {
        if moment > self.db.stable() {
            state.depends_on = state.depends_on.max(moment);
        }
    }

    /// Notes that a serializable transaction has looked up a key.
    pub(crate) fn note_key(
        &self,
        table: &TableDef,
        store: &Arc<Store>,
        columns: &[ColumnId],
        values: &[Value],
    ) {
        if let Some(reads) = &self.reads {
            reads.lock().note_key(table.id, store, columns, values);
        }
    }

    /// Notes that a serializable transaction scans a table, or all versions of its rows.
    pub(crate) fn note_scan(
        &self,
        table: &TableDef,
        request: &ScanRequest,
        every_version: bool,
    ) -> Result<()> {
        let Some(reads) = &self.reads else {
            return Ok(());
        };
        let filters = request.filters.iter().filter(|filter| filter.is_fixed());
        let filters: Vec<_> = filters.cloned().collect();
        let mut columns = request.columns.clone();
        columns.extend(filters.iter().flat_map(|filter| filter.columns()));
        columns.extend(request.prune.iter().map(|bound| bound.column));
        columns.sort_unstable();
        columns.dedup();
        let typed = |id| Ok((id, column_of(table, id)?.sql_type));
        let scan = ScanRead {
            table: table.id,
            store: self.db.store(table.storage)?,
            columns: columns.into_iter().map(typed).collect::<Result<_>>()?,
            bounds: request.prune.clone(),
            filters,
            every_version,
        };
        reads.lock().scans.push(scan);
        Ok(())
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
        self.glance.set_own(word);
        Ok(word)
    }

    /// Registers as a writer of `store`, waiting for a definition change of its table to finish.
    pub(crate) fn lock_store(&self, store: &Arc<Store>) -> Result<StartWord> {
        if let Some(word) = self.glance.registered(store) {
            return Ok(word);
        }
        let word = self.word()?;
        let is_held = |held: &Arc<Store>| Arc::ptr_eq(held, store);
        if !self.state.lock().stores.iter().any(is_held) {
            store.lock_shared(word, &self.waiting(&|| self.is_cancelled()))?;
            self.state.lock().stores.push(store.clone());
        }
        self.glance.set_registered(store);
        Ok(word)
    }

    /// Edits the transaction's catalog. Waits for other DDL; then, for every table whose
    /// definition changes, for that table's writers. New storages come into being empty.
    /// Duplicate names are the editor's business.
    pub fn change_catalog(&self, edit: &mut dyn FnMut(&mut Catalog) -> Result<()>) -> Result<()> {
        let word = self.word()?;
        let cancelled = || self.is_cancelled();
        let waiting = self.waiting(&cancelled);
        self.state.lock().locks_ddl = true;
        self.db.lock_ddl(word, &waiting)?;
        let before = self.ddl_base()?;
        let mut catalog = Catalog::clone(&before);
        edit(&mut catalog)?;
        catalog.forget_dropped();
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
        self.glance.set_plain(false);
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
            None => take_snapshot(&self.db, &self.options)?,
        };
        if self.options.speculative {
            self.depend_on(&mut state, snapshot.ts());
        }
        if state.snapshot.is_none() && !state.catalog_changed {
            state.catalog = self.db.catalog_at(snapshot.ts())?;
        }
        let own = state.own_word();
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
        self.glance.set_plain(!state.catalog_changed);
        Ok(())
    }

    /// Returns the commit timestamp once the stable timestamp has passed it (if nothing was
    /// written: the stable timestamp).
    pub fn commit(&self) -> Result<CommitTs> {
        let mut state = self.state.lock();
        state.check_open()?;
        let has_changes = state.redo.len() > redo::HEADER_BYTES || state.catalog_changed;
        let Some(slot) = state.slot.take_if(|_| has_changes) else {
            return self.commit_nothing(&mut state);
        };
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

    /// Commits a transaction that has changed nothing, or has taken everything back.
    fn commit_nothing(&self, state: &mut TxnState) -> Result<CommitTs> {
        let settled = self.settle_dependencies(state);
        let slot = state.slot.take();
        if let Some(slot) = &slot {
            slot.abort();
        }
        // Row locks end.
        undo(state, 0, 0, 0, 0);
        self.finish(state, slot);
        settled.map(|()| self.db.stable())
    }

    /// Waits until all that speculative snapshots of this transaction have seen is durable.
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
        // Stable may have passed one that was aborted.
        wal.check_usable().map_err(failed)
    }

    fn append(&self, state: &mut TxnState, slot: &TxnSlot) -> Result<Appended<'_>> {
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
        // What depends on a commit that is not durable yet must not finish without it.
        let depends = state.depends_on > self.db.stable();
        let durability = match self.options.synchronous_commit || depends {
            true => Durability::Logged,
            false => Durability::Relaxed,
        };
        let catalog = state.catalog_changed.then(|| state.catalog.clone());
        let mut ts = CommitTs::ZERO;
        let mut record = std::mem::take(&mut state.redo);
        let appended = self.db.identities.log_with(&mut record, |record| {
            self.db.wal().append(record, &mut |bytes, end| {
                if let Some(validation) = &validation {
                    validation.finish()?;
                }
                ts = txns.tick();
                redo::set_commit_ts(bytes, ts);
                if let Some(catalog) = &catalog {
                    // No snapshot at or after `ts` begins before it is queued and finished.
                    self.db.catalogs.add(ts, catalog.clone());
                }
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

    fn complete(
        &self,
        state: &mut TxnState,
        slot: TxnSlot,
        appended: Appended<'_>,
    ) -> Result<CommitTs> {
        let (ts, end) = (appended.ts, appended.end);
        let txns = self.db.txns();
        slot.announce();
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
                self.glance.end();
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
        self.glance.end();
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
        if std::mem::take(&mut state.locks_ddl) {
            self.db.release_ddl(word);
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.rollback();
    }
}

fn take_snapshot(db: &Arc<Db>, options: &TxnOptions) -> Result<SnapshotGuard> {
    match options.speculative {
        true => Ok(db.txns().speculative_snapshot()),
        false => db.txns().snapshot(None),
    }
}

fn never_waits() -> Error {
    Error::new(
        ErrorKind::Conflict,
        SqlState::SERIALIZATION_FAILURE,
        "could not serialize access: another transaction has an uncommitted change or lock in the \
         way",
    )
    .with_hint("Retry the transaction, or let it wait: SET strandline.conflict_policy = 'wait'.")
}

/// Turns everything from the given positions on into nothing.
fn undo(state: &mut TxnState, written: usize, entries: usize, loads: usize, grown: usize) {
    for load in &state.loads[loads..] {
        if let Some(range) = load.store.lineage.range(load.range) {
            forget_loaded(&load.store, range);
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
