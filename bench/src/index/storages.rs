//! Indexes in levels (FD+trees) beside the same ones in memory, in process, each in a database of
//! its own: reads by a key, transactions, a bulk load, the opening of a database.
//!
//! Reads and transactions have rounds before those that count, on both sides: an index in levels
//! learns which rows its keys lead to.

use super::load::Load;
use super::writes::{self, SET};
use super::{Bench, Case, keys};
use crate::Result;
use crate::ours::Ours;
use crate::report::{Goal, Report};
use crate::rounds::{Side, Spread, interleave, take_turns};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Instant;
use strandline::Database;

/// The settings of a session whose indexes are in levels, and of one whose indexes are in memory.
const STORAGES: [[&str; 2]; 2] = [
    [
        "SET strandline.index_storage = 'levels'",
        "SET strandline.key_index = 'fdtree'",
    ],
    [
        "SET strandline.index_storage = 'memory'",
        "SET strandline.key_index = 'auto'",
    ],
];

/// The memory of both sides: so much that no key's index in memory moves into levels.
const MEMORY_BYTES: usize = 8 << 30;

/// Rounds before those that count.
const WARM_UP_ROUNDS: usize = 5;

/// Tables of [`writes`]: as many indexes, on columns that updates set or do not set.
const TABLES: [(&str, usize, bool); 3] = [
    ("one_set", 1, true),
    ("eight_set", SET, true),
    ("eight_others", SET, false),
];

/// Indexes of the database that is opened.
const OPENED: (&str, usize, bool) = ("opened", 5, true);

/// What a figure says of itself.
struct Row<'a> {
    name: &'a str,
    unit: &'static str,
    goal: Goal,
    settings: Value,
}

/// A figure per kind of key, per table, of the load and of the opening.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let reads = reads(bench)?;
    for (kind, figures) in keys::KINDS.iter().skip(1).zip(reads) {
        let row = Row {
            name: &format!("a row by a {} key", kind.name),
            unit: "µs",
            goal: Goal::AtMost(1.0 / 0.9),
            settings: json!({
                "prepared": true, "warm_up_rounds": WARM_UP_ROUNDS, "memory_bytes": MEMORY_BYTES,
            }),
        };
        add(bench, report, row, &figures)?;
    }
    let transactions = transactions(bench)?;
    for ((_, count, are_set), figures) in TABLES.iter().zip(transactions) {
        let columns = if *are_set { "updated" } else { "other" };
        let row = Row {
            name: &format!("8 + 2 transaction, {count} indexes on {columns} columns"),
            unit: "tx/s",
            goal: Goal::AtLeast(0.9),
            settings: json!({
                "threads": 1, "synchronous_commit": false, "warm_up_rounds": WARM_UP_ROUNDS,
            }),
        };
        add(bench, report, row, &figures)?;
    }
    let load = Load::of(bench)?;
    let of = |settings: &'static [&'static str]| -> Side<'_> {
        let load = &load;
        Box::new(move |_| load.ours(settings))
    };
    let sides = STORAGES.iter().map(|settings| of(settings)).collect();
    let row = Row {
        name: "bulk load, two indexes and a foreign key",
        unit: "rows/s",
        goal: Goal::AtLeast(0.95),
        settings: json!({ "source": "Parquet, snappy", "threads": "all processors" }),
    };
    add(bench, report, row, &interleave(bench.rounds, sides)?)?;
    let row = Row {
        name: "opening, five indexes, and a read by each",
        unit: "s",
        goal: Goal::AtMost(1.0),
        settings: json!({ "threads": 1 }),
    };
    add(bench, report, row, &openings(bench)?)
}

fn add(bench: &Bench, report: &mut Report, row: Row<'_>, figures: &[Spread]) -> Result<()> {
    let case = Case {
        name: &format!("{}, in levels", row.name),
        unit: row.unit,
        peer: "strandline, indexes in memory",
        theirs: figures.get(1).copied(),
        goal: Some(row.goal),
        rows: bench.small_rows,
        settings: row.settings,
    };
    let ours = figures.first().ok_or("no side was measured")?;
    bench.add(report, &case, *ours)
}

fn path(bench: &Bench, what: &str, no: usize) -> PathBuf {
    bench.directory.join(format!("{what}-{no}.strandline"))
}

/// Of each kind of key but the serial one, the figures of both sides.
fn reads(bench: &Bench) -> Result<Vec<Vec<Spread>>> {
    let mut connections = Vec::new();
    for (no, settings) in STORAGES.iter().enumerate() {
        let builder = Database::builder(path(bench, "keys", no));
        let builder = builder.synchronous_commit(false).memory_bytes(MEMORY_BYTES);
        let database = builder.build()?;
        let mut connection = database.connect();
        for setting in settings {
            connection.execute(setting, ())?;
        }
        for kind in 1..keys::KINDS.len() {
            keys::fill(&mut connection, kind, bench.small_rows as i64)?;
        }
        database.merge_all()?;
        connections.push(RefCell::new(connection));
    }
    let figures = (1..keys::KINDS.len()).map(|kind| {
        let sides = connections
            .iter()
            .map(|side| keys::reads(bench, side, kind));
        interleave(bench.rounds, sides.collect::<Result<_>>()?)
    });
    figures.collect()
}

/// Of each table the figures of both sides.
fn transactions(bench: &Bench) -> Result<Vec<Vec<Spread>>> {
    let mut databases = Vec::new();
    for no in 0..STORAGES.len() {
        databases.push(open(bench, "transactions", no, &TABLES)?);
    }
    let figures = TABLES.map(|(table, ..)| {
        let sides = databases
            .iter()
            .map(|ours| writes::transactions(bench, ours, table));
        warm(bench, sides.collect::<Result<_>>()?)
    });
    figures.into_iter().collect()
}

/// Interleaved measurements after others that do not count.
fn warm(bench: &Bench, sides: Vec<Side<'_>>) -> Result<Vec<Spread>> {
    let all = take_turns(WARM_UP_ROUNDS + bench.rounds, sides)?;
    let counted = all
        .into_iter()
        .map(|rounds| rounds.into_iter().skip(WARM_UP_ROUNDS));
    Ok(counted.map(Spread::of).collect())
}

/// A new database with these tables.
fn open(bench: &Bench, what: &str, no: usize, tables: &[(&str, usize, bool)]) -> Result<Ours> {
    let ours = Ours::open(&path(bench, what, no), 1)?;
    for setting in STORAGES[no] {
        ours.execute(setting)?;
    }
    for table in tables {
        writes::prepare(bench, &ours, *table)?;
    }
    Ok(ours)
}

/// Seconds of an opening with a read by each index.
fn openings(bench: &Bench) -> Result<Vec<Spread>> {
    for no in 0..STORAGES.len() {
        drop(open(bench, "opened", no, &[OPENED])?);
    }
    let of = |no| -> Side<'_> {
        Box::new(move |_| {
            let started = Instant::now();
            let ours = Ours::open(&path(bench, "opened", no), 1)?;
            let (table, count, _) = OPENED;
            for column in 0..count {
                let sql = format!("SELECT count(*) FROM {table} WHERE c{column} = 7");
                std::hint::black_box(ours.query(&sql)?);
            }
            Ok(started.elapsed().as_secs_f64())
        })
    };
    interleave(bench.rounds, (0..STORAGES.len()).map(of).collect())
}
