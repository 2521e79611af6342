//! The database: the state that transactions, maintenance and recovery share. Their procedures are
//! in their own rooms, as methods of [`Db`].
//!
//! Lock order: `checkpoint` → `ddl` (only to look) → the locks of tables, log and manifest. See
//! `catalog::versions` for its place below the log.

pub(crate) mod backpressure;
pub(crate) mod cache_steps;
pub(crate) mod caches;
pub(crate) mod commit_watch;
pub(crate) mod index_builds;
pub(crate) mod index_moves;
pub(crate) mod memory_account;
pub(crate) mod merge_schedule;
pub(crate) mod open_readers;
pub(crate) mod opened_entries;
pub(crate) mod pacing;
pub(crate) mod pauses;
mod recovery_report;
pub(crate) mod reserve;
pub(crate) mod set_aside;

use crate::catalog::identity::Identities;
use crate::catalog::retention::Retention;
use crate::catalog::versions::{CatalogVersions, too_old};
use crate::catalog::{Catalog, HistoryPolicy, TableDef};
use crate::index_files::IndexFiles;
use crate::manifest_state::ManifestState;
use crate::settings::Settings;
use crate::store::{Shared, Store};
use backpressure::Backpressure;
use caches::Caches;
use commit_watch::CommitWatches;
use index_builds::IndexBuilds;
pub use index_builds::{BuildPhase, BuildProgress};
use index_moves::IndexMoves;
use memory_account::MemoryAccount;
use merge_schedule::MergeSchedule;
use open_readers::OpenReaders;
use opened_entries::OpenedEntries;
use pacing::Pacing;
pub use recovery_report::RecoveryReport;
pub(crate) use recovery_report::Restored;
use reserve::Reserve;
use set_aside::SetAside;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use strandline_base::sync::{Condvar, Mutex, RwLock};
use strandline_base::{Clock, ColumnId, CommitTs, Error, ErrorKind, Result, SqlState, StorageId};
use strandline_device::{Device, FailStopDevice};
use strandline_storage::manifest::Manifest;
use strandline_storage::tiers::owner::Owner;
use strandline_storage::wal::{Lsn, Wal};
use strandline_txn::{StartWord, TxnManager};

/// A database.
pub struct Db {
    pub(crate) device: Arc<FailStopDevice>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    pub(crate) shared: Shared,
    pub(crate) wal: Arc<Wal>,
    pub(crate) manifest: Manifest,
    /// the state of the manifest; locked during a checkpoint
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
    /// the newest commit when the database was opened
    pub(crate) opened_through: CommitTs,
    /// number of log operations that recovery replayed, by the kind's name
    pub(crate) replayed: Vec<(&'static str, u64)>,
    pub(crate) maintenance: Arc<Maintenance>,
    pub(crate) merge_schedule: MergeSchedule,
    pub(crate) set_aside: SetAside,
    pub(crate) pacing: Pacing,
    pub(crate) reserve: Reserve,
    pub(crate) backpressure: Backpressure,
    pub(crate) open_readers: Arc<OpenReaders>,
    /// memory of bulk loads
    pub(crate) load_memory: Arc<MemoryAccount>,
    /// memory of merges
    pub(crate) merge_memory: Arc<MemoryAccount>,
    /// memory of the lists that transactions keep until they end
    pub(crate) list_memory: Arc<MemoryAccount>,
    pub(crate) index_builds: IndexBuilds,
    pub(crate) index_moves: IndexMoves,
    pub(crate) index_files: Arc<IndexFiles>,
    pub(crate) caches: Caches,
    /// of the objects, if the capacity tier is an object store
    pub(crate) owner: Option<Arc<Owner>>,
    /// held while the database is open
    pub(crate) lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

/// Wakes the maintenance thread and the threads that wait for it.
#[derive(Default)]
pub(crate) struct Maintenance {
    pub(crate) state: Mutex<MaintenanceState>,
    pub(crate) work: Condvar,
    pub(crate) done: Condvar,
    /// bytes logged since the last checkpoint
    pub(crate) logged_bytes: AtomicU64,
    pub(crate) closed: AtomicBool,
    pub(crate) opened_entries: OpenedEntries,
}

impl Maintenance {
    /// Asks the maintenance thread for a checkpoint soon.
    pub(crate) fn want(&self) {
        let mut state = self.state.lock();
        state.wanted = true;
        if !state.is_pausing {
            self.work.notify_all();
        }
    }
}

#[derive(Default)]
pub(crate) struct MaintenanceState {
    pub(crate) wanted: bool,
    pub(crate) rounds: u64,
    pub(crate) failure: Option<Error>,
    /// no attempt is made before the end of the pause, also on request
    pub(crate) is_pausing: bool,
    /// the thread has ended
    pub(crate) has_stopped: bool,
    pub(crate) thread: Option<std::thread::JoinHandle<()>>,
    /// the thread that writes the log
    pub(crate) log_writer: Option<std::thread::JoinHandle<()>>,
    /// the thread of indexes in levels
    pub(crate) level_steps: Option<std::thread::JoinHandle<()>>,
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
    pub(crate) compacted_files: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
}

impl Db {
    /// The settings with which the database was opened.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
    /// Work and duration of opening the database.
    pub fn recovery(&self) -> &RecoveryReport {
        &self.recovery
    }
    /// The wall clock in microseconds since the epoch, for display. It may jump.
    pub fn now_us(&self) -> u64 {
        self.clock.now_us()
    }
    /// The clock for durations, in microseconds: see [`Clock::elapsed_us`].
    pub fn elapsed_us(&self) -> u64 {
        self.clock.elapsed_us()
    }
    /// The moment `ago` before now in elapsed time, independent of steps of the wall clock; all
    /// commits since then are later. Right after the wall clock has jumped forward the result is a
    /// later moment.
    pub fn moment_ago(&self, ago: Duration) -> CommitTs {
        let us = u64::try_from(ago.as_micros()).unwrap_or(u64::MAX);
        let by_wall = self.now_us().saturating_sub(us);
        self.retention.ago(us, self.stable()).max(CommitTs(by_wall))
    }
    /// The begin of a policy's history, for all policies at one reading of the clocks.
    pub(crate) fn history_begins(&self) -> impl Fn(HistoryPolicy) -> CommitTs {
        let map = self.retention.map(self.stable());
        move |policy| map.begin_of(policy)
    }
    /// All commits up to this timestamp are visible.
    pub fn stable(&self) -> CommitTs {
        self.txns().stable()
    }
    /// The newest committed catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        loop {
            // A version is pruned only after the stable timestamp has advanced.
            if let Ok(catalog) = self.catalogs.at(self.stable()) {
                return catalog;
            }
        }
    }
    /// Whether `catalog` is the newest one, committed or about to be.
    pub fn uses_catalog(&self, catalog: &Arc<Catalog>) -> bool {
        self.catalogs.is_last(catalog)
    }
    /// The catalog as of `ts`.
    pub fn catalog_at(&self, ts: CommitTs) -> Result<Arc<Catalog>> {
        self.catalogs.at(ts)
    }
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        self.shared.files.device()
    }
    pub(crate) fn txns(&self) -> &Arc<TxnManager> {
        &self.shared.txns
    }
    pub(crate) fn wal(&self) -> &Wal {
        &self.wal
    }
    /// Returns the error that makes the database refuse all further writes. It comes from the log,
    /// or from the manifest, whose failure closes the log too.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.wal.check_usable()?;
        self.device.check_usable()
    }

    /// The storage `id`, to read or write its rows.
    ///
    /// # Errors
    /// The failure of restoring its rows, if they could not be.
    pub(crate) fn store(&self, id: StorageId) -> Result<Arc<Store>> {
        let store = self.any_store(id)?;
        match store.check_restored() {
            Ok(()) => Ok(store),
            Err(failure) => Err(self.unrestored(id, failure)),
        }
    }

    /// The storage `id`, also if its rows could not be restored.
    pub(crate) fn any_store(&self, id: StorageId) -> Result<Arc<Store>> {
        self.stores
            .read()
            .get(&id)
            .cloned()
            .ok_or_else(|| Error::internal(format!("storage {id} is not there")))
    }

    /// The next value of an identity column. Not transactional: a rollback leaves a gap.
    pub fn next_identity(&self, table: &TableDef, column: ColumnId) -> Result<i64> {
        self.identities.next(table, column)
    }

    /// The last value that an identity column has been given; None: none yet.
    pub fn last_identity(&self, table: &TableDef, column: ColumnId) -> Option<i64> {
        self.identities.last(table, column)
    }

    /// The moment from which on versions of `table` are kept.
    pub(crate) fn horizon(&self, table: &TableDef, store: &Store) -> CommitTs {
        let from = self.history_begins()(table.history);
        from.min(self.txns().oldest_snapshot())
            .max(store.kept_from())
    }

    /// 72000 if the history of `table` begins after `ts`. The caller has registered a snapshot at
    /// `ts`, so the versions that exist now stay.
    pub(crate) fn check_retained(&self, table: &TableDef, ts: CommitTs) -> Result<()> {
        let policy = self.history_begins()(table.history).min(self.stable());
        // The policy may have been shorter, or the wall clock ahead.
        let Ok(store) = self.any_store(table.storage) else {
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
        let bytes = bytes as u64 + self.index_files.take_logged();
        let logged = self
            .maintenance
            .logged_bytes
            .fetch_add(bytes, Ordering::Relaxed)
            + bytes;
        if logged >= self.settings.checkpoint_wal_bytes {
            self.maintenance.want();
        }
    }
    pub(crate) fn note_abort(&self) {
        self.counters.rollbacks.fetch_add(1, Ordering::Relaxed);
    }
}

pub(crate) fn closed() -> Error {
    Error::new(
        ErrorKind::Closed,
        SqlState::ADMIN_SHUTDOWN,
        "the database is closed",
    )
}
