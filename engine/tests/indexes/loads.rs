//! Bulk loads into tables with several indexes.

use crate::common::*;
use crate::support::*;
use arrow_array::RecordBatch;
use std::sync::Arc;
use strandline_base::{Clock, SystemClock};
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::catalog::index::IndexStorage;
use strandline_engine::*;

/// Rows of a load, bytes of each row's text, and the memory: several ranges.
const ROWS: i64 = match crate::STORAGE {
    IndexStorage::Memory => 120_000,
    IndexStorage::Pages | IndexStorage::Blocks(_) => 20_000,
    // Heads of tests are small, so compactions are many.
    IndexStorage::Levels => 5_000,
};
const TEXT_BYTES: usize = match crate::STORAGE {
    IndexStorage::Memory => 1,
    IndexStorage::Pages | IndexStorage::Levels | IndexStorage::Blocks(_) => 100,
};
const MEMORY_BYTES: usize = match crate::STORAGE {
    IndexStorage::Memory => 4 * Settings::MEMORY_BYTES_MIN,
    IndexStorage::Pages | IndexStorage::Levels | IndexStorage::Blocks(_) => {
        Settings::MEMORY_BYTES_MIN
    }
};

/// Rows of a load that violates constraints.
const DUPLICATES: i64 = match crate::STORAGE {
    IndexStorage::Memory => 5_000,
    IndexStorage::Pages | IndexStorage::Levels | IndexStorage::Blocks(_) => 1_500,
};

/// The table with a primary key and four indexes, two of them unique.
fn world() -> World {
    let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
    let settings = Settings {
        memory_bytes: MEMORY_BYTES,
        ..Settings::default()
    };
    let db = open_with(device.clone(), &clock, settings).expect("open");
    create_table(&db, HistoryPolicy::None);
    alter(&db, |table| {
        put_index(table, &unique("t_a", vec![part(1)]));
        put_index(table, &unique("t_ak", vec![part(1), part(0)]));
        put_index(table, &index("t_b", vec![part(2)]));
        put_index(table, &index("t_ba", vec![part(2), part(1)]));
    });
    World { device, clock, db }
}

/// Row `k`; the keys come in no order.
fn loaded(k: i64) -> (i64, Option<i64>, String) {
    (
        k * 7919 % ROWS,
        Some(k),
        format!("{:0>TEXT_BYTES$}", k % 10),
    )
}

fn load(statement: &Arc<Statement>, rows: &[RecordBatch]) -> Result<u64> {
    let mut load = statement.bulk_insert(&table(statement.transaction().db()))?;
    rows.iter().try_for_each(|rows| load.append(rows))?;
    load.finish()
}

fn counts(db: &Db) -> (u64, u64) {
    (counter(db, "key_entries"), counter(db, "index_entries"))
}

#[test]
fn a_load_enters_every_index() {
    let world = world();
    let rows: Vec<_> = (0..ROWS).map(loaded).collect();
    let rows: Vec<_> = rows.chunks(10_000).map(batch).collect();
    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    assert_eq!(load(&statement, &rows).expect("load"), ROWS as u64);
    statement.finish().expect("no duplicates");
    assert_eq!(counts(&world.db), (ROWS as u64, 4 * ROWS as u64));
    txn.rollback();
    assert_eq!(counts(&world.db), (0, 0), "a rollback takes them back");
    run(&world.db, |s| load(s, &rows)).expect("load");
    assert_eq!(counts(&world.db), (ROWS as u64, 4 * ROWS as u64));
    assert_eq!(world.db.check().expect("check"), Vec::<String>::new());
}

/// Every row is a duplicate in three unique indexes: the one that is defined first is named.
#[test]
fn a_load_names_the_first_constraint_that_it_violates() {
    let world = world();
    let rows: Vec<_> = (0..DUPLICATES).map(loaded).collect();
    let rows = [batch(&rows)];
    run(&world.db, |s| load(s, &rows)).expect("load");
    let error = run(&world.db, |s| load(s, &rows)).expect_err("loaded already");
    assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION);
    assert!(error.to_string().contains("\"t_pkey\""), "{error}");
    let other_keys: Vec<_> = (0..DUPLICATES)
        .map(|k| (k + ROWS, Some(k), String::new()))
        .collect();
    let error = run(&world.db, |s| load(s, &[batch(&other_keys)])).expect_err("a is there");
    assert!(error.to_string().contains("\"t_a\""), "{error}");
    assert_eq!(
        counts(&world.db),
        (DUPLICATES as u64, 4 * DUPLICATES as u64)
    );
    assert_eq!(world.db.check().expect("check"), Vec::<String>::new());
}

/// Measures the opening of a table of 300,000 rows with three indexes.
#[test]
#[ignore = "a measurement: run it alone, by name, with --nocapture"]
fn opening_a_table_with_three_indexes() {
    let mut world = World::new(HistoryPolicy::None);
    alter(&world.db, |table| {
        put_index(table, &unique("t_a", vec![part(1)]));
        put_index(table, &index("t_b", vec![part(2)]));
        put_index(table, &index("t_ba", vec![part(2), part(1)]));
    });
    let load_rows = |from: i64| {
        let rows = (from..from + 10_000).map(|k| (k * 7919 % 300_007, Some(k), format!("{k:08}")));
        batch(&rows.collect::<Vec<_>>())
    };
    for from in (0..300_000).step_by(10_000) {
        run(&world.db, |s| load(s, &[load_rows(from)])).expect("load");
    }
    for what in ["with the load in the log", "after a checkpoint"] {
        let began_us = SystemClock.elapsed_us();
        world = world.reopen();
        let micros = SystemClock.elapsed_us() - began_us;
        let log_bytes = world.db.recovery().log_bytes;
        let storage = crate::STORAGE;
        println!("{storage:?}, {what}: {micros} µs, {log_bytes} bytes of log");
        world.db.checkpoint(true).expect("checkpoint");
        world.db.close().expect("close");
    }
}
