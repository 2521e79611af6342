//! A full disk: writes that need space are refused, and what frees space works.

mod common;

use common::*;
use std::sync::Arc;
use strandline_engine::catalog::{HistoryPolicy, TableDef};
use strandline_engine::*;
use strandline_sim::SimDisk;

const KIB: u64 = 1 << 10;

fn open_full(disk: &SimDisk) -> Arc<Db> {
    open_on(disk.device())
}

fn open_on(device: Arc<dyn Device>) -> Arc<Db> {
    let settings = Settings {
        wal_segment_bytes: 64 * KIB,
        reserve_bytes: 256 * KIB,
        background_maintenance: false,
        recovery_threads: 1,
        merge_threads: 1,
        ..Settings::default()
    };
    Db::open(DbOptions {
        device,
        clock: Arc::new(SystemClock),
        settings,
    })
    .expect("open")
}

fn create(db: &Arc<Db>, name: &str, history: HistoryPolicy) {
    let txn = db.begin(TxnOptions::default()).expect("begin");
    txn.change_catalog(&mut |catalog| {
        let columns = vec![
            column(0, "k", SqlType::BigInt, true),
            column(1, "a", SqlType::BigInt, false),
            column(2, "b", SqlType::Text, false),
        ];
        let mut table = definition(catalog, columns, history);
        table.name = name.into();
        catalog.put_table(table);
        Ok(())
    })
    .expect("create");
    txn.commit().expect("commit");
}

fn named(db: &Db, name: &str) -> Arc<TableDef> {
    db.catalog().table("public", name).expect("a table").clone()
}

/// A text that does not compress.
fn text(seed: u64) -> String {
    let mut rng = strandline_base::rng::Rng::new(seed);
    (0..64)
        .map(|_| format!("{:016x}", rng.next_u64()))
        .collect()
}

/// Inserts one row of 1 KiB.
fn put(db: &Arc<Db>, name: &str, k: i64) -> Result<()> {
    let t = named(db, name);
    run(db, |s| s.point_insert(&t, &row(k, k, &text(k as u64)))).map(|_| ())
}

fn edit(db: &Arc<Db>, edit: impl Fn(&mut catalog::Catalog)) -> Result<CommitTs> {
    let txn = db.begin(TxnOptions::default())?;
    txn.change_catalog(&mut |catalog| {
        edit(catalog);
        Ok(())
    })?;
    txn.commit()
}

fn drop_table(db: &Arc<Db>, name: &str) -> Result<CommitTs> {
    let id = named(db, name).id;
    edit(db, |catalog| drop(catalog.tables.remove(&id)))
}

fn truncate(db: &Arc<Db>, name: &str) -> Result<CommitTs> {
    let old = named(db, name);
    edit(db, |catalog| {
        let storage = catalog.new_storage_id();
        catalog.put_table(TableDef {
            storage,
            ..TableDef::clone(&old)
        });
    })
}

fn delete_all(db: &Arc<Db>, name: &str) -> Result<()> {
    let t = named(db, name);
    run(db, |s| {
        let keys = scan_values(s, &t);
        for key in keys {
            assert!(s.point_delete(&t, 0, &key[..1])?);
        }
        Ok(())
    })
}

/// Tables `big` (400 KiB in chunks) and `small`, and a disk that `small` then has filled.
fn filled(history: HistoryPolicy) -> (SimDisk, Arc<Db>, i64) {
    let disk = SimDisk::new(9);
    disk.limit_capacity(Some(2_000 * KIB));
    let db = open_full(&disk);
    create(&db, "big", history);
    create(&db, "small", history);
    (0..400).for_each(|k| put(&db, "big", k).expect("big"));
    db.checkpoint(true).expect("checkpoint");
    let mut rows = 0;
    let refused = loop {
        match put(&db, "small", rows) {
            Ok(()) => rows += 1,
            Err(error) => break error,
        }
        if rows % 50 == 0 && db.checkpoint(false).is_err() {
            // The log is left.
        }
        assert!(rows < 3_000, "the disk never fills up");
    };
    assert_eq!(refused.sqlstate(), SqlState::DISK_FULL, "{refused}");
    (disk, db, rows)
}

/// All is as before: new rows are taken, and the old ones are there, also after a crash.
fn assert_well(disk: &SimDisk, db: &Arc<Db>, rows: i64) {
    db.check_health().expect("well");
    for k in rows..rows + 100 {
        put(db, "small", k).expect("there is room");
    }
    assert!(db.check().expect("check").is_empty());
    let crashed = disk.after_crash(0);
    crashed.limit_capacity(Some(2_000 * KIB));
    for db in [db.clone(), open_full(&crashed)] {
        let small = named(&db, "small");
        let txn = db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        let found = scan_values(&statement, &small);
        assert_eq!(found.len() as i64, rows + 100);
        assert!(db.check().expect("check").is_empty());
    }
}

#[test]
fn a_table_is_dropped_on_a_full_disk() {
    let (disk, db, rows) = filled(HistoryPolicy::None);
    let health = db.check_health().expect_err("full").to_string();
    assert!(health.contains("checkpoints fail"), "{health}");
    assert!(
        health.contains("space") || health.contains("full"),
        "{health}"
    );
    // That of the only checkpoint that has merged.
    let chunks = |disk: &SimDisk| {
        let names = Device::list(&*disk.device()).expect("list");
        names.into_iter().find(|name| name.starts_with("chunks-"))
    };
    let of_big = chunks(&disk).expect("a file");
    drop_table(&db, "big").expect("needs no space of its own");
    db.checkpoint(false).expect("frees");
    assert_ne!(chunks(&disk), Some(of_big));
    assert_well(&disk, &db, rows);
}

/// No checkpoint has failed yet: the commits tell.
#[test]
fn a_commit_without_room_is_told_until_one_finds_room() {
    let disk = SimDisk::new(9);
    let db = open_full(&disk);
    create(&db, "small", HistoryPolicy::None);
    db.checkpoint(true).expect("checkpoint");
    let full = || disk.limit_capacity(Some(disk.used_bytes()));
    let refused = |from: i64| {
        let refused = (from..from + 3_000).find_map(|k| put(&db, "small", k).err());
        let error = refused.expect("the disk fills up");
        assert_eq!(error.sqlstate(), SqlState::DISK_FULL, "{error}");
        let is_named = |text: &str| {
            text.contains("the database's directory \"sim\"") && text.contains("\"wal-")
        };
        assert!(is_named(error.message()), "{error}");
        assert!(error.hint().is_some());
        let health = db.check_health().expect_err("commits are refused");
        assert_eq!(health.sqlstate(), SqlState::DISK_FULL, "{health}");
        assert!(is_named(health.message()), "{health}");
    };
    full();
    refused(0);
    disk.limit_capacity(None);
    put(&db, "small", 10_000).expect("room");
    db.check_health().expect("a commit has found room");
    full();
    refused(20_000);
    disk.limit_capacity(None);
    db.merge_due(false).expect("a turn");
    db.check_health().expect("the log has room");
}

/// What is full is named: a directory of one tier may be, while the other one has room.
#[test]
fn the_directory_without_room_for_its_reserve_is_named() {
    for is_capacity_full in [false, true] {
        let fast = SimDisk::new(9);
        let capacity = fast.beside(10);
        let room = Some(10_000 * KIB);
        fast.limit_capacity(room);
        capacity.limit_capacity(room);
        let open = || {
            let tiers = TieredDevice::new(fast.device(), capacity.device(), "/capacity");
            open_on(Arc::new(tiers.expect("tiers")))
        };
        let db = open();
        create(&db, "small", HistoryPolicy::None);
        db.close().expect("close");
        drop(db);
        let (full, name, tier) = match is_capacity_full {
            true => (&capacity, "reserve-capacity", "the capacity directory"),
            false => (&fast, "reserve", "the database's directory"),
        };
        full.device().remove(name).expect("removed");
        full.limit_capacity(Some(full.used_bytes() + 10));
        let db = open();
        let error = put(&db, "small", 1).expect_err("full");
        assert_eq!(error.sqlstate(), SqlState::DISK_FULL, "{error}");
        let place = format!("{tier} \"sim\": sim: \"{name}\"");
        assert!(error.message().contains(&place), "{error}");
        let health = db.check_health().expect_err("full");
        assert!(health.message().contains(&place), "{health}");
        full.limit_capacity(room);
        db.checkpoint(false).expect("room");
        db.check_health().expect("well");
        put(&db, "small", 1).expect("room");
    }
}

#[test]
fn a_full_capacity_tier_stops_merges_until_it_has_room() {
    let fast = SimDisk::new(9);
    let capacity = fast.beside(10);
    capacity.limit_capacity(Some(1_000 * KIB));
    let open = |fast: &SimDisk, capacity: &SimDisk| {
        let tiers = TieredDevice::new(fast.device(), capacity.device(), "/capacity");
        open_on(Arc::new(tiers.expect("tiers")))
    };
    let assert_rows = |db: &Arc<Db>, rows: i64| {
        let txn = db.begin(TxnOptions::default()).expect("begin");
        let statement = txn.begin_statement().expect("statement");
        let found = scan_values(&statement, &named(db, "small"));
        assert_eq!(found.len() as i64, rows);
        assert!(db.check().expect("check").is_empty());
    };
    let db = open(&fast, &capacity);
    assert!(capacity.content("reserve-capacity").is_some());
    create(&db, "big", HistoryPolicy::None);
    create(&db, "small", HistoryPolicy::None);
    (0..400).for_each(|k| put(&db, "big", k).expect("big"));
    db.checkpoint(true).expect("checkpoint");
    let mut rows = 0;
    let full = loop {
        (rows..rows + 50).for_each(|k| put(&db, "small", k).expect("the log has room"));
        rows += 50;
        if let Err(error) = db.checkpoint(true) {
            break error;
        }
        assert!(rows < 3_000, "the disk never fills up");
    };
    assert_eq!(full.sqlstate(), SqlState::DISK_FULL, "{full}");
    let health = db.check_health().expect_err("full").to_string();
    assert!(health.contains("checkpoints fail"), "{health}");
    // What is committed is in the log, also after a crash.
    assert_rows(&open(&fast.after_crash(0), &capacity.after_crash(0)), rows);
    drop_table(&db, "big").expect("needs no space of its own");
    db.checkpoint(true).expect("frees");
    assert!(capacity.content("reserve-capacity").is_some());
    db.check_health().expect("well");
    (rows..rows + 50).for_each(|k| put(&db, "small", k).expect("room"));
    db.checkpoint(true).expect("room");
    drop(db);
    assert_rows(&open(&fast, &capacity), rows + 50);
}

#[test]
fn a_table_is_emptied_on_a_full_disk() {
    let (disk, db, rows) = filled(HistoryPolicy::None);
    truncate(&db, "big").expect("needs no space of its own");
    db.checkpoint(false).expect("frees");
    assert_well(&disk, &db, rows);
}

#[test]
fn rows_are_deleted_on_a_full_disk() {
    let (disk, db, rows) = filled(HistoryPolicy::None);
    delete_all(&db, "big").expect("needs no space of its own");
    db.checkpoint(false).expect("frees");
    assert_well(&disk, &db, rows);
}

#[test]
fn history_is_given_up_on_a_full_disk() {
    let (disk, db, rows) = filled(HistoryPolicy::Forever);
    drop_table(&db, "small").err();
    drop(db);
    drop(disk);
    let (disk, db, more) = filled(HistoryPolicy::For(3_600_000_000));
    assert_eq!(rows, more, "the same disk");
    let id = named(&db, "big").id;
    edit(&db, |catalog| {
        let mut table = TableDef::clone(&catalog.tables[&id]);
        table.history = HistoryPolicy::None;
        catalog.put_table(table);
    })
    .expect("a new definition");
    let dropped_at = drop_table(&db, "big").expect("drop");
    db.checkpoint(false).expect("frees");
    assert_well(&disk, &db, rows);
    // The moments of the dropped table are gone, and said to be, also after a restart.
    drop(db);
    let db = open_full(&disk);
    let past = CommitTs(dropped_at.0 - 1);
    let big = db.catalog_at(past).expect("the catalog is kept");
    let big = big.table("public", "big").expect("there then").clone();
    let txn = db.begin(TxnOptions::default()).expect("begin");
    let statement = txn.begin_statement().expect("statement");
    let gone = statement
        .scan_as_of(&big, past, request())
        .err()
        .expect("gone");
    assert_eq!(gone.sqlstate(), SqlState::SNAPSHOT_TOO_OLD);
}

#[test]
fn a_full_disk_is_told_and_its_end_too() {
    let (disk, db, rows) = filled(HistoryPolicy::None);
    let failing = |db: &Db| {
        let counters = db.counters();
        let found = counters.iter().find(|c| c.0 == "checkpoints_failing");
        found.expect("a counter").1
    };
    let _ = db.checkpoint(false);
    assert_eq!(failing(&db), 1);
    let refused = put(&db, "small", rows).expect_err("full");
    assert!(
        refused.hint().is_some_and(|hint| hint.contains("DROP")),
        "{refused}"
    );
    // Somebody makes room.
    disk.limit_capacity(Some(4_000 * KIB));
    db.checkpoint(false).expect("works");
    assert_eq!(failing(&db), 0);
    assert_well(&disk, &db, rows);
}
