//! The request of a scan: its columns, and the conditions on its rows.
//!
//! A serializable transaction keeps the requests of its scans and repeats them at commit.

mod column_predicate;

pub use column_predicate::{ColumnPredicate, CompareOp};

use arrow_array::{BooleanArray, RecordBatch};
use std::sync::Arc;
use strandline_base::{ColumnId, Result};

/// The columns and conditions of a read.
#[derive(Clone, Default)]
pub struct ScanRequest {
    /// Columns in output order.
    pub columns: Vec<ColumnId>,
    /// Adds `_rowid` (UInt64) as the last column.
    pub with_row_id: bool,
    /// Conjuncts that prune ranges and blocks by min/max; not applied to rows.
    pub prune: Vec<ColumnPredicate>,
    /// Conjuncts applied to rows; their columns are decoded first.
    pub filters: Vec<Arc<dyn RowFilter>>,
}

/// A predicate over some columns of the table, evaluated inside the scan.
pub trait RowFilter: Send + Sync {
    /// The columns that the predicate reads.
    fn columns(&self) -> &[ColumnId];
    /// Evaluates `batch`, which has exactly these columns in this order. NULL counts as false.
    fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray>;
    /// Whether evaluation per row is so expensive that other filters should remove rows first.
    fn is_costly(&self) -> bool {
        false
    }
    /// The comparison, if the filter is a single comparison. The column's bounds may then prove
    /// that every row passes.
    fn comparison(&self) -> Option<&ColumnPredicate> {
        None
    }
    /// Whether the filter selects the same rows at every evaluation. False if it depends on values
    /// that a query computes while it runs.
    fn is_fixed(&self) -> bool {
        true
    }
}
