//! A connection: statements in, rows out.

use crate::appender::Appender;
use crate::context::{ProgressHook, StatementContext};
use crate::database::Shared;
use crate::deep::with_room;
use crate::params::Params;
use crate::point::{TableHandle, Transaction};
use crate::result::QueryResult;
use crate::session::Session;
use crate::session::cancel::CancelHandle;
use crate::session::describe::Description;
use crate::session::outcome::{Output, Summary, TransactionStatus};
use crate::session::prepared::PreparedStatement;
use crate::session::running::{Running, Started};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::Statement as Syntax;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlType};
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

    /// The statement's syntax tree.
    #[doc(hidden)]
    pub fn syntax(&self) -> &Syntax {
        &self.0.statement
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
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            session: Session::new(shared),
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
        let output = self.run_text(sql, &params.scalars())?;
        Ok(match output {
            Output::Done(summary) => Outcome::Done(summary),
            Output::Ready(result) => Outcome::Rows(QueryStream {
                running: Running::ready(result),
                session: &mut self.session,
            }),
            Output::Rows(query) => {
                let mut running = Running::new(query);
                running.timer = self.session.timer();
                Outcome::Rows(QueryStream {
                    running,
                    session: &mut self.session,
                })
            }
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
        let prepared = with_room(|| {
            let statement = crate::parse::statement(sql)?;
            PreparedStatement::new(statement, Vec::new())
        })?;
        Ok(Prepared(Arc::new(prepared)))
    }

    /// Parses one statement and says at once what is wrong with it. `types` are those of its
    /// first parameters, where the caller knows them; the other parameters get the types that
    /// their places give them, text if none does. Inside a failed transaction block only the
    /// statements that end it are prepared; an error fails the open block.
    ///
    /// ```
    /// use strandline::SqlType;
    ///
    /// let database = strandline::Database::in_memory()?;
    /// let mut connection = database.connect();
    /// connection.execute("CREATE TABLE t (id bigint PRIMARY KEY, s text)", ())?;
    /// let get = connection.prepare_typed("SELECT s FROM t WHERE id = $1", &[])?;
    /// let description = connection.describe(&get)?;
    /// assert_eq!(description.parameters, [SqlType::BigInt]);
    /// assert_eq!(description.result.unwrap().field(0).name(), "s");
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn prepare_typed(&mut self, sql: &str, types: &[Option<SqlType>]) -> Result<Prepared> {
        let shared = self.session.shared.clone();
        let prepared = shared.block_on(self.session.prepare_typed(sql, types))?;
        Ok(Prepared(prepared))
    }

    /// The statements of a text, parsed: a text with a mistake in it has none. They have no
    /// parameters.
    pub fn prepare_script(&mut self, sql: &str) -> Result<Vec<Prepared>> {
        let parsed: Result<Vec<Prepared>> = with_room(|| {
            let prepared = crate::parse::statements(sql)?.into_iter();
            let prepared = prepared.map(PreparedStatement::plain);
            prepared.map(|p| Ok(Prepared(Arc::new(p?)))).collect()
        });
        if parsed.is_err() {
            self.session.mark_failed();
        }
        parsed
    }

    /// What a statement takes and gives, by the definitions of now.
    pub fn describe(&mut self, prepared: &Prepared) -> Result<Description> {
        let shared = self.session.shared.clone();
        let described = shared.block_on(self.session.describe(&prepared.0))?;
        Ok(Description::clone(&described.description))
    }

    /// Runs a prepared statement; as [`Connection::execute`].
    pub fn execute_prepared(&mut self, prepared: &Prepared, params: impl Params) -> Result<u64> {
        Ok(self
            .prepared_to_end(prepared, &params.scalars())?
            .rows_affected())
    }

    /// Runs a prepared statement; as [`Connection::query`].
    pub fn query_prepared(
        &mut self,
        prepared: &Prepared,
        params: impl Params,
    ) -> Result<QueryResult> {
        let summary = self.prepared_to_end(prepared, &params.scalars())?;
        Ok(rows_of(summary))
    }

    /// Runs a prepared statement to its end, with the rows of a query in its summary.
    pub fn run_prepared(&mut self, prepared: &Prepared, values: &[ScalarValue]) -> Result<Summary> {
        self.prepared_to_end(prepared, values)
    }

    /// Starts a prepared statement. Its rows are pulled with [`Connection::next_batch`]; other
    /// statements may run between two pulls.
    ///
    /// ```
    /// use strandline::Started;
    ///
    /// let database = strandline::Database::in_memory()?;
    /// let mut connection = database.connect();
    /// let query = connection.prepare_typed("SELECT * FROM generate_series(1, 20000)", &[])?;
    /// let Started::Rows(mut running) = connection.start(&query, &[])? else { panic!() };
    /// let mut rows = 0;
    /// while let Some(batch) = connection.next_batch(&mut running)? {
    ///     rows += batch.num_rows();
    /// }
    /// assert_eq!(rows, 20_000);
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn start(&mut self, prepared: &Prepared, values: &[ScalarValue]) -> Result<Started> {
        let output = self.run_statement(prepared, values)?;
        Ok(match output {
            Output::Done(summary) => Started::Done(summary),
            Output::Ready(result) => Started::Rows(Running::ready(result)),
            Output::Rows(query) => Started::Rows(Running::new(query)),
        })
    }

    /// The next rows of a started query; None at its end. `statement_timeout` bounds each call.
    pub fn next_batch(&mut self, running: &mut Running) -> Result<Option<RecordBatch>> {
        if let Some(batch) = running.ready.next() {
            return Ok(Some(batch));
        }
        let Some(query) = running.query.as_mut() else {
            return Ok(None);
        };
        self.session.cancel.start();
        let timer = self.session.timer();
        let shared = self.session.shared.clone();
        let next = shared.block_on(self.session.next_batch(query));
        drop(timer);
        if !matches!(next, Some(Ok(_))) {
            running.query = None;
        }
        next.transpose()
    }

    fn prepared_to_end(&mut self, prepared: &Prepared, params: &[ScalarValue]) -> Result<Summary> {
        let output = self.run_statement(prepared, params)?;
        self.finish(output)
    }

    fn run_statement(&mut self, prepared: &Prepared, values: &[ScalarValue]) -> Result<Output> {
        if let Some(output) = self.session.run_at_once(&prepared.0, values)? {
            return Ok(output);
        }
        let shared = self.session.shared.clone();
        shared.block_on(self.session.run_prepared(&prepared.0, values))
    }

    fn run_text(&mut self, sql: &str, values: &[ScalarValue]) -> Result<Output> {
        if let Some(output) = self.session.run_text_at_once(sql, values)? {
            return Ok(output);
        }
        let shared = self.session.shared.clone();
        shared.block_on(self.session.run_text(sql, values))
    }

    /// Whether statements may take the point path; for tests that compare the paths.
    #[doc(hidden)]
    pub fn use_point_path(&mut self, may: bool) {
        self.session.point_path = may;
    }

    fn run_to_end(&mut self, sql: &str, params: &[ScalarValue]) -> Result<Summary> {
        let output = self.run_text(sql, params)?;
        self.finish(output)
    }

    fn finish(&mut self, output: Output) -> Result<Summary> {
        match output {
            Output::Done(summary) => Ok(summary),
            Output::Ready(result) => Ok(selected(result)),
            Output::Rows(query) => {
                let shared = self.session.shared.clone();
                let result = shared.block_on(self.session.collect(query))?;
                Ok(selected(result))
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

/// The summary of a query.
fn selected(result: QueryResult) -> Summary {
    let summary = match result.row_count() as u64 {
        0 => Summary::rows("SELECT 0", 0),
        1 => Summary::rows("SELECT 1", 1),
        n => Summary::rows(format!("SELECT {n}"), n),
    };
    summary.with_result(Some(result))
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
    running: Running,
}

impl QueryStream<'_> {
    /// Names and Arrow types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        self.running.schema()
    }
}

impl Iterator for QueryStream<'_> {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Result<RecordBatch>> {
        if let Some(batch) = self.running.ready.next() {
            return Some(Ok(batch));
        }
        let query = self.running.query.as_mut()?;
        let shared = self.session.shared.clone();
        let next = shared.block_on(self.session.next_batch(query));
        if !matches!(next, Some(Ok(_))) {
            self.running.query = None;
            self.running.timer = None;
        }
        next
    }
}
