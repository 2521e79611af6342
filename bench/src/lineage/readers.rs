//! Fig. 10: 17 threads, of which 1 to 16 scan 10 % of the table and the rest run transactions.

use super::{Bench, Comparison, PRODUCT, RIVALS, measure, paper};
use crate::Result;
use crate::report::Report;

/// Threads that scan; the others of [`THREADS`] update.
const READERS: [usize; 5] = [1, 4, 8, 12, 16];
const THREADS: usize = 17;
const UPDATE_FIGURES: [&str; 2] = ["fig10a", "fig10c"];
const SCAN_FIGURES: [&str; 2] = ["fig10b", "fig10d"];

/// Adds four figures per number of readers and active set, and a verdict per active set.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let sets = bench.active_sets().into_iter().take(UPDATE_FIGURES.len());
    for (n, (contention, active)) in sets.enumerate() {
        let mut best = [[0.0_f64; 2]; 2];
        for readers in READERS {
            let engines = bench.engines()?;
            let mut load = bench.load(THREADS - readers, active);
            load.scanners = readers;
            let measured = measure(&engines, &load)?;
            let comparison = |what: &str, unit, figure, paper| Comparison {
                case: format!("Fig. 10 {contention} contention, {readers} readers: {what}"),
                unit,
                load: &load,
                plot: (figure, readers as f64),
                goal: None,
                paper,
            };
            let ratios = (contention == "medium").then_some(paper::READERS_UPDATES);
            let updates = comparison("transactions", "tx/s", UPDATE_FIGURES[n], ratios);
            let commits = updates.add(&engines, &measured, |m| m.commits, report)?;
            let long = comparison("scans", "scans/s", SCAN_FIGURES[n], None);
            let scans = long.add(&engines, &measured, |m| m.scans, report)?;
            for (best, found) in best.iter_mut().zip([commits, scans]) {
                for (best, rival) in best.iter_mut().zip(RIVALS) {
                    *best = best.max(found[PRODUCT] / found[rival]);
                }
            }
        }
        let [updates, scans] = best;
        let verdict = format!(
            "at best {:.2}x IUH's and {:.2}x DBM's transactions, {:.2}x and {:.2}x their scans \
             (the paper: 5.37x and 7.91x under medium contention; scans {}x DBM's)",
            updates[0],
            updates[1],
            scans[0],
            scans[1],
            paper::READERS_SCANS[n]
        );
        report.verdict(&format!("Fig. 10, {contention} contention"), &verdict)?;
    }
    Ok(())
}
