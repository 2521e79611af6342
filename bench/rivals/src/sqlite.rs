//! The point workload on SQLite, as fast as we know how to make it.
//!
//! Write-ahead log, memory-mapped reads, a cache that holds the table, prepared statements, a rowid
//! table, one connection per thread without the library's own mutexes. A single thread holds the
//! file exclusively, which spares it the shared-memory index. Several threads queue for `BEGIN
//! IMMEDIATE` on a mutex of ours: SQLite's own busy handler sleeps and polls, which is slower.

use rusqlite::{Connection, OpenFlags, params};
use serde::Deserialize;
use std::path::Path;
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use strandline_base::rng::Rng;

/// What stands in the results beside the version.
pub const SETTINGS: &str = "WAL, wal_autocheckpoint 16384 pages, mmap 4 GiB, cache 512 MiB, \
                            prepared statements, rowid table, exclusive lock with 1 thread, \
                            else 1 connection per thread and BEGIN IMMEDIATE in turn";

/// Rows per inserting transaction of `fill`.
const FILL_ROWS: u64 = 100_000;
/// Reads and updates of one transaction, and the columns each touches: as in the L-Store paper.
const READS: usize = 8;
const UPDATES: usize = 2;

/// A timed run of point transactions.
#[derive(Deserialize)]
pub struct Run {
    path: String,
    rows: u64,
    threads: u64,
    seconds: f64,
    seed: u64,
    /// `FULL` or `OFF`
    synchronous: String,
}

fn open(path: &str, synchronous: &str, exclusive: bool) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_mins(1))?;
    let locking = if exclusive { "EXCLUSIVE" } else { "NORMAL" };
    connection.pragma_update(None, "locking_mode", locking)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.pragma_update(None, "wal_autocheckpoint", 16_384)?;
    connection.pragma_update(None, "mmap_size", 4_i64 << 30)?;
    connection.pragma_update(None, "cache_size", -(512 << 10))?;
    Ok(connection)
}

/// Creates `point(id, c1 … c9)` with ids `0..rows`.
pub fn fill(path: &str, rows: u64, seed: u64) -> rusqlite::Result<()> {
    assert!(!Path::new(path).exists(), "{path} exists already");
    let mut connection = open(path, "OFF", true)?;
    connection.execute_batch(
        "CREATE TABLE point (id INTEGER PRIMARY KEY, c1 BIGINT, c2 BIGINT, c3 BIGINT, c4 BIGINT, \
         c5 BIGINT, c6 BIGINT, c7 BIGINT, c8 BIGINT, c9 BIGINT)",
    )?;
    let mut rng = Rng::new(seed);
    for first in (0..rows).step_by(FILL_ROWS as usize) {
        let transaction = connection.transaction()?;
        let mut insert =
            transaction.prepare_cached("INSERT INTO point VALUES (?,?,?,?,?,?,?,?,?,?)")?;
        for id in first..rows.min(first + FILL_ROWS) {
            let v: [i64; 9] = std::array::from_fn(|_| rng.below(1 << 30) as i64);
            insert.execute(params![
                id as i64, v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8]
            ])?;
        }
        drop(insert);
        transaction.commit()?;
    }
    connection.pragma_update(None, "wal_checkpoint", "TRUNCATE")
}

impl Run {
    /// Transactions committed and seconds taken.
    pub fn run(&self) -> rusqlite::Result<(u64, f64)> {
        let exclusive = self.threads == 1;
        let connections = (0..self.threads)
            .map(|_| open(&self.path, &self.synchronous, exclusive))
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let start = Barrier::new(connections.len() + 1);
        let writer = Mutex::new(());
        std::thread::scope(|scope| {
            let workers: Vec<_> = connections
                .into_iter()
                .zip(0..)
                .map(|(connection, n)| {
                    let (start, writer) = (&start, &writer);
                    scope.spawn(move || self.work(&connection, n, start, writer))
                })
                .collect();
            start.wait();
            let started = Instant::now();
            let mut transactions = 0;
            for worker in workers {
                transactions += worker.join().expect("a worker does not panic")?;
            }
            Ok((transactions, started.elapsed().as_secs_f64()))
        })
    }

    fn work(
        &self,
        connection: &Connection,
        thread: u64,
        start: &Barrier,
        writer: &Mutex<()>,
    ) -> rusqlite::Result<u64> {
        let mut rng = Rng::new(self.seed ^ (thread << 32));
        start.wait();
        let deadline = Instant::now() + Duration::from_secs_f64(self.seconds);
        let mut transactions = 0;
        while Instant::now() < deadline {
            let turn = writer.lock().expect("a worker does not panic");
            self.transaction(connection, &mut rng)?;
            drop(turn);
            transactions += 1;
        }
        Ok(transactions)
    }

    fn transaction(&self, connection: &Connection, rng: &mut Rng) -> rusqlite::Result<()> {
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        {
            let mut get =
                connection.prepare_cached("SELECT c1, c2, c3, c4 FROM point WHERE id = ?")?;
            for _ in 0..READS {
                let row: [i64; 4] = get.query_row([rng.below(self.rows) as i64], |row| {
                    Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?])
                })?;
                std::hint::black_box(row);
            }
            let mut set = connection
                .prepare_cached("UPDATE point SET c1 = ?, c2 = ?, c3 = ?, c4 = ? WHERE id = ?")?;
            for _ in 0..UPDATES {
                let id = rng.below(self.rows) as i64;
                let v: [i64; 4] = std::array::from_fn(|_| rng.below(1 << 30) as i64);
                set.execute(params![v[0], v[1], v[2], v[3], id])?;
            }
        }
        connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}
