//! Transactions: begin, savepoints, catalog changes, commit and rollback. Statements are in the
//! room above this one.
//!
//! Invariants:
//! 1. A transaction's records have its word until they are stamped, after the outcome is fixed.
//! 2. Locks on storages and the catalog end only after the outcome is visible to all transactions.
//! 3. A statement uses the catalog that is valid at its snapshot, or the transaction's own if it
//!    has changed it; see `catalog::versions`.
//! 4. After a failed append the transaction is rolled back. After a failed wait for durability its
//!    outcome is unknown until the database is opened again, and the log refuses all further
//!    records.
//!
//! Lock order: `state` of the transaction → log → catalog versions → commit queue. `state` is
//! unlocked during waits for other transactions.

use crate::catalog::Catalog;
use crate::db::{Db, closed};
use crate::redo;
use crate::settings::{ConflictPolicy, TxnOptions};
use crate::store::entered_keys::EnteredKeys;
use crate::store::{Hold, Store, Waiting};
use adjustable::Adjustable;
use footprint::Footprint;
use hints::TxnHints;
use rare_work::{RareMark, RareWork};
use read_set::ReadSet;
use release::Undone;
use savepoint::{HeldStore, take_back_keys, undo};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use strandline_base::sync::Mutex;
use strandline_base::{CommitTs, Error, ErrorKind, Result, SqlState, TableId};
use strandline_tail::change::PendingStamp;
use strandline_txn::{
    Isolation, Looks, SnapshotGuard, StartWord, TxnSlot, TxnStatus, Visibility, lock_timeout,
};

mod adjustable;
pub(crate) mod backpressure;
mod commit;
pub(crate) mod deferred;
mod definitions;
mod footprint;
mod hints;
pub(crate) mod index_build;
mod index_method;
mod index_move;
mod lists;
mod rare_work;
mod read_set;
mod release;
mod savepoint;
mod validation;

pub(crate) use rare_work::Load;
pub use savepoint::Savepoint;

/// The maximum number of statements of one transaction. A larger number is left for a reader of all
/// of its transaction's own records.
const STATEMENTS_MAX: u32 = u32::MAX - 1;

/// A transaction. Shared by the plan nodes of its statements; one statement at a time writes.
/// Dropping the last reference without commit rolls back.
pub struct Transaction {
    db: Arc<Db>,
    options: TxnOptions,
    adjustable: Adjustable,
    pub(crate) state: Mutex<TxnState>,
    pub(crate) hints: TxnHints,
    /// bytes written since the writer last paid for them, see `backpressure`
    pub(crate) unpaid: AtomicUsize,
    /// the reads of a serializable transaction
    reads: Option<Mutex<ReadSet>>,
}

/// The changes of a transaction so far.
pub(crate) struct TxnState {
    /// claimed by the first write
    slot: Option<TxnSlot>,
    pub(crate) statement: u32,
    /// the log record under construction
    pub(crate) redo: Vec<u8>,
    pub(crate) written: Vec<PendingStamp>,
    pub(crate) footprint: Footprint,
    /// index entries of rows that this transaction inserted, without bulk-loaded rows
    pub(crate) entries: EnteredKeys,
    /// storages this transaction is registered with
    stores: Vec<HeldStore>,
    /// None: no such work, as in most transactions
    rare: Option<Box<RareWork>>,
    catalog: Arc<Catalog>,
    catalog_changed: bool,
    /// may hold the right to change the catalog
    locks_ddl: bool,
    /// the snapshot of the whole transaction; None under read committed
    snapshot: Option<SnapshotGuard>,
    /// the newest speculative snapshot: this transaction may succeed only after its commits are
    /// durable
    depends_on: CommitTs,
    /// the commit is queued in the log's order; only the log determines its outcome now
    is_queued: bool,
    ended: bool,
}

impl TxnState {
    /// 25P01 if the transaction has ended, since later records would never be stamped.
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.ended {
            return Err(ended());
        }
        Ok(())
    }

    /// Counts up for a statement that begins; 54000 if there is no number left.
    pub(crate) fn count_statement(&mut self) -> Result<()> {
        if self.statement == STATEMENTS_MAX {
            return Err(Error::new(
                ErrorKind::Unavailable,
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("a transaction cannot have more than {STATEMENTS_MAX} statements"),
            )
            .with_hint("Commit in smaller steps."));
        }
        self.statement += 1;
        Ok(())
    }

    /// The transaction's word, or 0 if it has written nothing.
    pub(crate) fn own_word(&self) -> StartWord {
        self.slot.as_ref().map_or(StartWord(0), TxnSlot::word)
    }

    /// Adds a hold on a storage, once.
    fn hold(&mut self, store: Arc<Store>, hold: Hold) {
        let is_same = |held: &HeldStore| held.hold == hold && Arc::ptr_eq(&held.store, &store);
        if !self.stores.iter().any(is_same) {
            self.stores.push(HeldStore { store, hold });
        }
    }

    /// Whether the transaction has its own catalog.
    pub(crate) fn has_changed_catalog(&self) -> bool {
        self.catalog_changed
    }
}

impl Db {
    /// Starts a transaction. In a database that was opened to look at it, it is read-only.
    pub fn begin(self: &Arc<Self>, options: TxnOptions) -> Result<Arc<Transaction>> {
        let read_only = options.read_only || self.settings.only_looks;
        self.begin_own(TxnOptions {
            read_only,
            ..options
        })
    }

    /// Starts a transaction of the opening itself.
    pub(crate) fn begin_own(self: &Arc<Self>, options: TxnOptions) -> Result<Arc<Transaction>> {
        if self.maintenance.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        Transaction::new(self.clone(), options)
    }
}

impl Transaction {
    fn new(db: Arc<Db>, options: TxnOptions) -> Result<Arc<Self>> {
        let snapshot = match options.isolation {
            Isolation::ReadCommitted => None,
            _ => Some(take_snapshot(&db, &options)?),
        };
        let catalog = match &snapshot {
            Some(snapshot) => db.catalog_at(snapshot.ts())?,
            // Each statement takes the catalog again.
            None => db.catalog(),
        };
        let reads = (options.isolation == Isolation::Serializable).then(Mutex::default);
        let state = TxnState {
            slot: None,
            statement: 0,
            redo: Vec::new(),
            written: Vec::new(),
            footprint: Footprint::default(),
            entries: EnteredKeys::default(),
            stores: Vec::new(),
            rare: None,
            catalog,
            catalog_changed: false,
            locks_ddl: false,
            snapshot,
            depends_on: CommitTs::ZERO,
            is_queued: false,
            ended: false,
        };
        Ok(Arc::new(Self {
            db,
            adjustable: Adjustable::of(&options),
            options,
            state: Mutex::new(state),
            hints: TxnHints::new(),
            unpaid: AtomicUsize::new(0),
            reads,
        }))
    }

    /// The database.
    pub fn db(&self) -> &Arc<Db> {
        &self.db
    }
    /// The options with which it began; some may have been [adjusted](Transaction::adjust) since.
    pub fn options(&self) -> &TxnOptions {
        &self.options
    }
    /// Whether the next statement will use `catalog`, as far as is known now.
    pub fn uses_catalog(&self, catalog: &Arc<Catalog>) -> bool {
        let state = self.state.lock();
        if state.snapshot.is_some() || state.catalog_changed {
            return Arc::ptr_eq(&state.catalog, catalog);
        }
        self.db.uses_catalog(catalog)
    }
    /// The catalog that the next statement would use if it began now.
    pub fn next_catalog(&self) -> Arc<Catalog> {
        let state = self.state.lock();
        if state.snapshot.is_some() || state.catalog_changed {
            return state.catalog.clone();
        }
        self.db.catalog()
    }
    /// The catalog that this transaction sees, including its own DDL.
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
            return Err(strandline_txn::query_cancelled());
        }
        Ok(())
    }

    /// Waits for the transaction with the word `holder` to end; a speculative transaction waits
    /// only until that one is pre-committed. 40001 at once if this transaction never waits. It may
    /// also return when the holder has released the wanted lock. The caller therefore calls it in a
    /// loop, with the same `looks`, and checks each time.
    pub(crate) fn wait_for(&self, holder: StartWord, looks: &mut Looks) -> Result<()> {
        let word = self.word()?;
        if self.conflicts() == ConflictPolicy::Abort {
            return Err(never_waits());
        }
        let txns = self.db.txns();
        let speculative = self.options.speculative;
        let in_the_way = || !speculative || txns.status(holder) == TxnStatus::InProgress;
        self.waiting(&|| self.is_cancelled())
            .wait_while(word, holder, &in_the_way, looks)
    }

    /// Called when a latch that a write needs is held for unusually long. Returns an error if the
    /// statement is cancelled (57014), or if it has waited for `lock_timeout` (55P03). The wait
    /// counts from `busy_since` (by [`Db::elapsed_us`]), which the first call sets.
    #[cold]
    pub(crate) fn wait_for_latch(&self, busy_since: &mut Option<u64>) -> Result<()> {
        self.check_cancelled()?;
        let now = self.db.elapsed_us();
        let since = *busy_since.get_or_insert(now);
        let waited = Duration::from_micros(now.saturating_sub(since));
        match self.lock_timeout() {
            Some(timeout) if waited >= timeout => Err(lock_timeout(timeout)),
            _ => Ok(()),
        }
    }

    /// The timestamp of the transaction's snapshot; None: each statement has its own.
    pub(crate) fn fixed_snapshot(&self) -> Option<CommitTs> {
        let state = self.state.lock();
        state.snapshot.as_ref().map(SnapshotGuard::ts)
    }

    /// The timestamp of a new statement's snapshot under read committed.
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

    fn waiting<'a>(&'a self, cancelled: &'a dyn Fn() -> bool) -> Waiting<'a> {
        Waiting {
            txns: self.db.txns(),
            timeout: self.lock_timeout(),
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
        self.hints.set_own(word);
        Ok(word)
    }

    /// Registers as a writer of `store`. Waits for a running change of its table's definition.
    pub(crate) fn lock_store(&self, store: &Arc<Store>) -> Result<StartWord> {
        if let Some(word) = self.hints.registered(store) {
            return Ok(word);
        }
        let word = self.word()?;
        let is_held = |held: &HeldStore| Arc::ptr_eq(&held.store, store);
        if !self.state.lock().stores.iter().any(is_held) {
            store.lock_shared(word, &self.waiting(&|| self.is_cancelled()))?;
            self.state.lock().stores.push(HeldStore {
                store: store.clone(),
                hold: Hold::Writer,
            });
        }
        self.hints.set_registered(store);
        Ok(word)
    }

    /// The snapshot and the visibility of a new statement, which gets a number. Under read
    /// committed the snapshot is new.
    pub(crate) fn open_statement(&self) -> Result<(SnapshotGuard, Visibility)> {
        let mut state = self.state.lock();
        state.check_open()?;
        state.count_statement()?;
        let snapshot = match &state.snapshot {
            Some(snapshot) => snapshot.clone(),
            // The snapshot ends with the statement, so an idle transaction does not keep merges
            // from dropping versions.
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
        Ok((snapshot, visibility))
    }

    /// Ends a transaction that has no slot: it holds no lock and has nothing to undo.
    fn end_unwritten(&self, state: &mut TxnState) {
        debug_assert!(state.written.is_empty() && state.entries.is_empty());
        debug_assert!(state.rare.as_ref().is_none_or(|rare| rare.is_undone()));
        debug_assert!(state.stores.is_empty() && !state.locks_ddl && !state.catalog_changed);
        state.ended = true;
        self.hints.end();
        state.snapshot = None;
        self.forget_reads();
    }

    fn forget_reads(&self) {
        if let Some(reads) = &self.reads {
            *reads.lock() = ReadSet::default();
        }
    }

    /// Undoes all changes and ends the transaction; the memory of its records is to be released
    /// once `state` is unlocked.
    fn abort(&self, state: &mut TxnState, slot: Option<TxnSlot>) -> Undone {
        let undone = Undone::of(state, 0, 0);
        take_back_keys(state, 0, &RareMark::START);
        if let Some(slot) = &slot {
            slot.abort();
        }
        if undo(state, 0, &RareMark::START) {
            self.db.give_up_lost_files();
        }
        if state.catalog_changed {
            self.forget_created_identities();
        }
        self.finish(state, slot);
        undone
    }

    /// The next transaction that creates a table gets the number of one that this transaction has
    /// created. No other creates one before this one has ended.
    #[cold]
    fn forget_created_identities(&self) {
        if let Ok(newest) = self.db.catalogs.at(CommitTs::MAX) {
            let is_older = |table: TableId| table.0 < newest.next_table;
            self.db.identities.retain(is_older);
        }
    }

    /// Undoes all changes and ends the transaction.
    pub fn rollback(&self) {
        let mut state = self.state.lock();
        if state.ended {
            return;
        }
        if state.is_queued {
            return self.leave_undecided(&mut state); // its commit panicked
        }
        let slot = state.slot.take();
        let undone = self.abort(&mut state, slot);
        // The owner may keep the transaction for long before it is dropped, so free its lists.
        state.redo = Vec::new();
        self.db.note_abort();
        drop(state);
        self.release(&undone);
    }

    /// Ends a transaction whose commit is queued and not finished. Its records keep its word, and
    /// its slot is never reused.
    fn leave_undecided(&self, state: &mut TxnState) {
        state.ended = true;
        state.footprint = Footprint::default();
        self.hints.end();
        self.release_locks(state, self.hints.own());
    }

    fn finish(&self, state: &mut TxnState, slot: Option<TxnSlot>) {
        state.ended = true;
        self.hints.end();
        state.snapshot = None;
        state.written = Vec::new();
        state.footprint = Footprint::default();
        state.entries = EnteredKeys::default();
        state.rare = None;
        self.forget_reads();
        // This is needed also if its commit panicked while it held the slot.
        self.release_locks(state, self.hints.own());
        if let Some(slot) = slot {
            slot.stamped();
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

fn ended() -> Error {
    Error::invalid(
        SqlState::NO_ACTIVE_SQL_TRANSACTION,
        "the transaction has already been committed or rolled back",
    )
}

#[cfg(test)]
mod end_tests;
#[cfg(test)]
mod tests;
