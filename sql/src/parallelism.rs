//! How many partitions a query is planned for: one if it is small, because exchanges between
//! threads and planning them cost more than they gain.
//!
//! A query is small if all that it reads is stored tables and VALUES with few rows together, joined
//! by equal values: mostly, what comes of that is not much more than what goes in. Joins that WHERE
//! alone makes are not seen yet where this is decided, and count as products.

use crate::dml;
use crate::provider::table::Table;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::LogicalPlan;

/// The rows of all tables of a small query together, at most. One thread scans and aggregates them
/// in a fraction of a millisecond.
const FEW_ROWS: usize = 1 << 15;

/// The number of partitions to plan `plan` for, `most` at most.
pub fn partitions(plan: &LogicalPlan, most: usize) -> Result<usize> {
    let mut rows = 0_usize;
    plan.apply_with_subqueries(|node| {
        rows = rows.saturating_add(rows_of(node)?);
        Ok(match rows <= FEW_ROWS {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(if rows <= FEW_ROWS { 1 } else { most })
}

/// The rows that a node adds to its inputs'; `usize::MAX`: it cannot be told.
fn rows_of(node: &LogicalPlan) -> Result<usize> {
    match node {
        LogicalPlan::TableScan(scan) => {
            let provider = source_as_provider(&scan.source)?;
            let stored = provider.downcast_ref::<Table>();
            let rows = match provider.downcast_ref::<dml::ValueRows>() {
                Some(values) => Some(values.count()),
                None => stored.and_then(Table::stored_rows),
            };
            Ok(rows.unwrap_or(usize::MAX))
        }
        LogicalPlan::Values(values) => Ok(values.values.len()),
        LogicalPlan::Join(join) if join.on.is_empty() => Ok(usize::MAX),
        LogicalPlan::Extension(node) if dml::is_own(node) => Ok(0),
        LogicalPlan::Unnest(_) | LogicalPlan::RecursiveQuery(_) | LogicalPlan::Extension(_) => {
            Ok(usize::MAX)
        }
        _ => Ok(0),
    }
}
