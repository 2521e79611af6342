//! PREPARE, EXECUTE and DEALLOCATE, and the execution of prepared statements.

use super::Session;
use super::arguments::Executed;
use super::arrays::ParameterType;
use super::description::{Description, of_parameter};
use super::outcome::Output;
use super::prepared::PreparedStatement;
use crate::parse::names;
use crate::parse::params;
use crate::statements::data_statement::DataStatement;
use crate::statements::plan_cache::{self, has_shape};
use crate::statements::with_changes;
use crate::statements::work::Work;
use crate::values::parameter_value::of_types;
use crate::values::summary::Summary;
use datafusion::arrow::datatypes::FieldRef;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{DataType, Ident, Statement as Parsed};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_semantics::types;

impl Session {
    /// Runs a prepared statement and shows other sessions that it runs.
    pub(crate) async fn run_prepared(
        &mut self,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
    ) -> Result<Output> {
        self.cancel.refuse_if_terminated()?;
        let backend = self.registered.backend();
        let running = backend.start(Some(prepared.text.clone()), self.shared.db.now_us());
        let mut output = self.run_unreported(prepared, values).await;
        match &mut output {
            Ok(Output::Rows(query)) => query.running = Some(running),
            Ok(_) => {
                if let Err(error) = self.apply_requests() {
                    self.mark_failed();
                    output = Err(error);
                }
            }
            Err(_) => drop(self.registered.backend().take_requests()),
        }
        self.report_block();
        output
    }

    /// A failed transaction block allows only statements that end it or go back to a savepoint.
    async fn run_unreported(
        &mut self,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
    ) -> Result<Output> {
        if let Some(done) = self.run_control(&prepared.statement)? {
            return Ok(done);
        }
        self.refuse_if_failed()?;
        let result = self.run_values(prepared, values).await;
        result.map_err(|error| {
            self.mark_failed();
            prepared.locate(error)
        })
    }

    /// Futures that may plan a query are boxed. A future is as large as every future it may hold,
    /// and is moved.
    async fn run_values(
        &mut self,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
    ) -> Result<Output> {
        prepared.check_count(values.len())?;
        let values = prepared.typed_values(values);
        let values = values.as_ref();
        if let Some(output) = self.run_point(prepared, values, None).await? {
            return Ok(output);
        }
        if prepared.typed {
            let types = self.known_types(prepared).await?;
            let values = of_types(values, &types);
            return Box::pin(self.run_with(prepared, (&values, &types), true)).await;
        }
        let (values, mut types): (Vec<_>, Vec<_>) = values.iter().map(params::own_type).unzip();
        types.resize(prepared.parameter_count(), None);
        let has_short = values.is_empty() || !has_shape(&prepared.statement, prepared.is_lifted);
        Box::pin(self.run_with(prepared, (&values, &types), has_short)).await
    }

    /// Runs a prepared statement outside the row executor. `types` are the parameters' types, where
    /// they are known. `has_short`: its kept plan may have a short plan; else the statement's shape
    /// has it.
    async fn run_with(
        &mut self,
        prepared: &PreparedStatement,
        (values, types): (&[ScalarValue], &[Option<SqlType>]),
        has_short: bool,
    ) -> Result<Output> {
        if self.may_keep_plan(prepared) {
            let shared = self.shared.clone();
            let execution = plan_cache::Execution {
                statement: &prepared.statement,
                slot: &prepared.plan,
                has_parameters: prepared.parameter_count() > 0,
                values,
                types,
                has_short,
                runs_short: self.row_executor,
                statistics: &shared.statistics,
            };
            return self.execute(&Work::Prepared(execution)).await;
        }
        if values.is_empty() || matches!(prepared.statement, Parsed::Execute { .. }) {
            return Box::pin(self.run_unfailed(&prepared.statement, values)).await;
        }
        let mut bound = prepared.statement.clone();
        params::bind(&mut bound, values, types)?;
        Box::pin(self.run_unfailed(&bound, &[])).await
    }

    /// Whether the statement's plan is kept. It is for what changes rows, and for a read-only query
    /// unless the query may read at an older moment.
    pub(super) fn may_keep_plan(&self, prepared: &PreparedStatement) -> bool {
        match DataStatement::of(&prepared.statement) {
            Some(DataStatement::Query(query)) if with_changes::has_parts(query) => true,
            Some(DataStatement::Query(query)) => {
                self.settings.max_staleness.is_none() && prepared.only_reads(query)
            }
            Some(DataStatement::Dml(_)) => true,
            None => false,
        }
    }

    /// The types of a typed statement's parameters, where they are known. A described statement
    /// must still have the result of its description, which the client relies on.
    pub(super) async fn known_types(
        &self,
        prepared: &PreparedStatement,
    ) -> Result<Vec<Option<SqlType>>> {
        let before = prepared.described.lock().clone();
        let Some(before) = before else {
            return prepared.declared_types();
        };
        // If the statement can no longer be described, its execution reports the error.
        if let Ok(now) = self.describe(prepared).await {
            let same = same_columns(&before.description, &now.description);
            *prepared.described.lock() = Some(match same {
                true => Arc::new(now.with_types_of(&before)),
                false => before.clone(),
            });
            if !same {
                return Err(Error::unsupported(
                    "cached plan must not change result type",
                ));
            }
        }
        Ok(before.types.clone())
    }

    /// The statement of the text `sql` with the types that a client declares, and its description.
    pub(crate) async fn prepare_typed(
        &mut self,
        sql: &str,
        declared: &[Option<ParameterType>],
    ) -> Result<Arc<PreparedStatement>> {
        let pool = &self.template.runtime_env().memory_pool;
        let prepared = self
            .statements
            .typed(sql, declared, &self.shared.statistics, pool);
        let described = match prepared {
            Ok(prepared) => self.described(prepared).await,
            Err(error) => Err(error),
        };
        if described.is_err() {
            self.mark_failed();
        }
        described
    }

    /// Stores the description of `prepared` in it.
    pub(crate) async fn described(
        &self,
        prepared: Arc<PreparedStatement>,
    ) -> Result<Arc<PreparedStatement>> {
        let ends = matches!(
            prepared.statement,
            Parsed::Commit { .. } | Parsed::Rollback { .. }
        );
        if !ends {
            self.refuse_if_failed()?;
            self.describe(&prepared).await?;
        }
        Ok(prepared)
    }

    pub(super) fn prepare(
        &mut self,
        name: &Ident,
        types: &[DataType],
        statement: &Parsed,
    ) -> Result<Summary> {
        let name = names::fold(name);
        if self.prepared.contains_key(&name) {
            return Err(Error::invalid(
                SqlState::DUPLICATE_PREPARED_STATEMENT,
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        // Other sessions see the text of the EXECUTE.
        let prepared = PreparedStatement::new("", statement.clone(), types.to_vec())?;
        self.prepared.insert(name, Arc::new(prepared));
        Ok(Summary::tag("PREPARE"))
    }

    pub(super) fn deallocate(&mut self, name: &Ident) -> Result<Summary> {
        if name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all") {
            self.prepared.clear();
            return Ok(Summary::tag("DEALLOCATE ALL"));
        }
        let name = names::fold(name);
        match self.prepared.remove(&name) {
            Some(_) => Ok(Summary::tag("DEALLOCATE")),
            None => Err(undefined(&name)),
        }
    }

    /// Runs the statement that an EXECUTE names. The arguments may be `outer` parameters.
    pub(super) async fn run_executed(
        &mut self,
        statement: &Parsed,
        outer: &[ScalarValue],
    ) -> Result<Output> {
        let executed = self.executed(statement, outer).await?;
        let Executed {
            prepared,
            values,
            types,
        } = &executed;
        if let Some(done) = self.run_control(&prepared.statement)? {
            return Ok(done);
        }
        if let Some(output) = self
            .run_point(prepared, values, Some(types.as_slice()))
            .await?
        {
            return Ok(output);
        }
        Box::pin(self.run_with(prepared, (values, types), true)).await
    }

    /// The prepared statement that an EXECUTE names.
    pub(super) fn prepared_by(&self, execute: &Parsed) -> Result<Arc<PreparedStatement>> {
        let Parsed::Execute {
            name: Some(name),
            immediate: false,
            ..
        } = execute
        else {
            return Err(Error::unsupported("EXECUTE IMMEDIATE is not supported"));
        };
        let name = names::single(name)?;
        let prepared = self.prepared.get(&name).cloned();
        prepared.ok_or_else(|| undefined(&name))
    }
}

/// Whether two results have columns of the same names and SQL types.
fn same_columns(a: &Description, b: &Description) -> bool {
    let columns = |d: &Description| {
        d.result.as_ref().map(|schema| {
            let column = |f: &FieldRef| {
                let sql_type = types::sql_type_of(f).map(of_parameter);
                (f.name().clone(), sql_type)
            };
            schema.fields().iter().map(column).collect::<Vec<_>>()
        })
    };
    columns(a) == columns(b)
}

fn undefined(name: &str) -> Error {
    Error::invalid(
        SqlState::INVALID_SQL_STATEMENT_NAME,
        format!("prepared statement \"{name}\" does not exist"),
    )
}
