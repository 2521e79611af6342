//! The group `index_pages`: a table whose key has its index on pages of the capacity tier, several
//! times larger than the memory for pages, without and with an SSD cache of a quarter of the data:
//! of the index the page cache, of the column blocks the block cache.
//!
//! Keys ascend and are no sequence, so that each is looked up in the index. The table's other
//! column is the same in all rows: what is read of the disk is the index and the keys' column.
//! *Hot* keys are the newest tenth, which nine of ten requests ask for; the other requests, and all
//! *uniform* ones, ask for any.

use super::{Bench, TIME_SCALE, clients, files};
use crate::Result;
use crate::ours::Ours;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, interleave};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strandline::{Database, Settings};
use strandline_base::rng::Rng;
use strandline_bench_tpcc::experiment::processor;
use strandline_device::{
    Device, EmulatedHdd, HddModel, Limits, Load, OsDevice, TAKEOVER_FILE, Throttled, TieredDevice,
    real_delays,
};

/// Rounds of every case; the figure is their median.
const ROUNDS: usize = 3;
/// Rows of the table, and with --quick.
const ROWS: u64 = 20_000_000;
const QUICK_ROWS: u64 = 1_000_000;
/// The memory of the database, in bytes.
const MEMORY_BYTES: usize = 64 << 20;
/// The memory for pages is this part of the index.
const MEMORY_PART: u64 = 32;
/// The SSD cache is this part of the index, and of the columns.
const CACHE_PART: u64 = 4;
/// The least distance of two keys.
const STRIDE: u64 = 64;
const CLIENTS: u64 = 8;

/// Which rows are asked for.
#[derive(Clone, Copy)]
enum Access {
    Hot,
    Uniform,
}

impl Access {
    fn row(self, rows: u64, rng: &mut Rng) -> u64 {
        match self {
            Self::Hot if !rng.one_in(10) => rows - 1 - rng.below(rows / 10),
            _ => rng.below(rows),
        }
    }
}

/// The key of a row.
fn key(row: u64) -> i64 {
    let offset = Rng::new(row).below(STRIDE / 2);
    (row * STRIDE + 2 * offset) as i64
}

/// Requests per second of a round.
type Measure<'a> = dyn Fn(&Tiers, u64) -> Result<f64> + 'a;

/// The bytes of a loaded table.
#[derive(Clone, Copy)]
struct Size {
    /// of the key's page file
    index: u64,
    /// of the columns
    columns: u64,
}

/// Loads the table into the directory.
fn load(directory: &Path, rows: u64) -> Result<Size> {
    let fast = Arc::new(OsDevice::open(directory.join("fast"))?);
    let capacity = Arc::new(OsDevice::open(directory.join("capacity"))?);
    let ours = Ours::on_device(Arc::new(TieredDevice::new(fast, capacity, "")?))?;
    ours.execute("CREATE TABLE t (k bigint PRIMARY KEY, a bigint) WITH (key_index = 'btree')")?;
    ours.append_bigints("t", 2, rows, |row, values| {
        values.copy_from_slice(&[key(row), 1]);
    })?;
    ours.checkpoint()?;
    let size = Size {
        index: relation_size(&ours, "t_pkey")?,
        columns: relation_size(&ours, "t")?,
    };
    ours.database().close()?;
    Ok(size)
}

/// What the tiers have done so far.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// by [`Counts::NAMES`]
    all: [u64; Counts::NAMES.len()],
    requests: u64,
}

impl Counts {
    /// Reads and writes of the capacity tier, the log, the SSD cache, and how long the emulated
    /// disk and the processors were busy.
    const NAMES: [&str; 12] = [
        "capacity_accesses",
        "capacity_bytes",
        "log_bytes",
        "cache_hits",
        "cache_misses",
        "cache_admissions",
        "cache_evictions",
        "cache_refusals",
        "cache_written_bytes",
        "syncs",
        "disk_busy_ns",
        "processor_ns",
    ];

    /// These counts and what was counted between two moments, in which `requests` were made.
    fn and(self, before: Self, after: Self, requests: u64) -> Self {
        let between = |at: usize| after.all[at] - before.all[at];
        Self {
            all: std::array::from_fn(|at| self.all[at] + between(at)),
            requests: self.requests + requests,
        }
    }

    /// Each count per request.
    fn per_request(&self) -> Value {
        let requests = self.requests.max(1) as f64;
        let counts = Self::NAMES.iter().zip(self.all);
        let each = counts.map(|(name, count)| {
            let each = (count as f64 / requests * 1_000.0).round() / 1_000.0;
            (name.to_string(), json!(each))
        });
        each.collect::<Map<String, Value>>().into()
    }
}

/// A database on a fast directory and an emulated disk.
struct Tiers {
    ours: Ours,
    disk: Arc<EmulatedHdd>,
    /// below the disk: it counts
    accesses: Arc<Throttled>,
    rows: u64,
    /// the number of the next inserted row's key
    inserted: AtomicU64,
    /// memory for its pages
    page_memory_bytes: usize,
    /// of the present case
    counts: Mutex<Counts>,
}

impl Tiers {
    /// Opens a loaded directory; with `has_cache` it has SSD caches.
    fn new(directory: &Path, rows: u64, size: Size, has_cache: bool) -> Result<Self> {
        let inner = Arc::new(OsDevice::open(directory.join("capacity"))?);
        let unlimited = Limits {
            bandwidth: u64::MAX,
            requests: u64::MAX,
        };
        let accesses = Arc::new(Throttled::new(inner, unlimited, real_delays()));
        let (model, clock) = (HddModel::RPM_7200, real_delays());
        let disk = Arc::new(EmulatedHdd::new(accesses.clone(), model, TIME_SCALE, clock));
        disk.set_delays(false);
        let fast = Arc::new(OsDevice::open(directory.join("fast"))?);
        let device: Arc<dyn Device> = Arc::new(TieredDevice::new(fast, disk.clone(), "")?);
        let cached = |bytes: u64| match has_cache {
            true => bytes / CACHE_PART,
            false => 0,
        };
        let mut settings = Settings {
            memory_bytes: MEMORY_BYTES,
            index_page_bytes_max: (size.index / MEMORY_PART) as usize,
            ssd_cache_bytes: cached(size.index),
            block_cache_bytes: cached(size.columns),
            ..Settings::default()
        };
        if let Some(cache) = settings.block_cache(0) {
            // With --quick a quarter of the columns is less than a cache may have.
            let bytes = &mut settings.block_cache_bytes;
            *bytes = (*bytes).max(cache.cache_bytes_min());
        }
        let page_memory_bytes = settings.index_page_bytes_max;
        Ok(Self {
            ours: Ours::build(Database::on_device(device).settings(settings))?,
            disk,
            accesses,
            rows,
            inserted: AtomicU64::new(0),
            page_memory_bytes,
            counts: Mutex::default(),
        })
    }

    /// What was counted so far, without requests.
    fn counted(&self) -> Result<Counts> {
        let engine = self.ours.database().engine();
        let log = engine.counters().into_iter();
        let log = log.filter(|(name, _)| *name == "log_bytes");
        let tiers = engine.tier_counts()?;
        let cache = tiers.iter().find(|row| row.name == "ssd_cache");
        let events = cache.and_then(|row| row.events).unwrap_or_default();
        let [hits, misses, admissions, evictions, refusals, syncs, _] = events;
        let written = cache.and_then(|row| row.written_bytes).unwrap_or_default();
        let Load { bytes, requests } = self.accesses.load();
        let log = log.map(|(_, bytes)| bytes).sum();
        Ok(Counts {
            all: [
                requests,
                bytes,
                log,
                hits,
                misses,
                admissions,
                evictions,
                refusals,
                written,
                syncs,
                self.disk.busy_ns(),
                (processor::seconds() * 1e9) as u64,
            ],
            requests: 0,
        })
    }

    /// Requests per second of a round, whose counts are added to those of the case.
    fn count(&self, time: Duration, measure: impl FnOnce() -> Result<f64>) -> Result<f64> {
        let before = self.counted()?;
        let rate = measure()?;
        let requests = (rate * time.as_secs_f64()) as u64;
        let mut counts = self.counts.lock();
        *counts = counts.and(before, self.counted()?, requests);
        Ok(rate)
    }

    /// Point reads per second, each of one row in a transaction of its own.
    fn reads(&self, access: Access, time: Duration, seed: u64) -> Result<f64> {
        clients::rate(&self.ours, (CLIENTS, false), time, seed, &|worker, rng| {
            let key = key(access.row(self.rows, rng));
            worker.transaction(|point| {
                let found = point.get(key)?;
                assert_eq!(found.len(), 1, "row {key} exists");
                Ok(())
            })
        })
    }

    /// Inserts per second, beside random rows, each in a transaction of its own.
    fn inserts(&self, access: Access, time: Duration, seed: u64) -> Result<f64> {
        clients::rate(&self.ours, (CLIENTS, false), time, seed, &|worker, rng| {
            let number = self.inserted.fetch_add(1, Ordering::Relaxed);
            // Odd keys are free. Two inserts beside one row get different ones, nearly always.
            let beside = key(access.row(self.rows, rng)) + 1 + 2 * (number % 8) as i64;
            worker.insert_if_free([beside, 1])
        })
    }

    /// Fills memory and cache with what is asked for, without delays.
    fn warm(&self, access: Access, time: Duration, seed: u64) -> Result<()> {
        self.disk.set_delays(false);
        self.reads(access, time, seed)?;
        self.disk.set_delays(true);
        Ok(())
    }
}

/// The group.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let rows = bench.sized(ROWS, QUICK_ROWS);
    let place = |name| bench.directory.join("index-pages").join(name);
    let size = load(&place("with"), rows)?;
    files::copy(&place("with"), &place("without"))?;
    // The copy's two directories belong together, and not to the original's.
    std::fs::write(place("without").join("fast").join(TAKEOVER_FILE), "")?;
    let with = Tiers::new(&place("with"), rows, size, true)?;
    let without = Tiers::new(&place("without"), rows, size, false)?;
    let (seed, time) = (bench.seed, bench.round);
    for (access, name) in [(Access::Hot, "hot"), (Access::Uniform, "uniform")] {
        with.warm(access, 2 * time, seed)?;
        without.warm(access, 2 * time, seed)?;
        let reads = |side: &Tiers, round| side.reads(access, time, seed + 1 + round);
        let inserts = |side: &Tiers, round| side.inserts(access, time, seed + 1 + round);
        let what: [(&str, &Measure<'_>); 2] = [("point reads", &reads), ("inserts", &inserts)];
        for (what, measure) in what {
            let counted = |side: &Tiers, round| side.count(time, || measure(side, round));
            let sides: Vec<Side<'_>> = vec![
                Box::new(|round| counted(&with, round)),
                Box::new(|round| counted(&without, round)),
            ];
            let spreads = interleave(ROUNDS, sides)?;
            let engine = with.ours.database().engine();
            let cache = engine.tier_counts()?;
            let cache = cache.iter().find(|row| row.name == "ssd_cache");
            report.add(Figure {
                case: format!("{what}, {name} keys, index on pages, SSD cache 25 %"),
                unit: "1/s",
                ours: spreads[0],
                peer: "strandline without SSD cache".into(),
                theirs: Some(spreads[1]),
                goal: matches!(access, Access::Hot).then_some(Goal::AtLeast(5.0)),
                config: config([
                    ("rows", json!(rows)),
                    ("clients", json!(CLIENTS)),
                    ("rounds", json!(ROUNDS)),
                    ("seconds", json!(time.as_secs_f64())),
                    ("memory_bytes", json!(MEMORY_BYTES)),
                    ("index_bytes", json!(size.index)),
                    ("column_bytes", json!(size.columns)),
                    ("page_memory_bytes", json!(with.page_memory_bytes)),
                    ("cache_bytes", json!(cache.and_then(|row| row.bytes_max))),
                    (
                        "block_cache_bytes",
                        json!(engine.settings().block_cache_bytes),
                    ),
                    ("capacity_tier", json!(with.disk.label())),
                    ("fast_tier", json!("files of the operating system")),
                    ("synchronous_commit", json!(false)),
                    ("io", json!("buffered")),
                    (
                        "per_request",
                        std::mem::take(&mut *with.counts.lock()).per_request(),
                    ),
                    (
                        "per_request_without",
                        std::mem::take(&mut *without.counts.lock()).per_request(),
                    ),
                ]),
            })?;
        }
    }
    with.ours.database().close()?;
    without.ours.database().close()?;
    drop((with, without));
    Ok(std::fs::remove_dir_all(
        bench.directory.join("index-pages"),
    )?)
}

/// Bytes of a table or an index.
fn relation_size(ours: &Ours, name: &str) -> Result<u64> {
    let mut connection = ours.database().connect();
    let sql = format!("SELECT pg_relation_size('{name}')");
    Ok(connection.query(sql.as_str(), ())?.single::<i64>()? as u64)
}
