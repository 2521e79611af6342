//! Builds beside writers.

use crate::common::*;
use crate::support::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use strandline_base::rng::Rng;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::catalog::index::IndexState;
use strandline_engine::*;

/// Writes rows at random until `end` is set; errors of conflicts are part of the game.
fn write_until(db: &Arc<Db>, end: &AtomicBool, seed: u64, keys: std::ops::Range<i64>) {
    let mut rng = Rng::new(seed);
    let width = (keys.end - keys.start) as u64;
    while !end.load(Ordering::Relaxed) {
        let k = keys.start + rng.below(width) as i64;
        let key = [Value::BigInt(k)];
        let t = table(db);
        let _ = run(db, |s| match rng.below(4) {
            0 => s.point_delete(&t, 0, &key),
            1 => s.point_insert(&t, &row(k, k, "new")).map(|_| true),
            2 => s.point_update(&t, 0, &key, &[(ColumnId(2), Value::from(format!("{k}")))]),
            _ => {
                let value = Value::BigInt(rng.below(1000) as i64);
                s.point_update(&t, 0, &key, &[(ColumnId(1), value)])
            }
        });
    }
}

#[test]
fn a_build_beside_writers_misses_nothing() {
    for seed in 0..2 {
        let world = World::new(HistoryPolicy::None);
        let (db, end) = (&world.db, AtomicBool::new(false));
        for k in 0..200 {
            insert(db, &row(k, k, "x"));
        }
        thread::scope(|scope| {
            for thread in 0..2 {
                let (end, keys) = (&end, thread * 100..(thread + 1) * 100);
                scope.spawn(move || write_until(db, end, seed * 2 + thread as u64, keys));
            }
            for name in ["one", "two", "three"] {
                create_online(db, &index(name, vec![part(1)])).expect("create");
                create_online(db, &index(&format!("{name}_b"), vec![part(2)])).expect("create");
            }
            end.store(true, Ordering::Relaxed);
        });
        let t = table(db);
        assert!(t.indexes.iter().all(|def| def.state == IndexState::Valid));
        let statement = db.begin(TxnOptions::default()).expect("begin");
        let statement = statement.begin_statement().expect("statement");
        let rows = scanned(&statement, &t);
        let view = statement.view(&t).expect("view");
        assert_indexes_agree(&statement, &view, &t, &rows, &format!("seed {seed}"));
        assert_eq!(db.check().expect("check"), Vec::<String>::new());
    }
}

/// Either the writer or the build finds the duplicate, never neither.
#[test]
fn a_unique_build_and_a_writer_do_not_both_succeed() {
    for round in 0..40 {
        let world = World::new(HistoryPolicy::None);
        let db = &world.db;
        insert(db, &row(1, 7, "x"));
        let t = table(db);
        let (built, written) = thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let begun = db.begin(TxnOptions::default())?;
                let mut outcome = Err(Error::internal("not tried"));
                for _ in 0..10 {
                    let table = table(db);
                    outcome = begun
                        .begin_statement()?
                        .point_insert(&table, &row(2, 7, "y"));
                    match &outcome {
                        // The definition changed.
                        Err(e) if e.sqlstate() == SqlState::SERIALIZATION_FAILURE => {}
                        _ => break,
                    }
                }
                outcome?;
                begun.commit()
            });
            let built = create_online(db, &unique("t_a", vec![part(1)]));
            (built, writer.join().expect("no panic"))
        });
        let is_duplicate = |e: &Error| e.sqlstate() == SqlState::UNIQUE_VIOLATION;
        match (&built, &written) {
            (Ok(()), Err(error)) | (Err(error), Ok(_)) => {
                assert!(is_duplicate(error), "round {round}: {error}");
            }
            (Ok(()), Ok(_)) => panic!("round {round}: two rows with one key"),
            // The writer has met the definition of a build that it then fails.
            (Err(build), Err(write)) => assert!(is_duplicate(build) && is_duplicate(write)),
        }
        assert_eq!(db.check().expect("check"), Vec::<String>::new());
        assert_eq!(table(db).indexes.len(), usize::from(built.is_ok()));
        drop(t);
    }
}

#[test]
fn a_cancelled_build_leaves_nothing() {
    let world = World::new(HistoryPolicy::None);
    for k in 0..10 {
        insert(&world.db, &row(k, k, "x"));
    }
    let options = TxnOptions::default();
    let cancelled = world.db.create_index(&options, &mut |catalog| {
        let t = catalog.table("public", "t").expect("t").clone();
        let mut t = catalog::TableDef::clone(&t);
        let id = put_index(&mut t, &index("t_a", vec![part(1)]));
        let place = (t.id, id);
        catalog.put_table(t);
        // Somebody cancels the statement as soon as it has begun.
        options.cancel.store(true, Ordering::Relaxed);
        Ok(place)
    });
    let error = cancelled.expect_err("cancelled");
    assert_eq!(error.sqlstate(), SqlState::QUERY_CANCELED);
    assert!(table(&world.db).indexes.is_empty());
    assert_eq!(counter(&world.db, "index_entries"), 0);
    assert!(world.db.index_builds().is_empty());
    create_online(&world.db, &index("t_a", vec![part(1)])).expect("its name is free");
}

/// A writer holds the table while the build begins and ends.
#[test]
fn a_build_waits_for_writers_that_do_not_know_the_index() {
    let world = World::new(HistoryPolicy::None);
    insert(&world.db, &row(1, 7, "x"));
    let t = table(&world.db);
    let writer = world.db.begin(TxnOptions::default()).expect("begin");
    let statement = writer.begin_statement().expect("statement");
    statement.point_insert(&t, &row(2, 8, "y")).expect("insert");
    let options = TxnOptions {
        lock_timeout: Some(std::time::Duration::from_millis(1)),
        ..TxnOptions::default()
    };
    let define = &mut |catalog: &mut catalog::Catalog| {
        let t = catalog.table("public", "t").expect("t").clone();
        let mut t = catalog::TableDef::clone(&t);
        let id = put_index(&mut t, &index("t_a", vec![part(1)]));
        let place = (t.id, id);
        catalog.put_table(t);
        Ok(place)
    };
    let error = world.db.create_index(&options, define).expect_err("locked");
    assert_eq!(error.sqlstate(), SqlState::LOCK_NOT_AVAILABLE);
    writer.commit().expect("commit");
    world.db.create_index(&options, define).expect("create");
    assert_eq!(entries(&world.db, "t_a"), 2);
}
