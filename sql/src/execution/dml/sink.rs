//! Inserts the rows of one statement. Up to [`BULK_ROWS`] rows and one range's bytes wait in memory
//! until the input ends. Beyond that, all rows go through the engine's bulk load.

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use std::sync::Arc;
use strandline_base::Result;
use strandline_column::row_bytes;
use strandline_engine::catalog::TableDef;
use strandline_engine::{BulkInsert, OnInvisibleDuplicate, Statement};

/// The most rows of one statement that are inserted without a bulk load.
pub(crate) const BULK_ROWS: usize = 32_768;

/// The rows of one statement that are not inserted yet.
pub(crate) struct InsertSink {
    table: Arc<TableDef>,
    conflicts: OnInvisibleDuplicate,
    waiting: Vec<RecordBatch>,
    waiting_rows: usize,
    waiting_bytes: usize,
    bulk: Option<BulkInsert>,
}

impl InsertSink {
    /// An empty sink. `conflicts` is the meaning of a duplicate of an invisible row. Rows are
    /// bulk-loaded only if it is a violation.
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

    /// Takes rows with the table's columns.
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

    /// Adds `rows` to the waiting rows; true if too many rows wait.
    fn has_to_go(&mut self, rows: &RecordBatch, bytes_max: usize) -> bool {
        self.waiting_rows += rows.num_rows();
        self.waiting_bytes += row_bytes::batch_bytes(rows);
        self.waiting.push(rows.clone());
        self.waiting_rows > BULK_ROWS || self.waiting_bytes > bytes_max
    }

    /// Adds rows that are never bulk-loaded; inserts the waiting rows when they are too many.
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

    /// Ends the input and inserts the waiting rows.
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
