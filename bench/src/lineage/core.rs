//! One thread of the paper's transactions on a database on disk with `synchronous_commit = off`.
//! Beside it run the engine's own merges and one thread that scans 10 % of the table over and over.

use super::engine::Engine;
use super::ours::Strandline;
use super::workload::Measured;
use super::{Bench, ROUNDS};
use crate::Result;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::Spread;
use serde_json::json;

/// The goal in transactions per second for one core.
const GOAL: f64 = 150_000.0;
/// Rows that transactions choose from.
const ACTIVE: u64 = 100_000;

/// Adds two figures: transactions per second, and per processor second of all threads but the
/// scanning one.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    // Free the image, which would be half of the process's memory.
    bench.image = None;
    let path = bench.shared.fresh("core.strandline")?;
    let engine = Strandline::on_disk(&path, bench.rows, bench.shared.seed)?;
    let mut load = bench.load(1, ACTIVE);
    load.seconds = bench.shared.seconds;
    load.warm(&engine as &dyn Engine)?;
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        load.seed += 1;
        rounds.push(load.measure(&engine as &dyn Engine)?);
    }
    let by_class: Vec<_> = rounds.iter().map(|round| round.cpu.json()).collect();
    let mut figure = |case: &str, unit, number: fn(&Measured) -> f64, goal| {
        let mut settings = load.config();
        settings.extend(config([
            ("synchronous_commit", json!("off")),
            ("rounds", json!(ROUNDS)),
            ("cpu_per_second", json!(by_class)),
        ]));
        report.add(Figure {
            case: case.to_string(),
            unit,
            ours: Spread::of(rounds.iter().map(number)),
            peer: "the goal".to_string(),
            theirs: Some(GOAL.into()),
            goal,
            config: settings,
        })
    };
    let case = "transactions of one thread beside a scan";
    figure(
        case,
        "tx/s",
        |round| round.commits,
        Some(Goal::AtLeast(1.0)),
    )?;
    let case = "the same per processor second of all threads but the scan's";
    let by_cpu = |round: &Measured| round.commits / round.cpu_of_transactions();
    figure(case, "tx/CPU s", by_cpu, None)
}
