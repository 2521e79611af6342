//! The kept plans of repeated statements: parsed, names resolved, types settled. Each execution
//! repeats only the work that depends on data and values.
//!
//! From its second execution on, a prepared read-only query or DML statement keeps one plan,
//! whether a client, a program or SQL's PREPARE has prepared it. The plan is bound to no snapshot:
//! an execution puts its own tables, DML nodes and values into a copy. INSERTs of literals only
//! need no plan ([`dml::execute_directly`]).
//!
//! Invariants:
//! 1. A kept plan is used only with the very catalog and settings it was made with ([`Key`]), so
//!    its names, types and privileges are current.
//! 2. It holds nothing of the statement that made it, because that would hold the statement's
//!    snapshot. It has no owner; each execution's copy has one ([`Owner`]). A plan is not kept if
//!    it has tables of the past, files, system tables and functions, subqueries run row by row,
//!    locking clauses, or identity values drawn by an UPDATE or a MERGE ([`is_free`]).
//! 3. A plan for any values requires parameters of known types whose literals carry no more than
//!    their type ([`params::is_plain`]), and values of exactly these types. All other values are
//!    part of the key.
//! 4. A plan that is kept optimized has neither parameters nor volatile functions.
//! 5. Without the kept plan only planning is repeated; a failure of the execution is final. A
//!    failure that depends on time or parameters does not invalidate the kept plan ([`Failure`]).

mod shape;
mod short;

pub(crate) use shape::{KnownShape, Shape, ShapeValues, TypedPlan, has_shape, of_shape};
pub(crate) use short::{Sought, of_statement};

use crate::catalogs::pg_catalog::{self, display};
use crate::catalogs::statistics::StatementStatistics;
use crate::execution::dml::{self, DmlForm, DmlOutcome, Tally};
use crate::execution::short_plans::ShortPlan;
use crate::parse::params;
use crate::parse::placeholders::place_parameters;
use crate::planning::context::StatementContext;
use crate::planning::owner::Owner;
use crate::planning::provider::returned_rows::ReturnedRows;
use crate::planning::provider::table::Table;
use crate::planning::provider::value_rows::ValueRows;
use crate::planning::subplan;
use crate::planning::template::Template;
use crate::statements::data_statement::DataStatement;
use crate::statements::roles;
use crate::statements::with_changes;
use crate::values::result::QueryResult;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;
use parking_lot::Mutex;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlType};
use strandline_engine::catalog::Catalog;
use strandline_semantics as semantics;
use strandline_semantics::error::convert;
use strandline_semantics::functions::{Function, moment_of};
use strandline_semantics::types::arrow_type;

/// The state of a prepared statement's plan.
#[derive(Debug, Default)]
pub(crate) struct PlanSlot(Mutex<SlotState>);

#[derive(Debug, Default)]
enum SlotState {
    /// not run yet
    #[default]
    New,
    /// run once
    Used,
    Kept(Arc<Kept>),
    /// the plan cannot be kept
    Bound(Key),
}

/// The conditions under which a plan is valid.
#[derive(Clone, Debug)]
struct Key {
    catalog: Arc<Catalog>,
    template: Arc<Template>,
    /// the parameters' types
    types: Vec<Option<SqlType>>,
    /// None: valid for any values
    values: Option<Vec<ScalarValue>>,
}

#[derive(Debug)]
struct Kept {
    key: Key,
    /// without an owner; None: only the short plan is kept, of a statement with changes in WITH
    plan: Option<LogicalPlan>,
    /// None: the plan of a query
    form: Option<DmlForm>,
    /// the columns with the names that users see
    output: SchemaRef,
    is_optimized: bool,
    /// the same for the row executor, if it is short and for any values
    short: Option<Arc<ShortPlan>>,
}

/// One execution of a prepared statement.
pub(crate) struct Execution<'a> {
    /// the statement with its parameters' numbers
    pub statement: &'a ast::Statement,
    /// the slot of its plan
    pub slot: &'a PlanSlot,
    /// without any, no value is put in
    pub has_parameters: bool,
    pub values: &'a [ScalarValue],
    /// the types of the parameters, where they are known; None: the type of the parameter's place
    pub types: &'a [Option<SqlType>],
    /// whether a short plan may be made beside the kept plan
    pub has_short: bool,
    /// whether the execution that makes a short plan may run it
    pub runs_short: bool,
    pub statistics: &'a StatementStatistics,
}

/// The slot's answer to an execution.
enum Known {
    /// no kept plan applies: the execution is planned alone
    No,
    /// a plan must be made and kept
    NotYet,
    Kept(Arc<Kept>),
}

/// A query's columns and rows.
type Rows = (SchemaRef, SendableRecordBatchStream);

/// The result of an execution.
pub(crate) enum Ran {
    Rows(Rows),
    /// a finished query's rows
    Batch(QueryResult),
    Changed(DmlOutcome),
}

/// The physical plan of an execution.
struct Planned {
    plan: Arc<dyn ExecutionPlan>,
    /// the counters of the execution
    tally: Arc<Tally>,
}

impl Execution<'_> {
    /// Runs the statement by its kept plan, or makes a plan and keeps it. None: the caller plans
    /// this execution alone.
    pub async fn run(&self, context: &mut StatementContext) -> Result<Option<Ran>> {
        let known = self.known(context);
        if matches!(known, Known::No) {
            return Ok(None);
        }
        if let Some(query) = with_changes::parted(self.statement) {
            if let Known::NotYet = known {
                self.keep_short(query, context).await?;
            }
            return Ok(None);
        }
        if self.changes_rows() {
            context.writes_without_reading(roles::check::dml(context, self.statement)?);
            if let Some(done) = self.run_directly(context)? {
                self.statistics.planned();
                return Ok(Some(Ran::Changed(done)));
            }
        }
        let is_new = matches!(known, Known::NotYet);
        let kept = match known {
            Known::Kept(kept) => Ok(Some(kept)),
            _ => self.keep(context).await,
        };
        let kept = match kept {
            Ok(Some(kept)) => kept,
            Ok(None) => return Ok(self.plans_anew(context)),
            Err(error) => return self.failed(error, context),
        };
        if is_new
            && self.runs_short
            && let Some(result) = self.run_short(&kept, context)?
        {
            return Ok(Some(Ran::Batch(result)));
        }
        let planned = match self.plan_by(&kept, context).await {
            Ok(planned) => planned,
            Err(error) if self.values.is_empty() => return Err(error),
            Err(error) => return self.failed(error, context),
        };
        match is_new {
            true => self.statistics.planned(),
            false => self.statistics.reused(),
        }
        let Planned { plan, tally } = planned;
        Ok(Some(match kept.form {
            None => Ran::Rows(context.start(plan, &kept.output)?),
            Some(form) => {
                let done = dml::run_physical(context, plan, &kept.output, form, &tally);
                Ran::Changed(done.await?)
            }
        }))
    }

    /// Whether the statement is INSERT, UPDATE, DELETE or MERGE, or has one in its WITH.
    pub fn changes_rows(&self) -> bool {
        match DataStatement::of(self.statement) {
            Some(DataStatement::Query(query)) => with_changes::has_parts(query),
            Some(DataStatement::Dml(_)) => true,
            None => false,
        }
    }

    /// Runs an INSERT of literals only without a plan, which is faster.
    fn run_directly(&self, context: &StatementContext) -> Result<Option<DmlOutcome>> {
        match self.statement {
            ast::Statement::Insert(insert) if dml::may_be_direct(insert) => {
                dml::execute_directly(context, &self.bound_statement()?)
            }
            _ => Ok(None),
        }
    }

    /// Notes that the statement's plan cannot be kept.
    fn plans_anew(&self, context: &StatementContext) -> Option<Ran> {
        *self.slot.0.lock() = SlotState::Bound(self.key(context));
        None
    }

    /// Handles a failure to make the plan. Planning this execution alone mostly reports the error,
    /// or finds that its values need their own plan.
    fn failed(&self, error: Error, context: &StatementContext) -> Result<Option<Ran>> {
        match Failure::of(&error) {
            Failure::Moment => Err(error),
            Failure::Value => Ok(None),
            Failure::Plan => Ok(self.plans_anew(context)),
        }
    }

    async fn plan_by(&self, kept: &Kept, context: &mut StatementContext) -> Result<Planned> {
        let tally = Arc::<Tally>::default();
        let owner = context.statement.clone().into();
        let plan = kept.bound(&owner, &tally, self.values)?;
        context.fit(&plan)?;
        let plan = context.physical(plan, kept.is_optimized).await?;
        Ok(Planned { plan, tally })
    }

    fn known(&self, context: &StatementContext) -> Known {
        let mut state = self.slot.0.lock();
        match &*state {
            SlotState::New => {
                *state = SlotState::Used;
                Known::No
            }
            SlotState::Kept(kept) if kept.key.is_for(self, context) => match &kept.key.values {
                _ if kept.plan.is_none() => Known::No,
                Some(values) if values != self.values => Known::No,
                None if !self.is_generic() => Known::No,
                _ => Known::Kept(kept.clone()),
            },
            SlotState::Bound(key) if key.is_for(self, context) => Known::No,
            SlotState::Used | SlotState::Kept(_) | SlotState::Bound(_) => Known::NotYet,
        }
    }

    /// Whether a plan for any values can serve these values.
    fn is_generic(&self) -> bool {
        are_of(self.values, self.types)
    }

    fn key(&self, context: &StatementContext) -> Key {
        let needs_constants = || self.has_parameters && params::need_constants(self.statement);
        let serves_all = self.is_generic() && !needs_constants();
        Key {
            catalog: context.catalog.clone(),
            template: context.template().clone(),
            types: self.types.to_vec(),
            values: (!serves_all).then(|| self.values.to_vec()),
        }
    }

    /// The statement with its values as literals.
    pub fn bound_statement(&self) -> Result<ast::Statement> {
        let mut statement = self.statement.clone();
        if self.has_parameters {
            params::bind(&mut statement, self.values, self.types)?;
        }
        Ok(statement)
    }

    /// The statement with placeholders of the parameters' types.
    fn open_statement(&self) -> Result<ast::Statement> {
        let mut statement = self.statement.clone();
        if self.has_parameters {
            place_parameters(&mut statement, self.types)?;
        }
        Ok(statement)
    }

    /// Plans the statement and keeps the plan; None: the plan cannot be kept.
    async fn keep(&self, context: &mut StatementContext) -> Result<Option<Arc<Kept>>> {
        let key = self.key(context);
        let statement = match key.values {
            None => self.open_statement(),
            Some(_) => self.bound_statement(),
        }?;
        context.open_parameters = true;
        let planned = plan(context, &statement).await;
        context.open_parameters = false;
        let (plan, form) = planned?;
        if display::is_needed(&plan) {
            return Ok(None);
        }
        let output = semantics::sql::output_schema(plan.schema().inner());
        let analyzed = context.analyze(plan)?;
        let found = look(&analyzed).map_err(convert)?;
        if !found.is_free {
            return Ok(None);
        }
        let has_short = self.has_short && !found.is_stable;
        let is_optimized = !found.is_open;
        let plan = match is_optimized {
            true => context.optimize(analyzed)?,
            false => analyzed,
        };
        let short = match &key.values {
            _ if !has_short => None,
            None if is_optimized => short::of_optimized(context, &plan, (&output, form)),
            None => short::compile(context, &plan, self.types, (&output, form)),
            Some(_) => self.short_of_any(context).await,
        };
        let plan = owned(plan, &Owner::NONE, &Arc::default(), &[]).map_err(convert)?;
        let kept = Arc::new(Kept {
            key,
            plan: Some(plan),
            form,
            output,
            is_optimized,
            short: short.map(Arc::new),
        });
        *self.slot.0.lock() = SlotState::Kept(kept.clone());
        Ok(Some(kept))
    }
}

/// The cause of a failure to plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// a cancellation, or a lack of resources
    Moment,
    /// a value that is invalid for its type or an operator
    Value,
    /// the statement itself: it is wrong, or cannot be planned for any values
    Plan,
}

impl Failure {
    fn of(error: &Error) -> Self {
        match error.sqlstate().0.get(..2) {
            Some("40" | "53" | "57" | "58") => Self::Moment,
            Some("22") => Self::Value,
            _ => Self::Plan,
        }
    }
}

/// The plan of a query or a DML statement.
async fn plan(
    context: &StatementContext,
    statement: &ast::Statement,
) -> Result<(LogicalPlan, Option<DmlForm>)> {
    match DataStatement::of(statement) {
        Some(DataStatement::Query(query)) => Ok((context.plan_query(query).await?, None)),
        _ => {
            let planned = dml::plan(context, statement, &Arc::default()).await?;
            Ok((planned.plan, Some(planned.form)))
        }
    }
}

impl Key {
    fn is_for(&self, execution: &Execution<'_>, context: &StatementContext) -> bool {
        Arc::ptr_eq(&self.catalog, &context.catalog)
            && Arc::ptr_eq(&self.template, context.template())
            && self.types == execution.types
    }
}

impl Kept {
    /// The plan for one execution.
    fn bound(
        &self,
        owner: &Owner,
        tally: &Arc<Tally>,
        values: &[ScalarValue],
    ) -> Result<LogicalPlan> {
        let values = match self.key.values {
            None => values,
            Some(_) => &[],
        };
        let none = || Error::internal("a statement with parts has no plan of its own");
        let plan = self.plan.clone().ok_or_else(none)?;
        owned(plan, owner, tally, values).map_err(convert)
    }
}

/// The plan for `owner`, counted in `tally`, with `values` in place of its parameters.
fn owned(
    plan: LogicalPlan,
    owner: &Owner,
    tally: &Arc<Tally>,
    values: &[ScalarValue],
) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let node = match node {
            LogicalPlan::TableScan(mut scan) => {
                let provider = source_as_provider(&scan.source)?;
                if let Some(table) = provider.downcast_ref::<Table>() {
                    scan.source = provider_as_source(Arc::new(table.of(owner.clone())));
                }
                Transformed::yes(LogicalPlan::TableScan(scan))
            }
            LogicalPlan::Extension(node) => match dml::owned(&node, owner, tally) {
                Some(node) => Transformed::yes(LogicalPlan::Extension(node)),
                None => Transformed::no(LogicalPlan::Extension(node)),
            },
            other => Transformed::no(other),
        };
        match values.is_empty() {
            true => Ok(node),
            false => node.transform_data(|node| with_values(node, values)),
        }
    })?;
    Ok(plan.data)
}

/// Replaces the parameters of a node by `values`. Its columns keep their names, which other nodes
/// use.
fn with_values(node: LogicalPlan, values: &[ScalarValue]) -> PlanResult<Transformed<LogicalPlan>> {
    let names = NamePreserver::new(&node);
    node.map_expressions(|expr| {
        if !has_parameter(&expr)? {
            return Ok(Transformed::no(expr));
        }
        let name = names.save(&expr);
        let filled = expr.transform_up(|expr| filled(expr, values))?;
        Ok(filled.update_data(|expr| name.restore(expr)))
    })
}

/// `expr`, or the value if it is a parameter.
fn filled(expr: Expr, values: &[ScalarValue]) -> PlanResult<Transformed<Expr>> {
    let Expr::Placeholder(Placeholder { id, .. }) = &expr else {
        return Ok(Transformed::no(expr));
    };
    let number = params::number(id).map_err(|e| DataFusionError::External(Box::new(e)))?;
    Ok(match values.get(number - 1) {
        Some(value) => Transformed::yes(Expr::Literal(value.clone(), None)),
        None => Transformed::no(expr),
    })
}

/// Whether a plan for any values of these types can serve the values.
fn are_of(values: &[ScalarValue], types: &[Option<SqlType>]) -> bool {
    let fits = |(value, t): (&ScalarValue, &Option<SqlType>)| match t {
        Some(t) => params::is_plain(*t) && (value.is_null() || is_of_type(value, *t)),
        None => false,
    };
    values.len() == types.len() && values.iter().zip(types).all(fits)
}

/// Whether a value has exactly the type; other values are converted, or refused, by their texts.
pub(crate) fn is_of_type(value: &ScalarValue, t: SqlType) -> bool {
    match t {
        SqlType::Text => value.data_type().is_string(),
        other => value.data_type() == arrow_type(other),
    }
}

/// The traits of a plan.
struct PlanTraits {
    /// it holds nothing of its statement except present tables
    is_free: bool,
    /// it has parts that are known only at execution: parameters, volatile functions
    is_open: bool,
    /// it has functions whose values depend on more than their arguments and the current moment
    is_stable: bool,
}

fn look(plan: &LogicalPlan) -> PlanResult<PlanTraits> {
    let mut found = PlanTraits {
        is_free: true,
        is_open: false,
        is_stable: false,
    };
    plan.apply_with_subqueries(|node| {
        found.is_free &= is_free(node)?;
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                match expr {
                    Expr::Placeholder(_) => found.is_open = true,
                    // A grouping set has several expressions, so a parameter in it cannot be
                    // replaced alone.
                    Expr::GroupingSet(_) => found.is_free &= !has_parameter(expr)?,
                    Expr::ScalarFunction(call) => {
                        let function = call.func.inner().downcast_ref::<Function>();
                        if function.is_some_and(Function::has_computed_type) {
                            found.is_free &= !has_parameter(expr)?;
                        }
                        found.is_free &= !subplan::is_subplan(&call.func)
                            && !dml::draws_identity(&call.func)
                            && !pg_catalog::functions::is_system(&call.func);
                        let is_open = call.func.signature().volatility != Volatility::Immutable
                            && !subplan::is_value(&call.func);
                        found.is_open |= is_open;
                        found.is_stable |= is_open && moment_of(&call.func, 0).is_none();
                    }
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(found)
}

fn has_parameter(expr: &Expr) -> PlanResult<bool> {
    expr.exists(|e| Ok(matches!(e, Expr::Placeholder(_))))
}

/// Whether a node does not depend on its statement.
fn is_free(node: &LogicalPlan) -> PlanResult<bool> {
    Ok(match node {
        LogicalPlan::TableScan(scan) => {
            let provider = source_as_provider(&scan.source)?;
            let table = provider.downcast_ref::<Table>();
            table.is_some_and(Table::is_present)
                || provider.is::<ValueRows>()
                || provider.is::<ReturnedRows>()
        }
        LogicalPlan::Extension(node) => dml::is_own(node),
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Repartition(_)
        | LogicalPlan::Union(_)
        | LogicalPlan::EmptyRelation(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::Distinct(_)
        | LogicalPlan::Unnest(_) => true,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::{ErrorKind, SqlState};

    /// A cancellation does not invalidate the plan.
    #[test]
    fn only_a_plan_s_own_failure_is_remembered() {
        let failure = |state| Failure::of(&Error::new(ErrorKind::Invalid, state, "no plan"));
        for state in [
            SqlState::QUERY_CANCELED,
            SqlState("57P01"),
            SqlState::OUT_OF_MEMORY,
            SqlState::SERIALIZATION_FAILURE,
        ] {
            assert_eq!(failure(state), Failure::Moment, "{state:?}");
        }
        assert_eq!(failure(SqlState("22012")), Failure::Value);
        assert_eq!(failure(SqlState::UNDEFINED_COLUMN), Failure::Plan);
    }
}
