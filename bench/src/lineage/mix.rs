//! Fig. 9: transactions per second by share of updates, 16 threads.

use super::{Bench, Comparison, PRODUCT, RIVALS, STORAGE, holds, measure, paper};
use crate::Result;
use crate::report::{Goal, Report};

/// Updates among the 10 statements of a transaction.
const UPDATES: [usize; 6] = [0, 2, 4, 6, 8, 10];
const THREADS: usize = 16;
const FIGURES: [&str; 2] = ["fig9a", "fig9b"];

/// Adds two figures per share and active set, and a verdict per active set.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let sets = bench.active_sets().into_iter().take(FIGURES.len());
    for (n, (contention, active)) in sets.enumerate() {
        let mut ours = Vec::new();
        for updates in UPDATES {
            let engines = bench.engines()?;
            let mut load = bench.load(THREADS, active);
            (load.reads, load.updates) = (10 - updates, updates);
            let measured = measure(&engines, &load)?;
            let comparison = Comparison {
                case: format!("Fig. 9 {contention} contention, {updates} of 10 are updates"),
                unit: "tx/s",
                load: &load,
                plot: (FIGURES[n], updates as f64),
                goal: (contention != "low").then_some(Goal::AtLeast(1.0)),
                paper: Some(paper::MIX[n]),
            };
            let found = comparison.add(&engines, &measured, |m| m.commits, report)?;
            ours.push(found);
        }
        let best_of = |ours_is: usize, rival: usize| {
            let ratios = ours.iter().map(|found| found[ours_is] / found[rival]);
            ratios.fold(0.0, f64::max)
        };
        let [best, storage] = [PRODUCT, STORAGE].map(|of| RIVALS.map(|rival| best_of(of, rival)));
        let (reads, writes) = (ours[0][PRODUCT], ours[ours.len() - 1][PRODUCT]);
        let [iuh, dbm] = paper::MIX[n];
        let verdict = format!(
            "more updates cost throughput: {} ({:.1}x between the ends); at best {:.2}x IUH and \
             {:.2}x DBM, its storage alone {:.2}x and {:.2}x (the paper: {iuh}x and {dbm}x)",
            holds(reads > writes),
            reads / writes,
            best[0],
            best[1],
            storage[0],
            storage[1]
        );
        report.verdict(&format!("Fig. 9, {contention} contention"), &verdict)?;
    }
    Ok(())
}
