//! Short reads by the shared table's indexes, one client over a socket, prepared.

use super::{Bench, Case, SAME, both};
use crate::Result;
use crate::report::{Goal, Report};
use serde_json::json;

/// Name, statement, and the rows it gives; the parameter is a random value of the column.
const CASES: [(&str, &str, usize); 6] = [
    (
        "10 rows by a secondary index",
        "SELECT id, note FROM items WHERE a = $1",
        SAME as usize,
    ),
    (
        "one row by a secondary index",
        "SELECT id, note FROM items WHERE v = $1",
        1,
    ),
    (
        "ORDER BY LIMIT 10 from a value on",
        "SELECT id, v FROM items WHERE v >= $1 ORDER BY v LIMIT 10",
        10,
    ),
    (
        "ORDER BY DESC LIMIT 10 from a value on",
        "SELECT id, v FROM items WHERE v <= $1 ORDER BY v DESC LIMIT 10",
        10,
    ),
    (
        "ORDER BY LIMIT 10 of all rows",
        "SELECT id, v FROM items ORDER BY v LIMIT 10",
        10,
    ),
    ("MIN and MAX", "SELECT min(v), max(v) FROM items", 1),
];

/// A figure per case.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    for client in bench.servers()? {
        client.run("CREATE INDEX IF NOT EXISTS items_a ON items (a)")?;
        client.run("CREATE INDEX IF NOT EXISTS items_v ON items (v)")?;
    }
    for (name, sql, expected) in CASES {
        let has_value = sql.contains("$1");
        // Far enough from both ends that there are ten rows.
        let below = if sql.contains("a =") {
            bench.rows / SAME
        } else {
            bench.rows - 200
        };
        let rounds = bench.rounds;
        let [ours, theirs] = both(bench, rounds, |bench, client, round| {
            bench.time(round, below, |value| {
                let value = if sql.contains("LIMIT") {
                    value + 100
                } else {
                    value
                };
                let values = [value];
                let rows = client.query(sql, &values[..usize::from(has_value)])?;
                if rows == expected {
                    return Ok(());
                }
                Err(format!("{}: {rows} rows of {expected}: {sql}", client.name()).into())
            })
        })?;
        let peer = bench.servers()?[1].name().to_string();
        let case = Case {
            name,
            unit: "µs",
            peer: &peer,
            theirs: Some(theirs),
            goal: Some(Goal::AtMost(1.0)),
            rows: bench.rows,
            settings: json!({ "clients": 1, "prepared": true }),
        };
        bench.add(report, &case, ours)?;
    }
    Ok(())
}
