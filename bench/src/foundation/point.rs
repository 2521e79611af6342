//! Point transactions by primary key: 8 reads and 2 updates of 4 columns each, the short update
//! transaction of [L-Store §6.1], on a table of 10 bigints.

use super::{Bench, ROUNDS};
use crate::Result;
use crate::ours::{Ours, Worker};
use crate::peer::Peer;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::interleave;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;

/// Columns read and updated.
pub const COLUMNS: [&str; 4] = ["c1", "c2", "c3", "c4"];
const READS: usize = 8;
const UPDATES: usize = 2;
/// The transaction's description in the results.
pub const TRANSACTION: &str = "8 reads and 2 updates of 4 columns, uniform keys";
/// The part of a run's seconds for which its threads work before they are counted.
const WARM_PART: f64 = 0.25;
/// Reads of a read-only transaction.
pub const READS_OF_TRANSACTION: usize = 10;

struct Case {
    name: &'static str,
    threads: u64,
    durable: bool,
    goal: Goal,
}

const CASES: [Case; 3] = [
    Case {
        name: "durable, 1 thread",
        threads: 1,
        durable: true,
        goal: Goal::AtLeast(1.0),
    },
    Case {
        name: "durable, 16 threads",
        threads: 16,
        durable: true,
        goal: Goal::AtLeast(4.0),
    },
    Case {
        name: "not durable, 1 thread",
        threads: 1,
        durable: false,
        goal: Goal::AtLeast(3.0),
    },
];

/// One figure per case.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let rows = bench.point_rows;
    let ours = fill(bench, rows)?;
    let mut sqlite = Stored::fill("sqlite", bench, rows)?;
    for (case, n) in CASES.iter().zip(1_u64..) {
        let run = Run {
            rows,
            seconds: bench.seconds,
            seed: bench.seed + n,
        };
        let medians = interleave(
            ROUNDS,
            vec![
                Box::new(|round| {
                    let run = run.in_round(round);
                    run.transactions(&ours, case.threads, case.durable)
                }),
                Box::new(|round| {
                    let run = run.in_round(round);
                    sqlite.rate("run", &run, case.threads, case.durable)
                }),
            ],
        )?;
        report.add(Figure {
            case: format!("point transactions, {}", case.name),
            unit: "tx/s",
            ours: medians[0],
            peer: sqlite.peer.name.clone(),
            theirs: Some(medians[1]),
            goal: Some(case.goal),
            config: config([
                ("rows", json!(rows)),
                ("transaction", json!(TRANSACTION)),
                ("durable", json!(case.durable)),
                ("seconds", json!(bench.seconds)),
                ("rounds", json!(ROUNDS)),
                ("theirs", json!(sqlite.peer.settings)),
            ]),
        })?;
    }
    Ok(())
}

/// Our merged table of `rows` rows with the same values as the peers'.
pub fn fill(bench: &Bench, rows: u64) -> Result<Ours> {
    let ours = Ours::open(&bench.fresh("point.strandline")?, super::cores())?;
    ours.execute(
        "CREATE TABLE point (id bigint PRIMARY KEY, c1 bigint, c2 bigint, c3 bigint, c4 bigint, \
         c5 bigint, c6 bigint, c7 bigint, c8 bigint, c9 bigint)",
    )?;
    let mut rng = Rng::new(bench.seed);
    ours.append_bigints("point", 10, rows, |id, row| {
        row[0] = id as i64;
        row[1..].fill_with(|| rng.below(1 << 30) as i64);
    })?;
    ours.checkpoint()?;
    Ok(ours)
}

/// A peer with its filled table.
pub struct Stored {
    pub peer: Peer,
    path: PathBuf,
}

impl Stored {
    /// Starts the engine called `name` and fills its table.
    pub fn fill(name: &str, bench: &Bench, rows: u64) -> Result<Self> {
        let path = bench.fresh(&format!("point.{name}"))?;
        let mut peer = Peer::rival(name)?;
        peer.call(json!({ "op": "fill", "path": path, "rows": rows, "seed": bench.seed }))?;
        Ok(Self { peer, path })
    }

    /// Runs `op` (`run` for transactions, or `reads`); returns the number per second.
    pub fn rate(&mut self, op: &str, run: &Run, threads: u64, durable: bool) -> Result<f64> {
        let request = json!({
            "op": op, "path": self.path, "rows": run.rows, "threads": threads,
            "seconds": run.seconds, "seed": run.seed, "durable": durable,
        });
        let answer = self.peer.call(request)?;
        let number = |key: &str| answer[key].as_f64().unwrap_or(f64::NAN);
        Ok(number("done") / number("seconds"))
    }
}

/// The keys of one transaction.
pub struct Keys {
    reads: [u64; READS],
    updates: [(u64, [i64; 4]); UPDATES],
}

impl Keys {
    /// Draws the keys from a table of `rows` rows.
    pub fn draw(rng: &mut Rng, rows: u64) -> Self {
        Self {
            reads: std::array::from_fn(|_| rng.below(rows)),
            updates: std::array::from_fn(|_| {
                (
                    rng.below(rows),
                    std::array::from_fn(|_| rng.below(1 << 30) as i64),
                )
            }),
        }
    }

    /// Runs the transaction.
    pub fn run(&self, worker: &mut Worker) -> Result<()> {
        worker.transaction(|point| {
            for &key in &self.reads {
                std::hint::black_box(point.get(key as i64)?);
            }
            for &(key, values) in &self.updates {
                point.update(key as i64, values)?;
            }
            Ok(())
        })
    }
}

/// A measurement on our table.
pub struct Run {
    pub rows: u64,
    pub seconds: f64,
    pub seed: u64,
}

impl Run {
    /// The same measurement with other rows and values. SQLite does not write a page that an update
    /// leaves unchanged, so a repetition of the last round's draws would commit nothing.
    pub fn in_round(&self, round: u64) -> Self {
        Self {
            seed: self.seed + (round << 8),
            ..*self
        }
    }

    /// Transactions per second of all threads.
    pub fn transactions(&self, ours: &Ours, threads: u64, durable: bool) -> Result<f64> {
        self.measure(ours, threads, durable, |worker, rng| {
            Keys::draw(rng, self.rows).run(worker)?;
            Ok(1)
        })
    }

    /// Point reads per second of one thread, [`READS_OF_TRANSACTION`] per transaction.
    pub fn reads(&self, ours: &Ours) -> Result<f64> {
        self.measure(ours, 1, false, |worker, rng| {
            let keys: [u64; READS_OF_TRANSACTION] = std::array::from_fn(|_| rng.below(self.rows));
            worker.transaction(|point| {
                for key in keys {
                    std::hint::black_box(point.get(key as i64)?);
                }
                Ok(())
            })?;
            Ok(READS_OF_TRANSACTION as u64)
        })
    }

    /// The work of all threads per second; `work` returns the amount that it did.
    fn measure(
        &self,
        ours: &Ours,
        threads: u64,
        durable: bool,
        work: impl Fn(&mut Worker, &mut Rng) -> Result<u64> + Sync,
    ) -> Result<f64> {
        let start = Barrier::new(threads as usize + 1);
        let repeat = |thread: u64| -> Result<u64> {
            let worker = ours.worker("point", &COLUMNS, durable);
            let mut rng = Rng::new(self.seed ^ (thread << 32));
            let mut worker = match worker {
                Ok(worker) => worker,
                Err(error) => {
                    start.wait(); // the others wait for this thread
                    return Err(error);
                }
            };
            let mut work_for = |seconds: f64| -> Result<u64> {
                let deadline = Instant::now() + Duration::from_secs_f64(seconds);
                let mut done = 0;
                while Instant::now() < deadline {
                    done += work(&mut worker, &mut rng)?;
                }
                Ok(done)
            };
            // Warm up, as the peers do.
            let warmed = work_for(self.seconds * WARM_PART);
            start.wait();
            warmed?;
            work_for(self.seconds)
        };
        let repeat = &|thread| repeat(thread).map_err(|error| error.to_string());
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|thread| scope.spawn(move || repeat(thread)))
                .collect();
            start.wait();
            let (started, mut done) = (Instant::now(), 0);
            for worker in workers {
                done += worker.join().expect("a worker does not panic")?;
            }
            Ok(done as f64 / started.elapsed().as_secs_f64())
        })
    }
}
