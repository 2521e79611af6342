//! Reading a whole tail, and overlays: the settled start of a tail, consolidated for its readers
//! \[L-Store §4.1: consolidation of an update range; §2.2: tail-driven scans\].
//!
//! A scan takes from a tail the newest visible value of every (row, column). Visiting the records
//! costs their number; so when many have gathered, the reader leaves behind an [`Overlay`]: per
//! column the rows updated by the records before `through`, in row order, with their newest values.
//! Later readers apply the overlay and visit only what came after it.
//!
//! Invariants:
//! 1. Every record before `through` was committed at or before `newest`, or aborted: nothing about
//!    it changes any more. So an overlay is right for every snapshot at or after `newest`, and for
//!    no other.
//! 2. Of one row, a later record has a greater sequence number (both are appended under the row's
//!    latch). So records visited in order, each overwriting what came before, leave the newest.
//! 3. An overlay counts only together with all records from `through` on. A reader loads the
//!    overlay before the pages; if the pages then begin after `through` it does without.
//!
//! Lock order: publishing takes the tail's lock for growing, with nothing else held.
//!
//! Differences from the paper: readers consolidate, not the merge thread, so that only tails that
//! are read pay; an overlay replaces nothing: records stay for older snapshots and the merge.

use crate::record_page::{Cell, PageBytes, RecordKind, RecordPage};
use crate::tail_pages::{Tail, TailPages};
use crate::value_words::Physical;
use crate::visibility::{RecordState, record_state, sees_record};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::sync::Ordering;
use strandline_base::{ColumnId, CommitTs};
use strandline_txn::{StartWord, TxnManager, Visibility};

/// Fewest records worth an overlay. Models and tests should meet overlays after few.
const CONSOLIDATED_MIN: usize = if cfg!(any(shuttle, debug_assertions)) { 1 } else { 16 };
/// Part of an overlay's size that must have gathered behind it before it is made again: each value
/// is copied so many times on average.
const GROWTH: usize = 4;

/// New values of rows of an update range, of one column. Applied in order: later ones rule.
#[derive(Debug, Default)]
pub struct Patches {
    slots: Vec<u16>,
    /// values of at most 8 bytes
    words: Vec<u64>,
    /// which words are NULL; empty if none is
    nulls: Vec<bool>,
    /// instead of words: where other values are
    records: Vec<(Arc<RecordPage>, u32)>,
}

impl Patches {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Slots in the update range and cells of `column`.
    pub fn iter(&self, column: ColumnId) -> impl Iterator<Item = (u16, Cell<'_>)> {
        (0..self.slots.len()).map(move |at| {
            let cell = match self.records.get(at) {
                Some((page, i)) => page.cell(*i, column),
                None if self.nulls.get(at) == Some(&true) => Cell::Null,
                None => Cell::Word(self.words[at]),
            };
            (self.slots[at], cell)
        })
    }

    /// Slots and values, if all are words.
    pub fn words(&self) -> Option<impl Iterator<Item = (u16, u64)> + '_> {
        let all = self.nulls.is_empty() && self.records.is_empty();
        all.then(|| self.slots.iter().copied().zip(self.words.iter().copied()))
    }

    /// Appends the cell of record `i`.
    fn push(&mut self, slot: u16, page: &Arc<RecordPage>, i: u32, column: ColumnId) {
        self.slots.push(slot);
        match page.cell(i, column) {
            Cell::Word(word) => self.push_word(Some(word)),
            _ if page.physical(column) == Some(Physical::Word) => self.push_word(None),
            _ => self.records.push((page.clone(), i)),
        }
    }

    fn push_word(&mut self, word: Option<u64>) {
        if word.is_none() || !self.nulls.is_empty() {
            self.nulls.resize(self.words.len(), false);
            self.nulls.push(word.is_none());
        }
        self.words.push(word.unwrap_or(0));
    }

    fn push_from(&mut self, from: &Self, at: usize) {
        self.slots.push(from.slots[at]);
        match from.records.get(at) {
            Some(record) => self.records.push(record.clone()),
            None if from.nulls.get(at) == Some(&true) => self.push_word(None),
            None => self.push_word(Some(from.words[at])),
        }
    }

    /// `older` and then `newer`, one patch per slot, in slot order. `older` is so already.
    fn merged(older: Option<&Self>, newer: &Self) -> Self {
        let mut order: Vec<u32> = (0..newer.slots.len() as u32).collect();
        order.sort_by_key(|&at| newer.slots[at as usize]);
        let empty = Self::default();
        let older = older.unwrap_or(&empty);
        let mut merged = Self::default();
        let mut next = 0;
        for (n, &at) in order.iter().enumerate() {
            let slot = newer.slots[at as usize];
            if order.get(n + 1).map(|&at| newer.slots[at as usize]) == Some(slot) {
                continue;
            }
            while older.slots.get(next).is_some_and(|&before| before < slot) {
                merged.push_from(older, next);
                next += 1;
            }
            if older.slots.get(next) == Some(&slot) {
                next += 1;
            }
            merged.push_from(newer, at as usize);
        }
        (next..older.slots.len()).for_each(|at| merged.push_from(older, at));
        merged
    }

    fn memory_bytes(&self) -> usize {
        self.slots.capacity() * 2
            + self.words.capacity() * 8
            + self.nulls.capacity()
            + self.records.capacity() * 16
    }
}

/// The settled start of a tail; see the module documentation.
#[derive(Debug)]
pub struct Overlay {
    through: u32,
    newest: CommitTs,
    /// in column order
    columns: Vec<(ColumnId, Patches)>,
    deleted: Vec<u16>,
    bytes: PageBytes,
    own_bytes: usize,
}

impl Overlay {
    fn size(&self) -> usize {
        let patches: usize = self.columns.iter().map(|(_, p)| p.len()).sum();
        patches + self.deleted.len()
    }

    fn column(&self, column: ColumnId) -> Option<&Patches> {
        let at = self.columns.binary_search_by_key(&column, |(id, _)| *id);
        Some(&self.columns[at.ok()?].1)
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        self.bytes.fetch_sub(self.own_bytes, Ordering::Relaxed);
    }
}

/// What a tail says at a snapshot.
#[derive(Debug, Default)]
pub struct TailView {
    overlay: Option<Arc<Overlay>>,
    /// of the records behind the overlay, by position in the wanted columns
    behind: Vec<Patches>,
    deleted: Vec<u16>,
    /// records and consolidated values it was made of
    pub records: u64,
}

impl TailView {
    /// The patches of `column`, the `at`-th one wanted; each list to be applied after the one
    /// before.
    pub fn patches(&self, at: usize, column: ColumnId) -> impl Iterator<Item = &Patches> {
        let settled = self.overlay.as_ref().and_then(|o| o.column(column));
        let all = settled.into_iter().chain(self.behind.get(at));
        all.filter(|patches| !patches.is_empty())
    }

    /// Slots of deleted rows.
    pub fn deleted(&self) -> impl Iterator<Item = u16> + '_ {
        let settled = self.overlay.iter().flat_map(|o| &o.deleted);
        settled.chain(&self.deleted).copied()
    }
}

impl Tail {
    /// What the tail says at `visibility` about `columns`. The caller holds the range version that
    /// the tail is from. `leaves_overlay`: whether to spare later readers the visit.
    pub fn view(
        &self,
        visibility: &Visibility,
        columns: &[ColumnId],
        txns: &TxnManager,
        leaves_overlay: bool,
    ) -> TailView {
        let overlay = self.overlay();
        // A reader of the past cannot make an overlay that reaches further than this one.
        let is_past = overlay.as_ref().is_some_and(|o| o.newest > visibility.ts);
        let pages = self.pages();
        let first = pages.first().map_or(0, |page| page.first());
        let overlay = overlay.filter(|o| o.newest <= visibility.ts && o.through >= first);
        let from = overlay.as_ref().map_or(first, |o| o.through);
        let mut view = TailView {
            behind: columns.iter().map(|_| Patches::default()).collect(),
            ..TailView::default()
        };
        let mut wanted = Vec::with_capacity(columns.len());
        let mut visited = 0;
        let start = pages.partition_point(|page| page.first() + page.capacity() <= from);
        for page in &pages[start..] {
            wanted.clear();
            wanted.extend((0..columns.len()).filter(|&at| page.has_cells(columns[at])));
            let records = from.saturating_sub(page.first())..page.claimed();
            visited += records.len();
            if wanted.is_empty() && !page.has_deletes() {
                continue;
            }
            for i in records {
                if !sees_record(page, i, visibility, txns) {
                    continue;
                }
                view.records += 1;
                let (slot, kind) = page.slot_kind(i);
                if kind == RecordKind::Delete {
                    view.deleted.push(slot);
                    continue;
                }
                for &at in &wanted {
                    if page.has(i, columns[at]) {
                        view.behind[at].push(slot, page, i, columns[at]);
                    }
                }
            }
        }
        if leaves_overlay && !is_past && visited >= threshold(overlay.as_deref()) {
            self.consolidate(&pages, overlay.as_deref(), visibility.ts, txns);
        }
        let settled = |o: &Overlay| -> usize {
            let patches = columns.iter().filter_map(|&c| o.column(c));
            patches.map(Patches::len).sum::<usize>() + o.deleted.len()
        };
        view.records += overlay.as_deref().map_or(0, settled) as u64;
        view.overlay = overlay;
        view
    }

    /// Publishes an overlay of `before` and the settled records behind it, if these are many.
    fn consolidate(
        &self,
        pages: &TailPages,
        before: Option<&Overlay>,
        ts: CommitTs,
        txns: &TxnManager,
    ) {
        let from = match before {
            Some(overlay) => overlay.through,
            None => pages.first().map_or(0, |page| page.first()),
        };
        let settled = Settled::count(pages, from, ts, txns);
        if ((settled.through - from) as usize) < threshold(before) {
            return;
        }
        let mut newer: BTreeMap<ColumnId, Patches> = BTreeMap::new();
        let mut deleted = before.map_or_else(Vec::new, |o| o.deleted.clone());
        for page in pages.iter() {
            let end = settled
                .through
                .saturating_sub(page.first())
                .min(page.claimed());
            for i in from.saturating_sub(page.first())..end {
                if page.start(i) == StartWord::ABORTED {
                    continue;
                }
                let (slot, kind) = page.slot_kind(i);
                if kind == RecordKind::Delete {
                    deleted.push(slot);
                }
                for column in page.columns_of(i) {
                    newer.entry(column).or_default().push(slot, page, i, column);
                }
            }
        }
        for (column, _) in before.iter().flat_map(|o| &o.columns) {
            newer.entry(*column).or_default();
        }
        let older = |column| before.and_then(|o| o.column(column));
        let columns: Vec<(ColumnId, Patches)> = newer
            .iter()
            .map(|(&column, newer)| (column, Patches::merged(older(column), newer)))
            .collect();
        let own_bytes = size_of::<Overlay>()
            + columns.capacity() * size_of::<(ColumnId, Patches)>()
            + columns.iter().map(|(_, p)| p.memory_bytes()).sum::<usize>()
            + deleted.capacity() * 2;
        self.bytes().fetch_add(own_bytes, Ordering::Relaxed);
        self.publish_overlay(Overlay {
            through: settled.through,
            newest: settled
                .newest
                .max(before.map_or(CommitTs::ZERO, |o| o.newest)),
            columns,
            deleted,
            bytes: self.bytes().clone(),
            own_bytes,
        });
    }
}

impl Overlay {
    /// Up to which sequence number it consolidates.
    pub(crate) fn through(&self) -> u32 {
        self.through
    }
}

fn threshold(overlay: Option<&Overlay>) -> usize {
    CONSOLIDATED_MIN.max(overlay.map_or(0, |o| o.size() / GROWTH))
}

/// How far a tail is settled.
struct Settled {
    /// every record before it is committed at or before `newest`, or aborted
    through: u32,
    newest: CommitTs,
}

impl Settled {
    /// Looks from `from` on for the first record that is not committed at or before `ts` and not
    /// aborted.
    fn count(pages: &TailPages, from: u32, ts: CommitTs, txns: &TxnManager) -> Self {
        let mut settled = Self {
            through: from,
            newest: CommitTs::ZERO,
        };
        for page in pages.iter() {
            let claimed = page.claimed();
            for i in from.saturating_sub(page.first())..claimed {
                if page.start(i) != StartWord::ABORTED {
                    // An unpublished record is nothing yet, but may become something.
                    match record_state(page, i, StartWord(0), txns) {
                        RecordState::Committed(at) if at <= ts => {
                            settled.newest = settled.newest.max(at);
                        }
                        _ => return settled,
                    }
                }
                settled.through = page.first() + i + 1;
            }
            if claimed < page.capacity() {
                return settled; // more may come, whatever pages follow
            }
        }
        settled
    }
}
