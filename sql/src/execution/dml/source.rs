//! The source of an INSERT's rows.

use datafusion::common::Column;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// A plan of the rows, and per column an expression over its fields.
pub(super) struct Source {
    /// the rows
    pub plan: LogicalPlan,
    /// the columns with given values
    pub columns: Vec<usize>,
    /// their values, of the columns' types
    pub values: Vec<SourceValue>,
}

/// One column's values.
pub(super) enum SourceValue {
    /// an expression over the source's fields
    Expr(Expr),
    /// DEFAULT in every row
    Default,
    /// DEFAULT where the first expression is true, else the second
    SomeDefault(Expr, Expr),
}

/// The column expression of a field.
pub(super) fn field(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}
