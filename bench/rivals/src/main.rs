//! SQLite as a peer of the benchmarks.
//!
//! A process of its own, so that its allocator, threads and page cache are not ours. It reads one
//! JSON request per line from standard input and answers each with one JSON line, times measured
//! inside. `duckdb_peer.py` speaks the same protocol.

mod sqlite;

use serde::Deserialize;
use std::io::{BufRead, Write};

/// What a peer can be asked to do.
#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
enum Request {
    /// Names the engine and its version.
    Version,
    /// Creates the point table with `rows` rows at `path`.
    Fill { path: String, rows: u64, seed: u64 },
    /// Runs point transactions for `seconds`.
    Run(sqlite::Run),
}

fn main() {
    let stdin = std::io::stdin().lock();
    let mut stdout = std::io::stdout().lock();
    for line in stdin.lines() {
        let answer = line
            .map_err(|error| error.to_string())
            .and_then(|line| serde_json::from_str(&line).map_err(|error| error.to_string()))
            .and_then(|request| answer(&request).map_err(|error| error.to_string()))
            .unwrap_or_else(|error| serde_json::json!({ "error": error }));
        if writeln!(stdout, "{answer}")
            .and_then(|()| stdout.flush())
            .is_err()
        {
            return; // the benchmark is gone
        }
    }
}

fn answer(request: &Request) -> rusqlite::Result<serde_json::Value> {
    Ok(match request {
        Request::Version => serde_json::json!({
            "version": format!("SQLite {}", rusqlite::version()),
            "settings": sqlite::SETTINGS,
        }),
        Request::Fill { path, rows, seed } => {
            sqlite::fill(path, *rows, *seed)?;
            serde_json::json!({ "rows": rows })
        }
        Request::Run(run) => {
            let (transactions, seconds) = run.run()?;
            serde_json::json!({ "transactions": transactions, "seconds": seconds })
        }
    })
}
