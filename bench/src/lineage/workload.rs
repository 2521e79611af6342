//! One measurement: writers, scanners and a merge thread on one engine for a fixed time.

use super::engine::{Engine, Failure, UPDATED};
use crate::Result;
use crate::cpu_time::{Class, CpuSeconds, MERGER, Sample, WRITER};
use crate::report::config;
use crate::rounds::median;
use serde_json::{Map, Value, json};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;

/// The name of threads that scan.
const SCANNER: &str = "bench-scanner";
/// The warm-up reads one row in this many.
const WARM_STEP: usize = 256;
/// The interval at which an idle merge thread looks for work.
const MERGE_POLL: Duration = Duration::from_millis(1);
/// The limit of a measurement that waits for merges, as a multiple of its seconds.
const PATIENCE: f64 = 25.0;

/// The threads of a measurement and their work on the table.
#[derive(Clone)]
pub struct Load {
    /// Threads of short transactions.
    pub writers: usize,
    /// Rows that a transaction reads, and columns of each.
    pub reads: usize,
    pub columns: usize,
    /// Rows that it updates.
    pub updates: usize,
    /// The transactions choose from this many rows, the first of the table.
    pub active: u64,
    /// Threads that sum `scan_rows` rows over and over, each time from a random row on.
    pub scanners: usize,
    pub scan_rows: u64,
    /// Rows of the table.
    pub rows: u64,
    /// Transactions per second of all writers together; None: at full speed.
    pub pace: Option<f64>,
    /// Seconds of a measurement. It goes on until the engine has merged this many ranges.
    pub seconds: f64,
    pub merges: u64,
    pub seed: u64,
}

/// The results of a measurement.
pub struct Measured {
    /// Committed transactions per second.
    pub commits: f64,
    /// Transactions rolled back because of conflicts, per second.
    aborts: f64,
    /// Scans per second of all scanners.
    pub scans: f64,
    /// Processor seconds of one scan, if there is one scanner.
    pub scan_cpu: f64,
    /// The median of the scans' elapsed seconds.
    pub scan_seconds: f64,
    /// Processor seconds per second of all threads.
    pub cpu: CpuSeconds,
    /// Ranges that the engine merged during the measurement.
    pub merges: u64,
}

impl Measured {
    /// The fraction of the transactions that was rolled back.
    pub fn aborted_part(&self) -> f64 {
        self.aborts / (self.commits + self.aborts).max(1.0)
    }

    /// Processor seconds of one scan and of the engine's background work meanwhile: merges,
    /// overlays and the log. The writers' own time is left out.
    pub fn scan_cpu_of_all(&self) -> f64 {
        self.scan_cpu + self.cpu.background() * self.scan_seconds
    }

    /// Processor seconds of all threads but those that scan, per second.
    pub fn cpu_of_transactions(&self) -> f64 {
        self.cpu.of(Class::Write) + self.cpu.background()
    }
}

/// The counters of the threads.
#[derive(Default)]
struct Counts {
    commits: AtomicU64,
    aborts: AtomicU64,
    scans: AtomicU64,
}

/// The state that the threads of one measurement share.
struct Shared<'m> {
    engine: &'m dyn Engine,
    load: &'m Load,
    start: Barrier,
    stop: AtomicBool,
    /// One per writer and scanner, each in a cache line of its own.
    counts: Vec<Padded>,
}

#[derive(Default)]
#[repr(align(128))]
struct Padded(Counts);

impl Load {
    /// Reads rows from every block of the active set. The caches then hold the data that the rivals
    /// always have in memory.
    pub fn warm(&self, engine: &dyn Engine) -> Result<()> {
        let mut session = engine.session(self.columns)?;
        let mut row = vec![0; self.columns];
        let keys: Vec<u64> = (0..self.active).step_by(WARM_STEP).collect();
        for keys in keys.chunks(self.reads.max(1)) {
            let done = session.transaction(&mut |point| {
                keys.iter().try_for_each(|&key| point.read(key, &mut row))
            });
            if let Err(Failure::Error(error)) = done {
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// Runs all threads; a fifth of the time before the measurement is the warm-up.
    pub fn measure(&self, engine: &dyn Engine) -> Result<Measured> {
        let threads = self.writers + self.scanners;
        let shared = &Shared {
            engine,
            load: self,
            start: Barrier::new(threads + 1),
            stop: AtomicBool::new(false),
            counts: (0..threads).map(|_| Padded::default()).collect(),
        };
        std::thread::scope(|scope| {
            let named = |name: &str| std::thread::Builder::new().name(name.to_string());
            let mut running = Vec::new();
            for n in 0..self.writers {
                let work = move || {
                    shared
                        .write(n)
                        .map(|()| Vec::new())
                        .map_err(|e| e.to_string())
                };
                running.push(named(WRITER).spawn_scoped(scope, work)?);
            }
            for n in self.writers..threads {
                let work = move || shared.scan(n).map_err(|e| e.to_string());
                running.push(named(SCANNER).spawn_scoped(scope, work)?);
            }
            named(MERGER).spawn_scoped(scope, || shared.merge())?;
            shared.start.wait();
            std::thread::sleep(Duration::from_secs_f64(self.seconds / 5.0));
            let window = self.window(shared);
            shared.stop.store(true, Ordering::Relaxed);
            let mut scans = Vec::new();
            for thread in running {
                scans.extend(thread.join().expect("a thread does not panic")?);
            }
            let Window {
                seconds,
                counts: [before, after],
                cpu,
                merges,
            } = window?;
            let rate = |n: usize| (after[n] - before[n]) as f64 / seconds;
            let of_scans = |time: fn(&Scan) -> f64| match scans.as_slice() {
                [] => 0.0,
                scans => median(scans.iter().map(time).collect()),
            };
            Ok(Measured {
                commits: rate(0),
                aborts: rate(1),
                scans: rate(2),
                scan_cpu: of_scans(|scan| scan.cpu),
                scan_seconds: of_scans(|scan| scan.seconds),
                cpu: cpu.per(seconds),
                merges,
            })
        })
    }

    /// Waits for the measured time while the threads run.
    fn window(&self, shared: &Shared<'_>) -> Result<Window> {
        let (began, before, cpu) = (Instant::now(), shared.total(), Sample::take()?);
        let merged = shared.engine.merges();
        let merges = || shared.engine.merges() - merged;
        let step = Duration::from_secs_f64(self.seconds);
        loop {
            std::thread::sleep(step);
            if merges() >= self.merges || began.elapsed() >= step.mul_f64(PATIENCE) {
                break;
            }
        }
        Ok(Window {
            seconds: began.elapsed().as_secs_f64(),
            counts: [before, shared.total()],
            cpu: Sample::take()?.since(&cpu),
            merges: merges(),
        })
    }

    /// The load's description in a result.
    pub fn config(&self) -> Map<String, Value> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = self.writers + self.scanners + 1;
        let (reads, updates, columns) = (self.reads, self.updates, self.columns);
        config([
            ("rows", json!(self.rows)),
            ("active", json!(self.active)),
            ("writers", json!(self.writers)),
            ("scanners", json!(self.scanners)),
            ("scan_rows", json!(self.scan_rows)),
            ("oversubscribed", json!(threads > cores)),
            (
                "transaction",
                json!(format!(
                    "{reads} reads of {columns} and {updates} updates of {UPDATED} columns, \
                     read committed, abort at once"
                )),
            ),
            ("seconds", json!(self.seconds)),
            ("pace", json!(self.pace)),
        ])
    }
}

/// The measured time.
struct Window {
    seconds: f64,
    /// The values of [`Shared::total`] at the begin and at the end.
    counts: [[u64; 3]; 2],
    cpu: CpuSeconds,
    merges: u64,
}

/// The cost of one scan.
struct Scan {
    seconds: f64,
    cpu: f64,
}

impl Shared<'_> {
    /// Commits, aborts and scans so far.
    fn total(&self) -> [u64; 3] {
        let sum = |count: fn(&Counts) -> &AtomicU64| {
            self.counts
                .iter()
                .map(|c| count(&c.0).load(Ordering::Relaxed))
                .sum()
        };
        [sum(|c| &c.commits), sum(|c| &c.aborts), sum(|c| &c.scans)]
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn write(&self, n: usize) -> Result<()> {
        let (load, counts) = (self.load, &self.counts[n].0);
        let session = self.engine.session(load.columns);
        self.start.wait();
        let mut session = session?;
        let mut rng = Rng::new(load.seed ^ ((n as u64) << 40));
        let mut row = vec![0; load.columns];
        let mut keys = vec![0; load.reads + load.updates];
        let start = Instant::now();
        let mut done = 0_u32;
        while !self.stopped() {
            if let Some(pace) = load.pace {
                let due = f64::from(done) * load.writers as f64 / pace;
                std::thread::sleep(Duration::from_secs_f64(due).saturating_sub(start.elapsed()));
                done += 1;
            }
            keys.fill_with(|| rng.below(load.active));
            let values: [i64; UPDATED] = std::array::from_fn(|_| rng.below(1 << 30) as i64);
            let (reads, updates) = keys.split_at(load.reads);
            let outcome = session.transaction(&mut |point| {
                for &key in reads {
                    point.read(key, &mut row)?;
                    std::hint::black_box(&row);
                }
                updates
                    .iter()
                    .try_for_each(|&key| point.update(key, &values))
            });
            match outcome {
                Ok(()) => counts.commits.fetch_add(1, Ordering::Relaxed),
                Err(Failure::Conflict) => counts.aborts.fetch_add(1, Ordering::Relaxed),
                Err(Failure::Error(error)) => return Err(error.into()),
            };
        }
        Ok(())
    }

    /// Scans until the end, at least once; returns each scan's cost.
    fn scan(&self, n: usize) -> Result<Vec<Scan>> {
        let (load, counts) = (self.load, &self.counts[n].0);
        let scanner = self.engine.scanner();
        self.start.wait();
        let mut scanner = scanner?;
        let mut rng = Rng::new(load.seed ^ ((n as u64) << 40));
        let mut scans = Vec::new();
        let before = Sample::take()?;
        while scans.is_empty() || !self.stopped() {
            let first = rng.below(load.rows - load.scan_rows + 1);
            let began = Instant::now();
            std::hint::black_box(scanner.sum(first..first + load.scan_rows)?);
            scans.push(Scan {
                seconds: began.elapsed().as_secs_f64(),
                cpu: 0.0,
            });
            counts.scans.fetch_add(1, Ordering::Relaxed);
        }
        let cpu = Sample::take()?.since(&before).of(Class::Scan) / scans.len() as f64;
        scans.iter_mut().for_each(|scan| scan.cpu = cpu);
        Ok(scans)
    }

    fn merge(&self) {
        while !self.stopped() {
            if !self.engine.merge() {
                std::thread::park_timeout(MERGE_POLL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rivals::{Dbm, Iuh, Layout};
    use super::*;

    #[test]
    fn every_thread_does_something() {
        let rows = 5_000;
        let load = Load {
            writers: 2,
            reads: 2,
            columns: 4,
            updates: 2,
            active: 10,
            scanners: 2,
            scan_rows: 500,
            rows,
            pace: None,
            seconds: 0.2,
            merges: 0,
            seed: 1,
        };
        let engines: [&dyn Engine; 2] = [&<Iuh>::new(rows, 1), &Dbm::new(Layout::Columns, rows, 1)];
        for engine in engines {
            let measured = load.measure(engine).unwrap();
            assert!(measured.commits > 0.0 && measured.scans > 0.0);
            assert!(measured.scan_seconds > 0.0);
            assert!(measured.cpu.of(Class::Write) > 0.0);
        }
    }
}
