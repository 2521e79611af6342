//! Readers of a range's tails against a list of all records: whatever is appended, committed,
//! aborted, consolidated, merged and dropped in whatever order, every snapshot sees its values.
#![cfg(not(shuttle))]

use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::cell::Cell;
use strandline_base::rng::Rng;
use strandline_base::value_words::{value_of_bytes, value_of_wide, value_of_word};
use strandline_base::{
    ColumnId, CommitTs, ManualClock, RangeNo, SqlType, UPDATE_RANGES, UPDATE_ROWS, Value,
};
use strandline_tail::page_memory::PageAccount;
use strandline_tail::range::{Range, RangeVersion};
use strandline_tail::record_page::{PageBytes, RecordKind, RecordPage};
use strandline_tail::schema::StorageSchema;
use strandline_tail::tail::RecordHeader;
use strandline_txn::{StartWord, TxnManager, TxnSlot, Visibility};

const COLUMNS: [ColumnId; 3] = [ColumnId(0), ColumnId(1), ColumnId(2)];
/// Update ranges that get records; they are no neighbours, and the last one is among them.
const TAILS: [usize; 3] = [0, 4, UPDATE_RANGES - 1];

/// Values by row and column.
type Rows = BTreeMap<(u16, ColumnId), Value>;

/// One record as the test wrote it.
struct Known {
    tail: usize,
    slot: u16,
    kind: RecordKind,
    values: Vec<(ColumnId, Value)>,
    page: Arc<RecordPage>,
    i: u32,
}

impl Known {
    fn row(&self) -> u16 {
        (self.tail * UPDATE_ROWS) as u16 + self.slot
    }
    fn committed(&self) -> Option<CommitTs> {
        self.page.start(self.i).commit_ts()
    }
}

/// What a merge has put into base.
#[derive(Default)]
struct Base {
    merged_through: u64,
    rows: Rows,
    deleted: Vec<u16>,
}

struct Model {
    rng: Rng,
    schema: Arc<StorageSchema>,
    txns: Arc<TxnManager>,
    bytes: PageBytes,
    range: Arc<Range<Base>>,
    slot: TxnSlot,
    records: Vec<Known>,
    open: Vec<usize>,
    now: u64,
    /// tails whose first pages nobody needs any more, with the first record that must stay
    unneeded: Vec<(usize, u64)>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(ManualClock::new(100));
        let txns = TxnManager::with_slots(clock, CommitTs(10), 4);
        let slot = txns.begin().expect("a slot");
        Self {
            rng: Rng::new(seed),
            schema: StorageSchema::new([
                (SqlType::BigInt, Value::Null),
                (SqlType::Text, Value::Null),
                (SqlType::Uuid, Value::Null),
                // Nobody sets it: with it the table is too large for pages of all columns.
                (SqlType::BigInt, Value::Null),
            ]),
            txns,
            // Numbers cross the largest of 32 bits.
            bytes: Arc::new(PageAccount::with_first_record((1 << 32) - 40)),
            range: Range::new(RangeNo(0), Arc::default()),
            slot,
            records: Vec::new(),
            open: Vec::new(),
            now: 20,
            unneeded: Vec::new(),
        }
    }

    fn value(&mut self, column: ColumnId) -> Value {
        match (self.rng.below(4), column.0) {
            (0, _) => Value::Null,
            (_, 0) => Value::BigInt(self.rng.next_u64() as i64),
            (_, 1) => Value::from(format!("text {}", self.rng.next_u64())),
            _ => Value::Uuid([self.rng.next_u64() as u8; 16]),
        }
    }

    /// Appends an uncommitted record for a row that has none and is not deleted.
    fn append(&mut self) {
        let tail = TAILS[self.rng.below(TAILS.len() as u64) as usize];
        let slot = self.rng.below(8) as u16;
        let row = (tail * UPDATE_ROWS) as u16 + slot;
        let is_busy = self.open.iter().any(|&at| self.records[at].row() == row);
        let is_gone = |r: &Known| r.row() == row && r.kind == RecordKind::Delete;
        if is_busy || self.records.iter().any(is_gone) {
            return;
        }
        let kind = match self.rng.below(100) {
            0 => RecordKind::Delete,
            1..=9 => RecordKind::OldValue,
            _ => RecordKind::Update,
        };
        let mut values = Vec::new();
        for column in COLUMNS {
            if kind != RecordKind::Delete && self.rng.one_in(2) {
                values.push((column, self.value(column)));
            }
        }
        let header = RecordHeader {
            slot,
            kind,
            back: 0,
            statement: 0,
            word: self.slot.word(),
        };
        let schema = &self.schema;
        let fill = |page: &RecordPage, i: u32| {
            let put = |(column, value): &(ColumnId, Value)| {
                page.put(i, *column, schema.column(*column), value)
            };
            values.iter().try_for_each(put)
        };
        let columns = values.iter().map(|(column, _)| *column).collect();
        let entered = self.range.enter(tail, &self.bytes).expect("open");
        let pages = entered.tail().pages();
        let appended = entered
            .tail()
            .append((&pages, schema), &header, &columns, fill);
        let (page, i) = appended.expect("fits");
        drop((pages, entered));
        self.open.push(self.records.len());
        self.records.push(Known {
            tail,
            slot,
            kind,
            values,
            page,
            i,
        });
    }

    /// Ends one of the open records.
    fn end(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.rng.below(self.open.len() as u64) as usize;
        let record = &mut self.records[self.open.swap_remove(at)];
        self.now += 1;
        let word = match self.rng.one_in(4) {
            true => {
                // Nor does a deletion keep the test from writing the row again.
                record.kind = RecordKind::Lock;
                StartWord::ABORTED
            }
            false => StartWord::committed(CommitTs(self.now)),
        };
        record.page.set_start(record.i, word);
    }

    fn expected(&self, ts: u64) -> (Rows, Vec<u16>) {
        let (mut rows, mut deleted) = (Rows::new(), Vec::new());
        let mut seen: Vec<&Known> = self.records.iter().collect();
        // In the order of each tail.
        seen.sort_by_key(|r| (r.tail, r.page.first() + u64::from(r.i)));
        for record in seen {
            if record.committed().is_none_or(|at| at.0 > ts) {
                continue;
            }
            match record.kind {
                RecordKind::Delete => deleted.push(record.row()),
                RecordKind::Update => {
                    let row = record.row();
                    let values = record.values.iter();
                    rows.extend(values.map(|(column, value)| ((row, *column), value.clone())));
                }
                _ => {}
            }
        }
        deleted.sort_unstable();
        (rows, deleted)
    }

    /// Base, and what the tails say, at a moment that base is not newer than.
    fn read(&self, ts: u64) -> (Rows, Vec<u16>) {
        let version = self.range.load_full();
        let reader = self.range.tails_reader(&version, CommitTs(ts));
        let visibility = Visibility {
            ts: CommitTs(ts),
            own: StartWord(0),
            statement: 0,
        };
        let view = reader.view(0..UPDATE_RANGES, &visibility, &COLUMNS, &self.txns);
        let (mut rows, mut deleted) = (version.base.rows.clone(), version.base.deleted.clone());
        for (at, &column) in COLUMNS.iter().enumerate() {
            for patches in view.patches(at, column) {
                for (slot, cell) in patches.iter(column) {
                    let t = self.schema.column(column).sql_type;
                    let value = match cell {
                        Cell::Word(word) => value_of_word(t, word),
                        Cell::Wide(words) => value_of_wide(t, words),
                        Cell::Bytes(bytes) => value_of_bytes(t, bytes).expect("as written"),
                        Cell::Null | Cell::Absent => Value::Null,
                    };
                    rows.insert((slot, column), value);
                }
            }
        }
        deleted.extend(view.deleted());
        deleted.sort_unstable();
        deleted.dedup();
        if let Some(overlay) = reader.grows()
            && view.visited.tails > 0
            && self
                .range
                .note_visit(overlay, view.visited.tails, view.visited.records)
        {
            self.range
                .consolidate(CommitTs(ts), &self.txns, &self.bytes);
        }
        (rows, deleted)
    }

    /// Puts what is committed into a new base. Pages go later, when old versions have gone.
    fn merge(&mut self) {
        let (rows, deleted) = self.expected(self.now);
        let right = self.range.lock();
        let base = Base {
            merged_through: self.now,
            rows,
            deleted,
        };
        let mut next = RangeVersion::of(Arc::new(base));
        next.tails = self.range.load().tails.clone();
        for tail in TAILS {
            let open = self.open.iter().map(|&at| &self.records[at]);
            let open = open.filter(|record| record.tail == tail);
            let first = open
                .map(|record| record.page.first() + u64::from(record.i))
                .min();
            let claimed = |page: &Arc<RecordPage>| page.first() + u64::from(page.claimed());
            let pages = next.tails[tail].as_ref().map(|tail| tail.pages());
            let end = pages.map_or(0, |pages| pages.last().map_or(0, claimed));
            self.unneeded.push((tail, first.unwrap_or(end)));
        }
        self.range.publish(&right, next);
    }

    fn drop_pages(&mut self) {
        for (at, before) in std::mem::take(&mut self.unneeded) {
            if let Some(tail) = &self.range.load().tails[at] {
                tail.drop_pages_before(before);
            }
        }
    }
}

#[test]
fn every_snapshot_sees_its_values() {
    let mut dropped = 0;
    for seed in 0..150 {
        let mut model = Model::new(seed);
        for _ in 0..500 {
            match model.rng.below(26) {
                0..=13 => model.append(),
                14..=17 => model.end(),
                18 if model.unneeded.is_empty() => model.merge(),
                19 => {
                    dropped += model.unneeded.len();
                    model.drop_pages();
                }
                20..=22 => {
                    // A reader that came before the merge has asked for it.
                    let ts = model.now - model.rng.below(model.now - 10);
                    model
                        .range
                        .consolidate(CommitTs(ts), &model.txns, &model.bytes);
                }
                _ => {
                    let merged = model.range.load().base.merged_through.max(10);
                    let ts = match model.rng.one_in(2) {
                        true => model.now,
                        false => model.now - model.rng.below(model.now - merged + 1),
                    };
                    assert_eq!(model.read(ts), model.expected(ts), "seed {seed} at {ts}");
                }
            }
        }
        let bytes = model.bytes.clone();
        let slot = model.slot;
        drop((model.records, model.range));
        assert_eq!(bytes.used(), 0, "seed {seed}");
        slot.abort();
        slot.stamped();
    }
    assert!(dropped > 100, "{dropped} lists of pages were dropped");
}
