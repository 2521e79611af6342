//! Hints of the rows that keys have had: a wrong one costs a look into the index, never an answer.

use crate::common::*;
use crate::support::*;
use std::sync::Arc;
use strandline_engine::catalog::index::ConstraintTiming;
use strandline_engine::catalog::{HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;

/// A table whose `b` has an ordered unique key, number 1 of its keys.
fn world(timing: ConstraintTiming) -> World {
    let world = World::new(HistoryPolicy::Forever);
    let mut key = KeyDef::new("t_b_key", false, vec![ColumnId(2)]);
    key.timing = timing;
    let key = key.with_ordered_index(crate::STORAGE);
    alter(&world.db, |t| t.keys.push(key.clone()));
    for k in 1..=3 {
        insert(&world.db, &row(k, k * 10, &format!("text {k}")));
    }
    world
}

fn by_b(s: &Statement, t: &Arc<TableDef>, b: &str) -> Option<Value> {
    let mut out = Vec::new();
    let found = s.point_get(t, 1, &[Value::from(b)], &[ColumnId(0)], &mut out);
    assert_eq!(found.expect("get"), !out.is_empty(), "one value, or none");
    out.pop()
}

fn set_b(s: &Statement, t: &Arc<TableDef>, k: i64, b: &str) {
    let set = [(ColumnId(2), Value::from(b))];
    let key = [Value::BigInt(k)];
    assert!(s.point_update(t, 0, &key, &set).expect("an update"));
}

fn rows(s: &Statement, t: &Arc<TableDef>, b: &str) -> usize {
    let mut rows = Vec::new();
    s.rows_of_key(t, 1, &[Value::from(b)], &mut rows)
        .expect("rows");
    rows.len()
}

/// Looks that leave hints: the first of all makes the table.
fn look(db: &Arc<Db>, b: &str) -> Option<Value> {
    let t = table(db);
    let found = [0; 3].map(|_| run(db, |s| Ok(by_b(s, &t, b))).expect("a look"));
    assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
    found.into_iter().next().flatten()
}

#[test]
fn a_key_that_moves_to_another_row_leads_there_and_back_in_old_snapshots() {
    let world = world(ConstraintTiming::Immediate);
    let (db, t) = (&world.db, table(&world.db));
    assert_eq!(look(db, "text 1"), Some(Value::BigInt(1)));
    let options = TxnOptions {
        isolation: Isolation::Snapshot,
        ..TxnOptions::default()
    };
    let old = db.begin(options).expect("begin");
    let before = old.begin_statement().expect("statement");
    assert_eq!(by_b(&before, &t, "text 1"), Some(Value::BigInt(1)));
    run(db, |s| {
        set_b(s, &t, 1, "gone");
        Ok(())
    })
    .expect("a change");
    assert_eq!(look(db, "text 1"), None, "its row has another key");
    run(db, |s| {
        set_b(s, &t, 2, "text 1");
        Ok(())
    })
    .expect("a change");
    assert_eq!(look(db, "text 1"), Some(Value::BigInt(2)));
    assert_eq!(by_b(&before, &t, "text 1"), Some(Value::BigInt(1)), "then");
    assert_eq!(by_b(&before, &t, "gone"), None);
    assert_eq!(look(db, "text 1"), Some(Value::BigInt(2)), "still");
    assert_sound(db, "moved");
}

#[test]
fn a_deleted_row_and_one_that_was_never_committed_have_no_key() {
    let world = world(ConstraintTiming::Immediate);
    let (db, t) = (&world.db, table(&world.db));
    assert_eq!(look(db, "text 3"), Some(Value::BigInt(3)));
    run(db, |s| s.point_delete(&t, 0, &[Value::BigInt(3)])).expect("a delete");
    assert_eq!(look(db, "text 3"), None);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let inserted = statement.point_insert(&t, &row(4, 40, "text 3"));
    inserted.expect("the key is free");
    let own = txn.begin_statement().expect("statement");
    for _ in 0..3 {
        assert_eq!(by_b(&own, &t, "text 3"), Some(Value::BigInt(4)), "its own");
    }
    assert_eq!(look(db, "text 3"), None, "not committed");
    txn.rollback();
    assert_eq!(look(db, "text 3"), None, "rolled back");
    insert(db, &row(5, 50, "text 3"));
    assert_eq!(look(db, "text 3"), Some(Value::BigInt(5)));
    assert_sound(db, "inserted again");
}

#[test]
fn changes_by_a_hinted_key_change_the_row_that_has_it() {
    let world = world(ConstraintTiming::Immediate);
    let (db, t) = (&world.db, table(&world.db));
    assert_eq!(look(db, "text 2"), Some(Value::BigInt(2)));
    run(db, |s| {
        set_b(s, &t, 2, "free");
        Ok(())
    })
    .expect("a change");
    let (key, set) = ([Value::from("text 2")], [(ColumnId(1), Value::BigInt(7))]);
    let update = |db: &Arc<Db>| run(db, |s| s.point_update(&t, 1, &key, &set));
    assert!(!update(db).expect("no row has it"));
    insert(db, &row(6, 60, "text 2"));
    for _ in 0..3 {
        assert!(update(db).expect("a row has it"));
    }
    assert_eq!(get(db, 6).expect("row 6")[1], Value::BigInt(7));
    assert_eq!(get(db, 2).expect("row 2")[1], Value::BigInt(20));
    assert!(run(db, |s| s.point_delete(&t, 1, &key)).expect("a delete"));
    assert!(!run(db, |s| s.point_delete(&t, 1, &key)).expect("it is gone"));
    assert_sound(db, "deleted");
}

#[test]
fn both_rows_of_a_deferred_key_are_found() {
    let world = world(ConstraintTiming::Deferred);
    let (db, t) = (&world.db, table(&world.db));
    assert_eq!(look(db, "text 1"), Some(Value::BigInt(1)));
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    set_b(&statement, &t, 2, "text 1");
    let own = txn.begin_statement().expect("statement");
    for _ in 0..3 {
        assert_eq!(
            by_b(&own, &t, "text 1"),
            Some(Value::BigInt(1)),
            "the first"
        );
        assert_eq!(rows(&own, &t, "text 1"), 2);
    }
    set_b(&own, &t, 1, "text 2");
    txn.commit().expect("swapped");
    assert_eq!(look(db, "text 1"), Some(Value::BigInt(2)));
    assert_eq!(look(db, "text 2"), Some(Value::BigInt(1)));
    assert_sound(db, "swapped");
}

#[test]
fn hints_are_counted_as_memory_of_indexes_and_given_back() {
    let world = world(ConstraintTiming::Immediate);
    let db = &world.db;
    let before = counter(db, "key_bytes");
    assert_eq!(look(db, "text 1"), Some(Value::BigInt(1)));
    let with_hints = counter(db, "key_bytes");
    assert!(with_hints > before, "{with_hints} bytes, {before} before");
}
