//! Tables 8 and 9: the gain of a column layout for scans and its cost for point reads.
//!
//! The paper changed L-Store itself to rows. Here the row store is the delta store of the harness
//! with a row layout of its main. The same store with a column layout runs beside it.

use super::engine::{COLUMNS, Engine};
use super::ours::settings;
use super::rivals::{Dbm, Layout};
use super::workload::Measured;
use super::{Bench, ROUNDS, cpu, holds, measure, paper, plot, spreads};
use crate::Result;
use crate::report::{Figure, Report, config};
use serde_json::json;
use std::sync::Arc;

const THREADS: usize = 16;
/// Transactions per second of all of Table 8's writers together; every engine reaches this.
const PACE: f64 = 5_000.0;
/// Statements of a transaction of Table 9.
const READS: usize = 10;

/// Both tables.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let (rows, seed) = (bench.rows, bench.shared.seed);
    let engines: Vec<Arc<dyn Engine>> = vec![
        Arc::new(bench.image()?.open(settings())?),
        Arc::new(Dbm::new(Layout::Rows, rows, seed)),
        Arc::new(Dbm::new(Layout::Columns, rows, seed)),
    ];
    reads(bench, &engines, report)?;
    scans(bench, &engines, report)
}

fn scans(bench: &Bench, engines: &[Arc<dyn Engine>], report: &mut Report) -> Result<()> {
    let mut gains = Vec::new();
    for (n, (name, writers)) in [("without updates", 0), ("with updates", THREADS)]
        .into_iter()
        .enumerate()
    {
        let mut load = bench.load(writers, bench.rows);
        load.scan_rows = bench.rows;
        // At full speed the engine with the fewest updates would have the fewest patches to apply.
        load.pace = (writers > 0).then_some(PACE);
        let measured = measure(engines, &load)?;
        let costs = spreads(&measured, Measured::scan_cpu_of_all);
        let scanned = spreads(&measured, |measured| measured.scan_cpu);
        let [columns, rows] = paper::LAYOUT_SCANS[n];
        let points = config([
            ("Strandline", json!(costs[0].median)),
            ("rows", json!(costs[1].median)),
            ("same store by columns", json!(costs[2].median)),
            ("paper, columns", json!(columns)),
            ("paper, rows", json!(rows)),
        ]);
        let mut settings = load.config();
        settings.extend(config([
            ("rounds", json!(ROUNDS)),
            ("same_store_by_columns", json!(costs[2].median)),
            (
                "cpu_of_scan_threads",
                json!([scanned[0].median, scanned[1].median]),
            ),
            (
                "cpu_per_second",
                json!([cpu(&measured[0]), cpu(&measured[1])]),
            ),
            ("paper_seconds", json!([columns, rows])),
            ("plots", json!([plot("table8", n as f64, points)])),
        ]));
        report.add(Figure {
            case: format!("Table 8: SUM {name}"),
            unit: "CPU s",
            ours: costs[0],
            peer: "rows".to_string(),
            theirs: Some(costs[1]),
            goal: None,
            config: settings,
        })?;
        let gain = |n: usize| costs[1].median / costs[n].median;
        gains.push((gain(0), gain(2)));
    }
    let verdict = format!(
        "columns scan at less processor time, background threads included: {} ({:.1}x without and \
         {:.1}x with updates; the same store {:.1}x \
         and {:.1}x; the paper: 4.56x and 2.75x)",
        holds(gains.iter().all(|gain| gain.0 > 1.0)),
        gains[0].0,
        gains[1].0,
        gains[0].1,
        gains[1].1
    );
    report.verdict("Table 8", &verdict)
}

fn reads(bench: &Bench, engines: &[Arc<dyn Engine>], report: &mut Report) -> Result<()> {
    let mut ends = Vec::new();
    for (columns, by_columns, by_rows) in paper::LAYOUT_READS {
        let mut load = bench.load(1, bench.rows);
        (load.reads, load.updates, load.columns, load.scanners) = (READS, 0, columns, 0);
        let measured = measure(engines, &load)?;
        let rates = spreads(&measured, |measured| measured.commits);
        let percent = (columns * 100 / COLUMNS) as f64;
        let points = config([
            ("Strandline", json!(rates[0].median)),
            ("rows", json!(rates[1].median)),
            ("same store by columns", json!(rates[2].median)),
            ("paper, columns", json!(by_columns * 1e6)),
            ("paper, rows", json!(by_rows * 1e6)),
        ]);
        let mut settings = load.config();
        settings.extend(config([
            ("rounds", json!(ROUNDS)),
            ("same_store_by_columns", json!(rates[2].median)),
            ("paper_millions", json!([by_columns, by_rows])),
            ("plots", json!([plot("table9", percent, points)])),
        ]));
        report.add(Figure {
            case: format!("Table 9: {READS} point reads of {columns} columns"),
            unit: "tx/s",
            ours: rates[0],
            peer: "rows".to_string(),
            theirs: Some(rates[1]),
            goal: None,
            config: settings,
        })?;
        ends.push(rates);
    }
    // The loss is against the best number of columns, which need not be the smallest.
    let last = &ends[ends.len() - 1];
    let best = |n: usize| ends.iter().map(|rates| rates[n].median).fold(0.0, f64::max);
    let lost = |n: usize| 100.0 * (1.0 - last[n].median / best(n));
    let verdict = format!(
        "all columns cost a column store at most a third: {} (lost {:.0} %, rows {:.0} %, the \
         same store by columns {:.0} %; the paper: 33 % and 0 %)",
        holds(lost(0) <= 33.4),
        lost(0),
        lost(1),
        lost(2)
    );
    report.verdict("Table 9", &verdict)
}
