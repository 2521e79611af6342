//! Crashes at every k-th operation, then one more during or after the recovery: rows are right, and
//! the cache goes on.
//!
//! `STRANDLINE_CRASH_STRIDE` sets how many operations lie between two crash points.

use crate::machine::*;
use std::sync::Arc;
use strandline_base::ManualClock;
use strandline_engine::*;

/// What a crash may leave.
#[derive(Clone)]
struct Expected {
    /// acknowledged
    sure: Model,
    /// the commit that the crash may have ended
    maybe: Option<Model>,
}

impl Expected {
    fn attempt(&mut self, work: impl FnOnce(&mut Model) -> Result<()>) -> Result<()> {
        let mut next = self.sure.clone();
        let outcome = work(&mut next);
        match outcome.is_ok() {
            true => self.sure = next,
            false => self.maybe = Some(next),
        }
        outcome
    }

    /// Every row, read by itself, is one that the crash may have left; the others are forgotten.
    fn resolve(&mut self, db: &Arc<Db>, what: &str) -> Result<()> {
        let found = read_rows(db, 0..260)?;
        if let Some(maybe) = self.maybe.take()
            && maybe == found
        {
            self.sure = maybe;
        }
        assert_eq!(found, self.sure, "{what}");
        Ok(())
    }
}

/// Opens the database a few times, changes and reads it.
fn work(machine: &Machine, wall: &Arc<ManualClock>, expected: &mut Expected) -> Result<()> {
    for round in 0..3 {
        let db = machine.open(wall)?;
        expected.resolve(&db, "at work")?;
        let keys = 100 + 20 * round..120 + 20 * round;
        let is_new = !expected.sure.contains_key(&keys.start);
        expected.attempt(|model| match is_new {
            true => load_some(&db, model, keys, 5),
            false => set_some(&db, model, keys, 6),
        })?;
        expected.attempt(|model| set_some(&db, model, 0..20, 10 + round))?;
        db.checkpoint(round != 1)?;
        expected.resolve(&db, "after a checkpoint")?;
        db.merge_due(false)?;
        expected.attempt(|model| set_some(&db, model, 20..30, 20 + round))?;
    }
    Ok(())
}

/// Everything is right, now and after an orderly end. The hits of the second opening.
fn verify(machine: &Machine, wall: &Arc<ManualClock>, mut expected: Expected, what: &str) -> u64 {
    let db = machine.open(wall).unwrap_or_else(|e| panic!("{what}: {e}"));
    expected.resolve(&db, what).expect("reads");
    assert_eq!(db.check().expect("check"), Vec::<String>::new(), "{what}");
    assert_right(&db, &expected.sure, what);
    set_some(&db, &mut expected.sure, 30..40, 99).expect("update");
    db.checkpoint(true).expect("checkpoint");
    assert_right(&db, &expected.sure, what);
    drop(db);
    let db = machine.open(wall).expect("open");
    assert_right(&db, &expected.sure, what);
    assert_eq!(db.failing_work(), Vec::<String>::new(), "{what}");
    stats(&db).hits
}

fn stride() -> usize {
    let given = std::env::var("STRANDLINE_CRASH_STRIDE").ok();
    given.and_then(|stride| stride.parse().ok()).unwrap_or(11)
}

#[test]
fn rows_are_right_after_two_crashes() {
    let begin_work = || {
        let (machine, wall, db, sure) = begin(1);
        drop(db);
        (machine, wall, Expected { sure, maybe: None })
    };
    let (machine, wall, mut expected) = begin_work();
    let first = machine.fast.operations();
    work(&machine, &wall, &mut expected).expect("no crash");
    let operations = machine.fast.operations();
    let (mut hits, mut crashes) = (0, 0);
    for point in (first + 1..=operations).step_by(stride()) {
        let (machine, wall, mut expected) = begin_work();
        machine.fast.crash_at(point);
        let _ = work(&machine, &wall, &mut expected);
        crashes += u64::from(machine.fast.has_crashed());
        for seed in [0, 1, 2 + point] {
            let what = format!("crash at {point} of {operations}, outcome {seed}");
            hits += verify(&machine.after_crash(seed), &wall, expected.clone(), &what);
            let twice = machine.after_crash(seed);
            let second = 1 + point * 7 % (operations - first);
            twice.fast.crash_at(second);
            let mut expected = expected.clone();
            let _ = work(&twice, &wall, &mut expected);
            let what = format!("{what}, then at {second}");
            hits += verify(&twice.after_crash(seed), &wall, expected, &what);
        }
    }
    assert!(crashes > 8 && hits > 0, "{crashes} crashes, {hits} hits");
}
