//! LIKE with an escape character other than the backslash; SIMILAR TO; SUBSTRING by a pattern.

use super::calls::call;
use crate::text::with_backslashes;
use datafusion::sql::sqlparser::ast::{Expr, UnaryOperator, Value, ValueWithSpan};
use strandline_base::{Error, Result, SqlState};

/// Rewrites a pattern with another escape character to the backslash, the only one of DataFusion.
pub(super) fn escaped_pattern(
    pattern: &mut Expr,
    escape: &mut Option<ValueWithSpan>,
) -> Result<()> {
    let Some(Value::SingleQuotedString(escape_text)) = escape.as_ref().map(|v| &v.value) else {
        return Ok(());
    };
    let mut characters = escape_text.chars();
    let (first, None) = (characters.next(), characters.next()) else {
        return Err(Error::invalid(SqlState("22019"), "invalid escape string")
            .with_hint("Escape string must be empty or one character."));
    };
    if first == Some('\\') {
        return Ok(());
    }
    let Expr::Value(ValueWithSpan {
        value: Value::SingleQuotedString(text),
        ..
    }) = pattern
    else {
        let written = std::mem::replace(pattern, Expr::Value(Value::Null.into()));
        let escape_value = Value::SingleQuotedString(escape_text.clone());
        *pattern = call(
            "like_escape",
            vec![written, Expr::Value(escape_value.into())],
        );
        *escape = None;
        return Ok(());
    };
    *text = with_backslashes(text, first);
    *escape = None;
    Ok(())
}

/// `operand SIMILAR TO pattern` as a call of our function; `None` for other expressions.
pub(super) fn similar_to(expr: &Expr) -> Result<Option<Expr>> {
    let Expr::SimilarTo {
        negated,
        expr: operand,
        pattern,
        escape_char,
    } = expr
    else {
        return Ok(None);
    };
    if escape_char.is_some() {
        return Err(Error::unsupported("SIMILAR TO … ESCAPE is not supported"));
    }
    let matches = call("similar_to", vec![(**operand).clone(), (**pattern).clone()]);
    Ok(Some(match *negated {
        true => Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: Box::new(matches),
        },
        false => matches,
    }))
}

/// `SUBSTRING(text FROM 'pattern')` as a call of our function; `None` for a position.
pub(super) fn substring(expr: &Expr) -> Option<Expr> {
    let Expr::Substring {
        expr: text,
        substring_from,
        substring_for: None,
        ..
    } = expr
    else {
        return None;
    };
    let pattern = substring_from.as_deref()?;
    let is_text =
        matches!(pattern, Expr::Value(v) if matches!(v.value, Value::SingleQuotedString(_)));
    is_text.then(|| call("substring_match", vec![(**text).clone(), pattern.clone()]))
}
