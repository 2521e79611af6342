//! Where inserted rows go: up to [`BULK_ROWS`], and up to a range's bytes, wait in memory and are
//! inserted when the statement's input ends; with more, all go through the engine's bulk load as
//! they come.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use std::sync::Arc;
use strandline_base::Result;
use strandline_column::row_bytes;
use strandline_engine::catalog::TableDef;
use strandline_engine::{BulkInsert, OnInvisibleDuplicate, Statement};

/// More rows than this in one statement are bulk-loaded.
pub(crate) const BULK_ROWS: usize = 32_768;

/// Rows on their way into a table.
pub(crate) struct InsertSink {
    table: Arc<TableDef>,
    conflicts: OnInvisibleDuplicate,
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
    waiting_bytes: usize,
    bulk: Option<BulkInsert>,
}

impl InsertSink {
    /// An empty sink. `conflicts` says what a duplicate of a row that the snapshot does not see
    /// means; unless it is a violation, rows are never bulk-loaded.
    pub fn new(table: Arc<TableDef>, conflicts: OnInvisibleDuplicate) -> Self {
        Self {
            table,
            conflicts,
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_bytes: 0,
            bulk: None,
        }
    }

    /// Takes rows; columns as in the table.
    pub fn push(&mut self, statement: &Arc<Statement>, rows: RecordBatch) -> Result<()> {
        if let Some(bulk) = &mut self.bulk {
            return bulk.append(&rows);
        }
        let bytes_max = statement.transaction().db().settings().range_bytes();
        if self.conflicts == OnInvisibleDuplicate::Conflict {
            let mut slices = row_bytes::slices(rows, bytes_max);
            return slices.try_for_each(|rows| self.wait_or_insert(statement, rows, bytes_max));
        }
        if !self.has_to_go(&rows, bytes_max) {
            return Ok(());
        }
        let mut bulk = statement.bulk_insert(&self.table)?;
        for batch in std::mem::take(&mut self.waiting) {
            bulk.append(&batch)?;
        }
        self.bulk = Some(bulk);
        Ok(())
    }

    /// Lets `rows` wait; whether all that wait are now too many.
    fn has_to_go(&mut self, rows: &RecordBatch, bytes_max: usize) -> bool {
        self.waiting_rows += rows.num_rows();
        self.waiting_bytes += row_bytes::batch_bytes(rows);
        self.waiting.push(rows.clone());
        self.waiting_rows > BULK_ROWS || self.waiting_bytes > bytes_max
    }

    /// Lets rows wait that are never bulk-loaded; inserts them when they are too many.
    fn wait_or_insert(
        &mut self,
        statement: &Arc<Statement>,
        rows: RecordBatch,
        bytes_max: usize,
    ) -> Result<()> {
        match self.has_to_go(&rows, bytes_max) {
            true => self.insert_waiting(statement),
            false => Ok(()),
        }
    }

    /// No more rows come.
    pub fn finish(&mut self, statement: &Arc<Statement>) -> Result<()> {
        match self.bulk.take() {
            Some(bulk) => bulk.finish().map(|_| ()),
            None => self.insert_waiting(statement),
        }
    }

    fn insert_waiting(&mut self, statement: &Arc<Statement>) -> Result<()> {
        let batches = std::mem::take(&mut self.waiting);
        (self.waiting_rows, self.waiting_bytes) = (0, 0);
        let rows = match batches.as_slice() {
            [] => return Ok(()),
            [one] => one.clone(),
            [first, ..] => concat_batches(&first.schema(), &batches)
                .map_err(|e| strandline_semantics::error::from_arrow(&e))?,
        };
        statement
            .insert(&self.table, &rows, self.conflicts)
            .map(|_| ())
    }
}
