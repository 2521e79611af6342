//! Expressions that a definition may not contain. Conditions, defaults and indexes refer to a
//! single row.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::Expr as Plan;
use datafusion::sql::sqlparser::ast::Expr;
use strandline_base::{Error, Result, SqlState};
use strandline_semantics::error::convert;
use strandline_semantics::sql::walk::any_expression;

/// 42803 for an aggregate and 42P20 for a window function in `planned`, used in `place`.
pub fn refuse_aggregates(planned: &Plan, place: &str) -> Result<()> {
    let mut found = Ok(());
    planned
        .apply(|expr| {
            let (state, what) = match expr {
                Plan::AggregateFunction(_) => ("42803", "aggregate"),
                Plan::WindowFunction(_) => ("42P20", "window"),
                _ => return Ok(TreeNodeRecursion::Continue),
            };
            let message = format!("{what} functions are not allowed in {place}");
            found = Err(Error::invalid(SqlState(state), message));
            Ok(TreeNodeRecursion::Stop)
        })
        .map_err(convert)?;
    found
}

/// Whether the expression is a subquery.
pub fn is_subquery(expr: &Expr) -> bool {
    matches!(
        expr,
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::InSubquery { .. }
    )
}

/// 0A000 for a subquery in `expr`; `what` is the expression's kind.
pub fn refuse_subqueries(expr: &Expr, what: &str) -> Result<()> {
    if any_expression(expr, is_subquery) {
        return Err(Error::unsupported(format!(
            "cannot use subquery in {what} expression"
        )));
    }
    Ok(())
}
