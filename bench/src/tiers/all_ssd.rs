//! The group `all_ssd`: point transactions on a table ten times larger than the memory, all files
//! on the device of the benchmark, beside SQLite and RocksDB with the same memory; and what a cold
//! read of one column takes of the capacity tier.
//!
//! Our key is on pages: a hash index would be in memory, beyond its setting.
//!
//! Each engine runs in a process and a control group of its own, of its memory and
//! [`PROGRAM_BYTES`]; without control groups the results say so. RocksDB reads and writes tables
//! past the page cache, the others do not.

pub mod own_process;

use super::files::{self, ProcessIo};
use super::memory_group::{MemoryGroup, PROGRAM_BYTES};
use super::{Bench, cold_column};
use crate::Result;
use crate::foundation::point::{Run, TRANSACTION};
use crate::ours::Ours;
use crate::peer::Peer;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, Spread, take_turns};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use strandline::Database;
use strandline_base::rng::Rng;

/// Rounds of every case; the figure is their median.
const ROUNDS: usize = 3;
/// Rows of 80 bytes, and with --quick.
const ROWS: u64 = 8_000_000;
const QUICK_ROWS: u64 = 2_200_000;
/// Bytes of a row without compression.
const ROW_BYTES: u64 = 80;
/// The memory of an engine is this part of the rows.
const MEMORY_PART: u64 = 10;
const THREADS: u64 = 16;
/// Rows that a transaction reads: eight, and two that it updates.
const ROWS_OF_TRANSACTION: f64 = 10.0;
/// How much longer than it is counted a run works, for its warm-up.
const WARM: f64 = 1.25;
/// The peers with their goals.
const PEERS: [(&str, f64); 2] = [("sqlite", 1.0), ("rocksdb", 0.5)];

/// The group.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    transactions(bench, report)?;
    cold_column::run(bench, report)
}

/// What a run has done.
#[derive(Clone, Copy)]
struct Done {
    /// transactions per second
    rate: f64,
    io: ProcessIo,
}

/// The table of every engine, and what its runs have in common.
struct Plan {
    rows: u64,
    memory_bytes: u64,
    seconds: f64,
    seed: u64,
}

impl Plan {
    fn run(&self, round: u64) -> Run {
        let run = Run {
            rows: self.rows,
            seconds: self.seconds,
            seed: self.seed,
        };
        run.in_round(round)
    }

    /// The memory that a process may have.
    fn group(&self, name: &str) -> Result<MemoryGroup> {
        MemoryGroup::new(name, self.memory_bytes + PROGRAM_BYTES)
    }

    /// Input and output of a process during `run`, which gives transactions per second.
    fn measure(&self, process: &str, run: impl FnOnce() -> Result<f64>) -> Result<Done> {
        let before = ProcessIo::of(process)?;
        let rate = run()?;
        let io = ProcessIo::of(process)?.since(before);
        Ok(Done { rate, io })
    }

    /// Reads and bytes of a row that was read, and bytes written by a transaction.
    fn describe(&self, done: &[Done]) -> Value {
        let of = |count: fn(&ProcessIo) -> u64, per: f64| {
            let each = done.iter().map(|done| {
                let transactions = done.rate * self.seconds * WARM;
                count(&done.io) as f64 / (transactions * per).max(1.0)
            });
            json!((Spread::of(each).median * 100.0).round() / 100.0)
        };
        json!({
            "reads_per_row": of(|io| io.reads, ROWS_OF_TRANSACTION),
            "device_bytes_read_per_row": of(|io| io.read_bytes, ROWS_OF_TRANSACTION),
            "bytes_written_per_transaction": of(|io| io.written_bytes, 1.0),
        })
    }
}

impl Plan {
    /// What our runs and those of the peer `name` have done, if it could be measured.
    fn figure(
        &self,
        (own, ours): (&Engine, &[Done]),
        name: &str,
        theirs: Option<(&Engine, &Vec<Done>)>,
    ) -> Figure {
        let rates = |done: &[Done]| Spread::of(done.iter().map(|done| done.rate));
        Figure {
            case: format!("point transactions, data 10 x memory, {THREADS} threads"),
            unit: "tx/s",
            ours: rates(ours),
            peer: theirs.map_or(name.into(), |(rival, _)| rival.peer.name.clone()),
            theirs: theirs.map(|(_, done)| rates(done)),
            goal: None,
            config: config([
                ("rows", json!(self.rows)),
                ("transaction", json!(TRANSACTION)),
                ("durable", json!(true)),
                ("memory_bytes", json!(self.memory_bytes)),
                ("seconds", json!(self.seconds)),
                ("rounds", json!(ROUNDS)),
                ("io", json!("ours and SQLite buffered, RocksDB O_DIRECT")),
                ("control_group", own.control_group.clone()),
                (
                    "their_control_group",
                    json!(theirs.map(|(rival, _)| rival.control_group.clone())),
                ),
                ("ours_io", self.describe(ours)),
                (
                    "theirs_io",
                    json!(theirs.map(|(_, done)| self.describe(done))),
                ),
            ]),
        }
    }
}

/// An engine with its table, in a process and a control group of its own.
struct Engine {
    name: &'static str,
    peer: Peer,
    path: PathBuf,
    /// its bytes, or why there is none
    control_group: Value,
    /// until the process has ended
    _group: Option<MemoryGroup>,
}

impl Engine {
    /// A process that has done nothing yet: the group would not count the memory that another one
    /// has from filling the table.
    fn new(plan: &Plan, name: &'static str, peer: Peer, path: PathBuf) -> Result<Self> {
        let group = plan.group(name).and_then(|group| {
            group.join(peer.id())?;
            Ok(group)
        });
        let control_group = match &group {
            Ok(_) => json!(plan.memory_bytes + PROGRAM_BYTES),
            Err(error) => json!(format!("none, the page cache counts for nothing: {error}")),
        };
        files::forget(&path)?;
        Ok(Self {
            name,
            peer,
            path,
            control_group,
            _group: group.ok(),
        })
    }

    fn ours(bench: &Bench, plan: &Plan) -> Result<Self> {
        let path = bench.directory.join("all-ssd");
        fill(&path, plan)?;
        Self::new(plan, "ours", Peer::ourselves()?, path)
    }

    fn rival(bench: &Bench, plan: &Plan, name: &'static str) -> Result<Self> {
        let path = bench.directory.join(format!("all-ssd.{name}"));
        let fill = json!({ "op": "fill", "path": path, "rows": plan.rows, "seed": plan.seed });
        Peer::rival(name)?.call(fill)?;
        Self::new(plan, name, Peer::rival(name)?, path)
    }

    /// Ends the process and removes its table.
    fn remove(self) -> Result<()> {
        let path = self.path.clone();
        drop(self);
        match path.is_dir() {
            true => std::fs::remove_dir_all(path)?,
            false => std::fs::remove_file(path)?,
        }
        Ok(())
    }

    fn transactions(&mut self, plan: &Plan, round: u64) -> Result<Done> {
        let run = plan.run(round);
        let request = json!({
            "op": "run", "path": self.path, "rows": run.rows, "threads": THREADS,
            "seconds": run.seconds, "seed": run.seed, "durable": true,
            "memory_bytes": plan.memory_bytes,
        });
        let process = self.peer.id().to_string();
        plan.measure(&process, || {
            let answer = self.peer.call(request)?;
            let number = |key: &str| answer[key].as_f64().unwrap_or(f64::NAN);
            Ok(number("done") / number("seconds"))
        })
    }
}

fn transactions(bench: &Bench, report: &mut Report) -> Result<()> {
    let rows = bench.sized(ROWS, QUICK_ROWS);
    let plan = Plan {
        rows,
        memory_bytes: rows * ROW_BYTES / MEMORY_PART,
        seconds: bench.sized(4.0, 0.6),
        seed: bench.seed,
    };
    let mut ours = Engine::ours(bench, &plan)?;
    let mut rivals = Vec::new();
    for (name, _) in PEERS {
        match Engine::rival(bench, &plan, name) {
            Ok(rival) => rivals.push(rival),
            Err(error) => eprintln!("{name}: {error}"),
        }
    }
    let plan = &plan;
    let mut sides: Vec<Side<'_, Done>> = Vec::new();
    for engine in std::iter::once(&mut ours).chain(&mut rivals) {
        sides.push(Box::new(move |round| engine.transactions(plan, round)));
    }
    let done = take_turns(ROUNDS, sides)?;
    for (name, goal) in PEERS {
        let measured = rivals.iter().zip(&done[1..]);
        let theirs = { measured }.find(|(rival, _)| rival.name == name);
        let mut figure = plan.figure((&ours, &done[0][..]), name, theirs);
        figure.goal = Some(Goal::AtLeast(goal));
        report.add(figure)?;
    }
    ours.remove()?;
    rivals.into_iter().try_for_each(Engine::remove)
}

/// Makes our table of the point transactions, with the same values as the peers'.
fn fill(directory: &Path, plan: &Plan) -> Result<()> {
    let ours = Ours::build(Database::builder(directory))?;
    ours.execute(
        "CREATE TABLE point (id bigint PRIMARY KEY, c1 bigint, c2 bigint, c3 bigint, c4 bigint, \
         c5 bigint, c6 bigint, c7 bigint, c8 bigint, c9 bigint) WITH (key_index = 'btree')",
    )?;
    let mut rng = Rng::new(plan.seed);
    ours.append_bigints("point", 10, plan.rows, |id, row| {
        row[0] = id as i64;
        row[1..].fill_with(|| rng.below(1 << 30) as i64);
    })?;
    ours.checkpoint()?;
    Ok(ours.database().close()?)
}
