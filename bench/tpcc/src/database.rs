//! TPC-C on page files: heaps and B+trees of one page store, with redo-only transactions.
//!
//! A transaction computes all its changes before it makes the first one, and logs them as one
//! record. So the page store may write pages at any time: what a crash interrupts is done, never
//! undone.
//!
//! Opening after a crash \[SSD-DB §2.4.7\]: the page store's records are redone from the last
//! checkpoint on, through the SSD cache; then the transactions without an end are made again.

mod contents;
mod heap;
mod journal;
mod population;
mod tables;
#[cfg(test)]
mod tests;
mod transactions;
mod write_set;

use std::collections::BTreeMap;
use std::sync::Arc;

use strandline_base::sync::{AtomicBool, Mutex, Ordering};
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_device::Device;
use strandline_storage::pages::{PageLog, PageSettings, PageStats, PageStore};
use strandline_storage::pool::Pool;
use strandline_storage::ssd_cache::{self, SsdCache};
use strandline_storage::wal::{Lsn, WalSettings};

use crate::input::Scale;
use journal::{Journal, Record};
use tables::Tables;
use transactions::Locks;
use write_set::WriteSet;

/// Does the steps of a cache as they become due, until the flag is set.
pub type DriveSteps = fn(&SsdCache, &AtomicBool) -> Result<()>;

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct DatabaseSettings {
    pub scale: Scale,
    /// part of the checksums of pages, log and cache
    pub database_id: u128,
    /// bytes of pages in memory
    pub memory_bytes: usize,
    /// None: no SSD cache
    pub cache: Option<ssd_cache::Settings>,
    pub wal: WalSettings,
}

/// The database.
pub struct Database {
    scale: Scale,
    store: Arc<PageStore>,
    journal: Arc<Journal>,
    tables: Tables,
    locks: Locks,
    /// where redo begins; held during a checkpoint
    redo: Mutex<Lsn>,
    /// why the database is closed
    failure: Mutex<Option<Error>>,
}

/// What an opening has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// records of pages redone
    pub records: u64,
    /// transactions whose end was in the log
    pub ended: u64,
    /// transactions made again
    pub repeated: u64,
}

impl Database {
    /// Creates and populates a database.
    pub fn create(device: Arc<dyn Device>, settings: &DatabaseSettings, seed: u64) -> Result<Self> {
        let journal = Journal::create(device.clone(), settings.wal.clone(), settings.database_id)?;
        let journal = Arc::new(journal);
        let store = store_of(device, &journal, settings)?;
        let tables = Tables::create(&store)?;
        let database = Self::of(settings, store, journal, tables, Lsn(0));
        let mut checkpoint = || database.checkpoint();
        population::populate(&database.tables, settings.scale, seed, &mut checkpoint)?;
        Ok(database)
    }

    /// Opens a database that was closed or has crashed; `redo` is [`Database::redo_position`] as of
    /// its last checkpoint. `drive` does the cache's steps meanwhile, on a thread of its own, until
    /// the flag is set.
    ///
    /// # Errors
    /// XX001 for damage of the log; those of the cache, the page store and `drive`.
    pub fn open(
        device: Arc<dyn Device>,
        settings: &DatabaseSettings,
        redo: Lsn,
        drive: Option<DriveSteps>,
    ) -> Result<(Self, Recovered)> {
        let (wal, id) = (settings.wal.clone(), settings.database_id);
        let (journal, records) = Journal::open(device.clone(), wal, id, redo)?;
        let journal = Arc::new(journal);
        let store = store_of(device, &journal, settings)?;
        Tables::open_files(&store)?;
        let is_over = &AtomicBool::new(false);
        let (tables, recovered) = std::thread::scope(|scope| {
            let drive = drive.zip(store.cache());
            let steps = drive.map(|(drive, cache)| scope.spawn(move || drive(cache, is_over)));
            let redone = redo_records(&store, &journal, records);
            is_over.store(true, Ordering::Relaxed);
            let panicked = |_| Err(Error::internal("the thread of the cache's steps panicked"));
            let steps = steps.map(|steps| steps.join().unwrap_or_else(panicked));
            steps.unwrap_or(Ok(())).and(redone)
        })?;
        Ok((Self::of(settings, store, journal, tables, redo), recovered))
    }

    /// Copies all that an SSD cache has to the page files; the log is left as it is.
    pub fn empty_cache(device: Arc<dyn Device>, settings: &DatabaseSettings) -> Result<()> {
        // The store's log is not used: nothing is read or changed.
        let scratch = Arc::new(strandline_device::MemoryDevice::new());
        let journal = Journal::create(scratch, settings.wal.clone(), settings.database_id)?;
        drop(store_of(device.clone(), &Arc::new(journal), settings)?);
        // No manifest of this database names a checkpoint through the cache.
        SsdCache::forget(&*device)
    }

    fn of(
        settings: &DatabaseSettings,
        store: Arc<PageStore>,
        journal: Arc<Journal>,
        tables: Tables,
        redo: Lsn,
    ) -> Self {
        Self {
            scale: settings.scale,
            store,
            journal,
            tables,
            locks: Locks::new(settings.scale),
            redo: Mutex::new(redo),
            failure: Mutex::new(None),
        }
    }

    fn check_usable(&self) -> Result<()> {
        self.failure.lock().clone().map_or(Ok(()), Err)
    }

    /// Refuses all further changes.
    fn close(&self, cause: &Error) -> Error {
        let message = format!("the database is closed since a change could not be made: {cause}");
        let error = Error::new(ErrorKind::Closed, SqlState::IO_ERROR, message);
        let error = error.with_hint("Open it again: the log has the change.");
        self.failure.lock().get_or_insert(error).clone()
    }

    fn wait_durable(&self, through: Lsn) -> Result<()> {
        self.journal.make_durable(through)
    }

    /// Writes dirty pages, through the SSD cache if there is one, and cuts the log.
    ///
    /// # Errors
    /// Those of the page store and the log; the last checkpoint stays in force.
    pub fn checkpoint(&self) -> Result<()> {
        let mut redo = self.redo.lock();
        self.check_usable()?;
        let bound = self.journal.redo_bound();
        self.store.checkpoint()?;
        self.journal.make_durable(bound)?;
        *redo = bound;
        self.journal.cut_before(bound)
    }

    /// Where redo would begin now.
    pub fn redo_position(&self) -> Lsn {
        *self.redo.lock()
    }

    /// The position after the last record of the log.
    pub fn log_end(&self) -> Lsn {
        self.journal.end()
    }

    /// The SSD cache, whose steps the caller drives.
    pub fn cache(&self) -> Option<&SsdCache> {
        self.store.cache()
    }

    /// Counts of the page store.
    pub fn stats(&self) -> PageStats {
        self.store.stats()
    }

    /// Syncs of the log.
    pub fn log_syncs(&self) -> u64 {
        self.journal.syncs()
    }
}

/// Redoes the records of pages, then makes the transactions without an end again.
fn redo_records(
    store: &Arc<PageStore>,
    journal: &Journal,
    records: Vec<(Lsn, Record)>,
) -> Result<(Tables, Recovered)> {
    let mut recovered = Recovered::default();
    let mut unended: BTreeMap<Lsn, WriteSet> = BTreeMap::new();
    for (lsn, record) in records {
        match record {
            Record::Pages(bytes) => {
                store.replay(&bytes, lsn)?;
                recovered.records += 1;
            }
            Record::Begin(writes) => {
                unended.insert(lsn, writes);
            }
            Record::End(begin) => {
                unended.remove(&begin);
                recovered.ended += 1;
            }
        }
    }
    let tables = Tables::open(store)?;
    for (begin, writes) in &unended {
        writes.apply(&tables)?;
        journal.put_end(*begin)?;
        recovered.repeated += 1;
    }
    Ok((tables, recovered))
}

fn store_of(
    device: Arc<dyn Device>,
    journal: &Arc<Journal>,
    settings: &DatabaseSettings,
) -> Result<Arc<PageStore>> {
    let pages = PageSettings {
        pool: Pool::new(settings.memory_bytes),
        database_id: settings.database_id,
        ..PageSettings::default()
    };
    match settings.cache {
        Some(cache) => PageStore::with_cache(device, journal.clone(), pages, cache),
        None => Ok(PageStore::new(device, journal.clone(), pages)),
    }
}
