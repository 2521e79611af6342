//! A query under way, apart from the connection that runs it: what a cursor or a protocol's portal
//! keeps between two calls. It borrows nothing, so other statements of the connection may run
//! before the next rows are asked for.
//!
//! A query outside a transaction block has a transaction of its own, which ends with its rows or
//! when the portal is dropped. One inside a block ends with the block: rows asked for later are an
//! error.

use crate::result::QueryResult;
use crate::session::Session;
use crate::session::outcome::{RunningQuery, Summary};
use crate::session::slow_log::WatchedStatement;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use strandline_base::Result;

/// What [`Connection::start`](crate::Connection::start) gave.
pub enum Started {
    /// Rows to pull.
    Rows(Portal),
    /// The statement is done.
    Done(Summary),
}

/// The rows of a query that are still to come, pulled by [`Connection::next_batch`]; see
/// [`QueryStream::into_portal`]. Dropping it ends the query.
///
/// [`Connection::next_batch`]: crate::Connection::next_batch
/// [`QueryStream::into_portal`]: crate::QueryStream::into_portal
pub struct Portal {
    query: Option<Box<RunningQuery>>,
    /// rows that are there already
    ready: std::vec::IntoIter<RecordBatch>,
    schema: SchemaRef,
    /// until the last row
    watched: Option<WatchedStatement>,
}

impl Portal {
    pub(crate) fn new(query: Box<RunningQuery>, watched: Option<WatchedStatement>) -> Self {
        Self {
            schema: query.schema.clone(),
            query: Some(query),
            ready: Vec::new().into_iter(),
            watched,
        }
    }

    /// Rows that are there.
    pub(crate) fn ready(result: QueryResult) -> Self {
        Self {
            schema: result.schema().clone(),
            query: None,
            ready: result.into_batches().into_iter(),
            watched: None,
        }
    }

    /// Names and Arrow types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Whether the query belongs to a transaction block and must be read before that ends.
    pub fn in_block(&self) -> bool {
        let query = self.query.as_ref();
        query.is_some_and(|query| query.implicit.is_none())
    }

    /// Whether all rows have been given out, or the query has failed.
    pub fn has_ended(&self) -> bool {
        self.query.is_none() && self.ready.len() == 0
    }

    /// The next batch; None at the end and after an error. `statement_timeout` bounds each call.
    pub(crate) fn next(&mut self, session: &mut Session) -> Result<Option<RecordBatch>> {
        if let Some(batch) = self.ready.next() {
            return Ok(Some(batch));
        }
        let Some(query) = self.query.as_mut() else {
            return Ok(None);
        };
        // Outside a scope, a cancellation that came between two calls holds.
        let _timer = session.timer();
        let shared = session.shared.clone();
        let next = shared.block_on(session.next_batch(query));
        if !matches!(next, Some(Ok(_))) {
            self.query = None;
            self.watched = None;
        }
        next.transpose()
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        if let Some(mut query) = self.query.take()
            && let Some(transaction) = query.implicit.take()
        {
            drop(query);
            transaction.rollback();
        }
    }
}
