//! The subqueries that DataFusion can turn into joins.

use super::ExprPosition;
use crate::planning::scalar_subqueries;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Subquery, logical_plan};
use datafusion::optimizer::decorrelate::PullUpCorrelatedExpr;
use strandline_semantics::rules::only_equalities;

/// Whether DataFusion executes the subquery expression `expr` at `place`, over columns of `schema`.
pub fn is_possible(expr: &Expr, place: ExprPosition, schema: &DFSchema) -> Result<bool> {
    match expr {
        Expr::ScalarSubquery(subquery) => {
            let is_correlated = !subquery.subquery.all_out_ref_exprs().is_empty();
            Ok(!is_correlated || place != ExprPosition::Other && scalar(subquery)?)
        }
        Expr::Exists(Exists { subquery, .. }) => {
            Ok(place.is_in_filter() && pulls_up(subquery, false)?)
        }
        Expr::InSubquery(membership) => Ok(place.is_in_filter()
            && is_known_by_join(membership, place, schema)?
            && (place == ExprPosition::Condition || !is_ambiguous(&membership.subquery)?)
            && pulls_up(&membership.subquery, false)?),
        _ => Ok(true),
    }
}

/// Whether the plan of a scalar subquery has a row for any input.
pub fn has_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(projection) => has_one_row(&projection.input),
        LogicalPlan::SubqueryAlias(alias) => has_one_row(&alias.input),
        LogicalPlan::Aggregate(aggregate) => aggregate.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(empty) => empty.produce_one_row,
        _ => false,
    }
}

/// Whether a join computes IN correctly at `place`. A semi join and a mark join take NULL for
/// false. Only the anti join of one key without other conditions lets NULLs make NOT IN unknown;
/// its key must be a key of columns.
fn is_known_by_join(
    membership: &InSubquery,
    place: ExprPosition,
    schema: &DFSchema,
) -> Result<bool> {
    let plan = &membership.subquery.subquery;
    let is_correlated = !plan.all_out_ref_exprs().is_empty();
    match (place, membership.negated) {
        (ExprPosition::Condition | ExprPosition::Alternative, false) => Ok(true),
        (ExprPosition::Condition, true) => Ok(!is_correlated && is_variable(&membership.expr)),
        _ => {
            let column_is_nullable = plan.schema().fields().iter().any(|f| f.is_nullable());
            Ok(!column_is_nullable && !membership.expr.nullable(schema)?)
        }
    }
}

/// Whether no planner can reduce the value to a constant, which would not be a join key.
fn is_variable(expr: &Expr) -> bool {
    let is_literal = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if !value.is_null());
    match expr {
        Expr::Column(_) => true,
        Expr::Cast(cast) => is_variable(&cast.expr),
        Expr::ScalarFunction(call) => {
            !call.func.short_circuits()
                && call.args.iter().any(is_variable)
                && call
                    .args
                    .iter()
                    .all(|arg| is_variable(arg) || is_literal(arg))
        }
        _ => false,
    }
}

/// Whether a scalar subquery can be joined. It is joined as an aggregate, and only equalities can
/// be pulled up through an aggregate.
fn scalar(subquery: &Subquery) -> Result<bool> {
    let aggregated = scalar_subqueries::as_aggregate(subquery)?;
    let subquery = aggregated.as_ref().map_or(subquery, |(s, _)| s);
    Ok(only_equalities(&subquery.subquery)? && pulls_up(subquery, true)?)
}

fn pulls_up(subquery: &Subquery, scalar: bool) -> Result<bool> {
    let plan = subquery.subquery.as_ref();
    if plan.all_out_ref_exprs().is_empty() {
        return Ok(true);
    }
    // The aggregate has a row where the join would find none.
    if !scalar && plan.exists(|node| Ok(has_row_of_nothing(node)))? {
        return Ok(false);
    }
    let outer = LogicalPlan::Filter(logical_plan::Filter::try_new(
        datafusion::logical_expr::lit(true),
        subquery.subquery.clone(),
    )?);
    let as_exists = Expr::Exists(Exists {
        subquery: subquery.clone(),
        negated: false,
    });
    if logical_plan::check_subquery_expr(&outer, plan, &as_exists).is_err() {
        return Ok(false);
    }
    let mut pull_up = PullUpCorrelatedExpr::new()
        .with_need_handle_count_bug(scalar)
        .with_exists_sub_query(!scalar);
    Ok(match plan.clone().rewrite(&mut pull_up) {
        Ok(pulled) => pull_up.can_pull_up && has_true_schemas(&pulled.data)?,
        Err(_) => false,
    })
}

/// Whether every node of a plan has the right schema. DataFusion adds columns to projections and
/// aggregates without updating the nodes above them.
fn has_true_schemas(plan: &LogicalPlan) -> Result<bool> {
    let mut is_true = true;
    plan.apply(|node| {
        let columns = node.schema().fields().len();
        is_true &= node.clone().recompute_schema()?.schema().fields().len() == columns;
        Ok(match is_true {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(is_true)
}

/// Whether a mark join could confuse two columns. The subquery's own column has no qualifier, and a
/// condition on groups adds further columns without one.
fn is_ambiguous(subquery: &Subquery) -> Result<bool> {
    let plan = subquery.subquery.as_ref();
    let (qualifier, _) = plan.schema().qualified_field(0);
    let has_groups = |node: &LogicalPlan| Ok(matches!(node, LogicalPlan::Aggregate(_)));
    Ok(qualifier.is_none() && !plan.all_out_ref_exprs().is_empty() && plan.exists(has_groups)?)
}

/// Whether a node has a row for an empty input.
fn has_row_of_nothing(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            matches!(aggregate.group_expr.as_slice(), [] | [Expr::GroupingSet(_)])
        }
        _ => false,
    }
}
