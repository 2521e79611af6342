//! The tail latency of point transactions while the database merges and checkpoints. One thread
//! runs the transactions and one checkpoints over and over, so two threads are busy. The longest
//! transaction is reported beside the quantile, since a user notices it.

use super::Bench;
use crate::Result;
use crate::foundation::point;
use crate::report::{Figure, Goal, Report, config};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;

/// The goal for the 99.9 % quantile of the transactions, in microseconds.
const GOAL: f64 = 200.0;

/// Two figures.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let rows = bench.shared.point_rows;
    let ours = point::fill(&bench.shared, rows)?;
    let seconds = bench.shared.seconds * 4.0;
    let stop = AtomicBool::new(false);
    let counters = || -> Vec<u64> { ours.database().counters().iter().map(|c| c.1).collect() };
    let before = counters();
    let mut times = std::thread::scope(|scope| {
        let checkpoints = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                ours.database()
                    .checkpoint()
                    .map_err(|error| error.to_string())?;
            }
            Ok::<(), String>(())
        });
        let times = transactions(&ours, rows, seconds, bench.shared.seed);
        stop.store(true, Ordering::Relaxed);
        checkpoints.join().expect("a checkpoint does not panic")?;
        times
    })?;
    times.sort_unstable();
    let quantile = |part: f64| times[((times.len() - 1) as f64 * part) as usize] as f64 / 1e3;
    let since: Vec<u64> = counters()
        .iter()
        .zip(before)
        .map(|(now, then)| now - then)
        .collect();
    let names = ours
        .database()
        .counters()
        .into_iter()
        .map(|counter| counter.0.to_string());
    let done = names.zip(since.into_iter().map(|n| json!(n)));
    let done: serde_json::Map<_, _> = done
        .filter(|(name, _)| ["commits", "checkpoints", "merged_ranges"].contains(&name.as_str()))
        .collect();
    let figure = |case: &str, ours: f64, goal| Figure {
        case: format!("{case} of point transactions beside checkpoints"),
        unit: "µs",
        ours: ours.into(),
        peer: "the goal for p99.9".to_string(),
        theirs: Some(GOAL.into()),
        goal,
        config: config([
            ("rows", json!(rows)),
            ("synchronous_commit", json!("off")),
            ("seconds", json!(seconds)),
            ("transactions", json!(times.len())),
            ("median_us", json!(quantile(0.5))),
            ("p99_us", json!(quantile(0.99))),
            ("done", json!(done)),
        ]),
    };
    report.add(figure("p99.9", quantile(0.999), Some(Goal::AtMost(1.0))))?;
    report.add(figure("longest", quantile(1.0), None))
}

/// Runs transactions; returns the nanoseconds of every one.
fn transactions(ours: &crate::ours::Ours, rows: u64, seconds: f64, seed: u64) -> Result<Vec<u64>> {
    let mut worker = ours.worker("point", &point::COLUMNS, false)?;
    let mut rng = Rng::new(seed);
    let mut times = Vec::with_capacity((seconds * 500_000.0) as usize);
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let mut began = Instant::now();
    while began < deadline {
        point::Keys::draw(&mut rng, rows).run(&mut worker)?;
        let ended = Instant::now();
        times.push((ended - began).as_nanos() as u64);
        began = ended;
    }
    Ok(times)
}
