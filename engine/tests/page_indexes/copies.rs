//! Backups, restored databases, rewinds and openings that may only read: files of indexes are never
//! copied, and every index of the copy has what a scan finds.
//!
//! `STRANDLINE_CRASH_STRIDE` sets how many operations lie between two crash points.

use crate::common::*;
use crate::faults::{insert_some, update_some, verify};
use crate::files::{named_files, page_files};
use crate::machine::{Machine, Place, in_places};
use crate::support::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_device::OsDevice;
use strandline_engine::catalog::{HistoryPolicy, KeyDef};
use strandline_engine::*;

fn every(_: CopyProgress) -> bool {
    true
}

/// A table with history, two indexes and an ordered key.
fn define(db: &Arc<Db>) {
    create_table(db, HistoryPolicy::Forever);
    create_alone(db, &index("t_a", vec![part(1)])).expect("create");
    create_alone(db, &index("t_b", vec![part(2)])).expect("create");
    let key = KeyDef::new("t_ak_key", false, vec![ColumnId(1), ColumnId(0)]);
    alter(db, |t| {
        t.keys.push(key.clone().with_ordered_index(crate::STORAGE))
    });
}

fn begin(seed: u64, place: Place) -> (Machine, Arc<ManualClock>, Arc<Db>) {
    let (disk, wall) = (Machine::new(seed, place), clock());
    let db = disk.open(&wall).expect("open");
    define(&db);
    (disk, wall, db)
}

/// The whole database now.
fn state(db: &Arc<Db>) -> State {
    state_at(db, db.stable())
}

/// An empty machine like another one.
fn another(disk: &Machine) -> Machine {
    Machine::new(77, disk.place)
}

/// Where a backup goes: one directory.
fn backup_place() -> Machine {
    Machine::new(78, Place::OneDirectory)
}

/// Opens a copy, whose indexes the opening builds, and once more.
fn assert_is_copy(copy: &Machine, wall: &Arc<ManualClock>, expected: &State, what: &str) {
    assert_eq!(page_files(&*copy.device()).len(), 0, "{what}");
    let mut named = None;
    for opening in 0..2 {
        let what = format!("{what}, opening {opening}");
        let db = copy.open(wall).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(&state(&db), expected, "{what}");
        assert_sound(&db, &what);
        assert_eq!(page_files(&*copy.device()), named_files(&db), "{what}");
        // What the first opening has built is there for the second one.
        let before = named.replace(named_files(&db));
        assert!(before.is_none() || before == named, "{what}");
        db.close().unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    verify(copy, wall, what);
}

/// Backups between changes, with writers between two pieces of a copy: a compaction or a move of a
/// block is under way in some of them.
fn a_backup_beside_changes_is_sound(place: Place) {
    let (disk, wall, db) = begin(1, place);
    for round in 0..12 {
        insert_some(&db, 20 * round..20 * round + 20).expect("insert");
        update_some(&db, 100 * round).expect("update");
        if round % 3 == 1 {
            db.merge_due(false).expect("a turn");
        }
        if round % 2 == 0 {
            continue;
        }
        let copy = backup_place();
        let target: Arc<dyn Device> = copy.device();
        let writer = |_: CopyProgress| {
            let written = insert_some(&db, 20 * round + 1_000..20 * round + 1_003);
            // A later piece finds the rows.
            written.is_ok_and(|()| true) || db.checkpoint(true).is_ok()
        };
        let report = db.backup(&target, &writer).expect("backup");
        let expected = state_at(&db, report.as_of);
        assert_is_copy(&copy, &wall, &expected, &format!("backup {round}"));
        assert_sound(&db, "the source");
    }
    drop(db);
    verify(&disk.after_crash(1), &wall, "the source");
}

/// A directory is restored as it was left, closed or by a crash. Its log has changes of index files
/// that the copy does not have.
fn a_directory_is_restored_without_the_files_of_its_indexes(place: Place) {
    for is_closed in [true, false] {
        let (disk, wall, db) = begin(2, place);
        insert_some(&db, 0..80).expect("insert");
        db.checkpoint(true).expect("checkpoint");
        insert_some(&db, 80..120).expect("insert");
        update_some(&db, 300).expect("update");
        let expected = state(&db);
        if is_closed {
            db.close().expect("close");
        }
        drop(db);
        let source = disk.after_kill();
        let before = source.fast.operations();
        let copy = another(&source);
        restore(&*source.device(), &*copy.device(), &every).expect("restore");
        assert_eq!(source.fast.operations(), before, "the source is only read");
        assert_is_copy(&copy, &wall, &expected, &format!("closed: {is_closed}"));
        let db = source.open(&wall).expect("open the source");
        assert_sound(&db, "the source");
    }
}

/// A full disk ends the opening of a restored database, or it works without some indexes; with
/// room the next opening has all.
fn a_restored_database_is_opened_on_a_full_disk(place: Place) {
    let (disk, wall, db) = begin(3, place);
    insert_some(&db, 0..60).expect("insert");
    let backup = backup_place();
    let target: Arc<dyn Device> = backup.device();
    db.backup(&target, &every).expect("backup");
    let expected = state(&db);
    for room in (0..12).map(|room| room << 13) {
        let what = format!("room {room}");
        let copy = another(&disk);
        restore(&*backup.device(), &*copy.device(), &every).expect("restore");
        copy.leave_room(Some(room));
        match copy.open(&wall) {
            Ok(db) => assert_eq!(state(&db), expected, "{what}"),
            Err(error) => assert_eq!(error.sqlstate(), SqlState::DISK_FULL, "{what}: {error}"),
        }
        copy.leave_room(None);
        let db = copy.open(&wall).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(state(&db), expected, "{what}");
        drop(db);
        verify(&copy, &wall, &what);
    }
}

/// Rows of a moment, and everything changed since: rows, keys, and one index.
fn changed(seed: u64, place: Place) -> (Machine, Arc<ManualClock>, Arc<Db>, CommitTs) {
    let (disk, wall, db) = begin(seed, place);
    insert_some(&db, 0..90).expect("insert");
    db.checkpoint(true).expect("checkpoint");
    update_some(&db, 50).expect("update");
    let moment = db.stable();
    wall.advance(1_000);
    update_some(&db, 700).expect("update");
    run(&db, |s| {
        let t = table(&db);
        (0..90)
            .step_by(4)
            .try_for_each(|k| s.point_delete(&t, 0, &[Value::BigInt(k)]).map(drop))
    })
    .expect("delete");
    insert_some(&db, 200..230).expect("insert");
    alter(&db, |t| drop_index(t, "t_b"));
    create_online(&db, &index("t_ba", vec![part(2), part(1)])).expect("create");
    db.merge_due(false).expect("a turn");
    (disk, wall, db, moment)
}

/// The state of the moment, with its indexes in new files. The past can still be read.
fn a_rewind_has_indexes_of_its_moment(place: Place) {
    let (disk, wall, db, moment) = changed(4, place);
    let (then, newest, before) = (state_at(&db, moment), db.stable(), named_files(&db));
    let later = state_at(&db, newest);
    db.rewind(moment).expect("rewind");
    assert_eq!(state(&db), then);
    assert!(named_files(&db).is_disjoint(&before), "a new storage");
    assert_eq!(named(&table(&db), "t_b").name, "t_b");
    assert_sound(&db, "rewound");
    insert_some(&db, 300..320).expect("insert");
    assert_eq!(past(&db, moment), then, "the past");
    assert_eq!(past(&db, newest), later, "the past");
    for _ in 0..2 {
        db.checkpoint(true).expect("checkpoint");
    }
    assert_eq!(page_files(&*disk.device()), named_files(&db));
    assert_sound(&db, "goes on");
    drop(db);
    for seed in [0, 1] {
        verify(&disk.after_crash(seed), &wall, &format!("outcome {seed}"));
    }
}

/// The rows of a moment, by the definition of that moment.
fn past(db: &Arc<Db>, moment: CommitTs) -> State {
    let catalog = db.catalog_at(moment).expect("a catalog");
    let t = catalog.table("public", "t").expect("t").clone();
    let rows = run(db, |s| {
        Ok(scan_all(&s.scan_as_of(&t, moment, request())?))
    });
    rows.expect("a scan")
}

fn stride() -> usize {
    let given = std::env::var("STRANDLINE_CRASH_STRIDE").ok();
    given.and_then(|stride| stride.parse().ok()).unwrap_or(31)
}

/// A crash at an operation of a rewind leaves the state before or that of the moment.
fn a_crash_in_a_rewind_leaves_one_of_both_states(place: Place) {
    let (disk, _, db, moment) = changed(5, place);
    let (before, then) = (state(&db), state_at(&db, moment));
    let first = disk.fast.operations();
    db.rewind(moment).expect("rewind");
    db.checkpoint(true).expect("checkpoint");
    let operations = disk.fast.operations();
    drop(db);
    let mut met = BTreeMap::from([(false, 0), (true, 0)]);
    for point in (first + 1..=operations).step_by(stride()) {
        let (disk, wall, db, moment) = changed(5, place);
        disk.fast.crash_at(point);
        let _ = db.rewind(moment).and_then(|_| db.checkpoint(true));
        drop(db);
        for seed in [0, 1, 2 + point] {
            let what = format!("crash at {point} of {operations}, outcome {seed}");
            let crashed = disk.after_crash(seed);
            let db = crashed
                .open(&wall)
                .unwrap_or_else(|e| panic!("{what}: {e}"));
            let found = state(&db);
            assert!(found == before || found == then, "{what}");
            *met.entry(found == then).or_default() += 1;
            drop(db);
            verify(&crashed, &wall, &what);
        }
    }
    assert!(met.values().all(|met| *met > 0), "{met:?}");
}

/// A rewind that finds no room changes nothing. With room it is done.
fn a_full_disk_refuses_a_rewind(place: Place) {
    let mut refused = 0;
    for room in (0..8).map(|room| room << 14) {
        let what = format!("room {room}");
        let (disk, wall, db, moment) = changed(6, place);
        let (before, then) = (state(&db), state_at(&db, moment));
        disk.leave_room(Some(room));
        if let Err(error) = db.rewind(moment) {
            assert_eq!(error.sqlstate(), SqlState::DISK_FULL, "{what}: {error}");
            refused += 1;
            assert_eq!(state(&db), before, "{what}");
            assert_sound(&db, &what);
            disk.leave_room(None);
            db.rewind(moment).unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        disk.leave_room(None);
        assert_eq!(state(&db), then, "{what}");
        for _ in 0..2 {
            db.checkpoint(true)
                .unwrap_or_else(|e| panic!("{what}: {e}"));
        }
        assert_eq!(page_files(&*disk.device()), named_files(&db), "{what}");
        drop(db);
        verify(&disk.after_crash(1), &wall, &what);
    }
    assert!(refused >= 2, "{refused} rewinds");
}

/// The names and the bytes of the files in a directory.
fn contents(directory: &std::path::Path) -> BTreeMap<std::ffi::OsString, Vec<u8>> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let entries = entries.map(|entry| entry.expect("an entry"));
    let read = |path| std::fs::read(path).expect("a file");
    entries
        .map(|entry| (entry.file_name(), read(entry.path())))
        .collect()
}

/// A directory that may only be read is not opened, and nothing in it changes; a copy is made from
/// it, and where it may be written again its indexes are as they were.
#[test]
fn a_directory_that_may_only_be_read_stays_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let open_there = |wall: &Arc<ManualClock>| {
        let device: Arc<dyn Device> = Arc::new(OsDevice::open(directory.path()).expect("a device"));
        open_with(device, wall, eager(6)).expect("open")
    };
    let wall = clock();
    let db = open_there(&wall);
    define(&db);
    insert_some(&db, 0..60).expect("insert");
    db.checkpoint(false).expect("checkpoint");
    update_some(&db, 200).expect("in the log");
    let (expected, files) = (state(&db), named_files(&db));
    drop(db);
    let before = contents(directory.path());
    let read_only = || Arc::new(OsDevice::open_read_only(directory.path()).expect("a device"));
    let refused = open_with(read_only(), &wall, eager(6))
        .err()
        .expect("refused");
    assert_ne!(refused.sqlstate(), SqlState::DATA_CORRUPTED, "{refused}");
    assert!(contents(directory.path()) == before, "after {refused}");
    let copy = Machine::new(1, Place::OneDirectory);
    restore(&*read_only(), &*copy.device(), &every).expect("restore");
    assert!(contents(directory.path()) == before, "restored");
    assert_is_copy(&copy, &wall, &expected, "the copy");
    let db = open_there(&wall);
    assert_eq!(named_files(&db), files, "nothing was built");
    assert_eq!(state(&db), expected);
    assert_sound(&db, "opened again");
}

in_places! {
    one_directory = Place::OneDirectory,
    two_directories = Place::TwoDirectories;
    [
        a_backup_beside_changes_is_sound,
        a_directory_is_restored_without_the_files_of_its_indexes,
        a_restored_database_is_opened_on_a_full_disk,
        a_rewind_has_indexes_of_its_moment,
        a_crash_in_a_rewind_leaves_one_of_both_states,
        a_full_disk_refuses_a_rewind,
    ]
}
