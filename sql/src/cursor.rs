//! What a server needs of a connection beyond the embedded interface: rows of a query that are
//! fetched between other statements, and transactions around the statements of one request.

use crate::connection::{Connection, Prepared};
use crate::copy::SharedCopyClient;
use crate::session::cancel::Timer;
use crate::session::outcome::{Output, RunningQuery, Summary};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::scalar::ScalarValue;
use std::time::Duration;
use strandline_base::Result;

/// What [`Connection::start`] gave.
pub enum Execution {
    /// Rows to fetch.
    Rows(Cursor),
    /// The statement is done.
    Done(Summary),
}

/// The rows of a query under way. Unlike a [`QueryStream`](crate::QueryStream) it leaves its
/// connection free for other statements. Dropping it ends the query.
pub struct Cursor {
    query: Option<Box<RunningQuery>>,
    schema: SchemaRef,
    timer: Option<Timer>,
}

impl Cursor {
    /// Names and Arrow types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if let Some(mut query) = self.query.take()
            && let Some(transaction) = query.implicit.take()
        {
            drop(query);
            transaction.rollback();
        }
    }
}

impl Connection {
    /// Runs one statement; the rows of a query are computed as they are fetched with
    /// [`Connection::fetch`], also after other statements of the same transaction.
    pub fn start(&mut self, sql: &str, params: &[ScalarValue]) -> Result<Execution> {
        let shared = self.session.shared.clone();
        let output = shared.block_on(self.session.run_text(sql, params))?;
        Ok(self.execution(output))
    }

    /// As [`Connection::start`], for a prepared statement.
    pub fn start_prepared(
        &mut self,
        prepared: &Prepared,
        params: &[ScalarValue],
    ) -> Result<Execution> {
        let shared = self.session.shared.clone();
        let output = shared.block_on(self.session.run(&prepared.0.statement, params))?;
        Ok(self.execution(output))
    }

    fn execution(&self, output: Output) -> Execution {
        match output {
            Output::Done(summary) => Execution::Done(summary),
            Output::Rows(query) => Execution::Rows(Cursor {
                schema: query.schema.clone(),
                query: Some(query),
                timer: self.session.timer(),
            }),
        }
    }

    /// The next rows of `cursor`, a query of this connection; None: there are no more.
    pub fn fetch(&mut self, cursor: &mut Cursor) -> Option<Result<RecordBatch>> {
        let query = cursor.query.as_mut()?;
        let shared = self.session.shared.clone();
        let next = shared.block_on(self.session.next_batch(query));
        if !matches!(next, Some(Ok(_))) {
            cursor.query = None;
            cursor.timer = None;
        }
        next
    }

    /// Parses `sql`, one statement, without running it; an error fails an open block.
    pub fn check_syntax(&mut self, sql: &str) -> Result<()> {
        match self.session.parse(sql) {
            Ok(_) => Ok(()),
            Err(error) => {
                self.session.mark_failed();
                Err(error)
            }
        }
    }

    /// From now on statements belong to one transaction, until [`Connection::commit_request`];
    /// nothing if a block is open.
    pub fn begin_request(&mut self) -> Result<()> {
        self.session.begin_implicit()
    }

    /// Whether [`Connection::begin_request`] has begun a transaction that is still open.
    pub fn is_in_request(&self) -> bool {
        self.session.is_implicit()
    }

    /// Commits what [`Connection::begin_request`] began.
    pub fn commit_request(&mut self) -> Result<()> {
        self.session.commit_implicit()
    }

    /// Something in a request failed: what [`Connection::begin_request`] began is undone, a block
    /// is left failed.
    pub fn fail_request(&mut self) -> Result<()> {
        self.session.rollback_implicit()?;
        self.session.mark_failed();
        Ok(())
    }

    /// The value of a setting; None: there is no such setting.
    pub fn setting(&self, name: &str) -> Option<String> {
        self.session.setting(name)
    }

    /// Changes a setting, as SET does.
    pub fn set(&mut self, name: &str, value: &str) -> Result<()> {
        self.session.set_text(name, value)
    }

    /// How long a client may leave a transaction block open without a statement
    /// (`idle_in_transaction_session_timeout`).
    pub fn idle_in_transaction_timeout(&self) -> Option<Duration> {
        self.session.settings().idle_in_transaction_timeout
    }

    /// How long a client may send nothing outside a transaction block (`idle_session_timeout`).
    pub fn idle_session_timeout(&self) -> Option<Duration> {
        self.session.settings().idle_session_timeout
    }

    /// Where COPY … FROM STDIN and TO STDOUT find their data; None: nowhere.
    pub fn set_copy_client(&mut self, client: Option<SharedCopyClient>) {
        self.session.copy_client = client;
    }
}
