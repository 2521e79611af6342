//! The space map of a page file: one bit per page, set if the page is in use.
//!
//! Map page `k` is page `k` × [`MAPPED_PAGES`] and describes that many pages from itself on. The
//! first 8 bytes of its body are reserved, except that page 0 has the number of map pages there
//! (u32). The bits change in the log record of the change that allocates or frees pages; the pages
//! that running changes have reserved are known in memory only.

use std::collections::BTreeSet;

use strandline_base::{Error, ErrorKind, Result, SqlState};

use super::header::PAGE_BODY_BYTES;

/// Bytes of a map page before the bits.
const RESERVED_BYTES: usize = 8;
/// Pages that one map page describes; few in this crate's tests, so that they have several maps.
pub(super) const MAPPED_PAGES: u32 = match cfg!(test) {
    true => 8,
    false => ((PAGE_BODY_BYTES - RESERVED_BYTES) * 8) as u32,
};

/// The number of the page that has the bit of page `number`.
pub(super) fn map_of(number: u32) -> u32 {
    number - number % MAPPED_PAGES
}

/// Whether `number` is a page of the map.
pub(super) fn is_map(number: u32) -> bool {
    number.is_multiple_of(MAPPED_PAGES)
}

/// Whether `number` is in use, by the body of its map page.
pub(super) fn is_used(map: &[u8], number: u32) -> bool {
    let bit = number % MAPPED_PAGES;
    let byte = map.get(RESERVED_BYTES + (bit / 8) as usize);
    byte.is_some_and(|byte| byte & (1 << (bit % 8)) != 0)
}

/// Whether a map page, whose body this is, describes no page in use but itself.
pub(super) fn is_map_empty(map: &[u8]) -> bool {
    let mut bits = map.iter().skip(RESERVED_BYTES);
    bits.next() == Some(&1) && bits.all(|&byte| byte == 0)
}

/// Sets the bit of `number`.
pub(super) fn set_used(map: &mut [u8], number: u32, used: bool) {
    let bit = number % MAPPED_PAGES;
    if let Some(byte) = map.get_mut(RESERVED_BYTES + (bit / 8) as usize) {
        let mask = 1 << (bit % 8);
        *byte = if used { *byte | mask } else { *byte & !mask };
    }
}

/// The number of map pages that page 0 has.
pub(super) fn map_pages(page_0: &[u8]) -> u32 {
    let bytes = page_0.first_chunk().copied().unwrap_or_default();
    u32::from_le_bytes(bytes)
}

/// Sets the number of map pages in page 0.
pub(super) fn set_map_pages(page_0: &mut [u8], pages: u32) {
    if let Some(place) = page_0.first_chunk_mut() {
        *place = pages.to_le_bytes();
    }
}

/// The free pages of a file, those that running changes have reserved excepted.
#[derive(Debug, Default)]
pub(super) struct Space {
    /// unused pages before `end`
    free: BTreeSet<u32>,
    /// the first page behind all pages that are in use, reserved or free
    end: u32,
    /// the greatest `end` so far: pages from `end` up to here have left the file
    end_max: u32,
    /// map pages in use
    maps: u32,
    /// the file is being cut here: pages from here up to `end` are free and not reserved
    cut: Option<u32>,
}

impl Space {
    /// Adds the pages that `map` describes, the map page `first`. Map pages are added in order.
    pub fn add_map(&mut self, first: u32, map: &[u8]) {
        self.mark_used(first);
        self.maps = first / MAPPED_PAGES + 1;
        let last = first.saturating_add(MAPPED_PAGES - 1);
        for page in (first + 1..=last).filter(|&page| is_used(map, page)) {
            self.mark_used(page);
        }
    }

    /// Adds a used page behind the end; the pages between are free.
    fn mark_used(&mut self, page: u32) {
        let between = (self.end..page).filter(|&page| !is_map(page));
        self.free.extend(between);
        self.set_end(page + 1);
    }

    fn set_end(&mut self, end: u32) {
        self.end = end;
        self.end_max = self.end_max.max(end);
    }

    /// Takes the first free page that is not in `busy`, or the end of the file.
    pub fn reserve(&mut self, busy: &[u32]) -> Result<u32> {
        let mut free = self.free.range(..self.cut.unwrap_or(u32::MAX));
        if let Some(&page) = free.find(|page| !busy.contains(page)) {
            self.free.remove(&page);
            return Ok(page);
        }
        let page = self.end + u32::from(is_map(self.end));
        if page >= u32::MAX - 1 {
            return Err(Error::new(
                ErrorKind::Unavailable,
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("a page file cannot have more than {page} pages"),
            ));
        }
        self.set_end(page + 1);
        Ok(page)
    }

    /// Makes a page free.
    pub fn give_back(&mut self, page: u32) {
        self.free.insert(page);
    }

    /// Sets the number of map pages in use.
    pub fn set_maps(&mut self, maps: u32) {
        self.maps = maps;
    }

    /// Whether a page is neither in use nor reserved, and was before the end at some time.
    pub fn is_unused(&self, page: u32) -> bool {
        match is_map(page) {
            true => page / MAPPED_PAGES >= self.maps && page < self.end_max,
            false => self.free.contains(&page) || (self.end..self.end_max).contains(&page),
        }
    }

    /// The first page of the unused ones at the end of the file. Map pages that describe nothing
    /// but unused pages count as unused if `without_maps`.
    pub fn tail(&self, without_maps: bool) -> u32 {
        let is_unused = |page: u32| match is_map(page) && without_maps {
            true => page > 0,
            false => self.is_unused(page),
        };
        let mut tail = self.end;
        while tail > 0 && is_unused(tail - 1) {
            tail -= 1;
        }
        tail
    }

    /// Begins to cut the file at the first of the unused pages at its end, or at `tail` if that is
    /// further on. Returns the place and the end. Until [`Space::end_cut`] no page between the two
    /// is reserved.
    pub fn begin_cut(&mut self, tail: u32) -> (u32, u32) {
        let from = self.tail(false).max(tail).min(self.end);
        self.cut = Some(from);
        (from, self.end)
    }

    /// Ends the cut. If the file was cut and nothing was reserved at its end since the beginning,
    /// the pages are no more part of it.
    pub fn end_cut(&mut self, end: u32, is_cut: bool) {
        let cut = self.cut.take();
        if let Some(from) = cut.filter(|_| is_cut && self.end == end) {
            self.free.split_off(&from);
            self.end = from;
        }
    }

    /// Free pages before the end.
    pub fn free_pages(&self) -> usize {
        self.free.len()
    }
}
