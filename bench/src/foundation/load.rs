//! Bulk load of lineitem from Parquet into an empty table, durable when the statement returns.

use super::{Bench, ROUNDS, cores, remove};
use crate::Result;
use crate::ours::Ours;
use crate::peer::Peer;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, interleave};
use crate::tpch;
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// Two figures: without a key (the goal) and with the primary key (reported).
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let plain = tpch::definition("lineitem").to_string();
    let keyed = format!(
        "{}, PRIMARY KEY (l_orderkey, l_linenumber))",
        plain
            .strip_suffix(')')
            .expect("a definition ends with its columns")
    );
    let goal = Some(Goal::AtLeast(0.5));
    report.add(case(bench, "bulk load of lineitem", &plain, goal)?)?;
    report.add(case(
        bench,
        "bulk load of lineitem with primary key",
        &keyed,
        None,
    )?)
}

fn case(bench: &mut Bench, name: &str, definition: &str, goal: Option<Goal>) -> Result<Figure> {
    let (folder, rows) = bench.tpch()?;
    let load = tpch::load_statement("lineitem", &folder);
    let (ours, theirs) = (bench.fresh("load.strandline")?, bench.fresh("load.duckdb")?);
    let (peer, settings) = bench.duckdb_name();
    let mut sides: Vec<Side<'_>> = vec![Box::new(|_| {
        Ok(rows as f64 / load_ours(&ours, definition, &load)?)
    })];
    if let Some(duckdb) = &mut bench.duckdb {
        let side = |_| Ok(rows as f64 / load_duckdb(duckdb, &theirs, definition, &load)?);
        sides.push(Box::new(side));
    }
    let medians = interleave(ROUNDS, sides)?;
    let config = config([
        ("rows", json!(rows)),
        ("source", json!("Parquet, snappy")),
        ("rounds", json!(ROUNDS)),
        ("theirs", json!(settings)),
    ]);
    let theirs = medians.get(1).copied();
    Ok(Figure {
        case: name.to_string(),
        unit: "rows/s",
        ours: medians[0],
        peer,
        theirs,
        goal,
        config,
    })
}

fn load_ours(path: &Path, definition: &str, load: &str) -> Result<f64> {
    let ours = Ours::open(path, cores())?;
    ours.execute(definition)?;
    let start = Instant::now();
    ours.execute(load)?;
    let seconds = start.elapsed().as_secs_f64();
    drop(ours);
    remove(path)?;
    Ok(seconds)
}

fn load_duckdb(duckdb: &mut Peer, path: &Path, definition: &str, load: &str) -> Result<f64> {
    duckdb.call(json!({ "op": "open", "path": path, "threads": cores() }))?;
    duckdb.sql(definition)?;
    let seconds = duckdb.sql(load)?;
    duckdb.call(json!({ "op": "close" }))?;
    remove(path)?;
    Ok(seconds)
}
