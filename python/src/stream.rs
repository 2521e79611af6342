//! Rows that a connection computes on demand.

use crate::link::Link;
use crate::results::Rows;
use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use parking_lot::Mutex;
use std::sync::Arc;
use strandline::Result;

/// Up to `wanted` of the next rows, computed if necessary; None at the end. The calling thread must
/// not hold the interpreter lock.
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

/// Computes all rows. The calling thread must not hold the interpreter lock.
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

/// The rows as a stream that other libraries read through Arrow's C interface. It needs the
/// connection, but not the interpreter lock.
pub struct Stream {
    link: Arc<Link>,
    rows: Arc<Mutex<Rows>>,
    schema: SchemaRef,
}

impl Stream {
    /// The rest of `rows` as a stream.
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
