//! The page files of indexes: their numbers, who uses them, their memory, and their removal.
//!
//! An index with [`IndexStorage::Pages`](crate::catalog::index::IndexStorage) has a page file,
//! which its definition names. Its pages are changed through `strandline_storage::pages`; the log's
//! records of them are in `log`.
//!
//! Invariants:
//! 1. The file that the newest definition names is that of the index in memory, which has all its
//!    entries, or it is *lost*: no opening uses it again.
//! 2. A file is durable with its name before the catalog that names it is committed.
//! 3. A file is removed when no index in memory has it ([`HeldFile`]) and no catalog that an
//!    opening may find names it: by a checkpoint, or by the opening.
//! 4. A number is used once: it is above those of all files, of the manifest, and of all records
//!    that may be replayed.
//!
//! A file is lost when it was closed by a failed sync or by damage that the replay has met. The
//! manifest names it before writers pass over its index, so that no opening takes the file for
//! complete. An opening builds such an index from the rows, in a new file.
//!
//! Memory: all files share one budget of page frames ([`Settings::index_page_bytes`]). It is taken
//! from the share of cached blocks while there is a file, and so is the directory of the SSD cache
//! ([`Settings::ssd_cache_memory_bytes`]) while there is such a cache.
//!
//! Lock order: `files` is held only to look and to change.
//!
//! [`Settings::index_page_bytes`]: crate::Settings::index_page_bytes
//! [`Settings::ssd_cache_memory_bytes`]: crate::Settings::ssd_cache_memory_bytes

mod cache;
mod log;
mod swept;

pub(crate) use log::IndexRecord;

use crate::settings::Settings;
use cache::Opening;
use log::IndexLog;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Counter; // counts bytes; no part of the protocol
use strandline_base::sync::{AtomicBool, AtomicU32, Mutex, Ordering};
use strandline_base::{CommitTs, Error, Result, SqlState, StorageId};
use strandline_device::Device;
use strandline_index::{PagedIndex, PagedIndexSettings, PartOrder};
use strandline_storage::pages::{
    PageFileId, PageSettings, PageStore, Redo, page_file_id, page_file_name,
};
use strandline_storage::ssd_cache::SsdCache;
use strandline_storage::wal::{Lsn, Wal};
use strandline_txn::TxnManager;
use swept::SweptFrom;

/// See the module's documentation.
pub(crate) struct IndexFiles {
    pages: Arc<PageStore>,
    log: Arc<IndexLog>,
    /// files that were removed because the SSD cache was lost
    lost_with_cache: BTreeSet<PageFileId>,
    txns: Arc<TxnManager>,
    /// the next free number
    next: AtomicU32,
    files: Mutex<Files>,
    swept: SweptFrom,
    budget_bytes: usize,
    /// bytes of the SSD cache's directory
    directory_bytes: Counter,
    /// a step of the SSD cache has failed during replay
    has_failing_steps: AtomicBool,
    /// bytes that indexes take from the cache's share
    taken_bytes: Arc<Counter>,
}

/// The files of the database.
#[derive(Default)]
struct Files {
    /// by number how many indexes in memory have it
    held: BTreeMap<PageFileId, usize>,
    /// files that no opening uses again, and why
    lost: BTreeMap<PageFileId, Error>,
}

/// The use of a file by an index in memory.
pub(crate) struct HeldFile {
    files: Arc<IndexFiles>,
    id: PageFileId,
}

impl HeldFile {
    /// The file's number.
    pub fn id(&self) -> PageFileId {
        self.id
    }

    /// The file's length in bytes; 0 if it has been closed.
    pub fn bytes(&self) -> u64 {
        self.files.pages.file_bytes(self.id).unwrap_or(0)
    }

    /// Reads every page that is in use, and appends the first damage.
    pub fn check(&self, damage: &mut Vec<String>) {
        let checked = self.files.pages.check(self.id);
        damage.extend(checked.err().map(|error| error.to_string()));
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        let mut files = self.files.files.lock();
        if let Some(held) = files.held.get_mut(&self.id) {
            *held = held.saturating_sub(1);
        }
    }
}

/// The database that the files belong to, as an opening finds it.
pub(crate) struct Database<'a> {
    pub device: &'a Arc<dyn Device>,
    pub id: u128,
    /// identifies its pair of directories; None: it has one directory
    pub pair: Option<u128>,
    /// the last checkpoint went through an SSD cache
    pub was_cached: bool,
}

/// The outcome of a checkpoint of the files.
pub(crate) struct FilesCheckpoint {
    /// replay of pages begins there, unless a file has failed
    pub redo_from: Lsn,
    /// files whose pages could not be stored, and that are to be tried again
    pub failed: Vec<(PageFileId, Error)>,
}

impl IndexFiles {
    /// No open files, and the SSD cache.
    ///
    /// # Errors
    /// Those of opening the cache: of the device, and 0A000 if its version is unknown.
    pub fn new(
        database: &Database<'_>,
        settings: &Settings,
        txns: &Arc<TxnManager>,
        taken_bytes: &Arc<Counter>,
    ) -> Result<Arc<Self>> {
        let log = Arc::new(IndexLog::default());
        let budget_bytes = settings.index_page_bytes();
        let opening = Opening {
            device: database.device.clone(),
            log: log.clone(),
            pages: PageSettings {
                budget_bytes,
                database_id: database.id,
            },
            pair: database.pair.map(|pair| pair ^ database.id),
            was_cached: database.was_cached,
        };
        let (pages, lost_with_cache) = opening.open(settings)?;
        let directory_bytes = match pages.cache() {
            Some(_) => settings.ssd_cache_memory_bytes(),
            None => 0,
        };
        taken_bytes.fetch_add(directory_bytes, Ordering::Relaxed);
        Ok(Arc::new(Self {
            pages,
            log,
            lost_with_cache,
            directory_bytes: Counter::new(directory_bytes),
            has_failing_steps: AtomicBool::new(false),
            txns: txns.clone(),
            next: AtomicU32::new(1),
            files: Mutex::default(),
            swept: SweptFrom::default(),
            budget_bytes,
            taken_bytes: taken_bytes.clone(),
        }))
    }

    /// The SSD cache between memory and the files.
    pub fn cache(&self) -> Option<&SsdCache> {
        self.pages.cache()
    }

    /// The SSD cache, if it holds blocks over a restart that may be fresher than their files.
    pub fn has_lasting_cache(&self) -> bool {
        self.cache().is_some_and(|cache| cache.mode().is_lasting())
    }

    /// Changes the size of the SSD cache, which there is, and the memory that its directory takes.
    /// Entries beyond a smaller size leave with the steps that follow.
    ///
    /// # Errors
    /// Those of [`SsdCache::resize`].
    pub fn resize_cache(&self, settings: &Settings) -> Result<()> {
        if let Some(cache) = self.cache() {
            cache.resize(settings.ssd_cache_bytes)?;
        }
        let bytes = settings.ssd_cache_memory_bytes();
        self.taken_bytes.fetch_add(bytes, Ordering::Relaxed);
        let before = self.directory_bytes.swap(bytes, Ordering::Relaxed);
        self.taken_bytes.fetch_sub(before, Ordering::Relaxed);
        Ok(())
    }

    /// The log is open: pages can be changed.
    pub fn attach(&self, wal: &Arc<Wal>) {
        self.log.attach(wal);
    }

    /// The numbers below `next` have been used.
    pub fn raise_next(&self, next: u32) {
        self.next.fetch_max(next, Ordering::Relaxed);
    }

    /// The next free number; 1: there has never been a file.
    pub fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// Logs that a sweep of a storage's indexes removes entries of versions superseded before
    /// `from`. To be called before it does.
    ///
    /// # Errors
    /// Those of the log; then nothing may be removed.
    pub fn announce_sweep(&self, storage: StorageId, from: CommitTs) -> Result<()> {
        self.swept.announce(&self.log, storage, from)
    }

    /// Recovery: the log or the manifest has the moment of a sweep.
    pub fn recover_sweep(&self, storage: StorageId, from: CommitTs) {
        self.swept.recover(storage, from);
    }

    /// By storage from when on indexes on pages have the entries of every version; absent: always.
    /// Forgets the storages that are not kept.
    pub fn swept_from(&self, is_kept: impl Fn(StorageId) -> bool) -> BTreeMap<StorageId, CommitTs> {
        self.swept.retain(is_kept);
        self.swept.all()
    }

    /// Bytes of the log's records of pages since the last call.
    pub fn take_logged(&self) -> u64 {
        self.log.take_logged()
    }

    /// Removes the page files that are not `named` and opens the others. Returns the missing ones.
    pub fn open(
        &self,
        device: &dyn Device,
        named: &BTreeSet<PageFileId>,
    ) -> Result<BTreeMap<PageFileId, Error>> {
        let found = device.list()?;
        for id in found.iter().filter_map(|name| page_file_id(name)) {
            self.raise_next(id.0.saturating_add(1));
            if !named.contains(&id) {
                self.pages.close_file(id);
                device.remove(&page_file_name(id))?;
            }
        }
        let mut missing = BTreeMap::new();
        for id in named {
            self.raise_next(id.0.saturating_add(1));
            match self.pages.open_file(*id) {
                Ok(()) => self.enter(*id, 0),
                Err(error) => drop(missing.insert(*id, self.cause_of_loss(*id, error))),
            }
        }
        Ok(missing)
    }

    /// The redo of the log's records on the open files.
    pub fn redo(&self) -> Redo<'_> {
        Redo::new(&self.pages)
    }

    fn cause_of_loss(&self, id: PageFileId, error: Error) -> Error {
        match self.lost_with_cache.contains(&id) {
            true => error.context("its newest pages were lost with the SSD cache"),
            false => error,
        }
    }

    /// Makes a step of the SSD cache that is due, until one fails: without free slots pages go to
    /// their files. The maintenance tells of the failure.
    pub fn make_step_of_replay(&self) {
        if let Some(cache) = self.cache()
            && !self.has_failing_steps.load(Ordering::Relaxed)
            && cache.is_step_due()
            && cache.step().is_err()
        {
            self.has_failing_steps.store(true, Ordering::Relaxed);
        }
    }

    /// An empty index in a new file, which is durable with its name on return.
    ///
    /// # Errors
    /// Those of the device and of the log: 53100 on a full disk.
    pub fn create(self: &Arc<Self>, parts: Vec<PartOrder>) -> Result<(PagedIndex, HeldFile)> {
        let used = self.next.fetch_add(1, Ordering::Relaxed);
        if used == u32::MAX {
            let what = "all numbers of page files have been used";
            return Err(Error::invalid(SqlState::PROGRAM_LIMIT_EXCEEDED, what));
        }
        let id = PageFileId(used);
        // From the first moment on it is in use: a checkpoint removes the others.
        let held = self.hold(id);
        let index = PagedIndex::create(self.pages.clone(), id, self.settings(parts))?;
        Ok((index, held))
    }

    /// The index in an open file, as the replay of the log has left it.
    ///
    /// # Errors
    /// XX001 if it is damaged; the failure that has closed the file.
    pub fn open_index(
        self: &Arc<Self>,
        id: PageFileId,
        parts: Vec<PartOrder>,
    ) -> Result<(PagedIndex, HeldFile)> {
        self.pages.check_usable(id)?;
        let index = PagedIndex::open(self.pages.clone(), id, self.settings(parts))?;
        Ok((index, self.hold(id)))
    }

    fn settings(&self, parts: Vec<PartOrder>) -> PagedIndexSettings {
        let txns = self.txns.clone();
        PagedIndexSettings {
            memory: self.taken_bytes.clone(),
            ..PagedIndexSettings::new(parts, Arc::new(move || txns.oldest_snapshot()))
        }
    }

    fn hold(self: &Arc<Self>, id: PageFileId) -> HeldFile {
        self.enter(id, 1);
        HeldFile {
            files: self.clone(),
            id,
        }
    }

    /// Adds a file unless it is known, and so many indexes that have it. The first file takes the
    /// memory of all.
    fn enter(&self, id: PageFileId, uses: usize) {
        let mut files = self.files.lock();
        if files.held.is_empty() {
            self.taken_bytes
                .fetch_add(self.budget_bytes, Ordering::Relaxed);
        }
        *files.held.entry(id).or_default() += uses;
    }

    /// Bytes of memory that pages take from the cache's share.
    pub fn memory_bytes(&self) -> usize {
        let pages = match self.files.lock().held.is_empty() {
            true => 0,
            false => self.budget_bytes,
        };
        pages + self.directory_bytes.load(Ordering::Relaxed)
    }

    /// Writes the changed pages of all files. Files that have been closed are lost from now on.
    ///
    /// # Errors
    /// Those of the log.
    pub fn checkpoint(&self) -> Result<FilesCheckpoint> {
        let (redo_from, failures) = self.pages.checkpoint_each()?;
        let mut failed = Vec::new();
        for (id, failure) in failures {
            match self.pages.check_usable(id) {
                Ok(()) => failed.push((id, failure)),
                Err(cause) => {
                    self.pages.close_file(id);
                    self.note_lost(id, cause);
                }
            }
        }
        Ok(FilesCheckpoint { redo_from, failed })
    }

    /// Closes a file that is about to be removed.
    pub fn forget(&self, id: PageFileId) {
        self.pages.close_file(id);
    }

    /// No opening uses this file again.
    pub fn note_lost(&self, id: PageFileId, cause: Error) {
        self.files.lock().lost.insert(id, cause);
    }

    /// The files that no opening uses again, and why.
    pub fn lost(&self) -> BTreeMap<PageFileId, Error> {
        self.files.lock().lost.clone()
    }

    /// Whether there are files that no index in memory has.
    pub fn has_unused(&self) -> bool {
        let files = self.files.lock();
        !files.lost.is_empty() || files.held.values().any(|held| *held == 0)
    }

    /// Removes the files that no index in memory has and that are not `named`. One that cannot be
    /// removed is removed by the next opening.
    pub fn remove_unused(&self, named: &BTreeSet<PageFileId>) {
        let mut files = self.files.lock();
        let unused = files
            .held
            .extract_if(.., |id, held| *held == 0 && !named.contains(id));
        let unused: Vec<PageFileId> = unused.map(|(id, _)| id).collect();
        files.lost.retain(|id, _| named.contains(id));
        if !unused.is_empty() && files.held.is_empty() {
            self.taken_bytes
                .fetch_sub(self.budget_bytes, Ordering::Relaxed);
        }
        drop(files);
        for id in unused {
            let _ = self.pages.drop_file(id);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
