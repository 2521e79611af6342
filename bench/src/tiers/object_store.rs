//! The group `object_store`: TPC-H's lineitem with its chunk files in an emulated object store, and
//! the log, the manifest and the block cache in a directory.
//!
//! | case | peer |
//! |---|---|
//! | Q1, Q6 after a restart, the block cache filled by the same query | all files in a directory |
//! | Q1, Q6 after a restart, no block cache | DataFusion on Parquet in the same store |
//! | scan of all columns after a restart, no block cache | ranges of the same objects, raw |
//!
//! Before each measurement the database is opened anew, and its files leave the page cache. The
//! store counts reads of objects.

mod emulated;

use super::{Bench, files};
use crate::Result;
use crate::ours::Ours;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, Spread, take_turns};
use crate::tpch;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use emulated::{EmulatedStore, Requests};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use strandline::{Database, Settings};
use strandline_device::{Device, OsDevice, TieredDevice};
use strandline_object::{ObjectDevice, Options};
use tokio::runtime::Runtime;

/// Rounds of every case: the emulated delays are most of the time, and they are the same in all.
const ROUNDS: usize = 1;
/// The queries that read lineitem only.
const QUERIES: [&str; 2] = ["Q1", "Q6"];
/// Names of objects of the two sides.
const PREFIX: &str = "ours";
const PARQUET: &str = "parquet/lineitem.parquet";
/// Bytes of a raw range, and ranges requested at the same time: those of a long read of
/// `strandline_object`.
const RANGE_BYTES: u64 = 4 << 20;
const RANGES: usize = 4;
/// The columns of lineitem: their largest values need all of their bytes.
const COLUMNS: [&str; 16] = [
    "l_orderkey",
    "l_partkey",
    "l_suppkey",
    "l_linenumber",
    "l_quantity",
    "l_extendedprice",
    "l_discount",
    "l_tax",
    "l_returnflag",
    "l_linestatus",
    "l_shipdate",
    "l_commitdate",
    "l_receiptdate",
    "l_shipinstruct",
    "l_shipmode",
    "l_comment",
];

/// Seconds of a query, and the reads of the store meanwhile.
#[derive(Clone, Copy)]
struct Measured {
    seconds: f64,
    requests: Requests,
}

/// The store, and both databases.
struct Stored {
    store: Arc<EmulatedStore>,
    /// log, manifest and block cache of the database in the store
    fast: PathBuf,
    /// the database in a directory
    local: PathBuf,
    /// bytes of our objects
    object_bytes: u64,
    block_cache_bytes: u64,
    threads: usize,
    scale: f64,
    runtime: Runtime,
}

/// The group.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let stored = Stored::load(bench)?;
    for name in QUERIES {
        let queries = tpch::QUERIES.iter();
        let found = { queries }.find(|(known, _)| *known == name);
        let (_, sql) = found.ok_or("the query is one of TPC-H")?;
        stored.warm(report, name, sql)?;
        stored.cold(report, name, sql)?;
    }
    stored.scan(report)?;
    std::fs::remove_dir_all(&stored.fast)?;
    Ok(std::fs::remove_dir_all(&stored.local)?)
}

impl Stored {
    /// Loads lineitem into the store, into the directory, and as a Parquet file, without delays.
    fn load(bench: &mut Bench) -> Result<Self> {
        let folder = bench.tpch_files()?;
        let directory = bench.directory.join("object-store");
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let mut stored = Self {
            store: Arc::default(),
            fast: directory.join("fast"),
            local: directory.join("local"),
            object_bytes: 0,
            block_cache_bytes: 0,
            threads: bench.cores,
            scale: bench.scale,
            runtime: runtime.enable_all().build()?,
        };
        for ours in [stored.open(0)?, stored.open_local()?] {
            ours.execute(tpch::definition("lineitem"))?;
            ours.execute(&tpch::load_statement("lineitem", &folder))?;
            ours.checkpoint()?;
            ours.database().close()?;
        }
        let parquet = std::fs::read(tpch::file("lineitem", &folder))?;
        let path = ObjectPath::from(PARQUET);
        let put = stored.store.put(&path, parquet.into());
        stored.runtime.block_on(put)?;
        stored.object_bytes = stored.objects()?.iter().map(|(_, bytes)| bytes).sum();
        // Room for every block: a warm cache has all that a query asks for.
        stored.block_cache_bytes = stored.object_bytes * 2;
        Ok(stored)
    }

    /// Our objects with their lengths.
    fn objects(&self) -> Result<Vec<(ObjectPath, u64)>> {
        let prefix = ObjectPath::from(PREFIX);
        let list = self.store.list(Some(&prefix));
        let list = list.map_ok(|object| (object.location, object.size));
        Ok(self.runtime.block_on(list.try_collect())?)
    }

    /// The database in the store. A cache of 0 bytes removes the one that is there.
    fn open(&self, block_cache_bytes: u64) -> Result<Ours> {
        let fast = Arc::new(OsDevice::open(&self.fast)?);
        let label = EmulatedStore::label();
        let (store, options) = (self.store.clone(), Options::default());
        let capacity = ObjectDevice::new(store, PREFIX.into(), label, options)?;
        let device: Arc<dyn Device> = Arc::new(TieredDevice::new(fast, Arc::new(capacity), "")?);
        let settings = Settings {
            block_cache_bytes,
            ..Settings::default()
        };
        let builder = Database::on_device(device).settings(settings);
        Ours::build(builder.query_threads(self.threads))
    }

    fn open_local(&self) -> Result<Ours> {
        Ours::open(&self.local, self.threads)
    }

    /// One run of a query with the store's delays on.
    fn measure(&self, query: impl FnOnce() -> Result<()>) -> Result<Measured> {
        let before = self.store.requests();
        self.store.set_delays(true);
        let begun = Instant::now();
        let done = query();
        let seconds = begun.elapsed().as_secs_f64();
        self.store.set_delays(false);
        let after = self.store.requests();
        done?;
        Ok(Measured {
            seconds,
            requests: Requests {
                gets: after.gets - before.gets,
                bytes: after.bytes - before.bytes,
            },
        })
    }

    /// A query in a database that was just opened.
    fn after_restart(&self, ours: Result<Ours>, directory: &Path, sql: &str) -> Result<Measured> {
        let ours = ours?;
        files::forget(directory)?;
        let measured = self.measure(|| ours.query(sql).map(drop))?;
        ours.database().close()?;
        Ok(measured)
    }

    fn warm(&self, report: &mut Report, name: &str, sql: &str) -> Result<()> {
        // At the store's pace, so that no block is refused while a segment is written.
        let filling = self.open(self.block_cache_bytes)?;
        self.measure(|| filling.query(sql).map(drop))?;
        filling.database().close()?;
        drop(filling);
        let sides: Vec<Side<'_, Measured>> = vec![
            Box::new(|_| self.after_restart(self.open(self.block_cache_bytes), &self.fast, sql)),
            Box::new(|_| self.after_restart(self.open_local(), &self.local, sql)),
        ];
        let figures = take_turns(ROUNDS, sides)?;
        report.add(Figure {
            case: format!("TPC-H {name}, block cache filled before the restart"),
            unit: "s",
            ours: seconds(&figures[0]),
            peer: "strandline, all files in a directory".into(),
            theirs: Some(seconds(&figures[1])),
            goal: Some(Goal::AtMost(1.2)),
            config: self.config([
                ("requests", median_gets(&figures[0])),
                ("requested_bytes", median_bytes(&figures[0])),
                ("block_cache_bytes", json!(self.block_cache_bytes)),
            ]),
        })
    }

    fn cold(&self, report: &mut Report, name: &str, sql: &str) -> Result<()> {
        let sides: Vec<Side<'_, Measured>> = vec![
            Box::new(|_| self.after_restart(self.open(0), &self.fast, sql)),
            Box::new(|_| self.on_parquet(sql)),
        ];
        let figures = take_turns(ROUNDS, sides)?;
        report.add(Figure {
            case: format!("TPC-H {name}, no block cache"),
            unit: "s",
            ours: seconds(&figures[0]),
            peer: format!("DataFusion {} on Parquet", datafusion::DATAFUSION_VERSION),
            theirs: Some(seconds(&figures[1])),
            goal: None,
            config: self.config([
                ("requests", median_gets(&figures[0])),
                ("requested_bytes", median_bytes(&figures[0])),
                (
                    "theirs",
                    json!({
                        "requests": median_gets(&figures[1]),
                        "requested_bytes": median_bytes(&figures[1]),
                    }),
                ),
            ]),
        })
    }

    /// A query of DataFusion in a new session. It has read the file's schema before.
    fn on_parquet(&self, sql: &str) -> Result<Measured> {
        let configuration = SessionConfig::new().with_target_partitions(self.threads);
        let context = SessionContext::new_with_config(configuration);
        let url = ObjectStoreUrl::parse("emulated://store")?;
        context.register_object_store(url.as_ref(), self.store.clone());
        let place = format!("{}{PARQUET}", url.as_str());
        let options = ParquetReadOptions::default();
        let register = context.register_parquet("lineitem", place, options);
        self.runtime.block_on(register)?;
        let query = async { context.sql(sql).await?.collect().await };
        self.measure(|| {
            self.runtime.block_on(query)?;
            Ok(())
        })
    }

    fn scan(&self, report: &mut Report) -> Result<()> {
        let columns: Vec<String> = COLUMNS.iter().map(|name| format!("max({name})")).collect();
        let sql = format!("SELECT {} FROM lineitem", columns.join(", "));
        let sides: Vec<Side<'_, Measured>> = vec![
            Box::new(|_| self.after_restart(self.open(0), &self.fast, &sql)),
            Box::new(|_| self.raw()),
        ];
        let figures = take_turns(ROUNDS, sides)?;
        let rate = |measured: &[Measured]| {
            let rates = measured.iter().map(|m| m.requests.bytes as f64 / m.seconds);
            Spread::of(rates)
        };
        report.add(Figure {
            case: "scan of all columns of lineitem, no block cache".into(),
            unit: "bytes/s",
            ours: rate(&figures[0]),
            peer: format!("ranges of {} MiB, {RANGES} at a time", RANGE_BYTES >> 20),
            theirs: Some(rate(&figures[1])),
            goal: Some(Goal::AtLeast(0.8)),
            config: self.config([
                ("requests", median_gets(&figures[0])),
                ("requested_bytes", median_bytes(&figures[0])),
                ("seconds", json!(seconds(&figures[0]).median)),
            ]),
        })
    }

    /// Reads all of our objects in ranges.
    fn raw(&self) -> Result<Measured> {
        let objects = self.objects()?;
        let ranges = objects.iter().flat_map(|(path, len)| {
            let starts = (0..*len).step_by(RANGE_BYTES as usize);
            starts.map(move |start| (path.clone(), start..(start + RANGE_BYTES).min(*len)))
        });
        let read = |(path, range)| {
            let store = self.store.clone();
            async move { store.get_range(&path, range).await }
        };
        let reads = stream::iter(ranges.map(read)).buffer_unordered(RANGES);
        let reads = reads.try_for_each(|bytes| async move {
            std::hint::black_box(bytes);
            Ok(())
        });
        self.measure(|| Ok(self.runtime.block_on(reads)?))
    }

    fn config<const N: usize>(&self, more: [(&str, Value); N]) -> serde_json::Map<String, Value> {
        let mut all = config([
            ("scale", json!(self.scale)),
            ("store", json!(EmulatedStore::label())),
            ("object_bytes", json!(self.object_bytes)),
            ("threads", json!(self.threads)),
            ("rounds", json!(ROUNDS)),
            ("io", json!("directory buffered, the page cache empty")),
        ]);
        all.extend(config(more));
        all
    }
}

fn seconds(measured: &[Measured]) -> Spread {
    Spread::of(measured.iter().map(|m| m.seconds))
}

fn median_gets(measured: &[Measured]) -> Value {
    let gets = measured.iter().map(|m| m.requests.gets as f64);
    json!(Spread::of(gets).median)
}

fn median_bytes(measured: &[Measured]) -> Value {
    let bytes = measured.iter().map(|m| m.requests.bytes as f64);
    json!(Spread::of(bytes).median)
}
