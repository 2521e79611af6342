//! Conditions that can fail are evaluated only for rows that pass the conditions that cannot:
//! `WHERE x <> 0 AND 10 / x > 1` does not divide by zero.
//!
//! DataFusion evaluates the conjuncts of a condition for whole batches, in any order. The conjuncts
//! that can fail (division, casts from text, our functions) become `CASE WHEN <the others> THEN
//! <them>::int8 ELSE 0 END > 0`, which evaluates them only where the others hold. (A CASE of
//! booleans would be simplified into a conjunction again.) The others also stay, for scans to take
//! over. The rule runs last, when filters are in their final places.

use crate::arithmetic;
use crate::cast::CastTo;
use crate::functions::Function;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::Case;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, Filter, LogicalPlan, Operator, lit};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The rule.
#[derive(Debug)]
pub struct GuardFallible;

impl OptimizerRule for GuardFallible {
    fn name(&self) -> &str {
        "guard_fallible_conditions"
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }
    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Filter(filter) = plan else {
            return Ok(Transformed::no(plan));
        };
        let parts = split_conjunction_owned(filter.predicate.clone());
        let (fallible, safe): (Vec<Expr>, Vec<Expr>) = parts
            .into_iter()
            .partition(|part| can_fail(part) && !is_guarded(part));
        let (Some(fallible), Some(guard)) = (conjunction(fallible), conjunction(safe)) else {
            return Ok(Transformed::no(LogicalPlan::Filter(filter)));
        };
        let then = Expr::Cast(Cast::new(Box::new(fallible), DataType::Int8));
        let pair = (Box::new(guard.clone()), Box::new(then));
        let guarded = Expr::Case(Case::new(None, vec![pair], Some(Box::new(lit(0i8)))));
        let filter = Filter::try_new(guard.and(guarded.gt(lit(0i8))), filter.input)?;
        Ok(Transformed::yes(LogicalPlan::Filter(filter)))
    }
}

/// Whether this rule has made the expression.
fn is_guarded(part: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Gt,
        ..
    }) = part
    else {
        return false;
    };
    let Expr::Case(case) = left.as_ref() else {
        return false;
    };
    let is_flag = |e: &Expr| matches!(e, Expr::Cast(c) if *c.field.data_type() == DataType::Int8);
    case.expr.is_none() && case.when_then_expr.iter().all(|(_, then)| is_flag(then))
}

/// Whether the expression can fail for some row.
fn can_fail(expr: &Expr) -> bool {
    let mut found = false;
    let visited = expr.apply(|expr| {
        if let Expr::ScalarFunction(call) = expr {
            let function = call.func.inner();
            found = function.is::<CastTo>()
                || function.is::<Function>()
                || arithmetic::divides(function.as_ref());
        }
        Ok(if found {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    });
    found && visited.is_ok()
}
