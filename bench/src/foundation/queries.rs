//! TPC-H on loaded tables. Four queries run against DataFusion on the same Arrow data in memory,
//! and against DuckDB. Another figure is the size on disk.

use super::{Bench, ROUNDS, cores};
use crate::Result;
use crate::ours::{Ours, size_on_disk};
use crate::peer::Peer;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, interleave, median, repeat};
use crate::tpch;
use datafusion::arrow::array::RecordBatch;
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Measures the size of the checkpointed files, then the queries.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let (folder, _) = bench.tpch()?;
    let path = bench.fresh("tpch.strandline")?;
    let ours = Ours::open(&path, cores())?;
    let duckdb_path = bench.fresh("tpch.duckdb")?;
    if let Some(duckdb) = &mut bench.duckdb {
        duckdb.call(json!({ "op": "open", "path": duckdb_path, "threads": cores() }))?;
    }
    for table in tpch::TABLES {
        let load = tpch::load_statement(table, &folder);
        ours.execute(tpch::definition(table))?;
        ours.execute(&load)?;
        if let Some(duckdb) = &mut bench.duckdb {
            duckdb.sql(tpch::definition(table))?;
            duckdb.sql(&load)?;
        }
    }
    report.add(size(bench, &ours, &path)?)?;
    let memory = Memory::copy(&ours)?;
    for (name, sql) in tpch::QUERIES {
        for figure in query(bench, &ours, &memory, name, sql)? {
            report.add(figure)?;
        }
    }
    if let Some(duckdb) = &mut bench.duckdb {
        duckdb.call(json!({ "op": "close" }))?;
    }
    Ok(())
}

fn size(bench: &mut Bench, ours: &Ours, path: &Path) -> Result<Figure> {
    ours.checkpoint()?;
    let (peer, settings) = bench.duckdb_name();
    let size = |peer: &mut Peer| peer.number(json!({ "op": "size" }), "bytes");
    let theirs = bench.duckdb.as_mut().map(size).transpose()?;
    let (bytes, by_kind) = size_on_disk(path)?;
    let config = config([
        ("scale", json!(bench.scale)),
        ("ours_by_kind", json!(by_kind)),
        ("theirs", json!(settings)),
    ]);
    let (case, goal) = (
        "size of TPC-H after a checkpoint".to_string(),
        Some(Goal::AtMost(1.1)),
    );
    Ok(Figure {
        case,
        unit: "bytes",
        ours: (bytes as f64).into(),
        peer,
        theirs: theirs.map(Into::into),
        goal,
        config,
    })
}

/// The figures of one query: with a goal against DataFusion, and without one against DuckDB.
fn query(
    bench: &mut Bench,
    ours: &Ours,
    memory: &Memory,
    name: &str,
    sql: &str,
) -> Result<[Figure; 2]> {
    let seconds = bench.seconds / 3.0;
    let expected = rows(&memory.query(sql)?);
    let found = rows(&ours.query(sql)?);
    if found != expected {
        return Err(format!("{name}: {found} rows, DataFusion has {expected}").into());
    }
    let (duckdb_name, settings) = bench.duckdb_name();
    let mut sides: Vec<Side<'_>> = vec![
        Box::new(|_| repeat(seconds, || ours.query(sql).map(drop))),
        Box::new(|_| repeat(seconds, || memory.query(sql).map(drop))),
    ];
    if let Some(duckdb) = &mut bench.duckdb {
        let request = json!({ "op": "repeat", "sql": sql, "seconds": seconds });
        sides.push(Box::new(move |_| {
            Ok(median(duckdb.numbers(request.clone(), "times")?))
        }));
    }
    let medians = interleave(ROUNDS, sides)?;
    let figure = |peer: String, theirs, settings: &str, goal| Figure {
        case: format!("TPC-H {name}"),
        unit: "s",
        ours: medians[0],
        peer,
        theirs,
        goal,
        config: config([
            ("scale", json!(bench.scale)),
            ("threads", json!(cores())),
            ("rounds", json!(ROUNDS)),
            ("theirs", json!(settings)),
        ]),
    };
    let goal = Some(Goal::AtMost(1.1));
    let settings_in_memory = "the same Arrow types and batches in MemTables, same partitions";
    Ok([
        figure(memory.name(), Some(medians[1]), settings_in_memory, goal),
        figure(duckdb_name, medians.get(2).copied(), &settings, None),
    ])
}

fn rows(batches: &[RecordBatch]) -> usize {
    batches.iter().map(RecordBatch::num_rows).sum()
}

/// Plain DataFusion over the tables as Arrow in memory.
struct Memory {
    context: SessionContext,
    runtime: Runtime,
}

impl Memory {
    /// Reads every table through our own SQL, so that types and batches are the same.
    fn copy(ours: &Ours) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let configuration = SessionConfig::new().with_target_partitions(cores());
        let context = SessionContext::new_with_config(configuration);
        for table in tpch::TABLES {
            let batches = ours.read_table(table)?;
            let schema = batches
                .first()
                .ok_or_else(|| format!("{table} is empty"))?
                .schema();
            let per_partition = batches.len().div_ceil(cores());
            let partitions = batches.chunks(per_partition).map(<[_]>::to_vec).collect();
            context.register_table(table, Arc::new(MemTable::try_new(schema, partitions)?))?;
        }
        Ok(Self { context, runtime })
    }

    fn name(&self) -> String {
        format!("DataFusion {} in memory", datafusion::DATAFUSION_VERSION)
    }

    fn query(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        let collect = async { self.context.sql(sql).await?.collect().await };
        Ok(self.runtime.block_on(collect)?)
    }
}
