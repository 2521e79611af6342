//! A heap: rows of one length on slotted pages of a page file, found by their row ids.
//!
//! ```text
//! page 1 (root)   u32 magic, u32 the last page of rows
//! page of rows    u32 magic, u32 the next page of rows or 0, then the rows one after the other;
//!                 from the end: per slot u16, the row's offset or 0 for an empty slot
//! ```
//!
//! Invariants:
//! 1. A row id is page * 2^16 + slot. It never changes, and is given once.
//! 2. A row's offset follows from its slot. So rows may be written in any order, and twice.
//! 3. A page of rows is linked to the one before by the change that makes it.
//!
//! Lock order: `tail` is held while a page is made, then latches of the root, the last page and the
//! new one.

use std::sync::Arc;

use strandline_base::sync::Mutex;
use strandline_base::{Error, Result, RowId};
use strandline_storage::pages::{
    Access, PAGE_BODY_BYTES, PageChange, PageFileId, PageNumber, PageStore,
};

const ROOT: PageNumber = PageNumber(1);
const ROOT_MAGIC: u32 = 0x5450_4352;
const ROWS_MAGIC: u32 = 0x5450_4348;
const HEADER_BYTES: usize = 8;
const SLOT_BYTES: usize = 2;

/// Where the next row goes.
#[derive(Clone, Copy, Debug)]
struct Tail {
    page: PageNumber,
    slot: usize,
}

/// The heap of one table.
#[derive(Debug)]
pub struct Heap {
    store: Arc<PageStore>,
    file: PageFileId,
    row_bytes: usize,
    /// None until the first insertion after opening
    tail: Mutex<Option<Tail>>,
}

impl Heap {
    /// Creates the file with an empty heap.
    pub fn create(store: Arc<PageStore>, file: PageFileId, row_bytes: usize) -> Result<Self> {
        store.create_file(file)?;
        let mut change = store.begin(file);
        let root = change.allocate()?;
        let first = change.allocate()?;
        put_u32(change.body_mut(root), 0, ROOT_MAGIC);
        put_u32(change.body_mut(root), 4, first.0);
        put_u32(change.body_mut(first), 0, ROWS_MAGIC);
        change.commit()?;
        Ok(Self::open(store, file, row_bytes))
    }

    /// The heap of a file that is open.
    pub fn open(store: Arc<PageStore>, file: PageFileId, row_bytes: usize) -> Self {
        Self {
            store,
            file,
            row_bytes,
            tail: Mutex::new(None),
        }
    }

    fn slots(&self) -> usize {
        (PAGE_BODY_BYTES - HEADER_BYTES) / (self.row_bytes + SLOT_BYTES)
    }

    fn damaged(&self, page: PageNumber, what: &str) -> Error {
        Error::corrupt(format!("heap file {} page {page}", self.file), what)
    }

    /// The bytes of a row.
    ///
    /// # Errors
    /// XX001 if the slot is empty; those of the page store.
    pub fn read(&self, row: RowId) -> Result<Vec<u8>> {
        let (page, slot) = place_of(row);
        let body = self.store.read(self.file, page, Access::Random)?;
        self.row_in(&body, slot)
            .map(<[u8]>::to_vec)
            .ok_or_else(|| self.damaged(page, &format!("slot {slot} has no row")))
    }

    fn row_in<'a>(&self, body: &'a [u8], slot: usize) -> Option<&'a [u8]> {
        if get_u32(body, 0) != ROWS_MAGIC || slot >= self.slots() {
            return None;
        }
        let at = slot_at(slot);
        let offset = u16::from_le_bytes(body.get(at..)?.first_chunk().copied()?);
        let is_empty = offset == 0;
        let start = usize::from(offset);
        (!is_empty).then(|| body.get(start..start + self.row_bytes))?
    }

    /// A place for a new row, on a page that is made if need be. Nobody else gets it.
    pub fn reserve(&self) -> Result<RowId> {
        let mut tail = self.tail.lock();
        let mut place = match *tail {
            Some(place) => place,
            None => self.find_tail()?,
        };
        if place.slot >= self.slots() {
            place = Tail {
                page: self.extend(place.page)?,
                slot: 0,
            };
        }
        let row = row_at(place.page, place.slot);
        place.slot += 1;
        *tail = Some(place);
        Ok(row)
    }

    /// The place behind the last row.
    fn find_tail(&self) -> Result<Tail> {
        let root = self.store.read(self.file, ROOT, Access::Random)?;
        if get_u32(&root, 0) != ROOT_MAGIC {
            return Err(self.damaged(ROOT, "no root of a heap"));
        }
        let page = PageNumber(get_u32(&root, 4));
        drop(root);
        let body = self.store.read(self.file, page, Access::Random)?;
        let last = (0..self.slots()).rposition(|slot| self.row_in(&body, slot).is_some());
        let slot = last.map_or(0, |slot| slot + 1);
        Ok(Tail { page, slot })
    }

    /// Makes a page of rows behind `last`.
    fn extend(&self, last: PageNumber) -> Result<PageNumber> {
        let mut change = self.store.begin(self.file);
        change.write(ROOT)?;
        change.write(last)?;
        let page = change.allocate()?;
        put_u32(change.body_mut(page), 0, ROWS_MAGIC);
        put_u32(change.body_mut(last), 4, page.0);
        put_u32(change.body_mut(ROOT), 4, page.0);
        change.commit()?;
        Ok(page)
    }

    /// Writes rows into their places, each page in one change. Rows of one page stand together.
    ///
    /// # Errors
    /// XX001 if a row's page is no page of this heap; those of the page store.
    pub fn put<'a>(&self, rows: impl IntoIterator<Item = (RowId, &'a [u8])>) -> Result<()> {
        let mut open: Option<(PageNumber, PageChange)> = None;
        for (row, bytes) in rows {
            let (page, slot) = place_of(row);
            if open.as_ref().is_none_or(|(number, _)| *number != page) {
                if let Some((_, change)) = open.take() {
                    change.commit()?;
                }
                let mut change = self.store.begin(self.file);
                change.write(page)?;
                open = Some((page, change));
            }
            if let Some((_, change)) = &mut open {
                self.put_row(change, page, slot, bytes)?;
            }
        }
        match open {
            Some((_, change)) => change.commit().map(drop),
            None => Ok(()),
        }
    }

    fn put_row(
        &self,
        change: &mut PageChange,
        page: PageNumber,
        slot: usize,
        bytes: &[u8],
    ) -> Result<()> {
        let is_row = bytes.len() == self.row_bytes && slot < self.slots();
        if !is_row || get_u32(change.body(page), 0) != ROWS_MAGIC {
            return Err(self.damaged(page, &format!("slot {slot} takes no such row")));
        }
        let body = change.body_mut(page);
        let start = HEADER_BYTES + slot * self.row_bytes;
        if let Some(place) = body.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
        }
        let at = slot_at(slot);
        if let Some(place) = body.get_mut(at..at + SLOT_BYTES) {
            place.copy_from_slice(&(start as u16).to_le_bytes());
        }
        Ok(())
    }

    /// Visits all rows, page by page.
    pub fn visit(&self, visit: &mut dyn FnMut(RowId, &[u8]) -> Result<()>) -> Result<()> {
        // Page 2 is the first one of rows: the root and it are allocated together.
        let mut page = PageNumber(2);
        while page.0 != 0 {
            let body = self
                .store
                .read(self.file, page, Access::Sequential)?
                .to_vec();
            if get_u32(&body, 0) != ROWS_MAGIC {
                return Err(self.damaged(page, "no page of rows"));
            }
            for slot in 0..self.slots() {
                if let Some(row) = self.row_in(&body, slot) {
                    visit(row_at(page, slot), row)?;
                }
            }
            page = PageNumber(get_u32(&body, 4));
        }
        Ok(())
    }
}

fn slot_at(slot: usize) -> usize {
    PAGE_BODY_BYTES - (slot + 1) * SLOT_BYTES
}

fn row_at(page: PageNumber, slot: usize) -> RowId {
    RowId(u64::from(page.0) << 16 | slot as u64)
}

fn place_of(row: RowId) -> (PageNumber, usize) {
    (PageNumber((row.0 >> 16) as u32), (row.0 & 0xffff) as usize)
}

fn get_u32(body: &[u8], at: usize) -> u32 {
    let bytes = body.get(at..).and_then(<[u8]>::first_chunk);
    u32::from_le_bytes(bytes.copied().unwrap_or_default())
}

fn put_u32(body: &mut [u8], at: usize, value: u32) {
    if let Some(place) = body.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *place = value.to_le_bytes();
    }
}
