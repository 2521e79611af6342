//! Table 7: a scan of the whole table beside 16 writers. Fig. 8: our scan by the number of records
//! that makes a merge due.
//!
//! A scan's figure is the processor time of its threads and of the engine's other threads, without
//! the transactions: merges, overlays, log. Otherwise work could hide in other threads. In Table 7
//! all engines get the same transactions per second, since an engine with fewer has fewer patches
//! to apply. Each engine's maximum rate beside a scan is a figure of its own.

use super::engine::Engine;
use super::ours::{Image, settings};
use super::workload::{Load, Measured};
use super::{Bench, RIVALS, ROUNDS, STORAGE, cpu, holds, measure, paper, plot, spreads};
use crate::Result;
use crate::report::{Figure, Report, config};
use crate::rounds::Spread;
use serde_json::json;
use strandline::Settings;

const THREADS: usize = 16;
/// Transactions per second of all writers of Table 7; every engine reaches this.
const PACE: f64 = 5_000.0;
/// Rows of a merge range.
const RANGE_ROWS: u32 = 1 << 16;
/// The numbers of records that make a merge due in Fig. 8, and the number of writers.
const MERGE_RECORDS: [u32; 5] = [1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16];
const MERGE_WRITERS: [usize; 2] = [4, 16];
/// Ranges of the table of Fig. 8. They are few, so that each is merged several times in a
/// measurement.
const MERGE_RANGES: u64 = 4;
/// Merges of each range that a measurement waits for.
const MERGES: u64 = 3;

/// Measures Table 7, then Fig. 8.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    table(bench, report)?;
    merges(bench, report)
}

fn table(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let mut load = bench.load(THREADS, bench.rows);
    load.scan_rows = bench.rows;
    let mut paced = load.clone();
    (paced.pace, paced.seconds) = (Some(PACE), 2.0 * load.seconds);
    let engines = bench.engines()?;
    let names: Vec<&str> = engines.iter().map(|engine| engine.name()).collect();
    let measured = measure(&engines, &paced)?;
    drop(engines);
    let of_all = table_figures(
        &names,
        &paced,
        &measured,
        (
            "scan and background threads",
            "CPU s",
            Measured::scan_cpu_of_all,
        ),
        report,
    )?;
    let elapsed = |measured: &Measured| measured.scan_seconds;
    table_figures(&names, &paced, &measured, ("elapsed", "s", elapsed), report)?;
    let measured = measure(&bench.engines()?, &load)?;
    let commits = |measured: &Measured| measured.commits;
    let case = (
        "transactions at full speed beside it",
        "tx/s",
        commits as fn(&Measured) -> f64,
    );
    table_figures(&names, &load, &measured, case, report)?;
    let verdict = format!(
        "L-Store's scan costs the least at {PACE} transactions/s: {} ({:.2}x IUH's and {:.2}x \
         DBM's processor time; the paper: 0.86x and 0.63x of their elapsed time)",
        holds(of_all[0] <= of_all[1] && of_all[0] <= of_all[2]),
        of_all[0] / of_all[1],
        of_all[0] / of_all[2]
    );
    report.verdict("Table 7", &verdict)
}

/// Adds a figure per rival; returns the medians of all engines.
fn table_figures(
    names: &[&str],
    load: &Load,
    measured: &[Vec<Measured>],
    (what, unit, number): (&str, &'static str, fn(&Measured) -> f64),
    report: &mut Report,
) -> Result<Vec<f64>> {
    let found = spreads(measured, number);
    let scan_threads = spreads(measured, |measured| measured.scan_cpu);
    let commits = spreads(measured, |measured| measured.commits);
    for rival in RIVALS {
        let mut settings = load.config();
        settings.extend(config([
            ("rounds", json!(ROUNDS)),
            (
                "cpu_of_scan_threads",
                json!([scan_threads[0].median, scan_threads[rival].median]),
            ),
            (
                "cpu_per_second",
                json!([cpu(&measured[0]), cpu(&measured[rival])]),
            ),
            (
                "commits_per_second",
                json!([commits[0].median, commits[rival].median]),
            ),
            (
                "paper_seconds",
                json!([paper::SCANS[0], paper::SCANS[rival]]),
            ),
            ("storage_alone", json!(found[STORAGE].median)),
            ("theirs", json!(super::rivals::SETTINGS)),
        ]));
        if unit == "CPU s" {
            let point = |n: usize| {
                let entries = [
                    ("measured", json!(found[n].median)),
                    ("paper", json!(paper::SCANS[n])),
                ];
                plot("table7", n as f64, config(entries))
            };
            settings.insert("plots".to_string(), json!([point(0), point(rival)]));
        }
        report.add(Figure {
            case: format!("Table 7, SUM beside {THREADS} writers: {what}"),
            unit,
            ours: found[0],
            peer: names[rival].to_string(),
            theirs: Some(found[rival]),
            goal: None,
            config: settings,
        })?;
    }
    Ok(found.iter().map(|spread| spread.median).collect())
}

/// Fig. 8: processor time of a scan and of the background work, without transactions, while every
/// range is merged several times.
fn merges(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let rows = MERGE_RANGES * u64::from(RANGE_ROWS);
    let image = Image::new(rows, bench.shared.seed)?;
    for writers in MERGE_WRITERS {
        let mut load = bench.load(writers, rows);
        (load.rows, load.scan_rows) = (rows, rows);
        load.merges = MERGES * MERGE_RANGES;
        let mut measured: Vec<Vec<Measured>> = MERGE_RECORDS.iter().map(|_| Vec::new()).collect();
        for round in 0..ROUNDS {
            for turn in 0..MERGE_RECORDS.len() {
                let n = (round + turn) % MERGE_RECORDS.len();
                let settings = Settings {
                    merge_pending_records: MERGE_RECORDS[n],
                    ..settings()
                };
                let engine = image.open(settings)?;
                load.seed += 1;
                measured[n].push(load.measure(&engine as &dyn Engine)?);
            }
        }
        merge_figures(&load, &measured, report)?;
    }
    Ok(())
}

fn merge_figures(load: &Load, measured: &[Vec<Measured>], report: &mut Report) -> Result<()> {
    let part = |records: u32| f64::from(records) / f64::from(RANGE_ROWS);
    let half = MERGE_RECORDS
        .iter()
        .position(|&records| part(records) == paper::MERGE_PART)
        .expect("half a range is among them");
    let costs = spreads(measured, Measured::scan_cpu_of_all);
    for (n, records) in MERGE_RECORDS.into_iter().enumerate() {
        let series = format!("{} writers", load.writers);
        let point = config([(series.as_str(), json!(costs[n].median))]);
        let of = |number: fn(&Measured) -> f64| Spread::of(measured[n].iter().map(number)).median;
        let mut settings = load.config();
        settings.extend(config([
            ("rounds", json!(ROUNDS)),
            ("merge_pending_records", json!(records)),
            ("ranges", json!(MERGE_RANGES)),
            ("merges", json!(of(|measured| measured.merges as f64))),
            (
                "cpu_of_scan_threads",
                json!(of(|measured| measured.scan_cpu)),
            ),
            ("cpu_per_second", json!(cpu(&measured[n]))),
            ("commits_per_second", json!(of(|measured| measured.commits))),
            ("plots", json!([plot("fig8", f64::from(records), point)])),
        ]));
        report.add(Figure {
            case: format!("Fig. 8: SUM beside {} writers, M = {records}", load.writers),
            unit: "CPU s",
            ours: costs[n],
            peer: "M = half a range".to_string(),
            theirs: Some(costs[half]),
            goal: None,
            config: settings,
        })?;
    }
    let least = costs
        .iter()
        .map(|cost| cost.median)
        .fold(f64::INFINITY, f64::min);
    let verdict = format!(
        "the best M is about half a range: {} (there {:.2}x the least; the least M costs {:.2}x)",
        holds(costs[half].median <= 1.1 * least),
        costs[half].median / least,
        costs[0].median / least
    );
    report.verdict(&format!("Fig. 8, {} writers", load.writers), &verdict)
}
