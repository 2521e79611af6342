//! Loads that a crash has ended: their entries are in the files, and the next load takes their
//! places.

use crate::common::*;
use crate::support::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::catalog::index::IndexStorage;
use strandline_engine::*;
use strandline_sim::SimDisk;

/// Enough for a range of their own.
const ROWS: i64 = 5_000;

fn open_disk(disk: &SimDisk, clock: &Arc<ManualClock>) -> Arc<Db> {
    open_eager(disk.device(), clock, 6).expect("open")
}

fn load(statement: &Arc<Statement>, a: impl Fn(i64) -> i64) -> Result<u64> {
    let rows = (0..ROWS).map(|k| (k, Some(a(k)), format!("{}", k % 10)));
    let mut load = statement.bulk_insert(&table(statement.transaction().db()))?;
    load.append(&batch(&rows.collect::<Vec<_>>()))?;
    load.finish()
}

/// Entries in levels are durable with a checkpoint.
fn store_levels(db: &Db) {
    if crate::STORAGE == IndexStorage::Levels {
        db.checkpoint(false).expect("checkpoint");
    }
}

/// The disk of a crash with a load under way, whose entries are durable.
fn crashed(a: impl Fn(i64) -> i64) -> (SimDisk, Arc<ManualClock>) {
    let (disk, wall) = (SimDisk::new(1), clock());
    let db = open_disk(&disk, &wall);
    create_table(&db, HistoryPolicy::None);
    create_alone(&db, &unique("t_a", vec![part(1)])).expect("create");
    insert(&db, &row(-1, -1, "before"));
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    load(&statement, a).expect("loaded, not checked yet");
    // With this commit the load's entries on pages become durable.
    insert(&db, &row(-2, -2, "after"));
    store_levels(&db);
    let crashed = disk.after_crash(0);
    drop(statement);
    txn.rollback();
    (crashed, wall)
}

#[test]
fn a_repeated_load_is_refused_for_its_duplicates() {
    let with_duplicate = |k| if k == 4_000 { 17 } else { k };
    let (disk, wall) = crashed(with_duplicate);
    let db = open_disk(&disk, &wall);
    assert!(entries(&db, "t_a") > ROWS as usize, "of the crashed load");
    let error = run(&db, |s| load(s, with_duplicate)).expect_err("17 twice");
    assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION, "{error}");
    assert!(error.to_string().contains("\"t_a\""), "{error}");
    assert_sound(&db, "refused");
    run(&db, |s| load(s, |k| k)).expect("each once");
    for _ in 0..2 {
        db.checkpoint(true).expect("checkpoint with a sweep");
    }
    assert_sound(&db, "loaded");
}

/// Their entries go: of the last row of a range, and of a range that is not there when it is again.
#[test]
fn entries_of_ended_rows_are_swept() {
    let (disk, wall) = crashed(|k| k);
    let db = open_disk(&disk, &wall);
    let ended = db.begin(TxnOptions::default()).expect("begin");
    let statement = ended.begin_statement().expect("statement");
    let inserted = statement.point_insert(&table(&db), &row(-3, -3, "ended"));
    inserted.expect("insert");
    // With this commit its entry on a page becomes durable.
    let set = [(ColumnId(2), Value::from("updated"))];
    let updated = run(&db, |s| {
        s.point_update(&table(&db), 0, &[Value::BigInt(-1)], &set)
    });
    assert!(updated.expect("update"));
    store_levels(&db);
    let crashed = disk.after_crash(0);
    drop(statement);
    ended.rollback();
    drop(db);
    let db = open_disk(&crashed, &wall);
    assert_eq!(entries(&db, "t_a"), ROWS as usize + 3);
    // More turns than the comparison takes.
    for _ in 0..ROWS / 16 {
        db.merge_due(false).expect("a turn");
    }
    db.checkpoint(true).expect("checkpoint with a sweep");
    assert_eq!(entries(&db, "t_a"), ROWS as usize + 2);
    // Those of the missing range wait until a range takes its place.
    run(&db, |s| load(s, |k| ROWS + k)).expect("other keys");
    db.checkpoint(true).expect("checkpoint with a sweep");
    assert_eq!(entries(&db, "t_a"), ROWS as usize + 2);
    assert_sound(&db, "swept");
}
