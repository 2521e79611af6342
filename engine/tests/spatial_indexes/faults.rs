//! Crashes, twice in a row, damage, lost files, and a backup: an index over places has every entry,
//! or is built again by the opening.
//!
//! `STRANDLINE_CRASH_STRIDE` sets how many operations lie between two crash points.

use crate::common::*;
use crate::machine::{Machine, Place, in_places};
use crate::places::*;
use crate::support::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_device::MemoryDevice;
use strandline_engine::catalog::HistoryPolicy;
use strandline_engine::*;

fn begin(seed: u64, place: Place) -> (Machine, Arc<ManualClock>, Arc<Db>) {
    let (disk, wall) = (Machine::new(seed, place), clock());
    let db = disk.open(&wall).expect("open");
    create_places(&db, HistoryPolicy::None);
    create_alone(&db, &rtree("t_p", P)).expect("create");
    create_alone(&db, &rtree("t_b", B)).expect("create");
    (disk, wall, db)
}

/// Enough for several nodes: a leaf has at most 169 entries.
const MANY: i64 = 400;

fn insert_some(db: &Arc<Db>, keys: std::ops::Range<i64>) -> Result<()> {
    let t = table(db);
    run(db, |s| {
        for k in keys {
            s.point_insert(&t, &place(k, (k * 7 % 20) as f64, (k * 3 % 11) as f64))?;
        }
        Ok(())
    })
}

fn update_some(db: &Arc<Db>, by: f64) -> Result<()> {
    let t = table(db);
    run(db, |s| {
        for k in (0..30).step_by(3) {
            let [_, p, b] = place(k, k as f64 + by, -by);
            let set = [(ColumnId(P), p), (ColumnId(B), b)];
            s.point_update(&t, 0, &[Value::BigInt(k)], &set)?;
        }
        Ok(())
    })
}

fn workload(db: &Arc<Db>) -> Result<()> {
    insert_some(db, 0..MANY)?;
    db.checkpoint(true)?;
    update_some(db, 100.0)?;
    let txn = db.begin(TxnOptions::default())?;
    let statement = txn.begin_statement()?;
    for k in MANY..MANY + 5 {
        statement.point_insert(&table(db), &place(k, 77.0, 77.0))?;
    }
    statement.finish()?;
    // Its entries become durable with the next commit.
    insert_some(db, MANY + 10..MANY + 20)?;
    txn.rollback();
    db.checkpoint(false)?;
    alter(db, |t| drop_index(t, "t_b"));
    create_online(db, &rtree("t_b", B))?;
    update_some(db, 200.0)?;
    db.checkpoint(true).map(|_| ())
}

fn stride(place: Place) -> usize {
    let given = std::env::var("STRANDLINE_CRASH_STRIDE").ok();
    let chosen = match place {
        Place::OneDirectory => 13,
        Place::TwoDirectories => 29,
        Place::Cached(_) => 43,
    };
    given
        .and_then(|stride| stride.parse().ok())
        .unwrap_or(chosen)
}

/// The files of pages on a device.
fn page_files(machine: &Machine) -> BTreeSet<String> {
    files(&*machine.device(), "pages-").into_iter().collect()
}

/// The files that the indexes name.
fn named_files(db: &Db) -> BTreeSet<String> {
    let t = table(db);
    let numbers = t.indexes.iter().filter_map(|def| def.file_number);
    numbers.map(|n| format!("pages-{n:08x}")).collect()
}

fn verify(disk: &Machine, wall: &Arc<ManualClock>, what: &str) {
    let db = disk.open(wall).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_places_sound(&db, what);
    assert_eq!(page_files(disk), named_files(&db), "{what}");
    // New rows take the places of rows that the crash has ended.
    insert_some(&db, MANY + 70..MANY + 75).expect("insert");
    assert_places_sound(&db, what);
    for _ in 0..2 {
        db.checkpoint(true).expect("checkpoint");
    }
    assert_places_sound(&db, what);
}

/// A crash at an operation, then one at an operation of the recovery or behind it.
fn places_are_found_after_two_crashes(place: Place) {
    let (disk, _, db) = begin(1, place);
    let first = disk.fast.operations();
    workload(&db).expect("workload without a crash");
    drop(db);
    let operations = disk.fast.operations();
    for point in (first + 1..=operations).step_by(stride(place)) {
        let (disk, wall, db) = begin(1, place);
        disk.fast.crash_at(point);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| workload(&db)));
        drop((outcome, db));
        let seed = [0, 1, 2 + point][point as usize % 3];
        let what = format!("crash at {point} of {operations}, outcome {seed}");
        let crashed = disk.after_crash(seed);
        verify(&crashed.after_kill(), &wall, &what);
        let twice = crashed.after_crash(1);
        twice.fast.crash_at(1 + point % 23);
        if let Ok(db) = twice.open(&wall) {
            let more = insert_some(&db, MANY + 80..MANY + 82);
            let _ = more.and_then(|()| db.checkpoint(false));
        }
        let what = format!("{what}, then another one");
        verify(&twice.after_crash(seed), &wall, &what);
    }
}

/// A closed database with the index `t_p`, and the name of its file.
fn closed(seed: u64, place: Place) -> (Machine, Arc<ManualClock>, String) {
    let (disk, wall, db) = begin(seed, place);
    insert_some(&db, 0..MANY).expect("insert");
    update_some(&db, 5.0).expect("update");
    db.checkpoint(true).expect("checkpoint");
    let number = named(&table(&db), "t_p").file_number.expect("a file");
    db.close().expect("close");
    drop(db);
    (disk.after_crash(0), wall, format!("pages-{number:08x}"))
}

fn a_damaged_root_is_built_again_by_the_opening(place: Place) {
    let (disk, wall, file) = closed(3, place);
    disk.damage(&file);
    let db = disk.open(&wall).expect("open");
    assert!(!named_files(&db).contains(&file));
    assert_places_sound(&db, "built again");
    for _ in 0..2 {
        db.checkpoint(true).expect("checkpoint");
    }
    assert!(!page_files(&disk).contains(&file));
    drop(db);
    verify(&disk.after_crash(1), &wall, "damaged");
}

fn a_missing_file_is_built_again_by_the_opening(place: Place) {
    let (disk, wall, file) = closed(4, place);
    disk.files().device().remove(&file).expect("removed");
    verify(&disk, &wall, "missing");
}

/// A closed index is opened as it is: no file is made, and nothing is read but by searches.
fn a_file_is_kept_over_openings(place: Place) {
    let (disk, wall, file) = closed(5, place);
    let before = page_files(&disk);
    for round in 0..3 {
        let db = disk.open(&wall).expect("open");
        assert_eq!(page_files(&disk), before, "opening {round}");
        assert!(before.contains(&file));
        assert_places_sound(&db, "opened");
        update_some(&db, f64::from(round)).expect("update");
        db.close().expect("close");
    }
}

in_places! {
    one_directory = Place::OneDirectory,
    two_directories = Place::TwoDirectories;
    [
        places_are_found_after_two_crashes,
        a_damaged_root_is_built_again_by_the_opening,
        a_missing_file_is_built_again_by_the_opening,
        a_file_is_kept_over_openings,
    ]
}

in_places! {
    cached = Place::Cached(SsdCacheMode::Pc);
    [
        places_are_found_after_two_crashes,
        a_missing_file_is_built_again_by_the_opening,
        a_file_is_kept_over_openings,
    ]
}

/// A backup has no page files; its first opening builds the indexes.
#[test]
fn a_backup_has_its_indexes_after_the_first_opening() {
    let (_, wall, db) = begin(6, Place::OneDirectory);
    insert_some(&db, 0..MANY).expect("insert");
    update_some(&db, 9.0).expect("update");
    let copy = Arc::new(MemoryDevice::new());
    let target: Arc<dyn Device> = copy.clone();
    db.backup(&target, &|_| true).expect("a backup");
    assert_eq!(files(&*copy, "pages-").len(), 0);
    let db = open(copy.clone(), &wall).expect("the copy");
    assert_places_sound(&db, "the copy");
    assert_eq!(files(&*copy, "pages-").len(), 2);
}
