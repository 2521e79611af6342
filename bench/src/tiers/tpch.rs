//! The group `tpch`: TPC-H with little memory beside DuckDB. The cache of blocks is a tenth of the
//! database, queries have 1 GiB. DuckDB has the sum as its `memory_limit`.
//!
//! Both run in control groups of that size and [`PROGRAM_BYTES`], so that the page cache gives
//! neither more; without control groups the results say so. *Cold*: the database was just opened,
//! and its files have left the page cache. *Warm*: the query has run before.

use super::memory_group::{MemoryGroup, PROGRAM_BYTES};
use super::{Bench, files};
use crate::Result;
use crate::ours::{Ours, size_on_disk};
use crate::peer::Peer;
use crate::plots::point;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, Spread, interleave, median, repeat};
use crate::tpch;
use datafusion::arrow::array::RecordBatch;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Instant;
use strandline::{Database, Settings};

/// Rounds of every case; the figure is their median.
const ROUNDS: usize = 3;
/// Memory for queries, and with --quick, where the data is a tenth.
const QUERY_BYTES: usize = 1 << 30;
const QUICK_QUERY_BYTES: usize = 128 << 20;
/// The cache is this part of the database.
const CACHE_PART: u64 = 10;
/// Seconds of a warm measurement; each has three runs at least.
const WARM_SECONDS: f64 = 0.1;

/// The name of the plot.
const FIGURE: &str = "tiers-tpch";

/// Seconds of our rounds of a query, and of the peer's.
type Measure = fn(&Loaded, Option<&mut Peer>, &str) -> Result<Vec<Spread>>;

/// Our database and the one of the peer, both loaded.
struct Loaded {
    ours: PathBuf,
    theirs: PathBuf,
    settings: Settings,
    /// the peer's limit
    memory_bytes: u64,
    threads: usize,
    /// for the results
    config: Map<String, Value>,
}

impl Loaded {
    fn open(&self) -> Result<Ours> {
        let builder = Database::builder(&self.ours).settings(self.settings.clone());
        Ours::build(builder.query_threads(self.threads))
    }

    fn open_theirs(&self, duckdb: &mut Peer) -> Result<()> {
        let mebibytes = self.memory_bytes >> 20;
        let (path, threads) = (&self.theirs, self.threads);
        let limit = format!("{mebibytes}MiB");
        let open = json!({ "op": "open", "path": path, "threads": threads, "memory_limit": limit });
        duckdb.call(open).map(drop)
    }
}

/// The group.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let mut duckdb = Peer::duckdb().map_err(|error| eprintln!("{error}")).ok();
    let loaded = load(bench, duckdb.as_mut())?;
    let limit = loaded.memory_bytes + PROGRAM_BYTES;
    let groups = (|| {
        let ours = MemoryGroup::new("ours", limit)?;
        let theirs = MemoryGroup::new("duckdb", limit)?;
        ours.join(std::process::id())?;
        if let Some(duckdb) = &duckdb {
            theirs.join(duckdb.id())?;
        }
        Ok::<_, Box<dyn std::error::Error>>([ours, theirs])
    })();
    let group = match &groups {
        Ok(_) => json!(limit),
        Err(error) => json!(format!("none, the page cache counts for nothing: {error}")),
    };
    let measures: [(&str, Measure); 2] = [("cold", cold), ("warm", warm)];
    for (at, (name, sql)) in tpch::QUERIES.into_iter().enumerate() {
        for (state, measure) in measures {
            let case = format!("TPC-H {name}, {state}, cache 10 % of the data");
            let spreads = match measure(&loaded, duckdb.as_mut(), sql) {
                Ok(spreads) => spreads,
                Err(error) => {
                    report.verdict(&case, &format!("failed: {error}"))?;
                    continue;
                }
            };
            let mut figure = Figure {
                case,
                unit: "s",
                ours: spreads[0],
                peer: duckdb
                    .as_ref()
                    .map_or("DuckDB".into(), |peer| peer.name.clone()),
                theirs: spreads.get(1).copied(),
                goal: Some(Goal::AtMost(2.5)),
                config: loaded.config.clone(),
            };
            figure.config.insert("control_group".into(), group.clone());
            if let Some(ratio) = figure.ratio() {
                let plots = json!([point(FIGURE, at as f64, &[(state, ratio)])]);
                figure.config.insert("plots".into(), plots);
            }
            report.add(figure)?;
        }
    }
    drop(groups);
    Ok(std::fs::remove_dir_all(&loaded.ours)?)
}

/// Loads both databases, without limits.
fn load(bench: &mut Bench, mut duckdb: Option<&mut Peer>) -> Result<Loaded> {
    let folder = bench.tpch_files()?;
    let threads = bench.cores;
    let (ours, theirs) = (
        bench.directory.join("tpch.strandline"),
        bench.directory.join("tpch.duckdb"),
    );
    let database = Ours::open(&ours, threads)?;
    if let Some(duckdb) = &mut duckdb {
        duckdb.call(json!({ "op": "open", "path": theirs, "threads": threads }))?;
    }
    for table in tpch::TABLES {
        let load = tpch::load_statement(table, &folder);
        database.execute(tpch::definition(table))?;
        database.execute(&load)?;
        if let Some(duckdb) = &mut duckdb {
            duckdb.sql(tpch::definition(table))?;
            duckdb.sql(&load)?;
        }
    }
    database.checkpoint()?;
    database.database().close()?;
    drop(database);
    if let Some(duckdb) = &mut duckdb {
        duckdb.call(json!({ "op": "close" }))?;
    }
    let by_kind = size_on_disk(&ours)?.1;
    let data_bytes = by_kind.get("chunks").copied().unwrap_or_default();
    let query_bytes = bench.sized(QUERY_BYTES, QUICK_QUERY_BYTES);
    let cache_bytes = data_bytes / CACHE_PART;
    let settings = Settings {
        memory_bytes: 2 * query_bytes,
        cache_bytes_max: cache_bytes as usize,
        ..Settings::default()
    };
    let config = config([
        ("scale", json!(bench.scale)),
        ("data_bytes", json!(data_bytes)),
        ("cache_bytes", json!(settings.cache_bytes())),
        ("query_bytes", json!(settings.query_bytes())),
        ("threads", json!(threads)),
        ("rounds", json!(ROUNDS)),
        ("io", json!("both buffered")),
        (
            "theirs",
            json!(format!(
                "memory_limit {} bytes",
                query_bytes as u64 + cache_bytes
            )),
        ),
    ]);
    Ok(Loaded {
        ours,
        theirs,
        settings,
        memory_bytes: query_bytes as u64 + cache_bytes,
        threads,
        config,
    })
}

fn cold(loaded: &Loaded, duckdb: Option<&mut Peer>, sql: &str) -> Result<Vec<Spread>> {
    let ours = |_| -> Result<f64> {
        files::forget(&loaded.ours)?;
        let ours = loaded.open()?;
        let begun = Instant::now();
        ours.query(sql)?;
        let seconds = begun.elapsed().as_secs_f64();
        ours.database().close()?;
        Ok(seconds)
    };
    let mut sides: Vec<Side<'_>> = vec![Box::new(ours)];
    if let Some(duckdb) = duckdb {
        sides.push(Box::new(move |_| {
            duckdb.call(json!({ "op": "close" }))?;
            files::forget(&loaded.theirs)?;
            loaded.open_theirs(duckdb)?;
            duckdb.sql(sql)
        }));
    }
    interleave(ROUNDS, sides)
}

fn warm(loaded: &Loaded, duckdb: Option<&mut Peer>, sql: &str) -> Result<Vec<Spread>> {
    let ours = loaded.open()?;
    let rows: usize = ours.query(sql)?.iter().map(RecordBatch::num_rows).sum();
    let mut sides: Vec<Side<'_>> = vec![Box::new(|_| {
        repeat(WARM_SECONDS, || ours.query(sql).map(drop))
    })];
    if let Some(duckdb) = duckdb {
        let answer = duckdb.call(json!({ "op": "sql", "sql": sql }))?;
        let theirs = answer["rows"].as_array().map_or(0, Vec::len);
        if rows != theirs {
            return Err(format!("{rows} rows, DuckDB has {theirs}").into());
        }
        let request = json!({ "op": "repeat", "sql": sql, "seconds": WARM_SECONDS });
        sides.push(Box::new(move |_| {
            Ok(median(duckdb.numbers(request.clone(), "times")?))
        }));
    }
    let spreads = interleave(ROUNDS, sides)?;
    ours.database().close()?;
    Ok(spreads)
}
