//! Types of expressions with alternatives, such as CASE or COALESCE. Until the analyzer has aligned
//! the alternatives, DataFusion reports the type of the first. A caller that stores values by a
//! plan's types, such as CREATE TABLE … AS, needs the analyzed plan's types.

use super::{any_expression, any_node};
use crate::error::invalid;
use crate::functions::interval_order;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, when};
use datafusion::scalar::ScalarValue;
use strandline_base::SqlState;

/// `plan` with its final types: analyzed if it has alternatives, else unchanged.
pub fn settle_types(plan: LogicalPlan, state: &SessionState) -> Result<LogicalPlan> {
    if !has_alternatives(&plan)? {
        return Ok(plan);
    }
    state
        .analyzer()
        .execute_and_check(plan, state.config_options(), |_, _| {})
}

fn has_alternatives(plan: &LogicalPlan) -> Result<bool> {
    any_node(plan, |node| {
        any_expression(node, |expr| expr.exists(|e| Ok(is_alternative(e))))
    })
}

/// Whether an expression's result is one of its parts.
pub(super) fn is_alternative(expr: &Expr) -> bool {
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

/// Whether all arguments are intervals or NULL.
pub(super) fn are_intervals(args: &[Expr], schema: &DFSchema) -> Result<bool> {
    let types = args.iter().map(|arg| arg.get_type(schema));
    let types: Vec<DataType> = types.collect::<Result<_>>()?;
    let interval = |t: &DataType| matches!(t, DataType::Interval(_));
    Ok(types.iter().any(interval) && types.iter().all(|t| interval(t) || t.is_null()))
}

/// The longest or shortest of the intervals that are not NULL, in the order of comparisons. Arrow
/// would compare months first.
pub(super) fn extreme_interval(name: &str, args: Vec<Expr>) -> Result<Expr> {
    /// Every argument triples the expression.
    const MOST: usize = 5;
    if args.len() > MOST {
        let message = format!("{name} of more than {MOST} intervals is not supported");
        return Err(invalid(SqlState::FEATURE_NOT_SUPPORTED, message));
    }
    let mut args = args.into_iter();
    let mut best = args
        .next()
        .unwrap_or(Expr::Literal(ScalarValue::Null, None));
    for next in args {
        let (order, other) = (interval_order(next.clone()), interval_order(best.clone()));
        let better = match name {
            "greatest" => order.gt(other),
            _ => order.lt(other),
        };
        best = when(next.clone().is_null(), best.clone())
            .when(best.clone().is_null().or(better), next)
            .otherwise(best)?;
    }
    Ok(best)
}
