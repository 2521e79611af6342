//! The request of a scan: the columns, and the conditions that its rows fulfil.
//!
//! A transaction that is serializable keeps the requests of its scans, to repeat them at commit.

mod column_predicate;

pub use column_predicate::{ColumnPredicate, CompareOp};

use arrow_array::{BooleanArray, RecordBatch};
use std::sync::Arc;
use strandline_base::{ColumnId, Result};

/// What to read.
#[derive(Clone, Default)]
pub struct ScanRequest {
    /// Columns in output order.
    pub columns: Vec<ColumnId>,
    /// Adds a last column `_rowid` (UInt64).
    pub with_row_id: bool,
    /// Conjuncts that prune ranges and blocks by min/max; not applied to rows.
    pub prune: Vec<ColumnPredicate>,
    /// Conjuncts applied to rows; their columns are decoded first.
    pub filters: Vec<Arc<dyn RowFilter>>,
}

/// A predicate over some columns of the table, evaluated inside the scan.
pub trait RowFilter: Send + Sync {
    /// The columns it reads.
    fn columns(&self) -> &[ColumnId];
    /// `batch` has exactly those columns, in that order. NULL counts as false.
    fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray>;
    /// Whether a row costs so much that it pays to leave those out that are not selected anyway.
    fn is_costly(&self) -> bool {
        false
    }
    /// What it says if it is just that, so that the column's bounds may show that it selects every
    /// row.
    fn comparison(&self) -> Option<&ColumnPredicate> {
        None
    }
    /// Whether it selects the same rows whenever it is asked: not so if it depends on what a query
    /// has found elsewhere.
    fn is_fixed(&self) -> bool {
        true
    }
}
