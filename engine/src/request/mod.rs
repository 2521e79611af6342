//! The request of a scan: the columns, and the conditions that its rows fulfil.
//!
//! A transaction that is serializable keeps the requests of its scans, to repeat them at commit.

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
    /// Whether evaluation per row is so expensive that rows which other filters reject should be
    /// removed first.
    fn is_costly(&self) -> bool {
        false
    }
    /// The comparison that this filter consists of, if it is a single comparison: the column's
    /// bounds may then show that every row passes.
    fn comparison(&self) -> Option<&ColumnPredicate> {
        None
    }
    /// Whether the filter selects the same rows at every evaluation. False if it depends on values
    /// that a query finds while it runs.
    fn is_fixed(&self) -> bool {
        true
    }
}
