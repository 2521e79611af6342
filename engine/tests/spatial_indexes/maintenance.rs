//! Builds beside writers, sweeps of entries that no reader needs, and bulk loads.

use crate::common::*;
use crate::places::*;
use crate::support::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

fn database(history: HistoryPolicy) -> Arc<Db> {
    let db = open(Arc::new(MemoryDevice::new()), &clock()).expect("open");
    create_places(&db, history);
    db
}

/// Writes rows at random until `end` is set; errors of conflicts are part of the game.
fn write_until(db: &Arc<Db>, end: &AtomicBool, seed: u64, keys: std::ops::Range<i64>) {
    let mut rng = Rng::new(seed);
    let width = (keys.end - keys.start) as u64;
    while !end.load(Ordering::Relaxed) {
        let k = keys.start + rng.below(width) as i64;
        let key = [Value::BigInt(k)];
        let (t, p, b) = (table(db), random_point(&mut rng), random_box(&mut rng));
        let _ = run(db, |s| match rng.below(4) {
            0 => s.point_delete(&t, 0, &key),
            1 => s.point_insert(&t, &[key[0].clone(), p, b]).map(|_| true),
            2 => s.point_update(&t, 0, &key, &[(ColumnId(B), b)]),
            _ => s.point_update(&t, 0, &key, &[(ColumnId(P), p)]),
        });
    }
}

#[test]
fn a_build_beside_writers_misses_nothing() {
    for seed in 0..2 {
        let (db, end) = (database(HistoryPolicy::None), AtomicBool::new(false));
        for k in 0..200 {
            insert(&db, &place(k, k as f64, 0.0));
        }
        thread::scope(|scope| {
            for thread in 0..2 {
                let (db, end, keys) = (&db, &end, thread * 100..(thread + 1) * 100);
                scope.spawn(move || write_until(db, end, seed * 2 + thread as u64, keys));
            }
            for name in ["one", "two", "three"] {
                create_online(&db, &rtree(name, P)).expect("create");
                create_online(&db, &rtree(&format!("{name}_b"), B)).expect("create");
            }
            end.store(true, Ordering::Relaxed);
        });
        assert_places_sound(&db, &format!("seed {seed}"));
    }
}

/// Readers by distance and by condition beside writers see their snapshot.
#[test]
fn searches_beside_writers_see_their_snapshots() {
    let (db, end) = (database(HistoryPolicy::None), AtomicBool::new(false));
    create_alone(&db, &rtree("t_p", P)).expect("create");
    create_alone(&db, &rtree("t_b", B)).expect("create");
    for k in 0..600 {
        insert(&db, &place(k, (k % 20) as f64, (k % 7) as f64));
    }
    thread::scope(|scope| {
        for thread in 0..2 {
            let (db, end, keys) = (&db, &end, thread * 300..(thread + 1) * 300);
            scope.spawn(move || write_until(db, end, 7 + thread as u64, keys));
        }
        let mut rng = Rng::new(1);
        for round in 0..12 {
            let options = TxnOptions {
                isolation: Isolation::Snapshot,
                ..TxnOptions::default()
            };
            let txn = db.begin(options).expect("begin");
            let statement = txn.begin_statement().expect("statement");
            let t = table(&db);
            let view = statement.view(&t).expect("view");
            let rows = scanned(&statement, &t);
            db.merge_due(false).expect("a turn");
            let context = format!("round {round}");
            assert_places_agree((&statement, &view), &t, &rows, (&mut rng, &context));
        }
        end.store(true, Ordering::Relaxed);
    });
    assert_places_sound(&db, "at the end");
}

/// Entries of updated and deleted rows go; one per row with a place stays.
#[test]
fn a_sweep_leaves_one_entry_for_each_row() {
    let device = Arc::new(MemoryDevice::new());
    let wall = clock();
    let db = open(device.clone(), &wall).expect("open");
    create_places(&db, HistoryPolicy::None);
    create_alone(&db, &rtree("t_p", P)).expect("create");
    let t = table(&db);
    for k in 0..300 {
        insert(&db, &place(k, k as f64, 1.0));
    }
    let move_all = |db: &Arc<Db>, to: f64| {
        let moved = run(db, |s| {
            for k in 0..300 {
                let set = [(ColumnId(P), point(to, k as f64))];
                s.point_update(&t, 0, &[Value::BigInt(k)], &set)?;
            }
            Ok(())
        });
        moved.expect("updates");
    };
    move_all(&db, 5.0);
    move_all(&db, 6.0);
    let delete = run(&db, |s| {
        for k in 0..100 {
            s.point_delete(&t, 0, &[Value::BigInt(k)])?;
        }
        Ok(())
    });
    delete.expect("deletes");
    assert_eq!(entries(&db, "t_p"), 900);
    let settle = |db: &Arc<Db>| {
        for _ in 0..4 {
            wall.advance(1_000_000);
            db.checkpoint(true).expect("checkpoint");
        }
        assert_places_sound(db, "swept");
    };
    settle(&db);
    assert_eq!(entries(&db, "t_p"), 200);
    // Entries of updates before an opening are compared with their rows, and swept.
    move_all(&db, 7.0);
    assert_eq!(entries(&db, "t_p"), 400);
    drop(db);
    let db = open(device, &wall).expect("open");
    assert_places_sound(&db, "opened");
    assert_eq!(entries(&db, "t_p"), 400);
    settle(&db);
    assert_eq!(entries(&db, "t_p"), 200);
}

/// Loads go into the index as writes do, and a load that is rolled back leaves no row behind.
#[test]
fn bulk_loads_have_their_entries() {
    let db = database(HistoryPolicy::None);
    create_alone(&db, &rtree("t_p", P)).expect("create");
    create_alone(&db, &rtree("t_b", B)).expect("create");
    let rows = |keys: std::ops::Range<i64>| {
        let rows: Vec<_> = keys
            .map(|k| place(k, (k % 50) as f64, (k / 50) as f64))
            .collect();
        let t = table(&db);
        let columns = t.columns.iter().enumerate().map(|(at, c)| {
            let values: Vec<Value> = rows.iter().map(|row| row[at].clone()).collect();
            let array = strandline_column::types::array_of(c.sql_type, &values);
            (c.name.clone(), array.expect("values"))
        });
        arrow_array::RecordBatch::try_from_iter(columns).expect("rows")
    };
    let load = |statement: &Arc<Statement>, keys| {
        let mut load = statement.bulk_insert(&table(&db))?;
        load.append(&rows(keys))?;
        load.finish()
    };
    assert_eq!(run(&db, |s| load(s, 0..1_500)).expect("loaded"), 1_500);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    load(&statement, 5_000..6_000).expect("loaded");
    statement.finish().expect("no duplicate");
    txn.rollback();
    assert_eq!(run(&db, |s| load(s, 1_500..2_500)).expect("loaded"), 1_000);
    assert_places_sound(&db, "loaded");
    assert_eq!(
        run(&db, |s| Ok(scanned(s, &table(&db)).len())).expect("a scan"),
        2_500
    );
}
