//! The group `checkpoints` [SSD-DB Fig 2.1]: New-Orders per minute second by second. A checkpoint
//! begins with the window and after each interval.

use super::Bench;
use super::tpcc::{LC, PC, describe, void};
use crate::Result;
use crate::plots::point;
use crate::report::{Figure, Report};
use serde_json::{Value, json};
use strandline_bench_tpcc::experiment::Setting;

/// The name of the plot.
const FIGURE: &str = "tiers-checkpoints";
/// Size of the cache in percent of the database.
const CACHE: f64 = 25.0;

/// The group.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let settings = [
        ("PC", PC, CACHE),
        ("LC", LC, CACHE),
        ("all-HDD", Setting::AllHdd, 0.0),
        ("all-SSD", Setting::AllSsd, 0.0),
    ];
    for (name, setting, cache) in settings {
        let plan = bench.plan(setting, cache);
        let (window, label) = bench.window(plan)?;
        let seconds = window.timeline.by_second();
        let plots = seconds.iter().enumerate();
        let plots: Vec<Value> = plots
            .map(|(second, rate)| point(FIGURE, second as f64, &[(name, *rate)]))
            .collect();
        let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let mut config = describe(&plan, &window, &label);
        if void(&window).is_none() {
            config.insert("plots".into(), json!(plots));
        }
        report.add(Figure {
            case: format!("TPC-C, worst second with checkpoints, {}", setting.name()),
            unit: "tpmC",
            ours: least.into(),
            peer: "mean of the window".into(),
            theirs: Some(window.tpmc().into()),
            goal: None,
            config,
        })?;
    }
    Ok(())
}
