//! Transactions of 8 reads and 2 updates by primary key, without and with indexes: on columns that
//! the updates do not set, and on those that they set.

use super::{Bench, Case, both};
use crate::Result;
use crate::ours::Ours;
use crate::report::{Goal, Report};
use crate::rounds::{Side, interleave};
use serde_json::json;
use strandline_base::rng::Rng;

/// Columns that updates set, and as many that they do not.
pub(super) const SET: usize = 8;

/// Table, indexes, and whether they are on the columns that updates set.
const TABLES: [(&str, usize, bool); 5] = [
    ("none", 0, false),
    ("one_other", 1, false),
    ("eight_others", SET, false),
    ("one_set", 1, true),
    ("eight_set", SET, true),
];

/// In process beside ourselves without indexes; served, with all set columns indexed, beside
/// PostgreSQL.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    in_process(bench, report)?;
    served(bench, report)
}

/// The statements that make a table's indexes.
fn indexes(table: &str, count: usize, are_set: bool) -> Vec<String> {
    let first = if are_set { 0 } else { SET };
    let columns = first..first + count;
    columns
        .map(|c| format!("CREATE INDEX {table}_c{c} ON {table} (c{c})"))
        .collect()
}

fn definition(table: &str) -> String {
    let columns: Vec<String> = (0..2 * SET).map(|c| format!("c{c} bigint")).collect();
    let columns = columns.join(", ");
    format!("CREATE TABLE {table} (id bigint PRIMARY KEY, {columns})")
}

/// Makes, fills and merges a table with indexes.
pub(super) fn prepare(
    bench: &Bench,
    ours: &Ours,
    (table, count, are_set): (&str, usize, bool),
) -> Result<()> {
    ours.execute(&definition(table))?;
    let (mut rng, rows) = (Rng::new(bench.seed), bench.small_rows);
    ours.append_bigints(table, 2 * SET + 1, rows, |row, values| {
        values.fill_with(|| rng.below(rows) as i64);
        values[0] = row as i64;
    })?;
    for index in indexes(table, count, are_set) {
        ours.execute(&index)?;
    }
    ours.checkpoint()
}

/// Transactions per second on a table of [`prepare`].
pub(super) fn transactions<'b>(bench: &'b Bench, ours: &Ours, table: &str) -> Result<Side<'b>> {
    let rows = bench.small_rows;
    let names: Vec<String> = (0..SET).map(|c| format!("c{c}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut worker = ours.worker(table, &names, false)?;
    Ok(Box::new(move |round| {
        let mut rng = Rng::new(bench.seed ^ round);
        let us = bench.time(round, rows, |first| {
            let reads: [i64; 7] = std::array::from_fn(|_| rng.below(rows) as i64);
            let updates: [i64; 2] = std::array::from_fn(|_| rng.below(rows) as i64);
            let values: [i64; SET] = std::array::from_fn(|_| rng.below(rows) as i64);
            worker.transaction(|point| {
                point.get(first)?;
                for id in reads {
                    point.get(id)?;
                }
                for id in updates {
                    point.update(id, values)?;
                }
                Ok(())
            })
        })?;
        Ok(1e6 / us)
    }))
}

fn in_process(bench: &Bench, report: &mut Report) -> Result<()> {
    let path = bench.directory.join("writes.strandline");
    let ours = Ours::open(&path, 1)?;
    let rows = bench.small_rows;
    for table in TABLES {
        prepare(bench, &ours, table)?;
    }
    let sides = TABLES.map(|(table, ..)| transactions(bench, &ours, table));
    let sides = sides.into_iter().collect::<Result<Vec<_>>>()?;
    let figures = interleave(bench.rounds, sides)?;
    for ((table, count, are_set), figure) in TABLES.iter().zip(&figures).skip(1) {
        let columns = if *are_set { "updated" } else { "other" };
        let case = Case {
            name: &format!("8 + 2 transaction, {count} indexes on {columns} columns"),
            unit: "tx/s",
            peer: "strandline, no index",
            theirs: figures.first().copied(),
            goal: (*table == "eight_others").then_some(Goal::AtLeast(0.95)),
            rows,
            settings: json!({ "in_process": true, "threads": 1, "synchronous_commit": false }),
        };
        bench.add(report, &case, *figure)?;
    }
    Ok(())
}

fn served(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let rows = bench.small_rows as i64;
    let table = "eight_set";
    let columns: Vec<String> = (0..2 * SET)
        .map(|c| format!("(n::bigint * {} + {c}) % {rows}", 7_919 + 2 * c))
        .collect();
    let columns = columns.join(", ");
    for client in bench.servers()? {
        client.run(&definition(table))?;
        client.run(&format!(
            "INSERT INTO {table} SELECT n, {columns} FROM generate_series(0, {}) AS g (n)",
            rows - 1
        ))?;
        for index in indexes(table, SET, true) {
            client.run(&index)?;
        }
        client.run("CHECKPOINT")?;
        client.run("SET synchronous_commit = off")?;
    }
    let read = format!("SELECT c0, c1, c2, c3 FROM {table} WHERE id = $1");
    let sets: Vec<String> = (0..SET).map(|c| format!("c{c} = ${}", c + 2)).collect();
    let update = format!("UPDATE {table} SET {} WHERE id = $1", sets.join(", "));
    let [ours, theirs] = both(bench, bench.rounds, |bench, client, round| {
        let mut rng = Rng::new(bench.seed ^ round);
        let us = bench.time(round, rows as u64, |first| {
            let mut id = || rng.below(rows as u64) as i64;
            client.run("BEGIN")?;
            client.query(&read, &[first])?;
            for _ in 0..7 {
                client.query(&read, &[id()])?;
            }
            for _ in 0..2 {
                let values: [i64; SET + 1] = std::array::from_fn(|_| id());
                client.query(&update, &values)?;
            }
            client.run("COMMIT")?;
            Ok(())
        })?;
        Ok(1e6 / us)
    })?;
    let peer = bench.servers()?[1].name().to_string();
    let case = Case {
        name: "8 + 2 transaction, 8 indexes on updated columns, served",
        unit: "tx/s",
        peer: &peer,
        theirs: Some(theirs),
        goal: Some(Goal::AtLeast(1.0)),
        rows: rows as u64,
        settings: json!({ "clients": 1, "prepared": true, "synchronous_commit": false }),
    };
    bench.add(report, &case, ours)
}
