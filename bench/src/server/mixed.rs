//! TPC-H queries over the wire and pgbench with four clients: each alone, and both at once.

use super::Bench;
use super::pgbench::Run;
use crate::Result;
use crate::report::{Figure, Report, config};
use crate::rounds::Spread;
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

/// What one server does: seconds for all queries once, transactions per second.
struct Measured {
    alone: (Spread, f64),
    together: (Spread, f64),
}

/// Both servers, one after the other: each has the machine to itself.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    bench.fill_pgbench()?;
    bench.fill_tpch()?;
    let (ours, theirs) = bench.servers()?;
    let (peer, seconds) = (theirs.name.clone(), bench.seconds.max(10));
    let (ours, theirs) = (measure(ours, seconds)?, measure(theirs, seconds)?);
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
    let queries = (ours.alone.0.median, theirs.alone.0.median);
    let rates = (ours.alone.1, theirs.alone.1);
    let case = "Q1, Q6, Q3, Q18 over the wire, alone";
    add(case, "s", ours.alone.0, theirs.alone.0, queries)?;
    let case = "Q1, Q6, Q3, Q18 over the wire, beside pgbench with 4 clients";
    add(case, "s", ours.together.0, theirs.together.0, queries)?;
    let case = "pgbench TPC-B-like with 4 clients, alone";
    add(case, "tx/s", rates.0.into(), rates.1.into(), rates)?;
    let case = "pgbench TPC-B-like with 4 clients, beside the queries";
    add(
        case,
        "tx/s",
        ours.together.1.into(),
        theirs.together.1.into(),
        rates,
    )
}

fn measure(served: &Served, seconds: u32) -> Result<Measured> {
    pass(served)?;
    let alone = (0..3).map(|_| pass(served)).collect::<Result<Vec<f64>>>()?;
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
        alone: (Spread::of(alone), rate),
        together: (Spread::of(passes??), beside?),
    })
}

/// Seconds for all queries, each by a `psql` of its own.
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
