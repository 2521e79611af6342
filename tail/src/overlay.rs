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
//! 3. An overlay that says of how many claimed records it is complete needs no look at the records
//!    while no more are claimed: a record is counted before it is published.
//! 4. An overlay else counts only together with all records from `through` on. A reader loads the
//!    overlay before the pages; if the pages then begin after `through` it does without.
//! 5. A reader that stayed publishes only in the place of the overlay that it came upon: what was
//!    dropped since, because records had changed after all, does not come back.
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
use std::sync::{Arc, Weak};
use strandline_base::sync::Ordering;
use strandline_base::{ColumnId, CommitTs};
use strandline_txn::{StartWord, TxnManager, Visibility};

/// Fewest records worth an overlay. Models and tests should meet overlays after few.
const CONSOLIDATED_MIN: usize = if cfg!(any(shuttle, debug_assertions)) {
    1
} else {
    16
};
/// Part of an overlay's size that must have gathered behind it before it is made again: each value
/// is copied so many times on average.
const GROWTH: usize = 4;
/// Visits of the same few records that cost as much as making an overlay again, and the size of
/// an overlay that costs as much as another one.
const VISITS: usize = 2;
const VISIT_SIZE: usize = 512;

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
    /// if nothing is behind it: how many records had been claimed by then
    complete_at: Option<u32>,
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
    /// The overlay alone.
    fn of(overlay: Arc<Overlay>, columns: &[ColumnId]) -> Self {
        let patches = columns.iter().filter_map(|&c| overlay.column(c));
        let records = patches.map(Patches::len).sum::<usize>() + overlay.deleted.len();
        Self {
            records: records as u64,
            overlay: Some(overlay),
            ..Self::default()
        }
    }

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

/// What a snapshot needs of a tail, whatever becomes of the tail: the pages it had when the reader
/// came. Whoever has one needs no range version any more, so a reader that stays long keeps no
/// page that came after it and nothing that later merges retire \[L-Store §4.1.1 step 5\].
#[derive(Debug)]
pub struct TailReader {
    /// takes the overlays that the reader leaves, while it lives
    tail: Weak<Tail>,
    overlay: Option<Arc<Overlay>>,
    claims: u32,
    pages: Arc<TailPages>,
}

impl Tail {
    /// What a snapshot taken before needs of the tail. The caller holds the range version that the
    /// tail is from; it may let go of it afterwards.
    pub fn reader(self: &Arc<Self>) -> TailReader {
        // In this order: see invariants 3 and 4.
        let overlay = self.overlay();
        let claims = self.claims();
        TailReader {
            tail: Arc::downgrade(self),
            overlay,
            claims,
            pages: Arc::clone(&self.pages()),
        }
    }
}

impl TailReader {
    /// Whether a page has a value of `column`.
    pub fn has_cells(&self, column: ColumnId) -> bool {
        self.pages.iter().any(|page| page.has_cells(column))
    }

    /// What the tail says at `visibility` about `columns`. `leaves_overlay`: whether to spare
    /// later readers the visit.
    pub fn view(
        &self,
        visibility: &Visibility,
        columns: &[ColumnId],
        txns: &TxnManager,
        leaves_overlay: bool,
    ) -> TailView {
        let overlay = self.overlay.clone();
        // A reader of the past cannot make an overlay that reaches further than this one.
        let is_past = overlay.as_ref().is_some_and(|o| o.newest > visibility.ts);
        if let Some(overlay) = &overlay
            && !is_past
            && overlay.complete_at == Some(self.claims)
        {
            return TailView::of(overlay.clone(), columns);
        }
        let pages = &self.pages;
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
                } else if kind == RecordKind::Update {
                    // Old values are those that base has.
                    for &at in &wanted {
                        if page.has(i, columns[at]) {
                            view.behind[at].push(slot, page, i, columns[at]);
                        }
                    }
                }
            }
        }
        if leaves_overlay
            && !is_past
            && visited > 0
            && let Some(tail) = self.tail.upgrade()
        {
            let visits = tail.note_visit() as usize;
            if pays(overlay.as_deref(), visited, visits) {
                self.consolidate(&tail, overlay.as_deref(), visibility.ts, txns);
            }
        }
        if let Some(overlay) = overlay {
            let settled = TailView::of(overlay, columns);
            view.records += settled.records;
            view.overlay = settled.overlay;
        }
        view
    }

    /// Publishes an overlay of `before` and the settled records behind it, if these are many.
    fn consolidate(&self, tail: &Tail, before: Option<&Overlay>, ts: CommitTs, txns: &TxnManager) {
        let pages = &self.pages;
        let from = match before {
            Some(overlay) => overlay.through,
            None => pages.first().map_or(0, |page| page.first()),
        };
        let settled = Settled::count(pages, from, ts, txns);
        if settled.through == from {
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
                if kind != RecordKind::Update {
                    continue; // old values are those that base has
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
        tail.bytes().fetch_add(own_bytes, Ordering::Relaxed);
        let overlay = Overlay {
            through: settled.through,
            // What had been claimed and counted when the pages were loaded is in them.
            complete_at: settled.is_all.then_some(self.claims),
            newest: settled
                .newest
                .max(before.map_or(CommitTs::ZERO, |o| o.newest)),
            columns,
            deleted,
            bytes: tail.bytes().clone(),
            own_bytes,
        };
        tail.publish_overlay(overlay, self.overlay.as_ref());
    }
}

/// Whether it pays to make an overlay again after so many visits, this one of `records`.
fn pays(overlay: Option<&Overlay>, records: usize, visits: usize) -> bool {
    let size = overlay.map_or(0, Overlay::size);
    records >= CONSOLIDATED_MIN.max(size / GROWTH) || visits >= VISITS + size / VISIT_SIZE
}

/// How far a tail is settled.
struct Settled {
    /// every record before it is committed at or before `newest`, or aborted
    through: u32,
    newest: CommitTs,
    /// no record is behind it
    is_all: bool,
}

impl Settled {
    /// Looks from `from` on for the first record that is not committed at or before `ts` and not
    /// aborted.
    fn count(pages: &TailPages, from: u32, ts: CommitTs, txns: &TxnManager) -> Self {
        let mut settled = Self {
            through: from,
            newest: CommitTs::ZERO,
            is_all: false,
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
                // More may come here, whatever pages follow.
                settled.is_all = pages.last().is_some_and(|last| Arc::ptr_eq(last, page));
                return settled;
            }
        }
        settled.is_all = true;
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::StorageSchema;
    use crate::tail_pages::RecordHeader;
    use std::collections::BTreeMap;
    use strandline_base::rng::Rng;
    use strandline_base::{ManualClock, SqlType, Value};

    const COLUMNS: [ColumnId; 3] = [ColumnId(0), ColumnId(1), ColumnId(2)];

    /// One record as the test wrote it.
    struct Known {
        slot: u16,
        kind: RecordKind,
        values: Vec<(ColumnId, Value)>,
        page: Arc<RecordPage>,
        i: u32,
    }

    type Rows = BTreeMap<(u16, ColumnId), Value>;

    fn value(rng: &mut Rng, column: ColumnId) -> Value {
        match (rng.below(4), column.0) {
            (0, _) => Value::Null,
            (_, 0) => Value::BigInt(rng.next_u64() as i64),
            (_, 1) => Value::from(format!("text {}", rng.next_u64())),
            _ => Value::Uuid([rng.next_u64() as u8; 16]),
        }
    }

    /// The newest visible values, and the deleted slots.
    fn expected(records: &[Known], ts: u64) -> (Rows, Vec<u16>) {
        let (mut rows, mut deleted) = (Rows::new(), Vec::new());
        for record in records {
            let word = record.page.start(record.i);
            if word.commit_ts().is_none_or(|at| at.0 > ts) {
                continue;
            }
            if record.kind == RecordKind::Delete {
                deleted.push(record.slot);
            }
            for (column, value) in &record.values {
                rows.insert((record.slot, *column), value.clone());
            }
        }
        deleted.sort_unstable();
        (rows, deleted)
    }

    fn viewed(
        tail: &Arc<Tail>,
        ts: u64,
        txns: &TxnManager,
        schema: &StorageSchema,
    ) -> (Rows, Vec<u16>) {
        let visibility = Visibility {
            ts: CommitTs(ts),
            own: StartWord(0),
            statement: 0,
        };
        let view = tail.reader().view(&visibility, &COLUMNS, txns, true);
        let mut rows = Rows::new();
        for (at, &column) in COLUMNS.iter().enumerate() {
            for patches in view.patches(at, column) {
                for (slot, cell) in patches.iter(column) {
                    let spec = schema.column(column);
                    let value = match cell {
                        Cell::Word(word) => crate::value_words::value_of_word(spec.sql_type, word),
                        Cell::Wide(words) => {
                            crate::value_words::value_of_wide(spec.sql_type, words)
                        }
                        Cell::Bytes(bytes) => {
                            crate::value_words::value_of_bytes(spec.sql_type, bytes)
                                .expect("as written")
                        }
                        Cell::Null | Cell::Absent => Value::Null,
                    };
                    rows.insert((slot, column), value);
                }
            }
        }
        let mut deleted: Vec<u16> = view.deleted().collect();
        deleted.sort_unstable();
        (rows, deleted)
    }

    /// Records are appended, committed, aborted and left open in any order; readers of any moment
    /// see the newest values of theirs, whatever overlays others have left.
    #[test]
    fn views_show_the_newest_visible_values() {
        let schema = StorageSchema::new([
            (SqlType::BigInt, Value::Null),
            (SqlType::Text, Value::Null),
            (SqlType::Uuid, Value::Null),
        ]);
        let txns = TxnManager::with_slots(Arc::new(ManualClock::new(100)), CommitTs(10), 4);
        let mut overlays = 0;
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let bytes = PageBytes::default();
            let tail = Arc::new(Tail::new(&bytes));
            let mut records: Vec<Known> = Vec::new();
            let mut open: Vec<usize> = Vec::new();
            let mut now = 20;
            let slot = txns.begin().expect("a slot");
            for _ in 0..400 {
                match rng.below(10) {
                    0..=5 => {
                        let row = rng.below(30) as u16;
                        let busy = |at: &usize| records[*at].slot == row;
                        let gone = |r: &Known| r.slot == row && r.kind == RecordKind::Delete;
                        if open.iter().any(busy) || records.iter().any(gone) {
                            continue;
                        }
                        let kind = match rng.below(12) {
                            0 => RecordKind::Delete,
                            _ => RecordKind::Update,
                        };
                        let mut values = Vec::new();
                        if kind == RecordKind::Update {
                            for column in COLUMNS {
                                if rng.one_in(2) {
                                    values.push((column, value(&mut rng, column)));
                                }
                            }
                        }
                        let header = RecordHeader {
                            slot: row,
                            kind,
                            back: 0,
                            statement: 0,
                            word: slot.word(),
                        };
                        let fill = |page: &RecordPage, i: u32| {
                            values.iter().try_for_each(|(column, value)| {
                                page.put(i, *column, schema.column(*column), value)
                            })
                        };
                        let (page, i) = tail.append(&schema, &header, fill).expect("fits");
                        open.push(records.len());
                        records.push(Known {
                            slot: row,
                            kind,
                            values,
                            page,
                            i,
                        });
                    }
                    6 | 7 if !open.is_empty() => {
                        let at = open.swap_remove(rng.below(open.len() as u64) as usize);
                        now += 1;
                        let aborts = rng.one_in(4);
                        let word = match aborts {
                            true => StartWord::ABORTED,
                            false => StartWord::committed(CommitTs(now)),
                        };
                        records[at].page.set_start(records[at].i, word);
                        if aborts {
                            // Its deletion does not count, nor does the test's rule against more.
                            records[at].kind = RecordKind::Update;
                            records[at].values.clear();
                        }
                    }
                    _ => {
                        let ts = match rng.one_in(2) {
                            true => now,
                            false => now - rng.below(now - 10),
                        };
                        assert_eq!(
                            viewed(&tail, ts, &txns, &schema),
                            expected(&records, ts),
                            "seed {seed} at {ts}"
                        );
                    }
                }
            }
            overlays += usize::from(tail.overlay().is_some());
            drop(records);
            drop(tail);
            assert_eq!(bytes.load(Ordering::Relaxed), 0, "seed {seed}");
            slot.abort();
            slot.stamped();
        }
        assert!(overlays > 30, "{overlays} of 60 met overlays");
    }
}
