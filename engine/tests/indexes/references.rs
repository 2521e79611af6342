//! Indexes, foreign keys and deferred constraints in copies of a database, after a rewind, and
//! after a crash at any device operation: every index gives what a scan finds, no child is an
//! orphan, and the constraints are still enforced.

use crate::common::*;
use crate::crash::at_every_point;
use crate::support::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_device::{Device, MemoryDevice};
use strandline_engine::catalog::index::{ConstraintTiming, ForeignKeyDef, ReferentialAction};
use strandline_engine::catalog::{HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;
use strandline_sim::SimDisk;

const CHILDREN: &str = "c";

fn children(db: &Db) -> Arc<TableDef> {
    let catalog = db.catalog();
    catalog.table("public", CHILDREN).expect("c").clone()
}

/// Table `t` with an index and a deferred UNIQUE constraint over `a`, and table `c (k, a)` whose
/// `a` references `t (k)`, with an index.
fn define(db: &Arc<Db>) -> Result<()> {
    let txn = db.begin(TxnOptions::default())?;
    txn.change_catalog(&mut |catalog| {
        let mut parent = TableDef::clone(catalog.table("public", "t").expect("t"));
        parent.keys.push(KeyDef {
            timing: ConstraintTiming::Deferred,
            nulls_not_distinct: true,
            ..KeyDef::new("t_a_key", false, vec![ColumnId(1)])
        });
        put_index(&mut parent, &index("t_b_idx", vec![part(2), part(0)]));
        let columns = vec![
            column(0, "k", SqlType::BigInt, true),
            column(1, "a", SqlType::BigInt, false),
        ];
        let mut child = TableDef {
            name: CHILDREN.into(),
            keys: vec![KeyDef::new("c_pkey", true, vec![ColumnId(0)])],
            ..definition(catalog, columns, HistoryPolicy::Forever)
        };
        put_index(&mut child, &index("c_a_idx", vec![part(1)]));
        child.foreign_keys.push(Arc::new(ForeignKeyDef {
            on_delete: ReferentialAction::Cascade,
            timing: ConstraintTiming::Deferred,
            ..ForeignKeyDef::new("c_a_fkey", vec![ColumnId(1)], parent.id, vec![ColumnId(0)])
        }));
        catalog.put_table(parent);
        catalog.put_table(child);
        Ok(())
    })?;
    txn.commit().map(|_| ())
}

fn child(statement: &Statement, c: &Arc<TableDef>, k: i64, parent: i64) -> Result<()> {
    let row = [Value::BigInt(k), Value::BigInt(parent)];
    statement.point_insert(c, &row).map(|_| ())
}

/// Parents with children, children before their parents, keys that change places, parents that go
/// with their children while other transactions insert some, and checkpoints between them.
fn work(db: &Arc<Db>, clock: &ManualClock, from: i64) -> Result<()> {
    let (t, c) = (table(db), children(db));
    let begin = || db.begin(TxnOptions::default());
    let txn = begin()?;
    for k in from..from + 8 {
        let s = txn.begin_statement()?;
        child(&s, &c, k, k)?;
        s.point_insert(&t, &row(k, k, &format!("text {}", k % 3)))?;
    }
    txn.commit()?;
    clock.advance(1000);
    let txn = begin()?;
    for (k, a) in [(from, from + 1), (from + 1, from)] {
        let set = [(ColumnId(1), Value::BigInt(a))];
        txn.begin_statement()?
            .point_update(&t, 0, &[Value::BigInt(k)], &set)?;
    }
    txn.commit()?;
    db.checkpoint(from % 16 == 0)?;
    let (first, second) = (begin()?, begin()?);
    child(&*first.begin_statement()?, &c, from + 100, from + 2)?;
    second
        .begin_statement()?
        .point_delete(&t, 0, &[Value::BigInt(from + 3)])?;
    first.commit()?;
    second.commit()?;
    let txn = begin()?;
    let deleted = txn.begin_statement()?;
    deleted.point_delete(&t, 0, &[Value::BigInt(from + 2)])?;
    txn.commit()?;
    clock.advance(1000);
    Ok(())
}

fn assert_whole(db: &Arc<Db>, what: &str) -> (Vec<Vec<Value>>, Vec<Vec<Value>>) {
    assert_eq!(db.check().expect("check"), Vec::<String>::new(), "{what}");
    let (t, c) = (table(db), children(db));
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let rows = [&t, &c].map(|table| {
        let rows = scanned(&statement, table);
        let view = statement.view(table).expect("view");
        assert_indexes_agree(&statement, &view, table, &rows, what);
        rows
    });
    let [parents, children] = rows;
    for row in &children {
        let has_parent = parents.iter().any(|parent| parent[0] == row[1]);
        assert!(has_parent, "{what}: {row:?} is an orphan");
    }
    (parents, children)
}

/// What the constraints say is so; nothing is changed.
fn assert_enforced(db: &Arc<Db>) {
    let (t, c) = (table(db), children(db));
    let begin = || db.begin(TxnOptions::default()).expect("begin");
    let txn = begin();
    let statement = txn.begin_statement().expect("statement");
    child(&statement, &c, 5_000, 5_000).expect("deferred");
    let refused = txn.commit().expect_err("no parent");
    assert_eq!(refused.sqlstate(), SqlState::FOREIGN_KEY_VIOLATION);
    let txn = begin();
    for k in [6_000, 6_001] {
        let statement = txn.begin_statement().expect("statement");
        let row = [Value::BigInt(k), Value::Null, Value::Text("x".into())];
        statement.point_insert(&t, &row).expect("deferred");
    }
    let refused = txn.commit().expect_err("NULLs are not distinct");
    assert_eq!(refused.sqlstate(), SqlState::UNIQUE_VIOLATION);
}

/// The statement knows the index of the children that was there when it began. Another one has the
/// children since.
#[test]
fn children_are_found_by_the_index_that_has_them_now() {
    let world = World::new(HistoryPolicy::Forever);
    let db = &world.db;
    define(db).expect("definitions");
    let (t, c) = (table(db), children(db));
    for k in 1..4 {
        insert(db, &row(k, k, "x"));
    }
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let other = db.begin(TxnOptions::default()).expect("begin");
    let renewed = other.change_catalog(&mut |catalog| {
        let mut child = TableDef::clone(catalog.table("public", CHILDREN).expect("c"));
        let def = named(&child, "c_a_idx").clone();
        drop_index(&mut child, "c_a_idx");
        put_index(&mut child, &def);
        catalog.put_table(child);
        Ok(())
    });
    renewed.expect("renew");
    other.commit().expect("commit");
    assert_ne!(named(&c, "c_a_idx").id, named(&children(db), "c_a_idx").id);
    run(db, |s| child(s, &children(db), 1, 2)).expect("a child");
    // The action meets the newer definition of the children.
    let refused = statement.point_delete(&t, 0, &[Value::BigInt(2)]);
    let refused = refused.expect_err("a child is found");
    assert_eq!(refused.sqlstate(), SqlState::SERIALIZATION_FAILURE);
    txn.rollback();
    assert_whole(db, "afterwards");
}

fn filled(device: Arc<dyn Device>) -> (Arc<Db>, Arc<ManualClock>) {
    let wall = clock();
    let db = open(device, &wall).expect("open");
    create_table(&db, HistoryPolicy::Forever);
    define(&db).expect("definitions");
    for from in [0, 8, 16] {
        work(&db, &wall, from).expect("work");
    }
    (db, wall)
}

#[test]
fn a_backup_and_what_is_restored_from_it_have_indexes_and_constraints() {
    let (db, _) = filled(Arc::new(MemoryDevice::new()));
    let expected = assert_whole(&db, "the source");
    assert!(expected.0.len() == 18 && expected.1.len() == 18);
    let backup: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    db.backup(&backup, &|_| true).expect("backup");
    let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    restore(&*backup, &*target, &|_| true).expect("restore");
    for (device, what) in [(backup, "the backup"), (target, "what is restored")] {
        let (copy, wall) = (open(device, &clock()).expect("open"), clock());
        assert_eq!(assert_whole(&copy, what), expected, "{what}");
        assert_eq!(table(&copy), table(&db), "{what}");
        assert_enforced(&copy);
        work(&copy, &wall, 24).expect("it goes on");
        assert_whole(&copy, what);
    }
}

#[test]
fn a_rewind_has_the_indexes_and_constraints_of_then() {
    let (db, wall) = filled(Arc::new(MemoryDevice::new()));
    let then = assert_whole(&db, "before");
    let moment = db.stable();
    for from in [24, 32] {
        work(&db, &wall, from).expect("work");
    }
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        let mut t = TableDef::clone(catalog.table("public", "t").expect("t"));
        drop_index(&mut t, "t_b_idx");
        t.keys.retain(|key| key.primary);
        catalog.put_table(t);
        Ok(())
    })
    .expect("drop");
    txn.commit().expect("commit");
    for rewound in 0..2 {
        db.rewind(moment).expect("rewind");
        assert_eq!(assert_whole(&db, "after"), then, "rewound {rewound} times");
        assert!(named(&table(&db), "t_b_idx").parts.len() == 2);
        assert_enforced(&db);
        work(&db, &wall, 48 + 8 * rewound).expect("it goes on");
    }
    assert_whole(&db, "at the end");
}

#[test]
fn no_crash_leaves_an_orphan() {
    let begin = |seed| {
        let (disk, wall) = (SimDisk::new(seed), clock());
        let db = open_eager(disk.device(), &wall, 6).expect("open");
        create_table(&db, HistoryPolicy::None);
        define(&db).expect("definitions");
        (disk, wall, db)
    };
    let workload = |db: &Arc<Db>, wall: &ManualClock| {
        work(db, wall, 0)?;
        work(db, wall, 8)?;
        db.checkpoint(true).map(drop)
    };
    let verify = |left: &SimDisk, wall: &Arc<ManualClock>, what: &str| {
        let db = open_eager(left.device(), wall, 6);
        let db = db.unwrap_or_else(|e| panic!("{what}: recovery failed: {e}"));
        assert_whole(&db, what);
        assert_enforced(&db);
        work(&db, wall, 24).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_whole(&db, what);
    };
    at_every_point(begin, workload, verify);
}
