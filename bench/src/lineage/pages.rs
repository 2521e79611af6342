//! The cost for in-place update of the paper's pages of one column, each with a latch, against
//! pages of all columns. The rival in the figures is the faster form.

use super::{Bench, ROUNDS, cpu, measure, rivals, spreads};
use crate::Result;
use crate::report::{Figure, Report, config};
use rivals::{Apart, Iuh};
use serde_json::json;
use std::sync::Arc;

/// Update threads.
const THREADS: [usize; 3] = [1, 4, 16];

/// Adds a figure per number of threads and active set. It compares transactions with a latch per
/// page of all columns to transactions with a latch per page of one column.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let mut gains = Vec::new();
    for (contention, active) in bench.active_sets() {
        for threads in THREADS {
            let (rows, seed) = (bench.rows, bench.shared.seed);
            let measured = measure(
                &[
                    Arc::new(<Iuh>::new(rows, seed)),
                    Arc::new(Iuh::<Apart>::new(rows, seed)),
                ],
                &bench.load(threads, active),
            )?;
            let found = spreads(&measured, |m| m.commits);
            gains.push(found[0].median / found[1].median);
            let mut settings = bench.load(threads, active).config();
            settings.extend(config([
                ("rounds", json!(ROUNDS)),
                (
                    "cpu_per_second",
                    json!([cpu(&measured[0]), cpu(&measured[1])]),
                ),
            ]));
            report.add(Figure {
                case: format!("IUH, {contention} contention, {threads} threads"),
                unit: "tx/s",
                ours: found[0],
                peer: "IUH, a latch per column".to_string(),
                theirs: Some(found[1]),
                goal: None,
                config: settings,
            })?;
        }
    }
    let ends = gains.iter().fold((f64::INFINITY, 0.0_f64), |ends, gain| {
        (ends.0.min(*gain), ends.1.max(*gain))
    });
    let verdict = format!(
        "pages of all columns: {:.2}x to {:.2}x the transactions of the paper's pages",
        ends.0, ends.1
    );
    report.verdict("IUH's pages", &verdict)
}
