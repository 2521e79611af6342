//! All engines of the harness against a table in a vector: reads, updates, aborts, conflicts,
//! merges and sums, alone and from many threads.

use super::{Apart, Dbm, Iuh, Layout, Storage};
use crate::lineage::engine::{COLUMNS, Engine, Failure, Point, Step, UPDATED, first_values};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline_base::rng::Rng;

/// Several pages and ranges, the last ones not full.
const ROWS: u64 = 10_000;
const SEED: u64 = 7;

fn engines() -> [Box<dyn Engine>; 5] {
    [
        Box::new(<Iuh>::new(ROWS, SEED)),
        Box::new(Iuh::<Apart>::new(ROWS, SEED)),
        Box::new(Dbm::new(Layout::Columns, ROWS, SEED)),
        Box::new(Dbm::new(Layout::Rows, ROWS, SEED)),
        Box::new(Storage::new(ROWS, SEED).unwrap()),
    ]
}

fn read(point: &mut dyn Point, key: u64) -> Step<[i64; COLUMNS]> {
    let mut values = [0; COLUMNS];
    point.read(key, &mut values)?;
    Ok(values)
}

/// One transaction that must commit.
fn commit(engine: &dyn Engine, mut work: impl FnMut(&mut dyn Point) -> Step<()>) {
    let mut session = engine.session(COLUMNS).unwrap();
    session.transaction(&mut work).unwrap();
}

fn update(engine: &dyn Engine, key: u64, values: [i64; UPDATED]) {
    commit(engine, |point| point.update(key, &values));
}

fn check(engine: &dyn Engine, table: &[[i64; COLUMNS]]) {
    commit(engine, |point| {
        for (key, expected) in table.iter().enumerate() {
            assert_eq!(
                read(point, key as u64)?,
                *expected,
                "{} row {key}",
                engine.name()
            );
        }
        Ok(())
    });
    let mut scanner = engine.scanner().unwrap();
    for rows in [0..ROWS, 0..1, 341..342, 4_000..9_999] {
        let slice = &table[rows.start as usize..rows.end as usize];
        let expected = slice.iter().map(|row| row[0]).sum::<i64>();
        assert_eq!(scanner.sum(rows).unwrap(), expected, "{}", engine.name());
    }
}

#[test]
fn random_transactions_leave_what_they_committed() {
    for engine in engines() {
        let mut table: Vec<_> = (0..ROWS).map(|key| first_values(key, SEED)).collect();
        check(&*engine, &table);
        let mut rng = Rng::new(SEED);
        let mut session = engine.session(COLUMNS).unwrap();
        let mut merges = 0;
        for _ in 0..8_000 {
            let mut after = HashMap::new();
            let abort = rng.one_in(4);
            let done = session.transaction(&mut |point| {
                for _ in 0..rng.below(5) {
                    // Few rows, so that a transaction writes some twice.
                    let key = rng.below(ROWS / 4) * 4 + rng.below(2);
                    let values = std::array::from_fn(|_| rng.below(1 << 30) as i64);
                    point.update(key, &values)?;
                    let mut row = table[key as usize];
                    row[..UPDATED].copy_from_slice(&values);
                    assert_eq!(read(point, key)?, row);
                    after.insert(key as usize, row);
                }
                if abort {
                    Err(Failure::Conflict)
                } else {
                    Ok(())
                }
            });
            assert_eq!(done.is_err(), abort);
            if !abort {
                after.into_iter().for_each(|(key, row)| table[key] = row);
            }
            merges += u64::from(engine.merge());
        }
        check(&*engine, &table);
        assert_eq!(merges > 0, !engine.name().starts_with("IUH"));
    }
}

#[test]
fn a_running_transaction_keeps_its_rows_from_others() {
    for engine in engines() {
        let old = first_values(5, SEED);
        let mut other = engine.session(COLUMNS).unwrap();
        let mut session = engine.session(COLUMNS).unwrap();
        let before = engine.scanner().unwrap().sum(0..ROWS).unwrap();
        let done = session.transaction(&mut |point| {
            point.update(5, &[1, 2, 3, 4])?;
            let conflict = other.transaction(&mut |point| {
                point.update(6, &[9; UPDATED])?;
                assert_eq!(read(point, 5)?, old, "not committed");
                point.update(5, &[9; UPDATED])
            });
            assert!(matches!(conflict, Err(Failure::Conflict)));
            assert_eq!(engine.scanner().unwrap().sum(0..ROWS).unwrap(), before);
            assert_eq!(read(point, 6)?, first_values(6, SEED), "rolled back");
            Ok(())
        });
        done.unwrap();
        let mut expected = old;
        expected[..UPDATED].copy_from_slice(&[1, 2, 3, 4]);
        commit(&*engine, |point| {
            assert_eq!(read(point, 5)?, expected);
            Ok(())
        });
        update(&*engine, 5, [0; UPDATED]);
    }
}

/// Writers move amounts between rows, some roll back, a thread merges: every sum is the same.
#[test]
fn sums_are_of_one_moment() {
    const WRITERS: u64 = 3;
    const SCANS: usize = 200;
    for engine in engines() {
        let engine = &*engine;
        let expected = engine.scanner().unwrap().sum(0..ROWS).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stop = &stop;
            for writer in 0..WRITERS {
                scope.spawn(move || move_amounts(engine, writer, WRITERS, stop));
            }
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    if !engine.merge() {
                        std::thread::yield_now();
                    }
                }
            });
            let mut scanner = engine.scanner().unwrap();
            let sums: Vec<i64> = (0..SCANS).map(|_| scanner.sum(0..ROWS).unwrap()).collect();
            stop.store(true, Ordering::Relaxed);
            assert_eq!(sums, [expected; SCANS], "{}", engine.name());
        });
        assert_eq!(engine.scanner().unwrap().sum(0..ROWS).unwrap(), expected);
    }
}

/// Moves amounts between rows of this writer's own, since read committed alone would lose updates.
fn move_amounts(engine: &dyn Engine, writer: u64, writers: u64, stop: &AtomicBool) {
    let mut rng = Rng::new(writer);
    let mut session = engine.session(COLUMNS).unwrap();
    while !stop.load(Ordering::Relaxed) {
        let mut pick = || rng.below(ROWS / writers) * writers + writer;
        let (from, to) = (pick(), pick());
        let (amount, abort) = (rng.below(100) as i64, rng.one_in(3));
        let done = session.transaction(&mut |point| {
            for (key, change) in [(from, -amount), (to, amount)] {
                let row = read(point, key)?;
                point.update(key, &[row[0] + change, row[1], row[2], row[3]])?;
            }
            if abort {
                Err(Failure::Conflict)
            } else {
                Ok(())
            }
        });
        assert_eq!(done.is_err(), abort);
    }
}

/// Writers of the same rows: one wins, and no update is lost.
#[test]
fn no_update_is_lost_where_writers_meet() {
    const EACH: i64 = 2_000;
    for engine in engines() {
        let engine = &*engine;
        update(engine, 0, [0; UPDATED]);
        let committed: i64 = std::thread::scope(|scope| {
            let spawn = |_| scope.spawn(move || count_up(engine, EACH));
            let writers: Vec<_> = (0..3).map(spawn).collect();
            writers
                .into_iter()
                .map(|writer| writer.join().unwrap())
                .sum()
        });
        commit(engine, |point| {
            assert_eq!(read(point, 0)?[0], committed, "{}", engine.name());
            Ok(())
        });
    }
}

/// Adds 1 to row 0 until `times` have committed; locks the row before it reads it.
fn count_up(engine: &dyn Engine, times: i64) -> i64 {
    let mut session = engine.session(COLUMNS).unwrap();
    let mut committed = 0;
    while committed < times {
        let done = session.transaction(&mut |point| {
            // Row 1 is a lock.
            point.update(1, &[0; UPDATED])?;
            let next = read(point, 0)?[0] + 1;
            point.update(0, &[next; UPDATED])
        });
        match done {
            Ok(()) => committed += 1,
            Err(Failure::Conflict) => std::thread::yield_now(),
            Err(Failure::Error(error)) => panic!("{error}"),
        }
    }
    committed
}
