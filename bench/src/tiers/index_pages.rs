//! The group `index_pages`: a table whose key has its index on pages of the capacity tier, several
//! times larger than the memory for pages, without and with the SSD cache.
//!
//! Keys ascend and are no sequence, so that each is looked up in the index. The table's other
//! column is the same in all rows: what is read of the disk is the index. *Hot* keys are the newest
//! tenth, which nine of ten requests ask for; the other requests, and all *uniform* ones, ask for
//! any.

use super::{Bench, TIME_SCALE, clients};
use crate::Result;
use crate::ours::Ours;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::{Side, interleave};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strandline::{Database, Settings};
use strandline_base::rng::Rng;
use strandline_device::{Device, EmulatedHdd, HddModel, OsDevice, TieredDevice, real_delays};

/// Rounds of every case; the figure is their median.
const ROUNDS: usize = 3;
/// Rows of the table, and with --quick.
const ROWS: u64 = 20_000_000;
const QUICK_ROWS: u64 = 1_000_000;
/// The memory of the database, in bytes.
const MEMORY_BYTES: usize = 64 << 20;
/// The memory for pages is this part of the index.
const MEMORY_PART: u64 = 32;
/// The SSD cache is this part of the index.
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

/// A database on a fast directory and an emulated disk.
struct Tiers {
    ours: Ours,
    disk: Arc<EmulatedHdd>,
    rows: u64,
    /// the number of the next inserted row's key
    inserted: AtomicU64,
    /// of the key's page file
    index_bytes: u64,
    /// memory for its pages
    page_memory_bytes: usize,
}

impl Tiers {
    /// A loaded database; with `has_cache` pages go through an SSD cache.
    fn new(directory: &Path, rows: u64, has_cache: bool) -> Result<Self> {
        let inner = Arc::new(OsDevice::open(directory.join("capacity"))?);
        let disk = EmulatedHdd::new(inner, HddModel::RPM_7200, TIME_SCALE, real_delays());
        let disk = Arc::new(disk);
        disk.set_delays(false);
        let fast = Arc::new(OsDevice::open(directory.join("fast"))?);
        let device: Arc<dyn Device> = Arc::new(TieredDevice::new(fast, disk.clone(), "")?);
        let ours = Self::open(&device, Settings::default())?;
        ours.execute("CREATE TABLE t (k bigint PRIMARY KEY, a bigint) WITH (key_index = 'btree')")?;
        ours.append_bigints("t", 2, rows, |row, values| {
            values.copy_from_slice(&[key(row), 1]);
        })?;
        ours.checkpoint()?;
        let index_bytes = index_size(&ours)?;
        ours.database().close()?;
        drop(ours);
        let settings = Settings {
            memory_bytes: MEMORY_BYTES,
            index_page_bytes_max: (index_bytes / MEMORY_PART) as usize,
            ssd_cache_bytes: match has_cache {
                true => index_bytes / CACHE_PART,
                false => 0,
            },
            ..Settings::default()
        };
        let page_memory_bytes = settings.index_page_bytes_max;
        Ok(Self {
            ours: Self::open(&device, settings)?,
            disk,
            rows,
            inserted: AtomicU64::new(0),
            index_bytes,
            page_memory_bytes,
        })
    }

    fn open(device: &Arc<dyn Device>, settings: Settings) -> Result<Ours> {
        Ours::build(Database::on_device(device.clone()).settings(settings))
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
    let rows = match bench.is_quick {
        true => QUICK_ROWS,
        false => ROWS,
    };
    let place = |name| bench.directory.join("index-pages").join(name);
    let with = Tiers::new(&place("with"), rows, true)?;
    let without = Tiers::new(&place("without"), rows, false)?;
    let (seed, time) = (bench.seed, bench.round);
    for (access, name) in [(Access::Hot, "hot"), (Access::Uniform, "uniform")] {
        with.warm(access, 2 * time, seed)?;
        without.warm(access, 2 * time, seed)?;
        let reads = |side: &Tiers, round| side.reads(access, time, seed + 1 + round);
        let inserts = |side: &Tiers, round| side.inserts(access, time, seed + 1 + round);
        let what: [(&str, &Measure<'_>); 2] = [("point reads", &reads), ("inserts", &inserts)];
        for (what, measure) in what {
            let sides: Vec<Side<'_>> = vec![
                Box::new(|round| measure(&with, round)),
                Box::new(|round| measure(&without, round)),
            ];
            let spreads = interleave(ROUNDS, sides)?;
            let cache = with.ours.database().engine().tier_counts()?;
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
                    ("seconds", json!(time.as_secs())),
                    ("memory_bytes", json!(MEMORY_BYTES)),
                    ("index_bytes", json!(with.index_bytes)),
                    ("page_memory_bytes", json!(with.page_memory_bytes)),
                    ("cache_bytes", json!(cache.and_then(|row| row.bytes_max))),
                    ("capacity_tier", json!(with.disk.label())),
                    ("fast_tier", json!("files of the operating system")),
                    ("synchronous_commit", json!(false)),
                    ("io", json!("buffered")),
                ]),
            })?;
        }
    }
    Ok(())
}

/// Bytes of the key's page file.
fn index_size(ours: &Ours) -> Result<u64> {
    let mut connection = ours.database().connect();
    let size = connection.query("SELECT pg_relation_size('t_pkey')", ())?;
    Ok(size.single::<i64>()? as u64)
}
