//! At most two hops reach a row's latest version \[L-Store §2.2\], however often it was updated
//! since the last merge and whatever columns are asked for: walks along a row's chain of records
//! end at the newest update that they may go by.

mod common;

use common::*;
use std::sync::Arc;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, KeyDef};
use strandline_engine::*;
use strandline_tail::hops;

/// Updates of one column of the hot row.
const UPDATES: i64 = 300;
const COLUMNS: [ColumnId; 3] = [ColumnId(0), ColumnId(1), ColumnId(2)];

/// A database whose table has a second key, of text, and 10 rows in its base (an insert range or
/// chunks), the first one's `a` updated [`UPDATES`] times.
fn hot(merged: bool) -> (Arc<Db>, Arc<catalog::TableDef>) {
    let db = open(Arc::new(MemoryDevice::new()), &clock()).expect("open");
    create_table(&db, HistoryPolicy::Forever);
    alter(&db, |table| {
        table
            .keys
            .push(KeyDef::new("t_b_key", false, vec![ColumnId(2)]));
    });
    (0..10).for_each(|k| insert(&db, &row(k, -1, &format!("row {k}"))));
    if merged {
        db.checkpoint(true).expect("merge");
    }
    let table = table(&db);
    (0..UPDATES).for_each(|n| set_a(&db, &table, n));
    (db, table)
}

fn set(db: &Arc<Db>, table: &Arc<catalog::TableDef>, column: u32, value: Value) {
    let set = [(ColumnId(column), value)];
    let found = run(db, |s| s.point_update(table, 0, &[Value::BigInt(0)], &set));
    assert!(found.expect("update"));
}

fn set_a(db: &Arc<Db>, table: &Arc<catalog::TableDef>, a: i64) {
    set(db, table, 1, Value::BigInt(a));
}

/// The tail records that `work` looks up, at most `limit`.
fn within<R>(limit: u64, what: &str, work: impl FnOnce() -> R) -> R {
    let before = hops::count();
    let out = work();
    if let (Some(before), Some(after)) = (before, hops::count()) {
        let hops = after - before;
        assert!(hops <= limit, "{what}: {hops} records looked up");
    }
    out
}

fn read(
    statement: &Statement,
    table: &Arc<catalog::TableDef>,
    key: usize,
    by: Value,
) -> Vec<Value> {
    let mut out = Vec::new();
    let found = statement.point_get(table, key, &[by], &COLUMNS, &mut out);
    assert!(found.expect("read"));
    out
}

#[test]
fn all_columns_of_a_hot_row_are_one_record_away() {
    for merged in [false, true] {
        let (db, table) = hot(merged);
        let txn = db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        let expected = row(0, UPDATES - 1, "row 0");
        let by_number = within(1, "all columns", || {
            read(&statement, &table, 0, Value::BigInt(0))
        });
        let by_text = within(1, "by the text key", || {
            read(&statement, &table, 1, Value::from("row 0"))
        });
        assert_eq!([by_number, by_text], [expected.to_vec(), expected.to_vec()]);

        let point = PointTable::new(&db, &db.catalog(), &table, 0).expect("point");
        let (mut out, key) = (Vec::new(), [Value::BigInt(0)]);
        let found = within(1, "without a statement", || {
            txn.point_get(&point, &key, &COLUMNS, &mut out)
        });
        assert!(found.expect("read"));
        assert_eq!(out, expected);
        let exists = within(1, "no column", || {
            txn.point_get(&point, &key, &[], &mut out)
        });
        assert!(exists.expect("read"));
    }
}

#[test]
fn a_snapshot_passes_over_what_is_newer_and_no_more() {
    for merged in [false, true] {
        let (db, table) = hot(merged);
        let snapshot = TxnOptions {
            isolation: Isolation::Snapshot,
            ..TxnOptions::default()
        };
        let txn = db.begin(snapshot).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        (0..3).for_each(|n| set_a(&db, &table, 1_000 + n));
        let seen = within(4, "a snapshot", || {
            read(&statement, &table, 0, Value::BigInt(0))
        });
        assert_eq!(seen, row(0, UPDATES - 1, "row 0"));
        // With a base that is newer than the snapshot the runs say the rest.
        db.checkpoint(true).expect("merge");
        let seen = within(4, "a newer base", || {
            read(&statement, &table, 0, Value::BigInt(0))
        });
        assert_eq!(seen, row(0, UPDATES - 1, "row 0"));
    }
}

#[test]
fn the_first_update_of_another_column_looks_no_further() {
    for merged in [false, true] {
        let (db, table) = hot(merged);
        let before = db.stable();
        // Looks for the rows of both keys, for a conflict and for the columns.
        within(8, "the first update of b", || {
            set(&db, &table, 2, Value::from("once"));
        });
        // Merged since, so that only base's bits know of it.
        db.checkpoint(true).expect("merge");
        (0..UPDATES).for_each(|n| set_a(&db, &table, n));
        within(8, "an update of b after a merge", || {
            set(&db, &table, 2, Value::from("twice"));
        });
        let scan = run(&db, |s| s.scan_as_of(&table, before, request())).expect("as of");
        assert_eq!(
            scan_all(&scan)[&0],
            (Some(UPDATES - 1), "row 0".to_string())
        );
        assert_eq!(get(&db, 0), Some(row(0, UPDATES - 1, "twice").to_vec()));
    }
}

/// Old values of an update that was rolled back stand behind later updates, where no writer looks
/// for them: they are written again, and every moment reads the same.
#[test]
fn old_values_behind_a_later_update_are_written_again() {
    for merged in [false, true] {
        let (db, table) = hot(merged);
        let first = db.stable();
        let txn = db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        let b = [(ColumnId(2), Value::from("never"))];
        let found = statement.point_update(&table, 0, &[Value::BigInt(0)], &b);
        assert!(found.expect("update"));
        drop(statement);
        txn.rollback();
        set_a(&db, &table, 1_000);
        let second = db.stable();
        set(&db, &table, 2, Value::from("later"));

        let check = |db: &Arc<Db>| {
            let as_of = |ts| {
                let scan = run(db, |s| s.scan_as_of(&table, ts, request())).expect("as of");
                scan_all(&scan)[&0].clone()
            };
            assert_eq!(as_of(first), (Some(UPDATES - 1), "row 0".to_string()));
            assert_eq!(as_of(second), (Some(1_000), "row 0".to_string()));
            assert_eq!(as_of(db.stable()), (Some(1_000), "later".to_string()));
            assert_eq!(get(db, 0), Some(row(0, 1_000, "later").to_vec()));
        };
        check(&db);
        db.checkpoint(false).expect("a run");
        check(&db);
        db.checkpoint(true).expect("merge");
        check(&db);
    }
}

#[test]
fn validating_a_read_of_a_hot_row_looks_at_its_newest_record() {
    let (db, table) = hot(true);
    let serializable = TxnOptions {
        isolation: Isolation::Serializable,
        ..TxnOptions::default()
    };
    let txn = db.begin(serializable).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    read(&statement, &table, 0, Value::BigInt(0));
    let set = [(ColumnId(1), Value::BigInt(7))];
    let found = statement.point_update(&table, 0, &[Value::BigInt(5)], &set);
    assert!(found.expect("update"));
    drop(statement);
    // The read is repeated at the snapshot and now, and compared with what came since.
    within(12, "validation", || txn.commit().expect("commit"));
}

#[test]
fn versions_of_a_hot_row_are_followed_back_to_the_interval() {
    let (db, table) = hot(true);
    let from = db.stable();
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let columns = [VersionColumn::Stored(ColumnId(1))];
    let scan = statement.scan_versions(&table, (from, from), None, &columns);
    let scan = scan.expect("scan");
    let rows = within(1, "versions of one moment", || {
        let mut rows = 0;
        for unit in 0..scan.units() {
            let mut reader = scan.open_unit(unit).expect("reader");
            while let Some(batch) = reader.next_batch().expect("batch") {
                rows += batch.num_rows();
            }
        }
        rows
    });
    assert_eq!(rows, 10);
}
