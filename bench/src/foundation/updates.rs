//! What updates cost a scan: processor time of one `SUM` while rows are updated at a fixed pace,
//! against the same `SUM` with nothing pending.
//!
//! One scan thread; [`WRITERS`] writers, each with durable transactions of [`BATCH`] point updates
//! of the summed column at random keys. The writers keep to a timetable; what they do not manage
//! shows as their pace.

use super::sum::{SUM, load};
use super::{Bench, ROUNDS};
use crate::Result;
use crate::cpu_time::Sample;
use crate::ours::{Ours, is_scan_thread};
use crate::report::{Figure, Goal, config};
use crate::rounds::median;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;

/// Updates per transaction.
const BATCH: u64 = 100;
/// Connections that write, so that commits share the device's syncs.
const WRITERS: u64 = 4;
/// The writers' thread name.
pub const WRITER: &str = "bench-writer";

const PACES: [(u64, Option<Goal>); 3] = [
    (10_000, Some(Goal::AtMost(1.15))),
    (50_000, Some(Goal::AtMost(1.5))),
    (200_000, None),
];

/// Two figures per pace: the scan's processor time and the writer's pace.
pub fn run(bench: &mut Bench) -> Result<Vec<Figure>> {
    let ours = load(&bench.fresh("updates.strandline")?, &bench.numbers()?, 1)?;
    let mut figures = Vec::new();
    for (pace, goal) in PACES {
        let (mut alone, mut beside, mut achieved) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            ours.checkpoint()?;
            alone.push(scan(&ours, bench.seconds)?);
            let writers = Writers {
                pace,
                rows: bench.sum_rows,
                seed: bench.seed + round as u64,
            };
            let (cpu, rows_per_second) = writers.run_beside(&ours, bench.seconds)?;
            beside.push(cpu);
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
                ("writers", json!(WRITERS)),
                ("updates_per_transaction", json!(BATCH)),
                ("synchronous_commit", json!("on")),
                ("rounds", json!(ROUNDS)),
            ]),
        };
        let case = format!("SUM with {pace} updates/s");
        let (alone, beside) = (median(alone), median(beside));
        figures.push(figure(
            case,
            "CPU s",
            beside,
            "itself without updates",
            alone,
            goal,
        ));
        let case = format!("pace of {pace} updates/s");
        let goal = goal.map(|_| Goal::AtLeast(0.9));
        figures.push(figure(
            case,
            "rows/s",
            median(achieved),
            "the timetable",
            pace as f64,
            goal,
        ));
    }
    Ok(figures)
}

/// Runs the query for `seconds`, at least 3 times: processor seconds per query.
fn scan(ours: &Ours, seconds: f64) -> Result<f64> {
    let deadline = Instant::now() + Duration::from_secs_f64(seconds);
    let before = Sample::take()?;
    let mut queries = 0;
    while queries < 3 || Instant::now() < deadline {
        ours.query(SUM)?;
        queries += 1;
    }
    let cpu = Sample::take()?.seconds_since(&before, is_scan_thread);
    Ok(cpu / f64::from(queries))
}

struct Writers {
    /// rows per second of all together
    pace: u64,
    rows: u64,
    seed: u64,
}

impl Writers {
    /// Scans for `seconds` with the writers running (and a fifth of that before, to warm up): the
    /// scan's processor seconds and the writers' rows/s.
    fn run_beside(&self, ours: &Ours, seconds: f64) -> Result<(f64, f64)> {
        let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (stop, written) = (&stop, &written);
            let spawn = |number| {
                let write = move || {
                    let done = self.write(number, ours, stop, written);
                    done.map_err(|e| e.to_string())
                };
                std::thread::Builder::new()
                    .name(WRITER.to_string())
                    .spawn_scoped(scope, write)
            };
            let writers = (0..WRITERS)
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

    fn write(
        &self,
        number: u64,
        ours: &Ours,
        stop: &AtomicBool,
        written: &AtomicU64,
    ) -> Result<()> {
        let mut rng = Rng::new(self.seed ^ (number << 32));
        let pace = self.pace as f64 / WRITERS as f64;
        let mut worker = ours.worker("numbers", &["v"], true)?;
        let start = Instant::now();
        let mut transactions = 0;
        while !stop.load(Ordering::Relaxed) {
            let due = Duration::from_secs_f64((transactions * BATCH) as f64 / pace);
            std::thread::sleep(due.saturating_sub(start.elapsed()));
            let updates: Vec<(i64, i64)> = (0..BATCH)
                .map(|_| (rng.below(self.rows) as i64, rng.below(1 << 30) as i64))
                .collect();
            worker.transaction(|point| {
                updates
                    .iter()
                    .try_for_each(|&(key, v)| point.update(key, [v]))
            })?;
            transactions += 1;
            written.fetch_add(BATCH, Ordering::Relaxed);
        }
        Ok(())
    }
}
