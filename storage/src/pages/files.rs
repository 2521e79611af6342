//! The open page files: the page store's, and the SSD cache's capacity tier.

use std::collections::HashMap;
use std::sync::Arc;

use strandline_base::sync::{AtomicBool, Ordering, RwLock};
use strandline_base::{Error, Result, SqlState};
use strandline_device::Device;

use super::file::{PageFile, page_file_name};
use super::header::PAGE_BYTES;
use super::{Access, PageFileId, PageNumber};
use crate::ssd_cache::{BlockKey, Capacity};

/// The open files of one database by their numbers.
#[derive(Debug)]
pub(super) struct PageFiles {
    device: Arc<dyn Device>,
    pub database_id: u128,
    open: RwLock<HashMap<PageFileId, Arc<PageFile>>>,
    /// the SSD cache is being opened: it may copy blocks to files that nobody has opened yet
    is_opening: AtomicBool,
}

impl PageFiles {
    /// No files.
    pub fn new(device: Arc<dyn Device>, database_id: u128) -> Self {
        Self {
            device,
            database_id,
            open: RwLock::new(HashMap::new()),
            is_opening: AtomicBool::new(true),
        }
    }

    /// Ends the time in which the SSD cache opens files by itself. Its files are durable by now.
    pub fn end_opening(&self) {
        self.is_opening.store(false, Ordering::Release);
        self.open.write().clear();
    }

    /// Opens an existing file.
    ///
    /// # Errors
    /// 58P01 if there is no such file.
    pub fn open(&self, id: PageFileId) -> Result<Arc<PageFile>> {
        let file = self.device.open(&page_file_name(id))?;
        let file = PageFile::of(&*self.device, self.database_id, id, file)?;
        Ok(self.insert(file))
    }

    /// Adds an open file.
    pub fn insert(&self, file: PageFile) -> Arc<PageFile> {
        let file = Arc::new(file);
        self.open.write().insert(file.id, Arc::clone(&file));
        file
    }

    /// Forgets a file; threads that have it keep it.
    pub fn remove(&self, id: PageFileId) -> Option<Arc<PageFile>> {
        self.open.write().remove(&id)
    }

    /// The open file `id`.
    ///
    /// # Errors
    /// 58P01 if it is not open.
    pub fn get(&self, id: PageFileId) -> Result<Arc<PageFile>> {
        let file = self.open.read().get(&id).map(Arc::clone);
        file.ok_or_else(|| not_open(id))
    }

    /// Whether the file is open.
    pub fn contains(&self, id: PageFileId) -> bool {
        self.open.read().contains_key(&id)
    }

    /// All open files, by number: so the order of device operations is fixed.
    pub fn all(&self) -> Vec<Arc<PageFile>> {
        let mut all: Vec<_> = self.open.read().values().map(Arc::clone).collect();
        all.sort_unstable_by_key(|file| file.id);
        all
    }

    /// The file of a block of the SSD cache; None if it was dropped. A dropped file's blocks may be
    /// copied out until the cache has forgotten them.
    fn of_block(&self, file: u64) -> Result<Option<Arc<PageFile>>> {
        let id = page_file_of(file)?;
        if let Ok(file) = self.get(id) {
            return Ok(Some(file));
        }
        if !self.is_opening.load(Ordering::Acquire) {
            return Ok(None);
        }
        match self.open(id) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.sqlstate() == SqlState::UNDEFINED_FILE => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl Capacity for PageFiles {
    fn read(&self, block: BlockKey, _access: Access) -> Result<Vec<u8>> {
        match self.of_block(block.file)? {
            Some(file) => file.read_bytes(page_of(block)?, vec![0; PAGE_BYTES]),
            None => Err(not_open(page_file_of(block.file)?)),
        }
    }

    fn write(&self, block: BlockKey, bytes: &[u8]) -> Result<()> {
        match self.of_block(block.file)? {
            Some(file) => file.write_bytes(page_of(block)?, bytes),
            None => Ok(()),
        }
    }

    fn sync(&self, file: u64) -> Result<()> {
        match self.of_block(file)? {
            Some(file) => file.sync(),
            None => Ok(()),
        }
    }
}

fn not_open(id: PageFileId) -> Error {
    let name = page_file_name(id);
    let message = format!("page file \"{name}\" is not open");
    Error::invalid(SqlState::UNDEFINED_FILE, message)
}

/// The block of a page.
pub(super) fn block_of(file: PageFileId, number: PageNumber) -> BlockKey {
    BlockKey {
        file: file.0.into(),
        offset: u64::from(number.0) * PAGE_BYTES as u64,
        len: PAGE_BYTES as u32,
    }
}

fn page_file_of(file: u64) -> Result<PageFileId> {
    let id = u32::try_from(file);
    id.map(PageFileId)
        .map_err(|_| Error::internal(format!("file {file} is no page file")))
}

fn page_of(block: BlockKey) -> Result<PageNumber> {
    let number = u32::try_from(block.offset / PAGE_BYTES as u64);
    number
        .map(PageNumber)
        .map_err(|_| Error::internal(format!("no page is at {block}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_device::MemoryDevice;

    /// The cache copies blocks to files that nobody has opened while it is being opened. Later such
    /// a file is a dropped one, whose name may still be there.
    #[test]
    fn blocks_go_to_unopened_files_only_while_the_cache_is_opened() {
        let id = PageFileId(3);
        let device = Arc::new(MemoryDevice::new());
        let file = device.create(&page_file_name(id)).unwrap();
        file.set_len(2 * PAGE_BYTES as u64).unwrap();
        let files = PageFiles::new(device, 1);
        let write = |byte| {
            let block = block_of(id, PageNumber(1));
            files.write(block, &vec![byte; PAGE_BYTES]).unwrap();
            files.sync(block.file).unwrap();
            let mut found = [0];
            file.read_exact_at(&mut found, block.offset).unwrap();
            found[0]
        };
        assert_eq!(write(1), 1);
        files.end_opening();
        assert_eq!(write(2), 1, "the file was dropped");
        files.open(id).unwrap();
        assert_eq!(write(3), 3);
        let gone = block_of(PageFileId(4), PageNumber(0));
        files.write(gone, &[0; PAGE_BYTES]).unwrap();
        assert!(files.read(gone, Access::Random).is_err());
    }
}
