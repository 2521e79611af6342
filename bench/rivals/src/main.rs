//! Rival engines as peers of the benchmarks: SQLite, RocksDB, redb, fjall, LMDB.
//!
//! A process of its own, so that its allocator, threads and page cache are not ours; its argument
//! is the engine. It reads one JSON request per line from standard input and answers each with one
//! JSON line, times measured inside. `duckdb_peer.py` speaks the same protocol.

mod entries;
mod fjall;
mod lmdb;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod row;
mod script;
mod sqlite;
mod workload;

use entries::EntryStore;
use script::{Datum, Load};
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::process::ExitCode;
use workload::{Run, Store};

/// Failures are answers.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// What a peer can be asked to do.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Request {
    /// Names the engine and its version.
    Version,
    /// Creates the point table with `rows` rows at `path`.
    Fill { path: String, rows: u64, seed: u64 },
    /// Runs point transactions for `seconds`.
    Run(Run),
    /// Runs transactions of point reads for `seconds`; counts the reads.
    Reads(Run),
    /// Lookups and insertions of an index's entries: RocksDB and LMDB only.
    Entries(entries::Run),
    /// Runs statements at `path` and answers with the numbers that they return: SQLite only.
    Sql { path: String, sql: String },
    /// Runs one statement at `path` and answers with its rows: SQLite only.
    Rows {
        path: String,
        sql: String,
        values: Vec<Datum>,
    },
    /// Runs a script at `path`: SQLite only.
    Script {
        path: String,
        durable: bool,
        #[serde(flatten)]
        load: Load,
    },
}

fn main() -> ExitCode {
    let engine = std::env::args().nth(1).unwrap_or_default();
    let answer = match engine.as_str() {
        "sqlite" => answer_sqlite,
        #[cfg(feature = "rocksdb")]
        "rocksdb" => answer_entries::<rocksdb::RocksDb>,
        "redb" => answer::<redb::Redb>,
        "fjall" => answer::<fjall::Fjall>,
        "lmdb" => answer_entries::<lmdb::Lmdb>,
        _ => {
            eprintln!("usage: strandline-bench-rivals sqlite|rocksdb|redb|fjall|lmdb");
            return ExitCode::FAILURE;
        }
    };
    serve(answer);
    ExitCode::SUCCESS
}

/// Answers requests until there are no more.
fn serve(answer: fn(&Request) -> Result<Value>) {
    let stdin = std::io::stdin().lock();
    let mut stdout = std::io::stdout().lock();
    for line in stdin.lines() {
        let answer = line
            .map_err(Into::into)
            .and_then(|line| Ok(serde_json::from_str(&line)?))
            .and_then(|request| answer(&request))
            .unwrap_or_else(|error| json!({ "error": error.to_string() }));
        if writeln!(stdout, "{answer}")
            .and_then(|()| stdout.flush())
            .is_err()
        {
            return; // the benchmark is gone
        }
    }
}

fn answer<S: Store>(request: &Request) -> Result<Value> {
    let (done, seconds) = match request {
        Request::Version => {
            return Ok(json!({ "version": S::version(), "settings": S::SETTINGS }));
        }
        Request::Fill { path, rows, seed } => {
            S::fill(path, row::Rows::new(*rows, *seed))?;
            return Ok(json!({ "rows": rows }));
        }
        Request::Run(run) => run.transactions::<S>()?,
        Request::Reads(run) => run.reads::<S>()?,
        Request::Sql { .. } | Request::Rows { .. } | Request::Script { .. } => {
            return Err("only SQLite knows SQL".into());
        }
        Request::Entries(_) => return Err("only RocksDB and LMDB have entries".into()),
    };
    Ok(json!({ "done": done, "seconds": seconds }))
}

fn answer_entries<S: Store + EntryStore>(request: &Request) -> Result<Value> {
    match request {
        Request::Entries(run) => run.measure::<S>(),
        _ => answer::<S>(request),
    }
}

fn answer_sqlite(request: &Request) -> Result<Value> {
    match request {
        Request::Sql { path, sql } => Ok(json!({ "numbers": sqlite::numbers(path, sql)? })),
        Request::Rows { path, sql, values } => {
            Ok(json!({ "rows": sqlite::rows(path, sql, values)? }))
        }
        Request::Script {
            path,
            durable,
            load,
        } => Ok(json!({ "rate": sqlite::rate(path, *durable, load)? })),
        _ => answer::<sqlite::Sqlite>(request),
    }
}
