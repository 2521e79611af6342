//! The short plans of kept plans: compiled with the plan, and asked for before an execution, which
//! then needs no plan of DataFusion ([`short_plans`]).

use super::{Execution, Kept, PlanSlot, SlotState, are_of, look, plan};
use crate::catalogs::pg_catalog::display;
use crate::execution::short_plans::{self, Inputs, ShortPlan, Surroundings};
use crate::planning::context::StatementContext;
use crate::planning::template::Template;
use crate::values::result::QueryResult;
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{Result, SqlType};
use strandline_engine::catalog::Catalog;
use strandline_semantics as semantics;
use strandline_semantics::functions::moment_of;
use strandline_semantics::types::arrow_type;

/// The execution that looks for a short plan.
pub(crate) struct Sought<'a> {
    pub template: &'a Arc<Template>,
    pub values: &'a [ScalarValue],
    /// the types of the values; None: the values are of the types that the statement has
    pub types: Option<&'a [Option<SqlType>]>,
}

impl PlanSlot {
    /// The short plan for an execution that `uses` a catalog.
    pub fn short(
        &self,
        sought: &Sought<'_>,
        uses: impl FnOnce(&Arc<Catalog>) -> bool,
    ) -> Option<Arc<ShortPlan>> {
        let state = self.0.lock();
        let SlotState::Kept(kept) = &*state else {
            return None;
        };
        let short = kept.short.as_ref().filter(|plan| !plan.is_given_up())?;
        let key = &kept.key;
        let is_for = Arc::ptr_eq(&key.template, sought.template)
            && sought.types.is_none_or(|types| types == key.types)
            && are_of(sought.values, &key.types)
            && uses(&key.catalog);
        is_for.then(|| short.clone())
    }
}

impl Execution<'_> {
    /// Runs the short plan of a plan that has just been made; None: there is none, or it stops.
    pub(super) fn run_short(
        &self,
        kept: &Kept,
        context: &StatementContext,
    ) -> Result<Option<QueryResult>> {
        let Some(short) = &kept.short else {
            return Ok(None);
        };
        let inputs = Inputs {
            transaction: context.statement.transaction(),
            values: self.values,
            memory: context.memory(),
            now_us: context.now_us(),
        };
        let result = short.run_for(&context.statement, &inputs)?;
        match result {
            Some(_) => self.statistics.planned(),
            None => self.statistics.short_stopped(),
        }
        Ok(result)
    }

    /// The short plan of a query whose kept plan is for these values only, because a parameter is
    /// in a place of constants: LIMIT and OFFSET of a short plan may have any values.
    pub(super) async fn short_of_any(&self, context: &mut StatementContext) -> Option<ShortPlan> {
        if !self.is_generic() {
            return None;
        }
        let statement = self.open_statement().ok()?;
        context.open_parameters = true;
        let planned = plan(context, &statement).await;
        context.open_parameters = false;
        let (query, form) = planned.ok()?;
        match form {
            None => of_plan(context, &query, self.types),
            Some(_) => None,
        }
    }
}

/// The short plan that a query without parameters gets when it is repeated.
pub(crate) fn of_query(context: &StatementContext, query: &LogicalPlan) -> Option<ShortPlan> {
    of_plan(context, query, &[])
}

fn of_plan(
    context: &StatementContext,
    query: &LogicalPlan,
    types: &[Option<SqlType>],
) -> Option<ShortPlan> {
    if display::is_needed(query) {
        return None;
    }
    let analyzed = context.analyze(query.clone()).ok()?;
    let traits = look(&analyzed).ok()?;
    if !traits.is_free || traits.is_stable {
        return None;
    }
    let output = semantics::sql::output_schema(query.schema().inner());
    compile(context, &analyzed, types, &output)
}

/// The short plan of an analyzed query for any values of its parameters.
pub(super) fn compile(
    context: &StatementContext,
    analyzed: &LogicalPlan,
    types: &[Option<SqlType>],
    output: &SchemaRef,
) -> Option<ShortPlan> {
    let parameters = types.iter().map(|t| t.map(arrow_type));
    let parameters = parameters.collect::<Option<Vec<_>>>()?;
    let (open, moments) = with_moments(analyzed.clone(), parameters.len()).ok()?;
    let optimized = context.optimize(open).ok()?;
    of_parts(context, &optimized, (parameters, moments), output)
}

/// The short plan of an optimized query without parameters and functions of the current moment.
pub(super) fn of_optimized(
    context: &StatementContext,
    optimized: &LogicalPlan,
    output: &SchemaRef,
) -> Option<ShortPlan> {
    of_parts(context, optimized, (Vec::new(), Vec::new()), output)
}

fn of_parts(
    context: &StatementContext,
    optimized: &LogicalPlan,
    (parameters, moments): (Vec<DataType>, Vec<Arc<ScalarUDF>>),
    output: &SchemaRef,
) -> Option<ShortPlan> {
    let around = Surroundings {
        state: &context.state,
        db: context.statement.transaction().db(),
        catalog: &context.catalog,
        template: context.template(),
        parameters,
        moments,
        output,
    };
    short_plans::compile(optimized, around)
}

/// The plan with further parameters in place of functions of the current moment, and these
/// functions.
fn with_moments(
    plan: LogicalPlan,
    parameters: usize,
) -> PlanResult<(LogicalPlan, Vec<Arc<ScalarUDF>>)> {
    let mut moments: Vec<Arc<ScalarUDF>> = Vec::new();
    let mut parameter = |expr: Expr| {
        let Expr::ScalarFunction(call) = &expr else {
            return Ok(Transformed::no(expr));
        };
        if moment_of(&call.func, 0).is_none() {
            return Ok(Transformed::no(expr));
        }
        let mut known = moments.iter();
        let at = known.position(|known| known == &call.func);
        let at = at.unwrap_or_else(|| {
            moments.push(call.func.clone());
            moments.len() - 1
        });
        let field = Field::new("moment", call.func.return_type(&[])?, true);
        let id = format!("${}", parameters + at + 1);
        let placeholder = Placeholder::new_with_field(id, Some(Arc::new(field)));
        Ok(Transformed::yes(Expr::Placeholder(placeholder)))
    };
    let plan = plan.transform_up_with_subqueries(|node| {
        let names = NamePreserver::new(&node);
        node.map_expressions(|expr| {
            let name = names.save(&expr);
            let replaced = expr.transform_up(&mut parameter)?;
            Ok(replaced.update_data(|expr| name.restore(expr)))
        })
    })?;
    Ok((plan.data, moments))
}
