//! Entries of the key indexes: there as long as somebody may find a row by them, gone after that.

mod common;

use common::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::{HistoryPolicy, KeyDef, TableDef};
use strandline_engine::*;

const SECOND: u64 = 1_000_000;

/// A snapshot and the rows that it sees.
type Held = (Arc<Statement>, BTreeMap<i64, Option<i64>>);

fn counter(db: &Db, name: &str) -> u64 {
    let counters = db.counters();
    let found = counters.iter().find(|(counter, _)| *counter == name);
    found.expect("a counter").1
}

fn entries(db: &Db) -> u64 {
    counter(db, "key_entries")
}

/// A database that merges what has a few pending records.
fn world(history: HistoryPolicy) -> World {
    let (device, clock) = (Arc::new(MemoryDevice::new()), clock());
    let db = open_eager(device.clone(), &clock, 6).expect("open");
    create_table(&db, history);
    World { device, clock, db }
}

/// Inserts rows into a range of their own, which a checkpoint makes chunks.
fn produce(world: &World, keys: std::ops::Range<i64>) {
    let t = table(&world.db);
    let rows: Vec<_> = keys.map(|k| (k, Some(k), String::new())).collect();
    run(&world.db, |s| {
        s.insert(&t, &batch(&rows), OnInvisibleDuplicate::Violation)
    })
    .expect("insert");
    world.clock.advance(1000);
    world.db.checkpoint(true).expect("checkpoint");
}

fn consume(world: &World, keys: std::ops::Range<i64>) {
    let t = table(&world.db);
    run(&world.db, |s| {
        for k in keys {
            assert!(s.point_delete(&t, 0, &[Value::BigInt(k)])?, "key {k}");
        }
        Ok(())
    })
    .expect("delete");
}

/// What the background thread does, some turns of it with nothing else to do.
fn idle(world: &World) {
    for _ in 0..3 {
        world.clock.advance(SECOND);
        world.db.merge_due(false).expect("a turn");
    }
}

#[test]
fn a_queue_has_entries_for_what_is_in_it() {
    let world = world(HistoryPolicy::None);
    let mut bytes = Vec::new();
    for round in 0..60 {
        produce(&world, round * 500..(round + 1) * 500);
        if round > 0 {
            consume(&world, (round - 1) * 500..round * 500);
        }
        idle(&world);
        // The rows of one round, and what does not make a sweep worth while.
        let entries = entries(&world.db);
        assert!(entries <= 500 + 500 / 4, "{entries} in round {round}");
        bytes.push(counter(&world.db, "key_bytes"));
    }
    // The least that its 256 tables keep, but not what 30,000 rows took.
    assert!(bytes.iter().all(|bytes| *bytes < 400 << 10), "{bytes:?}");
    consume(&world, 59 * 500..60 * 500);
    idle(&world);
    assert_eq!(entries(&world.db), 0);
    // As many after the next open, of which nothing is left of the rows.
    let world = world.reopen();
    world.db.checkpoint(true).expect("checkpoint");
    assert_eq!(entries(&world.db), 0);
}

/// Loads and deletes everything again and again: the short cuts for serial numbers go as well.
#[test]
fn bulk_loads_that_are_deleted_leave_nothing() {
    let world = world(HistoryPolicy::None);
    let t = table(&world.db);
    let mut bytes = Vec::new();
    for round in 0..20 {
        let keys = round * 10_000..round * 10_000 + 5000;
        let rows: Vec<_> = keys.clone().map(|k| (k, None, String::new())).collect();
        run(&world.db, |s| {
            let mut load = s.bulk_insert(&t)?;
            load.append(&batch(&rows))?;
            load.finish()
        })
        .expect("load");
        assert!(get(&world.db, keys.start + 7).is_some());
        consume(&world, keys);
        idle(&world);
        assert!(entries(&world.db) <= 600, "{}", entries(&world.db));
        bytes.push(counter(&world.db, "key_bytes"));
    }
    assert!(bytes.iter().all(|bytes| *bytes < 400 << 10), "{bytes:?}");
}

#[test]
fn deleted_rows_are_found_by_key_as_long_as_they_are_kept() {
    let world = world(HistoryPolicy::For(100 * SECOND));
    produce(&world, 0..1000);
    let t = table(&world.db);
    world.clock.advance(SECOND);
    consume(&world, 0..900);
    idle(&world);
    let versions = |k: i64| {
        let found = run(&world.db, |s| s.history(&t, &[Value::BigInt(k)]));
        found.expect("history").num_rows()
    };
    assert_eq!((entries(&world.db), versions(5)), (1000, 1));
    world.clock.advance(80 * SECOND);
    idle(&world);
    assert_eq!((entries(&world.db), versions(5)), (1000, 1), "still kept");
    // Nothing happens any more but that time passes.
    world.clock.advance(40 * SECOND);
    idle(&world);
    assert_eq!((entries(&world.db), versions(5)), (100, 0));
    assert!(get(&world.db, 950).is_some() && get(&world.db, 5).is_none());
    // Their keys are free.
    produce(&world, 0..900);
    assert_eq!(entries(&world.db), 1000);
}

/// A transaction with a snapshot of its own, and its only statement.
fn snapshot(db: &Arc<Db>) -> Arc<Statement> {
    let options = TxnOptions {
        isolation: Isolation::Snapshot,
        ..TxnOptions::default()
    };
    let txn = db.begin(options).expect("begin");
    txn.begin_statement().expect("statement")
}

fn find(statement: &Statement, t: &Arc<TableDef>, k: i64) -> Option<Value> {
    let mut out = Vec::new();
    let found = statement.point_get(t, 0, &[Value::BigInt(k)], &[ColumnId(1)], &mut out);
    found.expect("get").then(|| out.remove(0))
}

#[test]
fn a_snapshot_keeps_the_entries_of_what_it_sees_and_no_more() {
    let world = world(HistoryPolicy::None);
    let t = table(&world.db);
    produce(&world, 0..500);
    let old = snapshot(&world.db);
    for round in 1..40 {
        produce(&world, round * 500..(round + 1) * 500);
        consume(&world, (round - 1) * 500..round * 500);
        idle(&world);
        let entries = entries(&world.db);
        assert!(entries <= 1000 + 1000 / 4, "{entries} in round {round}");
        for k in [0, 499] {
            assert_eq!(find(&old, &t, k), Some(Value::BigInt(k)));
        }
        assert_eq!(find(&old, &t, 500), None);
    }
    drop(old);
    idle(&world);
    assert_eq!(entries(&world.db), 500);
}

fn move_key(world: &World, from: i64, to: i64) {
    let t = table(&world.db);
    let set = [(ColumnId(0), Value::BigInt(to))];
    let found = run(&world.db, |s| {
        s.point_update(&t, 0, &[Value::BigInt(from)], &set)
    });
    assert!(found.expect("update"), "key {from}");
    world.clock.advance(10);
}

#[test]
fn keys_that_rows_have_left_go() {
    let world = world(HistoryPolicy::For(100 * SECOND));
    let t = table(&world.db);
    produce(&world, 0..100);
    for round in 0..5 {
        (0..100).for_each(|k| move_key(&world, round * 1000 + k, (round + 1) * 1000 + k));
    }
    idle(&world);
    assert_eq!(entries(&world.db), 600);
    // One comes back to where it was, one is on its way to a key that it had.
    move_key(&world, 5007, 7);
    let txn = world.db.begin(TxnOptions::default()).expect("begin");
    let open = txn.begin_statement().expect("statement");
    let back = [(ColumnId(0), Value::BigInt(2008))];
    let found = open.point_update(&t, 0, &[Value::BigInt(5008)], &back);
    assert!(found.expect("update"));
    let old = snapshot(&world.db);
    world.clock.advance(200 * SECOND);
    idle(&world);
    let kept = entries(&world.db);
    assert!((101..=120).contains(&kept), "{kept}");
    open.finish().expect("finish");
    drop(open);
    txn.commit().expect("commit");
    drop(txn);
    assert_eq!(find(&old, &t, 5008), Some(Value::BigInt(8)));
    assert!(get(&world.db, 2008).is_some() && get(&world.db, 7).is_some());
    assert!(get(&world.db, 5008).is_none() && get(&world.db, 1).is_none());
    drop(old);
    world.clock.advance(200 * SECOND);
    world.db.checkpoint(true).expect("checkpoint");
    assert_eq!(entries(&world.db), 100);
    assert!((0..7).all(|k| get(&world.db, 5000 + k).is_some()));
    // The same after the next open, which finds former keys in what is left of the history.
    move_key(&world, 5001, 1);
    let world = world.reopen();
    assert!(entries(&world.db) >= 101);
    world.clock.advance(200 * SECOND);
    world.db.checkpoint(true).expect("checkpoint");
    assert_eq!(entries(&world.db), 100);
}

#[test]
fn what_is_rolled_back_leaves_no_entries() {
    let world = world(HistoryPolicy::Forever);
    let t = table(&world.db);
    produce(&world, 0..10);
    for round in 0..3 {
        let txn = world.db.begin(TxnOptions::default()).expect("begin");
        insert_in(&txn, &t, 100);
        let savepoint = txn.savepoint();
        insert_in(&txn, &t, 101);
        let to = |k: i64| [(ColumnId(0), Value::BigInt(k))];
        let update = |from: i64, to: &[(ColumnId, Value)]| {
            let statement = txn.begin_statement().expect("statement");
            let found = statement.point_update(&t, 0, &[Value::BigInt(from)], to);
            assert!(found.expect("update"));
        };
        update(5, &to(200));
        update(100, &to(201));
        update(201, &to(100));
        if round > 0 {
            txn.rollback_to(&savepoint).expect("rollback");
            assert_eq!(entries(&world.db), 11);
        }
        if round < 2 {
            txn.rollback();
            assert_eq!(entries(&world.db), 10);
        } else {
            txn.commit().expect("commit");
            assert_eq!(entries(&world.db), 11);
        }
    }
    assert!(get(&world.db, 5).is_some() && get(&world.db, 100).is_some());
    assert!(world.db.check().expect("check").is_empty());
}

fn insert_in(txn: &Arc<Transaction>, t: &Arc<TableDef>, k: i64) {
    let statement = txn.begin_statement().expect("statement");
    statement.point_insert(t, &row(k, k, "")).expect("insert");
}

/// Random changes against all states that there were: what may be asked for is found by its key,
/// what may not leaves nothing behind.
#[test]
fn random_changes_are_found_by_key_at_every_moment_that_is_kept() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        let mut world = world(HistoryPolicy::For(50 * SECOND));
        alter(&world.db, |t| {
            // A second key, with NULLs.
            t.keys
                .push(KeyDef::new("t_a_key", false, vec![ColumnId(1)]));
        });
        let mut now: BTreeMap<i64, Option<i64>> = BTreeMap::new();
        let mut held: Vec<Held> = Vec::new();
        for _ in 0..400 {
            world.clock.advance(rng.below(2 * SECOND));
            if rng.one_in(60) {
                held.clear();
                world = world.reopen();
            }
            step(&world, &mut rng, &mut now, &mut held);
            let t = table(&world.db);
            let newest = snapshot(&world.db);
            for (statement, state) in held.iter().chain([&(newest, now.clone())]) {
                let (k, a) = (rng.below(60) as i64, rng.below(60) as i64);
                let expected = state.get(&k).map(|a| a.map_or(Value::Null, Value::BigInt));
                assert_eq!(find(statement, &t, k), expected, "seed {seed}, key {k}");
                let mut out = Vec::new();
                let found =
                    statement.point_get(&t, 1, &[Value::BigInt(a)], &[ColumnId(0)], &mut out);
                let with = state
                    .iter()
                    .find(|(_, of)| **of == Some(a))
                    .map(|(k, _)| *k);
                let is_found = found.expect("get");
                assert_eq!(
                    is_found.then(|| out[0].clone()),
                    with.map(Value::BigInt),
                    "seed {seed}, a {a}"
                );
            }
        }
        held.clear();
        world.clock.advance(100 * SECOND);
        (0..3).for_each(|_| {
            world.clock.advance(1000);
            world.db.checkpoint(true).expect("checkpoint");
        });
        let keys = now.len() + now.values().flatten().count();
        assert_eq!(entries(&world.db), keys as u64, "seed {seed}");
    }
}

fn step(world: &World, rng: &mut Rng, now: &mut BTreeMap<i64, Option<i64>>, held: &mut Vec<Held>) {
    let t = table(&world.db);
    let key = |rng: &mut Rng| rng.below(60) as i64;
    match rng.below(16) {
        0 => drop(world.db.checkpoint(rng.one_in(3)).expect("checkpoint")),
        1 => drop(world.db.merge_due(false).expect("a turn")),
        2 if held.len() < 4 => held.push((snapshot(&world.db), now.clone())),
        3 if !held.is_empty() => drop(held.swap_remove(rng.below(held.len() as u64) as usize)),
        _ => {
            let mut next = now.clone();
            let txn = world.db.begin(TxnOptions::default()).expect("begin");
            let mut fails = false;
            for _ in 0..1 + rng.below(3) {
                let statement = txn.begin_statement().expect("statement");
                let (k, to) = (key(rng), key(rng));
                let a = (!rng.one_in(5)).then(|| key(rng));
                let value = a.map_or(Value::Null, Value::BigInt);
                let free = |a: Option<i64>, next: &BTreeMap<i64, Option<i64>>| {
                    a.is_none_or(|a| !next.values().any(|of| *of == Some(a)))
                };
                match (rng.below(4), next.contains_key(&k)) {
                    (0, true) => {
                        assert!(
                            statement
                                .point_delete(&t, 0, &[Value::BigInt(k)])
                                .expect("delete")
                        );
                        next.remove(&k);
                    }
                    (1, true) if !next.contains_key(&to) => {
                        let set = [(ColumnId(0), Value::BigInt(to))];
                        let moved = statement.point_update(&t, 0, &[Value::BigInt(k)], &set);
                        assert!(moved.expect("update"));
                        let a = next.remove(&k).flatten();
                        next.insert(to, a);
                    }
                    (2, true) if free(a, &next) => {
                        let set = [(ColumnId(1), value)];
                        let set = statement.point_update(&t, 0, &[Value::BigInt(k)], &set);
                        assert!(set.expect("update"));
                        next.insert(k, a);
                    }
                    (_, is_taken) => {
                        let new = [Value::BigInt(k), value, Value::from("")];
                        let inserted = statement.point_insert(&t, &new);
                        fails = is_taken || !free(a, &next);
                        assert_eq!(inserted.is_err(), fails, "{inserted:?}");
                        next.insert(k, a);
                    }
                }
                if fails {
                    break;
                }
            }
            if fails || rng.one_in(3) {
                txn.rollback();
            } else {
                txn.commit().expect("commit");
                *now = next;
            }
        }
    }
}

/// Rows go back and forth between their keys, and try each other's, while entries are removed all
/// the time: each is found by the key that it has, and no two rows have the same.
#[test]
fn keys_that_move_while_entries_are_removed_are_not_lost() {
    let world = world(HistoryPolicy::None);
    let db = &world.db;
    produce(&world, 0..8);
    let t = table(db);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let t = &t;
                scope.spawn(move || {
                    let mut rng = Rng::new(worker);
                    for _ in 0..1500 {
                        let (from, to) = (rng.below(16) as i64, rng.below(16) as i64);
                        let set = [(ColumnId(0), Value::BigInt(to))];
                        let txn = db.begin(TxnOptions::default()).expect("begin");
                        let statement = txn.begin_statement().expect("statement");
                        let key = [Value::BigInt(from)];
                        let moved = statement.point_update(t, 0, &key, &set);
                        match moved {
                            Ok(_) if rng.one_in(4) => txn.rollback(),
                            Ok(_) => drop(txn.commit().expect("commit")),
                            Err(_) => txn.rollback(), // the key is taken, or a deadlock
                        }
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                world.clock.advance(1000);
                db.checkpoint(true).expect("checkpoint");
            }
        });
        let ended: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        ended.into_iter().for_each(|ended| ended.expect("worker"));
    });
    let statement = snapshot(db);
    let state = scan_all(&statement.scan(&t, request()).expect("scan"));
    assert_eq!(state.len(), 8);
    for (k, (a, _)) in &state {
        assert_eq!(find(&statement, &t, *k), a.map(Value::BigInt), "key {k}");
    }
    drop(statement);
    for _ in 0..2 {
        world.clock.advance(1000);
        db.checkpoint(true).expect("checkpoint");
    }
    assert_eq!(entries(db), 8);
}
