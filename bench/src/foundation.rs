//! The suite `foundation`: can one engine match the specialists of both kinds?
//!
//! | group | figure | peer |
//! |---|---|---|
//! | load | rows/s of a durable bulk load of lineitem | DuckDB |
//! | tpch | seconds of Q1, Q6, Q3, Q18; bytes on disk | DataFusion on Arrow in memory, DuckDB |
//! | sum | seconds of SUM over a bigint column, of all rows and of a range | DuckDB |
//! | updates | processor time of that SUM while rows are updated | itself without updates |
//! | point | transactions/s by primary key | SQLite |

mod load;
pub mod point;
mod queries;
pub mod sum;
pub mod updates;

use crate::Result;
use crate::peer::Peer;
use crate::{Group, tpch};
use datafusion::arrow::array::{Int64Array, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strandline_base::rng::Rng;

/// Every group, in the order they run.
pub const GROUPS: [(&str, Group<Bench>); 5] = [
    ("load", load::run),
    ("tpch", queries::run),
    ("sum", sum::run),
    ("updates", updates::run),
    ("point", point::run),
];

/// Rounds of every comparison.
const ROUNDS: usize = 5;

/// Sizes, directories and peers of a run.
pub struct Bench {
    directory: PathBuf,
    pub seed: u64,
    /// TPC-H scale factor.
    scale: f64,
    /// Rows of the table that SUM reads.
    pub sum_rows: u64,
    /// Rows of the table of point transactions.
    pub point_rows: u64,
    /// Seconds per measurement, for measurements that are timed by duration.
    pub seconds: f64,
    pub duckdb: Option<Peer>,
}

impl Bench {
    /// A run that keeps its files in `directory`. Without DuckDB it prints the reason, and DuckDB's
    /// cases have no peer.
    pub fn new(directory: &Path, quick: bool, seed: u64) -> Self {
        let duckdb = Peer::duckdb().map_err(|error| eprintln!("{error}")).ok();
        let directory = directory.to_path_buf();
        if quick {
            let (sum_rows, point_rows) = (2_000_000, 200_000);
            Self {
                directory,
                seed,
                scale: 0.1,
                sum_rows,
                point_rows,
                seconds: 0.5,
                duckdb,
            }
        } else {
            let (sum_rows, point_rows) = (10_000_000, 1_000_000);
            Self {
                directory,
                seed,
                scale: 1.0,
                sum_rows,
                point_rows,
                seconds: 3.0,
                duckdb,
            }
        }
    }

    /// A name for a database that does not exist yet.
    pub fn fresh(&self, name: &str) -> Result<PathBuf> {
        let path = self.directory.join(name);
        remove(&path)?;
        Ok(path)
    }

    /// The folder with TPC-H as Parquet files and the number of rows of lineitem; made on first
    /// use.
    fn tpch(&self) -> Result<(PathBuf, u64)> {
        let folder = self.directory.join("tpch");
        let count = folder.join("lineitem.rows");
        if !count.exists() {
            eprintln!("generating TPC-H SF {} …", self.scale);
            std::fs::create_dir_all(&folder)?;
            std::fs::write(&count, tpch::generate(self.scale, &folder)?.to_string())?;
        }
        Ok((folder, std::fs::read_to_string(count)?.parse()?))
    }

    /// A Parquet file with columns `id` (0, 1, …) and `v` (random, 30 bits), made on first use.
    pub fn numbers(&self) -> Result<PathBuf> {
        let path = self.directory.join("numbers.parquet");
        if !path.exists() {
            tpch::write_parquet(&path, number_batches(self.sum_rows, self.seed).map(Ok))?;
        }
        Ok(path)
    }

    /// DuckDB's name and settings.
    pub fn duckdb_name(&self) -> (String, String) {
        self.duckdb.as_ref().map_or_else(
            || ("DuckDB".to_string(), "not measured".to_string()),
            |peer| (peer.name.clone(), peer.settings.clone()),
        )
    }
}

fn number_batches(rows: u64, seed: u64) -> impl Iterator<Item = RecordBatch> {
    let field = |name| Field::new(name, DataType::Int64, false);
    let schema = Arc::new(Schema::new(vec![field("id"), field("v")]));
    let mut rng = Rng::new(seed);
    (0..rows).step_by(65_536).map(move |first| {
        let ids = Int64Array::from_iter_values(first as i64..rows.min(first + 65_536) as i64);
        let values = Int64Array::from_iter_values(ids.iter().map(|_| rng.below(1 << 30) as i64));
        RecordBatch::try_new(schema.clone(), vec![Arc::new(ids), Arc::new(values)])
            .expect("two columns of one length")
    })
}

/// Removes a file or folder if it exists.
fn remove(path: &Path) -> Result<()> {
    if path.is_dir() {
        std::fs::remove_dir_all(path)?;
    } else if path.exists() {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// The number of processors, all of which every engine may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
