//! The database of the demo of tiers, and the requests to it.

use crate::session::{Connection, Database, Error, ErrorKind, Result, Value};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strandline::{Settings, TierCounts};
use strandline_base::rng::Rng;
use strandline_device::{EmulatedHdd, HddModel, OsDevice, TieredDevice, real_delays};

/// Clients at the same time.
pub const CLIENTS: u64 = 8;

/// The memory of the database.
const MEMORY_BYTES: usize = 64 << 20;
/// Memory for pages and the SSD cache are these parts of the index.
const MEMORY_PART: u64 = 32;
/// The least memory for pages: each client holds a few.
const PAGE_MEMORY_MIN: u64 = 256 << 10;
const CACHE_PART: u64 = 4;
/// The least distance of two loaded keys. Rows are inserted between them.
const STRIDE: u64 = 1 << 20;

/// Whether pages go through an SSD cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    Off,
    On,
}

/// The emulated disk.
pub struct Disk;

impl Disk {
    const TIME_SCALE: u64 = 8;
    /// What is emulated.
    pub const LABEL: &str = "7,200 rpm, 8 times as fast as such a disk";
}

/// The work of a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Second {
    pub requests: u64,
    /// the share of pages read that the SSD cache had; None: there is no cache
    pub hits: Option<f64>,
}

/// The table and its key's index.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    pub rows: u64,
    pub index_bytes: u64,
}

/// The open database.
pub struct Tiers {
    database: Database,
    disk: Arc<EmulatedHdd>,
    rows: u64,
}

impl Data {
    /// The memory for pages of the index.
    pub fn page_memory(self) -> u64 {
        (self.index_bytes / MEMORY_PART).max(PAGE_MEMORY_MIN)
    }

    /// The bytes of the SSD cache.
    pub fn cache_bytes(self) -> u64 {
        self.index_bytes / CACHE_PART
    }
}

/// Makes the table without the disk's delays.
pub fn load(path: &Path, rows: u64) -> Result<Data> {
    let tiers = Tiers::with(path, rows, Settings::default())?;
    tiers.disk.set_delays(false);
    let mut connection = tiers.database.connect();
    let definition = "CREATE TABLE readings (k bigint PRIMARY KEY, v bigint) \
                      WITH (key_index = 'btree')";
    connection.execute(definition, ())?;
    let mut appender = connection.appender("readings")?;
    for row in 0..rows {
        appender.append_row(&[Value::BigInt(key(row)), Value::BigInt(1)])?;
    }
    appender.finish()?;
    let size = connection.query("SELECT pg_relation_size('readings_pkey')", ())?;
    let size = size.single::<i64>()?;
    tiers.close()?;
    Ok(Data {
        rows,
        index_bytes: size.unsigned_abs(),
    })
}

/// The key of a loaded row; keys ascend and are no sequence.
fn key(row: u64) -> i64 {
    (row * STRIDE + Rng::new(row).below(STRIDE / 2)) as i64
}

impl Tiers {
    /// Opens the database, which has been loaded with `data`.
    pub fn open(path: &Path, data: Data, cache: Cache) -> Result<Self> {
        let settings = Settings {
            memory_bytes: MEMORY_BYTES,
            index_page_bytes_max: data.page_memory() as usize,
            ssd_cache_bytes: match cache {
                Cache::On => data.cache_bytes(),
                Cache::Off => 0,
            },
            ..Settings::default()
        };
        Self::with(path, data.rows, settings)
    }

    fn with(path: &Path, rows: u64, settings: Settings) -> Result<Self> {
        let inner = Arc::new(OsDevice::open(path.join("capacity"))?);
        let disk = EmulatedHdd::new(inner, HddModel::RPM_7200, Disk::TIME_SCALE, real_delays());
        let disk = Arc::new(disk);
        let fast = Arc::new(OsDevice::open(path.join("fast"))?);
        let device = TieredDevice::new(fast, disk.clone(), "")?;
        let database = Database::on_device(Arc::new(device)).settings(settings);
        Ok(Self {
            database: database.build()?,
            disk,
            rows,
        })
    }

    /// Closes the database.
    pub fn close(self) -> Result<()> {
        self.database.close()
    }

    /// Verifies the database; the damage found.
    pub fn check(&self) -> Result<Vec<String>> {
        self.disk.set_delays(false);
        self.database.check()
    }

    /// Serves requests of [`CLIENTS`] for `time`; tells `each` second.
    pub fn serve(
        &self,
        seed: u64,
        time: Duration,
        each: &mut dyn FnMut(&Second) -> Result<()>,
    ) -> Result<Vec<Second>> {
        let (requests, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
        let client = |number: u64| -> Result<()> {
            let mut client = Client::new(self, seed ^ (number << 32), "off")?;
            while !is_over.load(Ordering::Relaxed) {
                client.request()?;
                requests.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let client = &client;
        std::thread::scope(|scope| {
            let clients: Vec<_> = (0..CLIENTS)
                .map(|number| scope.spawn(move || client(number)))
                .collect();
            let seconds = self.watch(time, &requests, each);
            is_over.store(true, Ordering::Relaxed);
            for client in clients {
                let panicked = |_| Error::internal("a client panicked");
                client.join().map_err(panicked)??;
            }
            seconds
        })
    }

    fn watch(
        &self,
        time: Duration,
        requests: &AtomicU64,
        each: &mut dyn FnMut(&Second) -> Result<()>,
    ) -> Result<Vec<Second>> {
        let begin = Instant::now();
        let (mut seconds, mut served, mut looked) = (Vec::new(), 0, self.looks()?);
        while begin.elapsed() < time {
            let next = Duration::from_secs(seconds.len() as u64 + 1);
            std::thread::sleep(next.saturating_sub(begin.elapsed()));
            let (now, looks) = (requests.load(Ordering::Relaxed), self.looks()?);
            let hits = looks.zip(looked).map(|(now, before)| {
                let (hits, misses) = (now.0 - before.0, now.1 - before.1);
                hits as f64 / (hits + misses).max(1) as f64
            });
            let second = Second {
                requests: now - served,
                hits,
            };
            each(&second)?;
            seconds.push(second);
            (served, looked) = (now, looks);
        }
        Ok(seconds)
    }

    /// Hits and misses of the SSD cache.
    fn looks(&self) -> Result<Option<(u64, u64)>> {
        let rows = self.database.engine().tier_counts()?;
        let events = rows.iter().find_map(|row| row.events);
        let count = |name: &str| {
            let at = TierCounts::EVENTS.iter().position(|event| *event == name);
            Some(events?[at?])
        };
        Ok(count("hits").zip(count("misses")))
    }

    /// Inserts rows for ever, each in a durable transaction of its own, and tells `each` key.
    pub fn insert_durably(&self, seed: u64, each: &mut dyn FnMut(i64) -> Result<()>) -> Result<()> {
        let mut client = Client::new(self, seed, "on")?;
        loop {
            if let Some(key) = client.insert()? {
                each(key)?;
            }
        }
    }

    /// The first of `keys` that has no row.
    pub fn first_missing(&self, keys: &[i64]) -> Result<Option<i64>> {
        let mut client = Client::new(self, 0, "off")?;
        for key in keys {
            if !client.read(*key)? {
                return Ok(Some(*key));
            }
        }
        Ok(None)
    }
}

/// A connection that makes requests.
struct Client {
    connection: Connection,
    table: crate::session::TableHandle,
    rng: Rng,
    rows: u64,
}

impl Client {
    fn new(tiers: &Tiers, seed: u64, synchronous_commit: &str) -> Result<Self> {
        let mut connection = tiers.database.connect();
        let setting = format!("SET synchronous_commit = {synchronous_commit}");
        connection.execute(&setting, ())?;
        Ok(Self {
            table: connection.table("readings")?,
            connection,
            rng: Rng::new(seed),
            rows: tiers.rows,
        })
    }

    fn request(&mut self) -> Result<()> {
        match self.rng.one_in(10) {
            true => self.insert().map(drop),
            false => {
                let key = key(self.row());
                match self.read(key)? {
                    true => Ok(()),
                    false => Err(Error::internal(format!("row {key} is not there"))),
                }
            }
        }
    }

    /// A loaded row; of ten nine are of the newest tenth.
    fn row(&mut self) -> u64 {
        match self.rng.one_in(10) {
            true => self.rng.below(self.rows),
            false => self.rows - 1 - self.rng.below(self.rows / 10),
        }
    }

    fn read(&mut self, key: i64) -> Result<bool> {
        let mut transaction = self.connection.transaction()?;
        let found = transaction.get(&self.table, &[Value::BigInt(key)], &[])?;
        transaction.commit()?;
        Ok(found.is_some())
    }

    /// Inserts a row with a key beside a loaded one, which it returns; None: it was there.
    fn insert(&mut self) -> Result<Option<i64>> {
        let beside = self.row();
        let key = key(beside) + 1 + self.rng.below(STRIDE / 2) as i64;
        let mut transaction = self.connection.transaction()?;
        match transaction.insert(&self.table, &[Value::BigInt(key), Value::BigInt(2)]) {
            Ok(()) => transaction.commit().map(|()| Some(key)),
            Err(error) if error.kind() == ErrorKind::Constraint => Ok(None),
            Err(error) => Err(error),
        }
    }
}
