//! Point reads of several columns of merged rows, which go by decoded rows, see what scans see.

mod common;

use common::{batch, clock, create_table, open, request, scan_all};
use std::sync::Arc;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

#[test]
fn rows_read_by_key_are_those_of_the_scan() {
    let db = open(Arc::new(MemoryDevice::new()), &clock()).expect("open");
    let (table, _) = create_table(&db, HistoryPolicy::Forever);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let mut load = statement.bulk_insert(&table).expect("load");
    // More than a block, the last one short; NULLs and negative numbers.
    let rows: Vec<_> = (0..9_000)
        .map(|k| {
            (
                k,
                (k % 7 != 3).then_some(k * 31 - 5_000),
                format!("text {k}"),
            )
        })
        .collect();
    load.append(&batch(&rows)).expect("rows");
    load.finish().expect("loaded");
    statement.finish().expect("finish");
    txn.commit().expect("commit");
    db.checkpoint(true).expect("merged");

    // Updates on top of some, merged and not.
    for merged in [true, false] {
        let txn = db.begin(TxnOptions::default()).expect("begin");
        for k in (0..9_000).step_by(if merged { 11 } else { 13 }) {
            let statement = txn.begin_statement().expect("statement");
            let a = if k % 2 == 0 {
                Value::Null
            } else {
                Value::BigInt(-k)
            };
            let set = [(ColumnId(1), a)];
            let found = statement.point_update(&table, 0, &[Value::BigInt(k)], &set);
            assert!(found.expect("update"));
        }
        txn.commit().expect("commit");
        if merged {
            db.checkpoint(true).expect("merged");
        }
    }

    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let expected = scan_all(&statement.scan(&table, request()).expect("scan"));
    assert_eq!(expected.len(), rows.len());
    for (&k, (a, b)) in &expected {
        let mut out = Vec::new();
        let columns = [ColumnId(1), ColumnId(2), ColumnId(0)];
        let found = statement.point_get(&table, 0, &[Value::BigInt(k)], &columns, &mut out);
        assert!(found.expect("read"), "key {k}");
        let a = a.map_or(Value::Null, Value::BigInt);
        assert_eq!(out, [a, Value::from(b.as_str()), Value::BigInt(k)]);
    }
}
