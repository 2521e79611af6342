//! The group `commits`: durable single-row updates of a database in two directories, of which the
//! capacity tier is an emulated disk, against all files on such a disk.

use super::{Bench, TIME_SCALE, clients};
use crate::Result;
use crate::ours::Ours;
use crate::report::{Figure, Report, config};
use crate::rounds::{Side, interleave};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use strandline_device::{Device, EmulatedHdd, HddModel, OsDevice, TieredDevice, real_delays};

/// Rounds of every case; the figure is their median.
const ROUNDS: usize = 3;
/// Rows of the table.
const ROWS: u64 = 50_000;

/// An emulated disk in the directory `name`.
fn disk(bench: &Bench, name: &str) -> Result<Arc<EmulatedHdd>> {
    let inner = Arc::new(OsDevice::open(bench.directory.join(name))?);
    let (model, clock) = (HddModel::RPM_7200, real_delays());
    Ok(Arc::new(EmulatedHdd::new(inner, model, TIME_SCALE, clock)))
}

/// A database that is loaded without delays and measured with them.
fn filled(device: Arc<dyn Device>, disk: &EmulatedHdd) -> Result<Ours> {
    disk.set_delays(false);
    let ours = Ours::on_device(device)?;
    ours.execute("CREATE TABLE t (k bigint PRIMARY KEY, a bigint)")?;
    ours.append_bigints("t", 2, ROWS, |row, values| {
        values.fill(row as i64);
    })?;
    ours.checkpoint()?;
    disk.set_delays(true);
    Ok(ours)
}

/// The group.
pub fn run(bench: &mut Bench, report: &mut Report) -> Result<()> {
    let (capacity, alone) = (disk(bench, "capacity")?, disk(bench, "alone")?);
    let fast = Arc::new(OsDevice::open(bench.directory.join("fast"))?);
    let tiers = TieredDevice::new(fast, capacity.clone(), "")?;
    let two = filled(Arc::new(tiers), &capacity)?;
    let one = filled(alone.clone(), &alone)?;
    for clients in [1, 8] {
        let (seed, time) = (bench.seed, bench.round / 2);
        let sides: Vec<Side<'_>> = vec![
            Box::new(|round| rate(&two, clients, time, seed + round)),
            Box::new(|round| rate(&one, clients, time, seed + round)),
        ];
        let spreads = interleave(ROUNDS, sides)?;
        report.add(Figure {
            case: format!("durable updates, {clients} clients, capacity tier emulated"),
            unit: "1/s",
            ours: spreads[0],
            peer: format!("strandline in one directory ({})", alone.label()),
            theirs: Some(spreads[1]),
            goal: None,
            config: config([
                ("rows", json!(ROWS)),
                ("clients", json!(clients)),
                ("rounds", json!(ROUNDS)),
                ("seconds", json!(time.as_secs_f64())),
                ("capacity_tier", json!(capacity.label())),
                ("io", json!("buffered")),
            ]),
        })?;
    }
    Ok(())
}

/// Durable updates of one random row per second.
fn rate(ours: &Ours, clients: u64, time: Duration, seed: u64) -> Result<f64> {
    clients::rate(ours, (clients, true), time, seed, &|worker, rng| {
        let (key, value) = (rng.below(ROWS) as i64, rng.below(1 << 40) as i64);
        worker.transaction(|point| point.update(key, [value]))
    })
}
