//! A statement's rows on their way to Python: the batches in memory, and the query that computes
//! the other batches on demand.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use std::collections::VecDeque;
use strandline::{Connection, Error, Portal, QueryResult, Result, SqlState};

/// A statement computes its rows until it has this many. One with fewer rows is complete at once.
const ROWS_AT_HAND: usize = 8_192;

/// A statement's rows; see the module's header.
pub struct Rows {
    pub schema: SchemaRef,
    batches: VecDeque<RecordBatch>,
    portal: Option<Portal>,
    /// the error that keeps the rest from being computed
    failed: Option<Error>,
}

impl Rows {
    /// The rows of a finished statement.
    pub fn done(result: QueryResult) -> Self {
        Self {
            schema: result.schema().clone(),
            batches: result.into_batches().into(),
            portal: None,
            failed: None,
        }
    }

    /// The rows of a query under way. The first rows are computed here.
    pub fn begun(portal: Portal, connection: &mut Connection) -> Result<Self> {
        let mut rows = Self {
            schema: portal.schema().clone(),
            batches: VecDeque::new(),
            portal: Some(portal),
            failed: None,
        };
        let mut at_hand = 0;
        while at_hand < ROWS_AT_HAND {
            match rows.pull(connection)? {
                Some(pulled) => at_hand += pulled,
                None => break,
            }
        }
        Ok(rows)
    }

    /// Computes one more batch; returns its number of rows, or None at the end.
    pub fn pull(&mut self, connection: &mut Connection) -> Result<Option<usize>> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Some(portal) = &mut self.portal else {
            return Ok(None);
        };
        match connection.next_batch(portal) {
            Ok(Some(batch)) => {
                let rows = batch.num_rows();
                if rows > 0 {
                    self.batches.push_back(batch);
                }
                Ok(Some(rows))
            }
            Err(error) => {
                self.portal = None;
                self.failed = Some(error.clone());
                Err(error)
            }
            Ok(None) => {
                self.portal = None;
                Ok(None)
            }
        }
    }

    /// Computes the rest. An error is kept and reported to the next reader.
    pub fn read_rest(&mut self, connection: &mut Connection) {
        while let Ok(Some(_)) = self.pull(connection) {}
    }

    /// Gives up the rows that are not computed yet, which end with their transaction. The rows in
    /// memory stay; behind them the next reader gets an error.
    pub fn discard(&mut self) {
        if self.portal.take().is_some() {
            let message = "the rest of the rows is gone: their transaction has ended";
            let error = Error::invalid(SqlState("24000"), message);
            self.failed = Some(error.with_hint("Fetch all rows before commit() or rollback()."));
        }
    }

    /// Whether all rows are in memory.
    pub fn is_complete(&self) -> bool {
        self.portal.is_none() && self.failed.is_none()
    }

    /// Whether the rows not yet computed end with the open transaction block.
    pub fn in_block(&self) -> bool {
        self.portal.as_ref().is_some_and(Portal::in_block)
    }

    /// The number of rows in memory.
    pub fn at_hand(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The batches in memory, without taking them.
    pub fn peek(&self) -> impl Iterator<Item = &RecordBatch> {
        self.batches.iter()
    }

    /// Takes up to `rows` rows of the next batch in memory.
    pub fn take(&mut self, rows: usize) -> Option<RecordBatch> {
        let batch = self.batches.pop_front()?;
        if batch.num_rows() > rows {
            self.put_back(batch.slice(rows, batch.num_rows() - rows));
            return Some(batch.slice(0, rows));
        }
        Some(batch)
    }

    /// Puts rows that were not fetched back in front.
    pub fn put_back(&mut self, batch: RecordBatch) {
        self.batches.push_front(batch);
    }
}
