//! The paper's transaction and point reads on any store, from several threads for a while.

use crate::Result;
use crate::row::{Rows, TOUCHED};
use serde::Deserialize;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;

/// Reads and updates of one transaction: as in the L-Store paper.
const READS: usize = 8;
const UPDATES: usize = 2;
/// Reads of a transaction that only reads.
const READS_ONLY: usize = 10;
/// How much of a run's seconds its threads work before they are counted.
const WARM_PART: f64 = 0.25;

/// A store with the point table.
pub trait Store: Sized + Sync {
    /// How it is configured, and what the manual says that for.
    const SETTINGS: &'static str;
    /// Its name and version.
    fn version() -> String;
    /// Creates it at `path`, which does not exist, with these rows.
    fn fill(path: &str, rows: Rows) -> Result<()>;
    /// Opens it for a run.
    fn open(run: &Run) -> Result<Self>;
    /// What a thread works with.
    fn worker(&self) -> Result<impl Worker>;
    /// Reads every row, so that caches of the store are as full as ours, which stays open between
    /// runs.
    fn warm(&self, rows: u64) -> Result<()> {
        let mut worker = self.worker()?;
        let keys: Vec<u64> = (0..rows).collect();
        keys.chunks(READS_ONLY)
            .try_for_each(|keys| worker.read(keys))
    }
}

/// One thread's access to a store.
pub trait Worker {
    /// Runs a transaction until it commits.
    fn transaction(&mut self, keys: &Keys) -> Result<()>;
    /// Reads rows in one transaction that only reads.
    fn read(&mut self, keys: &[u64]) -> Result<()>;
}

/// The rows of one transaction.
pub struct Keys {
    pub reads: [u64; READS],
    pub updates: [(u64, [i64; TOUCHED]); UPDATES],
}

impl Keys {
    fn draw(rng: &mut Rng, rows: u64) -> Self {
        Self {
            reads: std::array::from_fn(|_| rng.below(rows)),
            updates: std::array::from_fn(|_| {
                let key = rng.below(rows);
                (key, std::array::from_fn(|_| rng.below(1 << 30) as i64))
            }),
        }
    }
}

/// A timed run.
#[derive(Deserialize)]
pub struct Run {
    pub path: String,
    pub rows: u64,
    pub threads: u64,
    pub seconds: f64,
    pub seed: u64,
    /// Whether commits wait for the device.
    pub durable: bool,
    /// The memory that the engine may take; without it the caches hold the table, and are filled
    /// first. RocksDB then reads past the page cache.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
}

impl Run {
    /// Transactions committed and seconds taken.
    pub fn transactions<S: Store>(&self) -> Result<(u64, f64)> {
        self.measure::<S>(&|store, n, start| {
            let worker = store.worker();
            self.repeat(n, start, worker, |worker, rng| {
                worker.transaction(&Keys::draw(rng, self.rows))?;
                Ok(1)
            })
        })
    }

    /// Reads done and seconds taken.
    pub fn reads<S: Store>(&self) -> Result<(u64, f64)> {
        self.measure::<S>(&|store, n, start| {
            let worker = store.worker();
            self.repeat(n, start, worker, |worker, rng| {
                let keys: [u64; READS_ONLY] = std::array::from_fn(|_| rng.below(self.rows));
                worker.read(&keys)?;
                Ok(READS_ONLY as u64)
            })
        })
    }

    fn measure<S: Store>(
        &self,
        thread: &(dyn Fn(&S, u64, &Barrier) -> Result<u64> + Sync),
    ) -> Result<(u64, f64)> {
        let store = S::open(self)?;
        if self.memory_bytes.is_none() {
            store.warm(self.rows)?;
        }
        let start = Barrier::new(self.threads as usize + 1);
        std::thread::scope(|scope| {
            let (store, start) = (&store, &start);
            let spawn = |n| scope.spawn(move || thread(store, n, start));
            let threads: Vec<_> = (0..self.threads).map(spawn).collect();
            start.wait();
            let (started, mut done) = (Instant::now(), 0);
            for thread in threads {
                done += thread.join().expect("a thread does not panic")?;
            }
            Ok((done, started.elapsed().as_secs_f64()))
        })
    }

    fn repeat<W>(
        &self,
        n: u64,
        start: &Barrier,
        worker: Result<W>,
        mut work: impl FnMut(&mut W, &mut Rng) -> Result<u64>,
    ) -> Result<u64> {
        let mut worker = match worker {
            Ok(worker) => worker,
            Err(error) => {
                start.wait(); // the others wait for this thread
                return Err(error);
            }
        };
        let mut rng = Rng::new(self.seed ^ (n << 32));
        let mut work_for = |seconds: f64| -> Result<u64> {
            let deadline = Instant::now() + Duration::from_secs_f64(seconds);
            let mut done = 0;
            while Instant::now() < deadline {
                done += work(&mut worker, &mut rng)?;
            }
            Ok(done)
        };
        let warmed = work_for(self.seconds * WARM_PART);
        start.wait();
        warmed?;
        work_for(self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills a store and runs transactions, durable and not, and reads on it.
    fn check<S: Store>() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("store").to_str().unwrap().to_string();
        S::fill(&path, Rows::new(500, 1)).unwrap();
        for (threads, durable) in [(1, false), (3, true)] {
            let (path, rows, seconds, seed) = (path.clone(), 500, 0.05, 2);
            let run = Run {
                path,
                rows,
                threads,
                seconds,
                seed,
                durable,
                memory_bytes: durable.then_some(16 << 20),
            };
            assert!(run.transactions::<S>().unwrap().0 > 0);
            assert!(run.reads::<S>().unwrap().0 > 0);
        }
    }

    #[test]
    fn sqlite_works() {
        check::<crate::sqlite::Sqlite>();
    }

    #[test]
    #[cfg(feature = "rocksdb")]
    fn rocksdb_works() {
        check::<crate::rocksdb::RocksDb>();
    }

    #[test]
    fn redb_works() {
        check::<crate::redb::Redb>();
    }

    #[test]
    fn fjall_works() {
        check::<crate::fjall::Fjall>();
    }

    #[test]
    fn lmdb_works() {
        check::<crate::lmdb::Lmdb>();
    }
}
