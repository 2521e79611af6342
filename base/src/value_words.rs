//! How record pages hold a value: in one 64-bit word, in two, or as bytes.

use crate::{BoxCorners, Error, Interval, Point, Result, SqlType, Value};

/// Decimal digits up to which `numeric` is held in 64 bits.
pub const NUMERIC_WORD_PRECISION: u8 = 18;

/// How tail pages hold a value of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Physical {
    /// One 64-bit word (bool, integers, floats by bits, dates, times, numeric(p ≤ 18)).
    Word,
    /// Two words (numeric(p > 18), interval, uuid, point).
    Wide,
    /// Bytes (text, varchar, char, bytea, json, box).
    Bytes,
}

/// The physical form of a type in tail pages.
#[inline]
pub fn physical(t: SqlType) -> Physical {
    match t {
        SqlType::Boolean
        | SqlType::SmallInt
        | SqlType::Integer
        | SqlType::BigInt
        | SqlType::Real
        | SqlType::Double
        | SqlType::Date
        | SqlType::Time
        | SqlType::Timestamp
        | SqlType::TimestampTz => Physical::Word,
        SqlType::Numeric { precision, .. } if precision <= NUMERIC_WORD_PRECISION => Physical::Word,
        SqlType::Numeric { .. } | SqlType::Interval | SqlType::Uuid | SqlType::Point => {
            Physical::Wide
        }
        SqlType::Text
        | SqlType::Varchar(_)
        | SqlType::Char(_)
        | SqlType::Bytea
        | SqlType::Json
        | SqlType::Box => Physical::Bytes,
    }
}

/// The word of a value of a [`Physical::Word`] type (integers sign-extended, floats by bits);
/// `None` for NULL and for values that are not held in one word.
#[inline]
pub fn word_of(v: &Value) -> Option<u64> {
    Some(match v {
        Value::Boolean(v) => u64::from(*v),
        Value::SmallInt(v) => i64::from(*v) as u64,
        Value::Integer(v) | Value::Date(v) => i64::from(*v) as u64,
        Value::BigInt(v) | Value::Time(v) | Value::Timestamp(v) | Value::TimestampTz(v) => {
            *v as u64
        }
        Value::Real(v) => u64::from(v.to_bits()),
        Value::Double(v) => v.to_bits(),
        Value::Numeric(v) => i64::try_from(*v).ok()? as u64,
        Value::Null
        | Value::Text(_)
        | Value::Bytea(_)
        | Value::Interval(_)
        | Value::Uuid(_)
        | Value::Point(_)
        | Value::Box(_) => return None,
    })
}

/// The value of a word that [`word_of`] made.
///
/// # Panics
/// If `t` is not a [`Physical::Word`] type.
#[inline]
pub fn value_of_word(t: SqlType, word: u64) -> Value {
    match t {
        SqlType::Boolean => Value::Boolean(word != 0),
        SqlType::SmallInt => Value::SmallInt(word as i16),
        SqlType::Integer => Value::Integer(word as i32),
        SqlType::BigInt => Value::BigInt(word as i64),
        SqlType::Real => Value::Real(f32::from_bits(word as u32)),
        SqlType::Double => Value::Double(f64::from_bits(word)),
        SqlType::Numeric { .. } => Value::Numeric(i128::from(word as i64)),
        SqlType::Date => Value::Date(word as i32),
        SqlType::Time => Value::Time(word as i64),
        SqlType::Timestamp => Value::Timestamp(word as i64),
        SqlType::TimestampTz => Value::TimestampTz(word as i64),
        _ => unreachable!("{t} is not held in one word"),
    }
}

/// Sets `out` to the value of a word that [`word_of`] made.
///
/// # Panics
/// If `t` is not a [`Physical::Word`] type.
#[inline]
pub fn set_word(out: &mut Value, t: SqlType, word: u64) {
    // Apart from the rest, so that it is written where it belongs and not moved there, and where
    // nothing is, so that nothing is dropped.
    match (t, &mut *out) {
        (SqlType::BigInt, Value::BigInt(value)) => *value = word as i64,
        (SqlType::BigInt, Value::Null) => *out = Value::BigInt(word as i64),
        _ => *out = value_of_word(t, word),
    }
}

/// The two words (low, high) of a value of a [`Physical::Wide`] type; `None` for NULL and for
/// values that are not held in two words. Intervals: months | days << 32, nanoseconds. Points: the
/// bits of x and of y.
#[inline]
pub fn wide_of(v: &Value) -> Option<[u64; 2]> {
    match v {
        Value::Numeric(v) => Some(halves(*v as u128)),
        Value::Interval(v) => Some(interval_words(*v)),
        Value::Uuid(v) => Some(halves(u128::from_le_bytes(*v))),
        Value::Point(v) => Some(v.words()),
        _ => None,
    }
}

/// The value of two words that [`wide_of`] made.
///
/// # Panics
/// If `t` is not a [`Physical::Wide`] type.
#[inline]
pub fn value_of_wide(t: SqlType, words: [u64; 2]) -> Value {
    match t {
        SqlType::Numeric { .. } => Value::Numeric(whole(words) as i128),
        SqlType::Interval => Value::Interval(Interval {
            months: words[0] as u32 as i32,
            days: (words[0] >> 32) as u32 as i32,
            nanos: words[1] as i64,
        }),
        SqlType::Uuid => Value::Uuid(whole(words).to_le_bytes()),
        SqlType::Point => Value::Point(Point::from_words(words)),
        _ => unreachable!("{t} is not held in two words"),
    }
}

/// The bytes of a text, bytea or box value; `None` for NULL and for all other values.
#[inline]
pub fn bytes_of(v: &Value) -> Option<&[u8]> {
    match v {
        Value::Text(v) => Some(v.as_bytes()),
        Value::Bytea(v) => Some(v),
        Value::Box(v) => Some(v.as_bytes()),
        _ => None,
    }
}

/// The value of bytes that [`bytes_of`] made.
///
/// # Errors
/// Text that is not UTF-8 and a box of another length are corruption errors; a type that is not
/// held as bytes is an internal error.
#[inline]
pub fn value_of_bytes(t: SqlType, bytes: &[u8]) -> Result<Value> {
    match t {
        SqlType::Bytea => Ok(Value::Bytea(bytes.into())),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json => {
            let text = std::str::from_utf8(bytes)
                .map_err(|e| Error::corrupt(format!("stored value of type {t}"), e))?;
            Ok(Value::Text(text.into()))
        }
        SqlType::Box => BoxCorners::from_bytes(bytes)
            .map(Value::Box)
            .ok_or_else(|| {
                let found = format!("{} bytes instead of {}", bytes.len(), BoxCorners::BYTES);
                Error::corrupt(format!("stored value of type {t}"), found)
            }),
        _ => Err(Error::internal(format!("{t} is not held as bytes"))),
    }
}

/// The low and the high half.
#[inline]
pub fn halves(v: u128) -> [u64; 2] {
    [v as u64, (v >> 64) as u64]
}

fn whole(words: [u64; 2]) -> u128 {
    u128::from(words[0]) | (u128::from(words[1]) << 64)
}

/// Months | days << 32, nanoseconds.
#[inline]
pub fn interval_words(v: Interval) -> [u64; 2] {
    [
        u64::from(v.months as u32) | (u64::from(v.days as u32) << 32),
        v.nanos as u64,
    ]
}
