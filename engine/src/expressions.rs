//! Immutable expressions of a row's columns: parts of index keys, conditions of partial indexes.
//!
//! The engine knows no SQL. It keeps an expression as text beside the columns that it reads;
//! [`RowExpressions`], which the database is opened with, makes an evaluator of it.

use arrow_array::{ArrayRef, RecordBatch};
use std::sync::Arc;
use strandline_base::{Result, SqlType, Value};

/// Makes evaluators of expressions; one for the whole database.
pub trait RowExpressions: Send + Sync + std::fmt::Debug {
    /// Compiles `sql`, whose result has `result`'s type. `columns`: names and types of the columns
    /// that it reads, in the order in which values will be given.
    fn compile(
        &self,
        sql: &str,
        columns: &[(&str, SqlType)],
        result: SqlType,
    ) -> Result<Arc<dyn RowExpression>>;
}

/// The evaluator of an expression. Both ways give the same values.
pub trait RowExpression: Send + Sync {
    /// For every row of `columns`, which has the expression's columns in their order: an array of
    /// the result type's Arrow type.
    fn evaluate(&self, columns: &RecordBatch) -> Result<ArrayRef>;
    /// For one row.
    fn evaluate_row(&self, columns: &[Value]) -> Result<Value>;
}
