//! The short reads of the group `reads` in process, beside SQLite with the same rows and indexes.
//!
//! The statements are prepared. How many of them the query engine planned is in the configuration:
//! where it is 0, a figure is the time of the execution alone.

use super::reads::{self, CASES};
use super::{Bench, Case, SAME, TABLE};
use crate::Result;
use crate::in_process::{self, Sqlite};
use crate::report::{Goal, Report};
use crate::rounds::interleave;
use crate::script::Load;
use serde_json::json;
use std::fmt::Write as _;
use strandline::{Database, Value};

/// Rows of one INSERT into SQLite.
const FILL_ROWS: u64 = 10_000;

const INDEXES: [&str; 2] = [
    "CREATE INDEX items_a ON items (a)",
    "CREATE INDEX items_v ON items (v)",
];

/// A figure per case.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let rows = bench.small_rows;
    let database = ours(bench, rows)?;
    let mut sqlite = sqlite(bench, rows)?;
    for (name, sql, expected) in CASES {
        let load = reads::load(bench, sql, expected, rows);
        let of_round = |round| Load {
            seed: bench.seed + round,
            ..load.clone()
        };
        let planned = planned(&database);
        let figures = interleave(
            bench.rounds,
            vec![
                Box::new(|round| Ok(1e6 / in_process::rate(&database, &of_round(round), false)?)),
                Box::new(|round| Ok(1e6 / sqlite.rate(&of_round(round), false)?)),
            ],
        )?;
        let planned = self::planned(&database) - planned;
        let case = Case {
            name: &format!("{name}, in process"),
            unit: "µs",
            peer: &sqlite.peer.name,
            theirs: Some(figures[1]),
            goal: Some(Goal::AtMost(1.0)),
            rows,
            settings: json!({
                "threads": 1, "prepared": true, "statements_planned": planned,
                "theirs": sqlite.peer.settings,
            }),
        };
        bench.add(report, &case, figures[0])?;
    }
    Ok(())
}

/// Statements that the query engine has planned.
fn planned(database: &Database) -> u64 {
    let counters = database.counters();
    let planned = counters
        .iter()
        .find(|(name, _)| *name == "statements_planned");
    planned.map_or(0, |(_, count)| *count)
}

/// The columns `id`, `a`, `v` and `note` of a row.
fn row(bench: &Bench, id: u64, rows: u64) -> (i64, i64, i64, String) {
    let v = super::scattered(id, rows, bench.seed);
    (
        id as i64,
        (v / SAME) as i64,
        v as i64,
        format!("note {v:016x} of {}", id % 1000),
    )
}

fn ours(bench: &Bench, rows: u64) -> Result<Database> {
    let path = bench.directory.join("embedded.strandline");
    let database = Database::builder(&path).build()?;
    let mut connection = database.connect();
    connection.execute(TABLE, ())?;
    let mut appender = connection.appender("items")?;
    for id in 0..rows {
        let (id, a, v, note) = row(bench, id, rows);
        let numbers = [id, a, v, v].map(Value::BigInt);
        appender.append_row(&[numbers.as_slice(), &[Value::from(note)]].concat())?;
    }
    appender.finish()?;
    for index in INDEXES {
        connection.execute(index, ())?;
    }
    database.merge_all()?;
    Ok(database)
}

fn sqlite(bench: &Bench, rows: u64) -> Result<Sqlite> {
    let mut sqlite = Sqlite::start(&bench.directory)?;
    sqlite.clear()?;
    // Its rows follow a key of this type only.
    sqlite.numbers(&TABLE.replace("bigint PRIMARY KEY", "INTEGER PRIMARY KEY"))?;
    for first in (0..rows).step_by(FILL_ROWS as usize) {
        let mut insert = String::from("INSERT INTO items VALUES ");
        for id in first..rows.min(first + FILL_ROWS) {
            let (id, a, v, note) = row(bench, id, rows);
            let comma = if id as u64 == first { "" } else { "," };
            write!(insert, "{comma}({id},{a},{v},{v},'{note}')")?;
        }
        sqlite.numbers(&insert)?;
    }
    for index in INDEXES {
        sqlite.numbers(index)?;
    }
    sqlite.numbers("ANALYZE")?;
    let [count] = sqlite.numbers("SELECT count(*) FROM items")?[..] else {
        return Err("SQLite counts no rows".into());
    };
    if count as u64 != rows {
        return Err(format!("SQLite has {count} rows of {rows}").into());
    }
    Ok(sqlite)
}
