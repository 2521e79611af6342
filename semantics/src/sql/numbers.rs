//! Number literals with PostgreSQL's types. A literal that 38 digits cannot hold is double
//! precision (PostgreSQL: a longer numeric).

use super::cast_syntax::cast;
use crate::decimal::MAX_DIGITS;
use crate::text::number::parse_decimal;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DataType, ExactNumberInfo, Expr, UnaryOperator, Value,
};
use strandline_base::Result;

/// A number in the parser's form.
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

/// A numeric with exactly the written digits.
pub fn numeric(digits: &str) -> Result<Expr> {
    let number = parse_decimal(digits)?;
    let scale = number.scale.max(0);
    let figures = i32::from(crate::decimal::digits(number.unscaled));
    let precision = (figures + (-number.scale).max(0)).max(scale).max(1);
    let text = Expr::Value(Value::SingleQuotedString(digits.to_string()).into());
    if precision > i32::from(MAX_DIGITS) || number.inexact {
        return Ok(cast(text, DataType::DoublePrecision));
    }
    let shape = ExactNumberInfo::PrecisionAndScale(precision as u64, i64::from(scale));
    Ok(cast(text, DataType::Numeric(shape)))
}

/// Whether the expression is a literal made by [`numeric`], or minus one.
pub fn is_decimal(expr: &Expr) -> bool {
    match expr {
        Expr::UnaryOp { expr, .. } | Expr::Nested(expr) => is_decimal(expr),
        Expr::Cast {
            expr,
            data_type: DataType::Numeric(_),
            ..
        } => matches!(expr.as_ref(), Expr::Value(_)),
        _ => false,
    }
}

const LEAST_BIGINT: &str = "-9223372036854775808";

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
            let digits = format!("-{digits}");
            let data_type = match digits.parse::<i32>() {
                Ok(_) => DataType::Integer(None),
                Err(_) => data_type.clone(),
            };
            Some(cast(plain(&digits), data_type))
        }
        // The least bigint, whose magnitude exceeds the bigint range.
        (Value::SingleQuotedString(digits), DataType::Numeric(_))
            if digits == LEAST_BIGINT.trim_start_matches('-') =>
        {
            Some(cast(plain(LEAST_BIGINT), DataType::BigInt(None)))
        }
        _ => None,
    }
}

/// Undoes [`typed`] in places of plain numbers: a position, a limit.
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

/// `-a ^ b` as `(-a) ^ b`, because in PostgreSQL the sign binds more tightly.
pub fn minus_before_power(expr: &mut Expr) {
    let Expr::UnaryOp {
        op: sign @ (UnaryOperator::Minus | UnaryOperator::Plus),
        expr: operand,
    } = expr
    else {
        return;
    };
    let is_power = |e: &Expr| {
        matches!(
            e,
            Expr::BinaryOp {
                op: BinaryOperator::PGExp,
                ..
            }
        )
    };
    if !is_power(operand) {
        return;
    }
    let sign = *sign;
    let mut power = std::mem::replace(operand.as_mut(), Expr::Value(Value::Null.into()));
    let mut base = &mut power;
    while let Expr::BinaryOp {
        left,
        op: BinaryOperator::PGExp,
        ..
    } = base
    {
        base = left.as_mut();
    }
    let signed = std::mem::replace(base, Expr::Value(Value::Null.into()));
    *base = Expr::UnaryOp {
        op: sign,
        expr: Box::new(signed),
    };
    *expr = power;
}
