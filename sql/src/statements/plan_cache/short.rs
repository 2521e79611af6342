//! The short plans of kept plans: compiled with the plan, and asked for before an execution, which
//! then needs no plan of DataFusion ([`short_plans`]).

use super::{Execution, Failure, Kept, PlanSlot, SlotState, are_of, look, plan};
use crate::catalogs::pg_catalog::display;
use crate::execution::dml::DmlForm;
use crate::execution::short_plans::{self, Answer, Inputs, ShortPlan, Surroundings};
use crate::planning::context::StatementContext;
use crate::planning::template::Template;
use crate::statements::roles;
use crate::statements::with_changes;
use crate::values::result::QueryResult;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{Expr, LogicalPlan, ScalarUDF};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast;
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
    /// Runs the short plan of a query's plan that has just been made; None: there is none, it
    /// stops, or it changes rows, which the session must be able to undo.
    pub(super) fn run_short(
        &self,
        kept: &Kept,
        context: &StatementContext,
    ) -> Result<Option<QueryResult>> {
        let Some(short) = kept.short.as_ref().filter(|short| short.only_reads()) else {
            return Ok(None);
        };
        let inputs = Inputs {
            transaction: context.statement.transaction(),
            values: self.values,
            memory: context.memory(),
            now_us: context.now_us(),
        };
        Ok(match short.run_for(&context.statement, &inputs)? {
            Some(Answer::Rows(result)) => {
                self.statistics.planned();
                Some(result)
            }
            _ => {
                self.statistics.short_stopped();
                None
            }
        })
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
        let (plan, form) = planned.ok()?;
        of_plan(context, &[], (&plan, form), self.types)
    }

    /// Keeps the short plan of a statement with changes in WITH, if it has one for any values.
    pub(super) async fn keep_short(
        &self,
        query: &ast::Query,
        context: &mut StatementContext,
    ) -> Result<()> {
        let key = self.key(context);
        let short = match (&key.values, self.open_statement()) {
            (None, Ok(open)) => {
                let open = with_changes::parted(&open).unwrap_or(query);
                context.open_parameters = true;
                let short = self.short_of_parts(open, context).await;
                context.open_parameters = false;
                short?
            }
            _ => None,
        };
        *self.slot.0.lock() = match short {
            None => SlotState::Bound(key),
            Some(short) => SlotState::Kept(Arc::new(Kept {
                key,
                plan: None,
                form: None,
                output: Arc::new(Schema::empty()),
                is_optimized: false,
                short: Some(Arc::new(short)),
            })),
        };
        Ok(())
    }

    /// An error that may be one of this moment only fails; another one shows when the statement is
    /// planned with its values.
    async fn short_of_parts(
        &self,
        query: &ast::Query,
        context: &StatementContext,
    ) -> Result<Option<ShortPlan>> {
        match plan_parted(context, query).await {
            Ok((parts, (plan, form))) => Ok(of_plan(context, &parts, (&plan, form), self.types)),
            Err(error) if Failure::of(&error) == Failure::Moment => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// A part of a statement: its name and its analyzed plan.
pub(super) type PlannedPart = (String, LogicalPlan);

/// The changes in a query's WITH, and the plan of what follows them.
pub(super) async fn plan_parted(
    context: &StatementContext,
    query: &ast::Query,
) -> Result<(Vec<PlannedPart>, (LogicalPlan, Option<DmlForm>))> {
    let rest = with_changes::plan(context, query).await?;
    let statement = rest.statement();
    context.writes_without_reading(roles::check::dml(context, &statement)?);
    let planned = plan(context, &statement).await?;
    let parts = rest.parts.into_iter().map(|part| (part.name, part.plan));
    Ok((parts.collect(), planned))
}

/// The short plan that a statement without parameters gets when it is repeated.
pub(crate) fn of_statement(
    context: &StatementContext,
    parts: &[PlannedPart],
    planned: (&LogicalPlan, Option<DmlForm>),
) -> Option<ShortPlan> {
    of_plan(context, parts, planned, &[])
}

/// `parts` are analyzed.
fn of_plan(
    context: &StatementContext,
    parts: &[PlannedPart],
    (plan, form): (&LogicalPlan, Option<DmlForm>),
    types: &[Option<SqlType>],
) -> Option<ShortPlan> {
    if display::is_needed(plan) {
        return None;
    }
    let analyzed = context.analyze(plan.clone()).ok()?;
    for plan in parts.iter().map(|(_, part)| part).chain([&analyzed]) {
        let traits = look(plan).ok()?;
        if !traits.is_free || traits.is_stable {
            return None;
        }
    }
    let output = semantics::sql::output_schema(plan.schema().inner());
    compile_parts(context, parts, &analyzed, types, (&output, form))
}

/// The short plan of an analyzed statement for any values of its parameters.
pub(super) fn compile(
    context: &StatementContext,
    analyzed: &LogicalPlan,
    types: &[Option<SqlType>],
    result: (&SchemaRef, Option<DmlForm>),
) -> Option<ShortPlan> {
    compile_parts(context, &[], analyzed, types, result)
}

/// As [`compile`], of a statement with changes in WITH.
pub(super) fn compile_parts(
    context: &StatementContext,
    parts: &[PlannedPart],
    analyzed: &LogicalPlan,
    types: &[Option<SqlType>],
    result: (&SchemaRef, Option<DmlForm>),
) -> Option<ShortPlan> {
    let parameters = types.iter().map(|t| t.map(arrow_type));
    let parameters = parameters.collect::<Option<Vec<_>>>()?;
    let mut moments = Vec::new();
    let mut optimized = |plan: &LogicalPlan| {
        let open = with_moments(plan.clone(), parameters.len(), &mut moments).ok()?;
        context.optimize(open).ok()
    };
    let parts = parts
        .iter()
        .map(|(name, part)| Some((name.clone(), optimized(part)?)));
    let parts = parts.collect::<Option<Vec<_>>>()?;
    let plan = optimized(analyzed)?;
    of_optimized_parts(context, &parts, &plan, (parameters, moments), result)
}

/// The short plan of an optimized statement without parameters and functions of the current moment.
pub(super) fn of_optimized(
    context: &StatementContext,
    optimized: &LogicalPlan,
    result: (&SchemaRef, Option<DmlForm>),
) -> Option<ShortPlan> {
    of_optimized_parts(context, &[], optimized, (Vec::new(), Vec::new()), result)
}

fn of_optimized_parts(
    context: &StatementContext,
    parts: &[PlannedPart],
    plan: &LogicalPlan,
    (parameters, moments): (Vec<DataType>, Vec<Arc<ScalarUDF>>),
    (output, form): (&SchemaRef, Option<DmlForm>),
) -> Option<ShortPlan> {
    let around = Surroundings {
        state: &context.state,
        db: context.statement.transaction().db(),
        catalog: &context.catalog,
        template: context.template(),
        parameters,
        moments,
        output,
        form,
    };
    short_plans::compile(parts, plan, around)
}

/// The plan with further parameters in place of functions of the current moment, which are added to
/// those known.
fn with_moments(
    plan: LogicalPlan,
    parameters: usize,
    moments: &mut Vec<Arc<ScalarUDF>>,
) -> PlanResult<LogicalPlan> {
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
    Ok(plan.data)
}
