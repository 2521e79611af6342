//! DataFusion's `decorrelate_lateral_join`, restricted to subqueries whose DISTINCT it keeps right,
//! and extended to subqueries that read no table ([`super::lateral_rows`]).
//!
//! A LATERAL subquery becomes a join on its conditions over outer columns. DataFusion pulls these
//! conditions out from below a DISTINCT, which must then keep the compared columns. With any
//! condition but an equality, an outer row matches several rows of the DISTINCT and is repeated.
//! Such subqueries are not rewritten, and are refused (0A000) like all subqueries that DataFusion
//! cannot join.

use super::lateral_rows;
use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator};
use datafusion::optimizer::decorrelate_lateral_join::DecorrelateLateralJoin;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

/// The rule, in the place of DataFusion's rule.
#[derive(Debug, Default)]
pub struct LateralJoins {
    inner: DecorrelateLateralJoin,
}

impl OptimizerRule for LateralJoins {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }
    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if let LogicalPlan::Join(join) = &plan
            && let Some(plan) = lateral_rows::over_left_side(join)?
        {
            return Ok(Transformed::yes(plan));
        }
        if let LogicalPlan::Join(join) = &plan
            && let Some(subquery) = lateral(&join.right)
            && subquery.exists(|node| Ok(is_distinct(node)))?
            && !only_equalities(subquery)?
        {
            return Ok(Transformed::no(plan));
        }
        self.inner.rewrite(plan, config)
    }
}

/// The query of a LATERAL subquery.
fn lateral(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    match plan {
        LogicalPlan::Subquery(subquery) => Some(&subquery.subquery),
        LogicalPlan::SubqueryAlias(alias) => lateral(&alias.input),
        _ => None,
    }
}

/// Whether a node is a DISTINCT, or the aggregate that DataFusion makes from it.
fn is_distinct(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Distinct(_) | LogicalPlan::Aggregate(_))
}

/// Whether outer columns are used only in conditions `inner = outer column`.
pub fn only_equalities(plan: &LogicalPlan) -> Result<bool> {
    let mut only = true;
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            only &= match node {
                LogicalPlan::Filter(_) => is_conjunction_of_equalities(expr),
                _ => !expr.contains_outer(),
            };
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        })
    })?;
    Ok(only)
}

fn is_conjunction_of_equalities(expr: &Expr) -> bool {
    let parts = datafusion::logical_expr::utils::split_conjunction(expr);
    parts.into_iter().all(|part| match part {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == Operator::Eq => {
            match (left.contains_outer(), right.contains_outer()) {
                (true, true) => false,
                (true, false) => matches!(left.as_ref(), Expr::OuterReferenceColumn(..)),
                (false, true) => matches!(right.as_ref(), Expr::OuterReferenceColumn(..)),
                (false, false) => true,
            }
        }
        other => !other.contains_outer(),
    })
}
