//! Analyzer and optimizer rules.
//!
//! Order: [`ResolveLiterals`] before DataFusion's type coercion, which must see typed operands;
//! [`Casts`] after it, so that the casts it inserts are covered too. [`CompareDates`] and
//! [`GuardFallible`] run among the optimizer's rules, the latter last.

mod alternatives;
mod casts;
mod comparands;
mod guards;
mod literals;
mod midnight;
mod multisets;
mod recursion;
mod unions;

pub use alternatives::settle_types;
pub use casts::{Casts, cast_target, literal_shape, replacement};
pub use guards::GuardFallible;
pub use literals::ResolveLiterals;
pub use midnight::CompareDates;
pub use unions::align_unions;

use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Rewrites every expression of every node, subqueries included, bottom-up; `f` gets the columns
/// the expression can refer to. Column names stay what they were.
fn rewrite_expressions(
    plan: LogicalPlan,
    f: impl Fn(Expr, &DFSchema) -> Result<Transformed<Expr>>,
) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|plan| {
        let mut schema = merge_schema(&plan.inputs());
        if let LogicalPlan::TableScan(scan) = &plan {
            schema.merge(&DFSchema::try_from_qualified_schema(
                scan.table_name.clone(),
                &scan.source.schema(),
            )?);
        }
        let names = NamePreserver::new(&plan);
        let node = plan.map_expressions(|expr| {
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
