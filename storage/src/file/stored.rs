//! Immutable files: opened on first use, closed under pressure, removed with the last reference.

use super::{Access, Extent};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use strandline_base::sync::Mutex;
use strandline_base::{Error, Result};
use strandline_device::{Device, File, Tier, path_of};

/// The most files of one database that are open at the same time. Processes are commonly limited to
/// 1,024 open files, and a large table has more.
pub const OPEN_FILES_MAX: usize = 512;

/// A kind of files, defined by the module of their format.
#[derive(Debug)]
pub struct FileKind {
    /// checks the header of a newly opened file
    pub check: fn(&StoredFile, &dyn File) -> Result<()>,
}

/// One immutable file.
#[derive(Debug)]
pub struct StoredFile {
    kind: &'static FileKind,
    id: u64,
    name: String,
    files: Arc<DataFiles>,
    handle: Handle,
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

    /// Reads the bytes of `extent` into `memory`, replacing its contents. The owner of `memory`
    /// accounts for it: a frame in the pool's budget, other readers themselves.
    ///
    /// # Errors
    /// The errors of the device and of the header's check. An extent beyond the file is a
    /// corruption error. The caller checks checksums.
    pub fn read(&self, extent: Extent, access: Access, memory: &mut Vec<u8>) -> Result<()> {
        let len = usize::try_from(extent.len);
        let len = len.map_err(|_| Error::corrupt(self.place(extent.offset), "too long"))?;
        if memory.capacity() < len {
            *memory = vec![0; len];
        }
        memory.resize(len, 0);
        let file = self.open()?;
        self.files.reads[access as usize].fetch_add(1, Ordering::Relaxed);
        file.read_exact_at(memory, extent.offset)
    }

    fn open(&self) -> Result<Arc<dyn File>> {
        let mut handle = self.handle.lock();
        if let Some(file) = &*handle {
            return Ok(file.clone());
        }
        let file = self.files.device.open(&self.name)?;
        (self.kind.check)(self, &*file)?;
        *handle = Some(file.clone());
        drop(handle);
        self.files.note_open(&self.handle);
        Ok(file)
    }
}

impl Drop for StoredFile {
    fn drop(&mut self) {
        if *self.remove_on_drop.get_mut() {
            // A file whose removal fails is an orphan, which the next open removes.
            let _ = self.files.device.remove(&self.name);
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
    open: Mutex<VecDeque<Weak<OpenFile>>>,
    /// by [`Access`]
    reads: [AtomicU64; 2],
}

impl DataFiles {
    /// The files on `device`, none open.
    pub fn new(device: Arc<dyn Device>) -> Arc<Self> {
        Arc::new(Self {
            device,
            open: Mutex::default(),
            reads: Default::default(),
        })
    }

    /// The device of the files.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
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

    /// Reads of files so far.
    pub fn reads(&self, access: Access) -> u64 {
        self.reads[access as usize].load(Ordering::Relaxed)
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
