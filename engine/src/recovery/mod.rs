//! Creating and recovering a database \[L-Store §5.1.3\].
//!
//! Recovery: the manifest gives ranges, runs and catalogs as of the last checkpoint; records of
//! runs newer than their range's chunks go back into tails (runs without any are not read); kept
//! logs of single tables are replayed, then the log from the checkpoint's position, skipping what
//! the checkpoint already covers; row maps are rebuilt during both, key indexes afterwards. Both
//! are done by several threads, each range by one of them, so that the records of one row stay in
//! order and the result is the same for any number of threads; catalog changes are barriers.
//!
//! The files of indexes are replayed when the log has been read: the newest definitions tell
//! which there are, and the log's records must be durable by then (see [`index_files`]).
//!
//! A fault of one table's files stays with that table (see [`restore`]): the database opens.
//!
//! Every step is idempotent: a crash during recovery changes nothing.

mod block_cache;
mod index_files;
mod noted_rows;
mod page_records;
mod parallel;
mod progress;
mod restore;

use crate::catalog::Catalog;
use crate::catalog::identity::Identities;
use crate::catalog::retention::{Retention, TimeMap};
use crate::catalog::versions::CatalogVersions;
use crate::db::backpressure::Backpressure;
use crate::db::cache_steps::CacheSteps;
use crate::db::caches::Caches;
use crate::db::commit_watch::CommitWatches;
use crate::db::merge_schedule::MergeSchedule;
use crate::db::pacing::Pacing;
use crate::db::reserve::Reserve;
use crate::db::set_aside::{SetAside, Work};
use crate::db::{Counters, Db, Maintenance, RecoveryReport};
use crate::index_files::{Database, IndexFiles};
use crate::manifest_state::{CapacityTierState, ManifestEdit, ManifestState, to_json};
use crate::redo::{KINDS, Restoration};
use crate::settings::DbOptions;
use crate::store::{Shared, Store};
use progress::RecoveryProgress;
use restore::Recovery;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use strandline_base::sync::{Mutex, RwLock};
use strandline_base::unique_id::unique_id;
use strandline_base::{CommitTs, Error, Result, SqlState, StorageId};
use strandline_device::{Device, FailStopDevice};
use strandline_storage::block_cache::BlockCache;
use strandline_storage::file::DataFiles;
use strandline_storage::file::data_file::data_file_id;
use strandline_storage::kept_log::kept_log_id;
use strandline_storage::manifest::Manifest;
use strandline_storage::pool::Pool;
use strandline_storage::run::run_file_id;
use strandline_storage::tiers::owner::{self, Owner};
use strandline_storage::tiers::{self, PairRecord};
use strandline_storage::wal::{Lsn, Wal, WalSettings};
use strandline_tail::page_memory::PageAccount;
use strandline_txn::TxnManager;

impl Db {
    /// Whether `device` holds a database; nothing is created or changed.
    ///
    /// # Errors
    /// 55000 if it holds files of something else, or directories that do not belong together; XX001
    /// if it is a database's with parts missing.
    pub fn exists(device: &dyn Device) -> Result<bool> {
        tiers::check(device, &recorded_pair)?;
        Manifest::exists(device)
    }

    /// Creates the database if the device is empty, else recovers it.
    pub fn open(mut options: DbOptions) -> Result<Arc<Db>> {
        options.settings.check()?;
        options.settings.check_on(&*options.device)?;
        options.settings = options.settings.with_found_cache(&*options.device)?;
        let directory = Arc::new(FailStopDevice::new(options.device));
        options.device = directory.clone();
        // A directory that is not ours is refused before it gets a lock file.
        Self::exists(&*options.device)?;
        owner::check(&*options.device)?;
        let lock = options.device.lock()?;
        let db = if Self::exists(&*options.device)? {
            recover(options, directory)?
        } else {
            create(options, directory)?
        };
        *db.lock.lock() = Some(lock);
        db.open_reserve()?;
        let only_looks = db.settings.only_looks;
        if !only_looks {
            db.remove_unfinished_indexes();
        }
        db.name_opened_files()?;
        // Tails that the log has filled.
        db.lend_to_tails();
        if db.settings.background_maintenance && !only_looks {
            db.start_maintenance()?;
        }
        Ok(db)
    }
}

/// What the manifest of the database in the directory of `device` says of its pair of directories.
fn recorded_pair(device: &dyn Device) -> Result<Option<PairRecord>> {
    let Some((records, place)) = Manifest::read(device)? else {
        return Ok(None);
    };
    Ok(ManifestState::decode(&records, &place)?.pair_record())
}

/// Has the manifest say that there is a second directory, and which pair the two are.
fn record_pair(manifest: &Manifest, state: &mut ManifestState, tied: &Tied) -> Result<()> {
    let pair = tied.pair.map(CapacityTierState::from);
    if pair.is_none() || pair == state.capacity_tier {
        return Ok(());
    }
    let edit = ManifestEdit {
        capacity_tier: pair,
        ..state.unchanged()
    };
    match manifest.append(&to_json(&edit)?) {
        // Nothing was written. The next opening tries again.
        Err(error) if error.sqlstate() == SqlState::DISK_FULL => {
            tracing::warn!("the manifest does not record the second directory yet: {error}");
        }
        appended => {
            appended?;
            state.capacity_tier = pair;
        }
    }
    Ok(())
}

fn wal_settings(options: &DbOptions) -> WalSettings {
    WalSettings {
        segment_bytes: options.settings.wal_segment_bytes,
    }
}

fn create(options: DbOptions, directory: Arc<FailStopDevice>) -> Result<Arc<Db>> {
    let now = CommitTs(options.clock.followed_us());
    let mut state = ManifestState {
        next_file: 1,
        catalogs: vec![(CommitTs::ZERO, Arc::new(Catalog::initial()))],
        time: TimeMap::begin(now.0),
        ..ManifestState::default()
    };
    let device = options.device.clone();
    let id = unique_id();
    let (manifest, wal) = Manifest::create(device.clone(), id, &to_json(&state)?, || {
        Wal::create(device.clone(), wal_settings(&options), id)
    })?;
    let tied = Tied::new(&options, id, &state)?;
    record_pair(&manifest, &mut state, &tied)?;
    let shared = shared(&options, CommitTs::ZERO, state.next_file, &tied);
    let (wal, index_files) = (
        Arc::new(wal),
        index_files(&options, &tied, &state, &shared)?,
    );
    index_files.attach(&wal);
    let recovered = Recovered {
        catalogs: state.catalogs.clone(),
        retention: Retention::begin(options.clock.clone()),
        state,
        stores: BTreeMap::new(),
        identities: Identities::default(),
        replayed: Vec::new(),
        report: RecoveryReport::default(),
        failures: Vec::new(),
    };
    Ok(assemble(
        options,
        directory,
        (shared, index_files, tied),
        wal,
        manifest,
        recovered,
    ))
}

/// The directories of the database, tied together, and the pool with the block cache between them.
struct Tied {
    database_id: u128,
    /// None: there is one directory
    pair: Option<PairRecord>,
    pool: Arc<Pool>,
    block_cache: Option<Arc<BlockCache>>,
    block_cache_steps: Arc<CacheSteps>,
    owner: Option<Arc<Owner>>,
}

impl Tied {
    /// `state` is that of the durable manifest.
    fn new(options: &DbOptions, database_id: u128, state: &ManifestState) -> Result<Self> {
        let device = &*options.device;
        // Nothing is written to the capacity tier before, no object is changed before the token.
        let pair = tiers::attach(device, database_id, unique_id(), state.pair_record())?;
        let owner = owner::take(device, database_id, unique_id())?;
        let pool = Pool::new(options.settings.cache_bytes());
        let steps = Arc::new(CacheSteps::new("steps of the block cache"));
        let identity = pair.map(|pair| pair.pair_id ^ database_id);
        let taken = pool.taken_bytes();
        let block_cache = block_cache::open(options, identity, state.next_file, taken, &steps)?;
        Ok(Self {
            database_id,
            pair,
            pool,
            block_cache,
            block_cache_steps: steps,
            owner,
        })
    }
}

fn shared(options: &DbOptions, last: CommitTs, next_file: u64, tied: &Tied) -> Shared {
    Shared {
        files: DataFiles::with_cache(options.device.clone(), tied.block_cache.clone()),
        pool: tied.pool.clone(),
        txns: TxnManager::new(options.clock.clone(), last),
        page_bytes: Arc::new(PageAccount::with_first_record(
            options.settings.first_tail_record,
        )),
        next_file: Arc::new(AtomicU64::new(next_file)),
        consolidation: Arc::default(),
        range_bytes_max: options.settings.range_bytes(),
        row_bytes_max: options.settings.memory_bytes,
    }
}

fn index_files(
    options: &DbOptions,
    tied: &Tied,
    state: &ManifestState,
    shared: &Shared,
) -> Result<Arc<IndexFiles>> {
    let known = state.index_files.as_ref();
    let database = Database {
        device: &options.device,
        id: tied.database_id,
        pair: tied.pair.map(|pair| pair.pair_id),
        was_cached: known.is_some_and(|files| files.is_cached),
        pool: &shared.pool,
        catalog: state.catalogs.last().map(|(_, newest)| &**newest),
    };
    IndexFiles::new(&database, &options.settings, &shared.txns)
}

/// The recovered state a database starts with.
struct Recovered {
    /// the manifest's state; behind the log, if that was replayed
    state: ManifestState,
    catalogs: Vec<(CommitTs, Arc<Catalog>)>,
    stores: BTreeMap<StorageId, Arc<Store>>,
    identities: Identities,
    retention: Retention,
    /// operations of the log that were done again, by kind
    replayed: Vec<(&'static str, u64)>,
    report: RecoveryReport,
    /// work on single storages that failed
    failures: Vec<(StorageId, Work, Error)>,
}

fn assemble(
    options: DbOptions,
    device: Arc<FailStopDevice>,
    (shared, index_files, tied): (Shared, Arc<IndexFiles>, Tied),
    wal: Arc<Wal>,
    manifest: Manifest,
    recovered: Recovered,
) -> Arc<Db> {
    let (finished, opened_through) = (wal.end_lsn().0, shared.txns.stable());
    let caches = Caches::new(&options.settings, tied.block_cache_steps);
    let db = Arc::new(Db {
        device,
        clock: options.clock,
        settings: options.settings,
        shared,
        wal,
        manifest,
        catalogs: CatalogVersions::new(recovered.catalogs),
        checkpoint: Mutex::new(recovered.state),
        stores: RwLock::new(recovered.stores),
        identities: recovered.identities,
        commit_watches: CommitWatches::default(),
        completing: RwLock::new(()),
        ddl: Mutex::new(None),
        finished_lsn: AtomicU64::new(finished),
        retention: recovered.retention,
        counters: Counters::default(),
        recovery: recovered.report,
        opened_through,
        replayed: recovered.replayed,
        maintenance: Arc::new(Maintenance::default()),
        merge_schedule: MergeSchedule::default(),
        set_aside: SetAside::default(),
        reserve: Reserve::default(),
        backpressure: Backpressure::default(),
        pacing: Pacing::default(),
        open_readers: Arc::default(),
        load_memory: Arc::default(),
        merge_memory: Arc::default(),
        list_memory: Arc::default(),
        index_builds: Default::default(),
        index_moves: Default::default(),
        index_files,
        caches,
        owner: tied.owner,
        lock: Mutex::new(None),
    });
    for (storage, work, failure) in &recovered.failures {
        db.note_unrestored(*storage, *work, failure);
    }
    for line in db.small_caches() {
        tracing::warn!("{line}");
    }
    db
}

fn recover(options: DbOptions, directory: Arc<FailStopDevice>) -> Result<Arc<Db>> {
    let began_us = options.clock.elapsed_us();
    let device = options.device.clone();
    let (manifest, records) = Manifest::open(device.clone())?;
    let place = format!("\"{}\": {}", device.location(), manifest.file().0);
    let mut state = ManifestState::decode(&records, &place)?;
    tiers::check_record(&*device, state.pair_record())?;
    let progress = RecoveryProgress::begin(options.clock.clone(), &device.location(), &state);
    let next_file = next_file(&state, &*device)?;
    let database_id = manifest.database_id();
    let tied = Tied::new(&options, database_id, &state)?;
    record_pair(&manifest, &mut state, &tied)?;
    let shared = shared(&options, state.checkpoint_ts, next_file, &tied);
    let index_files = index_files(&options, &tied, &state, &shared)?;
    let database = Restoration::new(shared.clone(), index_files.clone(), &state);
    let mut recovery = Recovery::new(database, &state, &options.settings, progress)?;
    recovery.restore_kept_logs(&*device, database_id, &state.kept_logs)?;
    let wal = Wal::open(
        device.clone(),
        wal_settings(&options),
        database_id,
        Lsn(state.replay_from()),
        Lsn(state.log_durable),
        &mut |end, payload| recovery.replay(end, payload),
    )?;
    recovery.apply()?;
    let wal = Arc::new(wal);
    recovery.open_index_files(&*device, &wal, &state)?;
    recovery.progress.indexing(&recovery.report);
    recovery.finish(&*device, options.settings.expressions.as_deref())?;
    recovery.report.log_bytes = wal.end_lsn().0.saturating_sub(state.replay_from());
    recovery.report.micros = options.clock.elapsed_us().saturating_sub(began_us);
    progress::recovered(&device.location(), &recovery.report);
    let Recovery {
        database,
        last,
        operations,
        report,
        failures,
        ..
    } = recovery;
    shared.txns.observe(last);
    let recovered = Recovered {
        retention: Retention::open(
            options.clock.clone(),
            state.time.clone(),
            state.checkpoint_ts,
            last,
        ),
        state,
        catalogs: database.catalogs,
        stores: database.stores,
        identities: database.identities,
        replayed: KINDS.iter().map(|kind| kind.name).zip(operations).collect(),
        report,
        failures,
    };
    Ok(assemble(
        options,
        directory,
        (shared, index_files, tied),
        wal,
        manifest,
        recovered,
    ))
}

fn next_file(state: &ManifestState, device: &dyn Device) -> Result<u64> {
    let used = device
        .list()?
        .iter()
        .filter_map(|name| {
            let id = data_file_id(name).or_else(|| run_file_id(name));
            id.or_else(|| kept_log_id(name))
        })
        .max();
    Ok(state.next_file.max(used.map_or(0, |id| id + 1)))
}
