//! The type of an expression with alternatives, such as CASE or COALESCE, is known when the
//! analyzer has aligned them; until then DataFusion reports the first one's. A caller that stores
//! values under a plan's types, as CREATE TABLE … AS does, needs those of the analyzed plan.

use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// `plan` with its final types: analyzed if it has alternatives, else as it is.
pub fn settle_types(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    if !has_alternatives(&plan)? {
        return Ok(plan);
    }
    state
        .analyzer()
        .execute_and_check(plan, state.config_options(), |_, _| {})
}

fn has_alternatives(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|plan| {
        plan.apply_expressions(|expr| {
            found |= expr.exists(|e| Ok(is_alternative(e)))?;
            Ok(stop_at(found))
        })?;
        Ok(stop_at(found))
    })?;
    Ok(found)
}

fn stop_at(found: bool) -> TreeNodeRecursion {
    match found {
        true => TreeNodeRecursion::Stop,
        false => TreeNodeRecursion::Continue,
    }
}

fn is_alternative(expr: &Expr) -> bool {
    match expr {
        Expr::Case(_) => true,
        Expr::ScalarFunction(call) => takes_alternatives(call.name()),
        _ => false,
    }
}

/// Functions whose result is one of their arguments.
pub(super) fn takes_alternatives(name: &str) -> bool {
    matches!(
        name,
        "coalesce" | "nullif" | "greatest" | "least" | "make_array"
    )
}
