//! The group `warm_restart` [SSD-DB Table 2.3]: seconds from the end of the recovery after a crash
//! until the rate has reached 95 % of the former one.

use super::Bench;
use super::tpcc::{LC, PC, void};
use crate::Result;
use crate::report::{Figure, Report, config};
use serde_json::json;
use std::time::Duration;
use strandline_bench_tpcc::Timeline;
use strandline_bench_tpcc::experiment::Setting;

/// Size of the cache in percent of the database, as in the thesis.
const CACHE: f64 = 50.0;
/// The rate is that of so many seconds, one or two intervals of checkpoints.
const RATE_SECONDS: f64 = 4.0;
/// The longest restart that is waited for, and with --quick.
const SECONDS_MAX: u64 = 20;
const QUICK_SECONDS_MAX: u64 = 8;
/// The goal of the persistent cache.
const GOAL_SECONDS: f64 = 10.0;

/// A restart.
struct Restart {
    /// None: not within the time
    seconds: Option<f64>,
    recovery_seconds: f64,
    before: f64,
    by_second: Vec<f64>,
    label: String,
    /// why the rates say nothing
    void: Option<String>,
}

/// The group.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let time = bench.sized(SECONDS_MAX, QUICK_SECONDS_MAX);
    let pc = restart(bench, PC, time)?;
    let lc = restart(bench, LC, time)?;
    let seconds = |restart: &Restart| restart.seconds.unwrap_or(time as f64);
    let rates = |restart: &Restart| -> Vec<f64> {
        restart.by_second.iter().map(|rate| rate.round()).collect()
    };
    let text = |restart: &Restart| match (&restart.void, restart.seconds) {
        (Some(void), _) => void.clone(),
        (None, Some(seconds)) => format!("within {seconds:.1} s"),
        (None, None) => format!("not within {time} s"),
    };
    report.add(Figure {
        case: format!("restart to 95 % of the former rate, cache {CACHE} %"),
        unit: "s",
        ours: seconds(&pc).into(),
        peer: format!("lc ({})", lc.label),
        theirs: Some(seconds(&lc).into()),
        goal: None,
        config: config([
            ("devices", json!(pc.label)),
            ("tpmc_before", json!([pc.before.round(), lc.before.round()])),
            (
                "recovery_seconds",
                json!([pc.recovery_seconds, lc.recovery_seconds]),
            ),
            ("tpmc_by_second", json!([rates(&pc), rates(&lc)])),
            ("reached", json!([text(&pc), text(&lc)])),
            ("seconds_max", json!(time)),
        ]),
    })?;
    let is_met = pc.void.is_none() && pc.seconds.is_some_and(|seconds| seconds <= GOAL_SECONDS);
    let verdict = format!(
        "pc {}, lc {}; the goal of pc, {GOAL_SECONDS} s, is {}",
        text(&pc),
        text(&lc),
        if is_met { "met" } else { "missed" },
    );
    report.verdict("restart to 95 % of the former rate", &verdict)
}

fn restart(bench: &mut Bench, setting: Setting, time: u64) -> Result<Restart> {
    let plan = bench.plan(setting, CACHE);
    let mut running = bench.warm(plan)?;
    let window = running.measure(plan.checkpoint_every * 3, true)?;
    let label = running.label();
    let crashed = running.crash();
    let (mut running, opened, checkpoint) = crashed.recover(plan)?;
    let after = running.measure(Duration::from_secs(time), true)?;
    running.check()?;
    Ok(Restart {
        void: void(&window).or(void(&after)),
        seconds: reached(&after.timeline, 0.95 * window.tpmc(), time as f64),
        recovery_seconds: opened + checkpoint,
        before: window.tpmc(),
        by_second: after.timeline.by_second(),
        label,
    })
}

/// The begin of the first seconds in which the rate was `rate`.
fn reached(timeline: &Timeline, rate: f64, seconds: f64) -> Option<f64> {
    let last = ((seconds - RATE_SECONDS) * 10.0) as u32;
    let mut begins = (0..=last).map(|tenth| f64::from(tenth) / 10.0);
    begins.find(|&from| timeline.tpmc(from, from + RATE_SECONDS) >= rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_former_rate_is_reached_where_an_interval_has_it() {
        let timeline = Timeline {
            new_orders: [vec![1; 30], vec![10; 60]].concat(),
            ..Timeline::default()
        };
        assert_eq!(reached(&timeline, 6_000.0, 9.0), Some(3.0));
        assert_eq!(reached(&timeline, 500.0, 9.0), Some(0.0));
        assert_eq!(reached(&timeline, 6_001.0, 9.0), None);
    }
}
