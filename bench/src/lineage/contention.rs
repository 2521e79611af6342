//! Fig. 7: transactions per second by threads, for active sets of 10 M, 100 K and 10 K rows.

use super::{Bench, Comparison, measure, paper};
use crate::Result;
use crate::report::{Goal, Report};

/// Update threads.
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
const FIGURES: [&str; 3] = ["fig7a", "fig7b", "fig7c"];

/// Two figures per number of threads and active set, a verdict per active set.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    for (n, (contention, active)) in bench.active_sets().into_iter().enumerate() {
        let engines = bench.engines()?;
        let mut best = [0.0_f64; 2];
        let mut worst = f64::INFINITY;
        for threads in THREADS {
            let load = bench.load(threads, active);
            let measured = measure(&engines, &load)?;
            let goal = match contention {
                "low" => (threads <= 2).then_some(Goal::AtLeast(0.95)),
                _ => Some(Goal::AtLeast(1.0)),
            };
            let comparison = Comparison {
                case: format!("Fig. 7 {contention} contention, {threads} threads"),
                unit: "tx/s",
                load: &load,
                plot: (FIGURES[n], threads as f64),
                goal,
                paper: paper::CONTENTION[n],
            };
            let found = comparison.add(&engines, &measured, |m| m.commits, report)?;
            for (best, theirs) in best.iter_mut().zip(&found[1..]) {
                *best = best.max(found[0] / theirs);
                worst = worst.min(found[0] / theirs);
            }
        }
        let theirs = match paper::CONTENTION[n] {
            Some([iuh, dbm]) => format!("the paper's {iuh}x and {dbm}x with 24 hardware threads"),
            None => "the paper gives curves only".to_string(),
        };
        let verdict = format!(
            "at best {:.2}x IUH and {:.2}x DBM, at worst {worst:.2}x the better ({theirs})",
            best[0], best[1]
        );
        report.verdict(&format!("Fig. 7, {contention} contention"), &verdict)?;
    }
    Ok(())
}
