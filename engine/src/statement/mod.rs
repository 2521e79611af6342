//! A running statement: its snapshot and its writes.
//!
//! Write-write conflicts: under read committed a newer committed version gives `Conflict` with
//! 40001. The caller rolls back to the savepoint before the statement and runs it again with a new
//! snapshot. Under snapshot isolation the same error goes to the user.

mod bulk;
mod covered_rows;
mod dead_entries;
pub(crate) mod foreign_keys;
mod index_rows;
mod keys;
mod point;
mod point_table;
mod row_locks;
mod search;
mod spatial_rows;
mod write;
mod write_target;

pub use bulk::BulkInsert;
pub use covered_rows::{CoveredColumns, Covering, EntryWatch};
pub use dead_entries::GoneEntries;
pub use foreign_keys::RowRules;
pub use index_rows::{IndexRows, RowKeys, RowView};
pub use point_table::{Effect, Modify, PointTable};
pub use row_locks::LockWait;
pub use spatial_rows::NearestEntries;

use crate::catalog::TableDef;
use crate::store::merged_bases::BaseOnlyRanges;
use crate::transaction::Transaction;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use foreign_keys::{NoRules, RowEvents};
use keys::KeyChecks;
use std::sync::Arc;
use strandline_base::sync::Mutex;
use strandline_base::{CommitTs, Error, ErrorKind, Result, SqlState};
use strandline_txn::{SnapshotGuard, Visibility};

/// Meaning of a duplicate key of a row that the statement does not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInvisibleDuplicate {
    /// unique_violation (plain INSERT)
    Violation,
    /// 40001, so that ON CONFLICT runs again with a snapshot that sees the row
    Conflict,
}

/// One running statement.
pub struct Statement {
    txn: Arc<Transaction>,
    snapshot: SnapshotGuard,
    visibility: Visibility,
    checks: Mutex<KeyChecks>,
    /// changes that foreign keys have to look at
    row_events: Mutex<RowEvents>,
    /// bases that scans read instead of the ranges, see `relaxed`
    merged: BaseOnlyRanges,
}

impl Transaction {
    /// Starts a statement: the next statement number and, under read committed, a new snapshot.
    pub fn begin_statement(self: &Arc<Self>) -> Result<Arc<Statement>> {
        let (snapshot, visibility) = self.open_statement()?;
        Ok(Arc::new(Statement::new(self.clone(), snapshot, visibility)))
    }
}

impl Statement {
    pub(crate) fn new(
        txn: Arc<Transaction>,
        snapshot: SnapshotGuard,
        visibility: Visibility,
    ) -> Self {
        Self {
            txn,
            snapshot,
            visibility,
            checks: Mutex::default(),
            row_events: Mutex::default(),
            merged: BaseOnlyRanges::new(),
        }
    }

    /// The same reading `ranges`, which its snapshot sees as they are.
    pub(crate) fn over_merged(self, merged: BaseOnlyRanges) -> Self {
        Self { merged, ..self }
    }
    pub(crate) fn merged(&self) -> &BaseOnlyRanges {
        &self.merged
    }

    /// Its transaction.
    pub fn transaction(&self) -> &Arc<Transaction> {
        &self.txn
    }
    /// The timestamp up to which it sees other transactions' commits.
    pub fn snapshot_ts(&self) -> CommitTs {
        self.visibility.ts
    }
    pub(crate) fn snapshot_guard(&self) -> &SnapshotGuard {
        &self.snapshot
    }
    pub(crate) fn visibility(&self) -> &Visibility {
        &self.visibility
    }

    /// The definition may have changed while this statement waited for the table.
    fn check_definition(&self, table: &Arc<TableDef>) -> Result<()> {
        let catalog = self.txn.catalog();
        let same = |c: &crate::catalog::Catalog| {
            c.tables
                .get(&table.id)
                .is_some_and(|t| Arc::ptr_eq(t, table) || t == table)
        };
        if same(&catalog)
            && (Arc::ptr_eq(&catalog, &self.txn.db().catalog())
                || self.txn.has_changed_catalog()
                || same(&self.txn.db().catalog()))
        {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Conflict,
            SqlState::SERIALIZATION_FAILURE,
            format!(
                "the definition of table \"{}\" changed concurrently",
                table.name
            ),
        )
        .with_hint("Retry the transaction."))
    }

    /// Ends the statement: its keys and foreign keys are checked, and referential actions run. An
    /// action that meets CHECK constraints or DEFAULTs takes [`Statement::finish_with`].
    pub fn finish(&self) -> Result<()> {
        self.finish_with(&NoRules)
    }

    /// As [`Statement::finish`], with the rules that referential actions need.
    pub fn finish_with(&self, rules: &dyn RowRules) -> Result<()> {
        self.check_keys()?;
        self.settle_references(rules)
    }
}

pub(crate) fn record_batch(
    schema: SchemaRef,
    arrays: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, arrays, &options)
        .map_err(|e| Error::internal(format!("building a batch: {e}")))
}

pub(crate) fn write_conflict(table: &TableDef) -> Error {
    Error::new(
        ErrorKind::Conflict,
        SqlState::SERIALIZATION_FAILURE,
        format!(
            "could not serialize access to table \"{}\" due to a concurrent update",
            table.name
        ),
    )
    .with_hint("Retry the transaction.")
}

pub(crate) fn not_null_violation(table: &TableDef, column: &str) -> Error {
    Error::new(
        ErrorKind::Constraint,
        SqlState::NOT_NULL_VIOLATION,
        format!(
            "null value in column \"{column}\" of relation \"{}\" violates not-null constraint",
            table.name
        ),
    )
    .with_subject(table.column_subject(column))
}
