//! The paper's transaction and point reads on 1 M rows, against stores in common use for them:
//! SQLite and four key-value stores, each in its own process.

use super::{Bench, ROUNDS};
use crate::Result;
use crate::foundation::point::{self, READS_OF_TRANSACTION, Run, Stored, TRANSACTION};
use crate::ours::Ours;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, interleave};
use serde_json::json;

/// Engines by the names of bench/rivals.
const ENGINES: [&str; 5] = ["sqlite", "rocksdb", "redb", "fjall", "lmdb"];

/// One comparison with all peers.
struct Case {
    name: &'static str,
    unit: &'static str,
    /// The name of the operation in the peer's protocol.
    op: &'static str,
    threads: u64,
    durable: bool,
    /// The goal for our rate divided by the peer's.
    goal: fn(&str) -> Option<f64>,
}

const CASES: [Case; 3] = [
    Case {
        name: "peers: transactions, not durable, 1 thread",
        unit: "tx/s",
        op: "run",
        threads: 1,
        durable: false,
        goal: |engine| Some(if engine == "sqlite" { 3.0 } else { 2.0 }),
    },
    Case {
        name: "peers: transactions, durable, 16 threads",
        unit: "tx/s",
        op: "run",
        threads: 16,
        durable: true,
        goal: |engine| match engine {
            "sqlite" => Some(4.0),
            "rocksdb" => Some(1.0),
            _ => None,
        },
    },
    Case {
        name: "peers: point reads, 1 thread",
        unit: "reads/s",
        op: "reads",
        threads: 1,
        durable: false,
        goal: |engine| (engine == "lmdb").then_some(1.0),
    },
];

/// A figure per case and peer.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let rows = bench.shared.point_rows;
    let ours = point::fill(&bench.shared, rows)?;
    let mut peers = Vec::new();
    for name in ENGINES {
        match Stored::fill(name, &bench.shared, rows) {
            Ok(peer) => peers.push((name, peer)),
            Err(error) => eprintln!("{name} is not measured: {error}"),
        }
    }
    for (case, number) in CASES.iter().zip(1..) {
        case.run(number, bench, &ours, &mut peers, report)?;
    }
    Ok(())
}

impl Case {
    fn run(
        &self,
        number: u64,
        bench: &Bench,
        ours: &Ours,
        peers: &mut [(&str, Stored)],
        report: &mut Report,
    ) -> Result<()> {
        let shared = &bench.shared;
        let run = Run {
            rows: shared.point_rows,
            seconds: shared.seconds / 2.0,
            seed: shared.seed + number,
        };
        let mut sides: Vec<Side<'_>> = vec![Box::new(|round| match self.op {
            "reads" => run.in_round(round).reads(ours),
            _ => run
                .in_round(round)
                .transactions(ours, self.threads, self.durable),
        })];
        for (_, peer) in peers.iter_mut() {
            let run = &run;
            let side =
                move |round| peer.rate(self.op, &run.in_round(round), self.threads, self.durable);
            sides.push(Box::new(side));
        }
        let medians = interleave(ROUNDS, sides)?;
        for ((engine, stored), theirs) in peers.iter().zip(&medians[1..]) {
            let work = match self.op {
                "reads" => format!("{READS_OF_TRANSACTION} reads of 4 columns, uniform keys"),
                _ => TRANSACTION.to_string(),
            };
            report.add(Figure {
                case: self.name.to_string(),
                unit: self.unit,
                ours: medians[0],
                peer: stored.peer.name.clone(),
                theirs: Some(*theirs),
                goal: (self.goal)(engine).map(Goal::AtLeast),
                config: config([
                    ("rows", json!(run.rows)),
                    ("transaction", json!(work)),
                    ("threads", json!(self.threads)),
                    ("durable", json!(self.durable)),
                    ("seconds", json!(run.seconds)),
                    ("rounds", json!(ROUNDS)),
                    ("theirs", json!(stored.peer.settings)),
                ]),
            })?;
        }
        Ok(())
    }
}
