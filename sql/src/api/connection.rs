//! A connection: statements in, rows out.

mod prepared;
mod query_stream;

pub use prepared::Prepared;
pub use query_stream::QueryStream;

use crate::api::appender::Appender;
use crate::api::rows::{TableHandle, Transaction};
use crate::backends::activity::TransactionStatus;
use crate::backends::cancel::{CancelHandle, CancelScope, Termination};
use crate::backends::identity::User;
use crate::parse::names;
use crate::parse::params::Params;
use crate::planning::context::{ProgressHook, StatementContext};
use crate::planning::provider::registered::RegisteredTables;
use crate::planning::template::Template;
use crate::session::Session;
use crate::session::outcome::Output;
use crate::session::portal::Portal;
use crate::session::settings::ShownParameter;
use crate::session::settings::origin::Origin;
use crate::session::shared::Shared;
use crate::session::text_memory;
use crate::values::result::QueryResult;
use crate::values::summary::Summary;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
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
    pub(crate) session: Session,
}

/// The result of [`Connection::run`].
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

    /// Runs one statement. Returns the number of rows that it inserted, updated, deleted or copied,
    /// or that a query selected. The rows themselves are dropped.
    pub fn execute(&mut self, sql: &str, params: impl Params) -> Result<u64> {
        let params = params.scalars();
        let _watched = self.session.watch(sql, &params);
        let output = self.run_text(sql, &params)?;
        self.count(output)
    }

    /// Runs one statement and returns the rows of a query, RETURNING, SHOW or EXPLAIN.
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

    /// Runs one statement. Returns rows to pull for a query, else a summary, with the rows of
    /// RETURNING, SHOW or EXPLAIN in it.
    pub fn run(&mut self, sql: &str, params: impl Params) -> Result<Outcome<'_>> {
        let params = params.scalars();
        let watched = self.session.watch(sql, &params);
        let output = self.run_text(sql, &params)?;
        Ok(match output {
            Output::Done(summary) => Outcome::Done(summary),
            Output::Row(row) => Outcome::Rows(QueryStream {
                portal: Portal::of_row(row),
                session: &mut self.session,
            }),
            Output::Batch(result) => Outcome::Rows(QueryStream {
                portal: Portal::of_result(result),
                session: &mut self.session,
            }),
            Output::Rows(query) => Outcome::Rows(QueryStream {
                portal: Portal::new(query, watched),
                session: &mut self.session,
            }),
        })
    }

    /// Runs the statements of a script one after the other, up to the first that fails. An error
    /// drops the summaries of the statements before it. To keep them, run the pieces of
    /// [`split_script`](crate::split_script) one by one.
    ///
    /// ```
    /// let database = strandline::Database::in_memory()?;
    /// let mut connection = database.connect();
    /// let done = connection.execute_script("CREATE TABLE t (a int); INSERT INTO t VALUES (7);")?;
    /// assert_eq!(done[1].command_tag(), "INSERT 0 1");
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn execute_script(&mut self, sql: &str) -> Result<Vec<Summary>> {
        let memory = text_memory::reserve(sql, self.session.memory())?;
        let pieces = crate::parse::split_script(sql)?;
        drop(memory);
        pieces
            .iter()
            .map(|piece| self.run_to_end(piece.sql, &[]))
            .collect()
    }

    fn run_text(&mut self, sql: &str, values: &[ScalarValue]) -> Result<Output> {
        if let Some(output) = self.session.run_text_at_once(sql, values)? {
            return Ok(output);
        }
        let shared = self.session.shared.clone();
        shared.block_on(self.session.run_text(sql, values))
    }

    /// Whether statements may run in the row executor; for tests that compare both paths.
    #[doc(hidden)]
    pub fn use_row_executor(&mut self, may: bool) {
        self.session.row_executor = may;
    }

    fn run_to_end(&mut self, sql: &str, params: &[ScalarValue]) -> Result<Summary> {
        let _watched = self.session.watch(sql, params);
        let output = self.run_text(sql, params)?;
        self.finish(output)
    }

    fn finish(&mut self, output: Output) -> Result<Summary> {
        match output {
            Output::Done(summary) => Ok(summary),
            Output::Row(row) => Ok(selected(row.into_result()?)),
            Output::Batch(result) => Ok(selected(result)),
            Output::Rows(query) => {
                let shared = self.session.shared.clone();
                let result = shared.block_on(self.session.collect(query))?;
                Ok(selected(result))
            }
        }
    }

    /// Runs an output to its end and counts the rows that it selected or changed.
    fn count(&mut self, output: Output) -> Result<u64> {
        match output {
            Output::Rows(query) => {
                let shared = self.session.shared.clone();
                shared.block_on(self.session.count(query))
            }
            done => Ok(self.finish(done)?.rows_affected()),
        }
    }

    /// Runs one statement for each row of `rows`, whose columns are its parameters `$1`, `$2`, …,
    /// all or nothing. Returns the number of affected rows. A plain `INSERT … VALUES ($1, …)` is
    /// loaded in bulk.
    ///
    /// ```
    /// let database = strandline::Database::in_memory()?;
    /// let mut connection = database.connect();
    /// connection.execute("CREATE TABLE t (a bigint PRIMARY KEY, b text)", ())?;
    /// let rows = connection.query("SELECT n, 'row ' || n FROM generate_series(1, 9) s(n)", ())?;
    /// let loaded = connection.execute_many("INSERT INTO t VALUES ($1, $2)", &rows.to_batch()?)?;
    /// assert_eq!(loaded, 9);
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn execute_many(&mut self, sql: &str, rows: &RecordBatch) -> Result<u64> {
        crate::api::execute_many::run(&mut self.session, sql, rows)
    }

    /// A handle with which other threads cancel this connection's statement.
    pub fn cancel_handle(&self) -> CancelHandle {
        CancelHandle(self.session.cancel.clone())
    }

    /// While the scope lives, a cancellation holds for all statements of this connection, not only
    /// for the running one. Use it where several statements are one piece of work. Cancellations
    /// before the scope are forgotten. A scope within a scope has no effect.
    ///
    /// ```
    /// # let database = strandline::Database::in_memory()?;
    /// # let mut connection = database.connect();
    /// let scope = connection.cancel_scope();
    /// connection.cancel_handle().cancel();
    /// assert!(connection.query("SELECT 1", ()).is_err());
    /// drop(scope);
    /// assert!(connection.query("SELECT 1", ()).is_ok());
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn cancel_scope(&self) -> CancelScope {
        CancelScope::begin(&self.session.cancel)
    }

    /// Sets the hook that receives the progress of a running COPY; None: no hook.
    pub fn on_progress(&mut self, hook: Option<ProgressHook>) {
        self.session.progress = hook;
    }

    /// The number that identifies this session to other sessions: `pg_backend_pid()`.
    pub fn backend_id(&self) -> i32 {
        self.session.registered.backend().pid()
    }

    /// The secret that a request to cancel this session's statement must present; see
    /// [`Database::cancel`](crate::Database::cancel).
    pub fn secret(&self) -> i32 {
        self.session.registered.backend().secret()
    }

    /// Sets the client's address that other sessions see: `host:port`, or a Unix socket's path.
    pub fn set_client(&mut self, address: &str) {
        self.session.registered.backend().set_client(address);
    }

    /// The user that the connection was made for.
    pub fn user(&self) -> Arc<str> {
        self.session.registered.backend().user()
    }

    /// A handle that shows whether another session has ended this one.
    pub fn termination(&self) -> Termination {
        Termination(self.session.cancel.clone())
    }

    /// Whether a transaction block is open, and whether it has failed.
    pub fn transaction_status(&self) -> TransactionStatus {
        self.session.transaction_status()
    }

    /// Sets a parameter as SET does; `SHOW ALL` prints `origin`.
    ///
    /// # Errors
    /// 42704 for an unknown name, 22023 or 0A000 for a wrong value.
    pub fn set_parameter(&mut self, name: &str, value: &str, origin: &Origin) -> Result<()> {
        self.session.set_parameter(name, Some(value), false, origin)
    }

    /// The value that SHOW prints for parameter `name`; None for an unknown name.
    pub fn parameter(&self, name: &str) -> Option<String> {
        self.session.value_of(name)
    }

    /// All parameters, by name.
    pub fn parameters(&self) -> Vec<ShownParameter> {
        self.session.parameters()
    }

    /// Takes the warnings and notices of the statements since the last call, such as "there is no
    /// transaction in progress".
    pub fn take_notices(&mut self) -> Vec<Error> {
        self.session.take_notices()
    }

    /// The definitions that this connection sees: those of its open transaction, or the newest
    /// committed.
    pub fn catalog(&self) -> Arc<Catalog> {
        match &self.session.open {
            Some(open) => open.transaction.catalog(),
            None => self.session.shared.db.catalog(),
        }
    }

    /// A handle of a table for point operations, valid for any number of transactions. `name` is a
    /// table's name, with or without its schema.
    pub fn table(&self, name: &str) -> Result<TableHandle> {
        TableHandle::find(&self.session, name)
    }

    /// Begins a transaction of point operations: reads and writes by key that bypass the query
    /// engine. Inside an open transaction block it joins the block, and the block's COMMIT commits.
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

    /// A bulk load into `table`: rows are written directly as compressed chunks. Inside an open
    /// transaction block it belongs to the block.
    pub fn appender(&mut self, table: &str) -> Result<Appender<'_>> {
        Appender::begin(&mut self.session, table)
    }

    /// Registers `batches`, which all have `schema`, as table `name` of this connection. The table
    /// is read-only, invisible to other connections, and hides a stored table of that name. It
    /// replaces an earlier registration of `name`.
    ///
    /// ```
    /// let database = strandline::Database::in_memory()?;
    /// let mut connection = database.connect();
    /// let rows = connection.query("SELECT 1 AS a UNION ALL SELECT 2", ())?;
    /// connection.register("numbers", rows.schema(), rows.batches())?;
    /// let sum = connection.query("SELECT sum(a) FROM numbers", ())?;
    /// assert_eq!(sum.single::<i64>()?, 3);
    /// assert!(database.connect().query("SELECT * FROM numbers", ()).is_err());
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn register(&mut self, name: &str, schema: &Schema, batches: &[RecordBatch]) -> Result<()> {
        let name = names::single(&crate::parse::object_name(name)?)?;
        names::check(&name)?;
        let template = &mut self.session.template;
        let mut tables = RegisteredTables::clone(&RegisteredTables::of(template));
        tables.add(&name, schema, batches)?;
        *template = Template::new(tables.put_into(template));
        Ok(())
    }

    /// Removes the registered table `name`; 42P01 if there is none.
    pub fn unregister(&mut self, name: &str) -> Result<()> {
        let name = names::single(&crate::parse::object_name(name)?)?;
        let template = &mut self.session.template;
        let mut tables = RegisteredTables::clone(&RegisteredTables::of(template));
        if !tables.remove(&name) {
            return Err(names::undefined_table(names::PUBLIC, &name));
        }
        *template = Template::new(tables.put_into(template));
        Ok(())
    }

    /// Evaluates every CHECK constraint on every row. Returns one line per violated constraint.
    pub(crate) fn check_constraints(&mut self) -> Result<Vec<String>> {
        let shared = self.session.shared.clone();
        let transaction = self.session.begin_engine(self.session.default_modes())?;
        let statement = transaction.begin_statement()?;
        let template = &self.session.template;
        let context = StatementContext::new(template, statement, Vec::new(), self.session.now_us());
        let violated = shared.block_on(crate::statements::ddl::verify::all(&context));
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
