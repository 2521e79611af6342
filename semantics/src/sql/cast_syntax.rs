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

/// The text of a string literal in any of its spellings.
pub(super) fn string_of(expr: &Expr) -> Option<String> {
    let Expr::Value(value) = expr else {
        return None;
    };
    match &value.value {
        Value::SingleQuotedString(text)
        | Value::EscapedStringLiteral(text)
        | Value::UnicodeStringLiteral(text)
        | Value::NationalStringLiteral(text) => Some(text.clone()),
        Value::DollarQuotedString(text) => Some(text.value.clone()),
        _ => None,
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
    let text = string_of(&Expr::Value(typed.value.clone())).filter(|_| is_char)?;
    let text = Expr::Value(Value::SingleQuotedString(text).into());
    Some(cast(text, DataType::Text))
}
