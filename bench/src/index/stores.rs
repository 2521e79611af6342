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
use super::fd_tree::experiment::{BLOCK_BYTES, Keys, Run, in_files};
use crate::Result;
use crate::peer::Peer;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::Spread;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Bytes of an entry.
const ENTRY_BYTES: u64 = 16;
/// The memory is this part of the entries' bytes where it does not hold all of them.
const MEMORY_PART: u64 = 10;
/// The head has this part of the memory. Memtables have as much.
const HEAD_PART: u64 = 4;
/// Bytes of the head for a byte that it puts into blocks at once: entries take half of the head,
/// and there four times what they take in a block. Levels are multiples of what it puts.
const HEAD_BYTES_OF_BYTE: u64 = 8;

/// Runs of both sides with the same requests.
struct Case {
    what: &'static str,
    peer: &'static str,
    /// how the peer keeps entries, which is not how it keeps rows
    peer_settings: &'static str,
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
        let run = Run {
            keys: Keys::Random,
            entries: self.entries,
            requests: self.requests,
            lookups: self.lookups,
            deletes: 0,
            ..Run::scaled(1.0)
        };
        let run = match self.memory_bytes {
            Some(memory) => Run {
                head_bytes: (memory / HEAD_PART) as usize,
                head_blocks: memory / HEAD_PART / HEAD_BYTES_OF_BYTE / BLOCK_BYTES as u64,
                cache_bytes: (memory - memory / HEAD_PART) as usize,
                ..run
            },
            None => Run {
                cache_bytes: (self.entries * ENTRY_BYTES * 4) as usize,
                ..run
            },
        };
        let directory = self.directory(bench, "ours", round)?;
        let done = in_files(run, &directory)?;
        std::fs::remove_dir_all(directory)?;
        Ok(Round {
            per_second: done.per_second(),
            insertion_p999_ms: done.modifications.p999_ms(),
            lookup_p999_ms: done.lookups.p999_ms(),
            written_bytes: done.written_bytes(),
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

    fn config(&self, rounds: usize) -> Map<String, Value> {
        let run = json!({
            "entries": self.entries,
            "entry_bytes": ENTRY_BYTES,
            "requests": self.requests,
            "lookups_of_100": self.lookups,
            "threads": "6 look up, 2 insert",
            "memory_bytes": self.memory_bytes,
            "head_bytes": self.memory_bytes.map(|bytes| bytes / HEAD_PART),
            "head_bytes_of_a_written_byte": HEAD_BYTES_OF_BYTE,
            "filters": "10 bits an entry on both sides, beside the memory",
            "log": "none on either side",
            "io": "files through the page cache on both sides",
            "peer_settings": self.peer_settings,
            "rounds": rounds,
        });
        config([("run", run)])
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
        for (what, unit, goal, of) in figures {
            report.add(Figure {
                case: format!("{}: {what}", self.what),
                unit,
                ours: Spread::of(ours.iter().map(of)),
                peer: peer.name.clone(),
                theirs: Some(Spread::of(theirs.iter().map(of))),
                goal: *goal,
                config: self.config(bench.rounds),
            })?;
        }
        Ok(())
    }
}

/// A figure's name, unit, goal and value.
type Measured = (&'static str, &'static str, Option<Goal>, fn(&Round) -> f64);

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
        peer_settings: "clock cache of three quarters of the memory, two memtables of an eighth, \
                        Bloom filters 10 bits, hash index in blocks, no compression",
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
        peer_settings: "map of 8 GiB, NORDAHEAD, NOMEMINIT, WRITEMAP, NOSYNC, MAPASYNC; one \
                        snapshot a thread",
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
