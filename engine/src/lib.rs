//! CONTRACT (the table/engine owner replaces the bodies; signatures are what `sql` builds on).
//!
//! The database engine below SQL: catalog, transactions, write path, recovery, maintenance.
#![allow(unused_variables, clippy::todo)]

pub mod catalog;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;
use catalog::{Catalog, TableDef};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;
pub use strandline_base::{
    Clock, ColumnId, CommitTs, Error, ErrorKind, Interval, Result, RowId, SqlState, SqlType,
    StorageId, SystemClock, TableId, Value,
};
pub use strandline_device::Device;
pub use strandline_table::types;
pub use strandline_txn::Isolation;

/// Settings of a database (data; components are in [`DbOptions`]).
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bound on the memory of tails, cached blocks and queries together, in bytes. Half goes to
    /// queries, 3/8 to cached blocks, 1/8 to tails.
    pub memory_bytes: usize,
    /// Bytes of one log segment.
    pub wal_segment_bytes: u64,
    /// A checkpoint starts when the log since the last one exceeds this many bytes.
    pub checkpoint_wal_bytes: u64,
    /// Whether a background thread merges and checkpoints. Tests turn it off and force both.
    pub background_maintenance: bool,
}

impl Default for Settings {
    fn default() -> Self {
        todo!()
    }
}

/// What a database is opened with.
pub struct DbOptions {
    pub device: Arc<dyn Device>,
    pub clock: Arc<dyn Clock>,
    pub settings: Settings,
}

pub struct Db;

impl Db {
    /// Creates the database if the device is empty, else recovers it.
    pub fn open(options: DbOptions) -> Result<Arc<Db>> {
        todo!()
    }
    pub fn settings(&self) -> &Settings {
        todo!()
    }
    pub fn begin(self: &Arc<Self>, options: TxnOptions) -> Result<Arc<Transaction>> {
        todo!()
    }
    /// The newest committed catalog.
    pub fn catalog(&self) -> Arc<Catalog> {
        todo!()
    }
    /// The catalog as of `ts`.
    pub fn catalog_at(&self, ts: CommitTs) -> Result<Arc<Catalog>> {
        todo!()
    }
    /// Everything up to it is committed and visible.
    pub fn stable(&self) -> CommitTs {
        todo!()
    }
    /// The wall clock in microseconds since the epoch.
    pub fn now_us(&self) -> u64 {
        todo!()
    }
    /// Writes pending commits as runs, merges ranges that are due (all with pending records if
    /// `merge_all`), cuts the log.
    pub fn checkpoint(&self, merge_all: bool) -> Result<CheckpointReport> {
        todo!()
    }
    /// The next value of an identity column. Not transactional: a rollback leaves a gap.
    pub fn next_identity(&self, table: &TableDef, column: ColumnId) -> Result<i64> {
        todo!()
    }
    /// Verifies every checksum, row-map and index entry, NOT NULL and uniqueness; returns the
    /// damage found, one line each, naming file, table and place.
    pub fn check(&self) -> Result<Vec<String>> {
        todo!()
    }
    /// Files, tables, ranges, chunks, tails and log, for `strandline inspect`.
    pub fn inspect(&self) -> Result<Inspection> {
        todo!()
    }
    /// Counters since open: commits, aborts, merges, checkpoints, syncs, cache hits and misses…
    pub fn counters(&self) -> Vec<(&'static str, u64)> {
        todo!()
    }
    /// Rows (estimate) and, per column, min/max/null count where the chunks know them exactly or
    /// as bounds, for the optimizer.
    pub fn statistics(&self, table: &TableDef) -> TableStatistics {
        todo!()
    }
    /// Waits for running statements, checkpoints, closes. Also done on drop (without checkpoint).
    pub fn close(&self) -> Result<()> {
        todo!()
    }
}

#[derive(Clone, Debug, Default)]
pub struct CheckpointReport {
    pub merged_ranges: u64,
    pub run_records: u64,
    pub bytes_written: u64,
}

/// What `strandline inspect` prints: sections of tables of text.
#[derive(Clone, Debug, Default)]
pub struct Inspection {
    pub sections: Vec<InspectionSection>,
}
#[derive(Clone, Debug, Default)]
pub struct InspectionSection {
    pub title: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug, Default)]
pub struct TableStatistics {
    pub rows: u64,
    pub bytes: u64,
    /// by position in `TableDef::columns`
    pub columns: Vec<ColumnStatistics>,
}
#[derive(Clone, Debug, Default)]
pub struct ColumnStatistics {
    pub min: Option<Value>,
    pub max: Option<Value>,
    pub nulls: Option<u64>,
    pub bytes: u64,
}

#[derive(Clone, Debug)]
pub struct TxnOptions {
    pub isolation: Isolation,
    pub read_only: bool,
    /// false: commit returns before the log is on the device
    pub synchronous_commit: bool,
    /// None: wait for ever
    pub lock_timeout: Option<Duration>,
    /// Set to true by another thread to cancel the running statement (57014).
    pub cancel: Arc<AtomicBool>,
}

/// A transaction. Shared by the plan nodes of its statements; one statement at a time writes.
/// Dropping the last reference without commit rolls back.
pub struct Transaction;

impl Transaction {
    pub fn db(&self) -> &Arc<Db> {
        todo!()
    }
    pub fn options(&self) -> &TxnOptions {
        todo!()
    }
    /// The catalog this transaction sees, its own DDL included.
    pub fn catalog(&self) -> Arc<Catalog> {
        todo!()
    }
    /// Edits the transaction's catalog. Waits for other DDL; then, for every table whose
    /// definition changes, for that table's writers. New storages come into being empty.
    /// Duplicate names are the editor's business.
    pub fn change_catalog(&self, edit: &mut dyn FnMut(&mut Catalog) -> Result<()>) -> Result<()> {
        todo!()
    }
    /// Starts a statement: the next statement number and, under read committed, a new snapshot.
    pub fn begin_statement(self: &Arc<Self>) -> Result<Arc<Statement>> {
        todo!()
    }
    /// A point to roll back to. Statement-level atomicity uses it too.
    pub fn savepoint(&self) -> Savepoint {
        todo!()
    }
    /// Undoes everything (rows and DDL) since the savepoint.
    pub fn rollback_to(&self, savepoint: &Savepoint) -> Result<()> {
        todo!()
    }
    /// Returns the commit timestamp once the stable timestamp has passed it (read-only: the
    /// snapshot's).
    pub fn commit(&self) -> Result<CommitTs> {
        todo!()
    }
    pub fn rollback(&self) {
        todo!()
    }
}

#[derive(Clone, Debug)]
pub struct Savepoint;

/// One running statement: what it sees and how it writes. Write-write conflicts: under read
/// committed a newer committed version is `ErrorKind::Conflict` + 40001, which the caller answers
/// by rolling back to the savepoint before the statement and running it again with a new
/// statement; under snapshot the same error goes to the user.
pub struct Statement;

impl Statement {
    pub fn transaction(&self) -> &Arc<Transaction> {
        todo!()
    }
    pub fn snapshot_ts(&self) -> CommitTs {
        todo!()
    }
    /// A scan at this statement's snapshot.
    pub fn scan(&self, table: &Arc<TableDef>, request: ScanRequest) -> Result<Arc<TableScan>> {
        todo!()
    }
    /// A scan AS OF `ts`, which is at most the stable timestamp (later waits; in the future is an
    /// error; older than the retention is 72000). `table` is the definition at that moment.
    pub fn scan_as_of(
        &self,
        table: &Arc<TableDef>,
        ts: CommitTs,
        request: ScanRequest,
    ) -> Result<Arc<TableScan>> {
        todo!()
    }
    /// All versions within the retention of the row(s) that have or had `key` (primary key).
    /// Columns: every column of the table, then `valid_from`, `valid_to` (timestamptz; NULL =
    /// still valid), oldest first.
    pub fn history(&self, table: &Arc<TableDef>, key: &[Value]) -> Result<RecordBatch> {
        todo!()
    }
    /// Inserts rows; columns as in `TableDef::columns`. NOT NULL and keys are checked here (keys
    /// at `finish`), CHECK by the caller. `conflicts`: what a duplicate key of a row that this
    /// snapshot does not see means.
    pub fn insert(
        &self,
        table: &Arc<TableDef>,
        rows: &RecordBatch,
        conflicts: OnInvisibleDuplicate,
    ) -> Result<Vec<RowId>> {
        todo!()
    }
    /// Sets `columns` of `rows`; one column of `values` per entry of `columns`, one row per row.
    pub fn update(
        &self,
        table: &Arc<TableDef>,
        rows: &[RowId],
        columns: &[ColumnId],
        values: &RecordBatch,
    ) -> Result<()> {
        todo!()
    }
    pub fn delete(&self, table: &Arc<TableDef>, rows: &[RowId]) -> Result<()> {
        todo!()
    }
    /// For each row of `keys` (columns in the order of the key's definition) the row of `table`
    /// visible to this statement (own earlier inserts of this very statement included) that has
    /// this key. `key` indexes `TableDef::keys`. NULL in a key: None.
    pub fn find_by_key(
        &self,
        table: &Arc<TableDef>,
        key: usize,
        keys: &RecordBatch,
    ) -> Result<Vec<Option<RowId>>> {
        todo!()
    }
    /// Reads whole rows by id as this statement sees them (missing ids are left out).
    pub fn fetch(
        &self,
        table: &Arc<TableDef>,
        rows: &[RowId],
        columns: &[ColumnId],
    ) -> Result<RecordBatch> {
        todo!()
    }
    /// A fast path for bulk loads: rows go straight into compressed chunks.
    pub fn bulk_insert(self: &Arc<Self>, table: &Arc<TableDef>) -> Result<BulkInsert> {
        todo!()
    }
    /// Ends the statement: deferred uniqueness checks.
    pub fn finish(&self) -> Result<()> {
        todo!()
    }

    // Point operations by primary (or unique) key, for the fast path; `key` indexes
    // `TableDef::keys`.
    /// Appends the values of `columns` to `out`; false if there is no such row.
    pub fn point_get(
        &self,
        table: &Arc<TableDef>,
        key: usize,
        key_values: &[Value],
        columns: &[ColumnId],
        out: &mut Vec<Value>,
    ) -> Result<bool> {
        todo!()
    }
    /// One full row in column order.
    pub fn point_insert(&self, table: &Arc<TableDef>, row: &[Value]) -> Result<RowId> {
        todo!()
    }
    /// False if there is no such row. Under read committed the newest version is updated.
    pub fn point_update(
        &self,
        table: &Arc<TableDef>,
        key: usize,
        key_values: &[Value],
        set: &[(ColumnId, Value)],
    ) -> Result<bool> {
        todo!()
    }
    pub fn point_delete(
        &self,
        table: &Arc<TableDef>,
        key: usize,
        key_values: &[Value],
    ) -> Result<bool> {
        todo!()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInvisibleDuplicate {
    /// unique_violation (plain INSERT)
    Violation,
    /// 40001, so that ON CONFLICT runs again with a snapshot that sees the row
    Conflict,
}

/// A bulk load inside a statement. Chunks are written while rows arrive; `finish` puts the rest
/// and checks keys; dropping it without `finish` discards everything.
pub struct BulkInsert;

impl BulkInsert {
    /// Columns as in `TableDef::columns`.
    pub fn append(&mut self, rows: &RecordBatch) -> Result<()> {
        todo!()
    }
    /// Rows loaded.
    pub fn finish(self) -> Result<u64> {
        todo!()
    }
}

/// What to read.
#[derive(Clone, Default)]
pub struct ScanRequest {
    /// Columns in output order.
    pub columns: Vec<ColumnId>,
    /// Adds a last column `_rowid` (UInt64).
    pub with_row_id: bool,
    /// Conjuncts that prune ranges and blocks by min/max; not applied to rows.
    pub prune: Vec<ColumnPredicate>,
    /// Conjuncts applied to rows; their columns are decoded first.
    pub filters: Vec<Arc<dyn RowFilter>>,
    /// Rows per batch wished for (default 8,192).
    pub batch_rows: Option<usize>,
}

/// `column op value`; a NULL column never satisfies it.
#[derive(Clone, Debug)]
pub struct ColumnPredicate {
    pub column: ColumnId,
    pub op: CompareOp,
    pub value: Value,
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    Eq,
    Lt,
    Le,
    Gt,
    Ge,
}

/// A predicate over some columns of the table, evaluated inside the scan.
pub trait RowFilter: Send + Sync {
    /// The columns it reads.
    fn columns(&self) -> &[ColumnId];
    /// `batch` has exactly those columns, in that order. NULL counts as false.
    fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray>;
}

/// A running scan: a list of work units (ranges) that any thread may take.
pub struct TableScan;

impl TableScan {
    pub fn schema(&self) -> SchemaRef {
        todo!()
    }
    /// How many units are left after pruning.
    pub fn units(&self) -> usize {
        todo!()
    }
    /// Reads unit `i` (`< units()`), all its batches, in row-id order.
    pub fn read_unit(&self, unit: usize) -> Result<Vec<RecordBatch>> {
        todo!()
    }
    /// Whether reading unit `i` would touch the device (then do it off the async threads).
    pub fn is_resident(&self, unit: usize) -> bool {
        todo!()
    }
    pub fn metrics(&self) -> &ScanMetrics {
        todo!()
    }
    /// An estimate of the rows that will come, for the optimizer and progress bars.
    pub fn estimated_rows(&self) -> u64 {
        todo!()
    }
}

/// What a scan did, for EXPLAIN ANALYZE.
#[derive(Debug, Default)]
pub struct ScanMetrics {
    pub ranges_total: AtomicU64,
    pub ranges_pruned: AtomicU64,
    pub blocks_pruned: AtomicU64,
    pub chunks_decoded: AtomicU64,
    pub tail_records_patched: AtomicU64,
    pub history_records_read: AtomicU64,
    pub rows_scanned: AtomicU64,
    pub rows_returned: AtomicU64,
}
