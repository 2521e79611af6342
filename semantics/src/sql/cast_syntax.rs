//! The syntax tree of a cast.

use datafusion::sql::sqlparser::ast::{CastKind, DataType, Expr, Value};

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

/// `char 'text'`, whose length PostgreSQL does not bound, as a text.
pub(super) fn char_literal(expr: &Expr) -> Option<Expr> {
    let Expr::TypedString(typed) = expr else {
        return None;
    };
    let is_char = matches!(
        typed.data_type,
        DataType::Char(None) | DataType::Character(None)
    );
    match &typed.value.value {
        Value::SingleQuotedString(_) if is_char => {
            Some(cast(Expr::Value(typed.value.clone()), DataType::Text))
        }
        _ => None,
    }
}
