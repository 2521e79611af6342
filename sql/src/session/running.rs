//! Results under way that do not borrow their connection, such as a server's portals: their owner
//! pulls batches when it likes and may run other statements of the connection between two pulls.
//!
//! A result keeps its statement's snapshot until it is dropped. Outside of a transaction block it
//! has a transaction of its own, which ends with it; inside a block it must be dropped before the
//! block ends.

use super::cancel::Timer;
use super::outcome::{RunningQuery, Summary};
use crate::result::QueryResult;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;

/// What [`Connection::start`](crate::Connection::start) gave.
pub enum Started {
    /// Rows to pull.
    Rows(Running),
    /// The statement is done.
    Done(Summary),
}

/// The rows of a query, pulled by
/// [`Connection::next_batch`](crate::Connection::next_batch). Dropping it ends the query.
pub struct Running {
    pub(crate) query: Option<Box<RunningQuery>>,
    /// rows that are there already
    pub(crate) ready: std::vec::IntoIter<RecordBatch>,
    pub(crate) timer: Option<Timer>,
    schema: SchemaRef,
}

impl Running {
    pub(crate) fn new(query: Box<RunningQuery>) -> Self {
        Self {
            schema: query.schema.clone(),
            query: Some(query),
            ready: Vec::new().into_iter(),
            timer: None,
        }
    }

    pub(crate) fn ready(result: QueryResult) -> Self {
        Self {
            schema: result.schema().clone(),
            query: None,
            ready: result.into_batches().into_iter(),
            timer: None,
        }
    }

    /// Names and Arrow types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut query) = self.query.take()
            && let Some(transaction) = query.implicit.take()
        {
            drop(query);
            transaction.rollback();
        }
    }
}
