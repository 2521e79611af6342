//! Overlays: the settled records of a range's tails, consolidated for scans \[L-Store §4.1:
//! consolidation of update ranges; §2.2: tail-driven scans\].
//!
//! A scan takes from the tails the newest visible value of every (row, column). Visiting records
//! costs their number, and a look at a tail some cache misses even if nothing is new. So the
//! settled starts of a range's tails are put together in an [`Overlay`]: per column the updated
//! rows in row order with their newest values. It stands in the range version. Readers apply it
//! and visit only tails that have got records since, and of those only the records behind it.
//!
//! Invariants:
//! 1. Every record that an overlay covers was committed at or before `newest`, or aborted: it is
//!    final. So an overlay is right for every snapshot at or after `newest`, and for no other.
//! 2. Of one row, a later record has a greater sequence number (both are appended under the row's
//!    latch). So records visited in order, each overwriting what came before, leave the newest.
//! 3. A record that an overlay does not cover has *moved* its tail at or after the overlay's number
//!    before anybody can see it.
//! 4. An overlay covers a tail up to `through`; together with the records from there on it equals
//!    the tail. A reader loads the overlay before the pages. If the pages then begin after
//!    `through`, the records between have been merged, and the reader ignores the overlay for that
//!    tail.
//! 5. An overlay belongs to the base it was made for. It replaces the overlay it extends, or none.
//!
//! # Why invariant 3 holds
//!
//! The maker of an overlay draws its number first, then loads the count of claimed records of each
//! tail, then its pages. An appender adds to the count first, then loads the last number drawn. All
//! four are sequentially consistent, so either the maker finds the record claimed, and moves the
//! tail itself if the record is not settled, or the appender finds the number, and moves the tail
//! before it leaves. Marks only grow, so a reader that finds a tail unmoved since an overlay's
//! number skips its records. Marks are written once per overlay and tail, so appenders to different
//! tails share them for reading.
//!
//! Making and publishing overlays is in [`crate::consolidation`].
//!
//! Differences from the paper: an overlay replaces nothing: records stay for older snapshots and
//! the merge. Only ranges that are read get one: readers add up the cost of the records behind it.

use crate::page_memory::PageBytes;
use crate::patches::{PatchList, Patches};
use crate::record_kind::RecordKind;
use crate::tail_pages::TailPages;
use crate::visibility::{RecordState, record_state};
use std::collections::BTreeMap;
use std::ops;
use std::sync::Arc;
use strandline_base::sync::{AtomicU32, AtomicU64, Ordering};
use strandline_base::{ColumnId, CommitTs, UPDATE_RANGES, UPDATE_ROWS};
use strandline_txn::{StartWord, TxnManager};

/// Messages from appenders to readers of overlays, per range.
#[derive(Debug)]
pub struct OverlayMarks {
    /// the last number drawn for an overlay
    drawn: AtomicU64,
    /// the readers' cost for records behind the overlay
    pub(crate) paid: AtomicU32,
    /// per tail the number of the last overlay that may lack records of it
    moved: [AtomicU64; UPDATE_RANGES],
}

impl Default for OverlayMarks {
    fn default() -> Self {
        Self {
            drawn: AtomicU64::new(0),
            paid: AtomicU32::new(0),
            moved: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl OverlayMarks {
    /// Notes that a record has been claimed in the `at`-th tail.
    pub(crate) fn note_claim(&self, at: usize) {
        let drawn = self.drawn.load(Ordering::SeqCst);
        if self.moved[at].load(Ordering::SeqCst) < drawn {
            self.mark(at, drawn);
        }
    }

    pub(crate) fn mark(&self, at: usize, number: u64) {
        self.moved[at].fetch_max(number, Ordering::SeqCst);
    }

    pub(crate) fn draw(&self) -> u64 {
        self.drawn.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether overlay `number` has all of the `at`-th tail.
    pub(crate) fn is_complete(&self, at: usize, number: u64) -> bool {
        self.moved[at].load(Ordering::SeqCst) < number
    }
}

/// The settled records of a range's tails, consolidated.
#[derive(Debug)]
pub struct Overlay {
    number: u64,
    newest: CommitTs,
    /// by tail: the sequence number of the first record that is not covered
    through: [u64; UPDATE_RANGES],
    /// in column order
    columns: Vec<OverlayColumn>,
    /// deleted rows in order, by slot in the range
    deleted: Vec<u16>,
    bytes: PageBytes,
    own_bytes: usize,
}

/// One column of an overlay.
#[derive(Debug)]
struct OverlayColumn {
    id: ColumnId,
    /// in row order, one per row
    patches: Patches,
    /// where each update range's begin, and the end
    starts: [u32; UPDATE_RANGES + 1],
}

impl OverlayColumn {
    fn part(&self, tails: ops::Range<usize>) -> ops::Range<usize> {
        self.starts[tails.start] as usize..self.starts[tails.end] as usize
    }
}

impl Overlay {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
    pub(crate) fn newest(&self) -> CommitTs {
        self.newest
    }
    pub(crate) fn through(&self, at: usize) -> u64 {
        self.through[at]
    }
    /// As [`Overlay::through`], of all tails.
    pub(crate) fn ends(&self) -> [u64; UPDATE_RANGES] {
        self.through
    }

    /// The patches of `column` in several update ranges.
    pub(crate) fn patches(&self, column: ColumnId, tails: ops::Range<usize>) -> PatchList<'_> {
        static NONE: Patches = Patches::NONE;
        match self.columns.binary_search_by_key(&column, |c| c.id) {
            Ok(at) => self.columns[at].patches.part(self.columns[at].part(tails)),
            Err(_) => NONE.all(),
        }
    }

    /// The deleted rows in several update ranges.
    pub(crate) fn deleted(&self, tails: ops::Range<usize>) -> &[u16] {
        let before = |end: usize| {
            let is_before = |&slot: &u16| usize::from(slot) < end * UPDATE_ROWS;
            self.deleted.partition_point(is_before)
        };
        &self.deleted[before(tails.start)..before(tails.end)]
    }

    pub(crate) fn size(&self) -> usize {
        let patches: usize = self.columns.iter().map(|c| c.patches.len()).sum();
        patches + self.deleted.len()
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        self.bytes.subtract(self.own_bytes);
    }
}

/// The new settled records of a tail.
pub(crate) struct Settled {
    /// the position of the tail in the range
    at: usize,
    pages: Arc<TailPages>,
    /// sequence numbers of records that are committed at or before `newest`, or aborted
    pub(crate) records: ops::Range<u64>,
    newest: CommitTs,
    /// no record is behind them
    pub(crate) is_all: bool,
}

impl Settled {
    /// Looks from `from` on for the first record that is not committed at or before `ts` and not
    /// aborted.
    pub(crate) fn find(
        at: usize,
        pages: Arc<TailPages>,
        from: u64,
        ts: CommitTs,
        txns: &TxnManager,
    ) -> Self {
        let mut settled = Self {
            at,
            records: from..from,
            newest: CommitTs::ZERO,
            is_all: false,
            pages,
        };
        settled.is_all = settled.advance(ts, txns);
        settled
    }

    /// Adds the settled records behind it. Returns whether no record is left behind it.
    fn advance(&mut self, ts: CommitTs, txns: &TxnManager) -> bool {
        let from = self.records.end;
        for page in self.pages.since(from) {
            // Asked first: a page that is full has no record after those counted.
            let is_full = page.is_full();
            let claimed = page.claimed();
            for i in page.index_from(from)..claimed {
                if page.start(i) != StartWord::ABORTED {
                    // An unpublished record is nothing yet, but may become something.
                    match record_state(page, i, StartWord(0), txns) {
                        RecordState::Committed(at) if at <= ts => {
                            self.newest = self.newest.max(at);
                        }
                        _ => return false,
                    }
                }
                self.records.end = page.first() + u64::from(i) + 1;
            }
            if !is_full {
                // More may come here, whatever pages follow.
                return self
                    .pages
                    .last()
                    .is_some_and(|last| Arc::ptr_eq(last, page));
            }
        }
        true
    }

    /// Adds the records' values and deletions.
    fn collect(&self, newer: &mut Newer, deleted: &mut Vec<u16>) {
        for page in self.pages.since(self.records.start) {
            let from = page.index_from(self.records.start);
            let end = page.index_from(self.records.end);
            for i in from..end.min(page.claimed()) {
                if page.start(i) == StartWord::ABORTED {
                    continue;
                }
                let (slot, kind) = page.slot_kind(i);
                let slot = slot_in_range(self.at, slot);
                match kind {
                    RecordKind::Delete => deleted.push(slot),
                    RecordKind::Update => {
                        for column in page.columns_of(i) {
                            let tails = newer.entry(column).or_default();
                            let patches = tails.entry(self.at).or_default();
                            patches.push(slot, page, i, column);
                        }
                    }
                    // Old values are those that base has.
                    RecordKind::OldValue | RecordKind::Lock | RecordKind::ShareLock => {}
                }
            }
        }
    }
}

/// By column and tail.
type Newer = BTreeMap<ColumnId, BTreeMap<usize, Patches>>;

/// The slot in the range of a slot in its `at`-th update range.
pub(crate) fn slot_in_range(at: usize, slot: u16) -> u16 {
    (at * UPDATE_ROWS) as u16 + slot
}

/// The overlay `before`, where `kept`, extended by the records settled since.
pub(crate) fn build(
    number: u64,
    before: Option<&Overlay>,
    kept: &[bool; UPDATE_RANGES],
    settled: &[Settled],
    through: [u64; UPDATE_RANGES],
    bytes: &PageBytes,
) -> Overlay {
    let mut newer = Newer::new();
    let mut deleted = Vec::new();
    for (at, _) in kept.iter().enumerate().filter(|(_, kept)| **kept) {
        deleted.extend(before.iter().flat_map(|o| o.deleted(at..at + 1)));
    }
    for found in settled {
        found.collect(&mut newer, &mut deleted);
    }
    deleted.sort_unstable();
    for column in before.iter().flat_map(|overlay| &overlay.columns) {
        newer.entry(column.id).or_default();
    }
    let columns: Vec<OverlayColumn> = newer
        .iter()
        .map(|(&id, newer)| column_of(id, before, kept, newer))
        .collect();
    let own_bytes = size_of::<Overlay>()
        + columns.capacity() * size_of::<OverlayColumn>()
        + columns
            .iter()
            .map(|c| c.patches.memory_bytes())
            .sum::<usize>()
        + deleted.capacity() * 2;
    bytes.add(own_bytes);
    let newest = settled.iter().map(|found| found.newest).max();
    let newest_before = before.map_or(CommitTs::ZERO, |overlay| overlay.newest);
    Overlay {
        number,
        newest: newest_before.max(newest.unwrap_or(CommitTs::ZERO)),
        through,
        columns,
        deleted,
        bytes: bytes.clone(),
        own_bytes,
    }
}

fn column_of(
    id: ColumnId,
    before: Option<&Overlay>,
    kept: &[bool; UPDATE_RANGES],
    newer: &BTreeMap<usize, Patches>,
) -> OverlayColumn {
    static NONE: Patches = Patches::NONE;
    let older = before.and_then(|overlay| overlay.columns.iter().find(|c| c.id == id));
    let mut patches = Patches::default();
    let mut starts = [0; UPDATE_RANGES + 1];
    for at in 0..UPDATE_RANGES {
        let (list, part) = match older {
            Some(older) if kept[at] => (&older.patches, older.part(at..at + 1)),
            _ => (&NONE, 0..0),
        };
        match newer.get(&at) {
            Some(newer) => patches.extend_merged(list, part, newer),
            None => patches.extend(list, part),
        }
        starts[at + 1] = patches.len() as u32;
    }
    OverlayColumn {
        id,
        patches,
        starts,
    }
}
