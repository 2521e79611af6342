//! The size of the block cache and what it admits, changed while the database is open.

use crate::common::*;
use crate::machine::*;
use std::sync::Arc;
use strandline_engine::*;

/// Bytes of a cache of so many segments.
fn bytes_of(segments: u64) -> u64 {
    4096 + segments * u64::from(SEGMENT_BYTES)
}

fn change(db: &Db, change: impl FnOnce(&mut CacheSettings)) -> Result<()> {
    db.change_caches(|caches| {
        change(caches);
        Ok(())
    })
}

fn resize(db: &Db, bytes: u64) -> Result<()> {
    change(db, |caches| caches.block_cache_bytes = bytes)
}

fn file_bytes(machine: &Machine) -> u64 {
    machine.cache_file().expect("a cache").len() as u64
}

#[test]
fn a_cache_shrinks_and_grows_while_rows_are_read() {
    let (machine, wall, db, model) = begin(1);
    drop(db);
    warm_up(&machine, &wall, &model);
    let db = machine.open(&wall).expect("open");
    for segments in [20, 2, 8] {
        resize(&db, bytes_of(segments)).expect("another size");
        assert_eq!(file_bytes(&machine), bytes_of(segments));
        assert_eq!(stats(&db).cache_bytes, segments * u64::from(SEGMENT_BYTES));
        assert_eq!(db.cache_settings().block_cache_bytes, bytes_of(segments));
        assert_right(&db, &model, &format!("{segments} segments"));
        db.merge_due(false).expect("a turn");
    }
    let filled = stats(&db).blocks;
    assert!(filled > 0);
    resize(&db, 0).expect("nothing");
    let empty = stats(&db);
    assert_eq!((empty.blocks, empty.cache_bytes), (0, 0));
    assert_right(&db, &model, "without a segment");
    assert_eq!(stats(&db).admissions, empty.admissions);
    resize(&db, CACHE_BYTES).expect("again");
    drop(db);
    warm_up(&machine, &wall, &model);
    let db = machine.open(&wall).expect("open");
    assert_right(&db, &model, "the size of the settings again");
    assert!(stats(&db).hits > 0 && db.failing_work().is_empty());
}

#[test]
fn threads_read_while_the_size_changes() {
    let (machine, wall, db, model) = begin(2);
    drop(db);
    let settings = Settings {
        background_maintenance: true,
        ..with_cache()
    };
    let db = open_with(machine.device(), &wall, settings).expect("open");
    std::thread::scope(|scope| {
        let (db, model) = (&db, &model);
        for _ in 0..2 {
            scope.spawn(move || {
                for _ in 0..6 {
                    assert_eq!(&read_rows(db, 0..ROWS).expect("reads"), model);
                }
            });
        }
        for round in 0..60 {
            resize(db, [bytes_of(2), bytes_of(30), 0][round % 3]).expect("another size");
        }
    });
    assert_right(&db, &model, "after the changes");
    assert_eq!(stats(&db).damaged, 0);
    db.close().expect("close");
}

#[test]
fn the_memory_follows_the_size_and_is_not_that_of_keys() {
    let (_machine, _wall, db, _) = begin(3);
    let keys = || {
        let counters = db.counters();
        let found = counters.iter().find(|(name, _)| *name == "key_bytes");
        found.expect("a counter").1
    };
    let before = keys();
    for bytes in [bytes_of(100), 0, bytes_of(2)] {
        resize(&db, bytes).expect("another size");
        assert_eq!(keys(), before, "{bytes}");
    }
}

fn refused(db: &Arc<Db>, bytes: u64, state: SqlState) {
    let before = db.cache_settings();
    let error = resize(db, bytes).expect_err("refused");
    assert_eq!(error.sqlstate(), state, "{error}");
    assert!(error.hint().is_some(), "{error}");
    assert_eq!(db.cache_settings(), before, "nothing has changed");
}

#[test]
fn values_that_no_cache_can_have_are_refused() {
    let (machine, _wall, db, model) = begin(4);
    refused(&db, 1, SqlState::INVALID_PARAMETER_VALUE);
    refused(&db, 1 << 50, SqlState::INVALID_PARAMETER_VALUE);
    machine
        .fast
        .limit_capacity(Some(machine.fast.used_bytes() + 100));
    refused(&db, bytes_of(40), SqlState::DISK_FULL);
    machine.fast.limit_capacity(None);
    assert_right(&db, &model, "as before");
    assert_eq!(file_bytes(&machine), CACHE_BYTES);
    let plain = Machine::new(5);
    let db = plain.open_plain(&clock()).expect("open");
    let state = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
    refused(&db, CACHE_BYTES.max(16 << 20), state);
}

#[test]
fn a_closed_database_changes_no_cache() {
    let (machine, wall, db, model) = begin(7);
    db.close().expect("close");
    let next = machine.open(&wall).expect("the next one");
    let error = resize(&db, bytes_of(2)).expect_err("closed");
    assert_eq!(error.sqlstate(), SqlState::ADMIN_SHUTDOWN, "{error}");
    assert_eq!(file_bytes(&machine), CACHE_BYTES);
    assert_right(&next, &model, "the next one");
}

#[test]
fn the_admission_can_be_changed() {
    let (machine, wall, db, model) = begin(6);
    drop(db);
    let db = machine.open(&wall).expect("open");
    let second = BlockCacheAdmission::SecondRead;
    change(&db, |caches| caches.block_cache_admission = second).expect("changed");
    let before = stats(&db).admissions;
    assert_eq!(a_of(&db, 0).expect("a read"), model.get(&0).copied());
    assert_eq!(stats(&db).admissions, before, "read once");
    assert_eq!(db.cache_settings().block_cache_admission, second);
}
