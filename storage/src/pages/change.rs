//! Mini-transactions: pages latched exclusively, changed in private copies, committed together.

use std::fmt;
use std::sync::Arc;

use strandline_base::sync::Ordering;
use strandline_base::{Error, Result};

use super::file::PageFile;
use super::frame::Frame;
use super::header::{PageBody, PageImage};
use super::record;
use super::space::{self, MAPPED_PAGES};
use super::store::{PageStore, UNSET};
use super::{Access, PageFileId, PageId, PageNumber};
use crate::wal::Lsn;

/// A page that the change has latched.
struct Latched {
    number: PageNumber,
    frame: Arc<Frame>,
    before: Arc<PageImage>,
    /// the changed body; None: unchanged
    after: Option<PageBody>,
    /// allocated by this change: logged as an image
    is_fresh: bool,
    /// the frame was made for this change, and the file may have other bytes
    is_new_frame: bool,
}

/// A change of pages of one file, all or nothing. Dropped without [`PageChange::commit`] it has
/// changed nothing.
pub struct PageChange {
    store: Arc<PageStore>,
    file: Result<Arc<PageFile>>,
    pages: Vec<Latched>,
    allocated: Vec<u32>,
    freed: Vec<u32>,
    /// the number of map pages, if the change adds or drops some
    maps: Option<u32>,
}

impl PageStore {
    /// Begins a change of pages of `file`. A file that is not open is an error of the first use.
    pub fn begin(self: &Arc<Self>, file: PageFileId) -> PageChange {
        PageChange {
            store: Arc::clone(self),
            file: self.file(file),
            pages: Vec::new(),
            allocated: Vec::new(),
            freed: Vec::new(),
            maps: None,
        }
    }
}

impl PageChange {
    fn file(&self) -> Result<Arc<PageFile>> {
        let file = self.file.clone()?;
        file.check_usable()?;
        Ok(file)
    }

    fn find(&self, number: PageNumber) -> Option<usize> {
        self.pages.iter().rposition(|page| page.number == number)
    }

    /// Latches a page exclusively; nothing if the change has latched it already.
    ///
    /// # Errors
    /// Those of [`PageStore::read`].
    pub fn write(&mut self, number: PageNumber) -> Result<()> {
        let file = self.file()?;
        if self.find(number).is_some() {
            return Ok(());
        }
        let id = PageId {
            file: file.id,
            number,
        };
        loop {
            let frame = self.store.frame(id, Access::Random)?;
            if let Some(before) = frame.latch_exclusive() {
                self.add(frame, before);
                return Ok(());
            }
            self.store.forget(&frame);
        }
    }

    fn add(&mut self, frame: Arc<Frame>, before: Arc<PageImage>) {
        self.pages.push(Latched {
            number: frame.id.number,
            frame,
            before,
            after: None,
            is_fresh: false,
            is_new_frame: false,
        });
    }

    fn add_fresh(&mut self, frame: Arc<Frame>, before: Arc<PageImage>, is_new_frame: bool) {
        self.add(frame, before);
        let page = self.pages.last_mut().expect("just added");
        page.after = Some(PageBody::zeroed());
        page.is_fresh = true;
        page.is_new_frame = is_new_frame;
    }

    fn latched(&self, number: PageNumber) -> &Latched {
        let at = self.find(number);
        &self.pages[at.expect("the caller has latched the page with `write` or `allocate`")]
    }

    /// The body of a page that this change has latched.
    ///
    /// # Panics
    /// If it has not.
    pub fn body(&self, number: PageNumber) -> &[u8] {
        let page = self.latched(number);
        page.after.as_ref().unwrap_or(&page.before.body)
    }

    /// The body of a page that this change has latched, to be changed.
    ///
    /// # Panics
    /// If it has not.
    pub fn body_mut(&mut self, number: PageNumber) -> &mut [u8] {
        let at = self.find(number);
        let page = &mut self.pages[at.expect("the caller has latched the page with `write`")];
        page.after.get_or_insert_with(|| page.before.body.clone())
    }

    /// Takes a free page of the file and latches it; its body is zeroed. Waits for no latch.
    ///
    /// # Errors
    /// 53100 if the file cannot grow; 54000 at 2^32 pages.
    pub fn allocate(&mut self) -> Result<PageNumber> {
        let file = self.file()?;
        self.store.load_space(&file)?;
        let mut busy = Vec::new();
        let reserved = loop {
            let reserved = {
                let mut space = file.space.lock();
                let space = space.as_mut().expect("loaded above, and kept");
                space.reserve(&busy)
            };
            let Ok(number) = reserved else {
                break reserved;
            };
            let latched = self.latch_free(&file, PageNumber(number));
            match latched {
                Ok(true) => break Ok(number),
                // A reader that came by an old pointer holds the latch.
                Ok(false) => busy.push(number),
                Err(e) => {
                    busy.push(number);
                    break Err(e);
                }
            }
        };
        if !busy.is_empty() {
            let mut space = file.space.lock();
            let space = space.as_mut().expect("loaded above, and kept");
            busy.into_iter().for_each(|page| space.give_back(page));
        }
        let number = reserved?;
        self.allocated.push(number);
        Ok(PageNumber(number))
    }

    /// Latches a page that becomes a map page. It may have been one before: a reader of the map
    /// may hold its latch, and holds no other one.
    fn latch_new_map(&mut self, file: &Arc<PageFile>, number: PageNumber) -> Result<()> {
        file.grow_for(number)?;
        let id = PageId {
            file: file.id,
            number,
        };
        loop {
            let loading = || Frame::loading(id, Arc::clone(file));
            let (frame, is_new) = self.store.enter(id, loading);
            if is_new {
                return self.enter_zeroed(frame);
            }
            self.store.await_ahead(&frame);
            if let Some(before) = frame.latch_exclusive() {
                self.add_fresh(frame, before, false);
                return Ok(());
            }
            self.store.forget(&frame);
        }
    }

    /// Takes the last map pages out of the map that describe no page in use but themselves.
    /// Returns whether there are such pages.
    ///
    /// # Errors
    /// Those of [`PageChange::write`].
    pub(super) fn drop_maps(&mut self) -> Result<bool> {
        let first = PageNumber(0);
        self.write(first)?;
        let known = space::map_pages(self.body(first));
        let mut maps = known;
        while maps > 1 {
            let map = PageNumber((maps - 1) * MAPPED_PAGES);
            self.write(map)?;
            if !space::is_map_empty(self.body(map)) {
                break;
            }
            maps -= 1;
        }
        if maps == known {
            return Ok(false);
        }
        space::set_map_pages(self.body_mut(first), maps);
        self.maps = Some(maps);
        Ok(true)
    }

    /// Latches a reserved page, unless that would wait.
    fn latch_free(&mut self, file: &Arc<PageFile>, number: PageNumber) -> Result<bool> {
        file.grow_for(number)?;
        let id = PageId {
            file: file.id,
            number,
        };
        loop {
            let loading = || Frame::loading(id, Arc::clone(file));
            let (frame, is_new) = self.store.enter(id, loading);
            if is_new {
                return self.enter_zeroed(frame).map(|()| true);
            }
            if let Some(before) = frame.try_latch_exclusive() {
                self.add_fresh(frame, before, false);
                return Ok(true);
            }
            if !frame.is_gone() {
                return Ok(false);
            }
            self.store.forget(&frame);
        }
    }

    /// Latches a new frame whose page is not read from the file.
    fn enter_zeroed(&mut self, frame: Arc<Frame>) -> Result<()> {
        let before = self.store.latch_zeroed(&frame)?;
        self.add_fresh(frame, before, true);
        Ok(())
    }

    /// Makes a page free once the change commits. No committed pointer to it may remain.
    ///
    /// # Errors
    /// Those of [`PageChange::write`]; XX000 for a page of the space map.
    pub fn free(&mut self, number: PageNumber) -> Result<()> {
        let file = self.file()?;
        if space::is_map(number.0) {
            let what = format!("page {number} is a page of the space map and cannot be freed");
            return Err(Error::internal(what));
        }
        self.store.load_space(&file)?;
        self.write(number)?;
        if let Some(at) = self.allocated.iter().position(|&page| page == number.0) {
            self.allocated.swap_remove(at);
            let at = self.find(number).expect("allocated pages are latched");
            let page = self.pages.swap_remove(at);
            self.unlatch(page);
            give_back(&file, &[number.0]);
        } else if !self.freed.contains(&number.0) {
            self.freed.push(number.0);
        }
        Ok(())
    }

    /// Gives the latch of an unchanged page back before the end of the change.
    pub fn release(&mut self, number: PageNumber) {
        let is_freed = self.freed.contains(&number.0);
        let at = self.find(number).filter(|&at| {
            let page = &self.pages[at];
            page.after.is_none() && !page.is_fresh && !is_freed
        });
        if let Some(at) = at {
            let page = self.pages.swap_remove(at);
            self.unlatch(page);
        }
    }

    /// Logs the change as one record and makes it visible; returns the end of the record, from
    /// which the caller may wait for durability. A change of nothing returns the greatest LSN of
    /// its pages.
    ///
    /// # Errors
    /// Those of the log's append and of the file; then nothing has changed.
    pub fn commit(mut self) -> Result<Lsn> {
        let file = self.file()?;
        for page in &mut self.pages {
            let is_freed = self.freed.contains(&page.number.0);
            let is_same = page.after.as_ref() == Some(&page.before.body) && !page.is_fresh;
            if is_freed || is_same {
                page.after = None;
            }
        }
        self.change_maps(&file)?;
        let changed = self
            .pages
            .iter()
            .filter(|page| page.after.is_some())
            .count();
        if changed == 0 {
            let lsns = self.pages.iter().map(|page| page.before.lsn);
            return Ok(lsns.max().unwrap_or_default());
        }
        let lsn = self.log_and_install(&file, changed)?;
        self.allocated.clear();
        if let (Some(maps), Some(space)) = (self.maps, file.space.lock().as_mut()) {
            space.set_maps(maps);
        }
        give_back(&file, &self.freed);
        Ok(lsn)
    }

    fn log_and_install(&mut self, file: &PageFile, changed: usize) -> Result<Lsn> {
        let store = Arc::clone(&self.store);
        let _gate = store.gate.read();
        let boundary = image_boundary(&store);
        let mut out = record::begin(file.id, changed);
        for page in &self.pages {
            let Some(after) = &page.after else {
                continue;
            };
            if page.is_fresh || page.before.lsn.0 <= boundary {
                record::put_image(&mut out, page.number, after);
            } else {
                let before = &page.before;
                record::put_delta(&mut out, page.number, before.lsn, &before.body, after);
            }
        }
        let lsn = store.log.append(&out)?;
        for page in &mut self.pages {
            if let Some(body) = page.after.take() {
                page.frame.install(Arc::new(PageImage { lsn, body }));
                page.is_new_frame = false;
            }
        }
        Ok(lsn)
    }

    /// Changes the bits of the allocated and freed pages, and adds map pages that are missing.
    fn change_maps(&mut self, file: &Arc<PageFile>) -> Result<()> {
        let pages = self.allocated.iter().chain(&self.freed);
        let mut maps: Vec<u32> = pages.map(|&page| space::map_of(page)).collect();
        maps.sort_unstable();
        maps.dedup();
        if let Some(last) = maps.last().copied().filter(|&last| last > 0) {
            self.write(PageNumber(0))?;
            let known = space::map_pages(self.body(PageNumber(0)));
            let needed = last / MAPPED_PAGES + 1;
            for map in (known..needed).map(|k| k * MAPPED_PAGES) {
                self.latch_new_map(file, PageNumber(map))?;
                space::set_used(self.body_mut(PageNumber(map)), map, true);
            }
            if known < needed {
                space::set_map_pages(self.body_mut(PageNumber(0)), needed);
                self.maps = Some(needed);
            }
        }
        for map in maps {
            self.write(PageNumber(map))?;
            let (allocated, freed) = (self.allocated.clone(), self.freed.clone());
            let body = self.body_mut(PageNumber(map));
            let of_map = |page: &u32| space::map_of(*page) == map;
            for page in allocated.into_iter().filter(of_map) {
                space::set_used(body, page, true);
            }
            for page in freed.into_iter().filter(of_map) {
                space::set_used(body, page, false);
            }
        }
        Ok(())
    }

    fn unlatch(&self, page: Latched) {
        if !page.is_new_frame {
            page.frame.unlatch_exclusive();
        } else if page.frame.discard_latched() {
            self.store.forget(&page.frame);
        }
    }
}

/// The LSN up to which pages are logged as images; the first change sets it.
pub(super) fn image_boundary(store: &PageStore) -> u64 {
    let boundary = store.boundary.load(Ordering::Acquire);
    if boundary != UNSET {
        return boundary;
    }
    let end = store.log.end().0;
    let set = store
        .boundary
        .compare_exchange(UNSET, end, Ordering::AcqRel, Ordering::Acquire);
    set.map_or_else(|known| known, |_| end)
}

fn give_back(file: &PageFile, pages: &[u32]) {
    if let Some(space) = file.space.lock().as_mut() {
        pages.iter().for_each(|&page| space.give_back(page));
    }
}

impl Drop for PageChange {
    fn drop(&mut self) {
        for page in std::mem::take(&mut self.pages) {
            self.unlatch(page);
        }
        if let Ok(file) = &self.file {
            give_back(file, &self.allocated);
        }
    }
}

impl fmt::Debug for PageChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages: Vec<PageId> = self.pages.iter().map(|page| page.frame.id).collect();
        f.debug_tuple("PageChange").field(&pages).finish()
    }
}
