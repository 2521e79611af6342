//! Models of the tail's protocols: a controlled scheduler runs the shipping code through many
//! interleavings of its atomic operations and locks. Built with `RUSTFLAGS="--cfg shuttle"`;
//! `make models` runs them. A failure prints the schedule, which `shuttle::replay` runs again.
//! `STRANDLINE_SEED` explores other interleavings, `STRANDLINE_MODEL_RUNS` more of them.
//!
//! Pages have one or two records here, so that they fill, grow and go within a few updates.
#![cfg(shuttle)]

use arc_swap::Guard;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::thread;
use shuttle::{Config, Runner};
use std::cell::Cell;
use std::sync::Arc;
use strandline_base::sync::{AtomicBool, Mutex, Ordering};
use strandline_base::{
    ColumnId, CommitTs, ManualClock, RangeNo, RowId, SqlType, UPDATE_RANGES, UPDATE_ROWS, Value,
};
use strandline_tail::change::{self, Change, WriteOutcome, Writer};
use strandline_tail::column_set::ColumnSet;
use strandline_tail::insert_range::InsertRange;
use strandline_tail::merge_watermarks::MergeWatermarks;
use strandline_tail::page_memory::PageAccount;
use strandline_tail::range::{Range, RangeVersion};
use strandline_tail::record_page::{PageBytes, RecordKind, RecordPage};
use strandline_tail::release::{Renewed, TailMask};
use strandline_tail::retirement::{DonePages, Retired};
use strandline_tail::row_map::LatchGuard;
use strandline_tail::schema::StorageSchema;
use strandline_tail::succession::{Succeeded, Successor};
use strandline_tail::tail::{RecordHeader, Tail};
use strandline_tail::tail_pages::locate;
use strandline_tail::tails_reader::TailsReader;
use strandline_tail::visibility::{RecordState, record_state, sees, sees_record};
use strandline_tail::write::{RowStorage, write};
use strandline_txn::{Durability, StartWord, TxnManager, TxnSlot, Visibility};

const VALUE: ColumnId = ColumnId(0);
/// The number of a tail's first record: the models cross the largest number of 32 bits.
const FIRST: u64 = u32::MAX as u64 - 2;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Half of the runs with random switches, half with few switches at the worst places.
fn explore(model: fn()) {
    let seed = number("STRANDLINE_SEED", 1);
    let runs = number("STRANDLINE_MODEL_RUNS", 3_000) as usize;
    println!("seed {seed}");
    let mut config = Config::new();
    config.silence_warnings = true;
    // Row maps are made on the stack.
    config.stack_size = 1 << 18;
    Runner::new(RandomScheduler::new_from_seed(seed, runs), config.clone()).run(model);
    Runner::new(PctScheduler::new_from_seed(seed, 3, runs), config).run(model);
}

fn join<R>(threads: Vec<thread::JoinHandle<R>>) -> Vec<R> {
    let join = |thread: thread::JoinHandle<R>| thread.join().expect("no thread panics");
    threads.into_iter().map(join).collect()
}

fn schema() -> Arc<StorageSchema> {
    StorageSchema::new([(SqlType::BigInt, Value::Null)])
}

/// Tails that begin with the record [`FIRST`].
fn bytes() -> PageBytes {
    Arc::new(PageAccount::with_first_record(FIRST))
}

/// The number of record `i` of `page`, from the tail's first one on.
fn number_of(page: &RecordPage, i: u32) -> u64 {
    page.first() + u64::from(i) - FIRST
}

/// Somebody who holds it lets go soon.
fn latch(tail: &Tail, slot: usize) -> LatchGuard<'_> {
    loop {
        if let Some(latch) = tail.row_map().latch(slot) {
            return latch;
        }
    }
}

fn manager(slots: usize) -> Arc<TxnManager> {
    TxnManager::with_slots(Arc::new(ManualClock::new(100)), CommitTs(10), slots)
}

fn committed(ts: u64) -> StartWord {
    StartWord::committed(CommitTs(ts))
}

/// A record of one value.
#[derive(Clone, Copy)]
struct Record {
    slot: u16,
    kind: RecordKind,
    value: i64,
    word: StartWord,
}

type RecordAt = (Arc<RecordPage>, u32);

impl Record {
    /// An update of row `slot` to `value`, committed at `value`.
    fn update(slot: u16, value: u64) -> Self {
        Self {
            slot,
            kind: RecordKind::Update,
            value: value as i64,
            word: committed(value),
        }
    }

    fn append(self, tail: &Tail, schema: &Arc<StorageSchema>, back: u64) -> RecordAt {
        let header = RecordHeader {
            slot: self.slot,
            kind: self.kind,
            back,
            statement: 7,
            word: self.word,
        };
        let value = Value::BigInt(self.value);
        let columns = ColumnSet::from_iter([VALUE]);
        let fill = |page: &RecordPage, i| page.put(i, VALUE, schema.column(VALUE), &value);
        tail.append((&tail.pages(), schema), &header, &columns, fill)
            .expect("a number")
    }

    /// Appends it as its row's newest.
    fn publish(self, tail: &Tail, schema: &Arc<StorageSchema>) -> RecordAt {
        let latch = latch(tail, usize::from(self.slot));
        let head = tail.pages().head(latch.entry());
        let (page, i) = self.append(tail, schema, head);
        latch.publish(page.first() + u64::from(i));
        (page, i)
    }
}

fn value(page: &RecordPage, i: u32) -> i64 {
    match page.value(i, VALUE, schema().column(VALUE)) {
        Ok(Value::BigInt(value)) => value,
        other => panic!("a record without its value: {other:?}"),
    }
}

/// The values of a row's chain, newest first.
fn chain(tail: &Tail, slot: usize) -> Vec<i64> {
    let entry = tail.row_map().entry(slot);
    let pages = tail.pages();
    let mut next = pages.head(entry);
    let mut values = Vec::new();
    while next != 0 {
        let (page, i) = locate(&pages, next - 1).expect("nothing is dropped here");
        let value = value(page, i);
        assert_eq!(page.start(i), committed(value as u64));
        assert_eq!(page.slot_kind(i), (slot as u16, RecordKind::Update));
        assert!(page.back(i) < next, "the chain runs to older records");
        next = page.back(i);
        values.push(value);
    }
    values
}

/// Two write one row; a reader walks its chain, another one looks at every published record, as
/// merges do.
#[test]
fn chains_descend_and_lose_nothing() {
    explore(|| {
        let (tail, schema) = (Arc::new(Tail::new(&bytes())), schema());
        let writer = |values: [u64; 2]| {
            let (tail, schema) = (tail.clone(), schema.clone());
            thread::spawn(move || {
                for value in values {
                    Record::update(5, value).publish(&tail, &schema);
                }
            })
        };
        let mut threads = vec![writer([1, 2]), writer([3, 4])];
        let scanned = tail.clone();
        threads.push(thread::spawn(move || {
            for _ in 0..2 {
                for page in scanned.pages().iter() {
                    for i in 0..page.claimed() {
                        let word = page.start(i);
                        if word != StartWord::UNPUBLISHED {
                            assert_eq!(page.slot_kind(i), (5, RecordKind::Update));
                            assert_eq!(page.statement(i), 7);
                            assert_eq!(page.columns_of(i).collect::<Vec<_>>(), [VALUE]);
                            assert_eq!(committed(value(page, i) as u64), word);
                        }
                    }
                }
            }
        }));
        let (first, second) = (chain(&tail, 5), chain(&tail, 5));
        assert!(second.ends_with(&first), "{first:?}, then {second:?}");
        join(threads);
        let mut last = chain(&tail, 5);
        assert!(last.ends_with(&second), "{second:?}, then {last:?}");
        last.sort_unstable();
        assert_eq!(last, [1, 2, 3, 4]);
    });
}

/// Pages grow under claims from all sides while the oldest go.
#[test]
fn sequence_numbers_are_unique_and_dense() {
    explore(|| {
        let (tail, schema) = (Arc::new(Tail::new(&bytes())), schema());
        let claim = |tail: &Tail, schema: &Arc<StorageSchema>| {
            let columns = ColumnSet::from_iter([VALUE]);
            let claimed = tail.claim((&tail.pages(), schema), &columns);
            let (page, i) = claimed.expect("a number");
            number_of(&page, i)
        };
        let mut claimed: Vec<u64> = (0..3).map(|_| claim(&tail, &schema)).collect();
        let threads = (0..3).map(|_| {
            let (tail, schema) = (tail.clone(), schema.clone());
            thread::spawn(move || [claim(&tail, &schema), claim(&tail, &schema)])
        });
        let threads: Vec<_> = threads.collect();
        tail.drop_pages_before(FIRST + 1);
        assert_eq!(tail.pages().first_seq(), FIRST + 1);
        tail.drop_pages_before(FIRST + 3);
        claimed.extend(join(threads).into_iter().flatten());
        claimed.sort_unstable();
        assert_eq!(claimed, (0..9).collect::<Vec<_>>());
        assert_eq!(tail.pending(), 9);
        let pages = tail.pages();
        assert!(pages.first_seq() > FIRST, "a dropped page is back");
        assert!((3..9).all(|n| locate(&pages, FIRST + n).is_some()));
        let mut two = pages.iter().zip(pages.iter().skip(1));
        assert!(two.all(|(page, next)| page.end() == next.first()));
    });
}

/// A record with a new column closes the last page; whoever finds a page full has all its records.
#[test]
fn a_closed_page_gets_no_more_records() {
    explore(|| {
        // Too many for a page with places for all of them.
        let schema = StorageSchema::new([const { (SqlType::BigInt, Value::Null) }; 5]);
        let tail = Arc::new(Tail::new(&bytes()));
        let threads = [[0, 0], [1, 0], [1, 1]].map(|columns| {
            let (tail, schema) = (tail.clone(), schema.clone());
            thread::spawn(move || {
                columns.map(|column| {
                    let columns = ColumnSet::from_iter([ColumnId(column)]);
                    let claimed = tail.claim((&tail.pages(), &schema), &columns);
                    let (page, i) = claimed.expect("a number");
                    assert!(page.has(i, ColumnId(column)));
                    number_of(&page, i)
                })
            })
        });
        let full = |tail: &Tail| -> Vec<(u64, u32)> {
            let pages = tail.pages();
            let full = pages.iter().filter(|page| page.is_full());
            full.map(|page| (page.first(), page.claimed())).collect()
        };
        let (first, second) = (full(&tail), full(&tail));
        let mut claimed: Vec<u64> = join(threads.into()).into_iter().flatten().collect();
        let last = full(&tail);
        assert!(second.starts_with(&first), "{first:?}, then {second:?}");
        assert!(last.starts_with(&second), "{second:?}, then {last:?}");
        claimed.sort_unstable();
        let pages = tail.pages();
        let held = pages.iter();
        let held: Vec<u64> = held
            .flat_map(|page| number_of(page, 0)..number_of(page, page.claimed()))
            .collect();
        assert_eq!(held, claimed, "every number is of one record");
        assert_eq!(claimed, (0..6).collect::<Vec<_>>());
        let is_found = |n| locate(&pages, FIRST + n).is_some_and(|(page, i)| i < page.claimed());
        assert!((0..6).all(is_found));
        let open = pages.last().expect("a page");
        assert!(pages.iter().rev().skip(1).all(|page| page.is_full()));
        assert!(open.has_cells(ColumnId(0)) || open.has_cells(ColumnId(1)));
    });
}

/// Appenders come and go while the tail is sealed.
#[test]
fn nothing_is_appended_after_the_seal() {
    explore(|| {
        let (tail, schema) = (Arc::new(Tail::new(&bytes())), schema());
        let is_sealed = Arc::new(AtomicBool::new(false));
        let appenders = (1..=2).map(|writer| {
            let (tail, schema, is_sealed) = (tail.clone(), schema.clone(), is_sealed.clone());
            thread::spawn(move || {
                let mut appended = 0;
                for n in 0..2 {
                    let was_sealed = is_sealed.load(Ordering::SeqCst);
                    let Some(_entered) = tail.enter() else { break };
                    assert!(!was_sealed, "let in after the seal");
                    Record::update(writer, u64::from(writer) * 10 + n).publish(&tail, &schema);
                    appended += 1;
                }
                appended
            })
        });
        let appenders: Vec<_> = appenders.collect();
        let count = || tail.pages().iter().map(|page| page.claimed()).sum::<u32>();
        let mut at_seal = None;
        for _ in 0..2 {
            if tail.seal() {
                is_sealed.store(true, Ordering::SeqCst);
                at_seal = Some(count());
                break;
            }
        }
        let appended: u32 = join(appenders).into_iter().sum();
        assert_eq!(count(), appended);
        assert!(at_seal.is_none_or(|n| n == appended), "{at_seal:?}");
        assert_eq!(tail.enter().is_none(), at_seal.is_some());
    });
}

/// A merge up to 10 wants to give the tail up while records at 5 and 20 are appended.
#[test]
fn a_tail_with_unmerged_records_is_not_given_up() {
    explore(|| {
        let (tail, schema) = (Arc::new(Tail::new(&bytes())), schema());
        let is_gone = Arc::new(AtomicBool::new(false));
        let appenders = [(1, 5), (2, 20)].map(|(slot, ts)| {
            let (tail, schema, is_gone) = (tail.clone(), schema.clone(), is_gone.clone());
            thread::spawn(move || {
                loop {
                    let was_gone = is_gone.load(Ordering::SeqCst);
                    if let Some(_entered) = tail.enter() {
                        Record::update(slot, ts).publish(&tail, &schema);
                        return true;
                    }
                    if was_gone {
                        return false;
                    }
                    thread::yield_now(); // sealed for a second look
                }
            })
        });
        let keep_from = match tail.retire_merged(&MergeWatermarks::at(CommitTs(10))) {
            Retired::Upto(keep_from) => Some(keep_from),
            Retired::Whole(sealed) => {
                sealed.keep();
                None
            }
        };
        is_gone.store(keep_from.is_none(), Ordering::SeqCst);
        let appended = join(appenders.into());
        let Some(keep_from) = keep_from else {
            assert!(!appended[1], "a tail with an unmerged record was given up");
            return assert!(tail.enter().is_none());
        };
        assert_eq!(appended, [true, true]);
        assert!(tail.pending() >= 1, "pending {}", tail.pending());
        for page in tail.pages().iter() {
            for i in 0..page.claimed() {
                let number = page.first() + u64::from(i);
                assert!(number >= keep_from || page.start(i) == committed(5));
            }
        }
    });
}

/// The log: its lock orders the commits.
#[derive(Default)]
struct Log(Mutex<Vec<Commit>>);

/// A row's value from `ts` on.
#[derive(Clone, Copy, Debug)]
struct Commit {
    ts: CommitTs,
    row: usize,
    value: i64,
}

impl Log {
    /// Commits a transaction that has set these rows: log, queue, finish, stamp, free the slot.
    fn commit(
        &self,
        manager: &TxnManager,
        slot: TxnSlot,
        rows: &[(usize, i64)],
        written: &[RecordAt],
    ) {
        let mut commits = self.0.lock();
        let ts = manager.tick();
        commits.extend(rows.iter().map(|&(row, value)| Commit { ts, row, value }));
        let end = commits.len() as u64;
        manager.enqueue(&slot, ts, end, Durability::Logged);
        drop(commits);
        manager.finish_through(end);
        for (page, i) in written {
            page.set_start(*i, StartWord::committed(ts));
        }
        slot.stamped();
    }

    /// The value of `row` at `ts`; 0 before the first commit.
    fn value_at(&self, row: usize, ts: CommitTs) -> i64 {
        let commits = self.0.lock();
        let mut of_row = commits.iter().rev().filter(|commit| commit.row == row);
        of_row
            .find(|commit| commit.ts <= ts)
            .map_or(0, |commit| commit.value)
    }
}

fn visibility(ts: CommitTs) -> Visibility {
    Visibility {
        ts,
        own: StartWord(0),
        statement: 0,
    }
}

/// The value of the newest visible record of `row` in the live pages, read as point reads do.
fn visible(tail: &Tail, row: usize, ts: CommitTs, manager: &TxnManager) -> Option<i64> {
    let entry = tail.row_map().entry(row);
    let pages = tail.pages();
    let mut next = pages.head(entry);
    while next != 0 {
        let (page, i) = locate(&pages, next - 1)?;
        next = page.back(i);
        if sees_record(page, i, &visibility(ts), manager) {
            return Some(value(page, i));
        }
    }
    None
}

/// Transactions that set two rows follow one another in the only slot of the transaction table;
/// one of them aborts. A snapshot sees both records of a transaction or neither.
#[test]
fn a_transaction_is_seen_whole_while_it_is_stamped() {
    explore(|| {
        let (tail, schema) = (Arc::new(Tail::new(&bytes())), schema());
        let (manager, log) = (manager(1), Arc::new(Log::default()));
        let writer = {
            let (tail, schema) = (tail.clone(), schema.clone());
            let (manager, log) = (manager.clone(), log.clone());
            thread::spawn(move || {
                for number in 1..=3 {
                    let slot = manager.begin().expect("free again");
                    let written = [1, 2].map(|row| {
                        let record = Record {
                            slot: row,
                            kind: RecordKind::Update,
                            value: number,
                            word: slot.word(),
                        };
                        record.publish(&tail, &schema)
                    });
                    if number == 2 {
                        slot.abort();
                        for (page, i) in &written {
                            page.set_start(*i, StartWord::ABORTED);
                        }
                        slot.stamped();
                    } else {
                        log.commit(&manager, slot, &[(1, number), (2, number)], &written);
                    }
                }
            })
        };
        for _ in 0..2 {
            let snapshot = manager.snapshot(None).expect("now");
            let expected = log.value_at(1, snapshot.ts());
            for row in [1, 2, 1] {
                let seen = visible(&tail, row, snapshot.ts(), &manager).unwrap_or(0);
                assert_eq!(seen, expected, "row {row} at {:?}", snapshot.ts());
            }
        }
        writer.join().expect("the writer does not panic");
        assert_eq!(visible(&tail, 2, manager.stable(), &manager), Some(3));
    });
}

/// A word whose slot has another owner is on its record no more: one more load settles it.
#[test]
fn a_stale_word_has_been_replaced() {
    explore(|| {
        let (tail, schema) = (Arc::new(Tail::new(&bytes())), schema());
        let (manager, log) = (manager(1), Arc::new(Log::default()));
        let slot = manager.begin().expect("free");
        let record = Record {
            word: slot.word(),
            ..Record::update(1, 1)
        };
        // The reader looks at the one that is stamped last.
        let written = [(); 3].map(|()| record.publish(&tail, &schema));
        let (page, i) = written[2].clone();
        let writer = {
            let manager = manager.clone();
            thread::spawn(move || log.commit(&manager, slot, &[(1, 1)], &written))
        };
        let next = {
            let manager = manager.clone();
            thread::spawn(move || {
                loop {
                    match manager.begin() {
                        Ok(slot) => break slot.stamped(),
                        Err(_) => thread::yield_now(),
                    }
                }
            })
        };
        loop {
            let snapshot = manager.snapshot(None).expect("now");
            let (ts, last) = (snapshot.ts(), Cell::new(None));
            let load = || {
                let word = page.start(i);
                assert_ne!(last.replace(Some(word)), Some(word), "loaded again in vain");
                word
            };
            let is_seen = sees(load, || 7, &visibility(ts), &manager);
            assert_eq!(is_seen, ts >= CommitTs(100), "at {ts:?}");
            if !page.start(i).is_txn() {
                break;
            }
            thread::yield_now();
        }
        next.join().expect("the next owner does not panic");
        writer.join().expect("the writer does not panic");
    });
}

/// Rows are inserted while the range is closed and its rows are counted.
#[test]
fn a_closed_insert_range_gets_no_more_rows() {
    explore(|| {
        let bytes = PageBytes::default();
        let range = Arc::new(InsertRange::new(schema(), &bytes));
        let inserters = (0..3).map(|_| {
            let range = range.clone();
            thread::spawn(move || {
                let mut slots = Vec::new();
                for _ in 0..2 {
                    let was_closed = range.is_closed();
                    let Some(claimed) = range.claim(1) else { break };
                    assert!(!was_closed, "a claim after the close");
                    let (page, i) = range.page(claimed.start as usize);
                    let value = Value::BigInt(i64::from(claimed.start) + 1);
                    page.put(i, VALUE, range.schema().column(VALUE), &value)
                        .expect("a number");
                    page.set_start(i, committed(u64::from(claimed.start) + 1));
                    slots.push(claimed.start);
                }
                slots
            })
        });
        let inserters: Vec<_> = inserters.collect();
        for slot in 0..range.rows() {
            if let Some((page, i)) = range.existing_page(slot as usize)
                && page.start(i) != StartWord::UNPUBLISHED
            {
                assert_eq!(page.start(i), committed(u64::from(slot) + 1));
                assert_eq!(value(page, i), i64::from(slot) + 1);
            }
        }
        let rows = range.close();
        assert!(range.claim(1).is_none());
        let mut slots: Vec<u32> = join(inserters).into_iter().flatten().collect();
        slots.sort_unstable();
        assert_eq!(slots, (0..rows).collect::<Vec<_>>());
        assert_eq!(range.rows(), rows);
        drop(range);
        assert_eq!(bytes.used(), 0);
    });
}

/// Two rows of an update range and one of the next.
const ROWS: usize = 3;
const PER_TAIL: usize = 2;

/// The base of the merge's model.
#[derive(Debug)]
struct Base {
    values: [i64; ROWS],
    /// the last merged update of each row
    updated: [CommitTs; ROWS],
    merged_through: CommitTs,
    successor: Successor<Base>,
}

impl Succeeded for Base {
    type Release = (Arc<Tail>, DonePages);
    fn successor(&self) -> &Successor<Self> {
        &self.successor
    }
    fn release((tail, done): Self::Release) {
        tail.drop_pages(&done);
    }
}

impl Renewed for Base {
    fn renewed(&self) -> Arc<Self> {
        Arc::new(Self {
            values: self.values,
            updated: self.updated,
            merged_through: self.merged_through,
            successor: Successor::default(),
        })
    }
    fn lineage(&self) -> MergeWatermarks {
        MergeWatermarks::at(self.merged_through)
    }
}

/// A range with writers, a merger and readers.
struct Table {
    manager: Arc<TxnManager>,
    log: Log,
    range: Arc<Range<Base>>,
    schema: Arc<StorageSchema>,
    bytes: PageBytes,
    /// the runs: every merged update
    history: Log,
}

/// A row of the model by its slot in the range.
fn row_of(slot: usize) -> usize {
    slot / UPDATE_ROWS * PER_TAIL + slot % UPDATE_ROWS
}

impl RowStorage for Table {
    type Base = Base;

    fn page_bytes(&self) -> &PageBytes {
        &self.bytes
    }
    fn txns(&self) -> &TxnManager {
        &self.manager
    }
    fn current_schema(&self) -> Guard<Arc<StorageSchema>> {
        Guard::from_inner(self.schema.clone())
    }
    fn base_state(
        &self,
        base: &Base,
        slot: usize,
        _: &Writer,
    ) -> strandline_base::Result<RecordState> {
        Ok(RecordState::Committed(base.updated[row_of(slot)]))
    }
    fn base_start(&self, _: &Base, _: usize) -> strandline_base::Result<(StartWord, u32)> {
        Ok((committed(1), 7))
    }
    fn merged_through(&self, base: &Base) -> CommitTs {
        base.merged_through
    }
    fn remove_updated(
        &self,
        base: &Base,
        slot: usize,
        columns: &mut ColumnSet,
    ) -> strandline_base::Result<()> {
        columns.retain(|_| base.updated[row_of(slot)] == CommitTs::ZERO);
        Ok(())
    }
    fn base_values(
        &self,
        base: &Base,
        slot: usize,
        _: &ColumnSet,
        _: &StorageSchema,
    ) -> strandline_base::Result<Vec<(ColumnId, Value)>> {
        Ok(vec![(VALUE, Value::BigInt(base.values[row_of(slot)]))])
    }
}

/// A scan that has let go of the version.
struct Stay {
    values: [i64; ROWS],
    updated: [CommitTs; ROWS],
    /// made for the moment
    tails: TailsReader,
}

impl Table {
    fn new() -> Arc<Self> {
        let base = Base {
            values: [0; ROWS],
            updated: [CommitTs::ZERO; ROWS],
            merged_through: CommitTs::ZERO,
            successor: Successor::default(),
        };
        Arc::new(Self {
            manager: manager(4),
            log: Log::default(),
            range: Range::new(RangeNo(0), Arc::new(base)),
            schema: schema(),
            bytes: bytes(),
            history: Log::default(),
        })
    }

    /// A transaction that adds 1 to the newest version of `row`.
    fn increment(&self, row: usize) {
        let slot = self.manager.begin().expect("a slot");
        let mut written = Vec::new();
        let value = self.add(row, slot.word(), &mut written);
        self.log
            .commit(&self.manager, slot, &[(row, value)], &written);
    }

    /// A transaction that adds 1 to rows, rolls back and releases what it has left.
    fn roll_back(&self, rows: &[usize]) {
        let slot = self.manager.begin().expect("a slot");
        let mut written = Vec::new();
        for &row in rows {
            self.add(row, slot.word(), &mut written);
        }
        slot.abort();
        for (page, i) in &written {
            page.set_start(*i, StartWord::ABORTED);
        }
        slot.stamped();
        drop(written);
        self.range.release_aborted(TailMask::MAX);
    }

    /// Writes the value after that of the newest committed version of `row`, and returns it.
    fn add(&self, row: usize, word: StartWord, written: &mut Vec<RecordAt>) -> i64 {
        let slot = row / PER_TAIL * UPDATE_ROWS + row % PER_TAIL;
        let id = RowId::new(RangeNo(0), slot as u16);
        loop {
            let snapshot = self.manager.stable();
            let value = self.read(&self.range.load_full(), row, snapshot) + 1;
            let set = [(VALUE, Value::BigInt(value))];
            let writer = Writer {
                word,
                statement: 7,
                snapshot,
                speculative: false,
            };
            let mut records = Vec::new();
            let change = Change::Update(&set);
            let outcome = write(self, &self.range, id, change, &writer, &mut records);
            match outcome.expect("a record number") {
                WriteOutcome::Done(_) => {
                    let records = records.into_iter().map(|record| match record {
                        change::PendingStamp::Records(page, i, _) => (page, i),
                        other => panic!("{other:?} for an update"),
                    });
                    written.extend(records);
                    return value;
                }
                WriteOutcome::Wait(holder) => self
                    .manager
                    .wait_for(word, holder, None, &|| false)
                    .expect("no cycle"),
                // Sealed or latched for long, or committed and not stable yet.
                WriteOutcome::Busy | WriteOutcome::Conflict(_) => thread::yield_now(),
                WriteOutcome::Gone => panic!("row {row} is gone"),
            }
        }
    }

    /// Folds what is committed into a new base, writes it to the runs and publishes.
    fn merge(&self) {
        let through = self.manager.stable();
        let version = self.range.load_full();
        let old = &version.base;
        let (mut values, mut updated) = (old.values, old.updated);
        let mut merged = Vec::new();
        for (at, tail) in version.tails.iter().enumerate() {
            let Some(tail) = tail else { continue };
            for page in tail.pages().iter() {
                for i in 0..page.claimed() {
                    let state = record_state(page, i, StartWord(0), &self.manager);
                    let RecordState::Committed(ts) = state else {
                        continue;
                    };
                    let (slot, kind) = page.slot_kind(i);
                    let (row, value) = (at * PER_TAIL + usize::from(slot), value(page, i));
                    if kind == RecordKind::Update && ts > old.merged_through && ts <= through {
                        merged.push(Commit { ts, row, value });
                        if ts > updated[row] {
                            (updated[row], values[row]) = (ts, value);
                        }
                    }
                }
            }
        }
        if merged.is_empty() {
            return;
        }
        merged.sort_unstable_by_key(|commit| commit.ts);
        self.history.0.lock().extend(merged);
        let base = Base {
            values,
            updated,
            merged_through: through,
            successor: Successor::default(),
        };
        let merged = MergeWatermarks::at(through);
        self.range.publish_merge(Arc::new(base), &merged);
    }

    /// Reads `row` at `ts`: chain, base, history.
    fn read(&self, version: &RangeVersion<Base>, row: usize, ts: CommitTs) -> i64 {
        let tail = version.tails[row / PER_TAIL].as_ref();
        let slot = row % PER_TAIL;
        if let Some(value) = tail.and_then(|tail| visible(tail, slot, ts, &self.manager)) {
            return value;
        }
        let base = &version.base;
        if base.updated[row] > ts {
            return self.history.value_at(row, ts);
        }
        base.values[row]
    }

    /// What a scan at `ts` needs that stays, without the version.
    fn stay(&self, version: &RangeVersion<Base>, ts: CommitTs) -> Stay {
        Stay {
            values: version.base.values,
            updated: version.base.updated,
            tails: self.range.tails_reader(version, ts),
        }
    }

    /// Reads all rows as scans do whose base is settled at `ts`: base changed by the tails' view;
    /// leaves an overlay if that pays.
    fn scan(&self, stay: &Stay, ts: CommitTs) -> [i64; ROWS] {
        let mut values = stay.values;
        let all = 0..UPDATE_RANGES;
        let view = stay
            .tails
            .view(all, &visibility(ts), &[VALUE], &self.manager);
        for patches in view.patches(0, VALUE) {
            let (slots, words) = patches.words().expect("numbers");
            for (slot, value) in slots.iter().map(|&slot| usize::from(slot)).zip(words) {
                values[slot / UPDATE_ROWS * PER_TAIL + slot % UPDATE_ROWS] = *value as i64;
            }
        }
        if let Some(overlay) = stay.tails.grows()
            && view.visited.tails > 0
            && self
                .range
                .note_visit(overlay, view.visited.tails, view.visited.records)
        {
            self.range.consolidate(ts, &self.manager, &self.bytes);
        }
        values
    }

    fn check(&self, version: &RangeVersion<Base>, ts: CommitTs) {
        let expected: [i64; ROWS] = std::array::from_fn(|row| self.log.value_at(row, ts));
        for (row, &expected) in expected.iter().enumerate() {
            assert_eq!(self.read(version, row, ts), expected, "row {row} at {ts:?}");
        }
        self.check_stay(&self.stay(version, ts), ts);
    }

    fn check_stay(&self, stay: &Stay, ts: CommitTs) {
        let expected: [i64; ROWS] = std::array::from_fn(|row| self.log.value_at(row, ts));
        if stay.updated.iter().all(|&updated| updated <= ts) {
            assert_eq!(self.scan(stay, ts), expected, "at {ts:?}");
        }
    }

    /// After everything has finished: one more merge has it all in base, each increment once.
    fn check_end(&self, increments: [i64; ROWS]) {
        self.check(&self.range.load(), self.manager.stable());
        self.merge();
        let version = self.range.load_full();
        assert_eq!(version.base.values, increments);
        for (row, &count) in increments.iter().enumerate() {
            let commits = self.log.0.lock();
            let of_row = commits.iter().filter(|commit| commit.row == row);
            let values: Vec<i64> = of_row.map(|commit| commit.value).collect();
            assert_eq!(values, (1..=count).collect::<Vec<_>>());
        }
    }
}

fn threads(table: &Arc<Table>, jobs: &[fn(&Table)]) -> Vec<thread::JoinHandle<()>> {
    let spawn = |&job: &fn(&Table)| {
        let table = table.clone();
        thread::spawn(move || job(&table))
    };
    jobs.iter().map(spawn).collect()
}

/// Writers of the same row and of another one, two merges, readers at their snapshots: one that
/// loads the version each time and one that keeps its first version.
#[test]
fn merges_neither_lose_nor_double_updates() {
    explore(|| {
        let table = Table::new();
        let jobs: &[fn(&Table)] = &[
            |table| [0, 0, 2].into_iter().for_each(|row| table.increment(row)),
            |table| table.increment(0),
            |table| (0..2).for_each(|_| table.merge()),
            |table| {
                let snapshot = table.manager.snapshot(None).expect("now");
                let kept = table.range.load_full();
                for _ in 0..3 {
                    table.check(&kept, snapshot.ts());
                }
            },
        ];
        let threads = threads(&table, jobs);
        let first = table.manager.snapshot(None).expect("now");
        let kept = table.range.load_full();
        let stay = table.stay(&kept, first.ts());
        for _ in 0..2 {
            let snapshot = table.manager.snapshot(None).expect("now");
            table.check(&table.range.load(), snapshot.ts());
            table.check(&table.range.load(), first.ts());
        }
        join(threads);
        table.check(&kept, first.ts());
        table.check(&table.range.load(), first.ts());
        drop(kept);
        table.check_stay(&stay, first.ts());
        table.check_end([3, 0, 1]);
        table.check_stay(&stay, first.ts());
        drop(stay);
        let bytes = table.bytes.clone();
        drop(table);
        assert_eq!(bytes.used(), 0, "an old version is kept alive");
    });
}

/// A tail that keeps an unmerged record loses its merged pages when the last old version goes, in
/// whatever order readers let go of theirs.
#[test]
fn pages_go_with_the_last_old_version() {
    explore(|| {
        let table = Table::new();
        (0..3).for_each(|_| table.increment(0));
        let snapshot = table.manager.snapshot(None).expect("now");
        let first = table.range.load_full();
        let stay = table.stay(&first, snapshot.ts());
        table.increment(0);
        let blocker = table.manager.begin().expect("a slot");
        let mut written = Vec::new();
        assert_eq!(table.add(1, blocker.word(), &mut written), 1);
        table.merge();
        let second = table.range.load_full();
        let tail = second.tails[0].clone().expect("not all is merged");
        assert_eq!(tail.pages().first_seq(), FIRST, "the first version is held");
        let (ts, of_first) = (snapshot.ts(), table.clone());
        let reader = thread::spawn(move || {
            of_first.check(&first, ts);
            drop(first);
        });
        table.increment(0);
        table.merge();
        table.check(&second, ts);
        drop(second);
        reader.join().expect("the reader does not panic");
        let first = tail.pages().first_seq();
        assert!(first > FIRST, "nobody needs the first page");
        table.check_stay(&stay, ts);
        table.check(&table.range.load(), ts);
        blocker.abort();
        for (page, i) in &written {
            page.set_start(*i, StartWord::ABORTED);
        }
        blocker.stamped();
        drop((snapshot, tail, stay));
        table.increment(1);
        table.check_end([5, 1, 0]);
        assert!(table.range.load().has_no_tail());
    });
}

/// A transaction that stays open keeps a tail in which another one rolls back: pages between others
/// go. Writers, a merge and readers, of old versions too, see what they saw.
#[test]
fn released_tombstones_leave_what_others_see() {
    explore(|| {
        let table = Table::new();
        table.increment(0);
        let blocker = table.manager.begin().expect("a slot");
        let mut written = Vec::new();
        assert_eq!(table.add(1, blocker.word(), &mut written), 1);
        let jobs: &[fn(&Table)] = &[
            |table| table.roll_back(&[0, 0, 0, 2]),
            |table| [0, 2].into_iter().for_each(|row| table.increment(row)),
            |table| table.merge(),
            |table| {
                let snapshot = table.manager.snapshot(None).expect("now");
                let kept = table.range.load_full();
                for _ in 0..2 {
                    table.check(&kept, snapshot.ts());
                }
            },
        ];
        let threads = threads(&table, jobs);
        let first = table.manager.snapshot(None).expect("now");
        let stay = table.stay(&table.range.load(), first.ts());
        for _ in 0..2 {
            let snapshot = table.manager.snapshot(None).expect("now");
            table.check(&table.range.load(), snapshot.ts());
            table.check(&table.range.load(), first.ts());
        }
        join(threads);
        table.check_stay(&stay, first.ts());
        blocker.abort();
        for (page, i) in &written {
            page.set_start(*i, StartWord::ABORTED);
        }
        blocker.stamped();
        drop((first, stay, written));
        table.roll_back(&[1, 2]);
        table.check_end([2, 0, 1]);
        assert!(table.range.load().has_no_tail());
        let bytes = table.bytes.clone();
        drop(table);
        assert_eq!(bytes.used(), 0, "an old version is kept alive");
    });
}

/// Nothing but tombstones: the tail goes; with an open record before and behind them, the pages
/// between.
#[test]
fn releases_free_what_nobody_needs() {
    explore(|| {
        let table = Table::new();
        table.roll_back(&[0, 1, 0]);
        assert!(table.range.load().has_no_tail());
        let blocker = table.manager.begin().expect("a slot");
        let mut written = Vec::new();
        table.add(1, blocker.word(), &mut written);
        let reader = table.clone();
        let reader = thread::spawn(move || {
            let snapshot = reader.manager.snapshot(None).expect("now");
            (0..2).for_each(|_| reader.check(&reader.range.load(), snapshot.ts()));
        });
        table.roll_back(&[0, 0, 0, 0, 0]);
        table.add(1, blocker.word(), &mut written);
        reader.join().expect("the reader does not panic");
        let version = table.range.load_full();
        let tail = version.tails[0].as_ref().expect("a record is open");
        let pages = tail.pages();
        let numbers: u64 = pages.last().expect("pages").end() - pages.first_seq();
        let records: u32 = pages.iter().map(|page| page.capacity()).sum();
        assert!(u64::from(records) < numbers, "no page has gone");
        drop((pages, version));
        table
            .log
            .commit(&table.manager, blocker, &[(1, 1)], &written);
        table.increment(0);
        table.check_end([1, 1, 0]);
    });
}
