//! SQL types and single values. Columns of values are Arrow arrays (crate `strandline-column`).

use crate::geometry::{BoxCorners, Point};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A column's SQL type. JSON in the catalog is the serde form of this enum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SqlType {
    /// boolean
    Boolean,
    /// smallint, 16 bits
    SmallInt,
    /// integer, 32 bits
    Integer,
    /// bigint, 64 bits
    BigInt,
    /// real, IEEE 754 single
    Real,
    /// double precision, IEEE 754 double
    Double,
    /// numeric(precision, scale); 1 ≤ precision ≤ 38, 0 ≤ scale ≤ precision.
    /// Stored as 64-bit integers for precision ≤ 18, else as 128-bit integers.
    Numeric {
        /// decimal digits in all
        precision: u8,
        /// decimal digits after the point
        scale: u8,
    },
    /// text
    Text,
    /// varchar(n): at most n characters
    Varchar(u32),
    /// char(n): padded with blanks to n characters
    Char(u32),
    /// bytea
    Bytea,
    /// date: days since 1970-01-01
    Date,
    /// time without time zone: microseconds since midnight
    Time,
    /// timestamp without time zone: microseconds since 1970-01-01
    Timestamp,
    /// timestamp with time zone: microseconds since 1970-01-01 UTC
    TimestampTz,
    /// interval: months, days, nanoseconds
    Interval,
    /// uuid: 16 bytes
    Uuid,
    /// json, kept as text
    Json,
    /// point: x and y, double precision
    Point,
    /// box: two opposite corners
    Box,
}

impl fmt::Display for SqlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boolean => f.write_str("boolean"),
            Self::SmallInt => f.write_str("smallint"),
            Self::Integer => f.write_str("integer"),
            Self::BigInt => f.write_str("bigint"),
            Self::Real => f.write_str("real"),
            Self::Double => f.write_str("double precision"),
            Self::Numeric { precision, scale } => write!(f, "numeric({precision},{scale})"),
            Self::Text => f.write_str("text"),
            Self::Varchar(n) => write!(f, "character varying({n})"),
            Self::Char(n) => write!(f, "character({n})"),
            Self::Bytea => f.write_str("bytea"),
            Self::Date => f.write_str("date"),
            Self::Time => f.write_str("time without time zone"),
            Self::Timestamp => f.write_str("timestamp without time zone"),
            Self::TimestampTz => f.write_str("timestamp with time zone"),
            Self::Interval => f.write_str("interval"),
            Self::Uuid => f.write_str("uuid"),
            Self::Json => f.write_str("json"),
            Self::Point => f.write_str("point"),
            Self::Box => f.write_str("box"),
        }
    }
}

/// An interval as PostgreSQL and Arrow (`MonthDayNano`) keep it.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
pub struct Interval {
    /// whole months
    pub months: i32,
    /// whole days
    pub days: i32,
    /// nanoseconds
    pub nanos: i64,
}

/// One SQL value. Its type is the column's; `Numeric` holds the unscaled integer at the column's
/// scale, `Text` serves text, varchar, char and json.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Value {
    /// NULL of any type
    Null,
    /// boolean
    Boolean(bool),
    /// smallint
    SmallInt(i16),
    /// integer
    Integer(i32),
    /// bigint
    BigInt(i64),
    /// real
    Real(f32),
    /// double precision
    Double(f64),
    /// numeric: the unscaled integer
    Numeric(i128),
    /// text, varchar, char, json
    Text(Arc<str>),
    /// bytea
    Bytea(Arc<[u8]>),
    /// date: days since 1970-01-01
    Date(i32),
    /// time: microseconds since midnight
    Time(i64),
    /// timestamp: microseconds since 1970-01-01
    Timestamp(i64),
    /// timestamptz: microseconds since 1970-01-01 UTC
    TimestampTz(i64),
    /// interval
    Interval(Interval),
    /// uuid
    Uuid([u8; 16]),
    /// point
    Point(Point),
    /// box
    Box(BoxCorners),
}

impl Value {
    /// The order of two values of one type, as PostgreSQL sorts them: text and bytes by bytes
    /// (collation C), NaN above every number and equal to itself. None for values of different
    /// variants, NULLs, points and boxes, which have no order. Intervals compare by their length with
    /// months of 30 days and days of 24 hours.
    pub fn compare(&self, other: &Value) -> Option<std::cmp::Ordering> {
        use Value as V;
        Some(match (self, other) {
            (V::Boolean(a), V::Boolean(b)) => a.cmp(b),
            (V::SmallInt(a), V::SmallInt(b)) => a.cmp(b),
            (V::Integer(a), V::Integer(b)) | (V::Date(a), V::Date(b)) => a.cmp(b),
            (V::BigInt(a), V::BigInt(b))
            | (V::Time(a), V::Time(b))
            | (V::Timestamp(a), V::Timestamp(b))
            | (V::TimestampTz(a), V::TimestampTz(b)) => a.cmp(b),
            (V::Real(a), V::Real(b)) => compare_floats(f64::from(*a), f64::from(*b)),
            (V::Double(a), V::Double(b)) => compare_floats(*a, *b),
            (V::Numeric(a), V::Numeric(b)) => a.cmp(b),
            (V::Text(a), V::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
            (V::Bytea(a), V::Bytea(b)) => a.cmp(b),
            (V::Uuid(a), V::Uuid(b)) => a.cmp(b),
            (V::Interval(a), V::Interval(b)) => interval_nanos(*a).cmp(&interval_nanos(*b)),
            _ => return None,
        })
    }
    /// Whether this is NULL.
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }
}

fn interval_nanos(v: Interval) -> i128 {
    const DAY_NANOS: i128 = 86_400_000_000_000;
    (i128::from(v.months) * 30 + i128::from(v.days)) * DAY_NANOS + i128::from(v.nanos)
}

fn compare_floats(a: f64, b: f64) -> std::cmp::Ordering {
    a.partial_cmp(&b)
        .unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

macro_rules! from {
    ($($t:ty => $v:ident),*) => {
        $( impl From<$t> for Value { fn from(v: $t) -> Self { Value::$v(v) } } )*
    };
}
from!(bool => Boolean, i16 => SmallInt, i32 => Integer, i64 => BigInt, f32 => Real, f64 => Double);

impl From<&str> for Value {
    fn from(v: &str) -> Self {
        Value::Text(v.into())
    }
}
impl From<String> for Value {
    fn from(v: String) -> Self {
        Value::Text(v.into())
    }
}
impl From<&[u8]> for Value {
    fn from(v: &[u8]) -> Self {
        Value::Bytea(v.into())
    }
}
impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(v: Option<T>) -> Self {
        v.map_or(Value::Null, Into::into)
    }
}
