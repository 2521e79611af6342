//! Immutable files, opened on first use, closed between two uses, removed with the last reference.

use super::{Access, Extent};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use strandline_base::sync::Mutex;
use strandline_base::{Error, Result};
use strandline_device::{Device, File};

/// Files of one database that may be open at the same time: a process may commonly open 1,024
/// files, and a large table has more.
pub const OPEN_FILES_MAX: usize = 512;

/// A kind of files; the module that knows the format names it once.
#[derive(Debug)]
pub struct FileKind {
    /// checks the header of a file that has just been opened
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
    /// Names a file of number `id` that exists, or that is about to be created.
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
        let location = self.files.device.location();
        format!("file {location}/{}, offset {offset}", self.name)
    }

    /// The file has just been written through `file`, its open handle.
    pub fn put(&self, file: Arc<dyn File>) {
        *self.handle.lock() = Some(file);
        self.files.note_open(&self.handle);
    }

    /// Removes the file when the last reference goes.
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

    /// Reads the bytes of `extent` into `memory`, which has nothing else afterwards. The owner of
    /// `memory` pays for it: a frame in the pool's budget, any other reader by itself.
    ///
    /// # Errors
    /// Those of the device and of the header's check; an extent beyond the file is a corruption
    /// error. Checksums are the caller's business.
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
            // A file that cannot be removed now is an orphan, removed at the next open.
            let _ = self.files.device.remove(&self.name);
        }
    }
}

/// The handle of a file that is open, shared with the list of open files.
type Handle = Arc<OpenFile>;
/// The open file, or none while it is closed.
type OpenFile = Mutex<Option<Arc<dyn File>>>;

/// The data files and runs of a database: where they are, and which are open. The file opened first
/// is closed first; the next read opens it again.
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

    /// Where the files are.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Creates the file `name`, which must not exist, to be written and then given to a
    /// [`StoredFile`].
    pub fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.device.create(name)
    }

    /// Reads of files so far.
    pub fn reads(&self, access: Access) -> u64 {
        self.reads[access as usize].load(Ordering::Relaxed)
    }

    /// How many files are open, those not counted that readers hold just now.
    pub fn open_files(&self) -> usize {
        let open = self.open.lock();
        let is_open = |handle: &Handle| handle.lock().is_some();
        open.iter()
            .filter_map(Weak::upgrade)
            .filter(is_open)
            .count()
    }

    /// Lists a file that has been opened; the caller does not hold its handle's lock.
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
