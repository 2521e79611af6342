//! Transactions that change more than memory holds fail alone: what they held is free when they
//! have been rolled back, whatever was rolled back, and others go on meanwhile and afterwards.

mod common;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline_base::{Clock, ManualClock, SystemClock};
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;

/// More rows than may be updated at once, in three ranges.
const ROWS: i64 = 150_000;
/// As many as 8 million with the default memory, which is 128 times as much.
const FITTING: i64 = 8_000_000 / 128;
const BATCH: i64 = 4096;

struct Small {
    device: Arc<MemoryDevice>,
    clock: Arc<ManualClock>,
    db: Arc<Db>,
    table: Arc<TableDef>,
}

fn open_small(device: &Arc<MemoryDevice>, clock: Arc<dyn Clock>, background: bool) -> Arc<Db> {
    let options = DbOptions {
        device: device.clone(),
        clock,
        settings: Settings {
            memory_bytes: Settings::MEMORY_BYTES_MIN,
            background_maintenance: background,
            merge_threads: 1,
            ..Settings::default()
        },
    };
    Db::open(options).expect("open")
}

impl Small {
    /// A table with [`ROWS`] rows (k, k, "") and room for updates of half of them.
    fn new() -> Self {
        let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
        let db = open_small(&device, clock.clone(), false);
        let (table, _) = create_table(&db, HistoryPolicy::None);
        let rows: Vec<_> = (0..ROWS).map(|k| (k, Some(k), String::new())).collect();
        run(&db, |s| {
            let mut load = s.bulk_insert(&table)?;
            load.append(&batch(&rows))?;
            load.finish()
        })
        .expect("load");
        db.checkpoint(true).expect("checkpoint");
        Self {
            device,
            clock,
            db,
            table,
        }
    }

    fn counter(&self, name: &str) -> u64 {
        let counters = self.db.counters();
        counters.iter().find(|c| c.0 == name).expect("a counter").1
    }

    fn tail_bytes(&self) -> u64 {
        self.counter("tail_bytes")
    }

    fn limit(&self) -> u64 {
        self.db.settings().tail_bytes_max() as u64
    }

    fn begin(&self) -> Arc<Transaction> {
        self.db.begin(TxnOptions::default()).expect("begin")
    }

    /// One statement that sets `a` to −1 in the rows with these keys.
    fn update(&self, txn: &Arc<Transaction>, keys: impl Iterator<Item = i64>) -> Result<()> {
        let statement = txn.begin_statement()?;
        let keys: Vec<i64> = keys.collect();
        for keys in keys.chunks(BATCH as usize) {
            let rows = rows_of_keys(&statement, &self.table, keys);
            let values = numbers("a", vec![-1; rows.len()]);
            statement.update(&self.table, &rows, &[ColumnId(1)], &values)?;
        }
        statement.finish()
    }

    /// Updates rows of `txn` from key `from` on until memory is full: the error, and the first key
    /// that was not tried.
    fn fill(&self, txn: &Arc<Transaction>, from: i64) -> (Error, i64) {
        for first in (from..ROWS).step_by(512) {
            let keys = first..(first + 512).min(ROWS);
            if let Err(error) = self.update(txn, keys) {
                return (error, first);
            }
        }
        panic!("memory is never full");
    }

    fn set(&self, k: i64, a: i64) -> Result<()> {
        let set = [(ColumnId(1), Value::BigInt(a))];
        let key = [Value::BigInt(k)];
        run(&self.db, |s| s.point_update(&self.table, 0, &key, &set)).map(|found| assert!(found))
    }

    fn state(&self) -> State {
        let scan = run(&self.db, |s| s.scan(&self.table, request())).expect("scan");
        scan_all(&scan)
    }

    /// What every row is, read by its key.
    fn check_point_reads(&self, expected: impl Fn(i64) -> i64) {
        for k in (0..ROWS).step_by(977) {
            let row = get(&self.db, k).expect("a row");
            assert_eq!(row[1], Value::BigInt(expected(k)), "key {k}");
        }
    }
}

fn numbers(name: &str, values: Vec<i64>) -> RecordBatch {
    let schema = Schema::new(vec![Field::new(name, DataType::Int64, true)]);
    let array: ArrayRef = Arc::new(Int64Array::from(values));
    RecordBatch::try_new(Arc::new(schema), vec![array]).expect("batch")
}

fn rows_of_keys(statement: &Statement, table: &Arc<TableDef>, keys: &[i64]) -> Vec<RowId> {
    let keys = numbers("k", keys.to_vec());
    let found = statement.find_by_key(table, 0, &keys).expect("find");
    found.into_iter().map(|row| row.expect("a row")).collect()
}

fn loaded() -> State {
    let row = |k| (k, (Some(k), String::new()));
    (0..ROWS).map(row).collect()
}

fn is_refused(error: &Error) {
    assert_eq!(error.sqlstate(), SqlState::OUT_OF_MEMORY, "{error}");
}

/// The example of the issue: the statement fails, and nothing else does, then or later.
#[test]
fn a_failed_update_of_all_rows_leaves_memory_as_before() {
    let world = Small::new();
    let before = world.tail_bytes();
    for _ in 0..3 {
        let txn = world.begin();
        let error = world.update(&txn, 0..ROWS).expect_err("too much");
        is_refused(&error);
        let held = world.tail_bytes();
        assert!(held > world.limit() / 8 * 7, "{held}");
        let detail = error.detail().expect("a detail").to_string();
        assert!(detail.contains("0 other open transactions"), "{detail}");
        txn.rollback();
        assert_eq!(world.tail_bytes(), before);
        world.set(5, 5).expect("others go on");
        world.db.checkpoint(true).expect("checkpoint");
        assert_eq!(world.tail_bytes(), before);
    }
    assert_eq!(world.state(), loaded());
    world.check_point_reads(|k| k);
    assert_eq!(world.counter("checkpoints_in_vain"), 0);
    world.db.check_health().expect("well");
    let txn = world.begin();
    world.update(&txn, 0..FITTING).expect("fits");
    txn.commit().expect("commit");
    world.check_point_reads(|k| if k < FITTING { -1 } else { k });
}

#[test]
fn a_rollback_frees_updates_inserts_and_locks_at_once() {
    let world = Small::new();
    let before = world.tail_bytes();
    let txn = world.begin();
    world.update(&txn, 0..20_000).expect("fits");
    world.update(&txn, 10_000..30_000).expect("fits");
    assert!(world.tail_bytes() > before + (2 << 20));
    txn.rollback();
    assert_eq!(world.tail_bytes(), before, "updates");
    let txn = world.begin();
    let statement = txn.begin_statement().expect("statement");
    let keys: Vec<i64> = (0..20_000).collect();
    let rows = rows_of_keys(&statement, &world.table, &keys);
    let locked = statement.lock_rows(&world.table, &rows, RowLock::Exclusive, LockWait::NoWait);
    assert!(locked.expect("locked").iter().all(|locked| *locked));
    assert!(world.tail_bytes() > before + (1 << 20));
    drop(statement);
    txn.commit().expect("commit");
    assert_eq!(world.tail_bytes(), before, "locks");
    // A full insert range goes; one that takes rows still stays for the next ones.
    let txn = world.begin();
    let statement = txn.begin_statement().expect("statement");
    let inserted: Vec<_> = (ROWS..ROWS + 70_000)
        .map(|k| (k, None, String::new()))
        .collect();
    for rows in inserted.chunks(BATCH as usize) {
        let violation = OnInvisibleDuplicate::Violation;
        let inserted = statement.insert(&world.table, &batch(rows), violation);
        inserted.expect("fits");
    }
    drop(statement);
    let held = world.tail_bytes() - before;
    txn.rollback();
    let left = world.tail_bytes() - before;
    assert!(left < held / 8, "{left} of {held} are left");
    insert(&world.db, &row(ROWS, 7, "after"));
    let mut expected = loaded();
    expected.insert(ROWS, (Some(7), "after".into()));
    assert_eq!(world.state(), expected);
    let Small {
        device, clock, db, ..
    } = world;
    db.checkpoint(true).expect("checkpoint");
    db.close().expect("close");
    let db = open_small(&device, clock, false);
    let scan = run(&db, |s| s.scan(&table(&db), request())).expect("scan");
    assert_eq!(scan_all(&scan), expected);
}

/// What the transaction did before the savepoint stands in the same tails and stays.
#[test]
fn a_savepoint_gives_back_what_came_after_it() {
    let world = Small::new();
    let txn = world.begin();
    world.update(&txn, (0..ROWS).step_by(1000)).expect("fits");
    let own = world.tail_bytes();
    for _ in 0..3 {
        let savepoint = txn.savepoint();
        is_refused(&world.fill(&txn, 0).0);
        let held = world.tail_bytes() - own;
        txn.rollback_to(&savepoint).expect("back");
        let left = world.tail_bytes().saturating_sub(own);
        // Of each tail the row map, and the page that takes the next records.
        assert!(left < held / 8, "{left} of {held} are left");
        world.check_point_reads(|k| k);
        assert_eq!(world.state(), loaded());
        world.set(1, 1).expect("others go on");
    }
    let expected = |k| if k % 1000 == 0 { -1 } else { k };
    world.update(&txn, (0..ROWS).step_by(1000)).expect("again");
    world.update(&txn, 1..4).expect("behind the gaps");
    txn.commit().expect("commit");
    let expected = |k| if (1..4).contains(&k) { -1 } else { expected(k) };
    let all: State = (0..ROWS)
        .map(|k| (k, (Some(expected(k)), String::new())))
        .collect();
    assert_eq!(world.state(), all);
    world.check_point_reads(expected);
    world.db.checkpoint(true).expect("checkpoint");
    assert_eq!(world.state(), all);
    assert_eq!(world.counter("pending_records"), 0);
}

/// One that stays open holds nearly everything.
#[test]
fn the_largest_transaction_is_refused_first() {
    let world = Small::new();
    let large = world.begin();
    let mut next = 0;
    while world.tail_bytes() < world.limit() - (200 << 10) {
        world.update(&large, next..next + 256).expect("fits");
        next += 256;
    }
    let medium = world.begin();
    let first = ROWS / 3 * 2;
    world.update(&medium, first..first + 4000).expect("goes on");
    assert!(world.tail_bytes() > world.limit());
    for k in 0..300 {
        world.set(ROWS - 1 - k, -1).expect("small ones go on");
    }
    let (error, _) = world.fill(&large, next);
    is_refused(&error);
    let detail = error.detail().expect("a detail").to_string();
    assert!(detail.contains("1 other open transactions"), "{detail}");
    // While it stays open the others have the reserve, and are told why there is no more.
    let (error, _) = world.fill(&medium, first + 4000);
    is_refused(&error);
    let hint = error.hint().expect("a hint").to_string();
    assert!(hint.contains("open for long"), "{hint}");
    assert!(world.tail_bytes() > world.limit() / 16 * 17);
    large.rollback();
    world.update(&medium, first..first + 4000).expect("goes on");
    medium.commit().expect("commit");
    world.set(0, -5).expect("goes on");
    let kept = first..first + 4000;
    let others = ROWS - 300..ROWS;
    let expected = |k: i64| match k {
        0 => -5,
        k if kept.contains(&k) || others.contains(&k) => -1,
        k => k,
    };
    let read = world.state();
    let is_expected = |(k, (a, _)): (&i64, &(Option<i64>, String))| {
        // What the medium one did before it was refused is its own.
        *a == Some(expected(*k)) || *k >= first && *a == Some(-1)
    };
    assert!(read.iter().all(is_expected));
}

/// What a transaction keeps until it ends is bounded for itself: its log record has every text once
/// more.
#[test]
fn what_transactions_keep_until_they_end_has_a_share() {
    let world = Small::new();
    let share = world.db.settings().list_bytes() as u64;
    let txn = world.begin();
    let text = |k: i64| Value::Text(format!("{k}{}", "x".repeat(4000)).into());
    let widen = |k: i64| {
        let statement = txn.begin_statement()?;
        let key = [Value::BigInt(k)];
        statement.point_update(&world.table, 0, &key, &[(ColumnId(2), text(k))])?;
        statement.finish()
    };
    let failed = (0..ROWS).step_by(40).find_map(|k| widen(k).err());
    let error = failed.expect("memory is never full");
    is_refused(&error);
    assert!(error.message().contains("until they end"), "{error}");
    let (most, limit) = (world.counter("transaction_bytes_max"), world.limit());
    assert!(most > share, "{most} of {share}");
    assert!(most < share + share / 4, "{most} of {share}");
    assert!(
        world.tail_bytes() < limit,
        "{} of {limit}",
        world.tail_bytes()
    );
    // Another one goes on beside it, and its own rollback gives all back.
    world.set(ROWS - 1, 7).expect("a small write");
    txn.rollback();
    assert_eq!(world.counter("transaction_bytes"), 0);
    let txn = world.begin();
    let savepoint = txn.savepoint();
    world.update(&txn, 0..FITTING / 2).expect("fits");
    let kept = world.counter("transaction_bytes");
    assert!(kept > FITTING as u64 / 2 * 8, "{kept}");
    txn.rollback_to(&savepoint).expect("goes back");
    assert!(world.counter("transaction_bytes") < 4096);
    world.update(&txn, 0..FITTING / 4).expect("fits");
    txn.commit().expect("commits");
    assert_eq!(world.counter("transaction_bytes"), 0);
}

#[test]
fn readers_see_what_they_saw_while_memory_is_released() {
    let world = Small::new();
    let base = world.begin();
    world.update(&base, (0..ROWS).step_by(1000)).expect("fits");
    let done = AtomicBool::new(false);
    let before = world.state();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut rounds = 0;
                while rounds == 0 || !done.load(Ordering::Relaxed) {
                    world.check_point_reads(|k| k);
                    let scan = run(&world.db, |s| s.scan(&world.table, request()));
                    assert_eq!(scan_all(&scan.expect("scan")), before);
                    rounds += 1;
                }
            });
        }
        for round in 0..4 {
            let savepoint = base.savepoint();
            world.update(&base, 0..40_000).expect("fits");
            base.rollback_to(&savepoint).expect("back");
            let txn = world.begin();
            world
                .update(&txn, (ROWS - 20_000..ROWS).filter(|k| k % 1000 != 0))
                .expect("fits");
            txn.rollback();
            if round % 2 == 1 {
                world.db.checkpoint(true).expect("checkpoint");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    base.commit().expect("commit");
    world.check_point_reads(|k| if k % 1000 == 0 { -1 } else { k });
}

/// As a server does it: with checkpoints in the background, while somebody tries again and again.
#[test]
fn writers_go_on_beside_one_that_fails() {
    let mut world = Small::new();
    world.db.close().expect("close");
    world.db = open_small(&world.device, Arc::new(SystemClock), true);
    let done = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = 0;
            while written == 0 || !done.load(Ordering::Relaxed) {
                let k = ROWS - 1 - written % 1000;
                world.set(k, -1).expect("goes on");
                written += 1;
            }
            written
        });
        for _ in 0..2 {
            let txn = world.begin();
            is_refused(&world.fill(&txn, 0).0);
            txn.rollback();
        }
        done.store(true, Ordering::Relaxed);
        writer.join().expect("no update of one row is refused")
    });
    world.set(0, -1).expect("goes on");
    let is_written = |k: i64| k == 0 || ROWS - 1 - k < written.min(1000);
    world.check_point_reads(|k| if is_written(k) { -1 } else { k });
    world.db.close().expect("close");
}

/// Pages of inserted rows go with the merge that makes chunks of them, not with the next insert.
#[test]
fn rows_that_are_inserted_one_by_one_are_never_refused() {
    let world = Small::new();
    let text = "x".repeat(20_000);
    let twice = 2 * world.limit() / 20_000;
    for k in ROWS..ROWS + twice as i64 {
        insert(&world.db, &row(k, 0, &text));
        assert!(world.tail_bytes() < world.limit() / 16 * 19);
    }
    world.db.checkpoint(true).expect("checkpoint");
    assert_eq!(world.tail_bytes(), 0);
}

/// Too little to be released by the rollback: the background work does it, once.
#[test]
fn few_tombstones_go_with_a_checkpoint_and_ask_for_no_other() {
    let world = Small::new();
    let before = world.tail_bytes();
    let txn = world.begin();
    world.update(&txn, 0..100).expect("fits");
    txn.rollback();
    assert!(world.tail_bytes() > before);
    let turn = || {
        world.clock.advance(200_000);
        world.db.merge_due(false).expect("works")
    };
    turn();
    world.clock.advance(60_000_000);
    assert!(turn(), "the range has been pending for long");
    assert_eq!(world.tail_bytes(), before);
    let checkpoints = world.counter("checkpoints");
    (0..50).for_each(|_| {
        turn();
    });
    assert_eq!(world.counter("checkpoints"), checkpoints);
    assert_eq!(world.state(), loaded());
}

/// The checks of a statement's keys are part of what its transaction keeps, more than 100 bytes
/// each, until the statement ends. Beyond the share the statement fails, and nothing else does.
#[test]
fn key_checks_are_part_of_what_a_transaction_keeps() {
    const CHECKED: i64 = 10_000;
    let world = Small::new();
    let kept = || world.counter("transaction_bytes") as i64;
    let rows = |keys: std::ops::Range<i64>| -> RecordBatch {
        let rows: Vec<_> = keys.map(|k| (k, Some(k), String::new())).collect();
        batch(&rows)
    };
    run(&world.db, |s| {
        let dead: Vec<i64> = (0..ROWS / 2).collect();
        for keys in dead.chunks(BATCH as usize) {
            let found = rows_of_keys(s, &world.table, keys);
            s.delete(&world.table, &found)?;
        }
        Ok(())
    })
    .expect("delete");
    let insert = |txn: &Arc<Transaction>, keys: std::ops::Range<i64>| {
        let statement = txn.begin_statement().expect("statement");
        for first in keys.clone().step_by(BATCH as usize) {
            let keys = first..(first + BATCH).min(keys.end);
            statement.insert(&world.table, &rows(keys), OnInvisibleDuplicate::Violation)?;
        }
        let bytes = kept();
        statement.finish().map(|()| bytes)
    };
    // New keys meet no entry, so that there is nothing to check.
    let [unchecked, checked] = [ROWS, 0].map(|first| {
        let txn = world.begin();
        let bytes = insert(&txn, first..first + CHECKED).expect("fits");
        assert!(kept() <= bytes);
        txn.rollback();
        assert_eq!(kept(), 0);
        bytes
    });
    assert!(
        checked - unchecked > CHECKED * 100,
        "{checked}, {unchecked} without"
    );
    let txn = world.begin();
    let error = insert(&txn, 0..ROWS / 2).expect_err("too much");
    is_refused(&error);
    let message = error.to_string();
    assert!(message.contains("3/8 of memory_bytes"), "{message}");
    world.set(ROWS - 1, 5).expect("others go on");
    txn.rollback();
    assert_eq!(kept(), 0);
    world.db.check_health().expect("well");
}
