//! The suite `index`: what secondary indexes and foreign keys give to readers and cost writers.
//!
//! | group | figure | peer |
//! |---|---|---|
//! | keys | µs per read by a random bigint, UUID, text or composite key, in process | serial keys |
//! | create | seconds of CREATE INDEX | PostgreSQL, DuckDB |
//! | reads | µs of 10 rows by an index, ORDER BY … LIMIT 10, MIN and MAX | PostgreSQL |
//! | embedded | the same in process | SQLite |
//! | writes | 8 + 2 transactions/s with 0, 1 and 8 indexes | itself without indexes, PostgreSQL |
//! | orders | orders/s with 10 lines and two foreign keys, 1 and 8 clients | PostgreSQL, SQLite |
//! | load | rows/s into a table with two indexes and a foreign key | DuckDB |
//! | churn | an index after 10 M updates of its column: bytes, updates/s | a fresh index |
//! | storages | reads, transactions, loads, openings with indexes in levels | indexes in memory |
//! | fdtree | an FD+tree's worst insert, requests/s and space | the FD+ paper's other merges |
//! | stores | requests/s and p99.9 of an FD+tree alone | RocksDB, LMDB |
//! | indirection | ms and accesses of an operation, indexes of row ids | indexes of record ids |
//! | selectivity | ms of a sum over 1 to all rows, as chosen | the index, a scan, PostgreSQL |
//!
//! The groups `create`, `reads` and `selectivity` share a table. `create` runs first, since it
//! leaves its indexes for the other two.

mod churn;
mod clients;
mod create;
mod embedded;
mod fd_tree;
mod indirection;
mod keys;
mod load;
mod orders;
mod reads;
mod selectivity;
mod storages;
mod stores;
mod writes;

use crate::peer::Peer;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, Spread, interleave};
use crate::served::{Served, done};
use crate::{Group, Result};
use clients::Client;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;
use strandline_index::hash_integer;

/// Every group, in the order they run.
pub const GROUPS: [(&str, Group<Bench>); 13] = [
    ("keys", keys::run),
    ("create", create::run),
    ("reads", reads::run),
    ("embedded", embedded::run),
    ("writes", writes::run),
    ("orders", orders::run),
    ("load", load::run),
    ("churn", churn::run),
    ("selectivity", selectivity::run),
    ("storages", storages::run),
    ("fdtree", fd_tree::run),
    ("stores", stores::run),
    ("indirection", indirection::run),
];

/// Rows with the same value of `a`.
const SAME: u64 = 10;

/// The table that the groups share. `a` has each value in [`SAME`] scattered rows. `v` and its copy
/// `u` are unique and random, and `note` is a random text.
const TABLE: &str = "CREATE TABLE items (id bigint PRIMARY KEY, a bigint NOT NULL, \
                     v bigint NOT NULL, u bigint NOT NULL, note text NOT NULL)";

/// Sizes, directories and peers of a run.
pub struct Bench {
    directory: PathBuf,
    seed: u64,
    /// rows of the shared table
    rows: u64,
    /// rows of a table that only one group uses
    small_rows: u64,
    rounds: usize,
    is_quick: bool,
    /// the paper's largest sizes, too
    is_full: bool,
    /// duration of one round of statements
    round: Duration,
    /// rows of the table that `churn` updates, and how many updates it makes
    churned: (u64, u64),
    /// ours and PostgreSQL
    servers: Option<[Client; 2]>,
    /// whether they have the shared table
    is_loaded: bool,
    duckdb: Option<Peer>,
}

impl Bench {
    /// A run that keeps our files in `directory`; PostgreSQL's files are below `/var/tmp`.
    pub fn new(directory: &Path, (quick, is_full): (bool, bool), seed: u64) -> Self {
        Self {
            directory: directory.to_path_buf(),
            seed,
            rows: if quick { 1_000_000 } else { 10_000_000 },
            small_rows: if quick { 100_000 } else { 1_000_000 },
            rounds: if quick { 3 } else { 5 },
            is_quick: quick,
            is_full,
            round: Duration::from_millis(if quick { 200 } else { 2_000 }),
            churned: if quick {
                (20_000, 300_000)
            } else {
                (100_000, 10_000_000)
            },
            servers: None,
            is_loaded: false,
            duckdb: Peer::duckdb().map_err(|error| eprintln!("{error}")).ok(),
        }
    }

    /// Ours and PostgreSQL, started on first use.
    fn servers(&mut self) -> Result<&mut [Client; 2]> {
        if self.servers.is_none() {
            let path = self.directory.join("index.strandline");
            let ours = Client::connect(Served::ours(&path, "4GiB")?)?;
            let theirs = Client::connect(Served::postgres()?)?;
            self.servers = Some([ours, theirs]);
        }
        Ok(self.servers.as_mut().ok_or("no server runs")?)
    }

    /// The servers with the shared table, loaded on first use from the same file.
    fn with_items(&mut self) -> Result<&mut [Client; 2]> {
        if !self.is_loaded {
            let file = self.file()?;
            let servers = self.servers()?;
            for server in servers.iter() {
                let load = format!("\\copy items FROM '{}' (FORMAT csv)", file.display());
                let mut psql = server.program("psql");
                psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-c", TABLE]);
                done(psql.args(["-c", &load, "-c", "CHECKPOINT"]))?;
            }
            servers[1].run("VACUUM ANALYZE items")?;
            self.is_loaded = true;
        }
        self.servers()
    }

    /// The shared table's rows as CSV, written on first use.
    fn file(&self) -> Result<PathBuf> {
        let path = self.directory.join("items.csv");
        if path.exists() {
            return Ok(path);
        }
        let mut file = BufWriter::new(std::fs::File::create(&path)?);
        let mut rng = Rng::new(self.seed);
        let mut line = String::new();
        for id in 0..self.rows {
            let (a, v) = (self.scattered(id) / SAME, self.scattered(id));
            line.clear();
            let note = rng.next_u64();
            writeln!(line, "{id},{a},{v},{v},note {note:016x} of {}", id % 1000)?;
            file.write_all(line.as_bytes())?;
        }
        file.flush()?;
        Ok(path)
    }

    /// A number below `rows` for each row. Every number occurs once, in random order.
    fn scattered(&self, row: u64) -> u64 {
        scattered(row, self.rows, self.seed)
    }

    /// Mean microseconds of `run` in one round; it gets a random number below `below`.
    fn time(&self, round: u64, below: u64, mut run: impl FnMut(i64) -> Result<()>) -> Result<f64> {
        let mut rng = Rng::new(self.seed + round);
        let (started, mut count) = (Instant::now(), 0_u32);
        while started.elapsed() < self.round || count == 0 {
            run(rng.below(below) as i64)?;
            count += 1;
        }
        Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(count))
    }

    /// Adds a figure of the shared table or of a small one.
    fn add(&self, report: &mut Report, case: &Case<'_>, ours: Spread) -> Result<()> {
        let mut config = config([("rows", json!(case.rows)), ("rounds", json!(self.rounds))]);
        config.extend([("settings".to_string(), json!(case.settings))]);
        report.add(Figure {
            case: case.name.to_string(),
            unit: case.unit,
            ours,
            peer: case.peer.to_string(),
            theirs: case.theirs,
            goal: case.goal,
            config,
        })
    }
}

/// A figure's name and the peer that it is compared with.
struct Case<'a> {
    name: &'a str,
    unit: &'static str,
    peer: &'a str,
    theirs: Option<Spread>,
    goal: Option<Goal>,
    rows: u64,
    settings: Value,
}

/// Interleaved measurements of our server and PostgreSQL; `measure` gets a server's client and the
/// round.
fn both(
    bench: &mut Bench,
    rounds: usize,
    measure: impl Fn(&Bench, &mut Client, u64) -> Result<f64>,
) -> Result<[Spread; 2]> {
    let figures = of_sides(bench, rounds, &[0, 1], |bench, client, _, round| {
        measure(bench, client, round)
    })?;
    Ok([figures[0], figures[1]])
}

/// Interleaved measurements of several sides, each on the server with this number, ours (0) or
/// PostgreSQL (1). `measure` gets the server's client, the side's number and the round.
fn of_sides(
    bench: &mut Bench,
    rounds: usize,
    servers: &[usize],
    measure: impl Fn(&Bench, &mut Client, usize, u64) -> Result<f64>,
) -> Result<Vec<Spread>> {
    bench.servers()?;
    let clients = bench.servers.take().ok_or("no server runs")?;
    let clients = clients.map(RefCell::new);
    let sides = servers.iter().enumerate().map(|(side, &server)| {
        let (bench, clients, measure) = (&*bench, &clients, &measure);
        let side: Side<'_> =
            Box::new(move |round| measure(bench, &mut clients[server].borrow_mut(), side, round));
        side
    });
    let figures = interleave(rounds, sides.collect());
    bench.servers = Some(clients.map(RefCell::into_inner));
    figures
}

/// A permutation of the numbers below `rows`: a Feistel network of four rounds over as many bits as
/// they have. A result that is too large goes through the network again.
fn scattered(row: u64, rows: u64, seed: u64) -> u64 {
    let half = (64 - rows.leading_zeros()).div_ceil(2);
    let mask = (1 << half) - 1;
    let mut number = row;
    loop {
        let (mut left, mut right) = (number >> half, number & mask);
        for round in 0..4 {
            let mixed = hash_integer(((right << 3) | round) as i64 ^ seed as i64);
            (left, right) = (right, left ^ (mixed & mask));
        }
        number = (left << half) | right;
        if number < rows {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::scattered;

    #[test]
    fn each_row_has_a_number_of_its_own() {
        let mut numbers: Vec<u64> = (0..1_000).map(|row| scattered(row, 1_000, 7)).collect();
        assert!(!numbers.is_sorted());
        numbers.sort_unstable();
        assert!(numbers.into_iter().eq(0..1_000));
    }
}
