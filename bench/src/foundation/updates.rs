//! What updates cost a scan: processor time of one `SUM` while rows are updated at a fixed pace,
//! against the same `SUM` with nothing pending.
//!
//! One scan thread; writers with transactions of [`BATCH`] point updates of the summed column at
//! random keys. The writers keep to a timetable; what they do not manage shows as their pace.

use super::sum::{SUM, load};
use super::{Bench, ROUNDS};
use crate::Result;
use crate::cpu_time::Sample;
use crate::ours::{Ours, WRITER, is_overlay_thread, is_scan_thread};
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::median;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;

/// Updates per transaction.
const BATCH: u64 = 100;
/// Connections that write, so that commits share the device's syncs.
const WRITERS: u64 = 4;

const PACES: [(u64, Option<Goal>); 3] = [
    (10_000, Some(Goal::AtMost(1.15))),
    (50_000, Some(Goal::AtMost(1.5))),
    (200_000, None),
];

/// Three figures per pace, those of [`Writers::case`].
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let ours = load(&bench.fresh("updates.strandline")?, &bench.numbers()?, 1)?;
    for (pace, goal) in PACES {
        let writers = Writers {
            threads: WRITERS,
            durable: true,
            pace,
        };
        writers.case(bench, &ours, goal, report)?;
    }
    Ok(())
}

/// Who updates while we scan.
pub struct Writers {
    /// Connections, each with a thread.
    pub threads: u64,
    /// Whether their commits wait for the device.
    pub durable: bool,
    /// Rows per second of all together.
    pub pace: u64,
}

/// A run of [`Writers`]: what keys they draw from, and when they stop.
struct Run<'r> {
    rows: u64,
    seed: u64,
    stop: &'r AtomicBool,
    written: &'r AtomicU64,
}

impl Writers {
    /// Adds three figures: processor seconds of the scan against those without updates, those of
    /// the thread that consolidates update ranges meanwhile, and the pace that the writers kept.
    /// Gives the first.
    pub fn case(
        &self,
        bench: &Bench,
        ours: &Ours,
        goal: Option<Goal>,
        report: &mut Report,
    ) -> Result<f64> {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        let (mut consolidation, mut achieved) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            ours.checkpoint()?;
            alone.push(scan(ours, bench.seconds)?.scan);
            let (cpu, rows_per_second) = self.run_beside(bench, ours, round as u64)?;
            beside.push(cpu.scan);
            consolidation.push(cpu.consolidation);
            achieved.push(rows_per_second);
        }
        let figure = |case: String, unit, ours, peer: &str, theirs, goal| Figure {
            case,
            unit,
            ours,
            peer: peer.to_string(),
            theirs: Some(theirs),
            goal,
            config: config([
                ("rows", json!(bench.sum_rows)),
                ("scan_threads", json!(1)),
                ("writers", json!(self.threads)),
                ("updates_per_transaction", json!(BATCH)),
                (
                    "synchronous_commit",
                    json!(if self.durable { "on" } else { "off" }),
                ),
                ("rounds", json!(ROUNDS)),
            ]),
        };
        let pace = self.pace;
        let (alone, beside) = (median(alone), median(beside));
        let peer = "itself without updates";
        let case = format!("SUM with {pace} updates/s");
        report.add(figure(case, "CPU s", beside, peer, alone, goal))?;
        let (case, peer) = (
            format!("consolidation beside it, {pace} updates/s"),
            "the SUM",
        );
        let consolidation = median(consolidation);
        report.add(figure(case, "CPU s", consolidation, peer, beside, None))?;
        let case = format!("pace of {pace} updates/s");
        let goal = goal.map(|_| Goal::AtLeast(0.9));
        let achieved = median(achieved);
        report.add(figure(
            case,
            "rows/s",
            achieved,
            "the timetable",
            pace as f64,
            goal,
        ))?;
        Ok(beside)
    }

    /// Scans with the writers running (and a fifth of the time before, to warm up): what a scan
    /// costs and the writers' rows/s.
    fn run_beside(&self, bench: &Bench, ours: &Ours, round: u64) -> Result<(ScanCpu, f64)> {
        let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
        let (seconds, rows, seed) = (bench.seconds, bench.sum_rows, bench.seed + round);
        let (stop, written) = (&stop, &written);
        let run = &Run {
            rows,
            seed,
            stop,
            written,
        };
        std::thread::scope(|scope| {
            let spawn = |number| {
                let write = move || self.write(number, ours, run).map_err(|e| e.to_string());
                std::thread::Builder::new()
                    .name(WRITER.to_string())
                    .spawn_scoped(scope, write)
            };
            let writers = (0..self.threads)
                .map(spawn)
                .collect::<std::io::Result<Vec<_>>>()?;
            std::thread::sleep(Duration::from_secs_f64(seconds / 5.0));
            let (start, first) = (Instant::now(), written.load(Ordering::Relaxed));
            let cpu = scan(ours, seconds);
            let rows = written.load(Ordering::Relaxed) - first;
            let rows_per_second = rows as f64 / start.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            for writer in writers {
                writer.join().expect("a writer does not panic")?;
            }
            Ok((cpu?, rows_per_second))
        })
    }

    fn write(&self, number: u64, ours: &Ours, run: &Run<'_>) -> Result<()> {
        let mut rng = Rng::new(run.seed ^ (number << 32));
        let pace = self.pace as f64 / self.threads as f64;
        let mut worker = ours.worker("numbers", &["v"], self.durable)?;
        let start = Instant::now();
        let mut transactions = 0;
        while !run.stop.load(Ordering::Relaxed) {
            let due = Duration::from_secs_f64((transactions * BATCH) as f64 / pace);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
            let updates: Vec<(i64, i64)> = (0..BATCH)
                .map(|_| (rng.below(run.rows) as i64, rng.below(1 << 30) as i64))
                .collect();
            worker.transaction(|point| {
                updates
                    .iter()
                    .try_for_each(|&(key, v)| point.update(key, [v]))
            })?;
            transactions += 1;
            run.written.fetch_add(BATCH, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Processor seconds per query.
struct ScanCpu {
    /// Of the threads that scan.
    scan: f64,
    /// Of the one that consolidates update ranges.
    consolidation: f64,
}

/// Runs the query for `seconds`, at least 3 times.
fn scan(ours: &Ours, seconds: f64) -> Result<ScanCpu> {
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let before = Sample::take()?;
    let mut queries = 0;
    while queries < 3 || Instant::now() < deadline {
        ours.query(SUM)?;
        queries += 1;
    }
    let after = Sample::take()?;
    let per_query =
        |chosen: fn(&str) -> bool| after.seconds_since(&before, chosen) / f64::from(queries);
    Ok(ScanCpu {
        scan: per_query(is_scan_thread),
        consolidation: per_query(is_overlay_thread),
    })
}
