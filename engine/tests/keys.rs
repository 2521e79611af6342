//! Keys: concurrent writers of one key, keys that move, return and come back, floating-point keys,
//! constraints that go and come.

mod common;

use common::*;
use std::sync::Arc;
use std::time::Duration;
use strandline_column::types;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;

fn database(history: HistoryPolicy) -> Arc<Db> {
    let db = open(Arc::new(MemoryDevice::new()), &clock()).expect("open");
    create_table(&db, history);
    db
}

fn no_damage(db: &Db) {
    let damage = db.check().expect("check");
    assert!(damage.is_empty(), "{damage:?}");
}

/// Two transactions insert a key that a dead row once had: one wins, the other waits and gets
/// unique_violation, never a deadlock.
#[test]
fn two_inserters_of_a_former_key_do_not_deadlock() {
    for round in 0..20 {
        let db = database(HistoryPolicy::None);
        let t = table(&db);
        insert(&db, &row(1, 0, "dead"));
        run(&db, |s| s.point_delete(&t, 0, &[Value::BigInt(1)])).expect("delete");
        let barrier = std::sync::Barrier::new(2);
        let outcomes: Vec<_> = std::thread::scope(|scope| {
            let inserter = |n: i64| {
                let (db, t, barrier) = (&db, &t, &barrier);
                move || {
                    let txn = db.begin(TxnOptions::default())?;
                    let statement = txn.begin_statement()?;
                    let rows = batch(&[(1, Some(n), String::new())]);
                    let inserted = statement
                        .insert(t, &rows, OnInvisibleDuplicate::Violation)
                        .map(|_| ());
                    barrier.wait();
                    inserted.and_then(|()| statement.finish())?;
                    txn.commit().map(|_| ())
                }
            };
            let threads = [scope.spawn(inserter(1)), scope.spawn(inserter(2))];
            threads
                .into_iter()
                .map(|t| t.join().expect("thread"))
                .collect()
        });
        let failures: Vec<&Error> = outcomes.iter().filter_map(|o| o.as_ref().err()).collect();
        assert_eq!(failures.len(), 1, "round {round}: {outcomes:?}");
        assert_eq!(
            failures[0].sqlstate(),
            SqlState::UNIQUE_VIOLATION,
            "{}",
            failures[0]
        );
        no_damage(&db);
    }
}

#[test]
fn keys_shift_by_one_in_one_statement() {
    let db = database(HistoryPolicy::Forever);
    let t = table(&db);
    for k in 0..50 {
        insert(&db, &row(k, k, ""));
    }
    let before = db.stable();
    for round in 0..4i64 {
        let shift = if round == 2 { -2 } else { 1 };
        run(&db, |s| {
            let scan = s.scan(
                &t,
                ScanRequest {
                    with_row_id: true,
                    ..request()
                },
            )?;
            let (mut ids, mut keys) = (Vec::new(), Vec::new());
            for unit in 0..scan.units() {
                for found in scan.read_unit(unit)? {
                    let k = types::value_at;
                    for i in 0..found.num_rows() {
                        let Value::BigInt(key) = k(SqlType::BigInt, found.column(0), i) else {
                            panic!("a key")
                        };
                        let id = found.column(3).as_any();
                        let id = id.downcast_ref::<arrow_array::UInt64Array>().expect("ids");
                        ids.push(RowId(id.value(i)));
                        keys.push(Value::BigInt(key + shift));
                    }
                }
            }
            let array = types::array_of(SqlType::BigInt, &keys)?;
            let values = arrow_array::RecordBatch::try_from_iter([("k", array)]).expect("batch");
            s.update(&t, &ids, &[ColumnId(0)], &values)
        })
        .unwrap_or_else(|e| panic!("round {round}: {e}"));
        db.checkpoint(round % 2 == 0).expect("checkpoint");
        no_damage(&db);
    }
    for k in 0..50 {
        assert_eq!(get(&db, k + 1), Some(row(k + 1, k, "").to_vec()));
    }
    assert_eq!(get(&db, 0), None);
    // A single step onto a taken key is refused.
    let set = [(ColumnId(0), Value::BigInt(2))];
    let error = run(&db, |s| s.point_update(&t, 0, &[Value::BigInt(1)], &set)).expect_err("taken");
    assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let scan = statement.scan_as_of(&t, before, request()).expect("as of");
    assert_eq!(scan_all(&scan).len(), 50);
    for k in 0..50 {
        let history = statement
            .history(&t, &[Value::BigInt(k + 1)])
            .expect("history");
        assert!(history.num_rows() >= 1, "key {}", k + 1);
    }
}

#[test]
fn rows_return_to_former_keys_and_keys_are_reused() {
    let db = database(HistoryPolicy::Forever);
    let t = table(&db);
    insert(&db, &row(1, 100, "first"));
    let set = |k: i64| [(ColumnId(0), Value::BigInt(k))];
    let mut moments = vec![(db.stable(), vec![(1, 100)])];
    let update = |from: i64, to: i64| {
        run(&db, |s| {
            s.point_update(&t, 0, &[Value::BigInt(from)], &set(to))
        })
        .expect("update")
    };
    assert!(update(1, 2));
    moments.push((db.stable(), vec![(2, 100)]));
    db.checkpoint(true).expect("checkpoint");
    insert(&db, &row(1, 200, "second"));
    moments.push((db.stable(), vec![(1, 200), (2, 100)]));
    run(&db, |s| s.point_delete(&t, 0, &[Value::BigInt(1)])).expect("delete");
    moments.push((db.stable(), vec![(2, 100)]));
    db.checkpoint(true).expect("checkpoint");
    assert!(update(2, 1));
    moments.push((db.stable(), vec![(1, 100)]));
    insert(&db, &row(2, 300, "third"));
    moments.push((db.stable(), vec![(1, 100), (2, 300)]));
    db.checkpoint(false).expect("checkpoint");
    let error = run(&db, |s| s.point_update(&t, 0, &[Value::BigInt(2)], &set(1))).expect_err("1");
    assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    for (ts, expected) in &moments {
        let scan = statement.scan_as_of(&t, *ts, request()).expect("as of");
        let found: Vec<_> = scan_all(&scan)
            .into_iter()
            .map(|(k, (a, _))| (k, a))
            .collect();
        let expected: Vec<_> = expected.iter().map(|(k, a)| (*k, Some(*a))).collect();
        assert_eq!(found, expected, "as of {ts}");
    }
    // Key 1: row 1 until it moved, row 2 until deleted, row 1 again.
    let history = statement.history(&t, &[Value::BigInt(1)]).expect("history");
    let a: Vec<Value> = (0..history.num_rows())
        .map(|i| types::value_at(SqlType::BigInt, history.column(1), i))
        .collect();
    assert_eq!(a, [100, 200, 100].map(Value::BigInt));
    no_damage(&db);
}

#[test]
fn floating_point_keys_are_equal_as_sql_has_it() {
    let db = database(HistoryPolicy::None);
    alter(&db, |t| {
        add_column(t, "x", SqlType::Double, Value::Null);
        t.keys
            .push(KeyDef::new("t_x_key", false, vec![ColumnId(3)]));
    });
    let t = table(&db);
    let add = |k: i64, x: f64| {
        let new = [&row(k, k, "")[..], &[Value::Double(x)]].concat();
        run(&db, |s| s.point_insert(&t, &new))
    };
    add(1, f64::NAN).expect("insert");
    add(2, 0.0).expect("insert");
    for x in [f64::NAN, -f64::NAN, 0.0, -0.0] {
        let error = add(3, x).expect_err("a duplicate");
        assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION, "{x}");
        let mut out = Vec::new();
        let found = run(&db, |s| {
            s.point_get(&t, 1, &[Value::Double(x)], &[ColumnId(0)], &mut out)
        });
        assert!(found.expect("get"), "{x}");
    }
    no_damage(&db);
}

#[test]
fn a_constraint_that_returns_knows_what_was_written_without_it() {
    let db = database(HistoryPolicy::Forever);
    let key = || KeyDef::new("t_a_key", false, vec![ColumnId(1)]);
    let with_key = |t: &mut TableDef| t.keys.push(key());
    alter(&db, with_key);
    insert(&db, &row(1, 10, ""));
    alter(&db, |t| t.keys.truncate(1));
    insert(&db, &row(2, 20, ""));
    let txn = db.begin(TxnOptions::default()).expect("begin");
    alter_in(&txn, with_key);
    txn.rollback();
    insert(&db, &row(3, 30, ""));
    alter(&db, with_key);
    let t = table(&db);
    for a in [10, 20, 30] {
        let error = run(&db, |s| s.point_insert(&t, &row(9, a, ""))).expect_err("a duplicate");
        assert_eq!(error.sqlstate(), SqlState::UNIQUE_VIOLATION, "{a}");
    }
    no_damage(&db);
}

/// Many writers of few keys: never two rows with one key, and nobody waits for ever.
#[test]
fn writers_of_few_keys_in_many_threads() {
    let db = database(HistoryPolicy::Forever);
    let t = table(&db);
    std::thread::scope(|scope| {
        for seed in 0..4u64 {
            let (db, t) = (&db, &t);
            scope.spawn(move || {
                let mut rng = strandline_base::rng::Rng::new(seed);
                for _ in 0..400 {
                    let options = TxnOptions {
                        lock_timeout: Some(Duration::from_secs(30)),
                        synchronous_commit: false,
                        ..TxnOptions::default()
                    };
                    let txn = db.begin(options).expect("begin");
                    let mut outcome = Ok(());
                    for _ in 0..=rng.below(3) {
                        let statement = txn.begin_statement().expect("statement");
                        let k = rng.below(6) as i64;
                        let key = [Value::BigInt(k)];
                        outcome = match rng.below(3) {
                            0 => statement.point_insert(t, &row(k, k, "")).map(|_| ()),
                            1 => statement.point_delete(t, 0, &key).map(|_| ()),
                            _ => {
                                let set = [(ColumnId(0), Value::BigInt(rng.below(6) as i64))];
                                statement.point_update(t, 0, &key, &set).map(|_| ())
                            }
                        };
                        if outcome.is_err() {
                            break;
                        }
                    }
                    match outcome {
                        Ok(()) => drop(txn.commit().expect("commit")),
                        Err(e) => {
                            let fine = [SqlState::UNIQUE_VIOLATION, SqlState::DEADLOCK_DETECTED];
                            assert!(fine.contains(&e.sqlstate()), "{e}");
                            txn.rollback();
                        }
                    }
                }
            });
        }
        for _ in 0..40 {
            db.checkpoint(true).expect("checkpoint");
        }
    });
    no_damage(&db);
}

#[test]
fn a_key_that_comes_and_goes_leaves_no_trail_in_the_index() {
    let clock = clock();
    let db = open(Arc::new(MemoryDevice::new()), &clock).expect("open");
    create_table(&db, HistoryPolicy::None);
    let t = table(&db);
    let entries = || {
        db.counters()
            .into_iter()
            .find(|c| c.0 == "key_entries")
            .expect("counter")
            .1
    };
    for round in 0..40 {
        insert(&db, &row(1, round, ""));
        assert_eq!(get(&db, 1), Some(row(1, round, "").to_vec()));
        run(&db, |s| s.point_delete(&t, 0, &[Value::BigInt(1)])).expect("delete");
        clock.advance(1_000_000);
        if round % 4 == 3 {
            db.checkpoint(true).expect("checkpoint");
            db.checkpoint(true).expect("checkpoint");
        }
        assert!(entries() <= 9, "round {round}: {} entries", entries());
    }
    no_damage(&db);
}
