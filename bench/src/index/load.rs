//! Bulk load from Parquet into an empty table that has two secondary indexes and a foreign key,
//! durable when the statement returns, beside DuckDB with the same.
//!
//! Both engines index the referencing column as well.

use super::{Bench, Case, SAME};
use crate::Result;
use crate::ours::Ours;
use crate::peer::Peer;
use crate::report::{Goal, Report};
use crate::rounds::{Side, interleave};
use crate::tpch;
use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// Rows of a batch of the file.
const BATCH_ROWS: u64 = 65_536;

const DEFINITIONS: [&str; 4] = [
    "CREATE TABLE parents (id bigint PRIMARY KEY)",
    "CREATE TABLE loaded (id bigint NOT NULL, parent bigint NOT NULL REFERENCES parents (id), \
     v bigint NOT NULL, a bigint NOT NULL)",
    "CREATE INDEX loaded_v ON loaded (v)",
    "CREATE INDEX loaded_a ON loaded (a)",
];

/// One figure.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let load = Load::of(bench)?;
    let rows = load.rows;
    let duckdb = bench.duckdb.as_ref();
    let (peer, settings) = duckdb.map_or(("DuckDB".to_string(), String::new()), |duckdb| {
        (duckdb.name.clone(), duckdb.settings.clone())
    });
    let mut sides: Vec<Side<'_>> = vec![Box::new(|_| load.ours(&[]))];
    if let Some(duckdb) = &mut bench.duckdb {
        sides.push(Box::new(|_| load.duckdb(duckdb)));
    }
    let figures = interleave(bench.rounds, sides)?;
    let case = Case {
        name: "bulk load, two indexes and a foreign key",
        unit: "rows/s",
        peer: &peer,
        theirs: figures.get(1).copied(),
        goal: Some(Goal::AtLeast(1.0)),
        rows,
        settings: json!({
            "source": "Parquet, snappy",
            "parents": rows / SAME,
            "theirs": settings,
        }),
    };
    bench.add(report, &case, figures[0])
}

/// The columns `id`, `parent` ([`SAME`] rows in order with each), `v` (unique, random) and `a`
/// ([`SAME`] scattered rows with each value).
fn batches(rows: u64, seed: u64) -> impl Iterator<Item = RecordBatch> {
    (0..rows).step_by(BATCH_ROWS as usize).map(move |first| {
        let of = |value: &dyn Fn(u64) -> u64| -> ArrayRef {
            let ids = first..rows.min(first + BATCH_ROWS);
            Arc::new(Int64Array::from_iter_values(ids.map(|id| value(id) as i64)))
        };
        let v = |id| super::scattered(id, rows, seed);
        RecordBatch::try_from_iter([
            ("id", of(&|id| id)),
            ("parent", of(&|id| id / SAME)),
            ("v", of(&v)),
            ("a", of(&|id| v(id) / SAME)),
        ])
        .expect("four columns of one length")
    })
}

/// The rows and the statements.
pub(super) struct Load {
    /// fills the parents
    parents: String,
    copy: String,
    pub rows: u64,
    directory: PathBuf,
}

impl Load {
    /// The file with the rows is written.
    pub fn of(bench: &Bench) -> Result<Self> {
        let rows = bench.small_rows;
        let file = bench.directory.join("loaded.parquet");
        tpch::write_parquet(&file, batches(rows, bench.seed).map(Ok))?;
        Ok(Self {
            parents: format!(
                "INSERT INTO parents SELECT * FROM generate_series(0, {})",
                rows / SAME
            ),
            copy: format!("COPY loaded FROM '{}' (FORMAT parquet)", file.display()),
            rows,
            directory: bench.directory.clone(),
        })
    }

    /// Our rows per second, in a new database with these settings of the session.
    pub fn ours(&self, settings: &[&str]) -> Result<f64> {
        let path = self.directory.join("loaded.strandline");
        let ours = Ours::open(&path, cores())?;
        for statement in settings.iter().chain(&DEFINITIONS) {
            ours.execute(statement)?;
        }
        ours.execute(&self.parents)?;
        let started = Instant::now();
        ours.execute(&self.copy)?;
        let seconds = started.elapsed().as_secs_f64();
        let found = crate::in_process::numbers(ours.database(), "SELECT count(*) FROM loaded")?;
        drop(ours);
        std::fs::remove_dir_all(&path)?;
        self.rate(found.first().map(|&count| count as u64), seconds)
    }

    /// DuckDB's rows per second, in a new file.
    fn duckdb(&self, duckdb: &mut Peer) -> Result<f64> {
        let path = self.directory.join("loaded.duckdb");
        duckdb.call(json!({ "op": "open", "path": path, "threads": cores() }))?;
        for definition in DEFINITIONS {
            duckdb.sql(definition)?;
        }
        duckdb.sql(&self.parents)?;
        let seconds = duckdb.sql(&self.copy)?;
        let found = duckdb.call(json!({ "op": "sql", "sql": "SELECT count(*) FROM loaded" }))?;
        duckdb.call(json!({ "op": "close" }))?;
        remove(&path)?;
        let count = found["rows"][0][0]
            .as_str()
            .and_then(|count| count.parse().ok());
        self.rate(count, seconds)
    }

    fn rate(&self, found: Option<u64>, seconds: f64) -> Result<f64> {
        if found == Some(self.rows) {
            return Ok(self.rows as f64 / seconds);
        }
        Err(format!("{found:?} rows of {} were loaded", self.rows).into())
    }
}

/// Removes a file of DuckDB and its log.
fn remove(path: &Path) -> Result<()> {
    let log = path.with_extension("duckdb.wal");
    for file in [path, &log] {
        if file.exists() {
            std::fs::remove_file(file)?;
        }
    }
    Ok(())
}

/// Processors, which both engines may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_have_parents_and_as_many_values_as_they_should() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("loaded.parquet");
        let rows = tpch::write_parquet(&file, batches(70_000, 3).map(Ok)).unwrap();
        assert_eq!(rows, 70_000);
        let mut load = Load {
            parents: "INSERT INTO parents SELECT * FROM generate_series(0, 7000)".to_string(),
            copy: format!("COPY loaded FROM '{}' (FORMAT parquet)", file.display()),
            rows,
            directory: directory.path().to_path_buf(),
        };
        assert!(load.ours(&[]).unwrap() > 0.0);
        load.rows += 1;
        let failed = load.ours(&[]).unwrap_err().to_string();
        assert_eq!(failed, "Some(70000) rows of 70001 were loaded");
        let distinct = "SELECT count(*), count(DISTINCT id), count(DISTINCT parent), \
                        count(DISTINCT v), count(DISTINCT a), max(v) FROM";
        let path = directory.path().join("d");
        let ours = Ours::open(&path, 1).unwrap();
        let sql = format!("{distinct} '{}'", file.display());
        let found = crate::in_process::numbers(ours.database(), &sql).unwrap();
        assert_eq!(found, [70_000, 70_000, 7_000, 70_000, 7_000, 69_999]);
    }
}
