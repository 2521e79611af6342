//! The database: what transactions, maintenance and recovery share.
//!
//! Lock order: `checkpoint` → `ddl` (only to look) → the locks of tables, log and manifest; see
//! `catalog_versions` for its place below the log.

use crate::backpressure::Backpressure;
use crate::catalog::{Catalog, HistoryPolicy, TableDef};
use crate::catalog_versions::{CatalogVersions, too_old};
use crate::commit_watch::CommitWatches;
use crate::identity::Identities;
use crate::load_memory::LoadMemory;
use crate::maintenance::pacing::Pacing;
use crate::maintenance::reserve::Reserve;
use crate::maintenance::set_aside::SetAside;
use crate::manifest_state::ManifestState;
use crate::merge_schedule::MergeSchedule;
use crate::open_readers::OpenReaders;
use crate::recovery_report::RecoveryReport;
use crate::retention::Retention;
use crate::settings::{Settings, TxnOptions};
use crate::store::{Store, Waiting};
use crate::transaction::Transaction;
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use strandline_base::{Clock, ColumnId, CommitTs, Error, ErrorKind, Result, SqlState, StorageId};
use strandline_device::{Device, FailStopDevice};
use strandline_storage::manifest::Manifest;
use strandline_storage::wal::{Lsn, Wal};
use strandline_table::lineage::Shared;
use strandline_table::range::Range;
use strandline_tail::schema::StorageSchema;
use strandline_txn::{Looks, StartWord, TxnManager};

/// A database.
pub struct Db {
    pub(crate) device: Arc<FailStopDevice>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    pub(crate) shared: Shared,
    pub(crate) wal: Arc<Wal>,
    pub(crate) manifest: Manifest,
    /// what the manifest says; locked during a checkpoint
    pub(crate) checkpoint: Mutex<ManifestState>,
    pub(crate) catalogs: CatalogVersions,
    pub(crate) stores: RwLock<BTreeMap<StorageId, Arc<Store>>>,
    pub(crate) identities: Identities,
    pub(crate) commit_watches: CommitWatches,
    /// held (shared) by commits of bulk loads until they have stamped the ranges
    pub(crate) completing: RwLock<()>,
    pub(crate) ddl: Mutex<Option<StartWord>>,
    /// end of the newest commit that has finished
    pub(crate) finished_lsn: AtomicU64,
    pub(crate) retention: Retention,
    pub(crate) counters: Counters,
    pub(crate) recovery: RecoveryReport,
    pub(crate) maintenance: Arc<Maintenance>,
    pub(crate) merge_schedule: MergeSchedule,
    pub(crate) set_aside: SetAside,
    pub(crate) pacing: Pacing,
    pub(crate) reserve: Reserve,
    pub(crate) backpressure: Backpressure,
    pub(crate) open_readers: Arc<OpenReaders>,
    pub(crate) load_memory: Arc<LoadMemory>,
    /// held while the database is open
    pub(crate) lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

/// Wakes the maintenance thread and those who wait for it.
#[derive(Default)]
pub(crate) struct Maintenance {
    pub(crate) state: Mutex<MaintenanceState>,
    pub(crate) work: Condvar,
    pub(crate) done: Condvar,
    /// bytes logged since the last checkpoint
    pub(crate) logged_bytes: AtomicU64,
    pub(crate) closed: AtomicBool,
}

#[derive(Default)]
pub(crate) struct MaintenanceState {
    pub(crate) wanted: bool,
    pub(crate) rounds: u64,
    pub(crate) failure: Option<Error>,
    /// nothing is tried before a pause is over, whoever asks
    pub(crate) is_pausing: bool,
    /// the thread has ended
    pub(crate) has_stopped: bool,
    pub(crate) thread: Option<std::thread::JoinHandle<()>>,
    /// the thread that writes the log
    pub(crate) log_writer: Option<std::thread::JoinHandle<()>>,
}

/// Counters since the database was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) commits: AtomicU64,
    pub(crate) rollbacks: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) checkpoint_micros: AtomicU64,
    pub(crate) merged_ranges: AtomicU64,
    pub(crate) run_records: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

/// What a change of the catalog did to storages before its commit.
#[derive(Default)]
pub(crate) struct Adopted {
    /// new storages
    pub(crate) created: Vec<Arc<Store>>,
    /// storages that got columns, with their schemas before
    pub(crate) grown: Vec<(Arc<Store>, Arc<StorageSchema>)>,
}

impl Db {
    /// The settings it was opened with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
    /// What opening it took.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }
    /// The wall clock in microseconds since the epoch: what users are shown. It may jump.
    pub fn now_us(&self) -> u64 {
        self.clock.now_us()
    }
    /// The clock for durations, in microseconds: see [`Clock::elapsed_us`].
    pub fn elapsed_us(&self) -> u64 {
        self.clock.elapsed_us()
    }
    /// The moment `ago` before now, whatever the wall clock did: later commits are younger. Right
    /// after the wall clock has jumped forward it says a later moment.
    pub fn moment_ago(&self, ago: Duration) -> CommitTs {
        let us = u64::try_from(ago.as_micros()).unwrap_or(u64::MAX);
        let by_wall = self.now_us().saturating_sub(us);
        self.retention.ago(us, self.stable()).max(CommitTs(by_wall))
    }
    /// From which moment on a policy keeps versions, for all policies at one look at the clocks.
    pub(crate) fn history_begins(&self) -> impl Fn(HistoryPolicy) -> CommitTs {
        let map = self.retention.map(self.stable());
        move |policy| map.begin_of(policy)
    }
    /// Everything up to it is committed and visible.
    pub fn stable(&self) -> CommitTs {
        self.txns().stable()
    }
    /// The newest committed catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        loop {
            // What is valid now is pruned only when stable has gone on.
            if let Ok(catalog) = self.catalogs.at(self.stable()) {
                return catalog;
            }
        }
    }
    /// Whether `catalog` is the newest one, committed or about to be.
    pub fn goes_by(&self, catalog: &Arc<Catalog>) -> bool {
        self.catalogs.is_last(catalog)
    }
    /// The catalog as of `ts`.
    pub fn catalog_at(&self, ts: CommitTs) -> Result<Arc<Catalog>> {
        self.catalogs.at(ts)
    }
    /// Starts a transaction.
    pub fn begin(self: &Arc<Self>, options: TxnOptions) -> Result<Arc<Transaction>> {
        if self.maintenance.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        Transaction::new(self.clone(), options)
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.shared.device
    }
    pub(crate) fn txns(&self) -> &Arc<TxnManager> {
        &self.shared.txns
    }
    pub(crate) fn wal(&self) -> &Wal {
        &self.wal
    }
    /// The error that makes the database refuse all further writes: of the log, or of the manifest,
    /// which the log has been closed with.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.wal.check_usable()?;
        self.device.check_usable()
    }

    /// The storage `id`.
    pub(crate) fn store(&self, id: StorageId) -> Result<Arc<Store>> {
        self.stores
            .read()
            .get(&id)
            .cloned()
            .ok_or_else(|| Error::internal(format!("storage {id} is not there")))
    }

    /// Brings the storages into being that `catalog` names and `before` does not, held by `word`,
    /// columns that were added, and indexes over keys that were added.
    pub(crate) fn adopt_storages(
        &self,
        before: &Catalog,
        catalog: &Catalog,
        word: StartWord,
        adopted: &mut Adopted,
    ) -> Result<()> {
        let known: BTreeSet<StorageId> = before.tables.values().map(|t| t.storage).collect();
        for table in catalog.tables.values() {
            let is_same = |old: &Arc<TableDef>| Arc::ptr_eq(old, table) || old == table;
            if before.tables.get(&table.id).is_some_and(is_same) {
                continue;
            }
            if known.contains(&table.storage) {
                let store = self.store(table.storage)?;
                let schema = store.lineage.schema();
                if schema.len() < table.next_column as usize {
                    let grown = crate::store::storage_schema(table, Some(&schema));
                    store.lineage.set_schema(grown);
                    adopted.grown.push((store.clone(), schema));
                }
                // An index over the same columns may be left of a constraint that was dropped or
                // rolled back, and does not know what was written since.
                let old = before.tables.get(&table.id).map_or(&[][..], |t| &t.keys);
                for key in &table.keys {
                    if !old.iter().any(|k| k.columns == key.columns) {
                        crate::key_build::build_key(&store, &key.columns, word)?;
                    }
                }
            } else {
                // A number that a rolled-back transaction had used may come again.
                let store = Store::new(table, None, &self.shared, Some(word));
                self.stores.write().insert(table.storage, store.clone());
                adopted.created.push(store);
            }
        }
        Ok(())
    }

    /// Takes the right to change the catalog until the transaction of `word` ends.
    pub(crate) fn lock_ddl(&self, word: StartWord, waiting: &Waiting<'_>) -> Result<()> {
        let mut looks = Looks::default();
        loop {
            let holder = {
                let mut ddl = self.ddl.lock();
                match *ddl {
                    Some(holder) if holder != word => holder,
                    _ => {
                        *ddl = Some(word);
                        return Ok(());
                    }
                }
            };
            let is_in_the_way = || *self.ddl.lock() == Some(holder);
            waiting.wait_for_release(word, holder, &is_in_the_way, &mut looks)?;
        }
    }
    pub(crate) fn release_ddl(&self, word: StartWord) {
        let mut ddl = self.ddl.lock();
        if *ddl == Some(word) {
            *ddl = None;
        }
    }

    /// The next value of an identity column. Not transactional: a rollback leaves a gap.
    pub fn next_identity(&self, table: &TableDef, column: ColumnId) -> Result<i64> {
        self.identities.next(table, column)
    }

    /// From when on versions of `table` are kept.
    pub(crate) fn horizon(&self, table: &TableDef, store: &Store) -> CommitTs {
        let from = self.history_begins()(table.history);
        from.min(self.txns().oldest_snapshot())
            .max(store.kept_from())
    }

    /// 72000 if `ts` is older than what is kept of `table`. The caller has registered a snapshot
    /// at `ts`: what is still kept now is kept for it.
    pub(crate) fn check_retained(&self, table: &TableDef, ts: CommitTs) -> Result<()> {
        let policy = self.history_begins()(table.history).min(self.stable());
        // The policy may have been shorter, or the wall clock ahead.
        let Ok(store) = self.store(table.storage) else {
            return Err(too_old(ts, None)); // dropped, and forgotten
        };
        let from = policy.max(store.kept_from());
        if ts >= from {
            return Ok(());
        }
        Err(too_old(ts, Some(from)).with_hint(format!(
            "The table's retention decides: ALTER TABLE {} SET (history = 'forever') keeps \
             everything from then on.",
            table.name
        )))
    }

    pub(crate) fn note_commit(&self, end: Lsn, bytes: usize) {
        self.finished_lsn.fetch_max(end.0, Ordering::AcqRel);
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        let bytes = bytes as u64;
        let logged = self
            .maintenance
            .logged_bytes
            .fetch_add(bytes, Ordering::Relaxed)
            + bytes;
        if logged >= self.settings.checkpoint_wal_bytes {
            self.want_maintenance();
        }
    }
    pub(crate) fn note_abort(&self) {
        self.counters.rollbacks.fetch_add(1, Ordering::Relaxed);
    }

    /// Entries of all key indexes.
    fn key_entries(&self) -> u64 {
        let stores = self.stores.read();
        let keys = stores.values().flat_map(|store| store.keys().to_vec());
        keys.map(|key| key.index.len() as u64).sum()
    }

    /// Bytes of all key indexes, which are taken from the cache's share.
    fn key_bytes(&self) -> u64 {
        self.shared.cache.taken_bytes().load(Ordering::Relaxed) as u64
    }

    /// Counters since open, and how much there is at the moment.
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        let counters = self.detailed_counters().into_iter();
        counters.map(|(name, value, _)| (name, value)).collect()
    }

    /// The same, each with what it is about, a line each; most have nothing to say.
    pub fn detailed_counters(&self) -> Vec<(&'static str, u64, String)> {
        let plain = self.plain_counters().into_iter();
        let plain = plain.map(|(name, value)| (name, value, String::new()));
        plain.chain(self.maintenance_counters()).collect()
    }

    fn plain_counters(&self) -> Vec<(&'static str, u64)> {
        let c = &self.counters;
        let get = |a: &AtomicU64| a.load(Ordering::Relaxed);
        let (writer_pauses, writer_pause_micros) = self.backpressure.paused();
        vec![
            ("commits", get(&c.commits)),
            ("rollbacks", get(&c.rollbacks)),
            ("checkpoints", get(&c.checkpoints)),
            ("checkpoint_micros", get(&c.checkpoint_micros)),
            ("merged_ranges", get(&c.merged_ranges)),
            ("run_records", get(&c.run_records)),
            ("bytes_written", get(&c.bytes_written)),
            ("cache_misses", self.shared.cache.misses()),
            ("cache_bytes", self.shared.cache.used_bytes() as u64),
            ("tail_bytes", self.shared.page_bytes.used() as u64),
            ("spare_tail_bytes", self.shared.page_bytes.spare() as u64),
            ("log_buffer_bytes", self.wal.memory_bytes() as u64),
            ("load_bytes", self.load_memory.used() as u64),
            ("load_bytes_max", self.load_memory.most() as u64),
            ("writer_pauses", writer_pauses),
            ("writer_pause_micros", writer_pause_micros),
            ("log_bytes", self.wal.end_lsn().0),
            ("log_syncs", self.wal.syncs()),
            ("key_entries", self.key_entries()),
            ("key_bytes", self.key_bytes()),
            ("pending_records", self.pending_records()),
            ("run_bytes", self.run_bytes()),
            ("recovery_micros", self.recovery.micros),
            ("clock_jumps", self.retention.jumps()),
            (
                "clock_behind_us",
                self.stable().0.saturating_sub(self.now_us()),
            ),
        ]
    }

    /// Records of all tails that no merge has folded into base yet.
    fn pending_records(&self) -> u64 {
        let stores: Vec<Arc<Store>> = self.stores.read().values().cloned().collect();
        let ranges = stores.iter().flat_map(|s| s.lineage.ranges());
        let pending = |range: Arc<Range>| -> u64 {
            let version = range.load_full();
            let tails = version.tails.iter().flatten();
            tails.map(|tail| u64::from(tail.pending())).sum()
        };
        ranges.map(pending).sum()
    }

    /// Bytes of update runs: pending records that a checkpoint has written, and history.
    fn run_bytes(&self) -> u64 {
        let stores = self.stores.read();
        let runs = stores.values().flat_map(|s| s.lineage.runs().to_vec());
        runs.map(|run| run.bytes()).sum()
    }
}

pub(crate) fn closed() -> Error {
    Error::new(
        ErrorKind::Closed,
        SqlState::ADMIN_SHUTDOWN,
        "the database is closed",
    )
}
