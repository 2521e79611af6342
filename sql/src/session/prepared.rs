//! Prepared statements, and PREPARE, EXECUTE, DEALLOCATE. A prepared statement is its parsed text
//! with what is declared and known of its parameters; planning it takes the values of each
//! execution into account.

use super::Session;
use super::arguments::Executed;
use super::arrays::{self, ParameterType};
use super::describe::{Described, Description, NUMERIC, of_parameter};
use super::outcome::Output;
use crate::execution::row_executor::Compiled;
use crate::parse::names;
use crate::parse::params;
use crate::parse::place;
use crate::statements::plan_cache::{self, PlanSlot};
use crate::statements::work::Work;
use crate::values::summary::Summary;
use datafusion::arrow::datatypes::FieldRef;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{DataType, Ident, Statement as Parsed};
use datafusion::sql::sqlparser::tokenizer::Location;
use parking_lot::Mutex;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_semantics::types;

/// A statement with parameters, parsed once.
#[derive(Debug)]
pub struct PreparedStatement {
    /// what others see while it runs
    pub(crate) text: Arc<str>,
    /// the text that errors point into, passwords included
    source: Arc<str>,
    /// where in it the statement begins
    begins: Location,
    pub(crate) statement: Parsed,
    /// what PREPARE declares
    types: Vec<DataType>,
    /// what a client declares
    declared: Vec<Option<SqlType>>,
    parameters: usize,
    /// whether its parameters have types of their own, not their values'
    typed: bool,
    /// the last description that was asked for
    pub(super) described: Mutex<Option<Arc<Described>>>,
    /// what it was compiled to for the row executor last
    pub(super) compiled: Mutex<Option<Arc<Compiled>>>,
    /// its plan, if it is a query
    plan: PlanSlot,
}

impl PreparedStatement {
    pub(crate) fn new(sql: &str, mut statement: Parsed, types: Vec<DataType>) -> Result<Self> {
        let parameters = params::highest(&mut statement)?.max(types.len());
        let is_array = |t: &DataType| matches!(t, DataType::Array(_)).then(|| t.clone());
        let declared: Vec<_> = types.iter().map(is_array).collect();
        arrays::declare(&mut statement, &declared);
        match &statement {
            Parsed::Prepare { .. } | Parsed::Execute { .. } | Parsed::Deallocate { .. } => {
                Err(Error::invalid(
                    SqlState::SYNTAX_ERROR,
                    "PREPARE, EXECUTE and DEALLOCATE cannot be prepared",
                ))
            }
            _ => Ok(Self::of(
                sql,
                statement,
                types,
                Vec::new(),
                (parameters, false),
            )),
        }
    }

    /// A statement whose parameters have their values' types.
    pub(crate) fn plain(sql: &str, mut statement: Parsed) -> Result<Self> {
        let parameters = params::highest(&mut statement)?;
        Ok(Self::of(
            sql,
            statement,
            Vec::new(),
            Vec::new(),
            (parameters, false),
        ))
    }

    /// One of the statements of a text.
    pub(crate) fn of_script(sql: &str, (statement, begins): (Parsed, Location)) -> Result<Self> {
        Ok(Self {
            begins,
            ..Self::plain(sql, statement)?
        })
    }

    /// An error of this statement with the place in its text.
    pub(crate) fn locate(&self, error: Error) -> Error {
        place::locate(error, &self.source, self.begins)
    }

    /// A statement as a client sends it; `declared` are the types of its parameters that the
    /// client knows.
    pub(crate) fn typed(
        sql: &str,
        mut statement: Parsed,
        declared: &[Option<ParameterType>],
    ) -> Result<Self> {
        let parameters = params::highest(&mut statement)?.max(declared.len());
        let array = |t: &Option<ParameterType>| match t {
            Some(ParameterType::Array(item)) => arrays::array_of(*item),
            _ => None,
        };
        let declared_arrays: Vec<_> = declared.iter().map(array).collect();
        arrays::declare(&mut statement, &declared_arrays);
        let value = |t: &Option<ParameterType>| match t {
            Some(ParameterType::Value(t)) => Some(of_parameter(*t)),
            _ => None,
        };
        let declared = declared.iter().map(value).collect();
        Ok(Self::of(
            sql,
            statement,
            Vec::new(),
            declared,
            (parameters, true),
        ))
    }

    fn of(
        sql: &str,
        statement: Parsed,
        types: Vec<DataType>,
        declared: Vec<Option<SqlType>>,
        (parameters, typed): (usize, bool),
    ) -> Self {
        let text = Arc::<str>::from(crate::parse::redacted(sql));
        let source = match *text == *sql {
            true => text.clone(),
            false => Arc::from(sql),
        };
        Self {
            text,
            source,
            begins: Location { line: 1, column: 1 },
            statement,
            types,
            declared,
            parameters,
            typed,
            described: Mutex::new(None),
            compiled: Mutex::new(None),
            plan: PlanSlot::default(),
        }
    }

    /// 08P01 for too many values; too few are missed where they are wanted, unless a client has
    /// been told how many there are.
    fn check_count(&self, values: usize) -> Result<()> {
        let needed = self.parameters;
        if self.typed && values != needed {
            return Err(Error::invalid(
                SqlState("08P01"),
                format!(
                    "bind message supplies {values} parameters, but prepared statement requires \
                     {needed}"
                ),
            ));
        }
        if values > needed {
            return Err(Error::invalid(
                SqlState("08P01"),
                format!("the statement has {needed} parameters, {values} values were given"),
            ));
        }
        Ok(())
    }

    /// Per parameter the type that is declared for it.
    pub(super) fn declared_types(&self) -> Result<Vec<Option<SqlType>>> {
        let mut declared = self.declared.clone();
        for t in &self.types {
            declared.push(match t {
                DataType::Array(_) => None,
                t => Some(types::from_ast(t)?.map_or(NUMERIC, of_parameter)),
            });
        }
        declared.resize(self.parameters, None);
        Ok(declared)
    }

    /// Whether it may be compiled for the row executor.
    pub(super) fn may_be_row_statement(&self) -> bool {
        matches!(
            self.statement,
            Parsed::Query(_) | Parsed::Insert(_) | Parsed::Update(_) | Parsed::Delete(_)
        )
    }

    /// Whether it begins or ends a transaction or a part of one.
    pub(super) fn is_of_transaction(&self) -> bool {
        matches!(
            self.statement,
            Parsed::StartTransaction { .. }
                | Parsed::Commit { .. }
                | Parsed::Rollback { .. }
                | Parsed::Savepoint { .. }
                | Parsed::ReleaseSavepoint { .. }
        )
    }

    /// The type that PREPARE declares for the parameter at `index`.
    pub(super) fn declared_type(&self, index: usize) -> Option<&DataType> {
        self.types.get(index)
    }

    /// How many parameters it has.
    pub fn parameter_count(&self) -> usize {
        self.parameters
    }
}

impl Session {
    /// Runs a prepared statement and lets others see that it runs.
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

    /// In a failed transaction block only its end is allowed.
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

    /// What could plan is boxed: a future is as large as all that it may run, and is moved.
    async fn run_values(
        &mut self,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
    ) -> Result<Output> {
        prepared.check_count(values.len())?;
        if let Some(output) = self.run_point(prepared, values).await? {
            return Ok(output);
        }
        if prepared.typed {
            let types = self.known_types(prepared).await?;
            return Box::pin(self.run_with(prepared, values, &types)).await;
        }
        let (values, mut types): (Vec<_>, Vec<_>) = values.iter().map(params::own_type).unzip();
        types.resize(prepared.parameters, None);
        Box::pin(self.run_with(prepared, &values, &types)).await
    }

    /// Runs a prepared statement outside the row executor. `types` is what is known of each
    /// parameter.
    async fn run_with(
        &mut self,
        prepared: &PreparedStatement,
        values: &[ScalarValue],
        types: &[Option<SqlType>],
    ) -> Result<Output> {
        if self.may_keep_plan(&prepared.statement) {
            let shared = self.shared.clone();
            let execution = plan_cache::Execution {
                statement: &prepared.statement,
                slot: &prepared.plan,
                values,
                types,
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

    /// Whether a statement is one whose plan is kept: a query that only reads, unless it may read
    /// an older moment, or one that changes rows.
    fn may_keep_plan(&self, statement: &Parsed) -> bool {
        match Work::of(statement) {
            Ok(work @ Work::Query(_)) => {
                work.is_read_only() && self.settings.max_staleness.is_none()
            }
            Ok(Work::Dml(_)) => true,
            _ => false,
        }
    }

    /// The types of a typed statement's parameters, where they are known. If it has been
    /// described, its result must be what it was: the client goes by it.
    pub(super) async fn known_types(
        &self,
        prepared: &PreparedStatement,
    ) -> Result<Vec<Option<SqlType>>> {
        let before = prepared.described.lock().clone();
        let Some(before) = before else {
            return prepared.declared_types();
        };
        // What is wrong with a statement that cannot be described any more, running it says.
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

    /// The statement that `sql` is, with the types that a client declares, described.
    pub(crate) async fn prepare_typed(
        &mut self,
        sql: &str,
        declared: &[Option<ParameterType>],
    ) -> Result<Arc<PreparedStatement>> {
        let prepared = self
            .statements
            .typed(sql, declared, &self.shared.statistics);
        let described = match prepared {
            Ok(prepared) => self.described(prepared).await,
            Err(error) => Err(error),
        };
        if described.is_err() {
            self.mark_failed();
        }
        described
    }

    /// `prepared` with its description in it.
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
        // Others see the text of the EXECUTE.
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

    /// Runs what an EXECUTE names, whose arguments may be `outer` parameters.
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
        if let Some(output) = self.run_point(prepared, values).await? {
            return Ok(output);
        }
        Box::pin(self.run_with(prepared, values, types)).await
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
