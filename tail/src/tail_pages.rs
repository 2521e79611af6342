//! The tail of one update range: its row map and its tail pages \[L-Store §2.2, §3.1\].
//!
//! Records are numbered by a sequence that grows over pages. Pages start at 8 records and double to
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
//!
//! Lock order: row latch → `pages` (growing). Nothing is awaited under either.

use crate::column_set::ColumnSet;
use crate::page_memory::PageMemory;
use crate::record_layout::RecordLayout;
use crate::record_page::{PageBytes, RecordKind, RecordPage};
use crate::row_map::RowMap;
use crate::schema::StorageSchema;
use arc_swap::ArcSwap;
use std::sync::Arc;
use strandline_base::Result;
use strandline_base::sync::{AtomicU32, AtomicU64, Mutex, Ordering};
use strandline_txn::StartWord;

/// Models need pages that fill.
const FIRST_PAGE_RECORDS: u32 = if cfg!(shuttle) { 1 } else { 8 };
const PAGE_RECORDS_MAX: u32 = if cfg!(shuttle) { 2 } else { 512 };
const SEALED: u32 = 1 << 31;

/// The live pages, oldest first.
#[derive(Debug, Default)]
pub struct TailPages {
    /// the sequence number of the first record
    first_seq: u32,
    pages: Vec<Listed>,
}

/// A page in the list.
#[derive(Clone, Debug)]
struct Listed {
    /// its first record: other pages are not touched to find one
    first: u32,
    page: Arc<RecordPage>,
}

impl TailPages {
    fn of(pages: Vec<Listed>) -> Self {
        let first_seq = pages.first().map_or(0, |listed| listed.first);
        Self { first_seq, pages }
    }
    fn with(&self, page: RecordPage) -> Self {
        let (first, page) = (page.first(), Arc::new(page));
        let mut pages = self.pages.clone();
        pages.push(Listed { first, page });
        Self::of(pages)
    }
    fn without_first(&self, n: usize) -> Self {
        Self::of(self.pages[n..].to_vec())
    }

    /// The sequence number of the first record; 0 if there is no page.
    #[inline]
    pub fn first_seq(&self) -> u32 {
        self.first_seq
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
    /// Those from that of record `seq` on, or from the first one behind it.
    pub(crate) fn since(&self, seq: u32) -> impl Iterator<Item = &Arc<RecordPage>> {
        let before = self.pages.partition_point(|listed| listed.first <= seq);
        let from = before.saturating_sub(1);
        self.pages[from..].iter().map(|listed| &listed.page)
    }
}

/// What a record says besides its cells.
#[derive(Clone, Copy, Debug)]
pub struct RecordHeader {
    /// the row's slot in the update range
    pub slot: u16,
    /// what it says
    pub kind: RecordKind,
    /// the row's previous record: sequence number + 1, or 0
    pub back: u32,
    /// the statement that writes it
    pub statement: u32,
    /// the start word it is published with
    pub word: StartWord,
}

/// The tail of one update range. What a point read looks at comes first.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct Tail {
    pages: ArcSwap<TailPages>,
    row_map: RowMap,
    grow: Mutex<()>,
    appenders: AtomicU32,
    /// of the records ever claimed those that are merged, or fewer
    merged: AtomicU32,
    /// every committed record up to this timestamp is in a run
    persisted_through: AtomicU64,
    /// records ever claimed; moves before an appender leaves
    claims: AtomicU32,
    bytes: PageBytes,
}

/// An appender's permission; the tail cannot be sealed while one is held.
pub struct AppendGuard<'a>(&'a Tail);

impl Drop for AppendGuard<'_> {
    fn drop(&mut self) {
        self.0.appenders.fetch_sub(1, Ordering::Release);
    }
}

impl Tail {
    /// An empty tail.
    pub fn new(bytes: &PageBytes) -> Self {
        Self {
            pages: ArcSwap::default(),
            row_map: RowMap::new(PageMemory::new(bytes, size_of::<Self>())),
            grow: Mutex::new(()),
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
    /// Records ever claimed. Who loads the pages afterwards finds them; see [`crate::overlay`].
    pub(crate) fn claims(&self) -> u32 {
        self.claims.load(Ordering::SeqCst)
    }
    /// Records that are not merged, or more.
    pub fn pending(&self) -> u32 {
        let merged = self.merged.load(Ordering::Relaxed);
        self.claims.load(Ordering::Relaxed).wrapping_sub(merged)
    }
    /// After a merge: `unmerged` records are left of those that were there when `pending` gave
    /// `before`. Records that came since may be counted twice, never not at all.
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
        let before = self.appenders.fetch_add(1, Ordering::Acquire);
        let guard = AppendGuard(self);
        if before & SEALED != 0 {
            return None;
        }
        Some(guard)
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
    pub fn claim(
        &self,
        (pages, schema): (&TailPages, &Arc<StorageSchema>),
        columns: &ColumnSet,
    ) -> (Arc<RecordPage>, u32) {
        if let Some(claimed) = self.claim_in(pages, schema, columns) {
            return claimed;
        }
        loop {
            self.grow(schema, columns);
            if let Some(claimed) = self.claim_in(&self.pages(), schema, columns) {
                return claimed;
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
    pub fn append(
        &self,
        (pages, schema): (&TailPages, &Arc<StorageSchema>),
        header: &RecordHeader,
        columns: &ColumnSet,
        fill: impl FnOnce(&RecordPage, u32) -> Result<()>,
    ) -> Result<(Arc<RecordPage>, u32)> {
        let (page, i) = self.claim((pages, schema), columns);
        page.set_link(i, header.slot, header.kind, header.back);
        page.set_statement(i, header.statement);
        let filled = fill(&page, i);
        let word = match filled {
            Ok(()) => header.word,
            Err(_) => StartWord::ABORTED,
        };
        page.set_start(i, word);
        filled.map(|()| (page, i))
    }

    /// Adds a page with places for `columns` and for those of the page before, unless that has room
    /// for such a record.
    fn grow(&self, schema: &Arc<StorageSchema>, columns: &ColumnSet) {
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
            return; // somebody else has grown it
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
            None => (0, FIRST_PAGE_RECORDS),
        };
        let layout = match same {
            Some(layout) => layout.clone(),
            None => {
                let mut columns = columns.clone();
                if let Some(before) = layout {
                    columns.insert_all(&before.columns);
                }
                schema.layouts().covering(schema, columns)
            }
        };
        let page = RecordPage::tail(first, capacity, &layout, &self.bytes);
        self.pages.store(Arc::new(pages.with(page)));
    }

    /// Drops the pages that end at or before sequence number `before` (never the last one).
    pub fn drop_pages_before(&self, before: u32) {
        let _grow = self.grow.lock();
        let pages = self.pages.load_full();
        let dropped = pages
            .iter()
            .take(pages.len().saturating_sub(1))
            .take_while(|p| p.end() <= before)
            .count();
        if dropped > 0 {
            self.pages.store(Arc::new(pages.without_first(dropped)));
        }
    }
}

/// The page and index of record `seq`; None if its page has been dropped.
#[inline]
pub fn locate(pages: &TailPages, seq: u32) -> Option<(&Arc<RecordPage>, u32)> {
    let pages = &pages.pages[..];
    let last = pages.len().checked_sub(1)?;
    // Most pages are full-grown.
    let before = pages[last]
        .first
        .saturating_sub(seq)
        .div_ceil(PAGE_RECORDS_MAX);
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
    // Numbers are dense: only behind the last page there may be none.
    if at == last && !page.has_record(seq) {
        return None;
    }
    Some((page, seq - first))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::{ColumnId, CommitTs, SqlType, Value};

    #[test]
    fn pages_grow_and_old_ones_go() {
        let bytes = PageBytes::default();
        let schema = StorageSchema::new([(SqlType::BigInt, Value::Null)]);
        let tail = Tail::new(&bytes);
        let spec = schema.column(ColumnId(0));
        let columns = ColumnSet::from_iter([ColumnId(0)]);
        for n in 0..2000u32 {
            let (page, i) = tail.claim((&tail.pages(), &schema), &columns);
            page.put(i, ColumnId(0), spec, &Value::BigInt(i64::from(n)))
                .expect("put");
            page.set_link(i, 3, RecordKind::Update, n);
            page.set_start(i, StartWord::committed(CommitTs(u64::from(n) + 1)));
            assert_eq!(page.first() + i, n, "sequence numbers are dense");
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
        tail.drop_pages_before(u32::MAX);
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
            let (page, i) = tail.claim((&tail.pages(), &schema), &columns);
            page.first() + i
        };
        assert_eq!([claim(&[0]), claim(&[]), claim(&[0])], [0, 1, 2]);
        assert_eq!(claim(&[1]), 3, "in a page of its own");
        assert_eq!(claim(&[0, 1]), 4, "which has places for both");
        let list = tail.pages();
        let pages: Vec<_> = list.iter().collect();
        assert_eq!((pages.len(), pages[0].claimed(), pages[0].end()), (2, 3, 3));
        for seq in 0..5 {
            let (page, i) = locate(&list, seq).expect("claimed");
            assert_eq!(page.first() + i, seq);
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
            tail.claim((&tail.pages(), &small), &columns);
        }
        assert_eq!(tail.pages().len(), 1);
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
