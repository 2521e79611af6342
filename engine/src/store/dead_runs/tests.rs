use super::*;
use std::collections::BTreeSet;
use strandline_base::rng::Rng;

fn place(number: u64) -> Place {
    let key = KeyBytes::encoded(vec![(number / 4) as u8]);
    // No place lies before the row 0: a split there loses what is before it.
    (key, RowId(number % 4 + 1))
}

fn run(from: u64, last: u64, since: u64) -> DeadRun {
    DeadRun {
        from: place(from),
        last: place(last),
        since: CommitTs(since),
    }
}

/// Publishes a run of `from..=last`; with `joins` it is joined to one that ends right before it.
fn learn(dead: &DeadRuns, (from, last): (u64, u64), since: u64, joins: bool) -> bool {
    let learner = dead.begin(place(from), place(last)).expect("no other one");
    let is_next = |before: &DeadRun| from > 0 && before.last >= place(from - 1);
    let before = learner
        .before
        .clone()
        .filter(|before| joins && is_next(before));
    let run = DeadRun {
        from: before.map_or(place(from), |before| before.from),
        ..run(from, last, since)
    };
    learner.publish(run)
}

fn is_left_out(dead: &DeadRuns, number: u64, ts: u64) -> bool {
    let runs = dead.runs_at(CommitTs(ts));
    runs.is_some_and(|runs| run_of(&runs, &place(number), CommitTs(ts)).is_some())
}

#[test]
fn a_run_holds_from_its_moment_on() {
    let dead = DeadRuns::default();
    assert_eq!(dead.runs_at(CommitTs(9)), None);
    assert!(learn(&dead, (5, 9), 7, false));
    assert_eq!(dead.runs_at(CommitTs(6)), None);
    for number in 0..20 {
        assert_eq!(is_left_out(&dead, number, 7), (5..=9).contains(&number));
        assert!(!is_left_out(&dead, number, 6));
    }
}

#[test]
fn each_run_has_a_moment_of_its_own() {
    let dead = DeadRuns::default();
    assert!(learn(&dead, (1, 2), 5, false) && learn(&dead, (7, 8), 9, false));
    for (ts, expected) in [(4, [false, false]), (5, [true, false]), (9, [true, true])] {
        assert_eq!(
            [1, 7].map(|number| is_left_out(&dead, number, ts)),
            expected
        );
    }
}

#[test]
fn one_learner_at_a_time() {
    let dead = DeadRuns::default();
    let first = dead.begin(place(1), place(2)).expect("the first");
    assert!(dead.begin(place(5), place(6)).is_none());
    drop(first);
    assert!(dead.begin(place(5), place(6)).is_some());
    assert!(
        !dead.watched.load(Ordering::SeqCst),
        "nothing is left of it"
    );
}

#[test]
fn what_is_entered_beside_a_learner_ends_its_run() {
    for (entered, is_kept) in [(4, true), (5, false), (7, false), (9, false), (10, true)] {
        let dead = DeadRuns::default();
        let learner = dead.begin(place(5), place(9)).expect("a learner");
        let (key, row) = place(entered);
        dead.entered(&key, row);
        assert_eq!(learner.publish(run(5, 9, 1)), is_kept, "{entered}");
        assert_eq!(is_left_out(&dead, 7, 1), is_kept);
    }
    let dead = DeadRuns::default();
    assert!(learn(&dead, (1, 3), 1, false));
    let learner = dead.begin(place(5), place(9)).expect("a learner");
    dead.entered_many();
    assert!(!learner.publish(run(5, 9, 1)));
    assert!(!is_left_out(&dead, 2, 1));
    // The run before is made longer: an entry within it counts, too.
    assert!(learn(&dead, (1, 3), 1, false));
    let learner = dead.begin(place(5), place(9)).expect("a learner");
    let (key, row) = place(2);
    dead.entered(&key, row);
    assert!(!learner.publish(run(1, 9, 1)));
}

#[test]
fn the_oldest_run_makes_room() {
    let dead = DeadRuns::default();
    for no in 0..RUNS_MAX as u64 {
        assert!(learn(&dead, (20 * no, 20 * no + 5), 100 - no, false));
    }
    assert!(learn(&dead, (1000, 1004), 100, false));
    let runs = dead.runs_at(CommitTs(100)).expect("runs");
    assert_eq!(runs.len(), RUNS_MAX);
    let gone = run(20 * 15, 20 * 15 + 5, 85);
    assert!(!runs.contains(&gone), "the one of the earliest moment");
}

/// Runs leave out just what was learned and has not been entered since.
#[test]
fn as_a_set() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let dead = DeadRuns::default();
        let mut model = BTreeSet::new();
        for _ in 0..1 + rng.below(60) {
            let (from, length) = (rng.below(60), rng.below(12));
            if rng.one_in(4) {
                let (key, row) = place(from);
                dead.entered(&key, row);
                model.remove(&from);
            } else {
                let joins = rng.one_in(2);
                assert!(learn(&dead, (from, from + length), 1, joins));
                model.extend(from..=from + length);
            }
            let runs = dead.runs_at(CommitTs(1)).unwrap_or_default();
            assert!(runs.len() <= RUNS_MAX);
            assert!(runs.iter().all(|run| run.from <= run.last));
            assert!(runs.is_sorted_by(|a, b| a.last < b.from));
            for number in 0..80 {
                let is_out = is_left_out(&dead, number, 1);
                // A full list has lost some.
                assert!(!is_out || model.contains(&number), "{seed}: {number}");
                if model.len() < RUNS_MAX {
                    assert_eq!(is_out, model.contains(&number), "{seed}: {number}");
                }
            }
            assert_eq!(dead.watched.load(Ordering::SeqCst), !runs.is_empty());
        }
    }
}
