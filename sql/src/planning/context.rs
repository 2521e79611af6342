//! The context of one running SQL statement: the engine's statement (snapshot and statement
//! number), its catalog, and DataFusion's state whose names resolve at that snapshot.
//!
//! The session makes a context per statement. It lives as long as the statement's result stream.
//! Planning binds the parameters, prepares references that DataFusion cannot express (`FOR
//! SYSTEM_TIME AS OF`, `_rowid`, files; see [`super::references`]), and calls DataFusion's SQL
//! planner.

use crate::backends::acting::Acting;
use crate::catalogs::lookup;
use crate::catalogs::pg_catalog::display;
use crate::parse;
use crate::parse::names;
use crate::parse::params;
use crate::planning::catalog::StatementCatalog;
use crate::planning::parallelism;
use crate::planning::references::TableNames;
use crate::planning::template::{StatementState, Template};
use crate::runtime::copy_client::CopyClients;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::common::DFSchema;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;
use parking_lot::Mutex;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, TableId};
use strandline_engine::Statement;
use strandline_engine::catalog::index::IndexStorage;
use strandline_engine::catalog::{Catalog, KeyIndex, TableDef, ViewDef};
use strandline_semantics as semantics;
use strandline_semantics::error::convert;

/// The context of one running SQL statement: snapshot, catalog, planner state.
pub struct StatementContext {
    /// DataFusion's state; its catalog resolves names at this statement's snapshot.
    pub state: StatementState,
    /// The engine's statement.
    pub statement: Arc<Statement>,
    /// The catalog at the statement's snapshot.
    pub catalog: Arc<Catalog>,
    /// The schema of unqualified names.
    pub default_schema: String,
    /// Values of $1, $2, …
    pub parameters: Vec<ScalarValue>,
    /// Whether parameters stay placeholders: the statement is described, or its plan is kept.
    pub open_parameters: bool,
    /// The user whose privileges are checked; None: a superuser.
    pub acting: Option<Arc<Acting>>,
    /// Whether the statement is a transaction by itself, outside any block.
    pub is_alone: bool,
    /// The storage of an index that does not name one; None: memory while it suffices.
    pub index_storage: Option<IndexStorage>,
    /// The index of keys whose table does not name one; None: that of their columns.
    pub key_index: Option<KeyIndex>,
    /// Receives the progress of a COPY.
    pub progress: Option<ProgressHook>,
    /// The other end of COPY … FROM STDIN and TO STDOUT.
    pub copy_clients: Option<CopyClients>,
    notices: Arc<Mutex<Vec<Error>>>,
    names: Arc<StatementCatalog>,
}

/// A callback that receives a statement's progress, on the thread that does the work.
pub type ProgressHook = Arc<dyn Fn(Progress) + Send + Sync>;

/// The progress of a COPY.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// rows read (FROM) or written (TO) so far
    pub rows: u64,
    /// bytes of the file read so far; 0 for TO
    pub bytes: u64,
    /// bytes of the file; None for TO
    pub total_bytes: Option<u64>,
}

impl StatementContext {
    /// A context for `statement`. `template` is the session's state; a copy of it is bound to the
    /// statement's snapshot. `now_us` is the value of `now()`.
    pub fn new(
        template: &Arc<Template>,
        statement: Arc<Statement>,
        parameters: Vec<ScalarValue>,
        now_us: u64,
    ) -> Self {
        let catalog = statement.transaction().catalog();
        Self::over(template, statement, catalog, parameters, now_us, false)
    }

    /// As [`StatementContext::new`], with names that mean what they mean in `catalog`; `is_system`:
    /// nobody's rights are checked.
    fn over(
        template: &Arc<Template>,
        statement: Arc<Statement>,
        catalog: Arc<Catalog>,
        parameters: Vec<ScalarValue>,
        now_us: u64,
        is_system: bool,
    ) -> Self {
        let acting = match is_system {
            true => None,
            false => Acting::of(template, &statement.transaction().catalog()),
        };
        let names = StatementCatalog::current(
            Arc::clone(template),
            statement.clone(),
            catalog.clone(),
            now_us,
            is_system,
        );
        let default_schema = template.config_options().catalog.default_schema.clone();
        let state = names.bind(&default_schema);
        Self {
            state,
            statement,
            catalog,
            default_schema,
            parameters,
            open_parameters: false,
            acting,
            is_alone: false,
            index_storage: None,
            key_index: None,
            progress: None,
            copy_clients: None,
            notices: Arc::default(),
            names,
        }
    }

    /// The same session's context for another statement, possibly of another transaction.
    pub fn again(&self, statement: Arc<Statement>) -> Self {
        let now_us = self.names.now_us();
        Self {
            notices: self.notices.clone(),
            ..Self::new(self.names.template(), statement, Vec::new(), now_us)
        }
    }

    /// Queues a notice for the client.
    pub fn notice(&self, message: impl Into<String>) {
        let state = SqlState::SUCCESSFUL_COMPLETION;
        self.notices.lock().push(Error::invalid(state, message));
    }

    /// Takes IF EXISTS or IF NOT EXISTS into account: where a statement has it (`may_skip`), the
    /// error of the object becomes a notice and the object is skipped.
    ///
    /// # Errors
    /// `error`, of a statement without it.
    pub fn skip(&self, may_skip: bool, error: Error) -> Result<()> {
        if !may_skip {
            return Err(error);
        }
        // PostgreSQL's notices of missing objects have no state of their own.
        let state = match error.sqlstate() {
            existing @ (SqlState::DUPLICATE_TABLE
            | SqlState::DUPLICATE_SCHEMA
            | SqlState::DUPLICATE_COLUMN
            | SqlState::DUPLICATE_OBJECT) => existing,
            _ => SqlState::SUCCESSFUL_COMPLETION,
        };
        let message = format!("{}, skipping", error.message());
        self.notices.lock().push(Error::invalid(state, message));
        Ok(())
    }

    /// Takes the notices queued so far.
    pub fn take_notices(&self) -> Vec<Error> {
        std::mem::take(&mut self.notices.lock())
    }

    /// As [`StatementContext::again`], for the system's own queries, with names that mean what they
    /// mean in `catalog`.
    pub fn system_over(&self, statement: Arc<Statement>, catalog: Arc<Catalog>) -> Self {
        let now_us = self.names.now_us();
        Self::over(
            self.names.template(),
            statement,
            catalog,
            Vec::new(),
            now_us,
            true,
        )
    }

    /// The value of `now()`, in microseconds since the epoch.
    pub fn now_us(&self) -> u64 {
        self.names.now_us()
    }

    /// The session's state, of which the statement's state is a copy.
    pub fn template(&self) -> &Arc<Template> {
        self.names.template()
    }

    /// The memory pool that queries share.
    pub fn memory(&self) -> &Arc<dyn MemoryPool> {
        &self.template().runtime_env().memory_pool
    }

    /// Resolves a table name; errors as PostgreSQL does (42P01; 42809 for a view; 42501 for a
    /// system table).
    pub fn resolve_table(&self, name: &ast::ObjectName) -> Result<Arc<TableDef>> {
        let (schema, table) = lookup::existing(name, &self.default_schema)?;
        if let Some(found) = self.catalog.table(&schema, &table) {
            return Ok(found.clone());
        }
        if self.catalog.view(&schema, &table).is_some() {
            return Err(Error::invalid(
                SqlState::WRONG_OBJECT_TYPE,
                format!("\"{table}\" is not a table"),
            )
            .with_detail("It is a view; views are not updatable."));
        }
        lookup::refuse_system(&schema, &table)?;
        if self.catalog.schemas.contains_key(&schema) || schema == names::PUBLIC {
            Err(names::undefined_table(&schema, &table))
        } else {
            Err(names::undefined_schema(&schema))
        }
    }

    /// The table of index `name`, and the index's name.
    pub fn find_index(&self, name: &ast::ObjectName) -> Result<Option<(TableId, String)>> {
        let (schema, name) = names::qualified(name, &self.default_schema)?;
        let has_index = |table: &TableDef| {
            table.keys.iter().any(|key| key.name == name)
                || table.indexes.iter().any(|index| index.name == name)
        };
        let mut tables = self.catalog.tables.values();
        let found = tables.find(|t| t.schema == schema && has_index(t));
        Ok(found.map(|table| (table.id, name)))
    }

    /// Lets the statement name the table without the right to read it, because it changes rows
    /// without using their values.
    pub fn writes_without_reading(&self, table: Option<TableId>) {
        self.names.exempt(table);
    }

    /// Plans a query (SELECT/VALUES/WITH…) with bound parameters. Every table of ours has a hidden
    /// column `_rowid` (UInt64), which must be named explicitly; `*` never includes it.
    pub async fn plan_query(&self, query: &ast::Query) -> Result<LogicalPlan> {
        let values = (!self.open_parameters).then_some(self.parameters.as_slice());
        self.names.plan(&self.state, query, values).await
    }

    /// Keeps `table` while the context lives; returns a name by which queries read it.
    pub fn keep(&self, table: Arc<dyn TableProvider>) -> ast::ObjectName {
        self.names.keep(table)
    }

    /// As [`StatementContext::plan_query`], for a query of the system's own without parameters: it
    /// needs no right.
    pub async fn plan_system_query(&self, query: &ast::Query) -> Result<LogicalPlan> {
        if self.acting.is_none() {
            return self.plan_query(query).await;
        }
        let names = self.names.for_system();
        let state = names.bind(&self.default_schema);
        names.plan(&state, query, Some(&[])).await
    }

    /// The plan with all types settled.
    pub fn analyze(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let analyzer = self.state.analyzer();
        let analyzed = analyzer.execute_and_check(plan, self.state.config_options(), |_, _| {});
        analyzed.map_err(convert)
    }

    /// The optimized form of an analyzed plan.
    pub fn optimize(&self, analyzed: LogicalPlan) -> Result<LogicalPlan> {
        let optimizer = self.state.optimizer();
        let optimized = optimizer.optimize(analyzed, &*self.state, |_, _| {});
        optimized.map_err(convert)
    }

    /// The tables that the queries planned so far read as of the statement's snapshot.
    pub fn present_tables(&self) -> Vec<Arc<TableDef>> {
        self.names.present_tables()
    }

    /// Plans the query of a view, under the names that the view gives its columns. Nobody's rights
    /// are checked.
    pub async fn plan_view(&self, view: &ViewDef) -> Result<LogicalPlan> {
        self.names.for_system().plan_view(view, false).await
    }

    /// Plans a scalar expression over the columns of `schema`, such as a default or a CHECK
    /// condition, with bound parameters. Subqueries in it see the tables of
    /// [`StatementContext::plan_query`] only if they were planned there.
    pub fn plan_expression(&self, expression: &ast::Expr, schema: &DFSchema) -> Result<Expr> {
        let mut expression = expression.clone();
        params::substitute_in_expr(&mut expression, &self.parameters)?;
        semantics::sql::normalize(&mut expression)?;
        let with_alias = ast::ExprWithAlias {
            expr: expression,
            alias: None,
        };
        self.state
            .create_logical_expr_from_sql_expr(with_alias, schema)
            .map_err(convert)
    }

    /// Sets the partitions that `plan` is worth, and the batch rows that its tables' width allows,
    /// for all later planning and execution.
    pub fn fit(&mut self, plan: &LogicalPlan) -> Result<()> {
        let most = self.template().config().target_partitions();
        let query_bytes = match self.memory().memory_limit() {
            MemoryLimit::Finite(bytes) => bytes,
            MemoryLimit::Infinite | MemoryLimit::Unknown => usize::MAX,
        };
        let fit = parallelism::fit(plan, most, query_bytes).map_err(convert)?;
        self.state.fit(fit);
        Ok(())
    }

    /// Runs a plan. The result's columns have the names that users see.
    pub async fn run(&self, plan: LogicalPlan) -> Result<(SchemaRef, SendableRecordBatchStream)> {
        let plan = match display::is_needed(&plan) {
            true => display::shown(plan, self.names.system())?,
            false => plan,
        };
        let schema = semantics::sql::output_schema(plan.schema().inner());
        let physical = self.physical(self.analyze(plan)?, false).await?;
        self.start(physical, &schema)
    }

    /// The physical plan of an analyzed plan, which may be optimized already.
    pub async fn physical(
        &self,
        plan: LogicalPlan,
        is_optimized: bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let optimized = match is_optimized {
            true => plan,
            false => self.optimize(plan)?,
        };
        let planner = self.state.query_planner();
        let physical = planner.create_physical_plan(&optimized, &*self.state);
        physical.await.map_err(convert)
    }

    /// Runs a physical plan, with a result of `schema`.
    pub fn start(
        &self,
        physical: Arc<dyn ExecutionPlan>,
        schema: &SchemaRef,
    ) -> Result<(SchemaRef, SendableRecordBatchStream)> {
        let stream = execute_stream(physical, self.state.task()).map_err(convert)?;
        if stream.schema().fields() == schema.fields() {
            return Ok((schema.clone(), stream));
        }
        let renamed = semantics::sql::renamed(stream, schema.clone());
        Ok((schema.clone(), renamed))
    }

    /// The parsed DEFAULT expression of each column, in table order; None: NULL.
    /// `Db::next_identity` gives the values of identity columns.
    pub fn defaults(&self, table: &TableDef) -> Result<Vec<Option<ast::Expr>>> {
        table
            .columns
            .iter()
            .map(|column| column.default.as_deref().map(parse::expression).transpose())
            .collect()
    }
}
