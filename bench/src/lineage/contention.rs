//! Fig. 7: transactions per second by threads, for active sets of 10 M, 100 K and 10 K rows.

use super::{Bench, Comparison, PRODUCT, RIVALS, STORAGE, measure, paper};
use crate::Result;
use crate::report::{Goal, Report};

/// Update threads.
const THREADS: [usize; 5] = [1, 2, 4, 8, 16];
const FIGURES: [&str; 3] = ["fig7a", "fig7b", "fig7c"];

/// Adds two figures per number of threads and active set, and a verdict per active set.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    for (n, (contention, active)) in bench.active_sets().into_iter().enumerate() {
        let (mut best, mut storage) = ([0.0_f64; 2], [0.0_f64; 2]);
        let mut worst = f64::INFINITY;
        for threads in THREADS {
            let engines = bench.engines()?;
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
            for (n, rival) in RIVALS.into_iter().enumerate() {
                best[n] = best[n].max(found[PRODUCT] / found[rival]);
                worst = worst.min(found[PRODUCT] / found[rival]);
                storage[n] = storage[n].max(found[STORAGE] / found[rival]);
            }
        }
        let theirs = match paper::CONTENTION[n] {
            Some([iuh, dbm]) => format!("the paper's {iuh}x and {dbm}x with 24 hardware threads"),
            None => "the paper gives curves only".to_string(),
        };
        let verdict = format!(
            "at best {:.2}x IUH and {:.2}x DBM, at worst {worst:.2}x the better; its storage alone \
             at best {:.2}x and {:.2}x ({theirs})",
            best[0], best[1], storage[0], storage[1]
        );
        report.verdict(&format!("Fig. 7, {contention} contention"), &verdict)?;
    }
    Ok(())
}
