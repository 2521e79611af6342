//! What must hold when things go wrong or end: crashes, full disks, failed syncs, closing, jumping
//! clocks, and work that is rolled back.

mod common;

use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use strandline_device::{Device, MemoryDevice};
use strandline_engine::catalog::{HistoryPolicy, IdentityDef};
use strandline_engine::*;
use strandline_sim::SimDisk;

fn files(device: &dyn Device, prefix: &str) -> Vec<String> {
    let mut files = device.list().expect("list");
    files.retain(|name| name.starts_with(prefix));
    files
}

fn no_damage(db: &Db) {
    let damage = db.check().expect("check");
    assert!(damage.is_empty(), "{damage:?}");
}

fn rows(keys: std::ops::Range<i64>) -> Vec<(i64, Option<i64>, String)> {
    keys.map(|k| (k, Some(k), format!("row {k}"))).collect()
}

fn load(statement: &Arc<Statement>, keys: std::ops::Range<i64>) -> Result<u64> {
    let table = table(statement.transaction().db());
    let mut load = statement.bulk_insert(&table)?;
    load.append(&batch(&rows(keys)))?;
    load.finish()
}

fn count(db: &Arc<Db>) -> usize {
    let table = table(db);
    let found = run(db, |s| Ok(scan_values(s, &table).len()));
    found.expect("scan")
}

#[test]
fn identity_values_that_committed_rows_carry_never_come_again() {
    for checkpoint in [false, true] {
        let disk = SimDisk::new(1);
        let db = open(disk.device(), &clock()).expect("open");
        create_table(&db, HistoryPolicy::None);
        alter(&db, |t| {
            let identity = IdentityDef {
                always: false,
                start: 1,
                increment: 1,
            };
            t.columns[0].identity = Some(identity);
        });
        let add = |db: &Arc<Db>| {
            let t = table(db);
            let k = db.next_identity(&t, ColumnId(0)).expect("identity");
            run(db, |s| s.point_insert(&t, &row(k, 0, ""))).expect("insert");
            k
        };
        assert_eq!((add(&db), add(&db)), (1, 2));
        if checkpoint {
            db.checkpoint(false).expect("checkpoint");
        }
        assert_eq!(add(&db), 3);
        // A value that a rolled-back transaction drew is lost or given out again, either is fine.
        db.next_identity(&table(&db), ColumnId(0))
            .expect("identity");
        let disk = disk.after_crash(3);
        let db = open(disk.device(), &clock()).expect("reopen");
        assert!(add(&db) >= 4, "checkpoint {checkpoint}");
        no_damage(&db);
    }
}

#[test]
fn slots_of_unfinished_inserts_do_not_keep_a_range_from_becoming_chunks() {
    let disk = SimDisk::new(1);
    let db = open(disk.device(), &clock()).expect("open");
    create_table(&db, HistoryPolicy::None);
    insert(&db, &row(1, 1, ""));
    let open_txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = open_txn.begin_statement().expect("statement");
    statement
        .point_insert(&table(&db), &row(2, 2, ""))
        .expect("insert");
    insert(&db, &row(3, 3, ""));
    let disk = disk.after_crash(1);
    let db = open(disk.device(), &clock()).expect("reopen");
    let report = db.checkpoint(true).expect("checkpoint");
    assert_eq!(report.merged_ranges, 1);
    assert_eq!(count(&db), 2);
    no_damage(&db);
}

#[test]
fn a_full_disk_fails_the_checkpoint_and_nothing_else() {
    let disk = SimDisk::new(1);
    let wall = clock();
    let db = open(disk.device(), &wall).expect("open");
    create_table(&db, HistoryPolicy::Forever);
    db.checkpoint(true).expect("checkpoint");
    let mut expected = 0;
    for round in 0..6 {
        for k in round * 100..round * 100 + 100 {
            insert(&db, &row(k, k, &"some text ".repeat(40)));
            expected += 1;
        }
        let used = disk.used_bytes();
        disk.limit_capacity(Some(used + 4096 * round as u64 + 100));
        let before = files(&*disk.device(), "");
        let failed = (0..4)
            .filter_map(|_| db.checkpoint(round % 2 == 0).err())
            .next_back();
        if let Some(error) = &failed {
            assert_eq!(error.sqlstate(), SqlState::DISK_FULL, "{error}");
            assert_eq!(
                files(&*disk.device(), ""),
                before,
                "round {round}: files left behind"
            );
        } else {
            assert!(round > 0, "the limit has no effect");
        }
        assert_eq!(count(&db), expected);
        disk.limit_capacity(None);
        no_damage(&db);
        let killed = disk.after_kill();
        let again = open(killed.device(), &wall).expect("reopen");
        assert_eq!(count(&again), expected, "round {round}");
        no_damage(&again);
    }
    db.checkpoint(true).expect("there is room again");
    let killed = disk.after_kill();
    drop(db);
    let db = open(killed.device(), &wall).expect("reopen");
    assert_eq!(count(&db), expected);
}

#[test]
fn loads_that_are_rolled_back_leave_neither_rows_nor_files() {
    let device = Arc::new(MemoryDevice::new());
    let db = open(device.clone(), &clock()).expect("open");
    create_table(&db, HistoryPolicy::Forever);
    for by_savepoint in [false, true] {
        let txn = db.begin(TxnOptions::default()).expect("begin");
        let savepoint = txn.savepoint();
        let statement = txn.begin_statement().expect("statement");
        assert_eq!(load(&statement, 0..10_000).expect("load"), 10_000);
        statement.finish().expect("keys");
        let statement = txn.begin_statement().expect("statement");
        let set = [(ColumnId(1), Value::BigInt(-1))];
        let t = table(&db);
        assert!(
            statement
                .point_update(&t, 0, &[Value::BigInt(7)], &set)
                .expect("update")
        );
        assert_eq!(files(&*device, "chunks").len(), 1);
        if by_savepoint {
            txn.rollback_to(&savepoint).expect("rollback to");
            let statement = txn.begin_statement().expect("statement");
            statement
                .point_insert(&t, &row(7, 7, "after"))
                .expect("the key is free");
            txn.commit().expect("commit");
        } else {
            txn.rollback();
        }
        db.checkpoint(false).expect("checkpoint");
        assert_eq!(files(&*device, "chunks"), Vec::<String>::new());
        assert_eq!(count(&db), usize::from(by_savepoint));
        no_damage(&db);
    }
    // A load that is given up in the middle.
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let mut half = statement.bulk_insert(&table(&db)).expect("load");
    half.append(&batch(&rows(1000..70_000))).expect("append");
    drop(half);
    txn.rollback();
    db.checkpoint(false).expect("checkpoint");
    assert_eq!(files(&*device, "chunks"), Vec::<String>::new());
    assert_eq!(get(&db, 7), Some(row(7, 7, "after").to_vec()));
}

#[test]
fn a_load_that_goes_on_after_its_transaction_ended_is_refused() {
    let db = open(Arc::new(MemoryDevice::new()), &clock()).expect("open");
    create_table(&db, HistoryPolicy::None);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let mut late = statement.bulk_insert(&table(&db)).expect("load");
    late.append(&batch(&rows(0..10_000))).expect("append");
    txn.rollback();
    for k in 0..20 {
        insert(&db, &row(k, k, ""));
    }
    let error = late.finish().expect_err("the transaction is over");
    assert_eq!(
        error.sqlstate(),
        SqlState::NO_ACTIVE_SQL_TRANSACTION,
        "{error}"
    );
    assert_eq!(count(&db), 20);
}

#[test]
fn after_close_nothing_is_written_and_what_was_committed_is_there() {
    let device = Arc::new(MemoryDevice::new());
    let db = open(device.clone(), &clock()).expect("open");
    create_table(&db, HistoryPolicy::None);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    statement
        .point_insert(&table(&db), &row(1, 1, "open"))
        .expect("insert");
    let relaxed = TxnOptions {
        synchronous_commit: false,
        ..TxnOptions::default()
    };
    let other = db.begin(relaxed).expect("begin");
    let statement = other.begin_statement().expect("statement");
    statement
        .point_insert(&table(&db), &row(2, 2, "relaxed"))
        .expect("insert");
    other.commit().expect("commit");
    db.close().expect("close");
    let again = open(device, &clock()).expect("the lock is free");
    let error = txn.commit().expect_err("the database is closed");
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert_eq!(
        db.begin(TxnOptions::default()).err().map(|e| e.kind()),
        Some(ErrorKind::Closed)
    );
    insert(&again, &row(3, 3, ""));
    assert_eq!(get(&again, 1), None);
    assert!(get(&again, 2).is_some());
}

#[test]
fn writers_that_wait_for_memory_end_when_the_database_is_closed() {
    let settings = Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        wal_segment_bytes: 1 << 20,
        ..Settings::default()
    };
    let device = Arc::new(MemoryDevice::new());
    let db = Db::open(DbOptions {
        device,
        clock: clock(),
        settings,
    })
    .expect("open");
    create_table(&db, HistoryPolicy::None);
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let text = "x".repeat(1 << 20);
    let mut key = 0;
    // The transaction's own rows cannot be merged: it is refused, and never hangs.
    let error = loop {
        let statement = txn.begin_statement().expect("statement");
        match statement.point_insert(&table(&db), &row(key, 0, &text)) {
            Ok(_) => key += 1,
            Err(e) => break e,
        }
        assert!(key < 100, "no limit");
    };
    assert_eq!(error.sqlstate(), SqlState::OUT_OF_MEMORY, "{error}");
    let other = db.begin(TxnOptions::default()).expect("begin");
    db.close().expect("close");
    let statement = other.begin_statement().expect("statement");
    assert!(
        statement
            .point_insert(&table(&db), &row(-1, 0, ""))
            .is_err()
    );
}

#[test]
fn after_a_failed_sync_writes_are_refused_and_reads_go_on() {
    let disk = SimDisk::new(1);
    let wall = clock();
    let db = open(disk.device(), &wall).expect("open");
    create_table(&db, HistoryPolicy::None);
    insert(&db, &row(1, 1, "safe"));
    disk.fail_sync(1);
    let t = table(&db);
    let error = run(&db, |s| s.point_insert(&t, &row(2, 2, "unknown"))).expect_err("sync failed");
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    let error = run(&db, |s| s.point_insert(&t, &row(3, 3, ""))).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert!(db.checkpoint(true).is_err());
    assert!(get(&db, 1).is_some());
    assert_eq!(get(&db, 2), None, "a commit of unknown outcome is not seen");
    assert_eq!(count(&db), 1);
    for outcome in 0..6 {
        let disk = disk.after_crash(outcome);
        let db = open(disk.device(), &wall).expect("reopen");
        assert!(get(&db, 1).is_some());
        assert_eq!(get(&db, 3), None);
        no_damage(&db);
    }
}

/// The next process reads the lost commit from the cache and shows it: it must be durable by then,
/// and so must what is acknowledged behind it.
#[test]
fn what_is_found_after_a_failed_sync_is_durable_before_anything_is_acknowledged_behind_it() {
    for sync in 1..=4 {
        let disk = SimDisk::new(sync);
        let wall = clock();
        let db = open(disk.device(), &wall).expect("open");
        create_table(&db, HistoryPolicy::None);
        insert(&db, &row(1, 1, "safe"));
        let t = table(&db);
        // In turn: the log, and files and the manifest of a checkpoint.
        disk.fail_sync(sync);
        let _ = run(&db, |s| s.point_insert(&t, &row(2, 2, "unknown")));
        let _ = db.checkpoint(true);
        drop(db);
        let next = disk.after_kill();
        let db = open(next.device(), &wall).expect("reopen");
        let has_unknown = get(&db, 2).is_some();
        insert(&db, &row(3, 3, "acknowledged"));
        for outcome in [0, 1, 7] {
            let disk = next.after_crash(outcome);
            let db = open(disk.device(), &wall).expect("open after the power failure");
            assert!(
                get(&db, 1).is_some() && get(&db, 3).is_some(),
                "sync {sync}"
            );
            assert_eq!(get(&db, 2).is_some(), has_unknown, "sync {sync}");
            no_damage(&db);
        }
    }
}

/// The name of a loaded file is lost by the failed sync of a checkpoint; the load's own sync of the
/// directory would succeed without it.
#[test]
fn after_a_failed_sync_of_the_directory_no_load_is_acknowledged() {
    let mut losses = 0;
    for seed in 0..8 {
        let disk = SimDisk::new(seed);
        let wall = clock();
        let db = open(disk.device(), &wall).expect("open");
        create_table(&db, HistoryPolicy::None);
        insert(&db, &row(-1, 0, "in the log"));
        let txn = db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        load(&statement, 0..5000).expect("load");
        statement.finish().expect("keys");
        disk.fail_directory_sync(1);
        let error = db
            .checkpoint(false)
            .expect_err("the directory's sync failed");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        losses += usize::from(txn.commit().is_err());
        let again = db.checkpoint(false).expect_err("it stays so");
        assert_eq!(again.message(), error.message());
        assert_eq!(
            db.check_health().expect_err("told").message(),
            error.message()
        );
        let t = table(&db);
        let refused = run(&db, |s| s.point_insert(&t, &row(-2, 0, "")));
        assert_eq!(refused.expect_err("writes").message(), error.message());
        assert!(get(&db, -1).is_some(), "reads go on");
        for outcome in 0..4 {
            let disk = disk.after_crash(outcome);
            let db = open(disk.device(), &wall).expect("reopen");
            assert_eq!(count(&db), 1, "seed {seed}");
            no_damage(&db);
        }
    }
    assert_eq!(losses, 8);
}

#[test]
fn timestamps_grow_over_restarts_while_the_clock_goes_back() {
    let device = Arc::new(MemoryDevice::new());
    let wall = clock();
    let mut last = CommitTs::ZERO;
    for round in 0..12 {
        let db = open(device.clone(), &wall).expect("open");
        if round == 0 {
            create_table(&db, HistoryPolicy::Forever);
        }
        assert!(db.stable() >= last, "round {round}");
        let txn = db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        statement
            .point_insert(&table(&db), &row(round, round, ""))
            .expect("insert");
        let ts = txn.commit().expect("commit");
        assert!(ts > last, "round {round}: {ts} after {last}");
        last = ts;
        if round % 3 == 1 {
            db.checkpoint(round % 2 == 0).expect("checkpoint");
        }
        wall.set(1_700_000_000_000_000 - 1_000_000 * round as u64);
    }
}

/// Definitions and loads commit while checkpoints run; whatever was acknowledged survives a kill
/// at any moment.
#[test]
fn checkpoints_miss_no_definition_and_no_load_that_commits_beside_them() {
    let disk = SimDisk::new(1);
    let wall = clock();
    let db = open(disk.device(), &wall).expect("open");
    create_table(&db, HistoryPolicy::None);
    let done = AtomicBool::new(false);
    let loaded = AtomicI64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..40i64 {
                if n % 2 == 0 {
                    alter(&db, |t| t.comment = Some(format!("comment {n}")));
                } else {
                    run(&db, |s| load(s, n * 5000..n * 5000 + 4500)).expect("load");
                }
                loaded.store(n, Ordering::SeqCst);
            }
            done.store(true, Ordering::SeqCst);
        });
        // Small commits keep moving the end of the log.
        scope.spawn(|| {
            let mut k = -1;
            while !done.load(Ordering::SeqCst) {
                // A change of the definition may come between.
                let t = table(&db);
                let _ = run(&db, |s| s.point_insert(&t, &row(k, 0, "")));
                k -= 1;
            }
        });
        while !done.load(Ordering::SeqCst) {
            db.checkpoint(false).expect("checkpoint");
            let acknowledged = loaded.load(Ordering::SeqCst);
            let killed = disk.after_kill();
            let again = open(killed.device(), &wall).expect("reopen");
            let comment = table(&again).comment.clone().unwrap_or_default();
            let n: i64 = comment.trim_start_matches("comment ").parse().unwrap_or(-1);
            assert!(n >= acknowledged - 1, "{comment} after {acknowledged}");
            for n in (1..=acknowledged).step_by(2) {
                assert!(
                    get(&again, n * 5000 + 17).is_some(),
                    "load {n} of {acknowledged}"
                );
            }
        }
    });
}

/// A definition change whose commit fails holds up nobody.
#[test]
fn writers_that_wait_for_a_definition_whose_sync_fails_are_let_go() {
    let disk = SimDisk::new(1);
    let db = open(disk.device(), &clock()).expect("open");
    create_table(&db, HistoryPolicy::None);
    let t = table(&db);
    let ddl = db.begin(TxnOptions::default()).expect("begin");
    alter_in(&ddl, |t| t.comment = Some("never seen".into()));
    std::thread::scope(|scope| {
        let txn = db.begin(TxnOptions::default()).expect("begin");
        let (writing, is_writing) = std::sync::mpsc::channel();
        let t = &t;
        let writer = scope.spawn(move || {
            let statement = txn.begin_statement()?;
            writing.send(()).expect("send");
            statement.point_insert(t, &row(1, 1, ""))?;
            txn.commit()
        });
        is_writing.recv().expect("recv");
        disk.fail_sync(1);
        ddl.commit().expect_err("sync failed");
        let error = writer
            .join()
            .expect("writer")
            .expect_err("writes are refused");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    });
    assert_eq!(table(&db).comment, None);
}
