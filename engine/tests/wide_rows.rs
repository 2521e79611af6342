//! Rows of 100 KB in a database with the least memory: what loads, ranges and scans hold is bounded
//! in bytes, whatever the number of rows, and rows are read, updated and deleted as others are.

mod common;

use common::counting_device::CountingDevice;
use common::{State, batch, clock, create_table, get, insert, request, row, run, scan_all, table};
use std::sync::Arc;
use strandline_base::rng::Rng;
use strandline_base::{BLOCK_ROWS, ManualClock, RANGE_ROWS};
use strandline_column::row_bytes::batch_bytes;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

/// Bytes of a row's text.
const TEXT_BYTES: usize = 100_000;
/// Rows of a load: together they have more bytes than all of the memory.
const ROWS: i64 = 170;
/// Rows of a batch: more than a range may have of them.
const BATCH_ROWS: i64 = 60;

struct Wide {
    device: Arc<MemoryDevice>,
    clock: Arc<ManualClock>,
    db: Arc<Db>,
}

fn open(device: &Arc<MemoryDevice>, clock: &Arc<ManualClock>) -> Arc<Db> {
    open_merging(device, clock, 1)
}

fn open_merging(
    device: &Arc<MemoryDevice>,
    clock: &Arc<ManualClock>,
    merge_threads: usize,
) -> Arc<Db> {
    let settings = Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        background_maintenance: false,
        merge_threads,
        recovery_threads: 1,
        ..Settings::default()
    };
    let options = DbOptions {
        device: device.clone(),
        clock: clock.clone(),
        settings,
    };
    Db::open(options).expect("open")
}

impl Wide {
    fn new() -> Self {
        let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
        let db = open(&device, &clock);
        create_table(&db, HistoryPolicy::None);
        Self { device, clock, db }
    }

    fn reopen(self) -> Self {
        let Self { device, clock, db } = self;
        drop(db);
        let db = open(&device, &clock);
        Self { device, clock, db }
    }

    /// Bulk-loads the rows `keys`.
    fn load(&self, keys: std::ops::Range<i64>) {
        let table = table(&self.db);
        let loaded = run(&self.db, |s| {
            let mut load = s.bulk_insert(&table)?;
            for first in keys.clone().step_by(BATCH_ROWS as usize) {
                let keys = first..keys.end.min(first + BATCH_ROWS);
                let rows: Vec<_> = keys.map(|k| (k, Some(-k), text(k))).collect();
                load.append(&batch(&rows))?;
            }
            load.finish()
        });
        let rows = keys.end - keys.start;
        assert_eq!(loaded.expect("load"), rows as u64);
    }

    fn counter(&self, name: &str) -> usize {
        let counters = self.db.counters();
        let found = counters.iter().find(|(counter, _)| *counter == name);
        found.expect("a counter").1 as usize
    }

    fn scan(&self) -> Arc<TableScan> {
        let table = table(&self.db);
        run(&self.db, |s| s.scan(&table, request())).expect("scan")
    }

    /// The bytes of each batch that a scan hands out.
    fn batches(&self) -> Vec<usize> {
        let scan = self.scan();
        let units = (0..scan.units()).map(|unit| scan.read_unit(unit).expect("read"));
        units.flatten().map(|batch| batch_bytes(&batch)).collect()
    }

    fn check(&self, expected: &State) {
        let found = scan_all(&self.scan());
        assert!(found.keys().eq(expected.keys()), "other keys");
        for (k, (a, b)) in &found {
            let (expected_a, expected_b) = &expected[k];
            assert_eq!(a, expected_a, "a of {k}");
            assert!(b == expected_b, "b of {k} begins with {:.20}", b);
        }
    }
}

/// The text of row `k`.
fn text(k: i64) -> String {
    let mut text = format!("{k:010}").repeat(TEXT_BYTES / 10);
    text.truncate(TEXT_BYTES);
    text
}

fn loaded(keys: std::ops::Range<i64>) -> State {
    keys.map(|k| (k, (Some(-k), text(k)))).collect()
}

#[test]
fn a_load_holds_its_share_and_scans_hand_out_ranges_bytes() {
    let wide = Wide::new();
    wide.load(0..ROWS);
    let settings = wide.db.settings();
    let most = wide.counter("load_bytes_max");
    assert!(most <= settings.load_bytes(), "loads held {most} bytes");
    assert_eq!(wide.counter("load_bytes"), 0);
    for bytes in wide.batches() {
        assert!(bytes <= settings.range_bytes(), "a batch of {bytes}");
    }
    let mut expected = loaded(0..ROWS);
    wide.check(&expected);
    // Rows are updated, deleted and read one by one.
    for k in (0..ROWS).step_by(7) {
        let (key, new) = ([Value::BigInt(k)], text(k + 1_000_000));
        let set = [(ColumnId(2), Value::from(new.as_str()))];
        let table = table(&wide.db);
        let updated = run(&wide.db, |s| s.point_update(&table, 0, &key, &set));
        assert!(updated.expect("update"));
        assert_eq!(get(&wide.db, k).expect("the row")[2], set[0].1);
        expected.insert(k, (Some(-k), new));
        let gone = [Value::BigInt(k + 1)];
        let deleted = run(&wide.db, |s| s.point_delete(&table, 0, &gone));
        assert!(deleted.expect("delete"));
        expected.remove(&(k + 1));
    }
    wide.check(&expected);
    wide.db.checkpoint(true).expect("checkpoint");
    wide.check(&expected);
    assert!(wide.db.check().expect("check").is_empty());
    let wide = wide.reopen();
    wide.check(&expected);
    assert_eq!(
        get(&wide.db, 0).expect("a row")[2],
        Value::from(text(1_000_000).as_str())
    );
}

/// A range of narrow rows has 8 MiB of text: the encoded bytes are written in pieces.
#[test]
fn a_load_writes_text_in_pieces() {
    let device = Arc::new(CountingDevice::default());
    let db = common::open(device.clone(), &clock()).expect("open");
    create_table(&db, HistoryPolicy::None);
    let (table, mut rng) = (table(&db), Rng::new(1));
    let mut text = || {
        (0..8).fold(String::new(), |t, _| {
            t + &format!("{:016x}", rng.next_u64())
        })
    };
    let rows: Vec<_> = (0..RANGE_ROWS as i64)
        .map(|k| (k, Some(k), text()))
        .collect();
    let loaded = run(&db, |s| {
        let mut load = s.bulk_insert(&table)?;
        load.append(&batch(&rows))?;
        load.finish()
    });
    assert_eq!(loaded.expect("load"), RANGE_ROWS as u64);
    let (written, largest) = (device.written("chunks"), device.largest_write("chunks"));
    assert!(written > 3 << 20, "{written} bytes");
    // A piece, and the rest of a block.
    let block = (BLOCK_ROWS * 132) as u64;
    assert!(largest <= (1 << 20) + block, "a write of {largest} bytes");
    assert_eq!(
        get(&db, 65_000).expect("a row")[2],
        Value::from(rows[65_000].2.as_str())
    );
}

#[test]
fn insert_ranges_are_closed_by_bytes() {
    let wide = Wide::new();
    let rows = 100;
    for k in 0..rows {
        insert(&wide.db, &row(k, -k, &text(k)));
    }
    let limit = 2 * wide.db.settings().range_bytes();
    let largest = wide.batches().into_iter().max();
    assert!(largest.expect("rows") <= limit, "a batch of {largest:?}");
    let ranges = wide.scan().units();
    assert!(
        ranges >= rows as usize * TEXT_BYTES / limit,
        "{ranges} ranges"
    );
    wide.check(&loaded(0..rows));
    let wide = wide.reopen();
    wide.check(&loaded(0..rows));
    wide.db.checkpoint(true).expect("checkpoint");
    wide.check(&loaded(0..rows));
}

/// A row that is larger than all of the memory is refused, and what came before it stays.
#[test]
fn a_row_larger_than_the_memory_is_refused() {
    let wide = Wide::new();
    insert(&wide.db, &row(1, 1, "small"));
    let table = table(&wide.db);
    let huge = "x".repeat(Settings::MEMORY_BYTES_MIN + 1);
    let refusals = [
        run(&wide.db, |s| {
            s.point_insert(&table, &row(2, 2, &huge)).map(drop)
        }),
        run(&wide.db, |s| {
            let set = [(ColumnId(2), Value::from(huge.as_str()))];
            s.point_update(&table, 0, &[Value::BigInt(1)], &set)
                .map(drop)
        }),
        run(&wide.db, |s| {
            let mut load = s.bulk_insert(&table)?;
            load.append(&batch(&[(3, None, huge.clone())]))?;
            load.finish().map(drop)
        }),
    ];
    for refusal in refusals {
        let refusal = refusal.expect_err("refused");
        assert_eq!(refusal.sqlstate(), SqlState::PROGRAM_LIMIT_EXCEEDED);
        assert!(refusal.message().contains("memory_bytes"), "{refusal}");
    }
    let expected = State::from([(1, (Some(1), "small".to_string()))]);
    wide.check(&expected);
    wide.reopen().check(&expected);
}

/// Loads that go on side by side share what one may have; one that has stopped keeps none from
/// going on.
#[test]
fn several_loads_stay_within_the_share_of_all() {
    const LOADS: i64 = 8;
    let wide = Wide::new();
    let table = table(&wide.db);
    let mut loads: Vec<_> = (0..LOADS)
        .map(|_| {
            let txn = wide.db.begin(TxnOptions::default()).expect("begin");
            let statement = txn.begin_statement().expect("statement");
            let load = statement.bulk_insert(&table).expect("load");
            (txn, statement, load)
        })
        .collect();
    let (rows, stopped) = (40, 10);
    for k in 0..rows {
        for (at, (_, _, load)) in (0..).zip(&mut loads) {
            if at > 0 || k < stopped {
                let key = at * 1_000 + k;
                load.append(&batch(&[(key, Some(-key), text(key))]))
                    .expect("append");
            }
        }
    }
    let (share, range) = {
        let settings = wide.db.settings();
        (settings.load_bytes(), settings.range_bytes())
    };
    let most = wide.counter("load_bytes_max");
    let least = LOADS as usize * (range / 8 + TEXT_BYTES);
    assert!(most <= share + least, "{most} bytes, {share} for all");
    let mut expected = State::new();
    for (at, (txn, statement, load)) in (0..).zip(loads) {
        let keys = at * 1_000..at * 1_000 + if at == 0 { stopped } else { rows };
        assert_eq!(load.finish().expect("load"), (keys.end - keys.start) as u64);
        statement.finish().expect("keys");
        drop(statement);
        txn.commit().expect("commit");
        expected.extend(loaded(keys));
    }
    wide.check(&expected);
    assert_eq!(wide.counter("load_bytes"), 0);
}

/// However many threads may merge, merges together have an eighth of the memory, which is lent to
/// them while they run.
#[test]
fn merges_hold_an_eighth_of_the_memory() {
    let mut wide = Wide::new();
    wide.load(0..ROWS);
    wide.db = open_again(&wide, 4);
    let table = table(&wide.db);
    for k in (0..ROWS).step_by(5) {
        let new = text(k + 1_000_000);
        let (key, set) = (
            [Value::BigInt(k)],
            [(ColumnId(2), Value::from(new.as_str()))],
        );
        let updated = run(&wide.db, |s| s.point_update(&table, 0, &key, &set));
        assert!(updated.expect("update"));
    }
    let report = wide.db.checkpoint(true).expect("merge");
    assert!(report.merged_ranges > 8, "{} ranges", report.merged_ranges);
    let (most, memory) = (wide.counter("merge_bytes_max"), Settings::MEMORY_BYTES_MIN);
    assert!(most > 0 && most <= memory / 8, "merges held {most} bytes");
    assert_eq!(wide.counter("merge_bytes"), 0);
}

/// The database again, with `merge_threads`.
fn open_again(wide: &Wide, merge_threads: usize) -> Arc<Db> {
    wide.db.close().expect("close");
    open_merging(&wide.device, &wide.clock, merge_threads)
}
