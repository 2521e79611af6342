//! Strandline for the suites: SQL, the appender and point transactions of its public API.

use crate::Result;
use datafusion::arrow::array::RecordBatch;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use strandline::{
    ColumnId, Connection, Database, DatabaseBuilder, ErrorKind, Settings, TableHandle, Transaction,
    Value,
};
use strandline_allocator::keep_freed_memory_for;
use strandline_device::{Device, MemoryDevice};

/// An open database with one connection.
pub struct Ours {
    database: Database,
    connection: Mutex<Connection>,
}

impl Ours {
    /// Opens or creates a database at `path` whose queries use `threads` threads. All other
    /// settings have their defaults.
    pub fn open(path: &Path, threads: usize) -> Result<Self> {
        Self::build(Database::builder(path).query_threads(threads))
    }

    /// Opens or creates a database on a device in memory.
    pub fn in_memory(
        device: &Arc<MemoryDevice>,
        threads: usize,
        settings: Settings,
    ) -> Result<Self> {
        let builder = Database::on_device(device.clone());
        Self::build(builder.query_threads(threads).settings(settings))
    }

    /// Opens or creates a database on `device`. All settings have their defaults.
    pub fn on_device(device: Arc<dyn Device>) -> Result<Self> {
        Self::build(Database::on_device(device))
    }

    /// Opens or creates the database of `builder`.
    pub fn build(builder: DatabaseBuilder) -> Result<Self> {
        let database = builder.build()?;
        keep_freed_memory_for(database.engine().settings().memory_bytes);
        let connection = Mutex::new(database.connect());
        Ok(Self {
            database,
            connection,
        })
    }

    /// The database, for further connections.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Runs one statement.
    pub fn execute(&self, sql: &str) -> Result<()> {
        self.connection().execute(sql, ())?;
        Ok(())
    }

    /// Runs a query to its end.
    pub fn query(&self, sql: &str) -> Result<Vec<RecordBatch>> {
        Ok(self.connection().query(sql, ())?.into_batches())
    }

    /// Reads a whole table for a peer. The batches are pulled one by one: together they may exceed
    /// the database's memory for results.
    pub fn read_table(&self, table: &str) -> Result<Vec<RecordBatch>> {
        let mut connection = self.connection();
        let batches = connection.query_stream(&format!("SELECT * FROM {table}"), ())?;
        Ok(batches.collect::<strandline::Result<_>>()?)
    }

    /// Runs a checkpoint that leaves nothing pending.
    pub fn checkpoint(&self) -> Result<()> {
        self.database.merge_all()?;
        Ok(())
    }

    /// Appends `rows` rows of bigints. `fill` receives a row's number and sets its columns.
    pub fn append_bigints(
        &self,
        table: &str,
        columns: usize,
        rows: u64,
        mut fill: impl FnMut(u64, &mut [i64]),
    ) -> Result<()> {
        let mut connection = self.connection();
        let mut appender = connection.appender(table)?;
        let mut numbers = vec![0; columns];
        for row in 0..rows {
            fill(row, &mut numbers);
            let values: Vec<Value> = numbers.iter().map(|&n| Value::BigInt(n)).collect();
            appender.append_row(&values)?;
        }
        appender.finish()?;
        Ok(())
    }

    /// A new connection for point transactions on `columns` of `table`.
    pub fn worker(&self, table: &str, columns: &[&str], durable: bool) -> Result<Worker> {
        let mut connection = self.database.connect();
        let durability = if durable { "on" } else { "off" };
        connection.execute(&format!("SET synchronous_commit = {durability}"), ())?;
        let table = connection.table(table)?;
        let columns = columns
            .iter()
            .map(|name| Ok(table.column(name)?))
            .collect::<Result<Vec<_>>>()?;
        Ok(Worker {
            connection,
            table,
            columns,
            row: Vec::new(),
        })
    }

    fn connection(&self) -> std::sync::MutexGuard<'_, Connection> {
        self.connection.lock().expect("no statement panics")
    }
}

/// A connection that runs point transactions.
pub struct Worker {
    connection: Connection,
    table: TableHandle,
    columns: Vec<ColumnId>,
    /// The row that was read last.
    row: Vec<Value>,
}

impl Worker {
    /// Makes a write fail at once when it meets another transaction's write, instead of waiting.
    pub fn abort_on_conflict(&mut self) -> Result<()> {
        self.connection
            .execute("SET strandline.conflict_policy = 'abort'", ())?;
        Ok(())
    }

    /// Runs `work` in a transaction, and again if another transaction was in conflict with it.
    pub fn transaction(
        &mut self,
        work: impl Fn(&mut Point<'_, '_>) -> strandline::Result<()>,
    ) -> Result<()> {
        loop {
            let mut point = self.begin()?;
            match work(&mut point).and_then(|()| point.commit()) {
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                done => return Ok(done?),
            }
        }
    }

    /// Inserts a row of bigints, unless its key is there.
    pub fn insert_if_free<const N: usize>(&mut self, row: [i64; N]) -> Result<()> {
        let mut transaction = self.connection.transaction()?;
        match transaction.insert(&self.table, &row.map(Value::BigInt)) {
            Ok(()) => Ok(transaction.commit()?),
            Err(error) if error.kind() == ErrorKind::Constraint => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Begins a transaction. It is rolled back if it is dropped without [`Point::commit`].
    pub fn begin(&mut self) -> strandline::Result<Point<'_, '_>> {
        Ok(Point {
            transaction: self.connection.transaction()?,
            table: &self.table,
            columns: &self.columns,
            row: &mut self.row,
        })
    }
}

/// A running point transaction on one table.
pub struct Point<'c, 'w> {
    transaction: Transaction<'c>,
    table: &'w TableHandle,
    columns: &'w [ColumnId],
    row: &'w mut Vec<Value>,
}

impl Point<'_, '_> {
    /// Commits.
    pub fn commit(self) -> strandline::Result<()> {
        self.transaction.commit()
    }

    /// The worker's columns of the row `key`; empty if there is none.
    pub fn get(&mut self, key: i64) -> strandline::Result<&[Value]> {
        self.row.clear();
        let key = [Value::BigInt(key)];
        self.transaction
            .get_into(self.table, &key, self.columns, self.row)?;
        Ok(self.row)
    }

    /// Sets the worker's columns of the row `key`.
    pub fn update<const N: usize>(&mut self, key: i64, values: [i64; N]) -> strandline::Result<()> {
        let set: [(ColumnId, Value); N] =
            std::array::from_fn(|i| (self.columns[i], Value::BigInt(values[i])));
        let found = self
            .transaction
            .update(self.table, &[Value::BigInt(key)], &set)?;
        assert!(found, "row {key} exists");
        Ok(())
    }
}

/// Bytes of a database's directory: the total, and by kind of file (the name up to its number).
pub fn size_on_disk(path: &Path) -> Result<(u64, BTreeMap<String, u64>)> {
    let mut by_kind = BTreeMap::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = name.split('-').next().unwrap_or_default().to_string();
        if entry.file_type()?.is_file() {
            *by_kind.entry(kind).or_insert(0) += entry.metadata()?.len();
        }
    }
    Ok((by_kind.values().sum(), by_kind))
}
