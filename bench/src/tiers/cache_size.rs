//! The group `cache_size` [SSD-DB Fig 2.3]: New-Orders per minute over the size of the SSD cache.

use super::Bench;
use super::tpcc::{LC, PC, PC2, describe};
use crate::Result;
use crate::plots::point;
use crate::report::{Figure, Goal, Report};
use serde_json::json;
use std::time::Duration;
use strandline_bench_tpcc::experiment::{Plan, Setting, Window};

/// Sizes of the cache in percent of the database.
const SIZES: [f64; 4] = [6.25, 25.0, 50.0, 75.0];
const QUICK_SIZES: [f64; 1] = [25.0];
/// The size at which the mode `pc2` is measured, too.
const PC2_SIZE: f64 = 25.0;
/// The name of the plot.
const FIGURE: &str = "tiers-cache-size";

/// A measured side of a comparison.
struct Measured {
    plan: Plan,
    window: Window,
    label: String,
}

fn measure(bench: &mut Bench, setting: Setting, cache_percent: f64) -> Result<Measured> {
    let plan = bench.plan(setting, cache_percent);
    measure_plan(bench, plan)
}

fn measure_plan(bench: &mut Bench, plan: Plan) -> Result<Measured> {
    let (window, label) = bench.window(plan)?;
    let (name, size) = (plan.setting.name(), plan.cache_percent);
    eprintln!("{name} {size} %: {:.0} tpmC", window.tpmc());
    Ok(Measured {
        plan,
        window,
        label,
    })
}

/// A comparison; without a goal if one side is void.
fn figure(case: String, ours: &Measured, theirs: &Measured, goal: Option<f64>) -> Figure {
    let is_void = ours.window.void().is_some() || theirs.window.void().is_some();
    let mut config = describe(&ours.plan, &ours.window, &ours.label);
    let peer = describe(&theirs.plan, &theirs.window, &theirs.label);
    config.insert("peer".into(), json!(peer));
    Figure {
        case,
        unit: "tpmC",
        ours: ours.window.tpmc().into(),
        peer: format!("{} ({})", theirs.plan.setting.name(), theirs.label),
        theirs: Some(theirs.window.tpmc().into()),
        goal: goal.filter(|_| !is_void).map(Goal::AtLeast),
        config,
    }
}

/// The group.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let hdd = measure(bench, Setting::AllHdd, 0.0)?;
    let ssd = measure(bench, Setting::AllSsd, 0.0)?;
    report.add(figure("TPC-C, all-HDD".into(), &hdd, &ssd, None))?;
    let sizes = bench.sized(&SIZES[..], &QUICK_SIZES);
    let mut best: f64 = 0.0;
    for &size in sizes {
        let pc = measure(bench, PC, size)?;
        let lc = measure(bench, LC, size)?;
        best = best.max(pc.window.tpmc() / lc.window.tpmc());
        let mut shown = figure(format!("TPC-C, cache {size} %"), &pc, &lc, Some(1.0));
        let curves = [
            ("PC", pc.window.tpmc()),
            ("LC", lc.window.tpmc()),
            ("all-HDD", hdd.window.tpmc()),
            ("all-SSD", ssd.window.tpmc()),
        ];
        let plots = json!([point(FIGURE, size, &curves)]);
        shown.config.insert("plots".into(), plots);
        report.add(shown)?;
        if size == PC2_SIZE && !bench.is_quick {
            let pc2 = measure(bench, PC2, size)?;
            let case = format!("TPC-C, PC2, cache {size} %");
            report.add(figure(case, &pc2, &pc, None))?;
        }
        let goal = (size == 75.0).then_some(0.95);
        let case = format!("TPC-C, cache {size} %, share of all-SSD");
        report.add(figure(case, &pc, &ssd, goal))?;
    }
    let verdict = format!("at best {best:.2} times lazy cleaning's rate; the goal is 2");
    report.verdict("TPC-C over cache size", &verdict)?;
    match bench.is_quick {
        true => Ok(()),
        false => at_time_scale_1(bench, report),
    }
}

/// One size on a disk as slow as its model.
fn at_time_scale_1(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let slow = |bench: &mut Bench, setting, cache_percent| {
        let plan = Plan {
            time_scale: 1,
            checkpoint_every: Duration::from_secs(10),
            ..bench.plan(setting, cache_percent)
        };
        measure_plan(bench, plan)
    };
    let pc = slow(bench, PC, 25.0)?;
    let lc = slow(bench, LC, 25.0)?;
    let case = "TPC-C, cache 25 %, time scale 1".to_string();
    report.add(figure(case, &pc, &lc, Some(1.0)))
}
