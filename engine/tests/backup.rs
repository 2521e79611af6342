//! Backups taken beside writers, checkpoints and merges are the database at one moment, history
//! included; a crash, a full disk or damage leaves no backup, and the source as it was.
//!
//! `STRANDLINE_CRASH_STRIDE` sets how many operations lie between two crash points.

mod common;

use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline_base::rng::Rng;
use strandline_base::utc::format_utc;
use strandline_device::{Device, MemoryDevice};
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;
use strandline_sim::SimDisk;

const ACCOUNTS: i64 = 40;

fn every(_: CopyProgress) -> bool {
    true
}

fn at(db: &Arc<Db>, ts: CommitTs) -> State {
    let catalog = db.catalog_at(ts).expect("catalog");
    let Some(table) = catalog.table("public", "t").cloned() else {
        return State::new();
    };
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    scan_all(&statement.scan_as_of(&table, ts, request()).expect("as of"))
}

fn update(db: &Arc<Db>, k: i64, a: i64) -> Result<()> {
    let table = table(db);
    let set = [(ColumnId(1), Value::BigInt(a))];
    run(db, |s| s.point_update(&table, 0, &[Value::BigInt(k)], &set)).map(|_| ())
}

/// A database with chunks, runs, pending records and a table that was dropped.
fn build(device: Arc<dyn Device>) -> Arc<Db> {
    let db = open(device, &clock()).expect("open");
    create_table(&db, HistoryPolicy::Forever);
    for k in 0..ACCOUNTS {
        insert(&db, &row(k, 100, "account"));
    }
    db.checkpoint(true).expect("checkpoint");
    for k in 0..ACCOUNTS / 2 {
        update(&db, k, 200).expect("update");
    }
    db.checkpoint(false).expect("checkpoint");
    for k in 0..ACCOUNTS / 4 {
        update(&db, k, 300).expect("update");
    }
    db
}

#[test]
fn a_backup_beside_writers_and_merges_is_the_database_at_one_moment() {
    let db = build(Arc::new(MemoryDevice::new()));
    let stop = AtomicBool::new(false);
    let (copies, first) = std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (db, stop) = (&db, &stop);
            scope.spawn(move || {
                let mut rng = Rng::new(writer);
                while !stop.load(Ordering::Relaxed) {
                    let (k, a) = (rng.below(ACCOUNTS as u64), rng.below(1_000));
                    let written = update(db, k as i64, a as i64);
                    assert!(written.is_ok_and(|()| true) || !stop.load(Ordering::Relaxed));
                }
            });
        }
        let (merger, merger_stop) = (&db, &stop);
        scope.spawn(move || {
            let mut all = false;
            while !merger_stop.load(Ordering::Relaxed) {
                merger.checkpoint(all).expect("checkpoint");
                all = !all;
            }
        });
        let first = db.stable();
        let copies: Vec<_> = (0..5)
            .map(|_| {
                let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
                // A checkpoint falls into the copying: it must not take files away.
                let observer = |_: CopyProgress| db.checkpoint(true).is_ok();
                let report = db.backup(&target, &observer).expect("backup");
                (target, report)
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        (copies, first)
    });
    for (target, report) in copies {
        assert!(report.as_of >= first && report.files > 0 && report.bytes > 0);
        let copy = open(target, &clock()).expect("open the copy");
        assert!(copy.check().expect("check").is_empty());
        let newest = copy.stable();
        assert_eq!(at(&copy, newest), at(&db, report.as_of));
        assert_eq!(at(&copy, first), at(&db, first), "its history");
        assert_eq!(
            at(&copy, CommitTs(first.0 - 1)),
            at(&db, CommitTs(first.0 - 1)),
            "its history"
        );
        update(&copy, 1, 7).expect("it is a database of its own");
        copy.close().expect("close");
    }
    assert!(db.check().expect("check").is_empty());
}

#[test]
fn a_crash_at_any_operation_of_a_backup_leaves_no_half_of_one() {
    let stride = std::env::var("STRANDLINE_CRASH_STRIDE").ok();
    let stride: u64 = stride.and_then(|s| s.parse().ok()).unwrap_or(1);
    let db = build(Arc::new(MemoryDevice::new()));
    let whole = SimDisk::new(1);
    let target: Arc<dyn Device> = whole.device();
    db.backup(&target, &every).expect("backup");
    let expected = at(&db, db.stable());
    let mut point = 1;
    while point <= whole.operations() {
        let disk = SimDisk::new(point);
        disk.crash_at(point);
        let target: Arc<dyn Device> = disk.device();
        db.backup(&target, &every)
            .expect_err("the target has crashed");
        for outcome in [0, 1, 2 + point] {
            let left = disk.after_crash(outcome);
            if !matches!(Db::exists(&*left.device()), Ok(true)) {
                continue;
            }
            // Only the last steps may have made it one, and then all of it is there.
            let what = format!("crash at {point}, outcome {outcome}");
            let copy = open(left.device(), &clock());
            let copy = copy.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(at(&copy, copy.stable()), expected, "{what}");
            assert!(copy.check().expect("check").is_empty(), "{what}");
        }
        point += stride;
    }
    assert!(db.check().expect("check").is_empty());
}

#[test]
fn a_crash_at_any_operation_of_a_restore_leaves_no_half_of_one() {
    let backup = SimDisk::new(1);
    let target: Arc<dyn Device> = backup.device();
    let db = build(Arc::new(MemoryDevice::new()));
    db.backup(&target, &every).expect("backup");
    let expected = at(&db, db.stable());
    let before = backup.operations();
    let whole = SimDisk::new(2);
    restore(&*backup.device(), &*whole.device(), &every).expect("restore");
    for point in 1..=whole.operations() {
        let disk = SimDisk::new(point);
        disk.crash_at(point);
        restore(&*backup.device(), &*disk.device(), &every).expect_err("it has crashed");
        for outcome in [0, 1, 2 + point] {
            let left = disk.after_crash(outcome);
            // A torn superblock is refused; what is taken for a database is all there.
            if matches!(Db::exists(&*left.device()), Ok(true))
                && let Ok(copy) = open(left.device(), &clock())
            {
                assert_eq!(at(&copy, copy.stable()), expected, "crash at {point}");
            }
        }
    }
    let copy = open(whole.device(), &clock()).expect("open the copy");
    assert_eq!(at(&copy, copy.stable()), expected);
    assert!(copy.check().expect("check").is_empty());
    assert_eq!(backup.operations(), before, "a backup is only read");
}

#[test]
fn a_full_disk_refuses_a_backup_and_the_source_goes_on() {
    let db = build(Arc::new(MemoryDevice::new()));
    let disk = SimDisk::new(1);
    disk.limit_capacity(Some(20_000));
    let target: Arc<dyn Device> = disk.device();
    let full = db.backup(&target, &every).expect_err("full");
    assert_eq!(full.sqlstate(), SqlState::DISK_FULL, "{full}");
    assert!(!matches!(Db::exists(&*disk.device()), Ok(true)));
    update(&db, 1, 1).expect("update");
    let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    db.backup(&target, &every).expect("backup elsewhere");
    let occupied = db.backup(&target, &every).expect_err("not twice");
    assert_eq!(occupied.sqlstate(), SqlState::DUPLICATE_FILE);
}

#[test]
fn a_backup_that_is_cancelled_leaves_nothing() {
    let db = build(Arc::new(MemoryDevice::new()));
    let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let cancelled = db.backup(&target, &|_| false).expect_err("cancelled");
    assert_eq!(cancelled.sqlstate(), SqlState::QUERY_CANCELED);
    assert!(!matches!(Db::exists(&*target), Ok(true)));
}

#[test]
fn a_damaged_source_block_is_refused_by_the_name_of_its_file() {
    for prefix in ["chunks-", "run-"] {
        let disk = SimDisk::new(1);
        let db = build(disk.device());
        db.checkpoint(false).expect("checkpoint");
        let names = disk.device().list().expect("list");
        let name = names.iter().find(|n| n.starts_with(prefix)).expect("one");
        // Behind the header, in what a checksum covers.
        disk.flip_bits(name, 80, 0x10);
        let target: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let damaged = db.backup(&target, &every).expect_err("damaged");
        assert_eq!(damaged.sqlstate(), SqlState::DATA_CORRUPTED);
        assert!(damaged.message().contains(name.as_str()), "{damaged}");
        assert!(damaged.message().contains("sim"), "the source's: {damaged}");
        assert!(!matches!(Db::exists(&*target), Ok(true)));
    }
}

#[test]
fn going_back_restores_definitions_and_rows_of_the_moment() {
    let wall = clock();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
    let db = open(device, &wall).expect("open");
    create_table(&db, HistoryPolicy::Forever);
    for k in 0..5_000 {
        insert(&db, &row(k, k, "before"));
    }
    let moment = db.stable();
    let then = at(&db, moment);
    let definition = table(&db);
    wall.advance(1_000);
    alter(&db, |t| {
        add_column(t, "c", SqlType::BigInt, Value::BigInt(1))
    });
    for k in 0..100 {
        update(&db, k, -1).expect("update");
    }
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        catalog.tables.remove(&definition.id);
        Ok(())
    })
    .expect("drop");
    let dropped = txn.commit().expect("commit");
    let (second, _) = create_table(&db, HistoryPolicy::Forever);
    insert(&db, &row(1, 1, "of another table of the same name"));
    db.checkpoint(true).expect("checkpoint");

    let report = db.rewind(moment).expect("rewind");
    assert_eq!((report.tables, report.rows), (1, 5_000));
    assert_eq!(at(&db, db.stable()), then);
    let now = table(&db);
    assert_eq!(
        (&now.columns, &now.keys),
        (&definition.columns, &definition.keys)
    );
    assert_eq!(now.id, definition.id);
    assert!(!db.catalog().tables.contains_key(&second.id));
    assert_eq!(at(&db, moment), then, "the past stays");
    assert!(at(&db, dropped).is_empty());
    assert!(db.check().expect("check").is_empty());
    update(&db, 1, 1).expect("the index is there");
    let twice = insert_duplicate(&db);
    assert_eq!(twice.sqlstate(), SqlState::UNIQUE_VIOLATION);

    let later = CommitTs(db.stable().0 + 1_000_000);
    let refused = db.rewind(later).expect_err("the future");
    assert_eq!(refused.sqlstate(), SqlState::INVALID_PARAMETER_VALUE);
}

fn insert_duplicate(db: &Arc<Db>) -> Error {
    let table = table(db);
    let again = run(db, |s| s.point_insert(&table, &row(1, 1, "again")));
    again.expect_err("the key is there")
}

#[test]
fn going_back_beyond_the_retention_is_refused() {
    let wall = clock();
    let db = open(Arc::new(MemoryDevice::new()), &wall).expect("open");
    create_table(&db, HistoryPolicy::For(1_000_000));
    insert(&db, &row(1, 1, "one"));
    let moment = db.stable();
    update(&db, 1, 2).expect("update");
    wall.advance(60_000_000);
    db.checkpoint(true).expect("checkpoint");
    let refused = db.rewind(moment).expect_err("too old");
    assert_eq!(refused.sqlstate(), SqlState::SNAPSHOT_TOO_OLD);
    let text = format_utc(moment.0);
    assert!(refused.message().ends_with(&text), "{refused}");
    let detail = refused.detail().expect("the oldest moment");
    assert!(detail.ends_with("+00."), "{detail}");
    assert_eq!(get(&db, 1).expect("nothing changed")[1], Value::BigInt(2));
}
