//! The plans of queries that are run again and again: parsed, names resolved, types settled; only
//! what depends on data and values is done at each execution.
//!
//! A query that a client or a program prepares keeps one plan from its second execution on; what
//! SQL's PREPARE names is planned at each EXECUTE. The plan is bound to no snapshot:
//! an execution puts its own tables and values into a copy of it.
//!
//! Invariants:
//! 1. A kept plan is used only with the very catalog and settings it was made with ([`Key`]): so
//!    its names, types and privileges are those of now.
//! 2. It has nothing of the statement that made it, whose snapshot it would keep: tables are taken
//!    out and put back for each execution. Tables of
//!    the past, files, system tables and functions, subqueries run row by row and locking clauses
//!    are reasons to plan anew each time ([`is_free`]).
//! 3. A plan for any values stands for parameters of declared types whose literals have no shape of
//!    their own ([`is_plain`]), and values of just these types; others are part of the key.
//! 4. A plan that has been optimized too has neither parameters nor functions of the moment.

use crate::context::StatementContext;
use crate::error::convert;
use crate::params;
use crate::pg_catalog::{self, display};
use crate::provider::table::{Table, UnboundTable};
use crate::semantics;
use crate::semantics::functions::Function;
use crate::semantics::types::arrow_type;
use crate::session::describe::place_parameters;
use crate::statistics::StatementStatistics;
use crate::subplan;
use crate::template::Template;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result as PlanResult};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, Volatility};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;
use parking_lot::Mutex;
use std::sync::Arc;
use strandline_base::{Result, SqlType};
use strandline_engine::Statement;
use strandline_engine::catalog::Catalog;

/// What a prepared query has of its plan.
#[derive(Debug, Default)]
pub(crate) struct PlanSlot(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    /// it has not run yet
    #[default]
    New,
    /// it has run before
    Used,
    Kept(Arc<Kept>),
    /// its plan cannot be kept
    Bound(Key),
}

/// What a plan is good for.
#[derive(Clone, Debug)]
struct Key {
    catalog: Arc<Catalog>,
    template: Arc<Template>,
    /// the parameters' types
    types: Option<Vec<Option<SqlType>>>,
    /// None: any values
    values: Option<Vec<ScalarValue>>,
}

#[derive(Debug)]
struct Kept {
    key: Key,
    plan: LogicalPlan,
    /// the columns that users see
    output: SchemaRef,
    is_optimized: bool,
}

/// One execution of a prepared query.
pub(crate) struct Execution<'a> {
    /// with its parameters' numbers in it
    pub query: &'a ast::Query,
    /// where its plan is kept
    pub slot: &'a PlanSlot,
    pub values: &'a [ScalarValue],
    /// what is known of the parameters' types; None: they are their values'
    pub types: Option<&'a [Option<SqlType>]>,
    pub statistics: &'a StatementStatistics,
}

/// What a slot has for an execution.
enum Known {
    /// nothing: it is planned for itself
    No,
    /// a plan is to be made and kept
    NotYet,
    Kept(Arc<Kept>),
}

/// A query's columns and rows.
type Rows = (SchemaRef, SendableRecordBatchStream);

impl Execution<'_> {
    /// Runs the query by its kept plan, or plans one and keeps it; None: it is to be planned as if
    /// there were no others.
    pub async fn run(&self, context: &mut StatementContext) -> Result<Option<Rows>> {
        let kept = match self.known(context) {
            Known::No => return Ok(None),
            Known::Kept(kept) => {
                self.statistics.reused();
                kept
            }
            Known::NotYet => match self.keep(context).await {
                Some(kept) => {
                    self.statistics.planned();
                    kept
                }
                // Also where planning fails: planning anew says why.
                None => {
                    *self.slot.0.lock() = State::Bound(self.key(context));
                    return Ok(None);
                }
            },
        };
        match self.run_by(&kept, context).await {
            Ok(rows) => Ok(Some(rows)),
            // Values that the plan does not suit; or whatever planning anew says.
            Err(_) if !self.values.is_empty() => {
                *self.slot.0.lock() = State::Bound(self.key(context));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn run_by(&self, kept: &Kept, context: &mut StatementContext) -> Result<Rows> {
        let plan = kept.bound(&context.statement, self.values);
        let plan = plan.map_err(convert)?;
        context.fit(&plan)?;
        let rows = context.run_analyzed(plan, &kept.output, kept.is_optimized);
        rows.await
    }

    fn known(&self, context: &StatementContext) -> Known {
        let mut state = self.slot.0.lock();
        match &*state {
            State::New => {
                *state = State::Used;
                Known::No
            }
            State::Kept(kept) if kept.key.is_for(self, context) => match &kept.key.values {
                Some(values) if values != self.values => Known::No,
                None if !self.is_generic() => Known::No,
                _ => Known::Kept(kept.clone()),
            },
            State::Bound(key) if key.is_for(self, context) => Known::No,
            State::Used | State::Kept(_) | State::Bound(_) => Known::NotYet,
        }
    }

    /// Whether the values are such as one plan may serve.
    fn is_generic(&self) -> bool {
        let fits = |(value, t): (&ScalarValue, &Option<SqlType>)| match t {
            Some(t) => is_plain(*t) && (value.is_null() || is_of_type(value, *t)),
            None => false,
        };
        match self.types {
            None => self.values.is_empty(),
            Some(types) => self.values.iter().zip(types).all(fits),
        }
    }

    fn key(&self, context: &StatementContext) -> Key {
        let serves_all = self.is_generic() && !params::need_constants(self.query);
        Key {
            catalog: context.catalog.clone(),
            template: context.template().clone(),
            types: self.types.map(<[_]>::to_vec),
            values: (!serves_all).then(|| self.values.to_vec()),
        }
    }

    /// The query with its values in it.
    pub fn bound_query(&self) -> Result<ast::Query> {
        let mut query = self.query.clone();
        match self.types {
            Some(types) => params::bind(&mut query, self.values, types)?,
            None => params::substitute(&mut query, self.values)?,
        }
        Ok(query)
    }

    /// The query with placeholders of the parameters' types in it.
    fn open_query(&self) -> Result<ast::Query> {
        let mut query = self.query.clone();
        place_parameters(&mut query, self.types.unwrap_or_default())?;
        Ok(query)
    }

    async fn keep(&self, context: &StatementContext) -> Option<Arc<Kept>> {
        let key = self.key(context);
        let query = match key.values {
            None => self.open_query(),
            Some(_) => self.bound_query(),
        };
        let query = query.ok()?;
        let plan = context.plan_open(&query).await.ok()?;
        if display::is_needed(&plan) {
            return None;
        }
        let output = semantics::sql::output_schema(plan.schema().inner());
        let analyzed = context.analyze(plan).ok()?;
        let found = look(&analyzed).ok()?;
        if !found.is_free {
            return None;
        }
        let is_optimized = !found.is_open;
        let plan = match is_optimized {
            true => context.optimize(analyzed).ok()?,
            false => analyzed,
        };
        let kept = Arc::new(Kept {
            key,
            plan: unbound(plan).ok()?,
            output,
            is_optimized,
        });
        *self.slot.0.lock() = State::Kept(kept.clone());
        Some(kept)
    }
}

impl Key {
    fn is_for(&self, execution: &Execution<'_>, context: &StatementContext) -> bool {
        Arc::ptr_eq(&self.catalog, &context.catalog)
            && Arc::ptr_eq(&self.template, context.template())
            && self.types.as_deref() == execution.types
    }
}

impl Kept {
    /// The plan for one execution.
    fn bound(&self, statement: &Arc<Statement>, values: &[ScalarValue]) -> PlanResult<LogicalPlan> {
        let values = match self.key.values {
            None => values,
            Some(_) => &[],
        };
        let plan = self.plan.clone();
        let bound = plan.transform_up_with_subqueries(|node| {
            let node = match node {
                LogicalPlan::TableScan(mut scan) => {
                    let provider = source_as_provider(&scan.source)?;
                    if let Some(table) = provider.downcast_ref::<UnboundTable>() {
                        let table = table.read_by(statement.clone());
                        scan.source = provider_as_source(Arc::new(table));
                    }
                    Transformed::yes(LogicalPlan::TableScan(scan))
                }
                other => Transformed::no(other),
            };
            match values.is_empty() {
                true => Ok(node),
                false => node.transform_data(|node| with_values(node, values)),
            }
        })?;
        Ok(bound.data)
    }
}

/// The plan without its statement, whose snapshot it would keep.
fn unbound(plan: LogicalPlan) -> PlanResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        let LogicalPlan::TableScan(mut scan) = node else {
            return Ok(Transformed::no(node));
        };
        let provider = source_as_provider(&scan.source)?;
        if let Some(table) = provider.downcast_ref::<Table>() {
            scan.source = provider_as_source(Arc::new(table.unbound()));
        }
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok(plan.data)
}

/// A node whose parameters are `values`. Its columns keep their names: others refer to them.
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

/// `expr` or, if that is a parameter, its value.
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

/// Whether a value is of the type as it is: others are converted, or refused, by their texts.
fn is_of_type(value: &ScalarValue, t: SqlType) -> bool {
    match t {
        SqlType::Text => value.data_type().is_string(),
        other => value.data_type() == arrow_type(other),
    }
}

/// Whether a literal of the type is of the type and nothing more: a numeric one has a scale.
fn is_plain(t: SqlType) -> bool {
    matches!(
        t,
        SqlType::Boolean
            | SqlType::SmallInt
            | SqlType::Integer
            | SqlType::BigInt
            | SqlType::Double
            | SqlType::Text
            | SqlType::Date
            | SqlType::Timestamp
            | SqlType::TimestampTz
            | SqlType::Uuid
    )
}

/// What was found in a plan.
struct Found {
    /// it has nothing of its statement but tables of the present
    is_free: bool,
    /// something in it is known only when it runs: a parameter, the time
    is_open: bool,
}

fn look(plan: &LogicalPlan) -> PlanResult<Found> {
    let mut found = Found {
        is_free: true,
        is_open: false,
    };
    plan.apply_with_subqueries(|node| {
        found.is_free &= is_free(node)?;
        node.apply_expressions(|expr| {
            expr.apply(|expr| {
                match expr {
                    Expr::Placeholder(_) => found.is_open = true,
                    // Its place in the node is that of no single expression.
                    Expr::GroupingSet(_) => found.is_free &= !has_parameter(expr)?,
                    Expr::ScalarFunction(call) => {
                        let function = call.func.inner().downcast_ref::<Function>();
                        if function.is_some_and(Function::has_computed_type) {
                            found.is_free &= !has_parameter(expr)?;
                        }
                        found.is_free &= !subplan::is_subplan(&call.func)
                            && !pg_catalog::functions::is_system(&call.func);
                        found.is_open |= call.func.signature().volatility != Volatility::Immutable;
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

/// Whether a node would be the same for another statement.
fn is_free(node: &LogicalPlan) -> PlanResult<bool> {
    Ok(match node {
        LogicalPlan::TableScan(scan) => {
            let provider = source_as_provider(&scan.source)?;
            provider
                .downcast_ref::<Table>()
                .is_some_and(Table::is_present)
        }
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
