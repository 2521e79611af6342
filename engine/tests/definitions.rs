//! Changes of definitions: added and dropped columns, rolled-back changes, constraints, TRUNCATE,
//! beside checkpoints, crashes and reopening.

mod common;

use common::*;
use strandline_engine::catalog::{HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;

impl World {
    fn check(&self) {
        let damage = self.db.check().expect("check");
        assert!(damage.is_empty(), "{damage:?}");
    }
    fn scan(&self) -> Vec<Vec<Value>> {
        let txn = self.db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        scan_values(&statement, &table(&self.db))
    }
}

fn add_seven(table: &mut TableDef) {
    add_column(table, "c", SqlType::BigInt, Value::BigInt(7));
}

#[test]
fn rows_older_than_a_column_show_its_missing_value_beside_newer_rows_after_recovery() {
    for checkpoint in [false, true] {
        let world = World::new(HistoryPolicy::Forever);
        insert(&world.db, &row(1, 10, "old"));
        if checkpoint {
            world.db.checkpoint(false).expect("checkpoint");
        }
        alter(&world.db, add_seven);
        if checkpoint {
            world.db.checkpoint(false).expect("checkpoint");
        }
        let world = world.reopen();
        insert(
            &world.db,
            &[&row(2, 20, "new")[..], &[Value::BigInt(9)]].concat(),
        );
        let old = [&row(1, 10, "old")[..], &[Value::BigInt(7)]].concat();
        assert_eq!(
            get(&world.db, 1),
            Some(old.clone()),
            "checkpoint {checkpoint}"
        );
        assert_eq!(world.scan()[0], old);
        world.db.checkpoint(true).expect("checkpoint");
        assert_eq!(get(&world.db, 1), Some(old));
        world.check();
    }
}

#[test]
fn a_rolled_back_column_leaves_nothing_behind() {
    for merge in [false, true] {
        let world = World::new(HistoryPolicy::Forever);
        {
            let db = &world.db;
            insert(db, &row(1, 10, "one"));
            db.checkpoint(true).expect("checkpoint");
            insert(db, &row(2, 20, "two"));
            run(db, |s| {
                s.point_update(
                    &table(db),
                    0,
                    &[Value::BigInt(1)],
                    &[(ColumnId(1), Value::BigInt(11))],
                )
            })
            .expect("update");
            let txn = db.begin(TxnOptions::default()).expect("begin");
            alter_in(&txn, |t| {
                add_column(t, "c", SqlType::Text, Value::from("phantom"))
            });
            let changed = txn.catalog().table("public", "t").expect("t").clone();
            let statement = txn.begin_statement().expect("statement");
            let phantom = [&row(3, 30, "three")[..], &[Value::from("x")]].concat();
            statement.point_insert(&changed, &phantom).expect("insert");
            let statement = txn.begin_statement().expect("statement");
            let set = [(ColumnId(3), Value::from("phantom 2"))];
            assert!(
                statement
                    .point_update(&changed, 0, &[Value::BigInt(1)], &set)
                    .expect("update")
            );
            if merge {
                db.checkpoint(true).expect("checkpoint");
            }
            txn.rollback();
            drop((statement, txn));
            insert(db, &row(4, 40, "four"));
            alter(db, add_seven);
            insert(db, &[&row(5, 50, "five")[..], &[Value::BigInt(5)]].concat());
            let set = [(ColumnId(3), Value::BigInt(8))];
            run(db, |s| {
                s.point_update(&table(db), 0, &[Value::BigInt(1)], &set)
            })
            .expect("update");
        }
        let expect = |world: &World| {
            let c = |k| get(&world.db, k).map(|row| row[3].clone());
            assert_eq!(c(1), Some(Value::BigInt(8)), "merge {merge}");
            assert_eq!(c(2), Some(Value::BigInt(7)), "merge {merge}");
            assert_eq!(c(3), None);
            assert_eq!(c(4), Some(Value::BigInt(7)), "merge {merge}");
            assert_eq!(c(5), Some(Value::BigInt(5)));
            world.check();
        };
        expect(&world);
        world.db.checkpoint(true).expect("checkpoint");
        expect(&world);
        let world = world.reopen();
        expect(&world);
    }
}

#[test]
fn a_column_added_after_a_savepoint_and_rolled_back_to_it() {
    let world = World::new(HistoryPolicy::Forever);
    {
        let db = &world.db;
        let txn = db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        statement
            .point_insert(&table(db), &row(1, 10, "one"))
            .expect("insert");
        let savepoint = txn.savepoint();
        alter_in(&txn, |t| {
            add_column(t, "c", SqlType::Text, Value::from("phantom"))
        });
        txn.rollback_to(&savepoint).expect("rollback to");
        let statement = txn.begin_statement().expect("statement");
        statement
            .point_insert(&table(db), &row(2, 20, "two"))
            .expect("insert");
        alter_in(&txn, add_seven);
        let changed = txn.catalog().table("public", "t").expect("t").clone();
        let statement = txn.begin_statement().expect("statement");
        let new = [&row(3, 30, "three")[..], &[Value::BigInt(3)]].concat();
        statement.point_insert(&changed, &new).expect("insert");
        txn.commit().expect("commit");
    }
    let expect = |world: &World| {
        let c = |k| get(&world.db, k).map(|row| row[3].clone());
        assert_eq!(
            (c(1), c(2)),
            (Some(Value::BigInt(7)), Some(Value::BigInt(7)))
        );
        assert_eq!(c(3), Some(Value::BigInt(3)));
    };
    expect(&world);
    let world = world.reopen();
    expect(&world);
}

#[test]
fn dropped_columns_are_no_obstacle_after_their_definition_is_forgotten() {
    for checkpoint in [false, true] {
        let world = World::new(HistoryPolicy::None);
        for k in 0..10 {
            insert(&world.db, &row(k, k, "some text"));
        }
        world.db.checkpoint(checkpoint).expect("checkpoint");
        let set = [(ColumnId(2), Value::from("changed"))];
        for k in 0..3 {
            let t = table(&world.db);
            run(&world.db, |s| {
                s.point_update(&t, 0, &[Value::BigInt(k)], &set)
            })
            .expect("update");
        }
        world.db.checkpoint(false).expect("checkpoint");
        alter(&world.db, |t| t.columns.truncate(2));
        world.clock.advance(1_000_000);
        insert(&world.db, &row(20, 20, "")[..2]);
        world.clock.advance(1_000_000);
        world.db.checkpoint(false).expect("checkpoint");
        let world = world.reopen();
        world.check();
        let t = table(&world.db);
        run(&world.db, |s| s.point_delete(&t, 0, &[Value::BigInt(4)])).expect("delete");
        world.clock.advance(1_000_000);
        world.db.checkpoint(true).expect("checkpoint");
        world.clock.advance(1_000_000);
        world.db.checkpoint(true).expect("checkpoint");
        let world = world.reopen();
        world.check();
        assert_eq!(world.scan().len(), 10);
        assert_eq!(get(&world.db, 2), Some(row(2, 2, "")[..2].to_vec()));
    }
}

#[test]
fn a_constraint_covers_what_its_own_transaction_wrote_before() {
    let world = World::new(HistoryPolicy::Forever);
    let db = &world.db;
    insert(db, &row(1, 10, ""));
    db.checkpoint(true).expect("checkpoint");
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let set = [(ColumnId(1), Value::BigInt(50))];
    statement
        .point_update(&table(db), 0, &[Value::BigInt(1)], &set)
        .expect("update");
    let statement = txn.begin_statement().expect("statement");
    statement
        .point_insert(&table(db), &row(2, 60, ""))
        .expect("insert");
    alter_in(&txn, |t| {
        t.keys
            .push(KeyDef::new("t_a_key", false, vec![ColumnId(1)]));
    });
    let changed = txn.catalog().table("public", "t").expect("t").clone();
    for a in [50, 60] {
        let savepoint = txn.savepoint();
        let statement = txn.begin_statement().expect("statement");
        let error = statement
            .point_insert(&changed, &row(3, a, ""))
            .expect_err("a duplicate");
        assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION, "{error}");
        txn.rollback_to(&savepoint).expect("rollback to");
    }
    let statement = txn.begin_statement().expect("statement");
    statement
        .point_insert(&changed, &row(3, 10, ""))
        .expect("10 is free");
}

#[test]
fn truncate_and_drop_keep_the_past() {
    let world = World::new(HistoryPolicy::For(60_000_000));
    insert(&world.db, &row(1, 10, "one"));
    let before = world.db.stable();
    world.clock.advance(1_000_000);
    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        let mut t = TableDef::clone(catalog.table("public", "t").expect("t"));
        t.storage = catalog.new_storage_id();
        catalog.put_table(t);
        Ok(())
    })
    .expect("truncate");
    let changed = txn.catalog().table("public", "t").expect("t").clone();
    let statement = txn.begin_statement().expect("statement");
    statement
        .point_insert(&changed, &row(1, 11, "again"))
        .expect("insert");
    let truncated = txn.commit().expect("commit");
    drop((statement, txn));
    world.db.checkpoint(true).expect("checkpoint");
    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    let drop_table = |catalog: &mut strandline_engine::catalog::Catalog| {
        let id = catalog.table("public", "t").expect("t").id;
        catalog.tables.remove(&id);
        Ok(())
    };
    world.clock.advance(1_000_000);
    txn.change_catalog(&mut |c| drop_table(c)).expect("drop");
    txn.commit().expect("commit");
    drop(txn);
    let world = world.reopen();
    world.db.checkpoint(true).expect("checkpoint");
    let world = world.reopen();
    for (ts, expected) in [
        (before, row(1, 10, "one")),
        (truncated, row(1, 11, "again")),
    ] {
        let txn = world.db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        let then = world.db.catalog_at(ts).expect("catalog");
        let t = then.table("public", "t").expect("t").clone();
        let scan = statement.scan_as_of(&t, ts, request()).expect("as of");
        assert_eq!(rows_of(&scan, &t), vec![expected.to_vec()]);
    }
    assert!(world.db.catalog().table("public", "t").is_none());
    // Beyond the retention the storages and their files go.
    world.clock.advance(120_000_000);
    world.db.checkpoint(false).expect("checkpoint");
    let world = world.reopen();
    let files = strandline_device::Device::list(&*world.device).expect("list");
    let data: Vec<_> = files
        .iter()
        .filter(|f| f.starts_with("chunks") || f.starts_with("run"))
        .collect();
    assert!(data.is_empty(), "{data:?}");
    let error = world.db.catalog_at(before).expect_err("too old");
    assert_eq!(error.sqlstate(), SqlState::SNAPSHOT_TOO_OLD);
}
