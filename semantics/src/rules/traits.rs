//! Traits of a query's plan, from one walk over it: the steps of planning that it needs.

use super::alternatives::is_alternative;
use super::dimensions::refuse_unnested;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, LogicalPlan};

/// The traits of a plan as DataFusion's SQL planner makes it.
#[derive(Debug, Default)]
pub struct PlanTraits {
    /// an expression has a subquery
    pub has_subqueries: bool,
    has_alternatives: bool,
}

impl PlanTraits {
    /// The traits of `plan`.
    ///
    /// # Errors
    /// 0A000 if it unnests an array of several dimensions.
    pub fn of(plan: &LogicalPlan) -> Result<Self> {
        let mut traits = Self::default();
        plan.apply_with_subqueries(|node| {
            refuse_unnested(node)?;
            node.apply_expressions(|expr| {
                expr.apply(|part| {
                    traits.has_subqueries |= matches!(
                        part,
                        Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_)
                    );
                    traits.has_alternatives |= is_alternative(part);
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
        Ok(traits)
    }

    /// Whether [`settle_types`](super::settle_types) may have work. Subqueries that are taken out
    /// of the plan leave alternatives behind.
    pub fn may_have_alternatives(&self) -> bool {
        self.has_alternatives || self.has_subqueries
    }
}
