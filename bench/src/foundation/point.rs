//! Point transactions by primary key: 8 reads and 2 updates of 4 columns each, the short update
//! transaction of [L-Store §6.1], on a table of 10 bigints.

use super::{Bench, ROUNDS};
use crate::Result;
use crate::ours::Ours;
use crate::peer::Peer;
use crate::report::{Figure, Goal, config};
use crate::rounds::interleave;
use serde_json::json;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;

/// Columns read and updated.
const COLUMNS: [&str; 4] = ["c1", "c2", "c3", "c4"];
const READS: usize = 8;
const UPDATES: usize = 2;

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
pub fn run(bench: &mut Bench) -> Result<Vec<Figure>> {
    let rows = bench.point_rows;
    let ours = fill(bench)?;
    let path = bench.fresh("point.sqlite")?;
    let mut sqlite = Peer::sqlite()?;
    sqlite.call(json!({ "op": "fill", "path": path, "rows": rows, "seed": bench.seed }))?;
    let mut figures = Vec::new();
    for (case, n) in CASES.iter().zip(1_u64..) {
        let synchronous = if case.durable { "FULL" } else { "OFF" };
        let request = json!({
            "op": "run", "path": path, "rows": rows, "threads": case.threads,
            "seconds": bench.seconds, "seed": bench.seed + n, "synchronous": synchronous,
        });
        let run = Run {
            rows,
            seconds: bench.seconds,
            seed: bench.seed + n,
        };
        let medians = interleave(
            ROUNDS,
            vec![
                Box::new(|| run.measure(&ours, case)),
                Box::new(|| {
                    let answer = sqlite.call(request.clone())?;
                    let number = |key: &str| answer[key].as_f64().unwrap_or(f64::NAN);
                    Ok(number("transactions") / number("seconds"))
                }),
            ],
        )?;
        figures.push(Figure {
            case: format!("point transactions, {}", case.name),
            unit: "tx/s",
            ours: medians[0],
            peer: sqlite.name.clone(),
            theirs: Some(medians[1]),
            goal: Some(case.goal),
            config: config([
                ("rows", json!(rows)),
                (
                    "transaction",
                    json!("8 reads and 2 updates of 4 columns, uniform keys"),
                ),
                ("seconds", json!(bench.seconds)),
                ("rounds", json!(ROUNDS)),
                (
                    "theirs",
                    json!(format!("synchronous={synchronous}, {}", sqlite.settings)),
                ),
            ]),
        });
    }
    Ok(figures)
}

/// Our table with the same contents as SQLite's.
fn fill(bench: &Bench) -> Result<Ours> {
    let ours = Ours::open(&bench.fresh("point.strandline")?, super::cores())?;
    ours.execute(
        "CREATE TABLE point (id bigint PRIMARY KEY, c1 bigint, c2 bigint, c3 bigint, c4 bigint, \
         c5 bigint, c6 bigint, c7 bigint, c8 bigint, c9 bigint)",
    )?;
    let mut rng = Rng::new(bench.seed);
    ours.append_bigints("point", 10, bench.point_rows, |id, row| {
        row[0] = id as i64;
        row[1..].fill_with(|| rng.below(1 << 30) as i64);
    })?;
    ours.checkpoint()?;
    Ok(ours)
}

struct Run {
    rows: u64,
    seconds: f64,
    seed: u64,
}

impl Run {
    /// Transactions per second.
    fn measure(&self, ours: &Ours, case: &Case) -> Result<f64> {
        let start = Barrier::new(case.threads as usize + 1);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..case.threads)
                .map(|thread| {
                    let start = &start;
                    let work = move || self.work(ours, case.durable, thread, start);
                    scope.spawn(move || work().map_err(|error| error.to_string()))
                })
                .collect();
            start.wait();
            let started = Instant::now();
            let mut transactions = 0;
            for worker in workers {
                transactions += worker.join().expect("a worker does not panic")?;
            }
            Ok(transactions as f64 / started.elapsed().as_secs_f64())
        })
    }

    fn work(&self, ours: &Ours, durable: bool, thread: u64, start: &Barrier) -> Result<u64> {
        let worker = ours.worker("point", &COLUMNS, durable);
        start.wait();
        let mut worker = worker?;
        let mut rng = Rng::new(self.seed ^ (thread << 32));
        let deadline = Instant::now() + Duration::from_secs_f64(self.seconds);
        let mut transactions = 0;
        while Instant::now() < deadline {
            let reads: [u64; READS] = std::array::from_fn(|_| rng.below(self.rows));
            let updates: [(u64, [i64; 4]); UPDATES] = std::array::from_fn(|_| {
                (
                    rng.below(self.rows),
                    std::array::from_fn(|_| rng.below(1 << 30) as i64),
                )
            });
            worker.transaction(|point| {
                for key in reads {
                    std::hint::black_box(point.get(key as i64)?);
                }
                for (key, values) in updates {
                    point.update(key as i64, values)?;
                }
                Ok(())
            })?;
            transactions += 1;
        }
        Ok(transactions)
    }
}
