//! Hints of the rows that keys have had: a wrong one costs a look into the index, never an answer.

use crate::common::*;
use crate::support::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::rng::Rng;
use strandline_engine::catalog::index::ConstraintTiming;
use strandline_engine::catalog::{HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;
use strandline_index::hash_integer;

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

/// Prepared operations by the number `a` and by the text `b`, and what a model says of them.
struct Prepared {
    by_a: PointTable,
    by_b: PointTable,
    /// rows by `k`: `a` and the number of the text
    model: BTreeMap<i64, (i64, i64)>,
    next: i64,
}

impl Prepared {
    fn key(&self, by_text: bool, number: i64) -> (&PointTable, [Value; 1]) {
        match by_text {
            true => (&self.by_b, [Value::from(text(number))]),
            false => (&self.by_a, [Value::BigInt(number * 10)]),
        }
    }

    fn row_of(&self, number: i64) -> Option<i64> {
        let mut rows = self.model.iter();
        rows.find(|(_, row)| row.1 == number).map(|(k, _)| *k)
    }

    /// One operation in a transaction, which sees its own changes.
    fn step(&mut self, db: &Arc<Db>, txn: &Arc<Transaction>, rng: &mut Rng) {
        let (by_text, number) = (rng.below(2) == 0, rng.below(12) as i64);
        let has = self.row_of(number);
        let (point, key) = self.key(by_text, number);
        match rng.below(6) {
            0 if has.is_none() => {
                let k = self.next;
                let new = row(k, number * 10, &text(number));
                let statement = txn.begin_statement().expect("statement");
                statement.point_insert(&table(db), &new).expect("insert");
                self.model.insert(k, (number * 10, number));
                self.next += 1;
            }
            1 => {
                let deleted = txn.point_delete(point, &key).expect("delete");
                assert_eq!(deleted, has.is_some(), "{key:?}");
                has.and_then(|k| self.model.remove(&k));
            }
            // The row's keys become free ones: hints of both numbers may lead to it from now on.
            2 if has.is_some() => {
                let other = rng.below(12) as i64;
                if let (Some(k), None) = (has, self.row_of(other)) {
                    let set = [
                        (ColumnId(1), Value::BigInt(other * 10)),
                        (ColumnId(2), Value::from(text(other))),
                    ];
                    assert!(txn.point_update(point, &key, &set).expect("update"));
                    self.model.insert(k, (other * 10, other));
                }
            }
            _ => {
                let mut out = Vec::new();
                let found = txn.point_get(point, &key, &[ColumnId(0)], &mut out);
                assert_eq!(found.expect("get"), has.is_some(), "{key:?}");
                assert_eq!(out.pop(), has.map(Value::BigInt), "{key:?}");
            }
        }
    }
}

/// Adds an ordered unique key on `a`, number 2 of the keys.
fn add_key_on_a(db: &Arc<Db>) {
    let key = KeyDef::new("t_a_key", false, vec![ColumnId(1)]);
    alter(db, |t| {
        t.keys.push(key.clone().with_ordered_index(crate::STORAGE));
    });
}

fn prepared(db: &Arc<Db>, key: usize) -> PointTable {
    PointTable::new(db, &db.catalog(), &table(db), key).expect("prepared")
}

/// Two numbers whose hints have the same slot and the same tag.
fn same_hints() -> (i64, i64) {
    let mut seen = BTreeMap::new();
    let mut numbers = 1_000_i64..;
    loop {
        let number = numbers.next().expect("a number");
        let hash = hash_integer(number);
        if let Some(before) = seen.insert((hash >> 48, hash % 256), number) {
            return (before, number);
        }
    }
}

#[test]
fn a_hint_of_another_key_is_no_row() {
    let world = world(ConstraintTiming::Immediate);
    let db = &world.db;
    add_key_on_a(db);
    let (has, has_not) = same_hints();
    insert(db, &row(50, has, "text 50"));
    let point = prepared(db, 2);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let set = [(ColumnId(2), Value::from("changed"))];
    for (number, is_found) in [(has, true), (has, true), (has, true), (has_not, false)] {
        let key = [Value::BigInt(number)];
        let found = txn.point_get(&point, &key, &[ColumnId(0)], &mut Vec::new());
        assert_eq!(found.expect("get"), is_found, "{number}");
    }
    let key = [Value::BigInt(has_not)];
    assert!(!txn.point_update(&point, &key, &set).expect("update"));
    assert!(!txn.point_delete(&point, &key).expect("delete"));
    txn.commit().expect("commit");
    assert_eq!(get(db, 50).expect("row 50")[2], Value::from("text 50"));
}

/// Rows whose keys come, change and go, under other row numbers, and stay with rollbacks.
#[test]
fn prepared_operations_by_hints_agree_with_a_model() {
    let world = world(ConstraintTiming::Immediate);
    let db = &world.db;
    add_key_on_a(db);
    let mut operations = Prepared {
        by_a: prepared(db, 2),
        by_b: prepared(db, 1),
        model: (1..=3).map(|k| (k, (k * 10, k))).collect(),
        next: 100,
    };
    let mut rng = Rng::new(5);
    for _ in 0..300 {
        let txn = db.begin(TxnOptions::default()).expect("begin");
        let before = operations.model.clone();
        for _ in 0..rng.below(8) {
            operations.step(db, &txn, &mut rng);
        }
        match rng.below(3) {
            0 => {
                txn.rollback();
                operations.model = before;
            }
            _ => {
                txn.commit().expect("commit");
            }
        }
    }
    assert_sound(db, "prepared");
    // A key that moves to another row leads there.
    let mut rows = operations.model.clone().into_iter();
    let (Some((first, (_, number))), Some((second, _))) = (rows.next(), rows.next()) else {
        panic!("too few rows are left");
    };
    let (point, key) = operations.key(true, number);
    let t = table(db);
    for (k, b, found) in [
        (first, "moved", None),
        (second, &text(number), Some(second)),
    ] {
        run(db, |s| {
            set_b(s, &t, k, b);
            Ok(())
        })
        .expect("a change");
        let txn = db.begin(TxnOptions::default()).expect("begin");
        let mut out = Vec::new();
        txn.point_get(point, &key, &[ColumnId(0)], &mut out)
            .expect("get");
        assert_eq!(out.pop(), found.map(Value::BigInt), "{b}");
    }
}

fn text(number: i64) -> String {
    format!("text {number}")
}
