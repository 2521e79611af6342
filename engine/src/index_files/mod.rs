//! The files of indexes: their numbers, who uses them, their memory, and their removal.
//!
//! An index with [`IndexStorage::Pages`](crate::catalog::index::IndexStorage) has a page file, one
//! with `Levels` a level file with its images, one with `Blocks` a page file of its tree and a
//! second one of its LIDBlocks, on the fast tier, with the next number. Its definition names the
//! first file. Pages are changed through `strandline_storage::pages`; the log's records of them are
//! in `log`. Indexes in levels log nothing (`levels`).
//!
//! Invariants:
//! 1. The file that the newest definition names is that of the index in memory, or it is *lost*: no
//!    opening uses it again. The file and the log from the last checkpoint's position on have all
//!    entries of the index.
//! 2. A file is durable with its name before the catalog that names it is committed.
//! 3. A file is removed when no index in memory has it ([`HeldFile`]) and no catalog that an
//!    opening may find names it: by a checkpoint, or by the opening.
//! 4. Both files of an index with LIDBlocks are in use, lost or removed together.
//! 5. A number is used once: it is above those of all files, of the manifest, and of all records
//!    that may be replayed.
//!
//! A file is lost when it was closed by a failed sync or by damage that the replay or a compaction
//! has met. The manifest names it before writers pass over its index, so that no opening takes the
//! file for complete. An opening builds such an index from the rows, in a new file.
//!
//! Memory: pages share the pool's budget with cached blocks (`strandline_storage::pool`). The
//! directory of the SSD cache ([`Settings::ssd_cache_memory_bytes`]) is taken from it while there
//! is such a cache. Each index in levels takes a head ([`Settings::index_heads`]), the lists of its
//! levels and its filters from it; its blocks are in the pool as other blocks are, and so are those
//! of filters for which there is no room ([`Settings::index_filters`]). The places of LIDBlocks are
//! taken from it, too ([`Settings::index_blocks_bytes`]).
//!
//! Lock order: `files` is held only to look and to change.
//!
//! Rooms from below: `log`, `blocks`, `levels`, `swept`, `cache`, then `held`, then `entries`,
//! `opening`, `background` and `removal`, which add methods to [`IndexFiles`].
//!
//! [`Settings::index_blocks_bytes`]: crate::Settings::index_blocks_bytes
//! [`Settings::index_filters`]: crate::Settings::index_filters
//! [`Settings::index_heads`]: crate::Settings::index_heads
//! [`Settings::ssd_cache_memory_bytes`]: crate::Settings::ssd_cache_memory_bytes

mod background;
mod blocks;
mod cache;
mod entries;
mod held;
mod levels;
mod log;
mod opening;
mod removal;
mod swept;

pub(crate) use entries::{FileEntries, FileKeys};
pub(crate) use held::HeldFile;
pub(crate) use log::IndexRecord;
pub(crate) use opening::WantedLevels;

use crate::catalog::Catalog;
use crate::settings::Settings;
use cache::{LostFiles, Opening};
use held::Files;
use log::IndexLog;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Counter; // counts bytes; no part of the protocol
use strandline_base::sync::{AtomicBool, AtomicU32, Mutex, Ordering};
use strandline_base::{CommitTs, Result, StorageId};
use strandline_device::Device;
use strandline_index::{FilterMemory, HeadMemory};
use strandline_storage::level_blocks::BlockQueue;
use strandline_storage::pages::{PageSettings, PageStore, page_file_name};
use strandline_storage::pool::Pool;
use strandline_storage::ssd_cache::SsdCache;
use strandline_storage::wal::Wal;
use strandline_txn::TxnManager;
use swept::SweptFrom;

/// See the module's documentation.
pub(crate) struct IndexFiles {
    device: Arc<dyn Device>,
    settings: Settings,
    pages: Arc<PageStore>,
    log: Arc<IndexLog>,
    /// keeps blocks of levels that lookups read
    pool: Arc<Pool>,
    /// reads several blocks of levels at the same time
    level_queue: Arc<BlockQueue>,
    /// the memory of the heads of all indexes in levels
    heads: Arc<HeadMemory>,
    /// the memory of the filters of all indexes in levels
    filters: Arc<FilterMemory>,
    /// files that cannot be used because the SSD cache was lost
    lost_with_cache: Option<LostFiles>,
    txns: Arc<TxnManager>,
    /// what images of level files have to cover, as an opening finds it
    wanted: Mutex<WantedLevels>,
    /// the next free number
    next: AtomicU32,
    files: Mutex<Files>,
    swept: SweptFrom,
    /// bytes of the SSD cache's directory
    directory_bytes: Counter,
    /// a step of the SSD cache has failed during replay
    has_failing_steps: AtomicBool,
    /// bytes that indexes take from the cache's share
    taken_bytes: Arc<Counter>,
}

/// The database that the files belong to, as an opening finds it.
pub(crate) struct Database<'a> {
    pub device: &'a Arc<dyn Device>,
    pub id: u128,
    /// identifies its pair of directories; None: it has one directory
    pub pair: Option<u128>,
    /// the last checkpoint went through an SSD cache
    pub was_cached: bool,
    /// the frames of its blocks
    pub pool: &'a Arc<Pool>,
    /// as of the last checkpoint; for messages
    pub catalog: Option<&'a Catalog>,
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
    ) -> Result<Arc<Self>> {
        let taken_bytes = database.pool.taken_bytes();
        let log = Arc::new(IndexLog::default());
        let opening = Opening {
            device: database.device.clone(),
            log: log.clone(),
            pages: PageSettings {
                pool: database.pool.clone(),
                bytes_max: settings.index_page_bytes_max,
                database_id: database.id,
            },
            pair: database.pair.map(|pair| pair ^ database.id),
            was_cached: database.was_cached,
        };
        let name = |file| {
            let index = database
                .catalog
                .and_then(|catalog| catalog.index_of_pages(file));
            index.unwrap_or_else(|| page_file_name(file))
        };
        let (pages, lost_with_cache) = opening.open(settings, &name)?;
        let directory_bytes = match pages.cache() {
            Some(_) => settings.ssd_cache_memory_bytes(),
            None => 0,
        };
        taken_bytes.fetch_add(directory_bytes, Ordering::Relaxed);
        Ok(Arc::new(Self {
            device: database.device.clone(),
            settings: settings.clone(),
            pages,
            log,
            pool: database.pool.clone(),
            level_queue: BlockQueue::new(database.device.clone()),
            heads: Arc::new(settings.index_heads()),
            filters: Arc::new(settings.index_filters()),
            lost_with_cache,
            directory_bytes: Counter::new(directory_bytes),
            has_failing_steps: AtomicBool::new(false),
            txns: txns.clone(),
            wanted: Mutex::default(),
            next: AtomicU32::new(1),
            files: Mutex::default(),
            swept: SweptFrom::default(),
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

    /// By storage from when on indexes in files have the entries of every version; absent: always.
    /// Forgets the storages that are not kept.
    pub fn swept_from(&self, is_kept: impl Fn(StorageId) -> bool) -> BTreeMap<StorageId, CommitTs> {
        self.swept.retain(is_kept);
        self.swept.all()
    }

    /// Bytes of the log's records of pages since the last call.
    pub fn take_logged(&self) -> u64 {
        self.log.take_logged()
    }

    /// Bytes that the files take from the cache's share, beside those of indexes: the directory of
    /// the SSD cache, and what transfers of pages need.
    pub fn taken_bytes(&self) -> usize {
        self.directory_bytes.load(Ordering::Relaxed) + self.pages.read_ahead_bytes()
    }

    /// Writes the pages that leave memory as soon as they are written.
    pub fn write_back(&self) {
        self.pages.write_back();
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
