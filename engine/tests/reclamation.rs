//! What a long reader delays: only what it can see \[L-Store §4.1.1 step 5\]. Memory and disk are
//! bounded by the rows that were updated and the moments that may be asked for, not by the number
//! of updates.

mod common;

use common::*;
use std::sync::Arc;
use strandline_column::types;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

const HOT: i64 = 4;

impl World {
    fn set(&self, k: i64, a: i64) {
        let t = table(&self.db);
        let set = [(ColumnId(1), Value::BigInt(a))];
        let found = run(&self.db, |s| {
            s.point_update(&t, 0, &[Value::BigInt(k)], &set)
        });
        assert!(found.expect("update"));
    }
    fn checkpoint(&self) {
        self.clock.advance(1000); // past the commits, which have a microsecond each
        self.db.checkpoint(true).expect("checkpoint");
    }
    fn tail_bytes(&self) -> u64 {
        let counters = self.db.counters();
        let found = counters.iter().find(|(name, _)| *name == "tail_bytes");
        found.expect("a counter").1
    }
    /// Bytes of chunk and run files on the device, those included that readers keep.
    fn file_bytes(&self) -> u64 {
        let device: &MemoryDevice = &self.device;
        let names = device.list().expect("list").into_iter();
        let data = names.filter(|name| name.starts_with("chunks-") || name.starts_with("run-"));
        data.map(|name| device.open(&name).expect("open").len().expect("len"))
            .sum()
    }
    fn run_records(&self) -> u64 {
        let records = self.db.run_records_of(&table(&self.db));
        records.expect("runs").len() as u64
    }
    fn scan(&self) -> Arc<TableScan> {
        let t = table(&self.db);
        run(&self.db, |s| s.scan(&t, request())).expect("scan")
    }
    /// A transaction with a snapshot of its own, and its only statement.
    fn snapshot(&self) -> Arc<Statement> {
        let options = TxnOptions {
            isolation: Isolation::Snapshot,
            ..TxnOptions::default()
        };
        let txn = self.db.begin(options).expect("begin");
        txn.begin_statement().expect("statement")
    }
    /// Has another row updated by a transaction that stays open.
    fn open_writer(&self, k: i64) -> Arc<Transaction> {
        let txn = self.db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        let set = [(ColumnId(1), Value::BigInt(-1))];
        let found = statement.point_update(&table(&self.db), 0, &[Value::BigInt(k)], &set);
        assert!(found.expect("update"));
        txn
    }
}

/// The second half of a long run needs what the first did: sizes of numbers may vary a little.
fn assert_bounded(what: &str, all: &[u64]) {
    let (early, late) = all.split_at(all.len() / 2);
    let (early, late) = (early.iter().max(), late.iter().max());
    let (early, late) = (early.expect("some"), late.expect("some"));
    assert!(late <= &(early + early / 8), "{what} grow: {all:?}");
}

fn world(rows: i64) -> World {
    let world = World::new(HistoryPolicy::None);
    for k in 0..rows {
        insert(&world.db, &row(k, 0, "at the beginning"));
    }
    world.checkpoint();
    world
}

/// A scan stands in the middle of a range all the time; tails are retired, or lose their merged
/// pages only because a writer is always in them.
#[test]
fn an_open_unit_keeps_what_it_reads_and_no_more() {
    for has_writer in [false, true] {
        let world = world(50);
        (0..HOT).for_each(|k| world.set(k, 1));
        let scan = world.scan();
        let mut unit = scan.open_unit(0).expect("unit");
        let (mut bytes, mut files) = (Vec::new(), Vec::new());
        let mut writer: Option<Arc<Transaction>> = None;
        for round in 0..40 {
            for i in 0..600 {
                world.set(i % HOT, round * 1000 + i);
            }
            let next = has_writer.then(|| world.open_writer(40 + round % 2));
            if let Some(before) = std::mem::replace(&mut writer, next) {
                before.commit().expect("commit");
            }
            world.checkpoint();
            bytes.push(world.tail_bytes());
            files.push(world.file_bytes());
        }
        assert_bounded("bytes of tails", &bytes);
        assert_bounded("bytes of files", &files);
        let batch = unit.next_batch().expect("read").expect("rows");
        assert_eq!(batch.num_rows(), 50);
        for k in 0..50 {
            let a = types::value_at(SqlType::BigInt, batch.column(1), k);
            assert_eq!(a, Value::BigInt(i64::from(k < HOT as usize)), "row {k}");
        }
        drop((unit, scan));
    }
}

/// First updates of a column that are taken back, in a tail that a writer is always in: their old
/// values keep nothing.
#[test]
fn old_values_of_aborted_updates_keep_nothing() {
    let world = world(2_000);
    let mut bytes = Vec::new();
    let mut writer: Option<Arc<Transaction>> = None;
    for round in 0..40 {
        let aborted = world.open_writer(100 + round);
        aborted.rollback();
        for i in 0..600 {
            world.set(i % HOT, round * 1000 + i);
        }
        let next = Some(world.open_writer(40 + round % 2));
        if let Some(before) = std::mem::replace(&mut writer, next) {
            before.commit().expect("commit");
        }
        world.checkpoint();
        bytes.push(world.tail_bytes());
    }
    assert_bounded("bytes of tails", &bytes);
    // One of them again, for good: its value before is in the history of those who see it.
    let old = world.snapshot();
    world.set(100, 5);
    world.checkpoint();
    let mut value = Vec::new();
    let found = old.point_get(
        &table(&world.db),
        0,
        &[Value::BigInt(100)],
        &[ColumnId(1)],
        &mut value,
    );
    assert!(found.expect("read"));
    assert_eq!(value, [Value::BigInt(0)]);
    assert!(world.db.check().expect("check").is_empty());
}

/// Old snapshots are held while a row goes on being updated: each keeps its version and nothing
/// between, what they cost to read stays as it is, and at the end all goes.
#[test]
fn old_snapshots_keep_their_versions_and_none_between() {
    let updates = std::env::var("STRANDLINE_UPDATES").ok();
    let updates: i64 = updates.and_then(|n| n.parse().ok()).unwrap_or(12_000);
    let world = world(20);
    let mut held: Vec<(Arc<Statement>, Arc<TableScan>, i64)> = Vec::new();
    let (mut records, mut files, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    for a in 1..=updates {
        world.set(7, a);
        if a == 1 || a == updates / 7 || a == updates / 5 {
            held.push((world.snapshot(), world.scan(), a));
        }
        if a % 300 != 0 {
            continue;
        }
        world.clock.advance(1000);
        world.db.checkpoint(a % 900 == 0).expect("checkpoint");
        records.push(world.run_records());
        files.push(world.file_bytes());
        for (statement, scan, seen) in &held {
            let (t, mut out) = (table(&world.db), Vec::new());
            let key = [Value::BigInt(7)];
            let found = statement.point_get(&t, 0, &key, &[ColumnId(1)], &mut out);
            assert!(found.expect("get"));
            assert_eq!(out, [Value::BigInt(*seen)], "after {a} updates");
            assert_eq!(scan_all(scan)[&7].0, Some(*seen), "after {a} updates");
        }
        let again = &held[0].1.metrics().columns.history_records_read;
        reads.push(again.swap(0, std::sync::atomic::Ordering::Relaxed));
    }
    assert_bounded("run records", &records);
    assert_bounded("bytes of files", &files);
    assert!(
        reads.iter().all(|n| *n <= 2),
        "one version to find: {reads:?}"
    );
    held.clear();
    world.set(7, 0);
    world.checkpoint();
    world.set(7, -7);
    world.checkpoint();
    assert!(world.run_records() <= 2, "{:?}", world.run_records());
    let world = world.reopen();
    assert_eq!(
        get(&world.db, 7),
        Some(row(7, -7, "at the beginning").to_vec())
    );
    assert!(world.db.check().expect("check").is_empty());
}

/// Rows come and go while an old snapshot is held: it keeps those it sees.
#[test]
fn rows_that_no_snapshot_ever_saw_leave_no_trace() {
    let world = world(10);
    let (old, scan) = (world.snapshot(), world.scan());
    let mut files = Vec::new();
    let t = table(&world.db);
    for round in 1..30 {
        let keys = round * 100..round * 100 + 40;
        for k in keys.clone() {
            insert(&world.db, &row(k, k, "passing through"));
        }
        if round % 2 == 0 {
            world.checkpoint(); // as rows of chunks; else as rows of an insert range
        }
        keys.clone().for_each(|k| world.set(k, 0));
        for k in keys {
            run(&world.db, |s| s.point_delete(&t, 0, &[Value::BigInt(k)])).expect("delete");
        }
        world.checkpoint();
        world.checkpoint(); // what is dead goes with the merge after
        files.push(world.file_bytes());
        assert_eq!(scan_all(&scan).len(), 10);
    }
    assert_bounded("bytes of files", &files);
    drop((old, scan));
    let world = world.reopen();
    assert_eq!(scan_all(&world.scan()).len(), 10);
    assert!(world.db.check().expect("check").is_empty());
}

/// Rows that were deleted while a snapshot saw them give their space back when nobody sees them any
/// more, though nothing else changes in their range, if they are more than those that are left.
#[test]
fn a_mostly_dead_range_is_rewritten_once_its_rows_expire() {
    for (deleted, is_rewritten) in [(1_500, true), (500, false)] {
        let world = World::new(HistoryPolicy::None);
        let rng = &mut strandline_base::rng::Rng::new(1);
        for k in 0..2_000 {
            let text: String = (0..8).map(|_| format!("{:016x}", rng.next_u64())).collect();
            insert(&world.db, &row(k, 0, &text));
        }
        world.checkpoint();
        let full = world.file_bytes();
        let snapshot = world.snapshot();
        let t = table(&world.db);
        let removed = run(&world.db, |s| {
            (0..deleted).try_for_each(|k| s.point_delete(&t, 0, &[Value::BigInt(k)]).map(drop))
        });
        removed.expect("delete");
        world.checkpoint();
        assert!(world.file_bytes() >= full, "the snapshot needs the rows");
        drop(snapshot);
        let mut merged = 0;
        for _ in 0..3 {
            world.clock.advance(1_000);
            merged += world
                .db
                .checkpoint(false)
                .expect("checkpoint")
                .merged_ranges;
        }
        let left = world.file_bytes();
        assert_eq!(merged, u64::from(is_rewritten), "{deleted} rows deleted");
        assert_eq!(left < full / 2, is_rewritten, "{left} of {full} bytes");
        let world = world.reopen();
        let rows = rows_of(&world.scan(), &table(&world.db));
        assert_eq!(rows.len(), 2_000 - deleted as usize);
    }
}
