//! Values on their way into columns and keys.
//!
//! `None` everywhere: not decided here. Conversions equal those of the full path: within a type,
//! between integers and numerics exactly or with numeric's rounding, strings without a type by the
//! column type's input function.

use super::source::{Datum, Source};
use crate::values::parameter_value::of_type;
use crate::values::value;
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{Interval, SqlType, Value};
use strandline_column::types::arrow_type;
use strandline_semantics::decimal::power_of_ten;

pub(super) use crate::values::parameter_value::integer;

/// Integers up to here are exact as double precision.
const EXACT_DOUBLE: i64 = 1 << 53;

impl Source {
    /// The value; `now_us` is what `now()` is.
    pub fn datum(&self, values: &[ScalarValue], now_us: u64) -> Option<Datum> {
        let (value, known) = match self {
            Source::Parameter(index, known, negated) => {
                let value = values.get(*index)?;
                if !known.is_none_or(|known| is_of(value, known)) {
                    return None;
                }
                let value = match negated {
                    true => negative(value)?,
                    false => value.clone(),
                };
                (value, *known)
            }
            Source::Literal(value) => (value.clone(), None),
            Source::Read(index, t) => (read(values.get(*index)?, *t)?, Some(*t)),
            Source::Now => {
                let now = ScalarValue::TimestampMicrosecond(Some(now_us as i64), utc());
                (now, Some(SqlType::TimestampTz))
            }
            Source::Identity | Source::Computed(_) | Source::Query(..) => return None,
        };
        Some(Datum { value, known })
    }
}

/// A cast of a value without a declared type. Of a value with a type of its own, only an integer is
/// cast here, to an integer.
fn read(value: &ScalarValue, t: SqlType) -> Option<ScalarValue> {
    let is_integer = matches!(t, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt);
    let is_decided =
        is_of(value, t) || text(value).is_some() || (is_integer && integer(value).is_some());
    is_decided.then(|| of_type(value, t)).flatten()
}

fn utc() -> Option<Arc<str>> {
    match arrow_type(SqlType::TimestampTz) {
        datafusion::arrow::datatypes::DataType::Timestamp(_, zone) => zone,
        _ => None,
    }
}

/// Whether a value is of the type that its parameter has.
pub(super) fn is_of(value: &ScalarValue, known: SqlType) -> bool {
    use ScalarValue as S;
    value.is_null()
        || match known {
            SqlType::Boolean => matches!(value, S::Boolean(_)),
            SqlType::SmallInt => matches!(value, S::Int16(_)),
            SqlType::Integer => matches!(value, S::Int32(_)),
            SqlType::BigInt => matches!(value, S::Int64(_)),
            SqlType::Real => matches!(value, S::Float32(_)),
            SqlType::Double => matches!(value, S::Float64(_)),
            SqlType::Numeric { .. } => matches!(value, S::Decimal64(..) | S::Decimal128(..)),
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
                matches!(value, S::Utf8(_) | S::Utf8View(_))
            }
            SqlType::Bytea => matches!(value, S::Binary(_) | S::BinaryView(_)),
            SqlType::Date => matches!(value, S::Date32(_)),
            SqlType::Time => matches!(value, S::Time64Microsecond(_)),
            SqlType::Timestamp => matches!(value, S::TimestampMicrosecond(_, None)),
            SqlType::TimestampTz => matches!(value, S::TimestampMicrosecond(_, Some(_))),
            SqlType::Interval => matches!(value, S::IntervalMonthDayNano(_)),
            SqlType::Uuid => matches!(value, S::FixedSizeBinary(16, _)),
            SqlType::Point | SqlType::Box => value.data_type() == arrow_type(known),
            SqlType::Json => false,
        }
}

fn negative(value: &ScalarValue) -> Option<ScalarValue> {
    use ScalarValue as S;
    Some(match value {
        S::Int16(Some(v)) => S::Int16(Some(v.checked_neg()?)),
        S::Int32(Some(v)) => S::Int32(Some(v.checked_neg()?)),
        S::Int64(Some(v)) => S::Int64(Some(v.checked_neg()?)),
        S::Decimal128(Some(v), p, s) => S::Decimal128(Some(v.checked_neg()?), *p, *s),
        _ => return None,
    })
}

/// An exact number's unscaled integer and scale.
pub(super) fn exact(value: &ScalarValue) -> Option<(i128, u8)> {
    match value {
        ScalarValue::Decimal64(Some(v), _, s) => Some((i128::from(*v), u8::try_from(*s).ok()?)),
        ScalarValue::Decimal128(Some(v), _, s) => Some((*v, u8::try_from(*s).ok()?)),
        other => integer(other).map(|v| (i128::from(v), 0)),
    }
}

fn text(value: &ScalarValue) -> Option<&str> {
    match value {
        ScalarValue::Utf8(Some(v)) | ScalarValue::Utf8View(Some(v)) => Some(v),
        _ => None,
    }
}

/// A value as one of a column of type `t`, by the rules of assignment.
pub(super) fn assigned(datum: &Datum, t: SqlType) -> Option<Value> {
    let value = &datum.value;
    if value.is_null() {
        return Some(Value::Null);
    }
    if let Some(text) = text(value) {
        return assigned_text(value, text, datum.known, t);
    }
    match t {
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => integer_value(integer(value)?, t),
        SqlType::Numeric { precision, scale } => {
            let (unscaled, from) = exact(value)?;
            rounded(unscaled, from, (precision, scale)).map(Value::Numeric)
        }
        SqlType::Double => match value {
            ScalarValue::Float64(Some(v)) => Some(Value::Double(*v)),
            ScalarValue::Float32(Some(v)) => Some(Value::Double(f64::from(*v))),
            other => integer(other)
                .filter(|v| v.unsigned_abs() <= EXACT_DOUBLE as u64)
                .map(|v| Value::Double(v as f64)),
        },
        SqlType::Real => match value {
            ScalarValue::Float32(Some(v)) => Some(Value::Real(*v)),
            _ => None,
        },
        // UTC is the only zone.
        SqlType::Timestamp | SqlType::TimestampTz => match value {
            ScalarValue::TimestampMicrosecond(Some(v), _) if t == SqlType::Timestamp => {
                Some(Value::Timestamp(*v))
            }
            ScalarValue::TimestampMicrosecond(Some(v), _) => Some(Value::TimestampTz(*v)),
            _ => None,
        },
        _ => same(value, t),
    }
}

fn assigned_text(
    value: &ScalarValue,
    text: &str,
    known: Option<SqlType>,
    t: SqlType,
) -> Option<Value> {
    match t {
        SqlType::Text => Some(Value::Text(text.into())),
        SqlType::Varchar(n) => is_within(text, n).then(|| Value::Text(text.into())),
        // An open string is read by the type's input function.
        _ if known.is_none() => value::from_scalar(value, t).ok(),
        _ => None,
    }
}

fn is_within(text: &str, n: u32) -> bool {
    text.len() <= n as usize || text.chars().count() <= n as usize
}

/// A value of a type that has no conversions here.
fn same(value: &ScalarValue, t: SqlType) -> Option<Value> {
    use ScalarValue as S;
    Some(match (t, value) {
        (SqlType::Boolean, S::Boolean(Some(v))) => Value::Boolean(*v),
        (SqlType::Bytea, S::Binary(Some(v)) | S::BinaryView(Some(v))) => {
            Value::Bytea(v.as_slice().into())
        }
        (SqlType::Date, S::Date32(Some(v))) => Value::Date(*v),
        (SqlType::Time, S::Time64Microsecond(Some(v))) => Value::Time(*v),
        (SqlType::Interval, S::IntervalMonthDayNano(Some(v))) => Value::Interval(Interval {
            months: v.months,
            days: v.days,
            nanos: v.nanoseconds,
        }),
        (SqlType::Uuid, S::FixedSizeBinary(16, Some(v))) => {
            Value::Uuid(v.as_slice().try_into().ok()?)
        }
        (SqlType::Point | SqlType::Box, S::FixedSizeList(_))
            if value.data_type() == arrow_type(t) =>
        {
            value::from_scalar(value, t).ok()?
        }
        _ => return None,
    })
}

/// An integer as a value of an integer type, if it fits.
pub(super) fn integer_value(v: i64, t: SqlType) -> Option<Value> {
    match t {
        SqlType::SmallInt => i16::try_from(v).ok().map(Value::SmallInt),
        SqlType::Integer => i32::try_from(v).ok().map(Value::Integer),
        SqlType::BigInt => Some(Value::BigInt(v)),
        _ => None,
    }
}

/// An exact number in the shape numeric(precision, scale), rounded half away from zero.
pub(super) fn rounded(unscaled: i128, from: u8, (precision, scale): (u8, u8)) -> Option<i128> {
    let v = if from <= scale {
        unscaled.checked_mul(power_of_ten(scale - from))?
    } else {
        let unit = power_of_ten(from - scale);
        let (quotient, rest) = (unscaled / unit, unscaled % unit);
        let away = rest.unsigned_abs() >= unit.unsigned_abs() - rest.unsigned_abs();
        quotient + if away { unscaled.signum() } else { 0 }
    };
    (v.unsigned_abs() < power_of_ten(precision).unsigned_abs()).then_some(v)
}

/// A value of a column of type `t` as one of a parameter of that type.
pub(super) fn scalar_of(value: &Value, t: SqlType) -> ScalarValue {
    match (value, t) {
        (Value::Numeric(v), SqlType::Numeric { precision, scale }) => {
            ScalarValue::Decimal128(Some(*v), precision, scale as i8)
        }
        _ => value::to_scalar(value),
    }
}

/// What a key column is compared with.
pub(super) enum Comparand {
    Value(Value),
    /// no row has it
    Never,
}

/// A value as one that a key column of type `t` may equal.
pub(super) fn comparand(datum: &Datum, t: SqlType) -> Option<Comparand> {
    let value = &datum.value;
    if value.is_null() {
        return Some(Comparand::Never);
    }
    let found = |v: Option<Value>| Some(v.map_or(Comparand::Never, Comparand::Value));
    if text(value).is_some() {
        let comparable = datum.known.is_none() || matches!(t, SqlType::Text | SqlType::Varchar(_));
        return match t {
            SqlType::Text | SqlType::Varchar(_) => found(assigned_text(
                value,
                text(value)?,
                datum.known,
                SqlType::Text,
            )),
            // In a comparison a string without a type is rounded by nobody.
            SqlType::Numeric { .. } => None,
            _ if comparable => assigned(datum, t).map(Comparand::Value),
            _ => None,
        };
    }
    match t {
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => {
            found(integer_value(integer(value)?, t))
        }
        SqlType::Numeric { precision, scale } => {
            let (unscaled, from) = exact(value)?;
            let excess = from.saturating_sub(scale);
            let is_whole = unscaled % power_of_ten(excess) == 0;
            let v = is_whole.then(|| rounded(unscaled, from, (precision, scale)));
            found(v.flatten().map(Value::Numeric))
        }
        SqlType::Timestamp => match value {
            ScalarValue::TimestampMicrosecond(Some(v), None) => found(Some(Value::Timestamp(*v))),
            _ => None,
        },
        SqlType::TimestampTz => match value {
            ScalarValue::TimestampMicrosecond(Some(v), Some(_)) => {
                found(Some(Value::TimestampTz(*v)))
            }
            _ => None,
        },
        SqlType::Boolean | SqlType::Bytea | SqlType::Date | SqlType::Time | SqlType::Uuid => {
            same(value, t).map(Comparand::Value)
        }
        _ => None,
    }
}

/// Whether a search compares a column of type `t` with values of type `value` exactly as SQL does.
pub(crate) fn is_comparable(t: SqlType, value: SqlType) -> bool {
    let is_text = |t| matches!(t, SqlType::Text | SqlType::Varchar(_));
    is_key_type(t)
        && match t {
            SqlType::Numeric { .. } => {
                is_integer(value) || matches!(value, SqlType::Numeric { .. })
            }
            t if is_integer(t) => is_integer(value),
            t if is_text(t) => is_text(value),
            t => t == value,
        }
}

pub(super) fn is_integer(t: SqlType) -> bool {
    matches!(t, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt)
}

/// Whether a key column of this type is compared by the engine as SQL compares it.
pub(super) fn is_key_type(t: SqlType) -> bool {
    !matches!(
        t,
        SqlType::Char(_)
            | SqlType::Json
            | SqlType::Real
            | SqlType::Double
            | SqlType::Interval
            | SqlType::Point
            | SqlType::Box
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datum(value: ScalarValue) -> Datum {
        Datum { value, known: None }
    }

    #[test]
    fn numerics_round_half_away_from_zero() {
        assert_eq!(rounded(125, 2, (5, 1)), Some(13));
        assert_eq!(rounded(-125, 2, (5, 1)), Some(-13));
        assert_eq!(rounded(124, 2, (5, 1)), Some(12));
        assert_eq!(rounded(-7, 0, (3, 1)), Some(-70));
        assert_eq!(rounded(100, 0, (3, 1)), None, "four digits");
        assert_eq!(rounded(9_995, 2, (3, 1)), None, "rounds up to four digits");
        assert_eq!(rounded(i128::MAX, 0, (38, 10)), None);
    }

    #[test]
    fn values_out_of_range_are_left_to_the_full_path() {
        let big = datum(ScalarValue::Int64(Some(1 << 40)));
        assert_eq!(assigned(&big, SqlType::Integer), None);
        assert_eq!(
            assigned(&big, SqlType::BigInt),
            Some(Value::BigInt(1 << 40))
        );
        let long = datum(ScalarValue::from("abc"));
        assert_eq!(assigned(&long, SqlType::Varchar(2)), None);
        assert_eq!(assigned(&long, SqlType::Integer), None);
        let number = datum(ScalarValue::from("12"));
        assert_eq!(
            assigned(&number, SqlType::Integer),
            Some(Value::Integer(12))
        );
        let text = Datum {
            value: ScalarValue::from("12"),
            known: Some(SqlType::Text),
        };
        assert_eq!(
            assigned(&text, SqlType::Integer),
            None,
            "a text is no integer"
        );
    }

    #[test]
    fn what_no_row_can_have_is_never_found() {
        let never = |v: ScalarValue, t| matches!(comparand(&datum(v), t), Some(Comparand::Never));
        assert!(never(ScalarValue::Int64(Some(1 << 40)), SqlType::Integer));
        assert!(never(ScalarValue::Int64(None), SqlType::Integer));
        let numeric = SqlType::Numeric {
            precision: 4,
            scale: 1,
        };
        assert!(never(ScalarValue::Decimal128(Some(125), 3, 2), numeric));
        assert!(!never(ScalarValue::Decimal128(Some(120), 3, 2), numeric));
    }
}
