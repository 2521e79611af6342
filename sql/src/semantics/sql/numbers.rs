//! Number literals with PostgreSQL's types. A literal that 38 digits cannot hold is double
//! precision (PostgreSQL: a longer numeric).

use super::calls::cast;
use crate::semantics::decimal::MAX_DIGITS;
use crate::semantics::text::number::parse_decimal;
use datafusion::sql::sqlparser::ast::{DataType, ExactNumberInfo, Expr, Value};
use strandline_base::Result;

/// A number as the parser gave it.
pub fn plain(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_string(), false).into())
}

/// The literal with its type.
pub fn typed(digits: &str) -> Result<Expr> {
    let digits = digits.replace('_', "");
    if !digits.contains(['.', 'e', 'E']) {
        if digits.parse::<i32>().is_ok() {
            return Ok(cast(plain(&digits), DataType::Integer(None)));
        }
        if digits.parse::<i64>().is_ok() {
            return Ok(cast(plain(&digits), DataType::BigInt(None)));
        }
    }
    numeric(&digits)
}

fn numeric(digits: &str) -> Result<Expr> {
    let number = parse_decimal(digits)?;
    let scale = number.scale.max(0);
    let figures = i32::from(crate::semantics::decimal::digits(number.unscaled));
    let precision = (figures + (-number.scale).max(0)).max(scale).max(1);
    let text = Expr::Value(Value::SingleQuotedString(digits.to_string()).into());
    if precision > i32::from(MAX_DIGITS) || number.inexact {
        return Ok(cast(text, DataType::DoublePrecision));
    }
    let shape = ExactNumberInfo::PrecisionAndScale(precision as u64, i64::from(scale));
    Ok(cast(text, DataType::Numeric(shape)))
}

/// Minus a literal made by [`typed`], as a literal.
pub fn negated(operand: &Expr) -> Option<Expr> {
    let Expr::Cast {
        expr, data_type, ..
    } = operand
    else {
        return None;
    };
    let Expr::Value(value) = expr.as_ref() else {
        return None;
    };
    match (&value.value, data_type) {
        (Value::Number(digits, _), DataType::Integer(None) | DataType::BigInt(None))
            if !digits.starts_with('-') =>
        {
            Some(cast(plain(&format!("-{digits}")), data_type.clone()))
        }
        _ => None,
    }
}

/// Undoes [`typed`] where a plain number is wanted: a position, a limit.
pub fn restore(expr: &mut Expr) {
    let Expr::Cast {
        expr: inner,
        data_type,
        ..
    } = expr
    else {
        return;
    };
    let Expr::Value(value) = inner.as_ref() else {
        return;
    };
    if let (Value::Number(digits, _), DataType::Integer(None) | DataType::BigInt(None)) =
        (&value.value, data_type)
    {
        *expr = plain(&digits.clone());
    }
}
