//! TPC-H queries over the wire and pgbench with four clients: each alone, and both at once.

use super::Bench;
use super::pgbench::Run;
use crate::Result;
use crate::report::{Figure, Report, config};
use crate::rounds::{Side, Spread, median, take_turns};
use crate::served::{Served, done};
use crate::tpch;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const RUN: Run = Run {
    select_only: false,
    protocol: "prepared",
    clients: 4,
    synchronous_commit: true,
};

/// Rounds of each server; they take turns.
const ROUNDS: usize = 3;

/// The result of one server in a round: seconds for all queries once, and transactions per second.
struct Measured {
    alone: (f64, f64),
    together: (f64, f64),
}

/// Measures both servers in turns, so that each has the machine to itself.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    bench.fill_pgbench()?;
    bench.fill_tpch()?;
    let (ours, theirs) = bench.servers()?;
    let (peer, seconds) = (theirs.name.clone(), bench.seconds.max(10));
    let side = |served| -> Side<'_, Measured> { Box::new(move |_| measure(served, seconds)) };
    let mut rounds = take_turns(ROUNDS, vec![side(ours), side(theirs)])?.into_iter();
    let (ours, theirs) = (rounds.next(), rounds.next());
    let (ours, theirs) = (ours.unwrap_or_default(), theirs.unwrap_or_default());
    let spread =
        |side: &[Measured], figure: fn(&Measured) -> f64| Spread::of(side.iter().map(figure));
    let both = |figure: fn(&Measured) -> f64| (spread(&ours, figure), spread(&theirs, figure));
    let mut add = |case: &str, unit, ours: Spread, theirs: Spread, alone: (f64, f64)| {
        report.add(Figure {
            case: case.to_string(),
            unit,
            ours,
            peer: peer.clone(),
            theirs: Some(theirs),
            goal: None,
            config: config([
                ("tpch_scale", json!(bench.tpch_scale)),
                ("seconds", json!(seconds)),
                (
                    "of_alone",
                    json!([ours.median / alone.0, theirs.median / alone.1]),
                ),
            ]),
        })
    };
    let (queries, rates) = (both(|m| m.alone.0), both(|m| m.alone.1));
    let of_queries = (queries.0.median, queries.1.median);
    let of_rates = (rates.0.median, rates.1.median);
    let case = "Q1, Q6, Q3, Q18 over the wire, alone";
    add(case, "s", queries.0, queries.1, of_queries)?;
    let case = "Q1, Q6, Q3, Q18 over the wire, beside pgbench with 4 clients";
    let (o, t) = both(|m| m.together.0);
    add(case, "s", o, t, of_queries)?;
    let case = "pgbench TPC-B-like with 4 clients, alone";
    add(case, "tx/s", rates.0, rates.1, of_rates)?;
    let case = "pgbench TPC-B-like with 4 clients, beside the queries";
    let (o, t) = both(|m| m.together.1);
    add(case, "tx/s", o, t, of_rates)
}

fn measure(served: &Served, seconds: u32) -> Result<Measured> {
    pass(served)?;
    let alone = pass(served)?;
    let rate = RUN.rate(served, seconds)?;
    let has_ended = AtomicBool::new(false);
    let (passes, beside) = std::thread::scope(|scope| {
        let queries = scope.spawn(|| -> std::result::Result<Vec<f64>, String> {
            let mut passes = Vec::new();
            while !has_ended.load(Ordering::Relaxed) || passes.is_empty() {
                passes.push(pass(served).map_err(|e| e.to_string())?);
            }
            Ok(passes)
        });
        let beside = RUN.rate(served, seconds);
        has_ended.store(true, Ordering::Relaxed);
        let queries = queries.join();
        (queries.map_err(|_| "the queries' thread panicked"), beside)
    });
    Ok(Measured {
        alone: (alone, rate),
        together: (median(passes??), beside?),
    })
}

/// The seconds for all queries, each run by its own `psql`.
fn pass(served: &Served) -> Result<f64> {
    let start = Instant::now();
    for (_, sql) in tpch::QUERIES {
        done(
            served
                .client("psql")
                .args(["-X", "-q", "-A", "-t", "-c", sql]),
        )?;
    }
    Ok(start.elapsed().as_secs_f64())
}
