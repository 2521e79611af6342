//! INTERSECT ALL and EXCEPT ALL count duplicates: of a row with m copies on the left and n on the
//! right, the result has min(m, n) or max(m - n, 0) copies. DataFusion plans them as semi and anti
//! joins on all columns, which do not count. Here both sides number their equal rows, and the join
//! compares the numbers too.

use super::unions::is_set_operation;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Expr, ExprFunctionExt, Join, LogicalPlan, LogicalPlanBuilder};
use std::sync::Arc;

/// The number of a row among its equals; no user can write the control character.
const LEFT_NUMBER: &str = "\u{1f}left number";
const RIGHT_NUMBER: &str = "\u{1f}right number";

/// Makes every INTERSECT ALL and EXCEPT ALL of `plan` count duplicates.
pub(super) fn count_duplicates(plan: LogicalPlan) -> Result<LogicalPlan> {
    let counted = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Join(join) if counts(&join) => Ok(Transformed::yes(numbered(join)?)),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(counted.data)
}

/// Whether the join is a set operation with ALL; without ALL its left side is distinct.
fn counts(join: &Join) -> bool {
    is_set_operation(join)
        && !matches!(without_casts(&join.left), LogicalPlan::Distinct(_))
        && !has_column(&join.right, RIGHT_NUMBER)
}

/// The plan below projections that only cast its columns.
fn without_casts(plan: &LogicalPlan) -> &LogicalPlan {
    match plan {
        LogicalPlan::Projection(projection)
            if projection
                .expr
                .iter()
                .all(|e| match e.clone().unalias().unalias() {
                    Expr::Cast(cast) => matches!(*cast.expr, Expr::Column(_)),
                    other => matches!(other, Expr::Column(_)),
                }) =>
        {
            without_casts(&projection.input)
        }
        other => other,
    }
}

fn has_column(plan: &LogicalPlan, name: &str) -> bool {
    plan.schema().has_column_with_unqualified_name(name)
}

fn numbered(mut join: Join) -> Result<LogicalPlan> {
    let columns: Vec<Expr> = join
        .left
        .schema()
        .columns()
        .into_iter()
        .map(Expr::Column)
        .collect();
    let (left, right): (Vec<Expr>, Vec<Expr>) = join.on.iter().cloned().unzip();
    let left = number(&join.left, left, LEFT_NUMBER)?;
    let right = number(&join.right, right, RIGHT_NUMBER)?;
    join.on.push((
        Expr::Column(Column::from_name(LEFT_NUMBER)),
        Expr::Column(Column::from_name(RIGHT_NUMBER)),
    ));
    let join = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        join.on,
        join.filter,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(join))
        .project(columns)?
        .build()
}

/// `plan` with a column `name` that numbers the rows whose `keys` are equal.
fn number(plan: &Arc<LogicalPlan>, keys: Vec<Expr>, name: &str) -> Result<LogicalPlan> {
    let number = row_number().partition_by(keys).build()?.alias(name);
    LogicalPlanBuilder::from(plan.as_ref().clone())
        .window([number])?
        .build()
}
