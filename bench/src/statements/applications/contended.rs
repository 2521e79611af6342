//! Eight clients that change ten rows, by pgbench: a text that grows, an upsert that counts, and a
//! row that is read, changed and written back. Afterwards every change is there.

use super::Figures;
use super::servers::{Pgbench, Servers};
use crate::Result;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, interleave};
use serde_json::json;
use std::cell::RefCell;

const CLIENTS: i64 = 8;
const ROWS: i64 = 10;

/// Name, script, and the query that counts the changes that are there.
const CASES: [(&str, &str, &str); 3] = [
    (
        "SET v = v || $1",
        "\\set id random(1, 10)\n\\set x random(1, 9)\n\
         UPDATE hot SET v = v || :x WHERE id = :id;\n",
        "SELECT sum(length(v)) FROM hot",
    ),
    (
        "upsert",
        "\\set id random(1, 10)\n\
         INSERT INTO hot_count (id, n) VALUES (:id, 1) \
         ON CONFLICT (id) DO UPDATE SET n = hot_count.n + 1;\n",
        "SELECT sum(n) FROM hot_count",
    ),
    (
        "read, change, write",
        "\\set id random(1, 10)\nBEGIN;\n\
         SELECT n FROM hot WHERE id = :id FOR UPDATE \\gset\n\\set n :n + 1\n\
         UPDATE hot SET n = :n WHERE id = :id;\nCOMMIT;\n",
        "SELECT sum(n) FROM hot",
    ),
];

/// A figure per case.
pub fn run(figures: &Figures, servers: &mut Servers, report: &mut Report) -> Result<()> {
    for server in 0..2 {
        for sql in [
            "CREATE TABLE hot (id integer PRIMARY KEY, v text NOT NULL, n bigint NOT NULL)",
            "CREATE TABLE hot_count (id integer PRIMARY KEY, n bigint NOT NULL)",
            "INSERT INTO hot SELECT n, '', 0 FROM generate_series(1, 10) AS g (n)",
        ] {
            servers.run(server, sql)?;
        }
    }
    let (peer, runs) = (servers.peer().to_string(), figures.contended_runs);
    let servers = RefCell::new(servers);
    let mut missing = Vec::new();
    for (name, script, changes) in CASES {
        let side = |server: usize| -> Side<'_> {
            let servers = &servers;
            Box::new(move |_| {
                let mut servers = servers.borrow_mut();
                servers.run(server, "UPDATE hot SET v = '', n = 0")?;
                servers.run(server, "DELETE FROM hot_count")?;
                let script = Pgbench::Script(script);
                let rate = servers.pgbench_rate(server, &script, CLIENTS, runs)?;
                let found = servers.run(server, changes)?;
                let expected = (CLIENTS * runs).to_string();
                if found != [Some(expected)] {
                    return Err(format!("{found:?} changes of {}", CLIENTS * runs).into());
                }
                Ok(rate)
            })
        };
        let rates = match interleave(figures.rounds, vec![side(0), side(1)]) {
            Ok(rates) => rates,
            Err(error) => {
                report.verdict(name, &format!("not measured: {error}"))?;
                missing.push(name);
                continue;
            }
        };
        report.add(Figure {
            case: format!("{CLIENTS} clients on {ROWS} rows: {name}"),
            unit: "commits/s",
            ours: rates[0],
            peer: peer.clone(),
            theirs: Some(rates[1]),
            goal: Some(Goal::AtLeast(1.0)),
            config: config([
                ("clients", json!(CLIENTS)),
                ("rows", json!(ROWS)),
                ("commits", json!(CLIENTS * runs)),
                ("synchronous_commit", json!(false)),
                ("rounds", json!(figures.rounds)),
            ]),
        })?;
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("not measured: {}", missing.join(", ")).into())
}
