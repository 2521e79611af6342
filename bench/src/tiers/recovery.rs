//! The group `recovery` [SSD-DB Tables 2.1, 2.2]: seconds from the opening after a crash to the end
//! of the checkpoint that follows redo. The database without a cache has the same pages and log on
//! the disk.

use super::Bench;
use super::tpcc::PC;
use crate::Result;
use crate::report::{Figure, Goal, Report, config};
use serde_json::json;
use std::time::Duration;
use strandline_bench_tpcc::experiment::{Plan, Setting};

/// Two cache sizes of Table 2.2 in percent of the database, both with the longest log.
const SIZES: [f64; 2] = [25.0, 50.0];
/// Seconds of log of Table 2.1 at a cache of 25 %.
const SECONDS: [u64; 2] = [4, 12];

/// The group.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let (sizes, times) = match bench.is_quick {
        true => (&SIZES[..1], &SECONDS[..1]),
        false => (&SIZES[..], &SECONDS[..]),
    };
    let longest = times.last().copied().unwrap_or(SECONDS[0]);
    for &seconds in times {
        case(bench, report, 25.0, seconds)?;
    }
    for &size in sizes.iter().filter(|size| **size != 25.0) {
        case(bench, report, size, longest)?;
    }
    Ok(())
}

fn case(bench: &mut Bench, report: &mut Report, cache: f64, seconds: u64) -> Result<()> {
    let plan = bench.plan(PC, cache);
    let mut running = bench.warm(plan)?;
    let label = running.label();
    running.checkpoint()?;
    let window = running.measure(Duration::from_secs(seconds), false)?;
    let before = running.check()?;
    let crashed = running.crash();
    let (with, opened, checkpoint) = crashed.recover(plan)?;
    if with.check()? != before {
        return Err("the recovery with the cache has other rows than the crashed database".into());
    }
    drop(with);
    let plan = Plan {
        setting: Setting::AllHdd,
        ..plan
    };
    let alone = crashed.without_cache(plan)?;
    let (without, opened_alone, checkpoint_alone) = alone.recover(plan)?;
    if without.check()? != before {
        return Err("the recovery without the cache has other rows".into());
    }
    let is_goal = cache == 25.0;
    report.add(Figure {
        case: format!("recovery, cache {cache} %, {seconds} s after a checkpoint"),
        unit: "s",
        ours: (opened + checkpoint).into(),
        peer: format!("without the cache ({})", without.label()),
        theirs: Some((opened_alone + checkpoint_alone).into()),
        goal: is_goal.then_some(Goal::AtMost(0.5)),
        config: config([
            ("devices", json!(label)),
            ("cache_percent", json!(cache)),
            ("log_bytes", json!(crashed.log_bytes)),
            ("tpmc_before", json!(window.tpmc().round())),
            ("redo_seconds", json!([opened, opened_alone])),
            ("checkpoint_seconds", json!([checkpoint, checkpoint_alone])),
        ]),
    })
}
