//! A statement's rows on their way to Python: batches at hand, and the query that computes the
//! others when they are asked for.

use crate::link::Link;
use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use strandline::{Connection, Error, Portal, QueryResult, Result};

/// A statement is over at once if its rows are no more than these, or what it computes next to it.
const ROWS_AT_HAND: usize = 8_192;

/// See the module's header.
pub struct Rows {
    pub schema: SchemaRef,
    batches: VecDeque<RecordBatch>,
    portal: Option<Portal>,
    /// why the rest is not to be had
    failed: Option<Error>,
}

impl Rows {
    /// The rows of a statement that is done.
    pub fn done(result: QueryResult) -> Self {
        Self {
            schema: result.schema().clone(),
            batches: result.into_batches().into(),
            portal: None,
            failed: None,
        }
    }

    /// The rows of a query under way, of which the first are computed here.
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

    /// Computes one more batch; its rows, None at the end.
    fn pull(&mut self, connection: &mut Connection) -> Result<Option<usize>> {
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

    /// Computes all that is left. An error is kept for whoever asks for the rows.
    pub fn read_rest(&mut self, connection: &mut Connection) {
        while let Ok(Some(_)) = self.pull(connection) {}
    }

    /// Whether all rows are at hand.
    pub fn is_complete(&self) -> bool {
        self.portal.is_none() && self.failed.is_none()
    }

    /// Whether the rows still to come end with the open transaction block.
    pub fn in_block(&self) -> bool {
        self.portal.as_ref().is_some_and(Portal::in_block)
    }

    /// Rows at hand.
    pub fn at_hand(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// The batches at hand, without taking them.
    pub fn peek(&self) -> impl Iterator<Item = &RecordBatch> {
        self.batches.iter()
    }

    /// Up to `rows` of the next batch at hand.
    pub fn take(&mut self, rows: usize) -> Option<RecordBatch> {
        let batch = self.batches.pop_front()?;
        if batch.num_rows() > rows {
            self.put_back(batch.slice(rows, batch.num_rows() - rows));
            return Some(batch.slice(0, rows));
        }
        Some(batch)
    }

    /// Puts rows that nobody has seen back in front.
    pub fn put_back(&mut self, batch: RecordBatch) {
        self.batches.push_front(batch);
    }
}

/// Up to `wanted` of the next rows, computed if they must be; None at the end. Not for threads that
/// hold the interpreter.
pub fn next(link: &Link, rows: &Mutex<Rows>, wanted: usize) -> Result<Option<RecordBatch>> {
    loop {
        {
            let mut rows = rows.lock();
            if let Some(batch) = rows.take(wanted) {
                return Ok(Some(batch));
            }
            if rows.is_complete() {
                return Ok(None);
            }
        }
        link.run_detached(|session| rows.lock().pull(&mut session.connection))?;
    }
}

/// Computes all rows. Not for threads that hold the interpreter.
pub fn complete(link: &Link, rows: &Mutex<Rows>) -> Result<()> {
    if rows.lock().is_complete() {
        return Ok(());
    }
    link.run_detached(|session| {
        let mut rows = rows.lock();
        while rows.pull(&mut session.connection)?.is_some() {}
        Ok(())
    })
}

/// The rows as a stream that other libraries read through Arrow's C interface. It needs no
/// interpreter, only the connection.
pub struct Stream {
    link: Arc<Link>,
    rows: Arc<Mutex<Rows>>,
    schema: SchemaRef,
}

impl Stream {
    /// What is left of `rows`.
    pub fn new(link: Arc<Link>, rows: Arc<Mutex<Rows>>) -> Self {
        let schema = rows.lock().schema.clone();
        Self { link, rows, schema }
    }
}

impl Iterator for Stream {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = next(&self.link, &self.rows, usize::MAX);
        next.map_err(|error| ArrowError::ExternalError(Box::new(error)))
            .transpose()
    }
}

impl RecordBatchReader for Stream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
