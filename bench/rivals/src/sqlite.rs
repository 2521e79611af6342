//! The point workload on SQLite, as fast as we know how to make it.
//!
//! Write-ahead log, memory-mapped reads, a cache that holds the table, prepared statements, a rowid
//! table, one connection per thread without the library's own mutexes. A single thread holds the
//! file exclusively, which spares it the shared-memory index. Several threads queue for `BEGIN
//! IMMEDIATE` on a mutex of ours: SQLite's own busy handler sleeps and polls, which is slower.

use crate::Result;
use crate::row::{Rows, TOUCHED};
use crate::workload::{Keys, Run, Store, Worker};
use rusqlite::{Connection, OpenFlags, params};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

/// Rows per inserting transaction of `fill`.
const FILL_ROWS: usize = 100_000;

/// The database file of a run.
pub struct Sqlite {
    path: String,
    durable: bool,
    exclusive: bool,
    writer: Mutex<()>,
}

struct SqliteWorker<'s> {
    connection: Connection,
    writer: &'s Mutex<()>,
}

fn open(path: &str, durable: bool, exclusive: bool) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_mins(1))?;
    let locking = if exclusive { "EXCLUSIVE" } else { "NORMAL" };
    connection.pragma_update(None, "locking_mode", locking)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", if durable { "FULL" } else { "OFF" })?;
    // A commit that overwrites the log is durable sooner than one that makes it longer.
    let checkpoint_pages = if durable { 1000 } else { 16_384 };
    connection.pragma_update(None, "wal_autocheckpoint", checkpoint_pages)?;
    connection.pragma_update(None, "mmap_size", 4_i64 << 30)?;
    connection.pragma_update(None, "cache_size", -(512 << 10))?;
    Ok(connection)
}

impl Store for Sqlite {
    const SETTINGS: &'static str = "WAL, synchronous FULL and wal_autocheckpoint 1000 pages, or \
                                    OFF and 16384, mmap 4 GiB, cache 512 MiB, prepared \
                                    statements, rowid table, exclusive lock with 1 thread, else \
                                    1 connection per thread and BEGIN IMMEDIATE in turn";

    fn version() -> String {
        format!("SQLite {}", rusqlite::version())
    }

    fn fill(path: &str, rows: Rows) -> Result<()> {
        assert!(!Path::new(path).exists(), "{path} exists already");
        let mut connection = open(path, false, true)?;
        connection.execute_batch(
            "CREATE TABLE point (id INTEGER PRIMARY KEY, c1 BIGINT, c2 BIGINT, c3 BIGINT, \
             c4 BIGINT, c5 BIGINT, c6 BIGINT, c7 BIGINT, c8 BIGINT, c9 BIGINT)",
        )?;
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let transaction = connection.transaction()?;
            let mut insert =
                transaction.prepare_cached("INSERT INTO point VALUES (?,?,?,?,?,?,?,?,?,?)")?;
            for (_, row) in rows.by_ref().take(FILL_ROWS) {
                insert.execute(row)?;
            }
            drop(insert);
            transaction.commit()?;
        }
        Ok(connection.pragma_update(None, "wal_checkpoint", "TRUNCATE")?)
    }

    fn open(run: &Run) -> Result<Self> {
        Ok(Self {
            path: run.path.clone(),
            durable: run.durable,
            exclusive: run.threads == 1,
            writer: Mutex::new(()),
        })
    }

    fn worker(&self) -> Result<impl Worker> {
        let connection = open(&self.path, self.durable, self.exclusive)?;
        Ok(SqliteWorker {
            connection,
            writer: &self.writer,
        })
    }
}

impl SqliteWorker<'_> {
    fn get(&self, keys: &[u64]) -> Result<()> {
        let mut get = self
            .connection
            .prepare_cached("SELECT c1, c2, c3, c4 FROM point WHERE id = ?")?;
        for &key in keys {
            let row: [i64; TOUCHED] = get.query_row([key as i64], |row| {
                Ok([row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?])
            })?;
            std::hint::black_box(row);
        }
        Ok(())
    }

    fn run(&self, sql: &str) -> Result<()> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}

impl Worker for SqliteWorker<'_> {
    fn transaction(&mut self, keys: &Keys) -> Result<()> {
        let _turn = self.writer.lock().expect("a worker does not panic");
        self.run("BEGIN IMMEDIATE")?;
        self.get(&keys.reads)?;
        let mut set = self
            .connection
            .prepare_cached("UPDATE point SET c1 = ?, c2 = ?, c3 = ?, c4 = ? WHERE id = ?")?;
        for (id, v) in &keys.updates {
            set.execute(params![v[0], v[1], v[2], v[3], *id as i64])?;
        }
        drop(set);
        self.run("COMMIT")
    }

    fn read(&mut self, keys: &[u64]) -> Result<()> {
        self.run("BEGIN")?;
        self.get(keys)?;
        self.run("COMMIT")
    }
}
