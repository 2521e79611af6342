//! Point reads of several columns of merged rows, which go by decoded rows, see what scans see.

mod common;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
use common::{batch, clock, column, create_table, definition, open, request, scan_all};
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

/// Which columns a table is first read by decides how its rows are decoded, not what is read.
#[test]
fn rows_are_read_by_any_columns_in_any_order() {
    const ROWS: i64 = 4_500; // two blocks
    let text = |k: i64| format!("text {k}");
    // One column with NULLs, one without fixed-width values.
    let value = |k: i64, id: u32| match id {
        0 => Value::BigInt(k),
        3 if k % 5 == 0 => Value::Null,
        9 => Value::from(text(k).as_str()),
        _ => Value::BigInt(k * 10 + i64::from(id)),
    };
    let reads: [Vec<u32>; 10] = [
        vec![1, 2],
        vec![5],
        vec![3, 4, 6],
        vec![9, 2, 1],
        (0..10).collect(),
        vec![2, 8],
        vec![],
        vec![7, 7],
        vec![1, 70, 79],
        (5..80).collect(),
    ];
    for (width, first) in [10, 80]
        .into_iter()
        .flat_map(|w| (0..reads.len()).map(move |f| (w, f)))
    {
        let is_there = |read: &&Vec<u32>| read.iter().all(|id| *id < width);
        let reads = reads.iter().cycle().skip(first).take(2 * reads.len());
        let db = open(Arc::new(MemoryDevice::new()), &clock()).expect("open");
        let txn = db.begin(TxnOptions::default()).expect("begin");
        let mut columns = vec![column(0, "k", SqlType::BigInt, true)];
        columns.extend((1..width).map(|id| column(id, &format!("c{id}"), SqlType::BigInt, false)));
        columns[9].sql_type = SqlType::Text;
        txn.change_catalog(&mut |catalog| {
            let table = definition(catalog, columns.clone(), HistoryPolicy::Forever);
            catalog.put_table(table);
            Ok(())
        })
        .expect("table");
        let table = txn.catalog().table("public", "t").expect("table").clone();
        let statement = txn.begin_statement().expect("statement");
        let mut load = statement.bulk_insert(&table).expect("load");
        let arrays = (0..width).map(|id| {
            let values = (0..ROWS).map(|k| value(k, id));
            match id {
                9 => {
                    let texts = (0..ROWS).map(text);
                    Arc::new(StringViewArray::from_iter_values(texts)) as ArrayRef
                }
                _ => {
                    let integer = |v| match v {
                        Value::BigInt(v) => Some(v),
                        _ => None,
                    };
                    Arc::new(values.map(integer).collect::<Int64Array>())
                }
            }
        });
        let names = columns.iter().map(|column| column.name.clone());
        let rows = RecordBatch::try_from_iter(names.zip(arrays)).expect("batch");
        load.append(&rows).expect("rows");
        load.finish().expect("loaded");
        statement.finish().expect("finish");
        txn.commit().expect("commit");
        db.checkpoint(true).expect("merged");

        let txn = db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        for read in reads.filter(is_there) {
            let columns: Vec<ColumnId> = read.iter().map(|id| ColumnId(*id)).collect();
            for k in (0..ROWS).step_by(101) {
                let mut out = Vec::new();
                let key = [Value::BigInt(k)];
                let found = statement.point_get(&table, 0, &key, &columns, &mut out);
                assert!(found.expect("read"), "key {k}");
                let expected: Vec<Value> = read.iter().map(|id| value(k, *id)).collect();
                assert_eq!(
                    out, expected,
                    "key {k} of {width} columns from read {first} on"
                );
            }
        }
    }
}
