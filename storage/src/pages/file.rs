//! One page file on the device: its handle, its space, and whether it can be trusted.

use std::fmt;
use std::sync::Arc;

use strandline_base::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use strandline_base::{Error, ErrorKind, Result, SqlState};
use strandline_device::{Device, File, Request, Tier, TieredDevice, path_of};

use super::header::{PAGE_BYTES, PageImage, decode, encode};
use super::space::Space;
use super::{PageFileId, PageId, PageNumber};

/// A file grows by an eighth, but at least by these pages,
const GROWN_PAGES_MIN: u64 = if cfg!(test) { 2 } else { 8 };
/// and at most by these.
const GROWN_PAGES_MAX: u64 = 512;

/// The name of page file `id`.
pub fn page_file_name(id: PageFileId) -> String {
    format!("pages-{:08x}", id.0)
}

/// The number in a page file's name; None for other names.
pub fn page_file_id(name: &str) -> Option<PageFileId> {
    let digits = name.strip_prefix("pages-").filter(|d| d.len() == 8)?;
    u32::from_str_radix(digits, 16).ok().map(PageFileId)
}

/// An open page file.
#[derive(Debug)]
pub(super) struct PageFile {
    pub id: PageFileId,
    /// its pages go through the SSD cache, if there is one
    pub is_cached: bool,
    database_id: u128,
    /// directory and name, for messages
    path: String,
    file: Arc<dyn File>,
    has_failed: AtomicBool,
    failure: Mutex<Option<Error>>,
    /// pages were written since the last sync began
    is_unsynced: AtomicBool,
    /// the file's length in bytes
    len: AtomicU64,
    /// held while the file grows
    growth: Mutex<()>,
    /// held while the file is synced: whoever finds nothing to sync has waited for the sync before
    syncing: Mutex<()>,
    /// None until the map is read
    pub space: Mutex<Option<Space>>,
}

impl PageFile {
    pub fn of(
        device: &dyn Device,
        database_id: u128,
        id: PageFileId,
        file: Arc<dyn File>,
    ) -> Result<Self> {
        // Where the capacity tier is written once, the fast tier has the files of both.
        let is_fast = |tiers: &TieredDevice| tiers.tier_of(&page_file_name(id)) == Tier::Fast;
        let is_beside_cache =
            device.tiers().is_some_and(is_fast) && !device.is_written_once(Tier::Capacity);
        Ok(Self {
            id,
            is_cached: !is_beside_cache,
            database_id,
            path: path_of(device, &page_file_name(id)),
            len: AtomicU64::new(file.len()?),
            file,
            has_failed: AtomicBool::new(false),
            failure: Mutex::new(None),
            is_unsynced: AtomicBool::new(false),
            growth: Mutex::new(()),
            syncing: Mutex::new(()),
            space: Mutex::new(None),
        })
    }

    /// File and page, for messages.
    pub fn place(&self, number: PageNumber) -> String {
        let offset = offset_of(number);
        format!("{} page {number} at offset {offset}", self.path)
    }

    fn page(&self, number: PageNumber) -> PageId {
        PageId {
            file: self.id,
            number,
        }
    }

    /// The bytes of a page as they are in the file, in a buffer of a page.
    pub fn read_bytes(&self, number: PageNumber, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        self.check_usable()?;
        let read = self.file.read_exact_at(&mut bytes, offset_of(number));
        read.map_err(|e| e.context(self.place(number)))?;
        Ok(bytes)
    }

    /// The request for the bytes of adjacent pages, of which each has a buffer.
    pub fn read_request(&self, first: PageNumber, buffers: Vec<Vec<u8>>) -> Request {
        Request::Scatter {
            file: Arc::clone(&self.file),
            offset: offset_of(first),
            buffers,
        }
    }

    /// Checks the bytes of a page, wherever they were read.
    pub fn decode(&self, number: PageNumber, bytes: Vec<u8>) -> Result<PageImage> {
        let place = fmt::from_fn(|f| f.write_str(&self.place(number)));
        decode(self.database_id, self.page(number), bytes, &place)
    }

    /// The bytes of a page to be written.
    pub fn encode(&self, number: PageNumber, image: &PageImage) -> Vec<u8> {
        encode(self.database_id, self.page(number), image)
    }

    /// Writes the bytes of a page, whose record is durable in the log.
    pub fn write_bytes(&self, number: PageNumber, bytes: &[u8]) -> Result<()> {
        self.check_usable()?;
        let written = self.file.write_all_at(bytes, offset_of(number));
        self.is_unsynced.store(true, Ordering::Release);
        self.len
            .fetch_max(offset_of(number) + PAGE_BYTES as u64, Ordering::Relaxed);
        written.map_err(|e| e.context(self.place(number)))
    }

    /// Makes the pages durable that were written before the call. After a failure the file is
    /// closed.
    pub fn sync(&self) -> Result<()> {
        let _syncing = self.syncing.lock();
        self.check_usable()?;
        if !self.is_unsynced.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let Err(cause) = self.file.sync() else {
            return Ok(());
        };
        let failure = Error::new(
            ErrorKind::Closed,
            SqlState::IO_ERROR,
            format!(
                "{} is closed since its pages could not be stored: {cause}",
                self.path
            ),
        );
        self.fail(failure.with_hint(
            "Check the device, then close and reopen the database: it repairs the file from the \
             log.",
        ));
        self.check_usable()
    }

    /// Gives the page `number` its space.
    ///
    /// # Errors
    /// 53100 if there is none; then the file is as it was.
    pub fn grow_for(&self, number: PageNumber) -> Result<()> {
        let needed = offset_of(number) + PAGE_BYTES as u64;
        if self.len.load(Ordering::Relaxed) >= needed {
            return Ok(());
        }
        let _growth = self.growth.lock();
        let len = self.len.load(Ordering::Relaxed);
        if len >= needed {
            return Ok(());
        }
        let page = PAGE_BYTES as u64;
        let grown = grown_pages(len / page) * page;
        let wanted = needed.max(len.next_multiple_of(page) + grown);
        // Near the end of the space one page may still fit.
        let given = match self.file.set_len(wanted) {
            Ok(()) => wanted,
            Err(_) => self.file.set_len(needed).map(|()| needed)?,
        };
        self.is_unsynced.store(true, Ordering::Release);
        self.len.fetch_max(given, Ordering::Relaxed);
        Ok(())
    }

    /// Whether the page is known to be neither in use nor reserved.
    pub fn is_unused(&self, number: PageNumber) -> bool {
        let space = self.space.lock();
        space
            .as_ref()
            .is_some_and(|space| space.is_unused(number.0))
    }

    /// The first of the unused pages at the end of the file, if giving them back pays: if they and
    /// the pages behind them are more than twice the pages by which the file would grow again. None
    /// also if the map is not known.
    pub fn tail(&self, without_maps: bool) -> Option<PageNumber> {
        let tail = self.space.lock().as_ref()?.tail(without_maps);
        let kept = u64::from(tail) + 2 * grown_pages(tail.into());
        (self.pages() > kept).then_some(PageNumber(tail))
    }

    /// Cuts the file behind its last page that is used or reserved, or at `tail` if that is further
    /// on. `prepare` is called with the first page that goes, and returns whether it may go.
    /// Meanwhile no page from there on is reserved, but for pages behind the end.
    ///
    /// # Errors
    /// Those of the device; then the file may have its old length.
    pub fn cut(&self, tail: PageNumber, prepare: impl FnOnce(PageNumber) -> bool) -> Result<()> {
        let _growth = self.growth.lock();
        let before = self.len.load(Ordering::Relaxed);
        // From here on a page behind the place waits for its space until the file is cut.
        self.len
            .store(before.min(offset_of(tail)), Ordering::Relaxed);
        let begun = self
            .space
            .lock()
            .as_mut()
            .map(|space| space.begin_cut(tail.0));
        let Some((from, end)) = begun else {
            self.len.store(before, Ordering::Relaxed);
            return Ok(());
        };
        let from = PageNumber(from);
        let cut = match prepare(from) {
            true => self.file.set_len(offset_of(from)).map(|()| true),
            false => Ok(false),
        };
        let is_cut = *cut.as_ref().unwrap_or(&false);
        let len = if is_cut { offset_of(from) } else { before };
        self.is_unsynced.fetch_or(is_cut, Ordering::AcqRel);
        self.len.store(len, Ordering::Relaxed);
        if let Some(space) = self.space.lock().as_mut() {
            space.end_cut(end, is_cut);
        }
        cut.map_err(|e| e.context(self.place(from))).map(drop)
    }

    /// Closes the file: every later use gives `failure`, or an earlier one.
    pub fn fail(&self, failure: Error) {
        self.failure.lock().get_or_insert(failure);
        self.has_failed.store(true, Ordering::Release);
    }

    /// Whether the file is closed.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// The failure that has closed the file.
    pub fn check_usable(&self) -> Result<()> {
        if !self.has_failed() {
            return Ok(());
        }
        self.failure.lock().clone().map_or(Ok(()), Err)
    }

    /// The error of a file that nobody has open any more.
    pub fn closed(&self) -> Error {
        Error::invalid(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("{} is closed", self.path),
        )
    }

    /// The file's length in pages.
    pub fn pages(&self) -> u64 {
        self.len.load(Ordering::Relaxed) / PAGE_BYTES as u64
    }
}

/// The pages by which a file of so many grows.
fn grown_pages(pages: u64) -> u64 {
    (pages / 8).clamp(GROWN_PAGES_MIN, GROWN_PAGES_MAX)
}

fn offset_of(number: PageNumber) -> u64 {
    u64::from(number.0) * PAGE_BYTES as u64
}
