//! A disk, or one of two, that fills up beside writers, and gets room again: the same database goes
//! on, and every index has what a scan finds, before and after.

use crate::common::*;
use crate::faults::{begin, verify};
use crate::files::{named_files, page_files};
use crate::machine::{Machine, Place, in_places};
use crate::support::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_base::rng::Rng;
use strandline_engine::*;
use strandline_sim::SimDisk;

/// Rows before the disk is limited, and rows that one round adds.
const ROWS: i64 = 60;
const ROUND: i64 = 12;
/// Rounds of writers on a limited disk.
const ROUNDS: i64 = 40;
/// Turns in which the pauses of failed work end.
const TURNS: usize = 40;

/// The acknowledged rows.
type Rows = BTreeMap<i64, Vec<Value>>;

/// A row with few values of `a`, and texts of which each 7th has the length that goes into a block.
fn row_of(k: i64, a: i64) -> [Value; 3] {
    match k % 7 {
        0 => row(k, a, &format!("short {}", k % 5)),
        _ => row(k, a, &format!("{}{}", "text ".repeat(60), k % 50)),
    }
}

/// The changes of a transaction: adds rows, moves some to other keys and removes some.
fn change(db: &Arc<Db>, round: i64, rows: &mut Rows) -> Result<()> {
    let (t, mut changed) = (table(db), rows.clone());
    let from = ROWS + round * ROUND;
    run(db, |s| {
        for k in from..from + ROUND {
            let added = row_of(k, k % 4);
            s.point_insert(&t, &added)?;
            changed.insert(k, added.to_vec());
        }
        for k in (from - ROWS..from).step_by(11) {
            let set = [(ColumnId(1), Value::BigInt(round % 3))];
            if s.point_update(&t, 0, &[Value::BigInt(k)], &set)? {
                changed.insert(k, row_of(k, round % 3).to_vec());
            }
        }
        for k in (from - ROWS..from).step_by(17) {
            if s.point_delete(&t, 0, &[Value::BigInt(k)])? {
                changed.remove(&k);
            }
        }
        Ok(())
    })?;
    *rows = changed;
    Ok(())
}

fn assert_full(outcome: Result<()>) -> bool {
    if let Err(error) = &outcome {
        assert_eq!(error.sqlstate(), SqlState::DISK_FULL, "{error}");
    }
    outcome.is_err()
}

/// The rows are the acknowledged ones, and what every index finds.
fn assert_rows(db: &Arc<Db>, rows: &Rows, what: &str) {
    let found = run(db, |s| Ok(scanned(s, &table(db)))).expect("a scan");
    assert_eq!(found, sorted(rows.values().cloned().collect()), "{what}");
    assert_sound(db, what);
}

/// Writers and the maintenance on a limited disk, from a round on. Returns how many steps the disk
/// has refused.
fn fill(db: &Arc<Db>, wall: &ManualClock, from: i64, rows: &mut Rows) -> u64 {
    let mut refused = 0;
    for round in from..ROUNDS {
        refused += u64::from(assert_full(change(db, round, rows)));
        wall.advance(10_000);
        let turn = match round % 4 {
            0 => db.checkpoint(true).map(drop),
            _ => db.merge_due(false).map(drop),
        };
        refused += u64::from(assert_full(turn));
    }
    refused
}

/// With room for all, the pauses end, nothing fails, and writers and checkpoints go on.
fn assert_goes_on(db: &Arc<Db>, wall: &ManualClock, rows: &mut Rows, what: &str) {
    let goes_on = |outcome: Result<()>| outcome.unwrap_or_else(|e| panic!("{what}: {e}"));
    for round in ROUNDS..ROUNDS + 5 {
        goes_on(change(db, round, rows));
    }
    for _ in 0..TURNS {
        wall.advance(60_000_000);
        goes_on(db.merge_due(true).map(drop));
    }
    goes_on(db.checkpoint(true).map(drop));
    assert_eq!(db.failing_work(), Vec::<String>::new(), "{what}");
    db.check_health().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_rows(db, rows, what);
}

/// Some of a machine's disks.
type DisksOf = fn(&Machine) -> Vec<&SimDisk>;

/// The disks that fill up, by name.
fn limited(place: Place) -> Vec<(&'static str, DisksOf)> {
    let mut limited: Vec<(&'static str, DisksOf)> =
        vec![("all disks", |machine| machine.disks().collect())];
    if place != Place::OneDirectory {
        limited.push(("the fast disk", |machine| vec![&machine.fast]));
        limited.push(("the capacity disk", |machine| {
            machine.capacity.iter().collect()
        }));
    }
    limited
}

fn begun(seed: u64, place: Place) -> (Machine, Arc<ManualClock>, Arc<Db>, Rows) {
    let (disk, wall, db) = begin(seed, place);
    let (t, mut rows) = (table(&db), Rows::new());
    let inserted = run(&db, |s| {
        for k in 0..ROWS {
            s.point_insert(&t, &row_of(k, k % 4))?;
            rows.insert(k, row_of(k, k % 4).to_vec());
        }
        Ok(())
    });
    inserted.expect("insert");
    db.checkpoint(true).expect("checkpoint");
    (disk, wall, db, rows)
}

/// Room in bytes that is left to a disk. The least does not take a block or a page.
const ROOMS: [u64; 4] = [1 << 11, 1 << 14, 1 << 16, 3 << 16];

fn a_database_goes_on_when_there_is_room(place: Place) {
    for (name, disks) in limited(place) {
        let mut refused = 0;
        for room in ROOMS {
            let what = format!("{room} bytes of {name}");
            let (disk, wall, db, mut rows) = begun(room, place);
            for one in disks(&disk) {
                one.limit_capacity(Some(one.used_bytes() + room));
            }
            refused += fill(&db, &wall, 0, &mut rows);
            assert_rows(&db, &rows, &what);
            let killed = disk.after_kill();
            disk.leave_room(None);
            assert_goes_on(&db, &wall, &mut rows, &what);
            assert_eq!(page_files(&*disk.device()), named_files(&db), "{what}");
            db.close().unwrap_or_else(|e| panic!("{what}: {e}"));
            drop(db);
            for (found, how) in [(disk.after_crash(room), "closed"), (killed, "killed")] {
                found.leave_room(None);
                verify(&found, &wall, &format!("{what}, {how}"));
            }
        }
        assert!(refused > 0, "{name} never filled up");
    }
}

/// An opening without any room replays the log into indexes, and resumes compactions.
fn a_full_disk_is_opened_and_goes_on(place: Place) {
    for rounds in [1, 3, 9] {
        let what = format!("{rounds} rounds");
        let (disk, wall, db, mut rows) = begun(3, place);
        for round in 0..rounds {
            change(&db, round, &mut rows).expect("change");
            db.merge_due(false).expect("a turn");
        }
        drop(db);
        let disk = disk.after_kill();
        disk.leave_room(Some(0));
        let db = disk.open(&wall).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_rows(&db, &rows, &what);
        let refused = fill(&db, &wall, rounds, &mut rows);
        assert!(refused > 0, "{what}");
        assert_rows(&db, &rows, &what);
        disk.leave_room(None);
        assert_goes_on(&db, &wall, &mut rows, &what);
    }
}

/// A bulk load that finds no room adds nothing. With room it adds all.
fn a_bulk_load_that_finds_no_room_leaves_nothing(place: Place) {
    const LOADED: i64 = 240;
    // Texts that do not compress.
    let mut rng = Rng::new(1);
    let mut text = || -> String {
        let words = (0..25).map(|_| format!("{:016x}", rng.next_u64()));
        words.collect()
    };
    let rows: Vec<_> = (1_000..1_000 + LOADED)
        .map(|k| (k, Some(k % 9), text()))
        .collect();
    let load = |db: &Arc<Db>| {
        run(db, |s| {
            let mut load = s.bulk_insert(&table(db))?;
            for some in rows.chunks(50) {
                load.append(&batch(some))?;
            }
            load.finish().map(drop)
        })
    };
    for room in [1 << 12, 1 << 14, 1 << 15] {
        let what = format!("room {room}");
        let (disk, wall, db, mut model) = begun(room, place);
        disk.leave_room(Some(room));
        assert!(assert_full(load(&db)), "{what}");
        assert_rows(&db, &model, &what);
        let crashed = disk.after_crash(room);
        disk.leave_room(None);
        load(&db).unwrap_or_else(|e| panic!("{what}: {e}"));
        let added = rows
            .iter()
            .map(|(k, a, b)| (*k, row(*k, a.unwrap_or(0), b).to_vec()));
        model.extend(added);
        assert_rows(&db, &model, &what);
        db.checkpoint(true).expect("checkpoint");
        drop(db);
        crashed.leave_room(None);
        for found in [crashed, disk.after_crash(1)] {
            verify(&found, &wall, &what);
        }
    }
}

in_places! {
    one_directory = Place::OneDirectory,
    two_directories = Place::TwoDirectories;
    [
        a_database_goes_on_when_there_is_room,
        a_full_disk_is_opened_and_goes_on,
        a_bulk_load_that_finds_no_room_leaves_nothing,
    ]
}
