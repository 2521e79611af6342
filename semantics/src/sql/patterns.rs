//! LIKE with an escape character other than the backslash; SIMILAR TO; SUBSTRING by a pattern.

use super::calls::call;
use super::cast_syntax::cast;
use crate::text::with_backslashes;
use datafusion::sql::sqlparser::ast::{DataType, Expr, UnaryOperator, Value, ValueWithSpan};
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

/// `SUBSTRING(text FROM 'pattern')` as a call of our function. The quoted positions of `substr`,
/// which takes no pattern, become integers.
pub(super) fn substring(expr: &mut Expr) {
    let Expr::Substring {
        expr: text,
        substring_from,
        substring_for,
        shorthand,
        ..
    } = expr
    else {
        return;
    };
    let is_text =
        |e: &Expr| matches!(e, Expr::Value(v) if matches!(v.value, Value::SingleQuotedString(_)));
    if *shorthand {
        let places = [substring_from, substring_for].into_iter().flatten();
        for place in places.filter(|place| is_text(place)) {
            let quoted = std::mem::replace(place.as_mut(), Expr::value(Value::Null));
            **place = cast(quoted, DataType::Integer(None));
        }
    } else if let (Some(pattern), None) = (substring_from.as_deref(), &substring_for)
        && is_text(pattern)
    {
        *expr = call("substring_match", vec![(**text).clone(), pattern.clone()]);
    }
}
