//! The point workload, and scripts of statements, on SQLite, as fast as we know how to make it.
//!
//! Write-ahead log, memory-mapped reads, a cache that holds the table, prepared statements, a rowid
//! table, one connection per thread without the library's own mutexes. A single thread holds the
//! file exclusively, which spares it the shared-memory index. Several threads queue for `BEGIN
//! IMMEDIATE` on a mutex of ours: SQLite's own busy handler sleeps and polls, which is slower.

use crate::Result;
use crate::row::{Rows, TOUCHED};
use crate::script::{Datum, Load, Runner};
use crate::workload::{Keys, Run, Store, Worker};
use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, params, params_from_iter};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Rows per inserting transaction of `fill`.
const FILL_ROWS: usize = 100_000;

/// The database file of a run.
pub struct Sqlite {
    path: String,
    durable: bool,
    exclusive: bool,
    cache: Cache,
    writer: Mutex<()>,
}

struct SqliteWorker<'s> {
    connection: Connection,
    writer: &'s Mutex<()>,
}

/// The memory of one connection.
#[derive(Clone, Copy)]
struct Cache {
    /// mapped of the file
    mapped_bytes: u64,
    /// for pages
    page_bytes: u64,
}

impl Cache {
    /// Holds the table.
    const LARGE: Self = Self {
        mapped_bytes: 4 << 30,
        page_bytes: 512 << 20,
    };

    /// One of so many connections that have `bytes` together.
    fn share_of(bytes: u64, connections: u64) -> Self {
        Self {
            mapped_bytes: 0,
            page_bytes: bytes / connections.max(1),
        }
    }
}

fn open(path: &str, durable: bool, exclusive: bool) -> Result<Connection> {
    open_with(path, durable, exclusive, Cache::LARGE)
}

fn open_with(path: &str, durable: bool, exclusive: bool, cache: Cache) -> Result<Connection> {
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
    connection.pragma_update(None, "mmap_size", cache.mapped_bytes as i64)?;
    connection.pragma_update(None, "cache_size", -((cache.page_bytes >> 10) as i64))?;
    Ok(connection)
}

/// Runs statements, not durably, and returns the numbers of the rows of each.
pub fn numbers(path: &str, sql: &str) -> Result<Vec<i64>> {
    let connection = open(path, false, true)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    let mut numbers = Vec::new();
    let mut batch = rusqlite::Batch::new(&connection, sql);
    while let Some(mut statement) = batch.next()? {
        let columns = statement.column_count();
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                numbers.push(row.get::<_, i64>(column)?);
            }
        }
    }
    Ok(numbers)
}

/// The rows of one statement, each value as text.
pub fn rows(path: &str, sql: &str, values: &[Datum]) -> Result<Vec<Vec<Option<String>>>> {
    let connection = open(path, false, true)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    let mut statement = connection.prepare(sql)?;
    let columns = statement.column_count();
    let (mut found, mut rows) = (Vec::new(), statement.query(bound(values)?)?);
    while let Some(row) = rows.next()? {
        let cell = |column| -> Result<Option<String>> {
            Ok(match row.get::<_, Value>(column)? {
                Value::Null => None,
                Value::Integer(number) => Some(number.to_string()),
                Value::Real(number) => Some(number.to_string()),
                Value::Text(text) => Some(text),
                Value::Blob(_) => return Err("a blob".into()),
            })
        };
        found.push((0..columns).map(cell).collect::<Result<_>>()?);
    }
    Ok(found)
}

/// Values of parameters as SQLite has them: a decimal number is a double, a moment a text.
fn bound(values: &[Datum]) -> Result<impl rusqlite::Params> {
    let value = |datum: &Datum| -> Result<Value> {
        Ok(match datum {
            Datum::Int(number) => Value::Integer(*number),
            Datum::Text(text) => Value::Text(text.clone()),
            Datum::Cents(cents) => Value::Real(*cents as f64 / 100.0),
            Datum::Moment(seconds) => Value::Text(moment(*seconds)),
            Datum::Ints(_) => return Err("SQLite has no arrays".into()),
        })
    };
    let values: Result<Vec<Value>> = values.iter().map(value).collect();
    Ok(params_from_iter(values?))
}

/// So many seconds, less than 28 days, after the start of the year 2026.
fn moment(seconds: i64) -> String {
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!(
        "2026-01-{:02} {hour:02}:{minute:02}:{:02}",
        day + 1,
        second % 60
    )
}

/// Runs of a script per second.
pub fn rate(path: &str, durable: bool, load: &Load) -> Result<f64> {
    let writer = Mutex::new(());
    load.rate(|| {
        let connection = open(path, durable, load.clients == 1)?;
        connection.pragma_update(None, "foreign_keys", true)?;
        let steps = load.script.steps.iter();
        connection.set_prepared_statement_cache_capacity(load.script.steps.len() + 2);
        Ok(ScriptRunner {
            connection,
            steps: steps.map(|step| step.sql.clone()).collect(),
            writer: &writer,
            turn: None,
        })
    })
}

/// A connection that runs a script with its foreign keys enforced.
struct ScriptRunner<'w> {
    connection: Connection,
    steps: Vec<String>,
    writer: &'w Mutex<()>,
    /// held during a transaction
    turn: Option<MutexGuard<'w, ()>>,
}

impl Runner for ScriptRunner<'_> {
    fn begin(&mut self) -> Result<()> {
        self.turn = Some(self.writer.lock().expect("a client does not panic"));
        let mut begin = self.connection.prepare_cached("BEGIN IMMEDIATE")?;
        begin.execute([])?;
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        self.turn = None;
        Ok(())
    }

    fn execute(&mut self, step: usize, values: &[Datum]) -> Result<usize> {
        let mut statement = self.connection.prepare_cached(&self.steps[step])?;
        let columns = statement.column_count();
        let (mut rows, mut count) = (statement.query(bound(values)?)?, 0);
        while let Some(row) = rows.next()? {
            for column in 0..columns {
                std::hint::black_box(row.get_ref(column)?);
            }
            count += 1;
        }
        Ok(count)
    }
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
            cache: match run.memory_bytes {
                Some(bytes) => Cache::share_of(bytes, run.threads),
                None => Cache::LARGE,
            },
            writer: Mutex::new(()),
        })
    }

    fn worker(&self) -> Result<impl Worker> {
        let connection = open_with(&self.path, self.durable, self.exclusive, self.cache)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::{Draw, Script, Step};

    fn load(sql: &str, values: Vec<Draw>, clients: u64) -> Load {
        Load {
            script: Script {
                steps: vec![Step {
                    sql: sql.to_string(),
                    values,
                    times: 2,
                    rows: Some(0),
                }],
                is_transaction: true,
            },
            clients,
            seconds: 0.05,
            seed: 1,
            first: 10,
            most: None,
        }
    }

    #[test]
    fn values_are_bound_and_rows_are_texts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sqlite").display().to_string();
        let values = [
            Datum::Int(7),
            Datum::Text("t".into()),
            Datum::Cents(1_250),
            Datum::Moment(86_400 + 3_661),
        ];
        let found = rows(&path, "SELECT $1, $2, $3, $4, NULL", &values).unwrap();
        let text = |text: &str| Some(text.to_string());
        let expected = [
            text("7"),
            text("t"),
            text("12.5"),
            text("2026-01-02 01:01:01"),
            None,
        ];
        assert_eq!(found, [expected]);
        assert!(rows(&path, "SELECT $1", &[Datum::Ints(vec![1])]).is_err());
    }

    #[test]
    fn a_script_of_several_clients_enforces_foreign_keys() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s.sqlite").display().to_string();
        let tables = "CREATE TABLE p (id INTEGER PRIMARY KEY); INSERT INTO p VALUES (0), (1); \
                      CREATE TABLE c (id bigint, n bigint REFERENCES p, PRIMARY KEY (id, n));";
        assert_eq!(numbers(&path, tables).unwrap(), Vec::<i64>::new());
        let insert = "INSERT INTO c VALUES ($1, $2)";
        for (clients, durable) in [(1, true), (3, false)] {
            let mut load = load(insert, vec![Draw::Run, Draw::Execution], clients);
            load.first = 1 << (clients * 16);
            assert!(rate(&path, durable, &load).unwrap() > 0.0);
        }
        let counts = "SELECT count(*), sum(n) FROM c; SELECT count(*) FROM p";
        let counts = numbers(&path, counts).unwrap();
        assert_eq!((counts[0], counts[2]), (2 * counts[1], 2));
        let orphans = load(insert, vec![Draw::Run, Draw::Between(2, 9)], 2);
        let failed = rate(&path, false, &orphans).unwrap_err();
        assert!(failed.to_string().contains("FOREIGN KEY"), "{failed}");
    }
}
