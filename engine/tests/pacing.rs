//! Background checkpoints that fail or achieve nothing pause, say so, and go on when they can.

mod common;

use common::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;
use strandline_sim::SimDisk;

/// The background thread looks five times a second.
const TURN_US: u64 = 200_000;
const TURNS_PER_MINUTE: u64 = 300;

fn open_small(disk: &SimDisk, clock: &Arc<ManualClock>) -> Arc<Db> {
    let settings = Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        wal_segment_bytes: 1 << 16,
        reserve_bytes: 0,
        background_maintenance: false,
        recovery_threads: 1,
        ..Settings::default()
    };
    let clock = clock.clone();
    let device = disk.device();
    Db::open(DbOptions {
        device,
        clock,
        settings,
    })
    .expect("open")
}

fn counter(db: &Db, name: &str) -> u64 {
    let counters = db.counters();
    counters.iter().find(|c| c.0 == name).expect("a counter").1
}

/// A database whose table has a hundred merged rows.
fn with_merged_rows(disk: &SimDisk, clock: &Arc<ManualClock>) -> (Arc<Db>, Arc<TableDef>) {
    let db = open_small(disk, clock);
    let (t, _) = create_table(&db, HistoryPolicy::None);
    (0..100).for_each(|k| insert(&db, &row(k, k, "short")));
    db.checkpoint(true).expect("merge");
    (db, t)
}

/// Turns of the background thread in a minute in which it wrote something.
fn busy_turns(db: &Db, disk: &SimDisk, clock: &ManualClock) -> u64 {
    let mut busy = 0;
    for _ in 0..TURNS_PER_MINUTE {
        clock.advance(TURN_US);
        let before = disk.operations();
        let _ = db.merge_due(false);
        busy += u64::from(disk.operations() > before);
    }
    busy
}

#[test]
fn checkpoints_that_free_no_memory_pause_until_a_commit_lets_them() {
    let (disk, clock) = (SimDisk::new(1), clock());
    let (db, t) = with_merged_rows(&disk, &clock);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let long = "x".repeat(24_000);
    let set = [(ColumnId(2), Value::from(long.as_str()))];
    for k in 0..100 {
        let key = [Value::BigInt(k)];
        assert!(statement.point_update(&t, 0, &key, &set).expect("update"));
    }
    statement.finish().expect("finish");
    let busy = busy_turns(&db, &disk, &clock);
    assert!((5..=30).contains(&busy), "{busy} checkpoints in a minute");
    assert_eq!(counter(&db, "checkpoints_in_vain"), 1);
    assert_eq!(counter(&db, "checkpoint_pause_micros"), 5_000_000);
    db.check_health().expect("nobody is refused yet");
    let merged = counter(&db, "merged_ranges");
    txn.commit().expect("commit");
    assert!(db.merge_due(false).expect("works"), "at once");
    assert_eq!(counter(&db, "merged_ranges"), merged + 1);
    assert_eq!(counter(&db, "checkpoints_in_vain"), 0);
    assert_eq!(counter(&db, "checkpoint_pause_micros"), 0);
}

#[test]
fn an_old_open_transaction_does_not_cause_one_checkpoint_after_the_other() {
    let (disk, clock) = (SimDisk::new(3), clock());
    let (db, t) = with_merged_rows(&disk, &clock);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let set = [(ColumnId(1), Value::BigInt(-1))];
    let updated = statement.point_update(&t, 0, &[Value::BigInt(7)], &set);
    assert!(updated.expect("update"));
    statement.finish().expect("finish");
    // It is old after half a minute.
    for _ in 0..2 {
        let busy = busy_turns(&db, &disk, &clock);
        assert!((1..=4).contains(&busy), "{busy} checkpoints in a minute");
    }
    let merged = counter(&db, "merged_ranges");
    txn.commit().expect("commit");
    busy_turns(&db, &disk, &clock);
    assert_eq!(counter(&db, "merged_ranges"), merged + 1);
}

#[test]
fn checkpoints_that_fail_pause_until_something_may_have_changed() {
    let (disk, clock) = (SimDisk::new(2), clock());
    let db = open_small(&disk, &clock);
    create_table(&db, HistoryPolicy::None);
    (0..100).for_each(|k| insert(&db, &row(k, k, &"text".repeat(40))));
    disk.limit_capacity(Some(disk.used_bytes()));
    let failure = db.merge_due(true).expect_err("no room");
    assert_eq!(failure.sqlstate(), SqlState::DISK_FULL);
    let health = db.check_health().expect_err("not well").to_string();
    assert!(health.contains("checkpoints fail"), "{health}");
    let busy = busy_turns(&db, &disk, &clock);
    assert!((5..=12).contains(&busy), "{busy} attempts in a minute");
    assert_eq!(counter(&db, "checkpoints_failing"), 1);
    // While it pauses the failure is still told, and nothing is written.
    let before = disk.operations();
    let told = db.merge_due(true).expect_err("pauses");
    assert_eq!(told.sqlstate(), SqlState::DISK_FULL);
    assert_eq!(disk.operations(), before);
    // A change of the catalog may have freed space.
    disk.limit_capacity(None);
    alter(&db, |t| t.comment = Some("changed".into()));
    assert!(db.merge_due(false).expect("works"), "at once");
    assert_eq!(counter(&db, "checkpoints_failing"), 0);
    db.check_health().expect("well");
}
