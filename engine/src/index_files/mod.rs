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
//! is such a cache. Each index in levels takes a head ([`Settings::index_heads`]) and the lists of
//! its levels from it; its blocks are in the pool as other blocks are. The places of LIDBlocks are
//! taken from it, too ([`Settings::index_blocks_bytes`]).
//!
//! Lock order: `files` is held only to look and to change.
//!
//! [`Settings::index_blocks_bytes`]: crate::Settings::index_blocks_bytes
//! [`Settings::index_heads`]: crate::Settings::index_heads
//! [`Settings::ssd_cache_memory_bytes`]: crate::Settings::ssd_cache_memory_bytes

mod blocks;
mod cache;
mod levels;
mod log;
mod swept;

pub(crate) use log::IndexRecord;

use crate::catalog::index::IndexStorage;
use crate::catalog::index_file::{IndexFile, blocks_file};
use crate::settings::Settings;
use cache::Opening;
use levels::LevelIndex;
use log::IndexLog;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize as Counter; // counts bytes; no part of the protocol
use std::sync::{Arc, Weak};
use strandline_base::sync::{AtomicBool, AtomicU32, Mutex, Ordering};
use strandline_base::{CommitTs, Error, ErrorKind, Result, SqlState, StorageId};
use strandline_device::Device;
use strandline_index::{
    AccessMethod, FdIndexSettings, HeadMemory, LidIndex, PagedIndex, PagedIndexSettings, PartOrder,
    SpatialIndex, SpatialIndexSettings, TreeFigures,
};
use strandline_storage::level_blocks::BlockQueue;
use strandline_storage::pages::{PageFileId, PageSettings, PageStore, Redo};
use strandline_storage::pool::Pool;
use strandline_storage::ssd_cache::SsdCache;
use strandline_storage::wal::{Lsn, Wal};
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
    /// files that were removed because the SSD cache was lost
    lost_with_cache: BTreeSet<PageFileId>,
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

/// The files of the database.
#[derive(Default)]
struct Files {
    held: BTreeMap<IndexFile, Uses>,
    /// files that no opening uses again, and why
    lost: BTreeMap<IndexFile, Error>,
}

/// The uses of a file.
#[derive(Default)]
struct Uses {
    /// how many indexes in memory have it
    count: usize,
    /// that index, if it is in levels
    levels: Weak<LevelIndex>,
    /// that index, if it has LIDBlocks
    blocks: Weak<LidIndex>,
}

impl Files {
    /// The indexes in levels, by number.
    fn levels(&self) -> Vec<(IndexFile, Arc<LevelIndex>)> {
        let held = self.held.iter();
        held.filter_map(|(file, uses)| Some((*file, uses.levels.upgrade()?)))
            .collect()
    }

    /// The indexes with LIDBlocks, by number of the tree's file.
    fn blocks(&self) -> Vec<(IndexFile, Arc<LidIndex>)> {
        let held = self.held.iter();
        held.filter_map(|(file, uses)| Some((*file, uses.blocks.upgrade()?)))
            .collect()
    }

    /// The file of an index of which a page file is part.
    fn owner(&self, part: PageFileId) -> IndexFile {
        let mut held = self.held.keys();
        let owner = held.find(|file| file.page_files().any(|own| own == part));
        owner.copied().unwrap_or(IndexFile::Pages(part))
    }
}

/// The keys of an index in a file.
pub(crate) enum FileKeys {
    /// ordered by these parts
    Ordered(Vec<PartOrder>),
    /// points or boxes; on pages
    Boxes,
}

/// The entries of an index in a file, and the use of this file.
pub(crate) type FileEntries = (Arc<dyn AccessMethod>, HeldFile);

/// Does some steps of an index's compaction, or moves a block; whether there are more.
pub(crate) type Steps<'a> = &'a dyn Fn() -> Result<bool>;

/// How much of the log images of level files have to cover: bytes and 1.
#[derive(Default)]
pub(crate) struct WantedLevels {
    /// by number, as of the last checkpoint
    pub known: BTreeMap<u32, u64>,
    /// that of files that were made later
    pub others: u64,
}

impl WantedLevels {
    fn of(&self, number: u32) -> u64 {
        self.known.get(&number).copied().unwrap_or(self.others)
    }
}

/// The use of a file by an index in memory.
pub(crate) struct HeldFile {
    files: Arc<IndexFiles>,
    id: IndexFile,
    /// the index, if it is in levels
    levels: Option<Arc<LevelIndex>>,
}

impl HeldFile {
    /// The file.
    pub fn id(&self) -> IndexFile {
        self.id
    }

    /// The length of its parts in bytes; 0 of those that have been closed.
    pub fn bytes(&self) -> u64 {
        let levels = self.levels.as_ref().map_or(0, |levels| levels.file_bytes());
        let pages = self.id.page_files();
        let pages = pages.map(|id| self.files.pages.file_bytes(id).unwrap_or(0));
        levels + pages.sum::<u64>()
    }

    /// Reads every page that is in use, and appends the first damage. The check of an index in
    /// levels reads its blocks itself.
    pub fn check(&self, damage: &mut Vec<String>) {
        for id in self.id.page_files() {
            let checked = self.files.pages.check(id);
            damage.extend(checked.err().map(|error| error.to_string()));
        }
    }

    /// Figures of its levels, for which all blocks are read, if the index is in levels.
    pub fn level_figures(&self) -> Option<TreeFigures> {
        let levels = self.levels.as_ref()?;
        Some(levels.index.tree().figures())
    }

    /// An opened index has got the entries of all commits that its file may lack.
    pub fn set_complete(&self) {
        if let Some(levels) = &self.levels {
            levels.set_complete();
        }
    }

    /// What an index with LIDBlocks has in them now, in words; None: it has none. Reads them.
    ///
    /// # Errors
    /// Those of reading the blocks: XX001 if they are damaged.
    pub fn blocks(&self) -> Result<Option<String>> {
        let files = self.files.files.lock();
        let uses = files.held.get(&self.id);
        let index = uses.and_then(|uses| uses.blocks.upgrade());
        drop(files);
        index.map(|index| blocks::in_words(&index)).transpose()
    }

    /// Makes the entries durable that the log does not have: those of an index in levels.
    ///
    /// # Errors
    /// The device's and the log's.
    pub fn store_unlogged(&self) -> Result<()> {
        self.levels
            .as_ref()
            .map_or(Ok(()), |levels| levels.complete())
    }
}

impl Drop for HeldFile {
    fn drop(&mut self) {
        let mut files = self.files.files.lock();
        if let Some(held) = files.held.get_mut(&self.id) {
            held.count = held.count.saturating_sub(1);
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
    /// the frames of its blocks
    pub pool: &'a Arc<Pool>,
}

/// The outcome of a checkpoint of the files.
pub(crate) struct FilesCheckpoint {
    /// the replay of the files begins there, unless one has failed
    pub redo_from: Lsn,
    /// files that could not be stored, and that are to be tried again
    pub failed: Vec<(IndexFile, Error)>,
    /// by number of level file how much of the log the newest image covers
    pub levels: BTreeMap<u32, u64>,
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
        let (pages, lost_with_cache) = opening.open(settings)?;
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

    /// Recovery: the manifest has these positions.
    pub fn recover_wanted(&self, wanted: WantedLevels) {
        *self.wanted.lock() = wanted;
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

    /// Removes the files that are not `named` and opens the others. Returns those that cannot be
    /// opened.
    pub fn open(
        &self,
        device: &dyn Device,
        named: &BTreeSet<IndexFile>,
    ) -> Result<BTreeMap<IndexFile, Error>> {
        let found = device.list()?;
        let named_parts: BTreeSet<String> = named.iter().flat_map(|file| file.names()).collect();
        for name in &found {
            let Some(id) = IndexFile::of_name(name) else {
                continue;
            };
            self.raise_next(id.next_number());
            if !named_parts.contains(name) {
                self.forget(id);
                device.remove(name)?;
            }
        }
        let mut missing = BTreeMap::new();
        for file in named {
            self.raise_next(file.next_number());
            let opened = match missing_part(*file, &found) {
                None => self.open_pages(*file),
                Some(error) => {
                    for part in file.names().filter(|part| found.contains(part)) {
                        device.remove(&part)?;
                    }
                    let mut pages = file.page_files();
                    let lost = pages.find(|id| self.lost_with_cache.contains(id));
                    Err(lost.map_or(error.clone(), |id| self.cause_of_loss(id, error)))
                }
            };
            match opened {
                Ok(()) => self.enter(*file, 0),
                Err(error) => drop(missing.insert(*file, error)),
            }
        }
        Ok(missing)
    }

    /// Opens all page files of an index, or none. Level files are read when their index is opened.
    fn open_pages(&self, file: IndexFile) -> Result<()> {
        let mut parts = file.page_files();
        let opened = parts.try_for_each(|id| {
            let opened = self.pages.open_file(id);
            opened.map_err(|error| self.cause_of_loss(id, error))
        });
        opened.inspect_err(|_| self.forget(file))
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
    /// Those of the device and of the log: 53100 on a full disk; 53200 for more indexes in levels
    /// than memory allows; XX000 for an index in memory, and for one of boxes that is not on pages.
    pub fn create(self: &Arc<Self>, storage: IndexStorage, keys: FileKeys) -> Result<FileEntries> {
        if storage == IndexStorage::Levels {
            self.check_heads()?;
        }
        let taken = |next: u32| next.checked_add(IndexFile::numbers(storage));
        let used = self
            .next
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        let used = used.map_err(|_| {
            let what = "all numbers of files of indexes have been used";
            Error::invalid(SqlState::PROGRAM_LIMIT_EXCEEDED, what)
        })?;
        let file = IndexFile::new(storage, used)
            .ok_or_else(|| Error::internal("an index in memory has no file"))?;
        // From the first moment on it is in use: a checkpoint removes the others.
        let mut held = self.hold(file);
        match (file, keys) {
            (IndexFile::Pages(id), FileKeys::Ordered(parts)) => {
                let settings = self.page_settings(parts);
                let index = PagedIndex::create(self.pages.clone(), id, settings)?;
                Ok((Arc::new(index), held))
            }
            (IndexFile::Pages(id), FileKeys::Boxes) => {
                let settings = self.spatial_settings();
                let index = SpatialIndex::create(self.pages.clone(), id, settings)?;
                Ok((Arc::new(index), held))
            }
            (IndexFile::Levels(_) | IndexFile::Blocks(_), FileKeys::Boxes) => {
                Err(boxes_beside_pages())
            }
            (IndexFile::Levels(id), FileKeys::Ordered(parts)) => {
                let settings = self.level_settings(parts);
                let index = LevelIndex::create(self.level_device(), &self.log, id, settings)?;
                Ok((self.use_levels(&mut held, index), held))
            }
            (IndexFile::Blocks(id), FileKeys::Ordered(parts)) => {
                let form = storage.blocks().map(blocks::form);
                let form = form.ok_or_else(|| Error::internal("an index without blocks"))?;
                let (files, settings) = ((id, blocks_file(id)), self.page_settings(parts));
                let index = LidIndex::create(self.pages.clone(), files, settings, form)?;
                Ok((self.use_blocks(file, index), held))
            }
        }
    }

    /// The index in open files. One on pages, with LIDBlocks or not, is as the replay of the log
    /// has left it, one in levels is as of its newest image.
    ///
    /// # Errors
    /// XX001 if it is damaged; the failure that has closed the file.
    pub fn open_index(self: &Arc<Self>, file: IndexFile, keys: FileKeys) -> Result<FileEntries> {
        let mut pages = file.page_files();
        pages.try_for_each(|id| self.pages.check_usable(id))?;
        match (file, keys) {
            (IndexFile::Pages(id), FileKeys::Ordered(parts)) => {
                let settings = self.page_settings(parts);
                let index = PagedIndex::open(self.pages.clone(), id, settings)?;
                Ok((Arc::new(index), self.hold(file)))
            }
            (IndexFile::Pages(id), FileKeys::Boxes) => {
                let settings = self.spatial_settings();
                let index = SpatialIndex::open(self.pages.clone(), id, settings)?;
                Ok((Arc::new(index), self.hold(file)))
            }
            (IndexFile::Levels(_) | IndexFile::Blocks(_), FileKeys::Boxes) => {
                Err(boxes_beside_pages())
            }
            (IndexFile::Levels(id), FileKeys::Ordered(parts)) => {
                let settings = self.level_settings(parts);
                let wanted = self.wanted.lock().of(id.0);
                let index =
                    LevelIndex::open(self.level_device(), &self.log, (id, wanted), settings)?;
                let mut held = self.hold(file);
                Ok((self.use_levels(&mut held, index), held))
            }
            (IndexFile::Blocks(id), FileKeys::Ordered(parts)) => {
                let (files, settings) = ((id, blocks_file(id)), self.page_settings(parts));
                let index = LidIndex::open(self.pages.clone(), files, settings)?;
                let held = self.hold(file);
                Ok((self.use_blocks(file, index), held))
            }
        }
    }

    fn page_settings(&self, parts: Vec<PartOrder>) -> PagedIndexSettings {
        let txns = self.txns.clone();
        PagedIndexSettings {
            memory: self.taken_bytes.clone(),
            ..PagedIndexSettings::new(parts, Arc::new(move || txns.oldest_snapshot()))
        }
    }

    fn spatial_settings(&self) -> SpatialIndexSettings {
        let txns = self.txns.clone();
        SpatialIndexSettings {
            memory: self.taken_bytes.clone(),
            ..SpatialIndexSettings::new(Arc::new(move || txns.oldest_snapshot()))
        }
    }

    fn level_settings(&self, parts: Vec<PartOrder>) -> FdIndexSettings {
        let txns = self.txns.clone();
        let mut settings = FdIndexSettings::new(parts, Arc::new(move || txns.oldest_snapshot()));
        settings.memory = self.taken_bytes.clone();
        settings.pool = self.pool.clone();
        settings.heads = Some(self.heads.clone());
        settings.tree.head_blocks = levels::HEAD_BLOCKS;
        settings.tree.batch_bytes = self.settings.index_batch_bytes();
        settings
    }

    /// Whether the head of another index fits.
    ///
    /// # Errors
    /// 53200 if the heads would take more than the share of indexes.
    fn check_heads(&self) -> Result<()> {
        if self.heads.has_room() {
            return Ok(());
        }
        let (taken, limit) = (self.heads.taken(), self.heads.limit());
        let what = format!(
            "the heads of {} indexes in levels take {taken} of the {limit} bytes that indexes may \
             take",
            self.files.lock().levels().len()
        );
        let error = Error::new(ErrorKind::Unavailable, SqlState::OUT_OF_MEMORY, what);
        Err(error.with_hint("Raise memory_bytes, or make the index with storage = 'pages'."))
    }

    fn hold(self: &Arc<Self>, id: IndexFile) -> HeldFile {
        self.enter(id, 1);
        HeldFile {
            files: self.clone(),
            id,
            levels: None,
        }
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

    fn level_device(&self) -> (&dyn Device, &Arc<BlockQueue>) {
        (&*self.device, &self.level_queue)
    }

    /// The index in levels of a held file.
    fn use_levels(&self, held: &mut HeldFile, index: LevelIndex) -> Arc<dyn AccessMethod> {
        let index = Arc::new(index);
        if let Some(uses) = self.files.lock().held.get_mut(&held.id) {
            uses.levels = Arc::downgrade(&index);
        }
        let entries = index.index.clone();
        held.levels = Some(index);
        entries
    }

    /// The index with LIDBlocks of a held file.
    fn use_blocks(&self, file: IndexFile, index: LidIndex) -> Arc<dyn AccessMethod> {
        let index = Arc::new(index.with_block_memory(self.settings.index_blocks_bytes()));
        if let Some(uses) = self.files.lock().held.get_mut(&file) {
            uses.blocks = Arc::downgrade(&index);
        }
        index
    }

    /// Adds a file unless it is known, and so many indexes that have it.
    fn enter(&self, id: IndexFile, uses: usize) {
        let mut files = self.files.lock();
        files.held.entry(id).or_default().count += uses;
    }

    /// Writes the changed pages of all page files and the images of all indexes in levels. Files
    /// that have been closed are lost from now on.
    ///
    /// # Errors
    /// Those of the log.
    pub fn checkpoint(&self) -> Result<FilesCheckpoint> {
        // Before the images are gathered: they have the entries of every commit up to there.
        let (redo_from, failures) = self.pages.checkpoint_each()?;
        let mut failed = Vec::new();
        for (id, failure) in failures {
            let file = self.files.lock().owner(id);
            match self.pages.check_usable(id) {
                Ok(()) => failed.push((file, failure)),
                Err(cause) => {
                    self.forget(file);
                    self.note_lost(file, cause);
                }
            }
        }
        let (held, mut levels) = (self.files.lock().levels(), BTreeMap::new());
        for (file, index) in held {
            match (index.checkpoint(), index.check_usable()) {
                (Ok(covers), _) => drop(levels.insert(file.number(), covers)),
                (Err(failure), Ok(())) => failed.push((file, failure)),
                (Err(_), Err(cause)) => self.note_lost(file, cause),
            }
        }
        Ok(FilesCheckpoint {
            redo_from,
            failed,
            levels,
        })
    }

    /// Calls `each` for the indexes in levels and those with LIDBlocks that are not pausing, with
    /// their next steps: of compactions that are under way or due, or the move of a nearly full
    /// block. The steps return whether there are more. Those of a compaction that has failed for
    /// good return its error, which a writer may have met.
    pub fn compact(
        &self,
        is_pausing: &dyn Fn(IndexFile) -> bool,
        each: &mut dyn FnMut(IndexFile, Steps<'_>),
    ) {
        let files = self.files.lock();
        let (levels, blocks) = (files.levels(), files.blocks());
        drop(files);
        for (file, index) in levels {
            if !is_pausing(file) {
                each(file, &|| index.compact());
            }
        }
        for (file, index) in blocks {
            let are_usable = file
                .page_files()
                .all(|id| self.pages.check_usable(id).is_ok());
            if are_usable && !is_pausing(file) {
                each(file, &|| index.flush_step());
            }
        }
    }

    /// Whether there are indexes with LIDBlocks.
    pub fn has_blocks(&self) -> bool {
        let files = self.files.lock();
        let mut held = files.held.keys();
        held.any(|file| matches!(file, IndexFile::Blocks(_)))
    }

    /// Modifications of the entries of all indexes in levels since they were opened.
    pub fn level_changes(&self) -> u64 {
        let levels = self.files.lock().levels();
        levels.iter().map(|(_, index)| index.changes()).sum()
    }

    /// Closes the page files of an index, which are about to be removed.
    pub fn forget(&self, id: IndexFile) {
        for id in id.page_files() {
            self.pages.close_file(id);
        }
    }

    /// No opening uses this file again.
    pub fn note_lost(&self, id: IndexFile, cause: Error) {
        self.files.lock().lost.insert(id, cause);
    }

    /// The files that no opening uses again, and why.
    pub fn lost(&self) -> BTreeMap<IndexFile, Error> {
        self.files.lock().lost.clone()
    }

    /// Whether there are files that no index in memory has.
    pub fn has_unused(&self) -> bool {
        let files = self.files.lock();
        !files.lost.is_empty() || files.held.values().any(|uses| uses.count == 0)
    }

    /// Removes the files that no index in memory has and that are not `named`. One that cannot be
    /// removed is removed by the next opening. A lost file is one until it is removed: the
    /// transaction that creates its index may commit later.
    pub fn remove_unused(&self, named: &BTreeSet<IndexFile>) {
        let mut files = self.files.lock();
        let unused = files
            .held
            .extract_if(.., |id, uses| uses.count == 0 && !named.contains(id));
        let unused: Vec<IndexFile> = unused.map(|(id, _)| id).collect();
        drop(files);
        let left = self.remove(&unused);
        let mut files = self.files.lock();
        let Files { held, lost } = &mut *files;
        lost.retain(|id, _| named.contains(id) || held.contains_key(id) || left.contains(id));
    }

    /// Removes the parts of files that are there. Returns the files of which a part is left.
    fn remove(&self, unused: &[IndexFile]) -> Vec<IndexFile> {
        unused.iter().for_each(|file| self.forget(*file));
        let present = match unused {
            [] => Ok(BTreeSet::new()),
            _ => self.device.list().map(BTreeSet::from_iter),
        };
        let Ok(present) = present else {
            return unused.to_vec();
        };
        let is_left = |file: &IndexFile| {
            let mut parts = file.names().filter(|part| present.contains(part));
            parts
                .try_for_each(|part| self.device.remove(&part))
                .is_err()
        };
        unused.iter().copied().filter(is_left).collect()
    }
}

/// The error of a file of which a part is not among the names.
fn missing_part(file: IndexFile, names: &[String]) -> Option<Error> {
    let part = file.names().find(|part| !names.contains(part))?;
    let what = format!("file \"{part}\" does not exist");
    Some(Error::invalid(SqlState::UNDEFINED_FILE, what))
}

#[cold]
fn boxes_beside_pages() -> Error {
    Error::internal("an index over points or boxes is on pages, without levels and LIDBlocks")
}

#[cfg(all(test, not(shuttle)))]
mod tests;
