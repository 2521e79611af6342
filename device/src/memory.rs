//! A device in memory: files are lists of pages, so that growing never copies and extending with
//! zeros costs nothing until written. Nothing survives the last handle, and a sync has nothing
//! to do.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use strandline_base::sync::{Mutex, RwLock};
use strandline_base::{Error, Result, SqlState};

use crate::{Device, File, LOCK_FILE, lock_held_error, short_read_error};

const PAGE_BYTES: usize = 64 << 10;

/// Files that live as long as the device or an open handle.
#[derive(Debug, Default)]
pub struct MemoryDevice {
    files: Mutex<BTreeMap<String, Arc<RwLock<Pages>>>>,
    locked: Arc<AtomicBool>,
}

impl MemoryDevice {
    /// An empty device.
    pub fn new() -> Self {
        Self::default()
    }

    /// A device of its own with the same files and bytes; nobody holds its lock.
    pub fn duplicate(&self) -> Self {
        let files = self.files.lock();
        let copies = files.iter().map(|(name, pages)| {
            let pages = pages.read().clone();
            (name.clone(), Arc::new(RwLock::new(pages)))
        });
        Self {
            files: Mutex::new(copies.collect()),
            locked: Arc::default(),
        }
    }
}

fn missing(name: &str) -> Error {
    Error::invalid(
        SqlState::UNDEFINED_FILE,
        format!("memory: file \"{name}\" does not exist"),
    )
}

impl Device for MemoryDevice {
    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        let mut files = self.files.lock();
        if files.contains_key(name) {
            return Err(Error::invalid(
                SqlState::IO_ERROR,
                format!("memory: file \"{name}\" exists already"),
            ));
        }
        let pages = Arc::new(RwLock::new(Pages::default()));
        files.insert(name.to_owned(), Arc::clone(&pages));
        Ok(Arc::new(MemoryFile {
            name: name.to_owned(),
            pages,
        }))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn File>> {
        let pages = Arc::clone(self.files.lock().get(name).ok_or_else(|| missing(name))?);
        Ok(Arc::new(MemoryFile {
            name: name.to_owned(),
            pages,
        }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.files
            .lock()
            .remove(name)
            .map(drop)
            .ok_or_else(|| missing(name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut files = self.files.lock();
        let pages = files.remove(from).ok_or_else(|| missing(from))?;
        files.insert(to.to_owned(), pages);
        Ok(())
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(self.files.lock().keys().cloned().collect())
    }

    fn sync_directory(&self) -> Result<()> {
        Ok(())
    }

    fn lock(&self) -> Result<Box<dyn Send + Sync>> {
        if self.locked.swap(true, Ordering::AcqRel) {
            return Err(lock_held_error(&self.location(), Some(std::process::id())));
        }
        self.files.lock().entry(LOCK_FILE.to_owned()).or_default();
        Ok(Box::new(MemoryLock(Arc::clone(&self.locked))))
    }

    fn location(&self) -> String {
        "memory".to_owned()
    }
}

struct MemoryLock(Arc<AtomicBool>);

impl Drop for MemoryLock {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A file's bytes; a page that was never written is absent and reads as zeros.
#[derive(Clone, Debug, Default)]
struct Pages {
    pages: Vec<Option<Box<[u8]>>>,
    len: u64,
}

impl Pages {
    /// Calls `each` for every piece of `[offset, offset + len)` that lies in one page, with the
    /// page's number, the range in the page and the range in the caller's buffer.
    fn pieces(
        offset: u64,
        len: usize,
        mut each: impl FnMut(usize, std::ops::Range<usize>, std::ops::Range<usize>),
    ) {
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let start = (at % PAGE_BYTES as u64) as usize;
            let n = (PAGE_BYTES - start).min(len - done);
            each(
                (at / PAGE_BYTES as u64) as usize,
                start..start + n,
                done..done + n,
            );
            done += n;
        }
    }

    fn read(&self, buf: &mut [u8], offset: u64) {
        Self::pieces(offset, buf.len(), |page, within, target| {
            match &self.pages[page] {
                Some(bytes) => buf[target].copy_from_slice(&bytes[within]),
                None => buf[target].fill(0),
            }
        });
    }

    fn write(&mut self, buf: &[u8], offset: u64) {
        self.resize(self.len.max(offset + buf.len() as u64));
        Self::pieces(offset, buf.len(), |page, within, source| {
            let page = &mut self.pages[page];
            let bytes = page.get_or_insert_with(|| vec![0; PAGE_BYTES].into_boxed_slice());
            bytes[within].copy_from_slice(&buf[source]);
        });
    }

    fn resize(&mut self, len: u64) {
        self.pages
            .resize(len.div_ceil(PAGE_BYTES as u64) as usize, None);
        let kept = (len % PAGE_BYTES as u64) as usize;
        if len < self.len && kept > 0 {
            // What is cut off must read as zeros if the file grows again.
            if let Some(Some(last)) = self.pages.last_mut() {
                last[kept..].fill(0);
            }
        }
        self.len = len;
    }
}

#[derive(Debug)]
struct MemoryFile {
    name: String,
    pages: Arc<RwLock<Pages>>,
}

impl File for MemoryFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let pages = self.pages.read();
        if offset
            .checked_add(buf.len() as u64)
            .is_none_or(|end| end > pages.len)
        {
            let place = format!("memory: \"{}\"", self.name);
            return Err(short_read_error(place, offset, buf.len(), pages.len));
        }
        pages.read(buf, offset);
        Ok(())
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.pages.write().write(buf, offset);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.pages.read().len)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.pages.write().resize(len);
        Ok(())
    }
}
