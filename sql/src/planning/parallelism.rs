//! The number of a query's partitions and the rows of its batches.
//!
//! A small query gets one partition, because exchanges between threads and their planning would
//! cost more than they gain. A table with wide rows gets smaller batches, because operators bound
//! their buffers by rows alone.
//!
//! A query is small if it reads only stored tables and VALUES with few rows together, joined by
//! equal values: such joins rarely return many more rows than they read. Joins by WHERE are not
//! recognized at this stage and count as products.

use crate::planning::locking::node::LockNode;
use crate::planning::provider::table::Table;
use crate::planning::provider::value_rows::ValueRows;
use crate::planning::template::Fit;
use datafusion::common::Result;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::logical_expr::LogicalPlan;

/// The most rows of all tables of a small query together. One thread scans and aggregates them in a
/// fraction of a millisecond.
const FEW_ROWS: usize = 1 << 15;

/// The fewest rows of a batch.
const BATCH_ROWS_MIN: usize = 64;
/// The most rows of a batch, DataFusion's default.
const BATCH_ROWS_MAX: usize = 8192;
/// The inverse share of the query memory that a batch may take: an operator holds several batches.
const BATCH_PART: usize = 16;

/// The partitions, at most `most`, and the batch rows for `plan`; `query_bytes` is the query
/// memory.
pub fn fit(plan: &LogicalPlan, most: usize, query_bytes: usize) -> Result<Fit> {
    let mut rows = 0_usize;
    let mut row_bytes = 1;
    plan.apply_with_subqueries(|node| {
        let (more, bytes) = size_of(node)?;
        rows = rows.saturating_add(more);
        row_bytes = row_bytes.max(bytes);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(Fit {
        partitions: if rows <= FEW_ROWS { 1 } else { most },
        batch_rows: batch_rows(row_bytes, query_bytes),
    })
}

/// The rows of a batch whose rows have about `row_bytes` bytes.
fn batch_rows(row_bytes: usize, query_bytes: usize) -> usize {
    (query_bytes / BATCH_PART / row_bytes.max(1)).clamp(BATCH_ROWS_MIN, BATCH_ROWS_MAX)
}

/// The rows that a node adds to its inputs' rows (`usize::MAX`: unknown), and the bytes of one row
/// (0: unknown).
fn size_of(node: &LogicalPlan) -> Result<(usize, usize)> {
    let rows = match node {
        LogicalPlan::TableScan(scan) => {
            let provider = source_as_provider(&scan.source)?;
            let stored = provider.downcast_ref::<Table>();
            let size = match provider.downcast_ref::<ValueRows>() {
                Some(values) => Some((values.count(), 0)),
                None => stored.and_then(Table::stored_size),
            };
            return Ok(size.unwrap_or((usize::MAX, 0)));
        }
        LogicalPlan::Values(values) => values.values.len(),
        LogicalPlan::Join(join) if join.on.is_empty() => usize::MAX,
        // Our other nodes belong to DML and return at most their inputs' rows.
        LogicalPlan::Extension(node) if node.node.as_any().is::<LockNode>() => usize::MAX,
        LogicalPlan::Unnest(_) | LogicalPlan::RecursiveQuery(_) => usize::MAX,
        _ => 0,
    };
    Ok((rows, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_wide_rows_have_fewer() {
        assert_eq!(batch_rows(0, 64 << 20), BATCH_ROWS_MAX);
        assert_eq!(batch_rows(30, 64 << 20), BATCH_ROWS_MAX);
        assert_eq!(batch_rows(8 << 10, 64 << 20), 512);
        assert_eq!(batch_rows(1 << 20, 64 << 20), BATCH_ROWS_MIN);
        assert_eq!(batch_rows(8 << 10, 1 << 30), BATCH_ROWS_MAX);
    }
}
