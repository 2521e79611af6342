//! Tables 8 and 9: what columns gain for scans and cost for point reads.
//!
//! The paper changed L-Store itself to rows. Here the row store is the delta store of the harness
//! with its main laid out by rows, and beside it stands the same store by columns.

use super::engine::{COLUMNS, Engine};
use super::rivals::{Dbm, Layout};
use super::{Bench, ROUNDS, holds, measure, medians, paper, plot};
use crate::Result;
use crate::report::{Figure, Report, config};
use serde_json::json;
use std::sync::Arc;

const THREADS: usize = 16;
/// Statements of a transaction of Table 9.
const READS: usize = 10;

/// Both tables.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let (rows, seed) = (bench.rows, bench.shared.seed);
    let engines: Vec<Arc<dyn Engine>> = vec![
        bench.ours()?,
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
        let measured = measure(engines, &load)?;
        let cpu = medians(&measured, |measured| measured.scan_cpu);
        let [columns, rows] = paper::LAYOUT_SCANS[n];
        let points = config([
            ("Strandline", json!(cpu[0])),
            ("rows", json!(cpu[1])),
            ("same store by columns", json!(cpu[2])),
            ("paper, columns", json!(columns)),
            ("paper, rows", json!(rows)),
        ]);
        let mut settings = load.config();
        settings.extend(config([
            ("rounds", json!(ROUNDS)),
            ("same_store_by_columns", json!(cpu[2])),
            ("paper_seconds", json!([columns, rows])),
            ("plots", json!([plot("table8", n as f64, points)])),
        ]));
        report.add(Figure {
            case: format!("Table 8: SUM {name}"),
            unit: "CPU s",
            ours: cpu[0],
            peer: "rows".to_string(),
            theirs: Some(cpu[1]),
            goal: None,
            config: settings,
        })?;
        gains.push((cpu[1] / cpu[0], cpu[1] / cpu[2]));
    }
    let verdict = format!(
        "columns scan faster: {} ({:.1}x without and {:.1}x with updates; the same store {:.1}x \
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
        let rates = medians(&measured, |measured| measured.commits);
        let percent = (columns * 100 / COLUMNS) as f64;
        let points = config([
            ("Strandline", json!(rates[0])),
            ("rows", json!(rates[1])),
            ("same store by columns", json!(rates[2])),
            ("paper, columns", json!(by_columns * 1e6)),
            ("paper, rows", json!(by_rows * 1e6)),
        ]);
        let mut settings = load.config();
        settings.extend(config([
            ("rounds", json!(ROUNDS)),
            ("same_store_by_columns", json!(rates[2])),
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
    let (first, last) = (&ends[0], &ends[ends.len() - 1]);
    let lost = |n: usize| 100.0 * (1.0 - last[n] / first[n]);
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
