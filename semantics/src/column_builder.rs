//! Arrow columns built from text: fields of files and literals of INSERT. Plain numbers and ISO
//! dates take a short path; everything else goes through the types' input functions
//! ([`crate::text`]).

mod receive;

use crate::calendar::{self, Civil};
use crate::cast::{Mode, cast_array};
use crate::decimal::{NARROW_DIGITS, Shape};
use crate::error::convert;
use crate::text::{binary, geometry, interval, number, parse_boolean, temporal};
use crate::types::arrow_type;
use datafusion::arrow::array::{
    ArrayRef, AsArray, BinaryViewBuilder, BooleanBuilder, Date32Builder, Decimal64Builder,
    Decimal128Builder, FixedSizeBinaryBuilder, Float32Builder, Float64Builder, Int16Builder,
    Int32Builder, Int64Builder, IntervalMonthDayNanoBuilder, StringViewArray, StringViewBuilder,
    Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::datatypes::IntervalMonthDayNano;
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlType, Value};
use strandline_column::types::array_of;

/// Builds one column.
pub struct ColumnBuilder {
    sql_type: SqlType,
    values: Values,
}

enum Values {
    Boolean(BooleanBuilder),
    SmallInt(Int16Builder),
    Integer(Int32Builder),
    BigInt(Int64Builder),
    Real(Float32Builder),
    Double(Float64Builder),
    Narrow(Decimal64Builder, Shape),
    Wide(Decimal128Builder, Shape),
    Text(StringViewBuilder),
    Bytea(BinaryViewBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    TimestampTz(TimestampMicrosecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
    Uuid(FixedSizeBinaryBuilder),
    /// points or boxes
    Geometric(Vec<Value>),
}

impl ColumnBuilder {
    /// An empty column of `sql_type`.
    pub fn new(sql_type: SqlType) -> Self {
        let values = match sql_type {
            SqlType::Boolean => Values::Boolean(BooleanBuilder::new()),
            SqlType::SmallInt => Values::SmallInt(Int16Builder::new()),
            SqlType::Integer => Values::Integer(Int32Builder::new()),
            SqlType::BigInt => Values::BigInt(Int64Builder::new()),
            SqlType::Real => Values::Real(Float32Builder::new()),
            SqlType::Double => Values::Double(Float64Builder::new()),
            SqlType::Numeric { precision, scale } if precision <= NARROW_DIGITS => Values::Narrow(
                Decimal64Builder::new().with_data_type(arrow_type(sql_type)),
                Shape::new(precision, scale),
            ),
            SqlType::Numeric { precision, scale } => Values::Wide(
                Decimal128Builder::new().with_data_type(arrow_type(sql_type)),
                Shape::new(precision, scale),
            ),
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json => {
                Values::Text(StringViewBuilder::new())
            }
            SqlType::Bytea => Values::Bytea(BinaryViewBuilder::new()),
            SqlType::Date => Values::Date(Date32Builder::new()),
            SqlType::Time => Values::Time(Time64MicrosecondBuilder::new()),
            SqlType::Timestamp => Values::Timestamp(TimestampMicrosecondBuilder::new()),
            SqlType::TimestampTz => Values::TimestampTz(
                TimestampMicrosecondBuilder::new().with_data_type(arrow_type(sql_type)),
            ),
            SqlType::Interval => Values::Interval(IntervalMonthDayNanoBuilder::new()),
            SqlType::Uuid => Values::Uuid(FixedSizeBinaryBuilder::new(16)),
            SqlType::Point | SqlType::Box => Values::Geometric(Vec::new()),
        };
        Self { sql_type, values }
    }

    /// Appends NULL.
    pub fn push_null(&mut self) {
        match &mut self.values {
            Values::Boolean(b) => b.append_null(),
            Values::SmallInt(b) => b.append_null(),
            Values::Integer(b) => b.append_null(),
            Values::BigInt(b) => b.append_null(),
            Values::Real(b) => b.append_null(),
            Values::Double(b) => b.append_null(),
            Values::Narrow(b, ..) => b.append_null(),
            Values::Wide(b, ..) => b.append_null(),
            Values::Text(b) => b.append_null(),
            Values::Bytea(b) => b.append_null(),
            Values::Date(b) => b.append_null(),
            Values::Time(b) => b.append_null(),
            Values::Timestamp(b) | Values::TimestampTz(b) => b.append_null(),
            Values::Interval(b) => b.append_null(),
            Values::Uuid(b) => b.append_null(),
            Values::Geometric(values) => values.push(Value::Null),
        }
    }

    /// Appends the value of `text` (22P02, 22003, 22001, 22007, 22008).
    pub fn push(&mut self, text: &str) -> Result<()> {
        let t = self.sql_type;
        match &mut self.values {
            Values::Boolean(b) => match text {
                "t" | "true" => b.append_value(true),
                "f" | "false" => b.append_value(false),
                _ => b.append_value(parse_boolean(text)?),
            },
            Values::SmallInt(b) => b.append_value(integer(t, text)?),
            Values::Integer(b) => b.append_value(integer(t, text)?),
            Values::BigInt(b) => b.append_value(integer(t, text)?),
            Values::Real(b) => b.append_value(number::parse_real(text)?),
            Values::Double(b) => b.append_value(number::parse_double(text)?),
            Values::Narrow(b, shape) => {
                let n = i64::try_from(numeric(text, *shape)?)
                    .map_err(|_| number::field_overflow(*shape))?;
                b.append_value(n);
            }
            Values::Wide(b, shape) => b.append_value(numeric(text, *shape)?),
            Values::Text(b) => match t {
                SqlType::Json => {
                    binary::check_json(text)?;
                    b.append_value(text);
                }
                SqlType::Varchar(n) if text.len() > n as usize => b.append_value(fit(t, text)?),
                SqlType::Char(_) => b.append_value(fit(t, text)?),
                _ => b.append_value(text),
            },
            Values::Bytea(b) => b.append_value(binary::parse_bytea(text)?),
            Values::Date(b) => b.append_value(match iso_date(text.as_bytes()) {
                Some(days) => days,
                None => temporal::parse_date(text)?,
            }),
            Values::Time(b) => b.append_value(temporal::parse_time(text)?),
            Values::Timestamp(b) => b.append_value(temporal::parse_timestamp(text)?),
            Values::TimestampTz(b) => b.append_value(temporal::parse_timestamptz(text)?),
            Values::Interval(b) => {
                let i = interval::parse_interval(text)?;
                b.append_value(IntervalMonthDayNano::new(i.months, i.days, i.nanos));
            }
            Values::Uuid(b) => b
                .append_value(binary::parse_uuid(text)?)
                .map_err(|e| Error::internal(format!("a uuid has 16 bytes: {e}")))?,
            Values::Geometric(values) => values.push(match t {
                SqlType::Point => Value::Point(geometry::parse_point(text)?),
                _ => Value::Box(geometry::parse_box(text)?),
            }),
        }
        Ok(())
    }

    /// The value of `text` in type `t`.
    pub fn value_of(t: SqlType, text: &str) -> Result<ScalarValue> {
        let mut builder = Self::new(t);
        builder.push(text)?;
        ScalarValue::try_from_array(&builder.finish(), 0).map_err(convert)
    }

    /// Takes the column; the builder is then empty.
    pub fn finish(&mut self) -> ArrayRef {
        match &mut self.values {
            Values::Boolean(b) => Arc::new(b.finish()),
            Values::SmallInt(b) => Arc::new(b.finish()),
            Values::Integer(b) => Arc::new(b.finish()),
            Values::BigInt(b) => Arc::new(b.finish()),
            Values::Real(b) => Arc::new(b.finish()),
            Values::Double(b) => Arc::new(b.finish()),
            Values::Narrow(b, ..) => Arc::new(b.finish()),
            Values::Wide(b, ..) => Arc::new(b.finish()),
            Values::Text(b) => Arc::new(b.finish()),
            Values::Bytea(b) => Arc::new(b.finish()),
            Values::Date(b) => Arc::new(b.finish()),
            Values::Time(b) => Arc::new(b.finish()),
            Values::Timestamp(b) | Values::TimestampTz(b) => Arc::new(b.finish()),
            Values::Interval(b) => Arc::new(b.finish()),
            Values::Uuid(b) => Arc::new(b.finish()),
            Values::Geometric(values) => array_of(self.sql_type, &std::mem::take(values))
                .expect("only values of the column's type are pushed"),
        }
    }
}

/// A whole number of an integer type.
fn integer<T: TryFrom<i64>>(sql_type: SqlType, text: &str) -> Result<T> {
    let n = match plain_integer(text.as_bytes()) {
        Some(n) => n,
        None => number::parse_integer(text, &sql_type.to_string(), i64::MIN, i64::MAX)?,
    };
    T::try_from(n).map_err(|_| crate::text::out_of_range(&sql_type.to_string(), text.trim_ascii()))
}

/// An optional minus and at most 18 digits: nearly all integers.
fn plain_integer(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, bytes),
    };
    if digits.is_empty() || digits.len() > 18 {
        return None;
    }
    let mut n: i64 = 0;
    for &b in digits {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n = n * 10 + i64::from(digit);
    }
    Some(if negative { -n } else { n })
}

/// The unscaled integer of a numeric.
fn numeric(text: &str, shape: Shape) -> Result<i128> {
    match plain_numeric(text.as_bytes(), shape.scale) {
        Some(n) if number::fits(n, shape) => Ok(n),
        Some(_) => Err(number::field_overflow(shape)),
        None => number::parse_numeric(text, shape),
    }
}

/// `[-]digits[.digits]` with at most `scale` decimals and 18 digits in all: nearly all numerics.
fn plain_numeric(bytes: &[u8], scale: u8) -> Option<i128> {
    let (negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, bytes),
    };
    let mut n: i64 = 0;
    let mut count = 0;
    let mut decimals: Option<u8> = None;
    for &b in digits {
        let digit = b.wrapping_sub(b'0');
        if digit <= 9 {
            if count == 18 {
                return None;
            }
            n = n * 10 + i64::from(digit);
            count += 1;
            if let Some(seen) = &mut decimals {
                *seen += 1;
            }
        } else if b == b'.' && decimals.is_none() {
            decimals = Some(0);
        } else {
            return None;
        }
    }
    let missing = scale.checked_sub(decimals.unwrap_or(0))?;
    if count == 0 || missing > 18 {
        return None;
    }
    let n = i128::from(n) * 10i128.pow(u32::from(missing));
    Some(if negative { -n } else { n })
}

/// Exactly `YYYY-MM-DD`, the day at most the 28th: nearly all dates.
fn iso_date(bytes: &[u8]) -> Option<i32> {
    let &[y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = bytes else {
        return None;
    };
    let two = |a: u8, b: u8| {
        (a.is_ascii_digit() && b.is_ascii_digit()).then(|| (a - b'0') * 10 + (b - b'0'))
    };
    let year = i64::from(two(y1, y2)?) * 100 + i64::from(two(y3, y4)?);
    let (month, day) = (two(m1, m2)?, two(d1, d2)?);
    let simple = year > 0 && (1..=12).contains(&month) && (1..=28).contains(&day);
    simple.then(|| calendar::days_from_civil(Civil { year, month, day }) as i32)
}

/// Text as a varchar(n) or char(n).
fn fit(sql_type: SqlType, text: &str) -> Result<String> {
    let array: ArrayRef = Arc::new(StringViewArray::from_iter_values([text]));
    let fitted = cast_array(&array, sql_type, Mode::Assignment).map_err(convert)?;
    Ok(fitted.as_string_view().value(0).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::write_value;
    use datafusion::arrow::array::Array;
    use strandline_base::SqlState;

    fn read(sql_type: SqlType, text: &str) -> Result<Option<String>> {
        let mut builder = ColumnBuilder::new(sql_type);
        builder.push_null();
        builder.push(text)?;
        let array = builder.finish();
        assert_eq!(array.data_type(), &arrow_type(sql_type));
        assert!(array.is_null(0));
        write_value(&array, 1).map_err(convert)
    }

    #[test]
    fn every_type_is_read() {
        let numeric = |precision, scale| SqlType::Numeric { precision, scale };
        for (sql_type, text, shown) in [
            (SqlType::Boolean, " Yes ", "t"),
            (SqlType::SmallInt, "-32768", "-32768"),
            (SqlType::Integer, " 42 ", "42"),
            (
                SqlType::BigInt,
                "9223372036854775807",
                "9223372036854775807",
            ),
            (SqlType::Real, "1.5", "1.5"),
            (SqlType::Double, "-1e300", "-1e+300"),
            (numeric(5, 2), "-1.005", "-1.01"),
            (numeric(5, 2), "7", "7.00"),
            (
                numeric(38, 10),
                "12345678901234567890.5",
                "12345678901234567890.5000000000",
            ),
            (SqlType::Text, "", ""),
            (SqlType::Varchar(2), "äö  ", "äö"),
            (SqlType::Char(3), "a", "a  "),
            (SqlType::Json, "{\"a\":1}", "{\"a\":1}"),
            (SqlType::Bytea, "\\x00ff", "\\x00ff"),
            (SqlType::Date, "2024-02-29", "2024-02-29"),
            (SqlType::Date, "0001-01-01", "0001-01-01"),
            (SqlType::Time, "12:34:56.5", "12:34:56.5"),
            (
                SqlType::Timestamp,
                "2024-02-29 12:00:00",
                "2024-02-29 12:00:00",
            ),
            (
                SqlType::TimestampTz,
                "2024-02-29 12:00:00+02",
                "2024-02-29 10:00:00+00",
            ),
            (SqlType::Interval, "1 year 2 days", "1 year 2 days"),
            (
                SqlType::Uuid,
                "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            ),
        ] {
            let got = read(sql_type, text).unwrap_or_else(|e| panic!("{sql_type} {text:?}: {e}"));
            assert_eq!(got.as_deref(), Some(shown), "{sql_type} {text:?}");
        }
    }

    #[test]
    fn bad_values_are_errors() {
        let numeric = SqlType::Numeric {
            precision: 5,
            scale: 2,
        };
        let syntax = SqlState::INVALID_TEXT_REPRESENTATION;
        let range = SqlState::NUMERIC_VALUE_OUT_OF_RANGE;
        for (sql_type, text, state) in [
            (SqlType::SmallInt, "32768", range),
            (SqlType::Integer, "", syntax),
            (SqlType::Integer, "-", syntax),
            (SqlType::Integer, "1.5", syntax),
            (SqlType::BigInt, "99999999999999999999", range),
            (numeric, "1000", range),
            (numeric, "999.995", range),
            (numeric, ".", syntax),
            (
                SqlType::Varchar(2),
                "abc",
                SqlState::STRING_DATA_RIGHT_TRUNCATION,
            ),
            (SqlType::Json, "{", syntax),
            (SqlType::Uuid, "x", syntax),
        ] {
            let error = read(sql_type, text).expect_err(text);
            assert_eq!(error.sqlstate(), state, "{sql_type} {text:?}: {error}");
        }
        for text in ["2023-02-29", "2024-13-01", "x", ""] {
            assert!(read(SqlType::Date, text).is_err(), "{text}");
        }
    }

    #[test]
    fn short_paths_agree_with_the_long_ones() {
        for year in [1, 4, 1900, 1970, 2000, 2024, 9999] {
            for month in 1..=12 {
                for day in 1..=31 {
                    let text = format!("{year:04}-{month:02}-{day:02}");
                    if let Some(days) = iso_date(text.as_bytes()) {
                        assert_eq!(days, temporal::parse_date(&text).unwrap(), "{text}");
                    }
                }
            }
        }
        let shape = Shape::new(18, 4);
        for text in ["0", "-0.5", "12345678901234.1234", "1.", ".1", "00012.30"] {
            let short = plain_numeric(text.as_bytes(), 4).expect(text);
            assert_eq!(short, number::parse_numeric(text, shape).unwrap(), "{text}");
        }
        assert_eq!(plain_numeric(b"1.23456", 4), None);
        assert_eq!(plain_numeric(b"-", 4), None);
    }
}
