//! The keyword DEFAULT, and what it stands for.

use crate::parse;
use datafusion::sql::sqlparser::ast::{self, Expr};
use strandline_engine::catalog::ColumnDef;

/// The DEFAULT of a column without identity; it has no parameters.
pub(super) fn default_of(column: &ColumnDef) -> Option<Expr> {
    match &column.default {
        None => Some(Expr::value(ast::Value::Null)),
        Some(text) => parse::expression(text).ok(),
    }
}

/// Whether a cell is the keyword DEFAULT, which the parser reads as an identifier.
pub(super) fn is_default(cell: &Expr) -> bool {
    match cell {
        Expr::Identifier(name) => {
            name.quote_style.is_none() && name.value.eq_ignore_ascii_case("default")
        }
        Expr::Nested(inner) => is_default(inner),
        _ => false,
    }
}
