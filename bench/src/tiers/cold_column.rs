//! What a read of one column takes of the capacity tier when neither memory nor the block cache has
//! it: one access of at most 64 KiB. Headers and footers of the chunk files are in the block cache,
//! where an earlier session has left them.

use super::Bench;
use crate::Result;
use crate::ours::Ours;
use crate::report::{Figure, Goal, Report, config};
use crate::rounds::Spread;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use strandline::{Database, Settings};
use strandline_base::rng::Rng;
use strandline_device::{Device, Limits, Load, OsDevice, Throttled, TieredDevice, real_delays};

/// Rows of the table, and with --quick.
const ROWS: u64 = 2_000_000;
const QUICK_ROWS: u64 = 400_000;
/// Rows of a range: each has a chunk per column.
const RANGE_ROWS: u64 = 65_536;
/// Rows of a block.
const BLOCK_ROWS: u64 = 4_096;
/// Of the block cache.
const CACHE_BYTES: u64 = 64 << 20;
/// The most bytes of an access.
const ACCESS_BYTES_MAX: f64 = 65_536.0;
/// Columns beside the key, whose values do not compress.
const COLUMNS: usize = 3;

/// A database in two directories, of which the capacity tier counts accesses.
struct Tiers {
    ours: Ours,
    capacity: Arc<Throttled>,
}

impl Tiers {
    fn open(directory: &Path) -> Result<Self> {
        let fast = Arc::new(OsDevice::open(directory.join("fast"))?);
        let inner = Arc::new(OsDevice::open(directory.join("capacity"))?);
        let unlimited = Limits {
            bandwidth: u64::MAX,
            requests: u64::MAX,
        };
        let capacity = Arc::new(Throttled::new(inner, unlimited, real_delays()));
        let device: Arc<dyn Device> = Arc::new(TieredDevice::new(fast, capacity.clone(), "")?);
        let settings = Settings {
            block_cache_bytes: CACHE_BYTES,
            ..Settings::default()
        };
        let ours = Ours::build(Database::on_device(device).settings(settings))?;
        Ok(Self { ours, capacity })
    }

    /// The accesses to the capacity tier by a read of one column of each of these rows.
    fn reads(&self, rows: &[u64]) -> Result<Vec<Load>> {
        let mut worker = self.ours.worker("t", &["c1"], false)?;
        let mut loads = Vec::with_capacity(rows.len());
        for &row in rows {
            let before = self.capacity.load();
            worker.transaction(|point| {
                let found = point.get(row as i64)?;
                assert_eq!(found.len(), 1, "row {row} exists");
                Ok(())
            })?;
            let after = self.capacity.load();
            loads.push(Load {
                bytes: after.bytes - before.bytes,
                requests: after.requests - before.requests,
            });
        }
        Ok(loads)
    }
}

/// Two figures: accesses and bytes of the most expensive read.
pub fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let directory = bench.directory.join("cold-column");
    let rows = bench.sized(ROWS, QUICK_ROWS);
    let tiers = Tiers::open(&directory)?;
    tiers
        .ours
        .execute("CREATE TABLE t (k bigint PRIMARY KEY, c1 bigint, c2 bigint, c3 bigint)")?;
    let mut rng = Rng::new(bench.seed);
    tiers
        .ours
        .append_bigints("t", 1 + COLUMNS, rows, |row, values| {
            values[0] = row as i64;
            values[1..].fill_with(|| rng.below(u64::MAX) as i64);
        })?;
    tiers.ours.checkpoint()?;
    let firsts: Vec<u64> = (0..rows).step_by(RANGE_ROWS as usize).collect();
    tiers.reads(&firsts)?;
    tiers.ours.database().close()?;
    drop(tiers);
    let tiers = Tiers::open(&directory)?;
    let cold = cold_rows(rows, &mut rng);
    let loads = tiers.reads(&cold)?;
    tiers.ours.database().close()?;
    let of = |count: fn(&Load) -> u64| loads.iter().map(move |load| count(load) as f64);
    let accesses = Spread::of(of(|load| load.requests));
    let bytes = Spread::of(of(|load| load.bytes));
    let figures = [
        ("accesses", "accesses", accesses.most, 1.0),
        ("bytes", "bytes", bytes.most, ACCESS_BYTES_MAX),
    ];
    for (what, unit, most, goal) in figures {
        report.add(Figure {
            case: format!("cold read of one column, most {what} of the capacity tier"),
            unit,
            ours: most.into(),
            peer: "the goal".into(),
            theirs: Some(goal.into()),
            goal: Some(Goal::AtMost(1.0)),
            config: config([
                ("rows", json!(rows)),
                ("reads", json!(loads.len())),
                ("median_accesses", json!(accesses.median)),
                ("median_bytes", json!(bytes.median)),
                ("block_cache_bytes", json!(CACHE_BYTES)),
            ]),
        })?;
    }
    Ok(std::fs::remove_dir_all(directory)?)
}

/// A row of each block that is not the first of its range.
fn cold_rows(rows: u64, rng: &mut Rng) -> Vec<u64> {
    let blocks = (0..rows / BLOCK_ROWS).filter(|block| block % (RANGE_ROWS / BLOCK_ROWS) != 0);
    blocks
        .map(|block| block * BLOCK_ROWS + rng.below(BLOCK_ROWS))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_rows_are_one_of_each_further_block() {
        let rows = cold_rows(2 * RANGE_ROWS + 100, &mut Rng::new(1));
        let blocks: Vec<u64> = rows.iter().map(|row| row / BLOCK_ROWS).collect();
        let expected: Vec<u64> = (1..16).chain(17..32).collect();
        assert_eq!(blocks, expected);
    }
}
