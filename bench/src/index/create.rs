//! CREATE INDEX on the shared table, one key and one text; each round drops it first.

use super::{Bench, Case, both};
use crate::Result;
use crate::report::{Goal, Report};
use crate::rounds::{Spread, median};
use serde_json::json;

/// The indexes, with what the other groups read by last.
const INDEXES: [(&str, &str); 3] = [
    ("items_note", "a random text"),
    ("items_a", "a bigint with 10 rows each"),
    ("items_v", "a random unique bigint"),
];

/// A figure per index and peer.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    bench.with_items()?;
    let rounds = bench.rounds.min(3);
    for (name, what) in INDEXES {
        let column = name.trim_start_matches("items_");
        let create = format!("CREATE INDEX {name} ON items ({column})");
        let drop = format!("DROP INDEX IF EXISTS {name}");
        let [ours, theirs] = both(bench, rounds, |_, client, _| {
            client.run(&drop)?;
            client.run(&create)
        })?;
        let duckdb = duckdb(bench, rounds, &drop, &create);
        let duckdb = duckdb.map_err(|error| eprintln!("{error}")).ok();
        let case = format!("CREATE INDEX on {what}");
        let postgres = bench.servers()?[1].name().to_string();
        let duckdb_name = bench.duckdb.as_ref().map_or("DuckDB", |peer| &peer.name);
        for (peer, theirs, goal) in [
            (postgres.as_str(), Some(theirs), Goal::AtMost(0.5)),
            (duckdb_name, duckdb, Goal::AtMost(1.5)),
        ] {
            let case = Case {
                name: &case,
                unit: "s",
                peer,
                theirs,
                goal: Some(goal),
                rows: bench.rows,
                settings: json!({}),
            };
            bench.add(report, &case, ours)?;
        }
        if column == "note" {
            for client in bench.servers()? {
                client.run(&drop)?;
            }
        }
    }
    Ok(())
}

/// DuckDB's seconds, on the same rows.
fn duckdb(bench: &mut Bench, rounds: usize, drop: &str, create: &str) -> Result<Spread> {
    let file = bench.file()?;
    let path = bench.directory.join("items.duckdb");
    let peer = bench.duckdb.as_mut().ok_or("DuckDB is not measured")?;
    let is_new = !path.exists();
    let threads = std::thread::available_parallelism()?.get();
    peer.call(json!({ "op": "open", "path": path, "threads": threads }))?;
    if is_new {
        let columns = "{'id': 'BIGINT', 'a': 'BIGINT', 'v': 'BIGINT', 'u': 'BIGINT', \
                       'note': 'VARCHAR'}";
        let file = file.display();
        peer.sql(&format!(
            "CREATE TABLE items AS FROM read_csv('{file}', header = false, columns = {columns})"
        ))?;
        peer.sql("CHECKPOINT")?;
    }
    let mut seconds = Vec::new();
    for _ in 0..rounds {
        peer.sql(drop)?;
        seconds.push(peer.sql(create)?);
    }
    peer.sql(drop)?;
    peer.call(json!({ "op": "close" }))?;
    eprintln!("DuckDB: {:.2} s", median(seconds.clone()));
    Ok(Spread::of(seconds))
}
