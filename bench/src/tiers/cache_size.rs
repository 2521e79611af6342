//! The group `cache_size` [SSD-DB Fig 2.3]: New-Orders per minute over the size of the SSD cache.
//! The rival foyer, a cache of reads, is measured if this program was built with the feature of
//! its name.

use super::Bench;
use super::tpcc::{FOYER, LC, PC, PC2, describe, void};
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

impl Measured {
    /// New-Orders per minute; None if the window says nothing.
    fn rate(&self) -> Option<f64> {
        void(&self.window).is_none().then(|| self.window.tpmc())
    }
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
    let is_void = ours.rate().is_none() || theirs.rate().is_none();
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
    let mut best: Option<f64> = None;
    for &size in sizes {
        let pc = measure(bench, PC, size)?;
        let lc = measure(bench, LC, size)?;
        let ratio = pc.rate().zip(lc.rate()).map(|(pc, lc)| pc / lc);
        best = ratio.into_iter().chain(best).reduce(f64::max);
        let foyer = match FOYER.is_built() {
            true => Some(measure(bench, FOYER, size)?),
            false => None,
        };
        let mut shown = figure(format!("TPC-C, cache {size} %"), &pc, &lc, Some(1.0));
        let sides = [
            ("PC", Some(&pc)),
            ("LC", Some(&lc)),
            ("all-HDD", Some(&hdd)),
            ("all-SSD", Some(&ssd)),
            ("foyer", foyer.as_ref()),
        ];
        let of_side = |(name, side): (_, Option<&Measured>)| Some((name, side?.rate()?));
        let curves: Vec<(&str, f64)> = sides.into_iter().filter_map(of_side).collect();
        let plots = json!([point(FIGURE, size, &curves)]);
        shown.config.insert("plots".into(), plots);
        report.add(shown)?;
        if let Some(foyer) = &foyer {
            let case = format!("TPC-C, cache {size} %, foyer as read cache");
            report.add(figure(case, &pc, foyer, None))?;
        }
        if size == PC2_SIZE && !bench.is_quick {
            let pc2 = measure(bench, PC2, size)?;
            let case = format!("TPC-C, PC2, cache {size} %");
            report.add(figure(case, &pc2, &pc, None))?;
        }
        let goal = (size == 75.0).then_some(0.95);
        let case = format!("TPC-C, cache {size} %, share of all-SSD");
        report.add(figure(case, &pc, &ssd, goal))?;
    }
    let verdict = match best {
        Some(best) => format!("at best {best:.2} times lazy cleaning's rate; the goal is 2"),
        None => "all windows are void".to_string(),
    };
    report.verdict("TPC-C over cache size", &verdict)?;
    if !FOYER.is_built() {
        let missing = "not built; `cargo run --release -p strandline-bench --features foyer`";
        report.verdict("TPC-C, foyer as read cache", missing)?;
    }
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
