//! What definitions cost: bytes of the log, the manifest and files go by what changes, not by how
//! many tables there are.

mod common;

use common::counting_device::CountingDevice;
use common::*;
use std::sync::Arc;
use strandline_engine::catalog::{HistoryPolicy, IdentityDef};
use strandline_engine::*;

const TABLES: i64 = 1000;

/// A table with an identity column, and one row in it.
fn create(db: &Arc<Db>, number: i64) {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        let mut columns = vec![
            column(0, "id", SqlType::BigInt, true),
            column(1, "name", SqlType::Text, false),
            column(2, "created", SqlType::TimestampTz, false),
        ];
        columns[0].identity = Some(IdentityDef {
            always: false,
            start: 1,
            increment: 1,
        });
        let mut table = definition(catalog, columns, HistoryPolicy::default());
        table.name = name(number);
        catalog.put_table(table);
        Ok(())
    })
    .expect("create table");
    txn.commit().expect("commit");
    let table = db
        .catalog()
        .table("public", &name(number))
        .expect("table")
        .clone();
    let row = [
        Value::BigInt(db.next_identity(&table, ColumnId(0)).expect("identity")),
        Value::from("one row"),
        Value::TimestampTz(number),
    ];
    run(db, |s| s.point_insert(&table, &row)).expect("insert");
}

fn name(number: i64) -> String {
    format!("table_{number}")
}

fn check_all(db: &Arc<Db>) {
    for number in 0..TABLES {
        let table = db
            .catalog()
            .table("public", &name(number))
            .expect("table")
            .clone();
        let rows = run(db, |s| Ok(scan_values(s, &table))).expect("scan");
        assert_eq!(rows.len(), 1, "{number}");
        assert_eq!(rows[0][2], Value::TimestampTz(number));
    }
}

/// The background work's checkpoints come several times while the tables are made.
#[test]
fn a_thousand_tables_of_one_row_cost_a_thousand_times_one() {
    let device = Arc::new(CountingDevice::default());
    let wall = clock();
    let db = open(device.clone(), &wall).expect("open");
    for number in 0..TABLES {
        wall.advance(1_000);
        create(&db, number);
        if number % 50 == 49 {
            db.checkpoint(false).expect("checkpoint");
        }
    }
    let log = db.counters().into_iter().find(|c| c.0 == "log_bytes");
    let log = log.expect("counter").1;
    let (manifest, runs) = (device.written("manifest"), device.written("run"));
    println!("log {log}, manifest {manifest}, runs {runs}");
    let tables = TABLES as u64;
    assert!(log <= 1_024 * tables, "{log} bytes of log");
    assert!(manifest <= 4_096 * tables, "{manifest} bytes of manifest");
    assert!(runs <= 512 * tables, "{runs} bytes of runs");

    // Merged: a file of chunks each, no more than what is in it.
    let before = device.written("chunks");
    db.checkpoint(true).expect("checkpoint");
    let chunks = device.written("chunks") - before;
    println!("chunks {chunks}");
    assert!(chunks <= 1_024 * tables, "{chunks} bytes of chunks");
    db.checkpoint(false).expect("checkpoint");
    let stored: u64 = ["manifest", "run", "chunks"]
        .map(|kind| device.stored(kind))
        .iter()
        .sum();
    println!("stored {stored}");
    assert!(stored <= 4_096 * tables, "{stored} bytes stored");

    // One more table costs what the first one did.
    let (log, manifest) = (db.counters(), device.written("manifest"));
    create(&db, TABLES);
    db.checkpoint(false).expect("checkpoint");
    let log_bytes = |counters: Vec<(&str, u64)>| {
        let found = counters.into_iter().find(|c| c.0 == "log_bytes");
        found.expect("counter").1
    };
    let log = log_bytes(db.counters()) - log_bytes(log);
    assert!(log <= 1_024, "{log} bytes of log");
    let manifest = device.written("manifest") - manifest;
    assert!(manifest <= 4_096, "{manifest} bytes of manifest");

    check_all(&db);
    db.close().expect("close");
    drop(db);
    let db = open(device, &wall).expect("reopen");
    check_all(&db);
    // Every version of the catalog is there, and shares the tables of the others.
    let first = db
        .catalog()
        .table("public", &name(0))
        .expect("table")
        .clone();
    let half = db
        .catalog_at(CommitTs(wall.now_us() - 500_000))
        .expect("kept");
    assert!(
        half.tables.len() < 600 && half.tables.len() > 400,
        "{}",
        half.tables.len()
    );
    assert!(Arc::ptr_eq(
        &first,
        half.table("public", &name(0)).expect("table")
    ));
}

/// Definitions that only the log has, by differences, and what crashed between.
#[test]
fn definitions_are_recovered_from_the_log_and_from_the_manifest() {
    for checkpoint_every in [usize::MAX, 1, 7] {
        let world = World::new(HistoryPolicy::Forever);
        let mut versions = Vec::new();
        for n in 0..30 {
            world.clock.advance(1_000);
            let ts = match n % 5 {
                0 => alter(&world.db, |t| t.comment = Some(format!("comment {n}"))),
                1 => alter(&world.db, |t| {
                    add_column(t, &format!("c{n}"), SqlType::BigInt, Value::BigInt(n));
                }),
                2 => {
                    create(&world.db, n);
                    world.db.stable()
                }
                3 => {
                    let txn = world.db.begin(TxnOptions::default()).expect("begin");
                    txn.change_catalog(&mut |catalog| {
                        catalog.schemas.insert(format!("s{n}"), None);
                        catalog.schemas.remove(&format!("s{}", n - 10));
                        Ok(())
                    })
                    .expect("schemas");
                    txn.commit().expect("commit")
                }
                _ => {
                    let txn = world.db.begin(TxnOptions::default()).expect("begin");
                    txn.change_catalog(&mut |catalog| {
                        let gone = catalog.table("public", &name(n - 2)).map(|t| t.id);
                        catalog.tables.remove(&gone.expect("made before"));
                        Ok(())
                    })
                    .expect("drop");
                    txn.commit().expect("commit")
                }
            };
            versions.push((ts, world.db.catalog()));
            if n as usize % checkpoint_every == checkpoint_every - 1 {
                world.db.checkpoint(n % 2 == 0).expect("checkpoint");
            }
        }
        let world = world.reopen();
        for (ts, catalog) in &versions {
            assert_eq!(
                *world.db.catalog_at(*ts).expect("kept"),
                **catalog,
                "{checkpoint_every}"
            );
        }
        assert!(world.db.check().expect("check").is_empty());
        world.db.checkpoint(true).expect("checkpoint");
        let world = world.reopen();
        for (ts, catalog) in &versions {
            assert_eq!(
                *world.db.catalog_at(*ts).expect("kept"),
                **catalog,
                "{checkpoint_every}"
            );
        }
    }
}
