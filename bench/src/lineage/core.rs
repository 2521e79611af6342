//! One thread of the paper's transactions on a database on disk with `synchronous_commit = off`.

use super::{Bench, ROUNDS};
use crate::Result;
use crate::cpu_time::Sample;
use crate::foundation::point;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::median;
use serde_json::json;

/// Transactions per second that one core is to do.
const GOAL: f64 = 150_000.0;
/// The active set; rows of the table.
const ROWS: u64 = 100_000;

/// Two figures: per second of the thread, and per processor second of all threads.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let ours = point::fill(&bench.shared, ROWS)?;
    let (mut rates, mut by_cpu) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS as u64 {
        let run = point::Run {
            rows: ROWS,
            seconds: bench.shared.seconds,
            seed: bench.shared.seed,
        }
        .in_round(round);
        let before = Sample::take()?;
        let rate = run.transactions(&ours, 1, false)?;
        // The thread itself has ended, and ran all the time.
        let others = Sample::take()?.seconds_since(&before, |_| true);
        rates.push(rate);
        by_cpu.push(rate * run.seconds / (run.seconds + others));
    }
    let figure = |case: &str, unit, ours, goal| Figure {
        case: case.to_string(),
        unit,
        ours,
        peer: "the goal".to_string(),
        theirs: Some(GOAL),
        goal,
        config: config([
            ("rows", json!(ROWS)),
            ("active", json!(ROWS)),
            ("writers", json!(1)),
            ("synchronous_commit", json!("off")),
            ("seconds", json!(bench.shared.seconds)),
            ("rounds", json!(ROUNDS)),
        ]),
    };
    let goal = Some(Goal::AtLeast(1.0));
    report.add(figure(
        "transactions of one thread",
        "tx/s",
        median(rates),
        goal,
    ))?;
    let case = "the same per processor second of all threads";
    report.add(figure(case, "tx/CPU s", median(by_cpu), None))
}
