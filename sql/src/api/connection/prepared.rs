//! Prepared statements: parsed once, described, and executed with parameters.

use super::{Connection, rows_of};
use crate::parse::params::Params;
use crate::runtime::stack_growth::with_room;
use crate::session::arrays::ParameterType;
use crate::session::description::Description;
use crate::session::outcome::Output;
use crate::session::portal::{Portal, Started};
use crate::session::prepared::PreparedStatement;
use crate::session::slow_log::WatchedStatement;
use crate::session::text_memory;
use crate::values::result::QueryResult;
use crate::values::summary::Summary;
use datafusion::arrow::array::RecordBatch;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::Statement as Syntax;
use std::sync::Arc;
use strandline_base::{Result, SqlType};

/// A statement with parameters, parsed once; made by [`Connection::prepare`], usable on every
/// connection of any database.
#[derive(Clone, Debug)]
pub struct Prepared(Arc<PreparedStatement>);

impl Prepared {
    /// The number of parameters.
    pub fn parameter_count(&self) -> usize {
        self.0.parameter_count()
    }

    /// The name in a DEALLOCATE of one prepared statement. A server looks for it among the
    /// statements that its protocol has prepared, which SQL does not know.
    pub fn deallocates(&self) -> Option<String> {
        match &self.0.statement {
            Syntax::Deallocate { name, .. }
                if name.quote_style.is_some() || !name.value.eq_ignore_ascii_case("all") =>
            {
                Some(crate::parse::names::fold(name))
            }
            _ => None,
        }
    }

    /// The statement's syntax tree.
    #[doc(hidden)]
    pub fn syntax(&self) -> &Syntax {
        &self.0.statement
    }
}

impl Connection {
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
            let memory = text_memory::reserve(sql, self.session.memory())?;
            let statement = crate::parse::statement(sql)?;
            let prepared = PreparedStatement::new(sql, statement, Vec::new())?;
            Ok(prepared.with_memory(memory))
        })?;
        Ok(Prepared(Arc::new(prepared)))
    }

    /// Parses and describes one statement, so that its errors appear at once. `types` has the types
    /// of the first parameters, where the caller knows them. Another parameter gets the type of its
    /// place, or text if its place gives none. A failed transaction block prepares only the
    /// statements that end it; an error fails the open block.
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
    /// assert_eq!(description.result.as_ref().unwrap().field(0).name(), "s");
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn prepare_typed(&mut self, sql: &str, types: &[Option<SqlType>]) -> Result<Prepared> {
        let types: Vec<_> = types.iter().map(|t| t.map(ParameterType::Value)).collect();
        self.prepare_declared(sql, &types)
    }

    /// [`Connection::prepare_typed`] for parameters that may be arrays. The value of an array is
    /// its text, `{1,2}`.
    pub fn prepare_declared(
        &mut self,
        sql: &str,
        types: &[Option<ParameterType>],
    ) -> Result<Prepared> {
        let shared = self.session.shared.clone();
        let prepared = shared.block_on(self.session.prepare_typed(sql, types))?;
        Ok(Prepared(prepared))
    }

    /// Parses the statements of a text, which have no parameters. A syntax error anywhere fails the
    /// whole text.
    pub fn prepare_script(&mut self, sql: &str) -> Result<Vec<Prepared>> {
        let parsed: Result<Vec<Prepared>> = with_room(|| {
            let memory = text_memory::reserve(sql, self.session.memory())?;
            let prepared = crate::parse::statements_with_places(sql)?.into_iter();
            let prepared = prepared.map(|one| {
                let one = PreparedStatement::of_script(sql, one)?;
                Ok(Prepared(Arc::new(one.with_memory(memory.clone()))))
            });
            prepared.collect()
        });
        if parsed.is_err() {
            self.session.mark_failed();
        }
        parsed
    }

    /// The parameters and result columns of a statement by the present definitions.
    pub fn describe(&mut self, prepared: &Prepared) -> Result<Arc<Description>> {
        if let Some(known) = self.session.known_description(&prepared.0) {
            return Ok(known.description.clone());
        }
        let shared = self.session.shared.clone();
        let described = shared.block_on(self.session.describe(&prepared.0))?;
        Ok(described.description.clone())
    }

    /// Runs a prepared statement; see [`Connection::execute`].
    pub fn execute_prepared(&mut self, prepared: &Prepared, params: impl Params) -> Result<u64> {
        let params = params.scalars();
        let _watched = self.session.watch_parsed(&prepared.0.statement, &params);
        let output = self.run_statement(prepared, &params)?;
        self.count(output)
    }

    /// Runs a prepared statement; see [`Connection::query`].
    pub fn query_prepared(
        &mut self,
        prepared: &Prepared,
        params: impl Params,
    ) -> Result<QueryResult> {
        let summary = self.prepared_to_end(prepared, &params.scalars())?;
        Ok(rows_of(summary))
    }

    /// Runs a prepared statement to its end; the summary has a query's rows.
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
    /// let Started::Rows(mut portal) = connection.start(&query, &[])? else { panic!() };
    /// let mut rows = 0;
    /// while let Some(batch) = connection.next_batch(&mut portal)? {
    ///     rows += batch.num_rows();
    /// }
    /// assert_eq!(rows, 20_000);
    /// # Ok::<(), strandline::Error>(())
    /// ```
    pub fn start(&mut self, prepared: &Prepared, values: &[ScalarValue]) -> Result<Started> {
        let watched = self.session.watch_parsed(&prepared.0.statement, values);
        let output = self.run_statement(prepared, values)?;
        Ok(started(output, watched))
    }

    /// Starts the statement of a text if it is compiled already except for its literals. None: the
    /// caller prepares the text ([`Connection::prepare_script`]).
    pub fn start_known(&mut self, sql: &str) -> Result<Option<Started>> {
        let watched = self.session.watch(sql, &[]);
        match self.session.run_text_at_once(sql, &[])? {
            Some(output) => Ok(Some(started(output, watched))),
            None => {
                if let Some(watched) = watched {
                    watched.dismiss();
                }
                Ok(None)
            }
        }
    }

    /// Gives a started query `statement_timeout` anew: a client has asked for more of its rows.
    pub fn restart_timeout(&self, portal: &mut Portal) {
        portal.restart_timeout(&self.session);
    }

    /// The next rows of a started query; None at its end. `statement_timeout` bounds the time that
    /// all calls take together, without the time between them.
    pub fn next_batch(&mut self, portal: &mut Portal) -> Result<Option<RecordBatch>> {
        portal.next(&mut self.session)
    }

    fn prepared_to_end(&mut self, prepared: &Prepared, params: &[ScalarValue]) -> Result<Summary> {
        let statement = &prepared.0.statement;
        let _watched = self.session.watch_parsed(statement, params);
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
}

fn started(output: Output, watched: Option<WatchedStatement>) -> Started {
    match output {
        Output::Done(summary) => Started::Done(summary),
        Output::Row(row) => Started::Rows(Portal::of_row(row)),
        Output::Batch(result) => Started::Rows(Portal::of_result(result)),
        Output::Rows(query) => Started::Rows(Portal::new(query, watched)),
    }
}
