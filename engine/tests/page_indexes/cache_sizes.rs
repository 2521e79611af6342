//! The size of the SSD cache and what it takes, changed while the database is open: under load, at
//! crashes, on a full disk.

use crate::common::*;
use crate::faults::{begin, insert_some, update_some, verify};
use crate::machine::{CACHE_BYTES, Machine, PAGE, Place};
use crate::support::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_engine::*;

const PC: Place = Place::Cached(SsdCacheMode::Pc);
/// Bytes of a slot.
const SLOT: u64 = PAGE + 512;

fn change(db: &Db, change: impl FnOnce(&mut CacheSettings)) -> Result<()> {
    db.change_caches(|caches| {
        change(caches);
        Ok(())
    })
}

fn resize(db: &Db, slots: u64) -> Result<()> {
    change(db, |caches| caches.ssd_cache_bytes = slots * SLOT)
}

fn stats(db: &Db) -> SsdCacheStats {
    db.ssd_cache_stats().expect("a cache")
}

fn file_bytes(machine: &Machine) -> u64 {
    machine.fast.content("ssd-cache").expect("the slots").len() as u64
}

/// Work between whose parts the size changes. Without background threads a turn makes the steps.
fn work(db: &Arc<Db>) -> Result<()> {
    insert_some(db, 0..40)?;
    db.checkpoint(true)?;
    for (round, slots) in [40, 9, 8, 0, 12].into_iter().enumerate() {
        let round = round as i64;
        update_some(db, 100 * (round + 1))?;
        resize(db, slots)?;
        insert_some(db, 40 + round * 5..45 + round * 5)?;
        db.merge_due(false)?;
        update_some(db, 100 * (round + 1) + 50)?;
        db.checkpoint(round % 2 == 0)?;
    }
    Ok(())
}

#[test]
fn a_cache_shrinks_under_load_and_grows_again() {
    for mode in [SsdCacheMode::Pc, SsdCacheMode::Pc2, SsdCacheMode::Lc] {
        let (machine, wall, db) = begin(3, Place::Cached(mode));
        resize(&db, 60).expect("more");
        assert_eq!((stats(&db).slots, file_bytes(&machine)), (60, 60 * SLOT));
        insert_some(&db, 0..60).expect("insert");
        insert_some(&db, 100..400).expect("insert");
        db.checkpoint(true).expect("checkpoint");
        let before = stats(&db);
        assert!(before.blocks > 12, "{mode:?}: {before:?}");
        resize(&db, 8).expect("less");
        assert_sound(&db, "pages beyond the size are still there");
        for round in 1..=4 {
            update_some(&db, 100 * round).expect("update");
            db.merge_due(false).expect("a turn");
        }
        let after = stats(&db);
        assert!(after.slots == 8 && after.blocks <= 8, "{mode:?}: {after:?}");
        assert!(after.copied_out > before.copied_out || mode == SsdCacheMode::Lc);
        assert_eq!(file_bytes(&machine), 8 * SLOT, "{mode:?}: the file is cut");
        assert_sound(&db, "smaller");
        resize(&db, 0).expect("nothing");
        db.merge_due(false).expect("a turn");
        assert_eq!((stats(&db).blocks, file_bytes(&machine)), (0, 0));
        update_some(&db, 900).expect("update");
        db.checkpoint(true).expect("checkpoint");
        assert_sound(&db, "without a slot");
        resize(&db, 20).expect("more");
        update_some(&db, 1000).expect("update");
        db.checkpoint(true).expect("checkpoint");
        assert!(stats(&db).slots == 20, "{mode:?}");
        drop(db);
        verify(&machine.after_crash(0), &wall, &format!("{mode:?}"));
    }
}

/// The cache's thread shrinks it beside writers and checkpoints.
#[test]
fn threads_write_while_the_size_changes() {
    let (machine, wall, db) = begin(4, PC);
    drop(db);
    let settings = Settings {
        background_maintenance: true,
        ..machine.settings()
    };
    let db = open_with(machine.device(), &wall, settings).expect("open");
    insert_some(&db, 0..40).expect("insert");
    std::thread::scope(|scope| {
        let db = &db;
        scope.spawn(move || {
            for round in 0..40 {
                update_some(db, 100 * round).expect("update");
            }
        });
        scope.spawn(move || {
            for _ in 0..6 {
                db.checkpoint(false).expect("checkpoint");
            }
        });
        for round in 0..30 {
            resize(db, [8, 30, 0, 12, 60][round % 5]).expect("another size");
        }
    });
    assert_sound(&db, "after the changes");
    db.close().expect("close");
    drop(db);
    verify(&machine.after_crash(0), &wall, "threads");
}

#[test]
fn a_crash_at_any_operation_of_a_change_loses_nothing() {
    let stride = std::env::var("STRANDLINE_CRASH_STRIDE").ok();
    let stride = stride.and_then(|stride| stride.parse().ok()).unwrap_or(13);
    let (machine, _, db) = begin(5, PC);
    let first = machine.fast.operations();
    work(&db).expect("no crash");
    drop(db);
    let operations = machine.fast.operations();
    for point in (first + 1..=operations).step_by(stride) {
        let (machine, wall, db) = begin(5, PC);
        machine.fast.crash_at(point);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&db)));
        drop((outcome, db));
        for seed in [0, 2 + point] {
            let what = format!("crash at {point} of {operations}, outcome {seed}");
            let crashed = machine.after_crash(seed);
            let twice = crashed.after_crash(1);
            twice.fast.crash_at(1 + point % 40);
            if let Ok(db) = twice.open(&wall) {
                let _ = resize(&db, point % 30).and_then(|()| db.merge_due(false).map(drop));
            }
            verify(&twice.after_crash(seed), &wall, &format!("{what}, twice"));
            verify(&crashed, &wall, &what);
        }
    }
}

#[test]
fn a_full_disk_refuses_a_larger_cache_and_not_a_smaller_one() {
    let (machine, wall, db) = begin(6, PC);
    insert_some(&db, 0..40).expect("insert");
    db.checkpoint(true).expect("checkpoint");
    machine.leave_room(Some(100));
    let error = resize(&db, 200).expect_err("no room");
    assert_eq!(error.sqlstate(), SqlState::DISK_FULL, "{error}");
    assert!(error.message().contains("ssd_cache_bytes") && error.hint().is_some());
    assert_eq!(
        db.cache_settings().ssd_cache_bytes,
        CACHE_BYTES,
        "as before"
    );
    assert_eq!(stats(&db).slots, CACHE_BYTES / SLOT);
    machine.leave_room(None);
    resize(&db, 200).expect("room");
    resize(&db, 9).expect("less");
    assert_eq!(db.cache_settings().ssd_cache_bytes, 9 * SLOT);
    drop(db);
    verify(&machine, &wall, "a full disk");
}

#[test]
fn a_failed_cache_is_not_changed() {
    let (machine, wall, db) = begin(7, PC);
    insert_some(&db, 0..40).expect("insert");
    machine.fast.fail_sync(1);
    while db.failing_work().is_empty() {
        let _ = db.merge_due(false);
        if update_some(&db, 7).is_err() {
            return; // The sync was the log's.
        }
    }
    let error = resize(&db, 40).expect_err("it has failed");
    assert_eq!(error.sqlstate(), SqlState::IO_ERROR, "{error}");
    drop(db);
    verify(&machine.after_crash(0), &wall, "failed");
}

#[test]
fn the_memory_of_the_directory_follows_the_size() {
    let (_machine, _wall, db) = begin(8, PC);
    let keys = || {
        let counters = db.counters();
        let found = counters.iter().find(|(name, _)| *name == "key_bytes");
        found.expect("a counter").1
    };
    let before = keys();
    for slots in [400, 8, 0, 12] {
        resize(&db, slots).expect("another size");
        assert_eq!(keys(), before, "{slots} slots are not memory of keys");
    }
}

#[test]
fn the_admission_can_be_changed() {
    let (_machine, _wall, db) = begin(9, PC);
    let admit = |rule| change(&db, |caches| caches.ssd_cache_admission = rule);
    resize(&db, 200).expect("room for all pages");
    admit(SsdCacheAdmission::Nothing).expect("changed");
    insert_some(&db, 0..60).expect("insert");
    db.checkpoint(true).expect("checkpoint");
    assert_eq!(stats(&db).admissions, 0);
    admit(SsdCacheAdmission::Qualified).expect("changed");
    update_some(&db, 100).expect("update");
    db.checkpoint(true).expect("checkpoint");
    assert!(stats(&db).admissions > 0);
    assert_sound(&db, "admission");
}

fn refused(db: &Db, wish: impl FnOnce(&mut CacheSettings), state: SqlState) {
    let before = db.cache_settings();
    let error = change(db, wish).expect_err("refused");
    assert_eq!(error.sqlstate(), state, "{error}");
    assert!(error.hint().is_some(), "{error}");
    assert_eq!(db.cache_settings(), before, "nothing has changed");
}

#[test]
fn values_that_no_cache_can_have_are_refused() {
    let open = |place: Place| -> (Arc<ManualClock>, Arc<Db>) {
        let (machine, wall) = (Machine::new(1, place), clock());
        let db = machine.open(&wall).expect("open");
        (wall, db)
    };
    let (_wall, db) = open(PC);
    let bad = SqlState::INVALID_PARAMETER_VALUE;
    refused(&db, |c| c.ssd_cache_bytes = 1000, bad);
    refused(&db, |c| c.ssd_cache_bytes = 1 << 50, bad);
    let state = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
    refused(&db, |c| c.block_cache_bytes = 8 << 20, bad);
    refused(&db, |c| c.block_cache_bytes = 16 << 20, state);
    let (_wall, db) = open(Place::TwoDirectories);
    refused(&db, |c| c.ssd_cache_bytes = 1 << 20, state);
    let everything = SsdCacheAdmission::Everything;
    refused(&db, |c| c.ssd_cache_admission = everything, state);
    let (_wall, db) = open(Place::OneDirectory);
    refused(&db, |c| c.ssd_cache_bytes = 1 << 20, bad);
}

/// A cache for which the disk has no room is smaller than its setting, and the database says so.
#[test]
fn a_cache_larger_than_its_disk_is_told() {
    let (machine, wall, db) = begin(5, PC);
    assert_eq!(db.failing_work(), Vec::<String>::new());
    drop(db);
    let machine = machine.after_kill();
    let mut settings = machine.settings();
    settings.ssd_cache_bytes = 1_200 * SLOT;
    let open = || open_with(machine.device(), &wall, settings.clone()).expect("open");
    machine.leave_room(Some(1 << 20));
    let db = open();
    let told = db.failing_work();
    assert_eq!(told.len(), 1, "{told:?}");
    let slots = stats(&db).slots;
    let most = (CACHE_BYTES + (1 << 20)) / SLOT;
    assert!((most / 2..most).contains(&slots), "{slots} of {most}");
    let parts = [
        format!("ssd_cache_bytes is {}", 1_200 * SLOT),
        format!("the cache has {} bytes", slots * SLOT),
    ];
    assert!(parts.iter().all(|part| told[0].contains(part)), "{told:?}");
    db.check_health().expect("it costs reads and no work");
    assert_sound(&db, "with a smaller cache");
    drop(db);
    machine.leave_room(None);
    let db = open();
    assert_eq!(db.failing_work(), Vec::<String>::new());
    assert_eq!(stats(&db).slots, 1_200);
}
