//! Immutable expressions of a row's columns: parts of index keys, predicates of partial indexes.
//!
//! The engine knows no SQL. It stores an expression as text beside the columns that it reads.
//! [`RowExpressions`], supplied when the database is opened, compiles it.

use arrow_array::{ArrayRef, RecordBatch};
use std::sync::Arc;
use strandline_base::{Result, SqlType, Value};

/// Compiles expressions; one for the whole database.
pub trait RowExpressions: Send + Sync + std::fmt::Debug {
    /// Compiles `sql`, whose result has the type `result`. `columns` has the names and types of the
    /// columns that it reads, in the order in which values will be passed.
    fn compile(
        &self,
        sql: &str,
        columns: &[(&str, SqlType)],
        result: SqlType,
    ) -> Result<Arc<dyn RowExpression>>;
}

/// A compiled expression. Both methods give the same values.
pub trait RowExpression: Send + Sync {
    /// Evaluates every row of `columns`, which has the expression's columns in their order. The
    /// result is an array of the result type's Arrow type.
    fn evaluate(&self, columns: &RecordBatch) -> Result<ArrayRef>;
    /// Evaluates one row.
    fn evaluate_row(&self, columns: &[Value]) -> Result<Value>;
}
