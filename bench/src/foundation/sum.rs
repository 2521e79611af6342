//! `SUM` over one bigint column without pending updates: of all rows, and of a range of keys.

use super::{Bench, ROUNDS, cores};
use crate::Result;
use crate::ours::Ours;
use crate::peer::Peer;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, interleave, median, repeat};
use serde_json::json;
use std::path::Path;

/// The query; the group `updates` uses it too.
pub const SUM: &str = "SELECT SUM(v) FROM numbers";

/// The table. DuckDB gets no key, since it would not use one.
const KEYED: &str = "CREATE TABLE numbers (id bigint PRIMARY KEY, v bigint NOT NULL)";
const PLAIN: &str = "CREATE TABLE numbers (id bigint NOT NULL, v bigint NOT NULL)";

/// A figure per query.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let file = bench.numbers()?;
    let ours = load(&bench.fresh("sum.strandline")?, &file, cores())?;
    let duckdb_path = bench.fresh("sum.duckdb")?;
    if let Some(duckdb) = &mut bench.duckdb {
        load_duckdb(duckdb, &duckdb_path, &file, cores())?;
    }
    let (peer, settings) = bench.duckdb_name();
    let (seconds, rows) = (bench.seconds / 3.0, bench.sum_rows);
    let some = |part: &str, first: u64, rows: u64| {
        let sql = format!("{SUM} WHERE id >= {first} AND id < {}", first + rows);
        (format!("SUM of {part} by range"), sql, None)
    };
    let queries = [
        (
            "SUM of a bigint column".to_string(),
            SUM.to_string(),
            Some(Goal::AtMost(1.2)),
        ),
        some("1,000 of its rows", rows / 3, 1_000),
        some("a tenth of its rows", rows / 3, rows / 10),
    ];
    for (case, sql, goal) in queries {
        let mut sides: Vec<Side<'_>> =
            vec![Box::new(|_| repeat(seconds, || ours.query(&sql).map(drop)))];
        if let Some(duckdb) = &mut bench.duckdb {
            let request = json!({ "op": "repeat", "sql": sql, "seconds": seconds });
            sides.push(Box::new(move |_| {
                Ok(median(duckdb.numbers(request.clone(), "times")?))
            }));
        }
        let medians = interleave(ROUNDS, sides)?;
        let config = config([
            ("rows", json!(rows)),
            ("threads", json!(cores())),
            ("rounds", json!(ROUNDS)),
            ("theirs", json!(settings)),
        ]);
        report.add(Figure {
            case,
            unit: "s",
            ours: medians[0],
            peer: peer.clone(),
            theirs: medians.get(1).copied(),
            goal,
            config,
        })?;
    }
    Ok(())
}

/// Our database with the table loaded from `file` and merged.
pub fn load(path: &Path, file: &Path, threads: usize) -> Result<Ours> {
    let ours = Ours::open(path, threads)?;
    ours.execute(KEYED)?;
    ours.execute(&copy(file))?;
    ours.checkpoint()?;
    Ok(ours)
}

/// The same table in DuckDB.
pub fn load_duckdb(duckdb: &mut Peer, path: &Path, file: &Path, threads: usize) -> Result<()> {
    duckdb.call(json!({ "op": "open", "path": path, "threads": threads }))?;
    for statement in [PLAIN, &copy(file), "CHECKPOINT"] {
        duckdb.sql(statement)?;
    }
    Ok(())
}

fn copy(file: &Path) -> String {
    format!("COPY numbers FROM '{}' (FORMAT parquet)", file.display())
}
