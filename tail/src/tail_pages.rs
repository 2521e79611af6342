//! The list of a tail's live pages, and the way from a record's number to its page.
//!
//! A list never changes: a tail that gets or drops a page publishes another list. Sequence numbers
//! are dense but for *gaps*: pages of tombstones that were dropped from between others (see
//! `release`). No row map entry and no chain leads into a gap.

use crate::hops;
use crate::record_page::RecordPage;
use crate::row_map::Entry;
use std::sync::Arc;

/// The most records of a page. Models need pages that fill.
pub(crate) const PAGE_RECORDS_MAX: u32 = if cfg!(shuttle) { 2 } else { 512 };

/// The live pages, oldest first.
#[derive(Debug)]
pub struct TailPages {
    /// the sequence number of the first record
    first_seq: u64,
    /// that of the first record
    first_entry: Entry,
    /// every record's number is less than so much behind the first one's
    span: u32,
    /// pages of tombstones may be missing between others
    has_gaps: bool,
    pages: Vec<Listed>,
}

/// A page in the list.
#[derive(Clone, Debug)]
struct Listed {
    /// its first record: other pages are not touched to find one
    first: u64,
    page: Arc<RecordPage>,
}

impl Default for TailPages {
    fn default() -> Self {
        Self::of(Vec::new(), false)
    }
}

impl TailPages {
    fn of(pages: Vec<Listed>, has_gaps: bool) -> Self {
        let first_seq = pages.first().map_or(0, |listed| listed.first);
        let span = pages.last().map_or(0, |last| {
            last.first - first_seq + u64::from(PAGE_RECORDS_MAX)
        });
        Self {
            first_seq,
            first_entry: Entry::of(first_seq),
            span: span as u32,
            has_gaps,
            pages,
        }
    }
    pub(crate) fn with(&self, page: RecordPage) -> Self {
        let (first, page) = (page.first(), Arc::new(page));
        let mut pages = self.pages.clone();
        pages.push(Listed { first, page });
        Self::of(pages, self.has_gaps)
    }
    pub(crate) fn without_first(&self, n: usize) -> Self {
        Self::of(self.pages[n..].to_vec(), self.has_gaps)
    }
    /// Without the pages that begin at `firsts`, in order; the first and the last one stay.
    pub(crate) fn without(&self, firsts: &[u64]) -> Self {
        let is_end = |at: usize| at == 0 || at + 1 == self.pages.len();
        let pages = self.pages.iter().enumerate();
        let kept =
            pages.filter(|(at, page)| is_end(*at) || firsts.binary_search(&page.first).is_err());
        Self::of(kept.map(|(_, page)| page.clone()).collect(), true)
    }

    /// The sequence number of the first record; 0 if there is no page.
    #[inline]
    pub fn first_seq(&self) -> u64 {
        self.first_seq
    }
    /// The record of a row map entry that was loaded before the list: sequence number + 1, or 0 if
    /// there is none or it is gone.
    #[inline]
    pub fn head(&self, entry: Entry) -> u64 {
        match entry.behind(self.first_entry) {
            Some(steps) if steps < u64::from(self.span) => self.first_seq + steps + 1,
            _ => 0,
        }
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        self.pages.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
    /// All of them.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<RecordPage>> {
        self.pages.iter().map(|listed| &listed.page)
    }
    /// The one that takes the next records.
    #[inline]
    pub fn last(&self) -> Option<&Arc<RecordPage>> {
        self.pages.last().map(|listed| &listed.page)
    }
    /// The pages from that of record `seq` on, or from the first one after it.
    pub(crate) fn since(&self, seq: u64) -> impl Iterator<Item = &Arc<RecordPage>> {
        let before = self.pages.partition_point(|listed| listed.first <= seq);
        let from = before.saturating_sub(1);
        self.pages[from..].iter().map(|listed| &listed.page)
    }
}

/// The page and index of record `seq`; None if its page has been dropped.
#[inline]
pub fn locate(pages: &TailPages, seq: u64) -> Option<(&Arc<RecordPage>, u32)> {
    hops::note();
    let has_gaps = pages.has_gaps;
    let pages = &pages.pages[..];
    let last = pages.len().checked_sub(1)?;
    // Most pages are full-grown.
    let before = pages[last]
        .first
        .saturating_sub(seq)
        .div_ceil(u64::from(PAGE_RECORDS_MAX));
    let guess = last.wrapping_sub(before as usize);
    let is_found = pages.get(guess).is_some_and(|listed| listed.first <= seq)
        && pages.get(guess + 1).is_none_or(|next| seq < next.first);
    let at = match is_found {
        true => guess,
        false => pages
            .partition_point(|listed| listed.first <= seq)
            .checked_sub(1)?,
    };
    let Listed { first, page } = &pages[at];
    // Numbers are dense: only behind the last page, and in a gap, there may be none.
    if (at == last || has_gaps) && !page.has_record(seq) {
        return None;
    }
    Some((page, (seq - first) as u32))
}
