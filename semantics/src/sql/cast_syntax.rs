//! The syntax tree of a cast.

use datafusion::sql::sqlparser::ast::{CastKind, DataType, Expr};

/// `CAST(expr AS data_type)`.
pub fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type,
        array: false,
        format: None,
    }
}
