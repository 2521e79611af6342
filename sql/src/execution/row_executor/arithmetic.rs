//! `+`, `-` and `*` of one value and another, with PostgreSQL's result types. `None`: not decided
//! here, in particular overflows.

use super::source::Datum;
use super::value::{assigned, exact, integer, integer_value, rounded};
use datafusion::scalar::ScalarValue;
use strandline_base::{SqlType, Value};
use strandline_semantics::decimal::power_of_ten;

/// The magnitude that no numeric reaches.
const LIMIT: u128 = 10u128.pow(38);
/// The most digits whose product is exact without looking.
const FACTOR: u128 = 10u128.pow(18);

/// An operation on two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
}

/// An operand or a result.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Number {
    Null,
    /// an integer of this type
    Integer(i64, SqlType),
    /// an unscaled integer and its scale
    Numeric(i128, u8),
    Double(f64),
}

impl Number {
    /// A column's value.
    pub fn of_value(value: &Value, t: SqlType) -> Option<Self> {
        Some(match (value, t) {
            (Value::Null, _) => Self::Null,
            (Value::SmallInt(v), _) => Self::Integer(i64::from(*v), t),
            (Value::Integer(v), _) => Self::Integer(i64::from(*v), t),
            (Value::BigInt(v), _) => Self::Integer(*v, t),
            (Value::Numeric(v), SqlType::Numeric { scale, .. }) => Self::Numeric(*v, scale),
            (Value::Double(v), _) => Self::Double(*v),
            _ => return None,
        })
    }

    /// A constant; without a known type that of the number literal it reads as.
    pub fn of_datum(datum: &Datum) -> Option<Self> {
        let value = &datum.value;
        if value.is_null() {
            return Some(Self::Null);
        }
        if let Some(v) = integer(value) {
            let as_literal = match i32::try_from(v) {
                // Whether the least integer is one depends on how it is written.
                Ok(i32::MIN) => return None,
                Ok(_) => SqlType::Integer,
                Err(_) => SqlType::BigInt,
            };
            return Some(Self::Integer(v, datum.known.unwrap_or(as_literal)));
        }
        match value {
            ScalarValue::Float64(Some(v)) => Some(Self::Double(*v)),
            other => exact(other).map(|(v, scale)| Self::Numeric(v, scale)),
        }
    }

    /// The number as a value of a column of type `t`.
    pub fn assigned(self, t: SqlType) -> Option<Value> {
        match (self, t) {
            (Self::Null, _) => Some(Value::Null),
            (Self::Integer(v, _), SqlType::SmallInt | SqlType::Integer | SqlType::BigInt) => {
                integer_value(v, t)
            }
            (Self::Integer(v, _), _) => {
                let value = ScalarValue::Int64(Some(v));
                assigned(&Datum { value, known: None }, t)
            }
            (Self::Numeric(v, from), SqlType::Numeric { precision, scale }) => {
                rounded(v, from, (precision, scale)).map(Value::Numeric)
            }
            (Self::Double(v), SqlType::Double) => Some(Value::Double(v)),
            _ => None,
        }
    }

    fn as_exact(&self) -> Option<(i128, u8)> {
        match self {
            Self::Integer(v, _) => Some((i128::from(*v), 0)),
            Self::Numeric(v, scale) => Some((*v, *scale)),
            Self::Null | Self::Double(_) => None,
        }
    }

    fn as_double(&self) -> Option<f64> {
        match self {
            Self::Double(v) => Some(*v),
            Self::Integer(v, _) if v.unsigned_abs() <= 1 << 53 => Some(*v as f64),
            _ => None,
        }
    }
}

/// `left operation right`.
pub(super) fn compute(operation: Arithmetic, left: &Number, right: &Number) -> Option<Number> {
    use Number as N;
    match (left, right) {
        (N::Null, _) | (_, N::Null) => Some(N::Null),
        (N::Integer(a, s), N::Integer(b, t)) => integers(operation, (*a, *s), (*b, *t)),
        (N::Double(_), _) | (_, N::Double(_)) => {
            let (a, b) = (left.as_double()?, right.as_double()?);
            let result = match operation {
                Arithmetic::Add => a + b,
                Arithmetic::Subtract => a - b,
                // A product may be too small as well as too large.
                Arithmetic::Multiply => return None,
            };
            result.is_finite().then_some(N::Double(result))
        }
        _ => numerics(operation, left.as_exact()?, right.as_exact()?),
    }
}

fn integers(
    operation: Arithmetic,
    (a, s): (i64, SqlType),
    (b, t): (i64, SqlType),
) -> Option<Number> {
    let wider = match (s, t) {
        (SqlType::BigInt, _) | (_, SqlType::BigInt) => SqlType::BigInt,
        (SqlType::Integer, _) | (_, SqlType::Integer) => SqlType::Integer,
        _ => SqlType::SmallInt,
    };
    let result = match operation {
        Arithmetic::Add => a.checked_add(b)?,
        Arithmetic::Subtract => a.checked_sub(b)?,
        Arithmetic::Multiply => a.checked_mul(b)?,
    };
    integer_value(result, wider).map(|_| Number::Integer(result, wider))
}

fn numerics(operation: Arithmetic, (a, s): (i128, u8), (b, t): (i128, u8)) -> Option<Number> {
    let (result, scale) = match operation {
        Arithmetic::Multiply => {
            let small = a.unsigned_abs() < FACTOR && b.unsigned_abs() < FACTOR && s + t <= 18;
            (small.then_some(a * b)?, s + t)
        }
        _ => {
            let scale = s.max(t);
            let a = a.checked_mul(power_of_ten(scale - s))?;
            let b = b.checked_mul(power_of_ten(scale - t))?;
            let result = match operation {
                Arithmetic::Add => a.checked_add(b)?,
                _ => a.checked_sub(b)?,
            };
            (result, scale)
        }
    };
    (result.unsigned_abs() < LIMIT).then_some(Number::Numeric(result, scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Arithmetic::{Add, Multiply, Subtract};

    #[test]
    fn integers_keep_the_wider_type() {
        let small = Number::Integer(30_000, SqlType::SmallInt);
        let int = Number::Integer(30_000, SqlType::Integer);
        assert_eq!(compute(Add, &small, &small), None, "smallint out of range");
        assert_eq!(
            compute(Add, &small, &int),
            Some(Number::Integer(60_000, SqlType::Integer))
        );
        assert_eq!(compute(Add, &Number::Null, &int), Some(Number::Null));
        let most = Number::Integer(i64::MAX, SqlType::BigInt);
        assert_eq!(compute(Add, &most, &int), None);
    }

    #[test]
    fn numerics_are_exact() {
        let (a, b) = (
            Number::Numeric(125, 2),
            Number::Integer(2, SqlType::Integer),
        );
        assert_eq!(compute(Subtract, &a, &b), Some(Number::Numeric(-75, 2)));
        assert_eq!(compute(Multiply, &a, &a), Some(Number::Numeric(15_625, 4)));
        let huge = Number::Numeric(10i128.pow(38) - 1, 0);
        assert_eq!(compute(Add, &huge, &b), None);
    }
}
