//! Values from entries: rows are fetched only where an entry may not say what its row says.

use crate::common::*;
use crate::support::*;
use std::sync::Arc;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::catalog::index::IndexStorage;
use strandline_engine::*;

const SECOND: u64 = 1_000_000;
const ROWS: i64 = 200;

/// An index over (a, k) and rows of which all are merged.
fn world(history: HistoryPolicy) -> World {
    let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
    let db = open_eager(device.clone(), &clock, 1_000_000).expect("open");
    create_table(&db, history);
    create_alone(&db, &index("t_a", vec![part(1), part(0)])).expect("create");
    for k in 0..ROWS {
        insert(&db, &row(k, k % 10, "x"));
    }
    let world = World { device, clock, db };
    world.db.checkpoint(true).expect("merge");
    world
}

fn set(statement: &Statement, k: i64, column: u32, value: Value) {
    let table = table(statement.transaction().db());
    let set = [(ColumnId(column), value)];
    let done = statement.point_update(&table, 0, &[Value::BigInt(k)], &set);
    assert!(done.expect("update"));
}

fn update(world: &World, k: i64, column: u32, value: Value) {
    run(&world.db, |s| {
        set(s, k, column, value.clone());
        Ok(())
    })
    .expect("commit");
}

/// How many rows the whole index gives, and how many of them are fetched.
fn read(statement: &Arc<Statement>, context: &str) -> (usize, usize) {
    let t = table(statement.transaction().db());
    let def = named(&t, "t_a").clone();
    let covered = Covered::read(statement, (&t, &def), &KeyRange::default());
    let view = statement.view(&t).expect("a view");
    covered.expect("two columns").check(&view, context)
}

fn now(world: &World, context: &str) -> (usize, usize) {
    run(&world.db, |s| Ok(read(s, context))).expect("read")
}

fn snapshot(world: &World) -> Arc<Statement> {
    let options = TxnOptions {
        isolation: Isolation::Snapshot,
        ..TxnOptions::default()
    };
    let txn = world.db.begin(options).expect("begin");
    txn.begin_statement().expect("statement")
}

#[test]
fn rows_are_fetched_where_their_key_has_changed_and_nowhere_else() {
    let world = world(HistoryPolicy::None);
    let all = ROWS as usize;
    assert_eq!(now(&world, "merged"), (all, 0));
    insert(&world.db, &row(ROWS, 3, "new"));
    assert_eq!(now(&world, "inserted"), (all + 1, 0));
    update(&world, 7, 2, Value::from("another column"));
    update(&world, 8, 1, Value::BigInt(8));
    assert_eq!(now(&world, "no key changes"), (all + 1, 0));
    let t = table(&world.db);
    run(&world.db, |s| s.point_delete(&t, 0, &[Value::BigInt(11)])).expect("delete");
    assert_eq!(now(&world, "deleted"), (all, 0));
    let before = snapshot(&world);
    update(&world, 7, 1, Value::BigInt(70));
    update(&world, 7, 1, Value::BigInt(7));
    update(&world, 9, 1, Value::Null);
    for context in ["updated", "merged again"] {
        assert_eq!(now(&world, context), (all, 2));
        // Of the rows as they were the entries say as little.
        assert_eq!(read(&before, context), (all, 2));
        world.db.checkpoint(true).expect("merge");
    }
    drop(before);
    // A sweep leaves one entry of each row.
    world.clock.advance(SECOND);
    world.db.checkpoint(true).expect("merge and sweep");
    assert_eq!(entries(&world.db, "t_a"), all);
    assert_eq!(now(&world, "swept"), (all, 0));
}

#[test]
fn a_transaction_sees_its_own_changes_and_others_do_not() {
    let world = world(HistoryPolicy::None);
    let all = ROWS as usize;
    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    let change = |work: &dyn Fn(&Arc<Statement>)| {
        let statement = txn.begin_statement().expect("statement");
        work(&statement);
        statement.finish().expect("keys");
    };
    let t = table(&world.db);
    change(&|s| set(s, 5, 1, Value::BigInt(500)));
    change(&|s| {
        s.point_delete(&t, 0, &[Value::BigInt(6)]).expect("delete");
    });
    change(&|s| {
        s.point_insert(&t, &row(1000, 6, "own")).expect("insert");
    });
    let own = txn.begin_statement().expect("statement");
    assert_eq!(read(&own, "own"), (all, 1));
    assert_eq!(now(&world, "beside it"), (all, 1));
    let savepoint = txn.savepoint();
    change(&|s| set(s, 15, 1, Value::BigInt(500)));
    txn.rollback_to(&savepoint).expect("back");
    let own = txn.begin_statement().expect("statement");
    assert_eq!(read(&own, "own, after a rollback"), (all, 2));
    drop(own);
    txn.rollback();
    // The entries are gone, and nobody says so before the rows change again. LIDBlocks cannot tell
    // whether the entries of the two updates were new, and leave them to the sweep.
    let kept = match crate::STORAGE {
        IndexStorage::Blocks(_) => 2,
        _ => 0,
    };
    assert_eq!(entries(&world.db, "t_a"), all + kept);
    assert_eq!(now(&world, "rolled back"), (all, 2));
    world.db.checkpoint(true).expect("merge and sweep");
    assert_eq!(entries(&world.db, "t_a"), all);
    assert_eq!(now(&world, "swept"), (all, 2 - kept));
}

/// Entries that were read before a sweep may be those that it has removed.
#[test]
fn entries_from_before_a_sweep_are_not_believed() {
    let world = world(HistoryPolicy::None);
    let all = ROWS as usize;
    let t = table(&world.db);
    let def = named(&t, "t_a").clone();
    let range = KeyRange::default();
    let statement = world.db.begin(TxnOptions::default()).expect("begin");
    let planned = statement.begin_statement().expect("statement");
    let early = Covered::read(&planned, (&t, &def), &range).expect("two columns");
    drop(planned);
    update(&world, 42, 1, Value::BigInt(4200));
    let late = statement.begin_statement().expect("statement");
    let view = late.view(&t).expect("a view");
    assert_eq!(early.check(&view, "updated"), (all, 1));
    drop((view, late));
    world.clock.advance(SECOND);
    world.db.checkpoint(true).expect("merge and sweep");
    assert_eq!(entries(&world.db, "t_a"), all);
    let late = statement.begin_statement().expect("statement");
    let view = late.view(&t).expect("a view");
    // The row of the removed entry is fetched with all others.
    assert_eq!(early.check(&view, "swept"), (all, all));
    let again = Covered::read(&late, (&t, &def), &range).expect("two columns");
    assert_eq!(again.check(&view, "read again"), (all, 0));
}

#[test]
fn the_past_and_a_database_that_is_opened_again_fetch_changed_rows() {
    let mut world = world(HistoryPolicy::For(100 * SECOND));
    let all = ROWS as usize;
    let moment = world.db.stable();
    world.clock.advance(SECOND);
    for k in 0..5 {
        update(&world, k, 1, Value::BigInt(100 + k));
    }
    let t = table(&world.db);
    run(&world.db, |s| s.point_delete(&t, 0, &[Value::BigInt(50)])).expect("delete");
    for context in ["in tails", "merged", "opened again"] {
        let t = table(&world.db);
        let def = named(&t, "t_a").clone();
        assert_eq!(now(&world, context), (all - 1, 5));
        run(&world.db, |s| {
            let covered = Covered::read(s, (&t, &def), &KeyRange::default());
            let past = s.view_as_of(&t, moment)?;
            let found = covered.expect("two columns").check(&past, context);
            assert_eq!(found, (all, 5), "{context}, as it was");
            Ok(())
        })
        .expect("read");
        match context {
            "in tails" => drop(world.db.checkpoint(true).expect("merge")),
            _ => {
                world = world.reopen();
                // Entries on pages are compared with their rows first.
                world.db.merge_due(false).expect("a turn");
            }
        }
    }
    // Once the past is not kept any more the entries are certain.
    world.clock.advance(200 * SECOND);
    world.db.checkpoint(true).expect("sweep");
    assert_eq!(now(&world, "swept"), (all - 1, 0));
}

#[test]
fn a_replaced_index_gives_nothing() {
    let world = world(HistoryPolicy::None);
    let all = ROWS as usize;
    let t = table(&world.db);
    let def = named(&t, "t_a").clone();
    let old = snapshot(&world);
    let view = old.view(&t).expect("a view");
    let covered = Covered::read(&old, (&t, &def), &KeyRange::default()).expect("two columns");
    assert_eq!(covered.check(&view, "there"), (all, 0));
    drop((old, view));
    alter(&world.db, |table| drop_index(table, "t_a"));
    world.clock.advance(SECOND);
    for _ in 0..3 {
        world.db.merge_due(false).expect("a turn");
    }
    assert_eq!(counter(&world.db, "index_entries"), 0);
    update(&world, 1, 1, Value::BigInt(1000));
    let now = snapshot(&world);
    let view = now.view(&t).expect("a view");
    assert_eq!(covered.check(&view, "removed"), (all, all));
}

#[test]
fn only_parts_of_the_key_that_are_kept_exactly_cover() {
    let world = World::new(HistoryPolicy::None);
    let types = [
        (SqlType::Double, false),
        (SqlType::Real, false),
        (SqlType::Interval, false),
        (SqlType::Char(4), true),
        (SqlType::Bytea, true),
    ];
    alter(&world.db, |table| {
        for (at, (sql_type, _)) in types.iter().enumerate() {
            add_column(table, &format!("c{at}"), *sql_type, Value::Null);
        }
    });
    for (at, (_, covers)) in types.iter().enumerate() {
        let t = table(&world.db);
        let column = t.columns[3 + at].id;
        let mut def = index("t_c", vec![part(column.0), part(1)]);
        def.include = vec![ColumnId(2)];
        let covered = |columns: &[ColumnId]| CoveredColumns::of(&t, &def, columns).is_some();
        assert_eq!(covered(&[column]), *covers, "{column:?}");
        assert_eq!(covered(&[ColumnId(1), column]), *covers, "{column:?}");
        // The other part is there, whatever stands before it; INCLUDE is not in entries.
        assert!(covered(&[ColumnId(1)]) && covered(&[]));
        assert!(!covered(&[ColumnId(2)]) && !covered(&[ColumnId(1), ColumnId(0)]));
    }
}
