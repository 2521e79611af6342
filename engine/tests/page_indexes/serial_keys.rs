//! Serial keys of an index in a file after an opening: a key leads to its row without a search.

use crate::common::*;
use std::sync::Arc;
use strandline_engine::catalog::{HistoryPolicy, KeyDef};
use strandline_engine::*;

const ROWS: i64 = 9_000;

/// A table with a serial key, loaded, at a checkpoint.
fn loaded() -> World {
    let world = World::new(HistoryPolicy::Forever);
    alter(&world.db, |table| {
        let key = KeyDef::new("t_pkey", true, vec![ColumnId(0)]);
        table.keys = vec![key.with_ordered_index(crate::STORAGE)];
    });
    let t = table(&world.db);
    let load = run(&world.db, |s| {
        let mut load = s.bulk_insert(&t)?;
        let rows: Vec<_> = (0..ROWS).map(|k| (k, Some(k * 2), String::new())).collect();
        load.append(&batch(&rows))?;
        load.finish()
    });
    load.expect("a load");
    world.db.checkpoint(true).expect("checkpoint");
    world
}

fn prepared(db: &Arc<Db>) -> PointTable {
    PointTable::new(db, &db.catalog(), &table(db), 0).expect("point")
}

/// The value of `a`, if the short path finds the row.
fn short_read(db: &Arc<Db>, point: &PointTable, k: i64) -> Option<Value> {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let mut out = Vec::new();
    let key = [Value::BigInt(k)];
    let found = txn.try_point_get(point, &key, &[ColumnId(1)], &mut out);
    assert_eq!(
        found.expect("a read"),
        !out.is_empty(),
        "one value, or none"
    );
    out.pop()
}

#[test]
fn a_serial_key_leads_to_its_row_at_once_after_an_opening() {
    let world = loaded().reopen();
    let db = &world.db;
    let point = prepared(db);
    for k in [0, 1, 4_711, ROWS - 1] {
        assert_eq!(short_read(db, &point, k), Some(Value::BigInt(k * 2)), "{k}");
    }
    assert_eq!(short_read(db, &point, ROWS), None);
    assert_eq!(get(db, ROWS), None);
    // Once more from the manifest, although nothing was loaded by this process.
    insert(db, &row(ROWS + 7, 1, "one more"));
    db.checkpoint(true).expect("checkpoint");
    let world = world.reopen();
    let point = prepared(&world.db);
    assert_eq!(short_read(&world.db, &point, 5), Some(Value::BigInt(10)));
}

#[test]
fn a_row_that_has_left_its_serial_key_does_not_answer_for_it() {
    let world = loaded().reopen();
    let db = &world.db;
    let change = |k: i64, to: i64| {
        let set = [(ColumnId(0), Value::BigInt(to))];
        let t = table(db);
        let changed = run(db, |s| s.point_update(&t, 0, &[Value::BigInt(k)], &set));
        assert!(changed.expect("an update"));
    };
    change(5, -5);
    change(6, 5);
    let t = table(db);
    let gone = run(db, |s| s.point_delete(&t, 0, &[Value::BigInt(8)]));
    assert!(gone.expect("a delete"));
    let expected = |k: i64| match k {
        -5 => Some(10),
        5 => Some(12),
        6 | 8 => None,
        k => Some(k * 2),
    };
    let check = |db: &Arc<Db>| {
        let point = prepared(db);
        for k in [-5, 4, 5, 6, 7, 8, 9] {
            let all = get(db, k).map(|row| row[1].clone());
            assert_eq!(all, expected(k).map(Value::BigInt), "{k}");
            // The short path may give up. What it finds is right.
            let short = short_read(db, &point, k);
            assert!(short.is_none() || short == all, "{k}: {short:?}");
        }
    };
    check(db);
    db.checkpoint(true).expect("checkpoint");
    let world = world.reopen();
    check(&world.db);
}
