//! A connection: statements in, rows out.

use crate::appender::Appender;
use crate::context::{ProgressHook, StatementContext};
use crate::database::Shared;
use crate::params::Params;
use crate::point::{TableHandle, Transaction};
use crate::result::QueryResult;
use crate::session::Session;
use crate::session::cancel::{CancelHandle, Termination, Timer};
use crate::session::identity::User;
use crate::session::outcome::{Output, RunningQuery, Summary, TransactionStatus};
use crate::session::prepared::PreparedStatement;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{Error, Result};
use strandline_engine::catalog::Catalog;

/// A connection to a [`Database`](crate::Database): one statement at a time, one transaction at a
/// time. It may move between threads.
///
/// ```
/// let database = strandline::Database::in_memory()?;
/// let mut connection = database.connect();
/// connection.execute("CREATE TABLE t (a bigint, b text)", ())?;
/// connection.execute("BEGIN", ())?;
/// connection.execute("INSERT INTO t VALUES (1, 'one'), (2, 'two')", ())?;
/// connection.execute("ROLLBACK", ())?;
/// assert_eq!(connection.query("SELECT * FROM t", ())?.row_count(), 0);
/// # Ok::<(), strandline::Error>(())
/// ```
pub struct Connection {
    session: Session,
}

/// A statement with parameters, parsed once; made by [`Connection::prepare`], usable on every
/// connection of any database.
#[derive(Clone, Debug)]
pub struct Prepared(Arc<PreparedStatement>);

impl Prepared {
    /// How many parameters it takes.
    pub fn parameter_count(&self) -> usize {
        self.0.parameter_count()
    }
}

/// What [`Connection::run`] gave.
pub enum Outcome<'c> {
    /// Rows to pull.
    Rows(QueryStream<'c>),
    /// The statement is done.
    Done(Summary),
}

impl Connection {
    pub(crate) fn new(shared: Arc<Shared>, user: User) -> Self {
        Self {
            session: Session::new(shared, user),
        }
    }

    /// Runs one statement; the rows it inserted, updated, deleted, copied or (for a query, whose
    /// rows are thrown away) selected.
    pub fn execute(&mut self, sql: &str, params: impl Params) -> Result<u64> {
        Ok(self.run_to_end(sql, &params.scalars())?.rows_affected())
    }

    /// Runs one statement and keeps its rows: those of a query, RETURNING, SHOW or EXPLAIN.
    pub fn query(&mut self, sql: &str, params: impl Params) -> Result<QueryResult> {
        let summary = self.run_to_end(sql, &params.scalars())?;
        Ok(rows_of(summary))
    }

    /// Runs one statement whose rows are computed as they are pulled.
    ///
    /// ```
    /// let database = strandline::Database::in_memory()?;
    /// let mut connection = database.connect();
    /// let mut rows = 0;
    /// for batch in connection.query_stream("SELECT * FROM generate_series(1, 100000)", ())? {
    ///     rows += batch?.num_rows();
    /// }
    /// assert_eq!(rows, 100_000);
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn query_stream(&mut self, sql: &str, params: impl Params) -> Result<QueryStream<'_>> {
        Ok(match self.run(sql, params)? {
            Outcome::Rows(stream) => stream,
            Outcome::Done(_) => return Err(no_rows(sql)),
        })
    }

    /// Runs one statement: rows to pull if it is a query, else its summary (with the rows of
    /// RETURNING, SHOW or EXPLAIN in it).
    pub fn run(&mut self, sql: &str, params: impl Params) -> Result<Outcome<'_>> {
        let shared = self.session.shared.clone();
        let output = shared.block_on(self.session.run_text(sql, &params.scalars()))?;
        Ok(match output {
            Output::Done(summary) => Outcome::Done(summary),
            Output::Rows(query) => Outcome::Rows(QueryStream {
                schema: query.schema.clone(),
                timer: self.session.timer(),
                session: &mut self.session,
                query: Some(query),
            }),
        })
    }

    /// Runs the statements of a script one after the other, up to the first that fails. The
    /// outcomes of those before it are lost with the error; a caller that wants them runs the
    /// pieces of [`split_script`](crate::split_script) itself.
    ///
    /// ```
    /// let database = strandline::Database::in_memory()?;
    /// let mut connection = database.connect();
    /// let done = connection.execute_script("CREATE TABLE t (a int); INSERT INTO t VALUES (7);")?;
    /// assert_eq!(done[1].command_tag(), "INSERT 0 1");
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn execute_script(&mut self, sql: &str) -> Result<Vec<Summary>> {
        let pieces = crate::parse::split_script(sql)?;
        pieces
            .iter()
            .map(|piece| self.run_to_end(piece.sql, &[]))
            .collect()
    }

    /// Parses a statement with parameters once, to be run often.
    ///
    /// ```
    /// let database = strandline::Database::in_memory()?;
    /// let mut connection = database.connect();
    /// let add = connection.prepare("SELECT $1 + $2")?;
    /// assert_eq!(connection.query_prepared(&add, (2i64, 3i64))?.single::<i64>()?, 5);
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn prepare(&mut self, sql: &str) -> Result<Prepared> {
        let statement = crate::parse::statement(sql)?;
        let prepared = PreparedStatement::new(Arc::from(sql), statement, Vec::new())?;
        Ok(Prepared(Arc::new(prepared)))
    }

    /// Runs a prepared statement; as [`Connection::execute`].
    pub fn execute_prepared(&mut self, prepared: &Prepared, params: impl Params) -> Result<u64> {
        Ok(self
            .run_prepared(prepared, &params.scalars())?
            .rows_affected())
    }

    /// Runs a prepared statement; as [`Connection::query`].
    pub fn query_prepared(
        &mut self,
        prepared: &Prepared,
        params: impl Params,
    ) -> Result<QueryResult> {
        let summary = self.run_prepared(prepared, &params.scalars())?;
        Ok(rows_of(summary))
    }

    fn run_prepared(&mut self, prepared: &Prepared, params: &[ScalarValue]) -> Result<Summary> {
        let shared = self.session.shared.clone();
        shared.block_on(async {
            let prepared = &prepared.0;
            let text = Some(prepared.text.clone());
            let statement = &prepared.statement;
            let output = self.session.run_reported(text, statement, params).await?;
            self.finish(output).await
        })
    }

    fn run_to_end(&mut self, sql: &str, params: &[ScalarValue]) -> Result<Summary> {
        let shared = self.session.shared.clone();
        shared.block_on(async {
            let output = self.session.run_text(sql, params).await?;
            self.finish(output).await
        })
    }

    async fn finish(&mut self, output: Output) -> Result<Summary> {
        match output {
            Output::Done(summary) => Ok(summary),
            Output::Rows(query) => {
                let result = self.session.collect(query).await?;
                let rows = result.row_count() as u64;
                Ok(Summary::rows(format!("SELECT {rows}"), rows).with_result(Some(result)))
            }
        }
    }

    /// A handle with which other threads cancel what this connection runs.
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle(self.session.cancel.clone())
    }

    /// Calls `hook` while a COPY runs, to show how far it is; None: no longer.
    pub fn on_progress(&mut self, hook: Option<ProgressHook>) {
        self.session.progress = hook;
    }

    /// The number by which other sessions name this one: `pg_backend_pid()`.
    pub fn backend_id(&self) -> i32 {
        self.session.registered.backend().pid()
    }

    /// What a request to cancel this session's statement must show beside its number; see
    /// [`Database::cancel`](crate::Database::cancel).
    pub fn secret(&self) -> i32 {
        self.session.registered.backend().secret()
    }

    /// Tells others where this connection's client is: `host:port`, or a Unix socket's path.
    pub fn set_client(&mut self, address: &str) {
        self.session.registered.backend().set_client(address);
    }

    /// The name of the user the connection was made for.
    pub fn user(&self) -> Arc<str> {
        self.session.registered.backend().user()
    }

    /// With which it is noticed that another session ends this one.
    pub fn termination(&self) -> Termination {
        Termination(self.session.cancel.clone())
    }

    /// Whether a transaction block is open, and whether it has failed.
    pub fn transaction_status(&self) -> TransactionStatus {
        self.session.transaction_status()
    }

    /// Warnings and notices of the statements since the last call, such as "there is no
    /// transaction in progress".
    pub fn take_notices(&mut self) -> Vec<Error> {
        self.session.take_notices()
    }

    /// The definitions this connection sees: its open transaction's, or the newest committed.
    pub fn catalog(&self) -> Arc<Catalog> {
        match &self.session.open {
            Some(open) => open.transaction.catalog(),
            None => self.session.shared.db.catalog(),
        }
    }

    /// A handle of a table for point operations; it stays good for any number of transactions.
    /// `name` is a table's name, with or without its schema.
    pub fn table(&self, name: &str) -> Result<TableHandle> {
        TableHandle::find(&self.session, name)
    }

    /// Begins a transaction of point operations: reads and writes by key that never enter the
    /// query engine. Inside an open transaction block it joins the block; committing then only
    /// ends the joining.
    ///
    /// ```
    /// use strandline::Value;
    ///
    /// let database = strandline::Database::in_memory()?;
    /// let mut connection = database.connect();
    /// connection.execute("CREATE TABLE account (id bigint PRIMARY KEY, balance bigint)", ())?;
    /// let account = connection.table("account")?;
    /// let balance = account.column("balance")?;
    ///
    /// let mut transaction = connection.transaction()?;
    /// transaction.insert(&account, &[Value::BigInt(1), Value::BigInt(100)])?;
    /// let row = transaction.get(&account, &[Value::BigInt(1)], &[balance])?;
    /// assert_eq!(row, Some(vec![Value::BigInt(100)]));
    /// transaction.update(&account, &[Value::BigInt(1)], &[(balance, Value::BigInt(90))])?;
    /// transaction.commit()?;
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn transaction(&mut self) -> Result<Transaction<'_>> {
        Transaction::begin(&mut self.session)
    }

    /// A bulk load into `table`: rows go straight into compressed chunks. Inside an open
    /// transaction block it belongs to the block.
    pub fn appender(&mut self, table: &str) -> Result<Appender<'_>> {
        Appender::begin(&mut self.session, table)
    }

    /// Evaluates every CHECK constraint over every row; what is violated, one line each.
    pub(crate) fn check_constraints(&mut self) -> Result<Vec<String>> {
        let shared = self.session.shared.clone();
        let transaction = self.session.begin_engine(self.session.default_modes())?;
        let statement = transaction.begin_statement()?;
        let template = &self.session.template;
        let context = StatementContext::new(template, statement, Vec::new(), self.session.now_us());
        let violated = shared.block_on(crate::ddl::verify::all_checks(&context));
        transaction.rollback();
        violated
    }
}

fn rows_of(summary: Summary) -> QueryResult {
    summary.into_result().unwrap_or_else(|| {
        QueryResult::new(
            Arc::new(datafusion::arrow::datatypes::Schema::empty()),
            Vec::new(),
        )
    })
}

fn no_rows(sql: &str) -> Error {
    let start: String = sql.trim().chars().take(30).collect();
    Error::invalid(
        strandline_base::SqlState("0A000"),
        format!("\"{start}\" gives no rows to stream"),
    )
    .with_hint("Use run, execute or query.")
}

/// The rows of a query, pulled batch by batch. Dropping it ends the query.
pub struct QueryStream<'c> {
    session: &'c mut Session,
    query: Option<Box<RunningQuery>>,
    schema: SchemaRef,
    timer: Option<Timer>,
}

impl QueryStream<'_> {
    /// Names and Arrow types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl Iterator for QueryStream<'_> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        let query = self.query.as_mut()?;
        let shared = self.session.shared.clone();
        let next = shared.block_on(self.session.next_batch(query));
        if !matches!(next, Some(Ok(_))) {
            self.query = None;
            self.timer = None;
        }
        next
    }
}

impl Drop for QueryStream<'_> {
    fn drop(&mut self) {
        if let Some(mut query) = self.query.take()
            && let Some(transaction) = query.implicit.take()
        {
            drop(query);
            transaction.rollback();
        }
    }
}
