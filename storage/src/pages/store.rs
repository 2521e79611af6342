//! The page store: files, the frame table, reads and writes of pages.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use strandline_base::sync::{AtomicU64, AtomicUsize, Mutex, Ordering, RwLock};
use strandline_base::{Error, Result};
use strandline_device::{Device, Tier};

use super::buffers::Buffers;
use super::clock::Clock;
use super::file::{PageFile, page_file_name};
use super::files::{PageFiles, block_of};
use super::frame::{Frame, PageRead};
use super::header::{PAGE_BYTES, PageImage};
use super::read_ahead::ReadAhead;
use super::space::{self, Space};
use super::{Access, PageFileId, PageId, PageLog, PageNumber, PageSettings};
use crate::pool::Pool;
use crate::ssd_cache::{Checkpoint, Settings as CacheSettings, SsdCache};

/// Parts of the frame table, each under its own lock.
const SHARDS: usize = 16;
/// The boundary before the first commit or checkpoint.
pub(super) const UNSET: u64 = u64::MAX;

type Shard = Mutex<HashMap<PageId, Arc<Frame>>>;

/// Counts since the start, for inspection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageStats {
    /// pages in memory
    pub frames: usize,
    /// pages that memory may hold at present, if the pool has no frame
    pub frames_max: usize,
    /// pages read from their files or from the SSD cache
    pub reads: u64,
    /// pages written to their files
    pub writes: u64,
    /// how often pages that could not be written stayed beyond the budget
    pub excused: u64,
}

/// The pages of one database.
#[derive(Debug)]
pub struct PageStore {
    pub(super) device: Arc<dyn Device>,
    pub(super) log: Arc<dyn PageLog>,
    pub(super) files: Arc<PageFiles>,
    /// between memory and the files
    pub(super) cache: Option<SsdCache>,
    pub(super) shards: Vec<Shard>,
    pub(super) clock: Mutex<Clock>,
    pub(super) read_ahead: ReadAhead,
    pub(super) buffers: Buffers,
    /// the pool whose memory the frames take
    pub(super) pool: Arc<Pool>,
    /// bound on their bytes beside the pool's budget
    pub(super) bytes_max: usize,
    /// frames in the table
    frames: AtomicUsize,
    reads: AtomicU64,
    writes: AtomicU64,
    /// how often pages that could not be written stayed beyond the budget
    pub(super) excused: AtomicU64,
    /// held shared from a commit's append to its last new frame (invariant 7)
    pub(super) gate: RwLock<()>,
    /// pages with an LSN up to this one are logged as full images
    pub(super) boundary: AtomicU64,
    pub(super) checkpointing: Mutex<()>,
}

impl PageStore {
    /// A store without files.
    pub fn new(
        device: Arc<dyn Device>,
        log: Arc<dyn PageLog>,
        settings: PageSettings,
    ) -> Arc<Self> {
        let files = PageFiles::new(Arc::clone(&device), settings.database_id);
        Self::assemble(device, log, &settings, Arc::new(files), None)
    }

    /// A store whose pages go through a persistent cache on the fast tier of `device`
    /// \[SSD-DB §2.4\]. The caller drives the cache's steps ([`PageStore::cache`]).
    ///
    /// # Errors
    /// Those of [`SsdCache::open`].
    pub fn with_cache(
        device: Arc<dyn Device>,
        log: Arc<dyn PageLog>,
        settings: PageSettings,
        cache: CacheSettings,
    ) -> Result<Arc<Self>> {
        let files = Arc::new(PageFiles::new(Arc::clone(&device), settings.database_id));
        let cache = SsdCache::open(Arc::clone(&device), files.clone(), cache)?;
        files.end_opening();
        let names = device.list()?;
        for file in cache.files() {
            let id = u32::try_from(file).ok().map(PageFileId);
            let is_there = id.is_some_and(|id| names.contains(&page_file_name(id)));
            if !is_there {
                cache.forget_file(file);
            }
        }
        Ok(Self::assemble(device, log, &settings, files, Some(cache)))
    }

    fn assemble(
        device: Arc<dyn Device>,
        log: Arc<dyn PageLog>,
        settings: &PageSettings,
        files: Arc<PageFiles>,
        cache: Option<SsdCache>,
    ) -> Arc<Self> {
        let store = Arc::new(Self {
            read_ahead: ReadAhead::new(Arc::clone(&device), Arc::clone(&settings.pool)),
            buffers: Buffers::default(),
            device,
            log,
            clock: Mutex::new(Clock::new(Arc::clone(&settings.pool))),
            pool: Arc::clone(&settings.pool),
            bytes_max: settings.bytes_max,
            files,
            cache,
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            frames: AtomicUsize::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            excused: AtomicU64::new(0),
            gate: RwLock::new(()),
            boundary: AtomicU64::new(UNSET),
            checkpointing: Mutex::new(()),
        });
        let pages: Weak<Self> = Arc::downgrade(&store);
        store.pool.set_pages(pages);
        store
    }

    /// Creates and opens a file without pages on the capacity tier. On return it is durable with
    /// its name.
    ///
    /// # Errors
    /// Those of the device; then the file is removed, or it is left for the caller to remove at
    /// the next opening.
    pub fn create_file(&self, id: PageFileId) -> Result<()> {
        self.create_file_on(Tier::Capacity, id)
    }

    /// [`PageStore::create_file`] on the fast tier. The file's pages do not go through the SSD
    /// cache.
    ///
    /// # Errors
    /// Those of [`PageStore::create_file`].
    pub fn create_fast_file(&self, id: PageFileId) -> Result<()> {
        self.create_file_on(Tier::Fast, id)
    }

    fn create_file_on(&self, tier: Tier, id: PageFileId) -> Result<()> {
        let name = page_file_name(id);
        let tier = match self.device.is_written_once(tier) {
            true => Tier::Fast,
            false => tier,
        };
        let file = self.device.create_on(tier, &name)?;
        let created = (|| -> Result<PageFile> {
            let mut file = PageFile::of(&*self.device, self.files.database_id, id, file)?;
            let failure = self.cache.as_ref().and_then(SsdCache::failure);
            file.is_cached &= failure.is_none();
            let mut map = PageImage::zeroed();
            space::set_map_pages(&mut map.body, 1);
            space::set_used(&mut map.body, 0, true);
            file.grow_for(PageNumber(0))?;
            file.write_bytes(PageNumber(0), &file.encode(PageNumber(0), &map))?;
            file.sync()?;
            self.device.sync_directory()?;
            Ok(file)
        })();
        match created {
            Ok(file) => {
                self.files.insert(file);
                Ok(())
            }
            Err(e) => {
                // If that fails too, the next opening removes the file.
                let _ = self.device.remove(&name);
                Err(e.context(format!("cannot create \"{name}\"")))
            }
        }
    }

    /// Opens an existing file. Nothing of it is read before redo has ended or a page is asked for.
    ///
    /// # Errors
    /// 58P01 if there is no such file.
    pub fn open_file(&self, id: PageFileId) -> Result<()> {
        self.files.open(id).map(drop)
    }

    /// Closes a file and forgets its pages, written or not. The file stays.
    pub fn close_file(&self, id: PageFileId) {
        if let Some(file) = self.files.remove(id) {
            file.fail(file.closed());
            for shard in &self.shards {
                let mut shard = shard.lock();
                let before = shard.len();
                shard.retain(|page, _| page.file != id);
                self.remove_frames(before - shard.len());
            }
            self.clock.lock().forget_file(id);
        }
        if let Some(cache) = &self.cache {
            cache.forget_file(id.0.into());
        }
    }

    /// Closes and removes a file. Its name is gone for good after the device's next
    /// `sync_directory`.
    ///
    /// # Errors
    /// Those of the device; the file is closed all the same.
    pub fn drop_file(&self, id: PageFileId) -> Result<()> {
        self.close_file(id);
        self.device.remove(&page_file_name(id))
    }

    /// The ids of the open files.
    pub fn files(&self) -> Vec<PageFileId> {
        let mut ids: Vec<PageFileId> = self.files.all().iter().map(|file| file.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Whether the file is open and was not closed by a failure.
    ///
    /// # Errors
    /// The failure.
    pub fn check_usable(&self, id: PageFileId) -> Result<()> {
        self.file(id)?.check_usable()
    }

    /// Closes a file until it is opened again: every use of it gives `failure`.
    pub fn fail_file(&self, id: PageFileId, failure: Error) {
        if let Ok(file) = self.file(id) {
            file.fail(failure);
        }
    }

    /// The length of an open file in bytes.
    ///
    /// # Errors
    /// 58P01 if it is not open.
    pub fn file_bytes(&self, id: PageFileId) -> Result<u64> {
        Ok(self.file(id)?.pages() * PAGE_BYTES as u64)
    }

    pub(super) fn file(&self, id: PageFileId) -> Result<Arc<PageFile>> {
        self.files.get(id)
    }

    /// The page under a shared latch.
    ///
    /// # Errors
    /// XX001 with file and page for damage, 58030 if the page cannot be read; the errors of writing
    /// another page, if pages that cannot be written exceed the budget by a quarter.
    pub fn read(&self, file: PageFileId, number: PageNumber, access: Access) -> Result<PageRead> {
        loop {
            let frame = self.frame(PageId { file, number }, access)?;
            if let Some(image) = frame.latch_shared() {
                let read = PageRead::of(frame, image);
                return Ok(read);
            }
            self.forget(&frame);
        }
    }

    /// The SSD cache, if pages of `file` go through it.
    pub(super) fn cache_of(&self, file: &PageFile) -> Option<&SsdCache> {
        self.cache.as_ref().filter(|_| file.is_cached)
    }

    /// The SSD cache, whose steps the caller drives ([`SsdCache::is_step_due`]).
    pub fn cache(&self) -> Option<&SsdCache> {
        self.cache.as_ref()
    }

    /// Counts since the start.
    pub fn stats(&self) -> PageStats {
        PageStats {
            frames: self.frames(),
            frames_max: self.frames_max(),
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            excused: self.excused.load(Ordering::Relaxed),
        }
    }

    fn shard(&self, id: PageId) -> &Shard {
        let hash = (id.file.0 ^ id.number.0.rotate_left(16)).wrapping_mul(0x9e37_79b9) >> 16;
        &self.shards[hash as usize % SHARDS]
    }

    /// The frame in the table, if there is one.
    pub(super) fn cached(&self, id: PageId) -> Option<Arc<Frame>> {
        self.shard(id).lock().get(&id).map(Arc::clone)
    }

    /// The frames in the table, a part of the table at a time.
    pub(super) fn all_frames(&self) -> impl Iterator<Item = Vec<Arc<Frame>>> {
        let shards = self.shards.iter();
        shards.map(|shard| shard.lock().values().map(Arc::clone).collect())
    }

    /// The frame in the table, or a new one and true.
    pub(super) fn enter(&self, id: PageId, new: impl FnOnce() -> Frame) -> (Arc<Frame>, bool) {
        let mut shard = self.shard(id).lock();
        if let Some(frame) = shard.get(&id) {
            return (Arc::clone(frame), false);
        }
        let frame = Arc::new(new());
        shard.insert(id, Arc::clone(&frame));
        self.frames.fetch_add(1, Ordering::Relaxed);
        self.pool.add_page_bytes(PAGE_BYTES);
        (frame, true)
    }

    fn remove_frames(&self, count: usize) {
        self.frames.fetch_sub(count, Ordering::Relaxed);
        self.pool.remove_page_bytes(count * PAGE_BYTES);
    }

    /// Frames in the table.
    pub(super) fn frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    /// Takes a frame that is gone out of the table.
    pub(super) fn forget(&self, frame: &Arc<Frame>) {
        let mut shard = self.shard(frame.id).lock();
        let is_there = shard
            .get(&frame.id)
            .is_some_and(|there| Arc::ptr_eq(there, frame));
        if is_there {
            shard.remove(&frame.id);
            self.remove_frames(1);
        }
    }

    /// The frame of a page, which is read if it is not in memory.
    pub(super) fn frame(&self, id: PageId, access: Access) -> Result<Arc<Frame>> {
        let found = self.cached(id);
        let frame = match found {
            Some(frame) => frame,
            None => {
                let file = self.file(id.file)?;
                let (frame, is_new) = self.enter(id, || Frame::loading(id, file));
                if is_new {
                    return self.load(frame, access);
                }
                frame
            }
        };
        frame.file.check_usable()?;
        self.await_ahead(&frame);
        if frame.note_use(access) {
            // The device goes on with the next reads while this page is used.
            self.handle_ready_arrivals();
        }
        Ok(frame)
    }

    fn load(&self, frame: Arc<Frame>, access: Access) -> Result<Arc<Frame>> {
        if access == Access::Random {
            frame.mark_random();
        }
        let image = self
            .make_room()
            .and_then(|()| self.read_image(&frame.file, frame.id.number, access));
        match image {
            Ok(image) => {
                self.note_read();
                frame.fill(image);
                self.clock.lock().push(Arc::clone(&frame));
                Ok(frame)
            }
            Err(e) => {
                self.give_up(&frame);
                Err(e)
            }
        }
    }

    /// Counts a page that was read.
    pub(super) fn note_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// The newest image of a page outside memory: the SSD cache's, else the file's; zeros for a
    /// page that is not in use (invariant 10). The caller has seen to it that nobody evicts the
    /// page meanwhile.
    pub(super) fn read_image(
        &self,
        file: &PageFile,
        number: PageNumber,
        access: Access,
    ) -> Result<PageImage> {
        file.check_usable()?;
        if file.is_unused(number) {
            return Ok(PageImage::zeroed());
        }
        let cached = match self.cache_of(file) {
            Some(cache) => cache.read(block_of(file.id, number), access)?,
            None => None,
        };
        let bytes = match cached {
            Some(bytes) => bytes,
            None => file.read_bytes(number, self.buffers.take())?,
        };
        file.decode(number, bytes)
    }

    /// Writes a page if it is dirty, after any write of it that runs: to its file, or to the SSD
    /// cache by way of an eviction or of a checkpoint.
    pub(super) fn store(&self, frame: &Frame, checkpoint: Option<&Checkpoint<'_>>) -> Result<()> {
        frame.file.check_usable()?;
        let Some(image) = frame.begin_store() else {
            return Ok(());
        };
        let stored = self
            .log
            .make_durable(image.lsn)
            .and_then(|()| self.write_image(frame, &image, checkpoint));
        self.writes.fetch_add(1, Ordering::Relaxed);
        frame.end_store(stored.is_err());
        stored
    }

    fn write_image(
        &self,
        frame: &Frame,
        image: &PageImage,
        checkpoint: Option<&Checkpoint<'_>>,
    ) -> Result<()> {
        let bytes = frame.file.encode(frame.id.number, image);
        let block = block_of(frame.id.file, frame.id.number);
        match (self.cache_of(&frame.file), checkpoint) {
            (Some(_), Some(checkpoint)) => checkpoint.write(block, &bytes).map(drop),
            (Some(cache), None) => cache.evict(block, &bytes, true, frame.access()).map(drop),
            (None, _) => frame.file.write_bytes(frame.id.number, &bytes),
        }
    }

    /// Offers a clean page that leaves memory to the SSD cache.
    pub(super) fn hand_over(&self, frame: &Frame, image: &PageImage) {
        // A page that is not in use may be behind the end of its file.
        let cache = self.cache_of(&frame.file);
        if let Some(cache) = cache.filter(|_| !frame.file.is_unused(frame.id.number)) {
            let bytes = frame.file.encode(frame.id.number, image);
            let block = block_of(frame.id.file, frame.id.number);
            // The file has the page: nothing is lost if the cache does not take it.
            let _ = cache.evict(block, &bytes, false, frame.access());
        }
    }

    /// Reads the map of `file` unless it is known.
    pub(super) fn load_space(&self, file: &Arc<PageFile>) -> Result<()> {
        // No change ends while the space is unknown, so the pages read belong together.
        if file.space.lock().is_some() {
            return Ok(());
        }
        let mut space = Space::default();
        let first = self.read(file.id, PageNumber(0), Access::Random)?;
        let maps = space::map_pages(&first);
        if maps == 0 || !space::is_used(&first, 0) {
            let what = "page 0 is not the first page of a space map";
            return Err(Error::corrupt(file.place(PageNumber(0)), what));
        }
        space.add_map(0, &first);
        drop(first);
        for map in (1..maps).map(|k| k * space::MAPPED_PAGES) {
            let page = self.read(file.id, PageNumber(map), Access::Random)?;
            space.add_map(map, &page);
        }
        file.space.lock().get_or_insert(space);
        Ok(())
    }
}

impl Drop for PageStore {
    fn drop(&mut self) {
        self.remove_frames(self.frames());
    }
}
