//! What opening costs and gives \[L-Store §5.1.3\]: it takes the log since the last checkpoint and
//! what had not been merged then, and the same comes out for any number of threads.

mod common;

use common::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

fn open_with(device: Arc<MemoryDevice>, clock: &Arc<ManualClock>, threads: usize) -> Arc<Db> {
    let settings = Settings {
        background_maintenance: false,
        recovery_threads: threads,
        ..Settings::default()
    };
    let clock = clock.clone();
    Db::open(DbOptions {
        device,
        clock,
        settings,
    })
    .expect("open")
}

fn set(db: &Arc<Db>, k: i64, a: i64) {
    let t = table(db);
    let set = [(ColumnId(1), Value::BigInt(a))];
    let found = run(db, |s| s.point_update(&t, 0, &[Value::BigInt(k)], &set));
    assert!(found.expect("update"));
}

#[test]
fn opening_takes_what_came_since_the_last_checkpoint_and_was_not_merged() {
    let world = World::new(HistoryPolicy::Forever);
    assert_eq!(*world.db.recovery(), RecoveryReport::default());
    for k in 0..30 {
        insert(&world.db, &row(k, 0, ""));
    }
    for round in 0..10 {
        (0..30).for_each(|k| set(&world.db, k, round));
        world.db.checkpoint(round % 3 == 0).expect("checkpoint");
    }
    world.db.checkpoint(true).expect("checkpoint");
    // Of a long history nothing is read, and no log.
    let world = world.reopen();
    let report = *world.db.recovery();
    let counts = (
        report.log_records,
        report.row_operations,
        report.run_records,
    );
    assert_eq!((counts, report.ranges), ((0, 0, 0), 1), "{report:?}");
    // In runs but not in base; in the log only.
    (0..20).for_each(|k| set(&world.db, k, 77));
    world.db.checkpoint(false).expect("checkpoint");
    (0..7).for_each(|k| set(&world.db, k, 78));
    let world = world.reopen();
    let report = *world.db.recovery();
    let counts = (
        report.log_records,
        report.row_operations,
        report.run_records,
    );
    assert_eq!(counts, (7, 7, 20), "{report:?}");
    assert!(
        report.log_bytes > 0 && report.log_bytes < 7 * 200,
        "{report:?}"
    );
    assert_eq!(get(&world.db, 3), Some(row(3, 78, "").to_vec()));
    assert_eq!(get(&world.db, 19), Some(row(19, 77, "").to_vec()));
    let inspection = world.db.inspect().expect("inspect");
    let mut rows = inspection.sections[0].rows.iter();
    let shown = rows.find(|row| row[0] == "recovery").expect("shown");
    assert!(shown[1].contains("7 log records"), "{shown:?}");
}

/// Several tables' worth of ranges with records in runs, base and log, opened by one thread and by
/// many: row maps, tails and bases are the same to the last record.
#[test]
fn the_number_of_threads_changes_nothing() {
    let world = World::new(HistoryPolicy::Forever);
    let mut rng = Rng::new(7);
    let mut keys = 0;
    for round in 0..9 {
        for _ in 0..40 {
            insert(&world.db, &row(keys, 0, "inserted"));
            keys += 1;
        }
        for _ in 0..200 {
            set(
                &world.db,
                rng.below(keys as u64) as i64,
                rng.below(1000) as i64,
            );
        }
        // A merge ends the insert range: the next rows go to another one.
        world.db.checkpoint(round < 7).expect("checkpoint");
    }
    for _ in 0..300 {
        set(
            &world.db,
            rng.below(keys as u64) as i64,
            rng.below(1000) as i64,
        );
    }
    let World { device, clock, db } = world;
    let rows_of = |db: &Arc<Db>| run(db, |s| Ok(scan_values(s, &table(db)))).expect("scan");
    let expected = rows_of(&db);
    drop(db);
    let opened = [1, 2, 3, 8].map(|threads| {
        let db = open_with(device.clone(), &clock, threads);
        let mut report = *db.recovery();
        assert_eq!(std::mem::take(&mut report.threads), threads as u64);
        assert_eq!(rows_of(&db), expected);
        (db.lineage_of(&table(&db)).expect("image"), report)
    });
    assert!(opened[0].0.len() >= 8 && opened[0].1.run_records > 0);
    assert!(opened.windows(2).all(|pair| pair[0] == pair[1]));
}
