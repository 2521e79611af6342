//! What happens when a number that only grows comes to its end (docs/counters.md).

mod common;

use common::*;
use std::sync::Arc;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{Catalog, HistoryPolicy, IdentityDef, TableDef};
use strandline_engine::*;

/// The error of a change of the catalog, which changes nothing.
fn refused(db: &Arc<Db>, edit: &mut dyn FnMut(&mut Catalog)) -> SqlState {
    let before = db.catalog();
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let changed = txn.change_catalog(&mut |catalog| {
        edit(catalog);
        Ok(())
    });
    let error = changed.expect_err("refused");
    assert!(error.message().contains("65536") || error.message().contains("4294967295"));
    txn.rollback();
    assert_eq!(*db.catalog(), *before);
    error.sqlstate()
}

#[test]
fn numbers_of_tables_and_storages_end_with_an_error() {
    let world = World::new(HistoryPolicy::Forever);
    let db = &world.db;
    for is_table in [true, false] {
        // The last number but one is given out, then no other.
        let last = |catalog: &mut Catalog| match is_table {
            true => catalog.next_table = u32::MAX - 1,
            false => catalog.next_storage = u32::MAX - 1,
        };
        let state = refused(db, &mut |catalog| {
            last(catalog);
            let ids = [(); 3].map(|()| match is_table {
                true => catalog.new_table_id().0,
                false => catalog.new_storage_id().0,
            });
            assert_eq!(ids[0], u32::MAX - 1, "and the others are given back");
        });
        assert_eq!(state, SqlState::PROGRAM_LIMIT_EXCEEDED);
    }
    insert(db, &row(1, 1, "goes on"));
    assert_eq!(get(db, 1), Some(row(1, 1, "goes on").to_vec()));
}

#[test]
fn a_table_defines_so_many_columns_and_no_more() {
    let world = World::new(HistoryPolicy::Forever);
    let state = refused(&world.db, &mut |catalog| {
        let mut table = TableDef::clone(catalog.table("public", "t").expect("table t"));
        table.next_column = (1 << 16) + 1;
        catalog.put_table(table);
    });
    assert_eq!(state, SqlState::TOO_MANY_COLUMNS);
}

/// Column ids are never used again: rows are right whatever ids the columns have by now, in base,
/// in tails, in runs and after recovery.
#[test]
fn columns_come_and_go() {
    const COLUMNS: i64 = 150; // more than two words of column bits
    let mut world = World::new(HistoryPolicy::Forever);
    (0..3).for_each(|k| insert(&world.db, &row(k, k, "first")));
    for n in 0..COLUMNS {
        let name = format!("c{n}");
        alter(&world.db, |t| {
            t.columns.retain(|column| !column.name.starts_with('c'));
            add_column(t, &name, SqlType::BigInt, Value::BigInt(-n));
        });
        let id = ColumnId(3 + n as u32);
        let table = table(&world.db);
        let set = [(id, Value::BigInt(n)), (ColumnId(1), Value::BigInt(n))];
        let updated = run(&world.db, |s| {
            s.point_update(&table, 0, &[Value::BigInt(1)], &set)
        });
        assert!(updated.expect("update"));
        match n % 40 {
            10 => drop(world.db.checkpoint(true).expect("merge")),
            20 => drop(world.db.checkpoint(false).expect("a run")),
            30 => world = world.reopen(),
            _ => {}
        }
        let with = |mut row: Vec<Value>, value: i64| {
            row.push(Value::BigInt(value));
            Some(row)
        };
        assert_eq!(get(&world.db, 1), with(row(1, n, "first").to_vec(), n));
        assert_eq!(get(&world.db, 2), with(row(2, 2, "first").to_vec(), -n));
    }
}

#[test]
fn identities_end_with_an_error() {
    let device = Arc::new(MemoryDevice::new());
    let clock = clock();
    let db = open(device.clone(), &clock).expect("open");
    create_table(&db, HistoryPolicy::Forever);
    alter(&db, |table| {
        table.columns[1].identity = Some(IdentityDef {
            always: false,
            start: i64::MAX - 1,
            increment: 1,
        });
    });
    let column = ColumnId(1);
    for expected in [i64::MAX - 1, i64::MAX] {
        assert_eq!(
            db.next_identity(&table(&db), column).expect("a value"),
            expected
        );
    }
    insert(&db, &row(1, 1, "logs the counter"));
    drop(db);
    let db = open(device, &clock).expect("reopen");
    for _ in 0..2 {
        let error = db
            .next_identity(&table(&db), column)
            .expect_err("no value is left");
        assert_eq!(error.sqlstate(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
    }
}

fn with_identity(table: &mut TableDef) {
    table.columns[1].identity = Some(IdentityDef {
        always: false,
        start: 1,
        increment: 1,
    });
}

/// A dropped table's counters go with the last moment that has the table, also from the manifest.
#[test]
fn counters_of_a_dropped_table_go_with_its_history() {
    for (history, is_kept) in [(HistoryPolicy::None, false), (HistoryPolicy::Forever, true)] {
        let device = Arc::new(MemoryDevice::new());
        let clock = clock();
        let mut db = open(device.clone(), &clock).expect("open");
        create_table(&db, history);
        alter(&db, with_identity);
        let dropped = table(&db);
        let next = |db: &Db| db.next_identity(&dropped, ColumnId(1)).expect("a value");
        for expected in 1..=3 {
            assert_eq!(next(&db), expected);
        }
        insert(&db, &row(1, 3, "logs the counter"));
        db.checkpoint(true).expect("checkpoint");
        let txn = db.begin(TxnOptions::default()).expect("begin");
        txn.change_catalog(&mut |catalog| {
            catalog.tables.clear();
            Ok(())
        })
        .expect("drop");
        txn.commit().expect("commit");
        drop(txn);
        clock.advance(1_000_000);
        for _ in 0..2 {
            db.checkpoint(true).expect("checkpoint");
        }
        for _ in 0..2 {
            let expected = if is_kept { 4 } else { 1 };
            assert_eq!(next(&db), expected, "{history:?}");
            drop(db);
            db = open(device.clone(), &clock).expect("reopen");
        }
    }
}

/// A checkpoint takes no counter from a table that is being created, and a rollback does.
#[test]
fn counters_of_a_table_that_is_created_last_as_long_as_its_transaction() {
    let db = open(Arc::new(MemoryDevice::new()), &clock()).expect("open");
    let create = || {
        let (txn, mut created) = (db.begin(TxnOptions::default()).expect("begin"), None);
        txn.change_catalog(&mut |catalog| {
            let columns = vec![
                column(0, "k", SqlType::BigInt, true),
                column(1, "a", SqlType::BigInt, false),
            ];
            let mut table = definition(catalog, columns, HistoryPolicy::None);
            with_identity(&mut table);
            created = Some(Arc::new(table.clone()));
            catalog.put_table(table);
            Ok(())
        })
        .expect("create");
        (txn, created.expect("a definition"))
    };
    let next = |table: &TableDef| db.next_identity(table, ColumnId(1)).expect("a value");
    let (txn, created) = create();
    assert_eq!(next(&created), 1);
    db.checkpoint(true).expect("checkpoint");
    db.checkpoint(true).expect("checkpoint");
    assert_eq!(next(&created), 2);
    txn.rollback();
    let (txn, again) = create();
    assert_eq!(again.id, created.id);
    assert_eq!(next(&again), 1, "another table");
    txn.commit().expect("commit");
    db.checkpoint(true).expect("checkpoint");
    assert_eq!(next(&again), 2);
}
