//! Immutable files: opened on first use, closed under pressure, removed with the last reference.

use super::windows::{Window, Windows, joined};
use super::{Access, Extent};
use crate::block_cache::BlockCache;
use crate::block_key::BlockKey;
use crate::pool::Pool;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use strandline_base::sync::Mutex;
use strandline_base::{Error, Result};
use strandline_device::{Device, File, ReadAt, StartedRead, Tier, path_of};

/// The most files of one database that are open at the same time. Processes are commonly limited to
/// 1,024 open files, and a large table has more.
pub const OPEN_FILES_MAX: usize = 512;

/// The longest piece in which the block cache has what a scan has read.
const PIECE_BYTES: u32 = 256 << 10;

/// A kind of files, defined by the module of their format.
#[derive(Debug)]
pub struct FileKind {
    /// what such a file is, for messages
    pub name: &'static str,
    /// bytes of the header
    pub header_bytes: u64,
    /// bytes of the shortest file
    pub bytes_min: u64,
    /// checks the bytes of a header
    pub check: fn(&StoredFile, &[u8]) -> Result<()>,
}

/// One immutable file.
#[derive(Debug)]
pub struct StoredFile {
    kind: &'static FileKind,
    id: u64,
    name: String,
    files: Arc<DataFiles>,
    handle: Handle,
    is_cacheable: OnceLock<bool>,
    remove_on_drop: AtomicBool,
}

impl StoredFile {
    /// A file of number `id` that exists, or that will be created.
    pub fn new(kind: &'static FileKind, id: u64, name: String, files: &Arc<DataFiles>) -> Self {
        Self {
            kind,
            id,
            name,
            files: files.clone(),
            handle: Handle::default(),
            is_cacheable: OnceLock::new(),
            remove_on_drop: AtomicBool::new(false),
        }
    }

    /// The file's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// File and offset, for messages.
    pub fn place(&self, offset: u64) -> String {
        let path = path_of(&*self.files.device, &self.name);
        format!("file {path}, offset {offset}")
    }

    /// Sets the open handle of a file that has just been written.
    pub fn put(&self, file: Arc<dyn File>) {
        *self.handle.lock() = Some(file);
        self.files.note_open(&self.handle);
    }

    /// Removes the file when the last reference is dropped.
    pub fn remove_when_unused(&self) {
        self.remove_on_drop.store(true, Ordering::Release);
    }

    /// The file's length in bytes.
    pub fn len(&self) -> Result<u64> {
        self.open()?.len()
    }

    /// Whether the file has no byte.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reads the bytes of `extent` from the device into `memory`, replacing its contents. The owner
    /// of `memory` accounts for it: a frame in the pool's budget, other readers themselves.
    ///
    /// # Errors
    /// The errors of the device and of the header's check. An extent beyond the file is a
    /// corruption error. The caller checks checksums.
    pub fn read(&self, extent: Extent, access: Access, memory: &mut Vec<u8>) -> Result<()> {
        self.size(memory, extent)?;
        self.read_device(extent.offset, access, memory)
    }

    /// Reads one block as [`StoredFile::read`] does, and returns the result of `check`, which
    /// compares its checksum. A random read of a file on the capacity tier goes through the block
    /// cache, which gets only blocks that have passed their check, and through the windows of
    /// scans.
    ///
    /// # Errors
    /// Those of [`StoredFile::read`] and of `check`.
    pub fn read_block<R>(
        &self,
        extent: Extent,
        access: Access,
        memory: &mut Vec<u8>,
        check: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        self.size(memory, extent)?;
        if extent.len == 0 {
            return check(&[]);
        }
        match access {
            Access::Random => {
                let read =
                    |memory: &mut [u8]| self.read_window_or_device(extent.offset, access, memory);
                self.read_cached(extent.offset, memory, read, check)
            }
            Access::Sequential => {
                self.read_device(extent.offset, access, memory)?;
                check(memory)
            }
        }
    }

    /// Reads what a scan keeps, and returns the result of `check`, which compares its checksums. On
    /// an object store it goes through the windows of scans and the block cache, in pieces, since a
    /// request takes as long as many reads of the fast tier. Of a directory it goes past the cache,
    /// so that scans do not wash it out.
    ///
    /// # Errors
    /// Those of [`StoredFile::read`] and of `check`.
    pub fn read_scanned<R>(
        &self,
        extent: Extent,
        memory: &mut Vec<u8>,
        check: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        self.size(memory, extent)?;
        let cache = self.cache().filter(|_| self.files.is_object_store);
        let Some(cache) = cache.filter(|_| extent.len > 0) else {
            self.read_window_or_device(extent.offset, Access::Sequential, memory)?;
            return check(memory);
        };
        let piece_bytes = piece_bytes(cache) as usize;
        let block = |at: usize, piece: &[u8]| BlockKey {
            file: self.id,
            offset: extent.offset + (at * piece_bytes) as u64,
            len: piece.len() as u32,
        };
        let mut pieces = memory.chunks_mut(piece_bytes).enumerate();
        if pieces.all(|(at, piece)| cache.read(block(at, piece), piece)) {
            return check(memory);
        }
        self.read_window_or_device(extent.offset, Access::Sequential, memory)?;
        let checked = check(memory)?;
        for (at, piece) in memory.chunks(piece_bytes).enumerate() {
            cache.admit(block(at, piece), piece);
        }
        Ok(checked)
    }

    /// Whether [`StoredFile::read_scanned`] would make a request for `extent` now: neither the
    /// block cache nor a window has it.
    pub fn scan_needs_request(&self, extent: Extent) -> bool {
        let is_cached = || {
            self.cache().is_some_and(|cache| {
                let piece_bytes = u64::from(piece_bytes(cache));
                let ends = extent.offset + extent.len;
                let mut pieces = (extent.offset..ends).step_by(piece_bytes as usize);
                pieces.all(|offset| {
                    let len = piece_bytes.min(ends - offset);
                    cache.has(self.block(Extent { offset, len }))
                })
            })
        };
        extent.len > 0 && !self.files.windows.has(self.id, extent) && !is_cached()
    }

    /// Whether [`StoredFile::read_block`] with random access would make a request for `extent` now.
    pub fn block_needs_request(&self, extent: Extent) -> bool {
        let is_cached = || {
            self.cache()
                .is_some_and(|cache| cache.has(self.block(extent)))
        };
        extent.len > 0 && !self.files.windows.has(self.id, extent) && !is_cached()
    }

    /// Starts windows of `extents`, for a scan whose windows have `own` bytes. Extents that are
    /// close together share one. Ends at the first window for which there is no room; whether there
    /// was room for all.
    pub fn start_windows(
        &self,
        extents: Vec<Extent>,
        own: usize,
        pool: &Arc<Pool>,
        started: &mut Vec<Arc<Window>>,
    ) -> bool {
        let mut own = own;
        for extent in joined(extents) {
            let windows = &self.files.windows;
            let start = || self.start_read(extent);
            let Some(window) = windows.start((self.id, extent), own, pool, start) else {
                return false;
            };
            own += window.memory_bytes();
            self.files.count_read(Access::Sequential);
            started.push(window);
        }
        true
    }

    /// Starts a read of the file, whose header is not checked: the reader's checksums have the
    /// file's number.
    fn start_read(&self, extent: Extent) -> Option<Box<dyn StartedRead>> {
        // The lock is held while another thread opens the file, which may take a request.
        let open = self.handle.try_lock().and_then(|handle| handle.clone());
        let file = match open {
            Some(file) => file,
            None => self.files.device.open(&self.name).ok()?,
        };
        file.start_read(extent.offset, extent.len)
    }

    fn block(&self, extent: Extent) -> BlockKey {
        BlockKey {
            file: self.id,
            offset: extent.offset,
            len: extent.len as u32,
        }
    }

    /// Compares the header on the device, past the block cache.
    ///
    /// # Errors
    /// XX001 for a damaged one; those of the device.
    pub fn verify_header(&self) -> Result<()> {
        let mut header = vec![0; self.kind.header_bytes as usize];
        self.read_device(0, Access::Sequential, &mut header)?;
        (self.kind.check)(self, &header)
    }

    /// Gives `memory` the length of `extent`.
    pub(super) fn size(&self, memory: &mut Vec<u8>, extent: Extent) -> Result<()> {
        let len = usize::try_from(extent.len);
        let len = len.map_err(|_| Error::corrupt(self.place(extent.offset), "too long"))?;
        if memory.capacity() < len {
            *memory = vec![0; len];
        }
        memory.resize(len, 0);
        Ok(())
    }

    fn read_device(&self, offset: u64, access: Access, memory: &mut [u8]) -> Result<()> {
        let file = self.open()?;
        self.files.count_read(access);
        file.read_exact_at(memory, offset)
    }

    /// Reads from a window that has the bytes, else from the device.
    fn read_window_or_device(&self, offset: u64, access: Access, memory: &mut [u8]) -> Result<()> {
        if self.files.windows.read(self.id, offset, memory) {
            return Ok(());
        }
        self.read_device(offset, access, memory)
    }

    /// Reads from windows that have the bytes, the rest from the device as one batch, past the
    /// block cache.
    pub(super) fn read_device_batch(&self, reads: &mut [ReadAt<'_>], access: Access) -> Result<()> {
        let mut missing: Vec<ReadAt<'_>> = Vec::with_capacity(reads.len());
        for ReadAt { offset, buf } in reads {
            let offset = *offset;
            if !self.files.windows.read(self.id, offset, buf) {
                missing.push(ReadAt { offset, buf });
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let file = self.open()?;
        self.files.reads[access as usize].fetch_add(missing.len() as u64, Ordering::Relaxed);
        file.read_batch(&mut missing)
    }

    /// Fills `memory` if the block cache has the block.
    pub(super) fn read_from_cache(&self, offset: u64, memory: &mut [u8]) -> bool {
        let cached = self.cache().zip(self.block_key(offset, memory));
        cached.is_some_and(|(cache, block)| cache.read(block, memory))
    }

    /// Offers a block that has passed its check to the block cache.
    pub(super) fn offer(&self, offset: u64, bytes: &[u8]) {
        if let Some((cache, block)) = self.cache().zip(self.block_key(offset, bytes)) {
            cache.admit(block, bytes);
        }
    }

    /// The block of these bytes; None if it is longer than any that is cached.
    fn block_key(&self, offset: u64, bytes: &[u8]) -> Option<BlockKey> {
        let len = u32::try_from(bytes.len()).ok()?;
        let file = self.id;
        Some(BlockKey { file, offset, len })
    }

    /// Fills `memory` from the block cache or by `read`, and checks it.
    fn read_cached<R>(
        &self,
        offset: u64,
        memory: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<()>,
        check: impl FnOnce(&[u8]) -> Result<R>,
    ) -> Result<R> {
        if self.read_from_cache(offset, memory) {
            return check(memory);
        }
        read(memory)?;
        let checked = check(memory)?;
        self.offer(offset, memory);
        Ok(checked)
    }

    /// The block cache, if it is for this file.
    fn cache(&self) -> Option<&BlockCache> {
        let cache = self.files.block_cache.as_deref()?;
        let is_cacheable = || {
            let tiers = self.files.device.tiers();
            tiers.is_some_and(|tiers| tiers.tier_of(&self.name) == Tier::Capacity)
        };
        self.is_cacheable.get_or_init(is_cacheable).then_some(cache)
    }

    fn open(&self) -> Result<Arc<dyn File>> {
        let mut handle = self.handle.lock();
        if let Some(file) = &*handle {
            return Ok(file.clone());
        }
        let file = self.files.device.open(&self.name)?;
        let FileKind {
            name,
            header_bytes,
            bytes_min,
            check,
        } = self.kind;
        let len = file.len()?;
        if len < *bytes_min {
            let what = format!("only {len} bytes, no {name}");
            return Err(Error::corrupt(self.place(0), what));
        }
        let mut header = vec![0; *header_bytes as usize];
        let read = |header: &mut [u8]| file.read_exact_at(header, 0);
        self.read_cached(0, &mut header, read, |header| check(self, header))?;
        *handle = Some(file.clone());
        drop(handle);
        self.files.note_open(&self.handle);
        Ok(file)
    }
}

/// Bytes of the pieces in which the block cache has what scans have read.
fn piece_bytes(cache: &BlockCache) -> u32 {
    cache.block_bytes_max().min(PIECE_BYTES)
}

impl Drop for StoredFile {
    fn drop(&mut self) {
        if *self.remove_on_drop.get_mut() {
            // A file whose removal fails is an orphan, which the next open removes.
            let _ = self.files.device.remove(&self.name);
            if let Some(cache) = &self.files.block_cache {
                cache.forget_file(self.id);
            }
        }
    }
}

/// The handle of an open file, shared with the list of open files.
type Handle = Arc<OpenFile>;
/// The open file; None while it is closed.
type OpenFile = Mutex<Option<Arc<dyn File>>>;

/// The data files and runs of a database: their device, and the open ones. The file opened first is
/// closed first; the next read opens it again.
#[derive(Debug)]
pub struct DataFiles {
    device: Arc<dyn Device>,
    /// between reads of single rows and the capacity tier; on an object store scans, too
    block_cache: Option<Arc<BlockCache>>,
    /// the capacity tier is an object store
    is_object_store: bool,
    open: Mutex<VecDeque<Weak<OpenFile>>>,
    /// what scans have requested ahead
    windows: Windows,
    /// by [`Access`]
    reads: [AtomicU64; 2],
}

impl DataFiles {
    /// The files on `device`, none open, and no block cache.
    pub fn new(device: Arc<dyn Device>) -> Arc<Self> {
        Self::with_cache(device, None)
    }

    /// The files on `device`, none open, and a block cache for those on the capacity tier.
    pub fn with_cache(device: Arc<dyn Device>, block_cache: Option<Arc<BlockCache>>) -> Arc<Self> {
        let is_object_store = device.is_written_once(Tier::Capacity);
        Arc::new(Self {
            device,
            block_cache,
            is_object_store,
            open: Mutex::default(),
            windows: Windows::default(),
            reads: Default::default(),
        })
    }

    /// The device of the files.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The cache of blocks of the capacity tier.
    pub fn block_cache(&self) -> Option<&Arc<BlockCache>> {
        self.block_cache.as_ref()
    }

    /// Creates the file `name`, which must not exist, on `tier`. It is written and then given to a
    /// [`StoredFile`].
    pub fn create(&self, tier: Tier, name: &str) -> Result<Arc<dyn File>> {
        self.device.create_on(tier, name)
    }

    /// Whether the file `name` is on the fast tier of two.
    pub fn is_on_fast_tier(&self, name: &str) -> bool {
        let tiers = self.device.tiers();
        tiers.is_some_and(|tiers| tiers.tier_of(name) == Tier::Fast)
    }

    /// Whether scans read ahead: the reads of the capacity tier can be started without waiting.
    pub fn reads_ahead(&self) -> bool {
        self.is_object_store
    }

    /// Reads of files so far, without those that the block cache has served. A window is one
    /// sequential read, and the reads that it serves are none.
    pub fn reads(&self, access: Access) -> u64 {
        self.reads[access as usize].load(Ordering::Relaxed)
    }

    fn count_read(&self, access: Access) {
        self.reads[access as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The number of open files, without those that running reads hold.
    pub fn open_files(&self) -> usize {
        let open = self.open.lock();
        let is_open = |handle: &Handle| handle.lock().is_some();
        open.iter()
            .filter_map(Weak::upgrade)
            .filter(is_open)
            .count()
    }

    /// Lists an opened file; the caller must not hold its handle's lock.
    fn note_open(&self, handle: &Handle) {
        let mut open = self.open.lock();
        open.push_back(Arc::downgrade(handle));
        if open.len() <= OPEN_FILES_MAX {
            return;
        }
        let oldest = open.pop_front().and_then(|oldest| oldest.upgrade());
        drop(open);
        if let Some(oldest) = oldest {
            *oldest.lock() = None;
        }
    }
}

#[cfg(test)]
mod tests;
