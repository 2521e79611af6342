//! What checkpoints write, merge and leave: nothing twice, nothing forgotten beside transactions
//! that stay open.

mod common;

use common::*;
use std::sync::Arc;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

fn database() -> Arc<Db> {
    let db = open(Arc::new(MemoryDevice::new()), &clock()).expect("open");
    create_table(&db, HistoryPolicy::Forever);
    for k in 0..20 {
        insert(&db, &row(k, 0, ""));
    }
    db
}

fn set(db: &Arc<Db>, k: i64, a: i64) {
    let t = table(db);
    let set = [(ColumnId(1), Value::BigInt(a))];
    run(db, |s| s.point_update(&t, 0, &[Value::BigInt(k)], &set)).expect("update");
}

#[test]
fn records_are_written_once() {
    let db = database();
    assert_eq!(db.checkpoint(false).expect("checkpoint").run_records, 20);
    assert_eq!(db.checkpoint(false).expect("checkpoint").run_records, 0);
    set(&db, 3, 1);
    set(&db, 3, 2);
    // Both updates and the value before.
    assert_eq!(db.checkpoint(false).expect("checkpoint").run_records, 3);
    assert_eq!(db.checkpoint(false).expect("checkpoint").run_records, 0);
    assert_eq!(db.checkpoint(true).expect("checkpoint").merged_ranges, 1);
    let report = db.checkpoint(true).expect("checkpoint");
    assert_eq!((report.merged_ranges, report.run_records), (0, 0));
}

#[test]
fn a_merge_passes_over_an_open_transaction_and_takes_its_records_later() {
    let db = database();
    db.checkpoint(true).expect("checkpoint");
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let t = table(&db);
    let late = [(ColumnId(1), Value::BigInt(-1))];
    statement
        .point_update(&t, 0, &[Value::BigInt(0)], &late)
        .expect("update");
    for round in 0..30 {
        for k in 1..20 {
            set(&db, k, round);
        }
        let report = db.checkpoint(true).expect("checkpoint");
        assert_eq!(report.merged_ranges, 1, "round {round}");
    }
    txn.commit().expect("commit");
    let report = db.checkpoint(true).expect("checkpoint");
    assert_eq!(report.merged_ranges, 1, "the late record is merged");
    assert_eq!(db.checkpoint(true).expect("checkpoint").merged_ranges, 0);
    assert_eq!(get(&db, 0), Some(row(0, -1, "").to_vec()));
    assert_eq!(get(&db, 7), Some(row(7, 29, "").to_vec()));
}
