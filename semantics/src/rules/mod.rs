//! Analyzer and optimizer rules.
//!
//! Order: [`ColumnsOfGroupingSets`] runs before any rule that rewrites expressions.
//! [`RequireOrders`] runs first of all, on the statement as it is written.
//! [`ResolveLiterals`] runs before DataFusion's type coercion, which must see typed operands;
//! [`Casts`] runs after it, so that it also handles inserted casts. [`CompareDates`] and
//! [`GuardFallible`] are optimizer rules, the latter the last one, behind [`UnsignZeros`] and
//! [`KeysBelow`].
//! [`Simplify`], [`PushDownConditions`], [`DistinctAggregates`], [`LateralJoins`] and
//! [`DistinctRows`] replace DataFusion's rules of the same names, which are wrong for some
//! statements. [`hide_false_keys`] adds rules around the rules that use keys.

mod alternatives;
mod casts;
mod comparands;
mod dimensions;
mod distinct;
mod groups;
mod guards;
mod in_lists;
mod keys;
mod keys_below;
mod lateral;
mod lateral_rows;
mod literals;
mod midnight;
mod multisets;
mod orders;
mod pushdown;
mod recursion;
mod traits;
mod unions;
mod zeros;

pub use alternatives::settle_types;
pub use casts::{Casts, replacement};
use distinct::DistinctAggregates;
pub use groups::ColumnsOfGroupingSets;
pub use guards::{GuardFallible, Place, guard};
use in_lists::Simplify;
use keys::DistinctRows;
pub use keys::{KeylessRelations, hide_false_keys};
pub use keys_below::KeysBelow;
use lateral::LateralJoins;
pub use lateral::only_equalities;
pub use literals::ResolveLiterals;
pub use midnight::CompareDates;
pub use orders::RequireOrders;
use pushdown::PushDownConditions;
pub use traits::PlanTraits;
pub use unions::align_unions;
pub use zeros::{UnsignZeros, unsign_lists};

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::optimizer::OptimizerRule;
use std::sync::Arc;

/// Replaces DataFusion's rules by corrected ones.
pub fn replace(rules: &mut [Arc<dyn OptimizerRule + Send + Sync>]) {
    let corrected: [Arc<dyn OptimizerRule + Send + Sync>; 5] = [
        Arc::new(Simplify::default()),
        Arc::new(PushDownConditions::default()),
        Arc::new(DistinctAggregates::default()),
        Arc::new(LateralJoins::default()),
        Arc::new(DistinctRows::default()),
    ];
    for rule in rules {
        if let Some(ours) = corrected.iter().find(|ours| ours.name() == rule.name()) {
            *rule = Arc::clone(ours);
        }
    }
}

/// Rewrites the expressions of every node, including subqueries, bottom-up, if a part of them is
/// `concerned`. `f` gets the columns that the expression can refer to. Column names do not change.
fn rewrite_expressions(
    plan: LogicalPlan,
    concerned: fn(&Expr) -> bool,
    f: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    let has_concerned = |expr: &Expr| expr.exists(|part| Ok(concerned(part)));
    let rewritten = plan.transform_up_with_subqueries(|plan| {
        if !any_expression(&plan, has_concerned)? {
            return Ok(Transformed::no(plan));
        }
        let mut schema = merge_schema(&plan.inputs());
        if let LogicalPlan::TableScan(scan) = &plan {
            schema.merge(&DFSchema::try_from_qualified_schema(
                scan.table_name.clone(),
                &scan.source.schema(),
            )?);
        }
        let names = NamePreserver::new(&plan);
        let node = plan.map_expressions(|expr| {
            if !has_concerned(&expr)? {
                return Ok(Transformed::no(expr));
            }
            let name = names.save(&expr);
            Ok(f(expr, &schema)?.update_data(|expr| name.restore(expr)))
        })?;
        if node.transformed {
            node.map_data(|plan| plan.recompute_schema())
        } else {
            Ok(node)
        }
    })?;
    Ok(rewritten.data)
}

/// Whether `holds` is true of an expression of a node.
fn any_expression(
    node: &LogicalPlan,
    mut holds: impl FnMut(&Expr) -> Result<bool>,
) -> Result<bool> {
    let mut found = false;
    node.apply_expressions(|expr| {
        found = holds(expr)?;
        Ok(stop_at(found))
    })?;
    Ok(found)
}

/// Whether `holds` is true of a node, including subqueries.
fn any_node(
    plan: &LogicalPlan,
    mut holds: impl FnMut(&LogicalPlan) -> Result<bool>,
) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        found = holds(node)?;
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
