//! `column op constant` → bounds on the stored values of the column, for pruning by min/max.
//!
//! Numbers, dates and timestamps are stored as integers in a unit of the column (numeric(p, s):
//! 10^-s; timestamps: microseconds). A constant is converted into that unit as the fraction n/d. It
//! is then rounded in the direction that keeps the comparison's meaning: `x > n/d` is `x > ⌊n/d⌋`
//! for an integer x, `x ≥ n/d` is `x ≥ ⌈n/d⌉`, and so on. A constant that is not comparable in this
//! way gives no bound.
//!
//! The bound of a single comparison over integers is equivalent to the comparison. A column's
//! bounds may therefore prove that it holds ([`comparison`]).

use super::{ScalarValue, is_lossless};
use crate::values::like_prefix;
use datafusion::logical_expr::expr::{Between, InList, Like};
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use strandline_base::{SqlType, Value};
use strandline_column::types;
use strandline_engine::catalog::{ColumnDef, TableDef};
use strandline_engine::{ColumnPredicate, CompareOp};
use strandline_semantics::functions::trimmed_of_blanks;

const DAY_US: i128 = 86_400_000_000;

/// Adds the bounds that `filter` implies.
pub fn collect(filter: &Expr, def: &TableDef, bounds: &mut Vec<ColumnPredicate>) {
    match filter {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: Operator::And,
            right,
        }) => {
            collect(left, def, bounds);
            collect(right, def, bounds);
        }
        Expr::BinaryExpr(comparison) => {
            let sides = column_and_constant(comparison, def);
            bounds.extend(sides.and_then(|(column, op, constant)| bound(column, op, constant)));
        }
        Expr::Between(Between {
            expr,
            negated: false,
            low,
            high,
        }) => {
            let Some(column) = column_of(expr, def) else {
                return;
            };
            bounds.extend(constant(low).and_then(|v| bound(column, CompareOp::Ge, v)));
            bounds.extend(constant(high).and_then(|v| bound(column, CompareOp::Le, v)));
        }
        Expr::InList(InList {
            expr,
            list,
            negated: false,
        }) => {
            if let Some(column) = column_of(expr, def) {
                bounds.extend(list_bounds(column, list).into_iter().flatten());
            }
        }
        Expr::Like(Like {
            negated: false,
            expr,
            pattern,
            escape_char: None,
            case_insensitive,
        }) => {
            // What a text begins with stands at its beginning with its trailing blanks as well.
            let expr = trimmed_of_blanks(expr).unwrap_or(expr);
            if !case_insensitive && let Some(column) = column_of(expr, def) {
                bounds.extend(
                    constant(pattern)
                        .into_iter()
                        .flat_map(|p| prefix(column, p)),
                );
            }
        }
        Expr::Column(c) => {
            let column = def
                .column(&c.name)
                .filter(|c| c.sql_type == SqlType::Boolean);
            bounds.extend(column.map(|c| predicate(c, CompareOp::Eq, Value::Boolean(true))));
        }
        _ => {}
    }
}

/// The comparison that `filter` is, for an integer, numeric, date or timestamp column; else None.
pub fn comparison(filter: &Expr, def: &TableDef) -> Option<ColumnPredicate> {
    let Expr::BinaryExpr(comparison) = filter else {
        return None;
    };
    let (column, op, constant) = column_and_constant(comparison, def)?;
    integer_bound(column, op, fraction(column.sql_type, constant)?)
}

/// The sides of `column op constant`, written in either order.
fn column_and_constant<'a>(
    BinaryExpr { left, op, right }: &'a BinaryExpr,
    def: &'a TableDef,
) -> Option<(&'a ColumnDef, CompareOp, &'a ScalarValue)> {
    let op = compare_op(*op)?;
    match (column_of(left, def), constant(right)) {
        (Some(column), Some(constant)) => Some((column, op, constant)),
        _ => Some((column_of(right, def)?, mirror(op), constant(left)?)),
    }
}

fn compare_op(op: Operator) -> Option<CompareOp> {
    match op {
        Operator::Eq => Some(CompareOp::Eq),
        Operator::Lt => Some(CompareOp::Lt),
        Operator::LtEq => Some(CompareOp::Le),
        Operator::Gt => Some(CompareOp::Gt),
        Operator::GtEq => Some(CompareOp::Ge),
        _ => None,
    }
}

/// The operator with its sides exchanged.
fn mirror(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Eq => CompareOp::Eq,
        CompareOp::Lt => CompareOp::Gt,
        CompareOp::Le => CompareOp::Ge,
        CompareOp::Gt => CompareOp::Lt,
        CompareOp::Ge => CompareOp::Le,
    }
}

/// The column that `expr` is, through casts that keep values and order.
pub(in crate::planning::provider) fn column_of<'a>(
    expr: &Expr,
    def: &'a TableDef,
) -> Option<&'a ColumnDef> {
    match expr {
        Expr::Column(column) => def.column(&column.name),
        Expr::Cast(cast) => {
            let column = column_of(&cast.expr, def)?;
            let from = types::arrow_type(column.sql_type);
            (is_lossless(&from, cast.field.data_type())).then_some(column)
        }
        _ => None,
    }
}

fn constant(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) if !value.is_null() => Some(value),
        _ => None,
    }
}

fn predicate(column: &ColumnDef, op: CompareOp, value: Value) -> ColumnPredicate {
    ColumnPredicate {
        column: column.id,
        op,
        value,
    }
}

pub(in crate::planning::provider) fn bound(
    column: &ColumnDef,
    op: CompareOp,
    value: &ScalarValue,
) -> Option<ColumnPredicate> {
    match fraction(column.sql_type, value) {
        Some(fraction) => integer_bound(column, op, fraction),
        None => other_value(column.sql_type, value).map(|v| predicate(column, op, v)),
    }
}

/// The bound by n/d, in the column's unit, of a column stored as integers. It is equivalent to the
/// comparison.
fn integer_bound(
    column: &ColumnDef,
    op: CompareOp,
    (n, d): (i128, i128),
) -> Option<ColumnPredicate> {
    let (op, stored) = round(op, n, d)?;
    stored_value(column.sql_type, stored).map(|v| predicate(column, op, v))
}

/// `op n/d` over integers; None for an equality that no integer satisfies. (No bound instead of an
/// empty result: pruning never decides about a row.)
fn round(op: CompareOp, n: i128, d: i128) -> Option<(CompareOp, i128)> {
    let floor = n.div_euclid(d);
    let exact = n.rem_euclid(d) == 0;
    let ceil = if exact { floor } else { floor.checked_add(1)? };
    match op {
        CompareOp::Eq => exact.then_some((op, floor)),
        CompareOp::Gt | CompareOp::Le => Some((op, floor)),
        CompareOp::Lt | CompareOp::Ge => Some((op, ceil)),
    }
}

/// `value` in the unit of a column of type `t`, as numerator and positive denominator.
fn fraction(t: SqlType, value: &ScalarValue) -> Option<(i128, i128)> {
    use ScalarValue as S;
    let scale_of = match t {
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => Some(0),
        SqlType::Numeric { scale, .. } => Some(u32::from(scale)),
        _ => None,
    };
    if let Some(scale) = scale_of {
        let (digits, literal_scale) = match value {
            S::Int8(Some(v)) => (i128::from(*v), 0),
            S::Int16(Some(v)) => (i128::from(*v), 0),
            S::Int32(Some(v)) => (i128::from(*v), 0),
            S::Int64(Some(v)) => (i128::from(*v), 0),
            S::UInt64(Some(v)) => (i128::from(*v), 0),
            S::Decimal32(Some(v), _, s) => (i128::from(*v), *s),
            S::Decimal64(Some(v), _, s) => (i128::from(*v), *s),
            S::Decimal128(Some(v), _, s) => (*v, *s),
            _ => return None,
        };
        let n = digits.checked_mul(10i128.checked_pow(scale)?)?;
        return match u32::try_from(literal_scale) {
            Ok(s) => Some((n, 10i128.checked_pow(s)?)),
            Err(_) => Some((
                n.checked_mul(10i128.checked_pow(literal_scale.unsigned_abs().into())?)?,
                1,
            )),
        };
    }
    match (t, value) {
        (SqlType::Date, S::Date32(Some(v))) => Some((i128::from(*v), 1)),
        (SqlType::Date, _) => {
            timestamp(value, false).and_then(|(n, d)| Some((n, d.checked_mul(DAY_US)?)))
        }
        (SqlType::Timestamp, S::Date32(Some(v))) => Some((i128::from(*v) * DAY_US, 1)),
        (SqlType::Timestamp, _) => timestamp(value, false),
        (SqlType::TimestampTz, _) => timestamp(value, true),
        (SqlType::Time, S::Time64Microsecond(Some(v))) => Some((i128::from(*v), 1)),
        (SqlType::Time, S::Time64Nanosecond(Some(v))) => Some((i128::from(*v), 1000)),
        _ => None,
    }
}

/// A timestamp literal in microseconds; with a zone only if `zoned`.
fn timestamp(value: &ScalarValue, zoned: bool) -> Option<(i128, i128)> {
    use ScalarValue as S;
    let (v, zone, n, d) = match value {
        S::TimestampSecond(Some(v), zone) => (*v, zone, 1_000_000, 1),
        S::TimestampMillisecond(Some(v), zone) => (*v, zone, 1_000, 1),
        S::TimestampMicrosecond(Some(v), zone) => (*v, zone, 1, 1),
        S::TimestampNanosecond(Some(v), zone) => (*v, zone, 1, 1_000),
        _ => return None,
    };
    (zone.is_some() == zoned).then_some((i128::from(v) * n, d))
}

/// The integer as the column's value; None outside the column's range.
fn stored_value(t: SqlType, v: i128) -> Option<Value> {
    Some(match t {
        SqlType::SmallInt => Value::SmallInt(v.try_into().ok()?),
        SqlType::Integer => Value::Integer(v.try_into().ok()?),
        SqlType::BigInt => Value::BigInt(v.try_into().ok()?),
        SqlType::Numeric { .. } => Value::Numeric(v),
        SqlType::Date => Value::Date(v.try_into().ok()?),
        SqlType::Time => Value::Time(v.try_into().ok()?),
        SqlType::Timestamp => Value::Timestamp(v.try_into().ok()?),
        SqlType::TimestampTz => Value::TimestampTz(v.try_into().ok()?),
        _ => return None,
    })
}

fn other_value(t: SqlType, value: &ScalarValue) -> Option<Value> {
    use ScalarValue as S;
    match (t, value) {
        (SqlType::Boolean, S::Boolean(Some(v))) => Some(Value::Boolean(*v)),
        (SqlType::Real, S::Float32(Some(v))) if !v.is_nan() => Some(Value::Real(*v)),
        (SqlType::Double, S::Float64(Some(v))) if !v.is_nan() => Some(Value::Double(*v)),
        (
            // Literals beside char(n) are padded as the stored values are.
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json,
            S::Utf8(Some(v)) | S::Utf8View(Some(v)) | S::LargeUtf8(Some(v)),
        ) => Some(Value::Text(v.as_str().into())),
        (SqlType::Bytea, S::Binary(Some(v)) | S::BinaryView(Some(v)) | S::LargeBinary(Some(v))) => {
            Some(Value::Bytea(v.as_slice().into()))
        }
        (SqlType::Uuid, S::FixedSizeBinary(16, Some(v))) => {
            Some(Value::Uuid(v.as_slice().try_into().ok()?))
        }
        _ => None,
    }
}

/// `IN (…)`: from the least to the greatest member.
fn list_bounds(column: &ColumnDef, list: &[Expr]) -> Option<[ColumnPredicate; 2]> {
    let mut members = Vec::with_capacity(list.len());
    for member in list {
        match member {
            Expr::Literal(value, _) if value.is_null() => {}
            Expr::Literal(value, _) => members.push(value),
            _ => return None,
        }
    }
    let mut least = *members.first()?;
    let mut greatest = least;
    for member in members {
        if member.partial_cmp(least)? == std::cmp::Ordering::Less {
            least = member;
        }
        if member.partial_cmp(greatest)? == std::cmp::Ordering::Greater {
            greatest = member;
        }
    }
    Some([
        bound(column, CompareOp::Ge, least)?,
        bound(column, CompareOp::Le, greatest)?,
    ])
}

/// `LIKE 'abc%'`: from `abc` up to, not including, `abd`.
pub(in crate::planning::provider) fn prefix(
    column: &ColumnDef,
    pattern: &ScalarValue,
) -> Vec<ColumnPredicate> {
    let Some(Value::Text(pattern)) = other_value(column.sql_type, pattern) else {
        return Vec::new();
    };
    let Some((from, end)) = like_prefix::bounds(&pattern) else {
        return Vec::new();
    };
    let mut bounds = vec![predicate(column, CompareOp::Ge, Value::Text(from.into()))];
    bounds.extend(end.map(|end| predicate(column, CompareOp::Lt, Value::Text(end.into()))));
    bounds
}
