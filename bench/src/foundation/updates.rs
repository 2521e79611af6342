//! The cost of updates for a scan: processor time of one `SUM` while rows are updated at a fixed
//! pace, against the same `SUM` without pending updates.
//!
//! One figure has the time of the threads that scan. The other has the time of all threads but the
//! writers, which includes overlays, merges and the log. There is one scan thread. The writers run
//! transactions of [`BATCH`] point updates of the summed column at random keys. They keep to a
//! timetable; their achieved pace is a figure too.

use super::sum::{SUM, load};
use super::{Bench, ROUNDS};
use crate::Result;
use crate::cpu_time::{Class, CpuSeconds, Sample, WRITER};
use crate::ours::Ours;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Spread, median};
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

/// Adds three figures per pace; see [`Writers::case`].
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

/// The threads that update rows during the scans.
pub struct Writers {
    /// Connections, each with a thread.
    pub threads: u64,
    /// Whether their commits wait for the device.
    pub durable: bool,
    /// Rows per second of all threads together.
    pub pace: u64,
}

/// A run of [`Writers`]: the keys that they draw from, and the flag that stops them.
struct Run<'r> {
    rows: u64,
    seed: u64,
    stop: &'r AtomicBool,
    written: &'r AtomicU64,
}

impl Writers {
    /// Adds three figures and returns the seconds of a scan beside the updates. The first has the
    /// processor seconds of the scan against a scan without updates. The second has the same for
    /// all threads but the writers. The third is the pace that the writers achieved.
    pub fn case(
        &self,
        bench: &Bench,
        ours: &Ours,
        goal: Option<Goal>,
        report: &mut Report,
    ) -> Result<Spread> {
        let (mut alone, mut beside, mut achieved) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            ours.checkpoint()?;
            alone.push(scan(ours, bench.seconds)?);
            let (found, rows_per_second) = self.run_beside(bench, ours, round as u64)?;
            beside.push(found);
            achieved.push(rows_per_second);
        }
        let by_class: Vec<_> = beside.iter().map(|scan| scan.cpu.json()).collect();
        let figure = |case: String, unit, ours: Spread, peer: &str, theirs: Spread, goal| Figure {
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
                ("cpu_seconds_by_class_per_scan", json!(by_class)),
            ]),
        };
        let pace = self.pace;
        let of = |scans: &[Scans], number: fn(&Scans) -> f64| Spread::of(scans.iter().map(number));
        let peer = "itself without updates";
        let scanned: fn(&Scans) -> f64 = |scan| scan.cpu.of(Class::Scan);
        let all: fn(&Scans) -> f64 = |scan| scan.cpu.of(Class::Scan) + scan.cpu.background();
        let case = format!("SUM with {pace} updates/s, scan threads");
        let (ours, theirs) = (of(&beside, scanned), of(&alone, scanned));
        report.add(figure(case, "CPU s", ours, peer, theirs, goal))?;
        let case = format!("SUM with {pace} updates/s, all threads but the writers");
        let (ours, theirs) = (of(&beside, all), of(&alone, all));
        report.add(figure(case, "CPU s", ours, peer, theirs, None))?;
        let case = format!("pace of {pace} updates/s");
        let goal = goal.map(|_| Goal::AtLeast(0.9));
        let (ours, theirs) = (Spread::of(achieved), (pace as f64).into());
        report.add(figure(case, "rows/s", ours, "the timetable", theirs, goal))?;
        Ok(of(&beside, |scan| scan.seconds))
    }

    /// Scans with the writers running, after a warm-up of a fifth of the time. Returns the cost of
    /// a scan and the writers' rows/s.
    fn run_beside(&self, bench: &Bench, ours: &Ours, round: u64) -> Result<(Scans, f64)> {
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
            let scans = scan(ours, seconds);
            let rows = written.load(Ordering::Relaxed) - first;
            let rows_per_second = rows as f64 / start.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            for writer in writers {
                writer.join().expect("a writer does not panic")?;
            }
            Ok((scans?, rows_per_second))
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

/// The cost of one of several scans.
struct Scans {
    /// The median of the scans' seconds.
    seconds: f64,
    /// Processor seconds per scan.
    cpu: CpuSeconds,
}

/// Runs the query for `seconds`, at least 3 times.
fn scan(ours: &Ours, seconds: f64) -> Result<Scans> {
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let before = Sample::take()?;
    let mut times = Vec::new();
    while times.len() < 3 || Instant::now() < deadline {
        let began = Instant::now();
        ours.query(SUM)?;
        times.push(began.elapsed().as_secs_f64());
    }
    Ok(Scans {
        cpu: Sample::take()?.since(&before).per(times.len() as f64),
        seconds: median(times),
    })
}
