//! Values of parameters as values of the types that the parameters have.
//!
//! A program gives 64-bit integers, floats and texts, and a parameter has the type of its place.
//! The full path casts the text of such a value to the parameter's type. Where that cast succeeds,
//! its result is taken before the statement runs, so that every path sees values of the parameters'
//! types.

use super::text;
use datafusion::scalar::ScalarValue;
use std::borrow::Cow;
use strandline_base::SqlType;
use strandline_column::types::arrow_type;
use strandline_semantics::column_builder::ColumnBuilder;

/// The most digits of a numeric without declared digits.
const DIGITS: usize = 37;

/// The values as the types of their parameters. A value that is not valid for its type stays as it
/// is: the full path words the error.
pub(crate) fn of_types<'a>(
    values: &'a [ScalarValue],
    types: &[Option<SqlType>],
) -> Cow<'a, [ScalarValue]> {
    let fits = |(value, t): (&ScalarValue, &Option<SqlType>)| t.is_none_or(|t| is_of(value, t));
    if values.iter().zip(types).all(fits) {
        return Cow::Borrowed(values);
    }
    let mut converted = values.to_vec();
    for (value, t) in converted.iter_mut().zip(types) {
        if let Some(of_type) = t.and_then(|t| of_type(value, t)) {
            *value = of_type;
        }
    }
    Cow::Owned(converted)
}

/// The value as one of type `t`, as a cast of its text gives it; None: it is not decided here.
pub(crate) fn of_type(value: &ScalarValue, t: SqlType) -> Option<ScalarValue> {
    if is_of(value, t) {
        return Some(value.clone());
    }
    if let Some(v) = integer(value)
        && let Some(known) = of_integer(v, t)
    {
        return known;
    }
    let text = match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::Utf8View(Some(text))
        | ScalarValue::LargeUtf8(Some(text)) => Cow::Borrowed(text.as_str()),
        ScalarValue::List(_) => return None,
        other => Cow::Owned(text::cell(&other.to_array().ok()?, 0)?),
    };
    match t {
        SqlType::Json => None,
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
            Some(ScalarValue::Utf8(Some(text.into_owned())))
        }
        SqlType::Numeric { .. } => numeric(&text),
        t => ColumnBuilder::value_of(t, &text).ok(),
    }
}

/// Whether a value is of the type already.
fn is_of(value: &ScalarValue, t: SqlType) -> bool {
    use ScalarValue as S;
    value.is_null()
        || match t {
            SqlType::SmallInt => matches!(value, S::Int16(_)),
            SqlType::Integer => matches!(value, S::Int32(_)),
            SqlType::BigInt => matches!(value, S::Int64(_)),
            SqlType::Numeric { .. } => matches!(value, S::Decimal64(..) | S::Decimal128(..)),
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json => {
                matches!(value, S::Utf8(_) | S::Utf8View(_) | S::LargeUtf8(_))
            }
            t => value.data_type() == arrow_type(t),
        }
}

/// The value of an integer.
pub(crate) fn integer(value: &ScalarValue) -> Option<i64> {
    use ScalarValue as S;
    match value {
        S::Int8(Some(v)) => Some(i64::from(*v)),
        S::Int16(Some(v)) => Some(i64::from(*v)),
        S::Int32(Some(v)) => Some(i64::from(*v)),
        S::Int64(Some(v)) => Some(*v),
        S::UInt32(Some(v)) => Some(i64::from(*v)),
        S::UInt64(Some(v)) => i64::try_from(*v).ok(),
        _ => None,
    }
}

/// An integer as a number of type `t`; None: `t` is no type of numbers.
fn of_integer(v: i64, t: SqlType) -> Option<Option<ScalarValue>> {
    use ScalarValue as S;
    Some(match t {
        SqlType::SmallInt => i16::try_from(v).ok().map(|v| S::Int16(Some(v))),
        SqlType::Integer => i32::try_from(v).ok().map(|v| S::Int32(Some(v))),
        SqlType::BigInt => Some(S::Int64(Some(v))),
        SqlType::Real => Some(S::Float32(Some(v as f32))),
        SqlType::Double => Some(S::Float64(Some(v as f64))),
        SqlType::Numeric { .. } => Some(S::Decimal128(Some(i128::from(v)), 38, 0)),
        _ => return None,
    })
}

/// A number in plain digits, with the scale that it is written with.
fn numeric(text: &str) -> Option<ScalarValue> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let count = whole.len() + fraction.len();
    let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !(1..=DIGITS).contains(&count) || !is_plain(whole) || !is_plain(fraction) {
        return None;
    }
    let unscaled: i128 = format!("{whole}{fraction}").parse().ok()?;
    let scale = i8::try_from(fraction.len()).ok()?;
    Some(ScalarValue::Decimal128(Some(sign * unscaled), 38, scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ScalarValue as S;

    const NUMERIC: SqlType = SqlType::Numeric {
        precision: 38,
        scale: 16,
    };

    #[test]
    fn numbers_become_numbers_of_the_type() {
        let seven = S::Int64(Some(7));
        assert_eq!(of_type(&seven, SqlType::SmallInt), Some(S::Int16(Some(7))));
        assert_eq!(of_type(&seven, SqlType::Integer), Some(S::Int32(Some(7))));
        assert_eq!(
            of_type(&seven, SqlType::Double),
            Some(S::Float64(Some(7.0)))
        );
        assert_eq!(
            of_type(&seven, NUMERIC),
            Some(S::Decimal128(Some(7), 38, 0))
        );
        assert_eq!(of_type(&S::Int64(Some(1 << 40)), SqlType::Integer), None);
        assert_eq!(
            of_type(&S::Float64(Some(-1.25)), NUMERIC),
            Some(S::Decimal128(Some(-125), 38, 2))
        );
        // A float has no shorter text than its digits, and no integer has a fraction.
        assert_eq!(of_type(&S::Float64(Some(1.5)), SqlType::Integer), None);
        assert_eq!(
            of_type(&S::Float32(Some(0.1)), SqlType::Double),
            Some(S::Float64(Some(0.1)))
        );
    }

    #[test]
    fn texts_are_read_as_the_type() {
        let text = |text: &str| S::Utf8(Some(text.to_string()));
        assert_eq!(
            of_type(&text("12"), SqlType::Integer),
            Some(S::Int32(Some(12)))
        );
        assert_eq!(of_type(&text("x"), SqlType::Integer), None);
        assert_eq!(
            of_type(&text("1970-01-02"), SqlType::Date),
            Some(S::Date32(Some(1)))
        );
        assert_eq!(
            of_type(&text("-0.50"), NUMERIC),
            Some(S::Decimal128(Some(-50), 38, 2))
        );
        for wrong in ["", "-", "1e3", "1.2.3", "NaN", "+1"] {
            assert_eq!(of_type(&text(wrong), NUMERIC), None, "{wrong}");
        }
        assert_eq!(of_type(&S::Int64(Some(5)), SqlType::Text), Some(text("5")));
    }

    #[test]
    fn values_of_their_types_are_not_copied() {
        let values = [S::Int32(Some(1)), S::Null];
        let types = [Some(SqlType::Integer), Some(SqlType::Date)];
        assert!(matches!(of_types(&values, &types), Cow::Borrowed(_)));
        let values = [S::Int64(Some(1)), S::Int64(Some(1 << 40))];
        let types = [Some(SqlType::Integer), Some(SqlType::Integer)];
        let expected = [S::Int32(Some(1)), S::Int64(Some(1 << 40))];
        assert_eq!(of_types(&values, &types).as_ref(), expected);
    }
}
