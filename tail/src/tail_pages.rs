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
//! 5. Sequence numbers are dense but for *gaps*: pages of tombstones that were dropped from between
//!    others (see `release`). No row map entry and no chain leads into a gap.
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
use crate::hops;
use crate::page_memory::{PageBytes, PageMemory};
use crate::record_kind::RecordKind;
use crate::record_layout::RecordLayout;
use crate::record_page::RecordPage;
use crate::row_map::{ENTRIES, Entry, RowMap};
use crate::schema::StorageSchema;
use crate::tail_records::BACK_BITS;
use arc_swap::ArcSwap;
use std::sync::Arc;
use strandline_base::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};
use strandline_base::{Error, ErrorKind, Result, SqlState, UPDATE_ROWS};
use strandline_txn::StartWord;

/// Models need pages that fill.
const FIRST_PAGE_RECORDS: u32 = if cfg!(shuttle) { 1 } else { 8 };
const PAGE_RECORDS_MAX: u32 = if cfg!(shuttle) { 2 } else { 512 };
const SEALED: u32 = 1 << 31;
/// Records that a tail numbers before all of them must be merged: a back pointer holds the number
/// plus one. A million per second reach it in nine years.
pub const RECORDS_MAX: u64 = (1 << BACK_BITS) - 1;
/// Records of a tail that may be in memory.
const SPAN_MAX: u64 = ENTRIES / 4;
/// How far the oldest entry's record may be behind the list.
const LAG_MAX: u64 = ENTRIES / 4;

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
    fn with(&self, page: RecordPage) -> Self {
        let (first, page) = (page.first(), Arc::new(page));
        let mut pages = self.pages.clone();
        pages.push(Listed { first, page });
        Self::of(pages, self.has_gaps)
    }
    fn without_first(&self, n: usize) -> Self {
        Self::of(self.pages[n..].to_vec(), self.has_gaps)
    }
    /// Without the pages that begin at `firsts`, in order; the first and the last one stay.
    fn without(&self, firsts: &[u64]) -> Self {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_memory::PageAccount;
    use strandline_base::{ColumnId, CommitTs, SqlType, Value};

    #[test]
    fn pages_grow_and_old_ones_go() {
        let bytes = PageBytes::default();
        let schema = StorageSchema::new([(SqlType::BigInt, Value::Null)]);
        let tail = Tail::new(&bytes);
        let spec = schema.column(ColumnId(0));
        let columns = ColumnSet::from_iter([ColumnId(0)]);
        for n in 0..2000u32 {
            let claimed = tail.claim((&tail.pages(), &schema), &columns);
            let (page, i) = claimed.expect("claimed");
            page.put(i, ColumnId(0), spec, &Value::BigInt(i64::from(n)))
                .expect("put");
            page.set_link(i, 3, RecordKind::Update, u64::from(n));
            page.set_start(i, StartWord::committed(CommitTs(u64::from(n) + 1)));
            let seq = page.first() + u64::from(i);
            assert_eq!(seq, u64::from(n), "sequence numbers are dense");
        }
        let pages = tail.pages();
        let (page, i) = locate(&pages, 1234).expect("live");
        assert_eq!(
            page.value(i, ColumnId(0), spec).expect("value"),
            Value::BigInt(1234)
        );
        drop(pages);
        tail.drop_pages_before(1500);
        let pages = tail.pages();
        assert!(locate(&pages, 100).is_none());
        assert!(locate(&pages, 1500).is_some());
        drop(pages);
        tail.drop_pages_before(u64::MAX);
        assert_eq!(tail.pages().len(), 1, "the page being appended to stays");
        drop(tail);
        assert_eq!(bytes.used(), 0);
    }

    #[test]
    fn a_new_column_closes_the_last_page() {
        let bytes = PageBytes::default();
        let schema = StorageSchema::new([const { (SqlType::BigInt, Value::Null) }; 5]);
        let tail = Tail::new(&bytes);
        let claim = |columns: &[u32]| {
            let columns = columns.iter().map(|&column| ColumnId(column)).collect();
            let claimed = tail.claim((&tail.pages(), &schema), &columns);
            let (page, i) = claimed.expect("claimed");
            page.first() + u64::from(i)
        };
        assert_eq!([claim(&[0]), claim(&[]), claim(&[0])], [0, 1, 2]);
        assert_eq!(claim(&[1]), 3, "in a page of its own");
        assert_eq!(claim(&[0, 1]), 4, "which has places for both");
        let list = tail.pages();
        let pages: Vec<_> = list.iter().collect();
        assert_eq!((pages.len(), pages[0].claimed(), pages[0].end()), (2, 3, 3));
        for seq in 0..5 {
            let (page, i) = locate(&list, seq).expect("claimed");
            assert_eq!(page.first() + u64::from(i), seq);
            assert!(i < page.claimed());
        }
        assert!(pages[0].is_full() && !pages[1].is_full());
        assert_eq!(pages[0].claim(&ColumnSet::default()), None, "closed");
        assert_eq!(
            pages[1].capacity(),
            FIRST_PAGE_RECORDS,
            "the first was not used up"
        );
        assert!(!pages[0].has_cells(ColumnId(1)) && pages[1].has_cells(ColumnId(1)));
        assert_eq!(tail.pending(), 5);
        // A small table's records have places for all columns from the first on.
        let small = StorageSchema::new([const { (SqlType::BigInt, Value::Null) }; 4]);
        let tail = Tail::new(&bytes);
        for column in 0..4 {
            let columns = ColumnSet::from_iter([ColumnId(column)]);
            let claimed = tail.claim((&tail.pages(), &small), &columns);
            claimed.expect("claimed");
        }
        assert_eq!(tail.pages().len(), 1);
    }

    #[test]
    fn a_tail_without_numbers_left_says_so() {
        let bytes = Arc::new(PageAccount::with_first_record(RECORDS_MAX - 20));
        let schema = StorageSchema::new([(SqlType::BigInt, Value::Null)]);
        let tail = Tail::new(&bytes);
        let columns = ColumnSet::from_iter([ColumnId(0)]);
        let append = |n: u64| {
            let latch = tail.row_map().latch(3).expect("free");
            let header = RecordHeader {
                slot: 3,
                kind: RecordKind::Update,
                back: tail.pages().head(latch.entry()),
                statement: 0,
                word: StartWord::committed(CommitTs(n)),
            };
            let place = (&**tail.pages(), &schema);
            let (page, i) = tail.append(place, &header, &columns, |_, _| Ok(()))?;
            latch.publish(page.first() + u64::from(i));
            Ok::<(), Error>(())
        };
        (1..=20).for_each(|n| append(n).expect("a number"));
        for _ in 0..2 {
            let error = append(21).expect_err("no number is left");
            assert_eq!(error.sqlstate(), SqlState::PROGRAM_LIMIT_EXCEEDED);
        }
        let (entry, pages) = (tail.row_map().entry(3), tail.pages());
        let mut next = pages.head(entry);
        assert_eq!(next, RECORDS_MAX, "the last one");
        for n in (1..=20).rev() {
            let (page, i) = locate(&pages, next - 1).expect("live");
            assert_eq!(page.start(i), StartWord::committed(CommitTs(n)));
            next = page.back(i);
        }
        assert_eq!(next, 0);
    }

    fn update(tail: &Tail, schema: &Arc<StorageSchema>, slot: u16) -> Result<u64> {
        let latch = tail.row_map().latch(slot.into()).expect("free");
        let header = RecordHeader {
            slot,
            kind: RecordKind::Update,
            back: tail.pages().head(latch.entry()),
            statement: 0,
            word: StartWord::committed(CommitTs(1)),
        };
        let columns = ColumnSet::from_iter([ColumnId(0)]);
        let place = (&**tail.pages(), schema);
        let (page, i) = tail.append(place, &header, &columns, |_, _| Ok(()))?;
        let seq = page.first() + u64::from(i);
        latch.publish(seq);
        Ok(seq)
    }

    fn head(tail: &Tail, slot: usize) -> u64 {
        let entry = tail.row_map().entry(slot);
        tail.pages().head(entry)
    }

    /// Rows that are updated now and then among one that always is, while pages go: an entry never
    /// leads to another row's record, though numbers come round more than ten times.
    #[test]
    fn entries_come_round() {
        let bytes = Arc::new(PageAccount::with_first_record((1 << 31) - 5_000));
        let schema = StorageSchema::new([(SqlType::BigInt, Value::Null)]);
        let tail = Tail::new(&bytes);
        let mut newest = [0; 5];
        for n in 0..12 * ENTRIES {
            let slot = match n {
                0 => 0,
                n if n % (2 * ENTRIES + 1) == 0 => 1,
                n if n % 3_000 == 0 => 2,
                n if n % 100 == 0 => 3,
                _ => 4,
            };
            newest[slot] = update(&tail, &schema, slot as u16).expect("a number") + 1;
            if n % 50 == 0 {
                tail.drop_pages_before(newest[4].saturating_sub(500));
                let pages = tail.pages();
                for (slot, newest) in newest.into_iter().enumerate() {
                    let head = head(&tail, slot);
                    let is_live = newest > pages.first_seq();
                    assert_eq!(
                        head,
                        if is_live { newest } else { 0 },
                        "row {slot}, update {n}"
                    );
                }
            }
        }
    }

    #[test]
    fn entries_that_cannot_be_cleared_keep_the_pages() {
        let schema = StorageSchema::new([(SqlType::BigInt, Value::Null)]);
        let tail = Tail::new(&PageBytes::default());
        update(&tail, &schema, 3).expect("a number");
        let latch = tail.row_map().latch(3).expect("free");
        let mut last = 0;
        let error = loop {
            match update(&tail, &schema, 4) {
                Ok(seq) => last = seq,
                Err(error) => break error,
            }
            if last % 100 == 0 {
                tail.drop_pages_before(last);
            }
        };
        assert_eq!(error.sqlstate(), SqlState::PROGRAM_LIMIT_EXCEEDED);
        assert!(last > LAG_MAX && head(&tail, 4) == last + 1);
        drop(latch);
        assert_eq!(head(&tail, 3), 0);
        tail.drop_pages_before(last);
        assert_eq!(tail.row_map().entry(3), Entry::NONE);
        assert_eq!(update(&tail, &schema, 3).expect("a number"), last + 1);
        assert_eq!([head(&tail, 3), head(&tail, 4)], [last + 2, last + 1]);
    }

    #[test]
    fn a_writer_that_panics_leaves_a_tombstone_and_no_latch() {
        let schema = StorageSchema::new([(SqlType::BigInt, Value::Null)]);
        let tail = Tail::new(&PageBytes::default());
        let columns = ColumnSet::from_iter([ColumnId(0)]);
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _entered = tail.enter().expect("open");
            let _latch = tail.row_map().latch(3).expect("free");
            let header = RecordHeader {
                slot: 3,
                kind: RecordKind::Update,
                back: 0,
                statement: 0,
                word: StartWord::committed(CommitTs(1)),
            };
            let place = (&**tail.pages(), &schema);
            tail.append(place, &header, &columns, |_, _| {
                panic!("while it is filled")
            })
        }));
        assert!(caught.is_err());
        let pages = tail.pages();
        let page = pages.last().expect("a page");
        assert_eq!((page.claimed(), page.start(0)), (1, StartWord::ABORTED));
        assert_eq!(tail.row_map().entry(3), Entry::NONE);
        assert!(tail.row_map().latch(3).is_some() && tail.seal());
    }

    #[test]
    fn sealing_excludes_appenders() {
        let tail = Tail::new(&PageBytes::default());
        let guard = tail.enter().expect("open");
        assert!(!tail.seal());
        drop(guard);
        assert!(tail.seal());
        assert!(tail.enter().is_none());
        tail.unseal();
        assert!(tail.enter().is_some());
    }
}
