//! The tail of one update range: its row map and its tail pages \[L-Store §2.2, §3.1\].
//!
//! Records are numbered by a sequence that grows over pages, up to [`RECORDS_MAX`]; a writer that
//! needs a higher number gets an error, and so does one if more than [`SPAN_MAX`] records are in
//! memory. Pages start at 8 records and double to
//! 512, so that a lone update costs little. A record with a column that the last page has no place
//! for closes it: the next one has places for both. Pages whose records are all merged into base
//! are dropped from the front; a back pointer into a dropped page means "continue in base".
//!
//! A tail is *retired* (removed from its range) only when it holds nothing but merged records.
//! Appenders announce themselves in `appenders`; sealing succeeds only with none inside, and an
//! appender that finds the tail sealed loads the range again.
//!
//! Invariants:
//! 1. The newest record of a row is reachable from the row map; the chain runs strictly to older
//!    sequence numbers.
//! 2. A page leaves the list only after every range version whose base does not contain its
//!    records is gone (see `range`).
//! 3. After `seal` succeeds no record is ever appended.
//! 4. A claimed record is published, as a tombstone if its writer panics: what follows an
//!    unpublished record would never settle.
//! 5. Sequence numbers are dense but for gaps (see `tail_pages`).
//!
//! # Entries that come round
//!
//! A row map entry has its record's number modulo [`ENTRIES`]. [`TailPages::head`] looks for it
//! behind the list's first record: a list has at most [`SPAN_MAX`] numbers. The entry of a record
//! that is gone must not be taken for one in the list, so no entry stays when its record is more
//! than [`LAG_MAX`] before the list: `swept` is a record before which there are no entries, and
//! pages are not dropped until entries have been cleared that would be too far behind. (If a latch
//! is held for long, the next thread that drops pages does both.)
//!
//! A reader loads the entry, then the list. Meanwhile the list may lose pages that were retired
//! before the reader's range version, at most [`SPAN_MAX`] records. So an entry's record is never
//! further before the list than half of all numbers.
//!
//! Lock order: `swept` → row latch → `grow`. Nothing is awaited under a row latch.

use crate::claimed::Claimed;
use crate::column_set::ColumnSet;
use crate::page_memory::{PageBytes, PageMemory};
use crate::record_kind::RecordKind;
use crate::record_layout::RecordLayout;
use crate::record_page::RecordPage;
use crate::row_map::{ENTRIES, Entry, RowMap};
use crate::schema::StorageSchema;
use crate::tail_pages::{PAGE_RECORDS_MAX, TailPages};
use crate::tail_records::BACK_BITS;
use arc_swap::ArcSwap;
use std::sync::Arc;
use strandline_base::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};
use strandline_base::{Error, ErrorKind, Result, SqlState, UPDATE_ROWS};
use strandline_txn::StartWord;

/// Models need pages that fill.
const FIRST_PAGE_RECORDS: u32 = if cfg!(shuttle) { 1 } else { 8 };
const SEALED: u32 = 1 << 31;
/// Records that a tail numbers before all of them must be merged: a back pointer holds the number
/// plus one. A million per second reach it in nine years.
pub const RECORDS_MAX: u64 = (1 << BACK_BITS) - 1;
/// Records of a tail that may be in memory.
const SPAN_MAX: u64 = ENTRIES / 4;
/// How far the oldest entry's record may be behind the list.
const LAG_MAX: u64 = ENTRIES / 4;

/// A record's fields apart from its cells.
#[derive(Clone, Copy, Debug)]
pub struct RecordHeader {
    /// the row's slot in the update range
    pub slot: u16,
    /// kind of record
    pub kind: RecordKind,
    /// the row's previous record: sequence number + 1, or 0
    pub back: u64,
    /// the statement that writes it
    pub statement: u32,
    /// the start word it is published with
    pub word: StartWord,
}

/// The tail of one update range. The fields that a point read needs come first.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Tail {
    pages: ArcSwap<TailPages>,
    row_map: RowMap,
    grow: Mutex<()>,
    /// no entry is of a record before this one
    swept: Mutex<u64>,
    appenders: AtomicU32,
    /// number of merged records among all claimed ones, or less; wraps like `claims`
    merged: AtomicU32,
    /// every committed record up to this timestamp is in a run
    persisted_through: AtomicU64,
    /// records ever claimed; moves before an appender leaves. Wraps: only differences below 2^32
    /// are looked at, and memory holds fewer records.
    claims: AtomicU32,
    bytes: PageBytes,
}

/// An appender's permission; the tail cannot be sealed while one is held.
pub struct AppendGuard<'a>(&'a Tail);

impl Drop for AppendGuard<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Tail {
    /// An empty tail.
    pub fn new(bytes: &PageBytes) -> Self {
        Self {
            pages: ArcSwap::default(),
            row_map: RowMap::new(PageMemory::new(bytes, size_of::<Self>())),
            grow: Mutex::new(()),
            swept: Mutex::new(bytes.first_record()),
            appenders: AtomicU32::new(0),
            merged: AtomicU32::new(0),
            persisted_through: AtomicU64::new(0),
            claims: AtomicU32::new(0),
            bytes: bytes.clone(),
        }
    }

    /// The row map.
    #[inline]
    pub fn row_map(&self) -> &RowMap {
        &self.row_map
    }
    /// A view of the live pages.
    #[inline]
    pub fn pages(&self) -> arc_swap::Guard<Arc<TailPages>> {
        self.pages.load()
    }
    /// Bytes that it and its pages hold.
    pub fn memory_bytes(&self) -> usize {
        let pages = self.pages();
        let bytes = pages.iter().map(|page| page.memory_bytes());
        self.row_map.memory_bytes() + bytes.sum::<usize>()
    }
    /// Number of records ever claimed. A thread that loads the pages afterwards finds them; see
    /// [`crate::overlay`].
    pub(crate) fn claims(&self) -> u32 {
        self.claims.load(Ordering::SeqCst)
    }
    /// Records that are not merged, or more.
    pub fn pending(&self) -> u32 {
        let merged = self.merged.load(Ordering::Relaxed);
        self.claims.load(Ordering::Relaxed).wrapping_sub(merged)
    }
    /// After a merge: `unmerged` records are left of those present when `pending` returned
    /// `before`. Later records may be counted twice, never omitted.
    pub(crate) fn set_pending(&self, before: u32, unmerged: u32) {
        let merged = before.wrapping_sub(unmerged);
        self.merged.fetch_add(merged, Ordering::Relaxed);
    }
    /// Every committed record up to this timestamp is in a run.
    pub fn persisted_through(&self) -> u64 {
        self.persisted_through.load(Ordering::Acquire)
    }
    /// Notes that every committed record up to `ts` is in a run.
    pub fn set_persisted_through(&self, ts: u64) {
        self.persisted_through.store(ts, Ordering::Release);
    }

    /// Enters as an appender; None if the tail is sealed: load the range again.
    pub fn enter(&self) -> Option<AppendGuard<'_>> {
        self.try_enter().then(|| AppendGuard(self))
    }

    /// As [`Tail::enter`]; returns whether it entered. A thread that has entered calls
    /// [`leave`](Tail::leave).
    #[inline]
    pub(crate) fn try_enter(&self) -> bool {
        let before = self.appenders.fetch_add(1, Ordering::Acquire);
        let is_open = before & SEALED == 0;
        if !is_open {
            self.leave();
        }
        is_open
    }

    /// An appender leaves.
    #[inline]
    pub(crate) fn leave(&self) {
        self.appenders.fetch_sub(1, Ordering::Release);
    }

    /// Seals the tail if no appender is inside.
    pub fn seal(&self) -> bool {
        self.appenders
            .compare_exchange(0, SEALED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Reopens a tail that could not be retired after all.
    pub fn unseal(&self) {
        self.appenders.fetch_and(!SEALED, Ordering::Release);
    }

    /// Claims a record for values of `columns` in a page made for `schema`, if there is room in the
    /// last one of `pages`, a list loaded under the row's latch; returns the page and the record's
    /// index in it.
    ///
    /// # Errors
    /// 54000 if all [`RECORDS_MAX`] numbers have been used, or as many records are in memory as a
    /// row map can tell apart.
    pub fn claim(
        &self,
        (pages, schema): (&TailPages, &Arc<StorageSchema>),
        columns: &ColumnSet,
    ) -> Result<(Arc<RecordPage>, u32)> {
        match self.claim_in(pages, schema, columns) {
            Some(claimed) => Ok(claimed),
            None => self.claim_in_new_page(schema, columns),
        }
    }

    #[cold]
    #[inline(never)]
    fn claim_in_new_page(
        &self,
        schema: &Arc<StorageSchema>,
        columns: &ColumnSet,
    ) -> Result<(Arc<RecordPage>, u32)> {
        loop {
            self.grow(schema, columns)?;
            if let Some(claimed) = self.claim_in(&self.pages(), schema, columns) {
                return Ok(claimed);
            }
        }
    }

    #[inline]
    fn claim_in(
        &self,
        pages: &TailPages,
        schema: &Arc<StorageSchema>,
        columns: &ColumnSet,
    ) -> Option<(Arc<RecordPage>, u32)> {
        let page = pages.last().filter(|page| page.is_for(schema))?;
        let i = page.claim(columns)?;
        self.claims.fetch_add(1, Ordering::SeqCst);
        Some((page.clone(), i))
    }

    /// Appends a record with values of `columns`: [claims](Tail::claim) it, lets `fill` put its
    /// cells, publishes it. A record that does not take its cells becomes a tombstone. The caller
    /// holds the row's latch.
    #[inline]
    pub fn append(
        &self,
        (pages, schema): (&TailPages, &Arc<StorageSchema>),
        header: &RecordHeader,
        columns: &ColumnSet,
        fill: impl FnOnce(&RecordPage, u32) -> Result<()>,
    ) -> Result<(Arc<RecordPage>, u32)> {
        let (page, i) = self.claim((pages, schema), columns)?;
        let claimed = Claimed::new(&page, i);
        page.set_link(i, header.slot, header.kind, header.back);
        page.set_statement(i, header.statement);
        fill(&page, i)?;
        claimed.publish(header.word);
        Ok((page, i))
    }

    /// Adds a page with places for `columns` and for the columns of the page before, unless that
    /// page has room for such a record.
    fn grow(&self, schema: &Arc<StorageSchema>, columns: &ColumnSet) -> Result<()> {
        let _grow = self.grow.lock();
        let pages = self.pages.load_full();
        let last = pages.last();
        let layout = last
            .filter(|last| last.is_for(schema))
            .and_then(|last| last.layout());
        let has_places = |layout: &&Arc<RecordLayout>| layout.columns.contains_all(columns);
        let same = layout.filter(has_places);
        let was_full = last.is_some_and(|last| last.is_full());
        if same.is_some() && !was_full {
            return Ok(()); // somebody else has grown it
        }
        let (first, capacity) = match last {
            Some(last) => {
                // The numbers go on where its end.
                last.close();
                let capacity = match was_full {
                    true => (last.capacity() * 2).min(PAGE_RECORDS_MAX),
                    false => last.capacity(),
                };
                (last.end(), capacity)
            }
            None => (self.bytes.first_record(), FIRST_PAGE_RECORDS),
        };
        let left = RECORDS_MAX.saturating_sub(first);
        let behind = match pages.is_empty() {
            true => 0,
            false => first - pages.first_seq(),
        };
        if left == 0 || behind + u64::from(PAGE_RECORDS_MAX) > SPAN_MAX {
            return Err(no_more_records());
        }
        let capacity = u64::from(capacity).min(left) as u32;
        let layout = match same {
            Some(layout) => layout.clone(),
            None => {
                let mut columns = columns.clone();
                if let Some(before) = layout {
                    columns.insert_all(&before.columns);
                }
                schema.layout_covering(columns)
            }
        };
        let page = RecordPage::tail(first, capacity, &layout, &self.bytes);
        self.pages.store(Arc::new(pages.with(page)));
        Ok(())
    }

    /// Drops the pages that end at or before sequence number `before` (never the last one).
    pub fn drop_pages_before(&self, before: u64) {
        let mut swept = self.swept.lock();
        let pages = self.pages.load_full();
        let last = pages.len().saturating_sub(1);
        let done = pages.iter().take(last).take_while(|p| p.end() <= before);
        let dropped = done.count();
        let Some(first) = pages.iter().nth(dropped).map(|page| page.first()) else {
            return;
        };
        if first - *swept > LAG_MAX {
            if !self.sweep(&pages, first) {
                return;
            }
            *swept = first;
        }
        if dropped > 0 {
            let _grow = self.grow.lock();
            let pages = self.pages.load_full();
            self.pages.store(Arc::new(pages.without_first(dropped)));
        }
    }

    /// Drops pages from between others by their first records' numbers, in order: no entry and no
    /// chain that a reader may follow leads to one.
    pub(crate) fn drop_pages_between(&self, firsts: &[u64]) {
        if !firsts.is_empty() {
            let _grow = self.grow.lock();
            let pages = self.pages.load_full();
            self.pages.store(Arc::new(pages.without(firsts)));
        }
    }

    /// Keeps pages from being dropped at the front, and so the numbers in the list from being
    /// behind it.
    pub(crate) fn keep_first_pages(&self) -> MutexGuard<'_, u64> {
        self.swept.lock()
    }

    /// Clears the entries of records before `first`, which no reader needs any more; false if the
    /// latch of one is held for long. `pages` gives their numbers.
    fn sweep(&self, pages: &TailPages, first: u64) -> bool {
        let is_done = |entry: Entry| entry != Entry::NONE && pages.head(entry) <= first;
        (0..UPDATE_ROWS).all(|slot| {
            if !is_done(self.row_map.entry(slot)) {
                return true;
            }
            let Some(latch) = self.row_map.latch(slot) else {
                return false;
            };
            if is_done(latch.entry()) {
                latch.clear();
            }
            true
        })
    }
}

#[cold]
fn no_more_records() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        "neighbouring rows have had too many changes since all of them were merged",
    )
    .with_detail(format!(
        "At most {SPAN_MAX} of them can be in memory, and {RECORDS_MAX} can come before all are \
         merged."
    ))
    .with_hint("End transactions that have been open for long, then run CHECKPOINT.")
}

#[cfg(test)]
mod tests;
