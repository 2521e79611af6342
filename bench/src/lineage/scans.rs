//! Table 7: a scan of the whole table beside 16 writers. Fig. 8: our scan by how many records make
//! a merge due.
//!
//! A scan's figure is its processor time: beside more writers than processors its elapsed time
//! tells how the system shares them out. `config.elapsed` has it.

use super::engine::Engine;
use super::ours::{Strandline, settings};
use super::{Bench, ROUNDS, holds, measure, medians, paper, plot};
use crate::Result;
use crate::report::{Figure, Report, config};
use crate::rounds::median;
use serde_json::json;
use std::sync::Arc;
use strandline::Settings;
use strandline_device::MemoryDevice;

const THREADS: usize = 16;
/// Rows of a merge range.
const RANGE_ROWS: u32 = 1 << 16;
/// Records that make a merge due in Fig. 8, and the writers.
const MERGE_RECORDS: [u32; 5] = [1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16];
const MERGE_WRITERS: [usize; 2] = [4, 16];

/// Table 7, then Fig. 8.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    table(bench, report)?;
    merges(bench, report)
}

fn table(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let engines = bench.engines()?;
    let mut load = bench.load(THREADS, bench.rows);
    load.scan_rows = bench.rows;
    let measured = measure(&engines, &load)?;
    let cpu = medians(&measured, |measured| measured.scan_cpu);
    let elapsed = medians(&measured, |measured| measured.scan_seconds);
    let commits = medians(&measured, |measured| measured.commits);
    for (rival, engine) in engines.iter().enumerate().skip(1) {
        let mut settings = load.config();
        let points = |n: usize| {
            let entries = [
                ("measured", json!(cpu[n])),
                ("paper", json!(paper::SCANS[n])),
            ];
            plot("table7", n as f64, config(entries))
        };
        settings.extend(config([
            ("rounds", json!(ROUNDS)),
            ("elapsed", json!([elapsed[0], elapsed[rival]])),
            ("commits_per_second", json!([commits[0], commits[rival]])),
            (
                "paper_seconds",
                json!([paper::SCANS[0], paper::SCANS[rival]]),
            ),
            ("theirs", json!(super::rivals::SETTINGS)),
            ("plots", json!([points(0), points(rival)])),
        ]));
        report.add(Figure {
            case: format!("Table 7: SUM beside {THREADS} writers"),
            unit: "CPU s",
            ours: cpu[0],
            peer: engine.name().to_string(),
            theirs: Some(cpu[rival]),
            goal: None,
            config: settings,
        })?;
    }
    let verdict = format!(
        "L-Store's scan is the fastest: {} ({:.2}x IUH's and {:.2}x DBM's time; the paper: 0.86x \
         and 0.63x)",
        holds(cpu[0] <= cpu[1] && cpu[0] <= cpu[2]),
        cpu[0] / cpu[1],
        cpu[0] / cpu[2]
    );
    report.verdict("Table 7", &verdict)
}

/// Fig. 8, on a tenth of the rows, which is enough for ranges to become due.
fn merges(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let rows = bench.rows / 10;
    let device = Arc::new(MemoryDevice::new());
    let loaded = Strandline::open(&device, rows, settings())?;
    loaded.fill(bench.shared.seed)?;
    loaded.close()?;
    for writers in MERGE_WRITERS {
        let mut load = bench.load(writers, rows);
        (load.rows, load.scan_rows) = (rows, rows);
        let mut times = vec![Vec::new(); MERGE_RECORDS.len()];
        for round in 0..ROUNDS {
            for turn in 0..MERGE_RECORDS.len() {
                let n = (round + turn) % MERGE_RECORDS.len();
                let merge_pending_records = MERGE_RECORDS[n];
                let settings = Settings {
                    merge_pending_records,
                    ..settings()
                };
                let engine = Strandline::open(&device, rows, settings)?;
                engine.settle()?;
                load.seed += 1;
                times[n].push(load.measure(&engine as &dyn Engine)?.scan_cpu);
                engine.close()?;
            }
        }
        let times: Vec<f64> = times.into_iter().map(median).collect();
        merge_figures(&load, &times, report)?;
    }
    Ok(())
}

fn merge_figures(load: &super::workload::Load, times: &[f64], report: &mut Report) -> Result<()> {
    let part = |records: u32| f64::from(records) / f64::from(RANGE_ROWS);
    let half = MERGE_RECORDS
        .iter()
        .position(|&records| part(records) == paper::MERGE_PART);
    let half = times[half.expect("half a range is among them")];
    for (&records, &seconds) in MERGE_RECORDS.iter().zip(times) {
        let series = format!("{} writers", load.writers);
        let point = plot(
            "fig8",
            f64::from(records),
            [(series, json!(seconds))].into_iter().collect(),
        );
        let mut settings = load.config();
        settings.extend(config([
            ("rounds", json!(ROUNDS)),
            ("merge_pending_records", json!(records)),
            ("plots", json!([point])),
        ]));
        report.add(Figure {
            case: format!("Fig. 8: SUM beside {} writers, M = {records}", load.writers),
            unit: "CPU s",
            ours: seconds,
            peer: "M = half a range".to_string(),
            theirs: Some(half),
            goal: None,
            config: settings,
        })?;
    }
    let least = times.iter().copied().fold(f64::INFINITY, f64::min);
    let verdict = format!(
        "the best M is about half a range: {} (there {:.2}x the least; the least M costs {:.2}x)",
        holds(half <= 1.1 * least),
        half / least,
        times[0] / least
    );
    report.verdict(&format!("Fig. 8, {} writers", load.writers), &verdict)
}
