//! The group `stores`: an FD+tree alone beside stores of sorted keys, with the same entries of 16
//! bytes, threads and memory.
//!
//! * Half lookups, half insertions of random keys, with memory for a tenth of the entries, against
//!   RocksDB: requests per second, the time that 999 of 1000 requests do not exceed, bytes written
//!   for an insertion. No side writes a log: the entries of an FD+tree come back from the log of
//!   the transactions.
//! * Lookups alone, with all entries in memory, against LMDB.
//!
//! Files go through the system's page cache on both sides.

use super::Bench;
use super::fd_tree::experiment::{Keys, Outcome, Run, in_files};
use crate::Result;
use crate::peer::Peer;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::Spread;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Bytes of an entry.
const ENTRY_BYTES: u64 = 16;
/// The memory is this part of the entries' bytes where it does not hold all of them.
const MEMORY_PART: u64 = 10;
/// The head has this part of the memory. Memtables have as much.
const HEAD_PART: u64 = 4;

/// Runs of both sides with the same requests.
struct Case {
    what: &'static str,
    peer: &'static str,
    lookups: u64,
    entries: u64,
    requests: u64,
    /// None: as much as all entries take
    memory_bytes: Option<u64>,
}

/// What a round of one side gave.
struct Round {
    per_second: f64,
    insertion_p999_ms: f64,
    lookup_p999_ms: f64,
    written_bytes: f64,
}

impl Case {
    /// The directory of a round, which is empty.
    fn directory(&self, bench: &Bench, side: &str, round: usize) -> Result<PathBuf> {
        let name = format!("stores-{}-{side}-{round}", self.peer);
        let directory = bench.directory.join(name);
        if directory.exists() {
            std::fs::remove_dir_all(&directory)?;
        }
        std::fs::create_dir_all(&directory)?;
        Ok(directory)
    }

    fn ours(&self, bench: &Bench, round: usize) -> Result<Round> {
        let all_bytes = self.entries * ENTRY_BYTES * 4;
        let memory = self.memory_bytes.unwrap_or(all_bytes);
        let head = self.memory_bytes.unwrap_or(0) / HEAD_PART;
        let run = Run {
            keys: Keys::Random,
            entries: self.entries,
            requests: self.requests,
            lookups: self.lookups,
            deletes: 0,
            cache_bytes: (memory - head) as usize,
            ..Run::scaled(1.0)
        };
        let run = match self.memory_bytes {
            Some(_) => Run {
                head_bytes: head as usize,
                ..run
            },
            None => run,
        };
        let directory = self.directory(bench, "ours", round)?;
        let done = in_files(run, &directory)?;
        std::fs::remove_dir_all(directory)?;
        Ok(Round {
            per_second: done.per_second(),
            insertion_p999_ms: done.modifications.p999_ms(),
            lookup_p999_ms: done.lookups.p999_ms(),
            written_bytes: Outcome::written_bytes(&done),
        })
    }

    fn theirs(&self, bench: &Bench, peer: &mut Peer, round: usize) -> Result<Round> {
        let directory = self.directory(bench, "theirs", round)?;
        let answer = peer.call(json!({
            "op": "entries",
            "path": directory.join("store"),
            "entries": self.entries,
            "requests": self.requests,
            "lookups": self.lookups,
            "memory_bytes": self.memory_bytes,
        }))?;
        std::fs::remove_dir_all(directory)?;
        let number = |key: &str| answer[key].as_f64().unwrap_or(f64::NAN);
        let insertions = self.requests - self.requests * self.lookups / 100;
        Ok(Round {
            per_second: self.requests as f64 / number("seconds"),
            insertion_p999_ms: number("insertion_p999_ms"),
            lookup_p999_ms: number("lookup_p999_ms"),
            written_bytes: number("written_bytes") / insertions.max(1) as f64,
        })
    }

    fn config(&self, peer: &Peer, rounds: usize) -> Value {
        json!({
            "entries": self.entries,
            "entry_bytes": ENTRY_BYTES,
            "requests": self.requests,
            "lookups_of_100": self.lookups,
            "threads": "6 look up, 2 insert",
            "memory_bytes": self.memory_bytes,
            "head_bytes": self.memory_bytes.map(|bytes| bytes / HEAD_PART),
            "filters": "10 bits an entry on both sides, beside the memory",
            "log": "none on either side",
            "io": "files through the page cache on both sides",
            "peer_settings": peer.settings,
            "rounds": rounds,
        })
    }

    /// Measures both sides in turns.
    fn run(&self, bench: &Bench, figures: &[Measured], report: &mut Report) -> Result<()> {
        let mut peer = match Peer::rival(self.peer) {
            Ok(peer) => peer,
            Err(error) => {
                let text = format!("{} could not be measured: {error}", self.peer);
                return report.verdict("stores", &text);
            }
        };
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..bench.rounds {
            ours.push(self.ours(bench, round)?);
            theirs.push(self.theirs(bench, &mut peer, round)?);
        }
        let config = self.config(&peer, bench.rounds);
        for (what, unit, goal, of) in figures {
            report.add(Figure {
                case: format!("{}: {what}", self.what),
                unit,
                ours: Spread::of(ours.iter().map(of)),
                peer: peer.name.clone(),
                theirs: Some(Spread::of(theirs.iter().map(of))),
                goal: *goal,
                config: config_of(&config),
            })?;
        }
        Ok(())
    }
}

/// A figure's name, unit, goal and value.
type Measured = (&'static str, &'static str, Option<Goal>, fn(&Round) -> f64);

fn config_of(run: &Value) -> serde_json::Map<String, Value> {
    config([("run", run.clone())])
}

/// The group.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let entries = if bench.is_quick {
        1_000_000
    } else {
        10_000_000
    };
    let mixed = Case {
        what: "half lookups, half insertions, memory 10 %",
        peer: "rocksdb",
        lookups: 50,
        entries,
        requests: entries / 2,
        memory_bytes: Some(entries * ENTRY_BYTES / MEMORY_PART),
    };
    let figures: [Measured; 4] = [
        ("requests", "1/s", Some(Goal::AtLeast(1.0)), |of| {
            of.per_second
        }),
        ("p99.9 of insertions", "ms", Some(Goal::AtMost(0.5)), |of| {
            of.insertion_p999_ms
        }),
        ("p99.9 of lookups", "ms", Some(Goal::AtMost(0.5)), |of| {
            of.lookup_p999_ms
        }),
        (
            "written for an insertion",
            "bytes",
            Some(Goal::AtMost(1.0)),
            |of| of.written_bytes,
        ),
    ];
    mixed.run(bench, &figures, report)?;
    let cached = Case {
        what: "lookups, all in memory",
        peer: "lmdb",
        lookups: 100,
        entries,
        requests: entries,
        memory_bytes: None,
    };
    let figures: [Measured; 1] = [("lookups", "1/s", Some(Goal::AtLeast(1.0)), |of| {
        of.per_second
    })];
    cached.run(bench, &figures, report)
}
