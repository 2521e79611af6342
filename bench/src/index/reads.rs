//! Short reads by the shared table's indexes, one client over a socket, prepared.

use super::{Bench, Case, SAME, both};
use crate::Result;
use crate::report::{Goal, Report};
use crate::script::{Draw, Load, Script, Step};
use serde_json::json;

/// Name, statement, and the rows it gives; the parameter is a random value of the column.
pub const CASES: [(&str, &str, usize); 6] = [
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

/// The load of one client that runs a case's statement on a table with so many rows.
pub fn load(bench: &Bench, sql: &str, expected: usize, rows: u64) -> Load {
    let rows = rows as i64;
    let values = if !sql.contains("$1") {
        Vec::new()
    } else if sql.contains("a =") {
        vec![Draw::Between(0, rows / SAME as i64)]
    } else {
        // Far enough from both ends that there are ten rows.
        vec![Draw::Between(100, rows - 100)]
    };
    let step = Step {
        sql: sql.to_string(),
        values,
        times: 1,
        rows: Some(expected),
    };
    Load {
        script: Script {
            steps: vec![step],
            is_transaction: false,
        },
        clients: 1,
        seconds: bench.round.as_secs_f64(),
        seed: bench.seed,
        first: 0,
        most: None,
    }
}

/// A figure per case.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    for client in bench.with_items()? {
        client.run("CREATE INDEX IF NOT EXISTS items_a ON items (a)")?;
        client.run("CREATE INDEX IF NOT EXISTS items_v ON items (v)")?;
    }
    for (name, sql, expected) in CASES {
        let load = load(bench, sql, expected, bench.rows);
        let [ours, theirs] = both(bench, bench.rounds, |bench, client, round| {
            let seed = bench.seed + round;
            Ok(1e6
                / client.rate(
                    &Load {
                        seed,
                        ..load.clone()
                    },
                    "",
                )?)
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
