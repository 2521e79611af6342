//! Strandline in the harness, through its public API: point transactions and SQL.

use super::engine::{
    COLUMNS, Engine, Failure, NAMES, Point, Scanner, Session, Step, UPDATED, first_values,
};
use crate::Result;
use crate::ours::{Ours, Worker};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use strandline::{Connection, Settings, Value};
use strandline_device::MemoryDevice;

/// Our settings in the harness.
pub const SETTINGS: &str = "device in memory, synchronous_commit off (the log goes to memory), \
                            memory_bytes 8 GiB, 1 query thread, merges and checkpoints by the \
                            engine's own thread";

/// Memory limit that holds all the data which the rivals keep in memory.
const MEMORY_BYTES: usize = 8 << 30;

/// A database with the table `point`.
pub struct Strandline {
    ours: Ours,
    rows: u64,
}

/// A device in memory with the loaded table. Every measurement opens a copy of it.
pub struct Image {
    device: MemoryDevice,
    rows: u64,
}

impl Image {
    /// Loads the table.
    pub fn new(rows: u64, seed: u64) -> Result<Self> {
        let device = Arc::new(MemoryDevice::new());
        let loaded = Strandline::open(&device, rows, settings())?;
        loaded.fill(seed)?;
        loaded.close()?;
        let device = device.duplicate();
        Ok(Self { device, rows })
    }

    /// An unused database.
    pub fn open(&self, settings: Settings) -> Result<Strandline> {
        Strandline::open(&Arc::new(self.device.duplicate()), self.rows, settings)
    }
}

impl Strandline {
    /// Loads the table into a database below `path` with default settings.
    pub fn on_disk(path: &Path, rows: u64, seed: u64) -> Result<Self> {
        let ours = Ours::open(path, 1)?;
        let loaded = Self { ours, rows };
        loaded.fill(seed)?;
        Ok(loaded)
    }

    /// The database of `device`, whose table has `rows` rows once it is filled.
    fn open(device: &Arc<MemoryDevice>, rows: u64, settings: Settings) -> Result<Self> {
        let ours = Ours::in_memory(device, 1, settings)?;
        Ok(Self { ours, rows })
    }

    /// Creates and fills the table.
    fn fill(&self, seed: u64) -> Result<()> {
        let columns: Vec<String> = NAMES[..COLUMNS - 1]
            .iter()
            .map(|c| format!("{c} bigint"))
            .collect();
        let columns = columns.join(", ");
        self.ours.execute(&format!(
            "CREATE TABLE point ({columns}, id bigint PRIMARY KEY)"
        ))?;
        self.ours
            .append_bigints("point", COLUMNS, self.rows, |key, row| {
                row.copy_from_slice(&first_values(key, seed));
            })?;
        self.ours.checkpoint()
    }

    /// Closes the database; its device stays.
    fn close(self) -> Result<()> {
        Ok(self.ours.database().close()?)
    }
}

/// The settings of the harness.
pub fn settings() -> Settings {
    Settings {
        memory_bytes: MEMORY_BYTES,
        ..Settings::default()
    }
}

impl Engine for Strandline {
    fn name(&self) -> &'static str {
        "Strandline"
    }

    fn session(&self, columns: usize) -> Result<Box<dyn Session + '_>> {
        let mut worker = self.ours.worker("point", &NAMES[..columns], false)?;
        worker.abort_on_conflict()?;
        Ok(Box::new(StrandlineSession(worker)))
    }

    fn scanner(&self) -> Result<Box<dyn Scanner + '_>> {
        let connection = self.ours.database().connect();
        Ok(Box::new(StrandlineScanner {
            connection,
            rows: self.rows,
        }))
    }

    fn merge(&self) -> bool {
        false
    }

    fn merges(&self) -> u64 {
        let counters = self.ours.database().counters();
        let merged = counters.iter().find(|(name, _)| *name == "merged_ranges");
        merged.map_or(0, |(_, count)| *count)
    }
}

struct StrandlineSession(Worker);

impl Session for StrandlineSession {
    fn transaction(&mut self, work: &mut dyn FnMut(&mut dyn Point) -> Step<()>) -> Step<()> {
        let mut point = StrandlinePoint(self.0.begin()?);
        work(&mut point)?;
        Ok(point.0.commit()?)
    }
}

struct StrandlinePoint<'c, 'w>(crate::ours::Point<'c, 'w>);

impl Point for StrandlinePoint<'_, '_> {
    fn read(&mut self, key: u64, values: &mut [i64]) -> Step<()> {
        let row = self.0.get(key as i64)?;
        for (value, found) in values.iter_mut().zip(row) {
            let Value::BigInt(found) = found else {
                return Err(Failure::Error(format!("row {key} has {found:?}")));
            };
            *value = *found;
        }
        Ok(())
    }

    fn update(&mut self, key: u64, values: &[i64; UPDATED]) -> Step<()> {
        Ok(self.0.update(key as i64, *values)?)
    }
}

struct StrandlineScanner {
    connection: Connection,
    rows: u64,
}

impl Scanner for StrandlineScanner {
    fn sum(&mut self, rows: Range<u64>) -> Result<i64> {
        let sum = match rows != (0..self.rows) {
            // Values go as parameters, so that the statement's plan is kept.
            true => {
                let range = (rows.start as i64, rows.end as i64);
                let sql = "SELECT SUM(c1) FROM point WHERE id >= $1 AND id < $2";
                self.connection.query(sql, range)?
            }
            false => self.connection.query("SELECT SUM(c1) FROM point", ())?,
        };
        Ok(sum.single::<String>()?.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_that_of_the_rivals() {
        let ours = Image::new(1_000, 3).unwrap().open(settings()).unwrap();
        let rival = <super::super::rivals::Iuh>::new(1_000, 3);
        for rows in [0..1_000, 10..11, 250..750] {
            let sum = |engine: &dyn Engine| engine.scanner().unwrap().sum(rows.clone()).unwrap();
            assert_eq!(sum(&ours), sum(&rival));
        }
    }
}
