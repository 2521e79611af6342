//! A running query without its connection: the state of a cursor or of a protocol's portal between
//! two calls. A portal borrows nothing, so the connection may run other statements between two
//! batches.
//!
//! A query outside a transaction block has its own transaction, which ends with the last row or
//! with the portal. A query inside a block ends with the block. Pulling rows later, or while the
//! block is failed, is an error.

use crate::session::Session;
use crate::session::outcome::RunningQuery;
use crate::session::slow_log::WatchedStatement;
use crate::values::result::QueryResult;
use crate::values::summary::Summary;
use crate::values::value_row::ValueRow;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use strandline_base::Result;

/// The result of [`Connection::start`](crate::Connection::start).
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
    rows: Rows,
    /// ends with the last row
    watched: Option<WatchedStatement>,
}

enum Rows {
    /// a running query; None: it has ended
    Query(SchemaRef, Option<Box<RunningQuery>>),
    /// a finished query of one row
    Row(ValueRow),
    /// a finished query's batches, the last one first
    Batches(SchemaRef, Vec<RecordBatch>),
}

impl Portal {
    pub(crate) fn new(query: Box<RunningQuery>, watched: Option<WatchedStatement>) -> Self {
        Self {
            rows: Rows::Query(query.schema.clone(), Some(query)),
            watched,
        }
    }

    /// A portal over a row found by its key.
    pub(crate) fn of_row(row: ValueRow) -> Self {
        Self {
            rows: Rows::Row(row),
            watched: None,
        }
    }

    /// A portal over finished batches.
    pub(crate) fn of_result(result: QueryResult) -> Self {
        let schema = result.schema().clone();
        let mut batches = result.into_batches();
        batches.retain(|batch| batch.num_rows() > 0);
        batches.reverse();
        Self {
            rows: Rows::Batches(schema, batches),
            watched: None,
        }
    }

    /// Names and Arrow types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        match &self.rows {
            Rows::Query(schema, _) => schema,
            Rows::Row(row) => row.schema(),
            Rows::Batches(schema, _) => schema,
        }
    }

    /// The row as values, if the query found it by its key; the portal gives it up. Rows of other
    /// queries come from [`Connection::next_batch`].
    ///
    /// ```
    /// use strandline::{Started, Value};
    ///
    /// let database = strandline::Database::in_memory()?;
    /// let mut connection = database.connect();
    /// connection.execute("CREATE TABLE t (id bigint PRIMARY KEY, s text)", ())?;
    /// connection.execute("INSERT INTO t VALUES (1, 'one')", ())?;
    /// let get = connection.prepare_typed("SELECT s FROM t WHERE id = 1", &[])?;
    /// let Started::Rows(mut portal) = connection.start(&get, &[])? else { panic!() };
    /// let mut row = portal.take_row().expect("found by its key");
    /// assert_eq!(row.take(), Some(vec![Value::Text("one".into())]));
    /// # Ok::<(), strandline::Error>(())
    /// ```
    ///
    /// [`Connection::next_batch`]: crate::Connection::next_batch
    pub fn take_row(&mut self) -> Option<ValueRow> {
        let Rows::Row(row) = &self.rows else {
            return None;
        };
        let schema = row.schema().clone();
        match std::mem::replace(&mut self.rows, Rows::Query(schema, None)) {
            Rows::Row(row) => Some(row),
            _ => None,
        }
    }

    /// Whether the query belongs to a transaction block and must be read before the block ends.
    pub fn in_block(&self) -> bool {
        match &self.rows {
            Rows::Query(_, query) => query.as_ref().is_some_and(|q| q.implicit.is_none()),
            Rows::Row(_) | Rows::Batches(..) => false,
        }
    }

    /// Whether the portal has returned all rows, or the query has failed.
    pub fn has_ended(&self) -> bool {
        match &self.rows {
            Rows::Query(_, query) => query.is_none(),
            Rows::Row(row) => row.row_count() == 0,
            Rows::Batches(_, batches) => batches.is_empty(),
        }
    }

    /// Gives the query `statement_timeout` anew.
    pub(crate) fn restart_timeout(&mut self, session: &Session) {
        if let Rows::Query(_, Some(query)) = &mut self.rows {
            query.time_left = session.settings().statement_timeout;
        }
    }

    /// The next batch; None at the end and after an error. `statement_timeout` bounds the time of
    /// all calls together.
    pub(crate) fn next(&mut self, session: &mut Session) -> Result<Option<RecordBatch>> {
        let running = match &mut self.rows {
            Rows::Row(row) => return row.take_batch(),
            Rows::Batches(_, batches) => return Ok(batches.pop()),
            Rows::Query(_, running) => running,
        };
        let Some(query) = running.as_mut() else {
            return Ok(None);
        };
        // Outside a scope, a cancellation that came between two calls holds.
        let (_timer, began_us) = session.begin_call(query);
        let shared = session.shared.clone();
        let next = shared.block_on(session.next_batch(query));
        session.charge(query, began_us);
        if !matches!(next, Some(Ok(_))) {
            *running = None;
            self.watched = None;
        }
        next.transpose()
    }
}

impl Drop for Portal {
    fn drop(&mut self) {
        if let Rows::Query(_, running) = &mut self.rows
            && let Some(mut query) = running.take()
            && let Some(transaction) = query.implicit.take()
        {
            drop(query);
            transaction.rollback();
        }
    }
}
