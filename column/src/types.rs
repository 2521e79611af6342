//! SQL types ↔ Arrow arrays ↔ single [`Value`]s ↔ the words and bytes of tail pages.
//!
//! One column has one SQL type, one Arrow type ([`arrow_type`]) and one physical form in tail pages
//! ([`physical`]). All conversions between them are here, so that the tail, the chunks, the log and
//! the update runs agree on a value's bits.
//!
//! Invariants:
//! * a value that goes through an array, a word, two words or bytes comes back bit for bit (also
//!   NaNs and −0.0);
//! * reading a word from an array ([`word_at`]) or a value from a word allocates nothing.

use arrow_array::builder::{
    BinaryViewBuilder, BooleanBuilder, FixedSizeBinaryBuilder, PrimitiveBuilder, StringViewBuilder,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type,
    Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, FixedSizeListArray, Float64Array};
use arrow_buffer::{Buffer, IntervalMonthDayNano, MutableBuffer, NullBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, IntervalUnit, TimeUnit};
use std::sync::Arc;
use strandline_base::value_words::{
    NUMERIC_WORD_PRECISION, Physical, halves, interval_words, physical, value_of_bytes,
    value_of_wide, value_of_word,
};
use strandline_base::{BoxCorners, Error, Interval, Result, SqlType, Value};

mod encoding;
#[cfg(test)]
mod tests;

pub use encoding::{StoredValue, put_value, take_value};

/// The time zone of `timestamptz` values in Arrow.
pub const UTC: &str = "+00:00";

/// The Arrow type of a column: text as `Utf8View`, bytea as `BinaryView`, numeric(p ≤ 18) as
/// `Decimal64`, timestamps in microseconds (with time zone: "+00:00"). A point is a fixed-size list
/// of x and y, a box one of the upper right corner's x and y, then the lower left one's.
pub fn arrow_type(t: SqlType) -> DataType {
    match t {
        SqlType::Boolean => DataType::Boolean,
        SqlType::SmallInt => DataType::Int16,
        SqlType::Integer => DataType::Int32,
        SqlType::BigInt => DataType::Int64,
        SqlType::Real => DataType::Float32,
        SqlType::Double => DataType::Float64,
        SqlType::Numeric { precision, scale } if precision <= NUMERIC_WORD_PRECISION => {
            DataType::Decimal64(precision, scale as i8)
        }
        SqlType::Numeric { precision, scale } => DataType::Decimal128(precision, scale as i8),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json => {
            DataType::Utf8View
        }
        SqlType::Bytea => DataType::BinaryView,
        SqlType::Date => DataType::Date32,
        SqlType::Time => DataType::Time64(TimeUnit::Microsecond),
        SqlType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
        SqlType::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into())),
        SqlType::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        SqlType::Uuid => DataType::FixedSizeBinary(16),
        SqlType::Point => coordinates_type(2),
        SqlType::Box => coordinates_type(4),
    }
}

fn coordinates_type(coordinates: i32) -> DataType {
    DataType::FixedSizeList(
        Arc::new(Field::new_list_field(DataType::Float64, true)),
        coordinates,
    )
}

/// Bytes per value of an Arrow type of [`arrow_type`] whose values have whole bytes of one number;
/// None for booleans, text and bytea.
pub fn fixed_width(data_type: &DataType) -> Option<usize> {
    match data_type {
        DataType::FixedSizeBinary(bytes) => Some(*bytes as usize),
        DataType::FixedSizeList(_, coordinates) => Some(*coordinates as usize * size_of::<f64>()),
        DataType::Boolean => None,
        other => other.primitive_width(),
    }
}

/// Whether values of the type have bytes of any number: text, varchar, char, json and bytea.
pub fn is_of_any_length(t: SqlType) -> bool {
    physical(t) == Physical::Bytes && t != SqlType::Box
}

/// The coordinates of all rows of an array of points or boxes, those of NULLs being arbitrary.
///
/// # Panics
/// If the array has another type.
pub fn coordinates(array: &dyn Array) -> &[f64] {
    array
        .as_fixed_size_list()
        .values()
        .as_primitive::<Float64Type>()
        .values()
}

/// The coordinates of one row of an array of points or boxes; zeros or other numbers for NULL.
///
/// # Panics
/// If the array has another type or `row` is out of bounds.
#[inline]
pub fn coordinates_at(array: &dyn Array, row: usize) -> &[f64] {
    let width = array.as_fixed_size_list().value_length() as usize;
    &coordinates(array)[row * width..][..width]
}

/// An array of points or boxes over the coordinates of all its rows, little-endian. `data_type` is
/// a fixed-size list of [`arrow_type`].
///
/// # Panics
/// If `bytes` has another number of rows than `nulls`.
pub fn coordinate_array(
    data_type: &DataType,
    bytes: Buffer,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let DataType::FixedSizeList(field, coordinates) = data_type else {
        unreachable!("{data_type} is neither of points nor of boxes");
    };
    let values = Float64Array::new(ScalarBuffer::from(bytes), None);
    let list = FixedSizeListArray::new(field.clone(), *coordinates, Arc::new(values), nulls);
    Arc::new(list)
}

/// The value at `row` of an array of [`arrow_type`]`(t)`.
///
/// # Panics
/// If the array has another type or `row` is out of bounds.
#[inline]
pub fn value_at(t: SqlType, array: &ArrayRef, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    match t {
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json => {
            Value::Text(array.as_string_view().value(row).into())
        }
        SqlType::Bytea => Value::Bytea(array.as_binary_view().value(row).into()),
        SqlType::Box => value_of_bytes(t, box_bytes(array, row)).expect("boxes hold 32 bytes"),
        _ if physical(t) == Physical::Wide => value_of_wide(t, wide_of_valid(t, array, row)),
        _ => value_of_word(t, word_of_valid(t, array, row)),
    }
}

/// The word at `row` of an array of a [`Physical::Word`] type; `None` for NULL.
///
/// # Panics
/// If the array has another type or `row` is out of bounds.
#[inline]
pub fn word_at(t: SqlType, array: &ArrayRef, row: usize) -> Option<u64> {
    array.is_valid(row).then(|| word_of_valid(t, array, row))
}

/// Passes the words of an array of a [`Physical::Word`] type to `put`, in order; `None` for NULL.
///
/// # Panics
/// If the array has another type.
pub fn each_word(t: SqlType, array: &ArrayRef, mut put: impl FnMut(Option<u64>)) {
    // The type is examined once per array, not per value.
    match t {
        SqlType::BigInt => each_of::<Int64Type>(array, |v| v as u64, put),
        SqlType::Integer => each_of::<Int32Type>(array, |v| i64::from(v) as u64, put),
        SqlType::Double => each_of::<Float64Type>(array, f64::to_bits, put),
        SqlType::Numeric { .. } => each_of::<Decimal64Type>(array, |v| v as u64, put),
        SqlType::Date => each_of::<Date32Type>(array, |v| i64::from(v) as u64, put),
        SqlType::Timestamp | SqlType::TimestampTz => {
            each_of::<TimestampMicrosecondType>(array, |v| v as u64, put);
        }
        _ => (0..array.len()).for_each(|row| put(word_at(t, array, row))),
    }
}

/// [`each_word`] for a known array type.
fn each_of<P: ArrowPrimitiveType>(
    array: &ArrayRef,
    word: impl Fn(P::Native) -> u64,
    put: impl FnMut(Option<u64>),
) {
    let array = array.as_primitive::<P>();
    match array.nulls() {
        None => array.values().iter().map(|v| Some(word(*v))).for_each(put),
        Some(_) => array.iter().map(|v| v.map(&word)).for_each(put),
    }
}

/// The two words at `row` of an array of a [`Physical::Wide`] type; `None` for NULL.
///
/// # Panics
/// If the array has another type or `row` is out of bounds.
#[inline]
pub fn wide_at(t: SqlType, array: &ArrayRef, row: usize) -> Option<[u64; 2]> {
    array.is_valid(row).then(|| wide_of_valid(t, array, row))
}

/// The bytes at `row` of an array of a [`Physical::Bytes`] type; `None` for NULL.
///
/// # Panics
/// If the array has another type or `row` is out of bounds.
#[inline]
pub fn bytes_at(t: SqlType, array: &ArrayRef, row: usize) -> Option<&[u8]> {
    array.is_valid(row).then(|| match t {
        SqlType::Bytea => array.as_binary_view().value(row),
        SqlType::Box => box_bytes(array, row),
        _ => array.as_string_view().value(row).as_bytes(),
    })
}

fn box_bytes(array: &ArrayRef, row: usize) -> &[u8] {
    // Arrow keeps values in host order; boxes are little-endian.
    const { assert!(cfg!(target_endian = "little")) };
    let values = array.as_fixed_size_list().values();
    let bytes = values.as_primitive::<Float64Type>().values().inner();
    &bytes.as_slice()[row * BoxCorners::BYTES..][..BoxCorners::BYTES]
}

fn native<P: ArrowPrimitiveType>(array: &ArrayRef, row: usize) -> P::Native {
    array.as_primitive::<P>().value(row)
}

fn word_of_valid(t: SqlType, array: &ArrayRef, row: usize) -> u64 {
    match t {
        SqlType::Boolean => u64::from(array.as_boolean().value(row)),
        SqlType::SmallInt => i64::from(native::<Int16Type>(array, row)) as u64,
        SqlType::Integer => i64::from(native::<Int32Type>(array, row)) as u64,
        SqlType::BigInt => native::<Int64Type>(array, row) as u64,
        SqlType::Real => u64::from(native::<Float32Type>(array, row).to_bits()),
        SqlType::Double => native::<Float64Type>(array, row).to_bits(),
        SqlType::Numeric { .. } => native::<Decimal64Type>(array, row) as u64,
        SqlType::Date => i64::from(native::<Date32Type>(array, row)) as u64,
        SqlType::Time => native::<Time64MicrosecondType>(array, row) as u64,
        SqlType::Timestamp | SqlType::TimestampTz => {
            native::<TimestampMicrosecondType>(array, row) as u64
        }
        _ => unreachable!("{t} is not held in one word"),
    }
}

fn wide_of_valid(t: SqlType, array: &ArrayRef, row: usize) -> [u64; 2] {
    match t {
        SqlType::Numeric { .. } => halves(native::<Decimal128Type>(array, row) as u128),
        SqlType::Interval => {
            let v = native::<IntervalMonthDayNanoType>(array, row);
            interval_words(Interval {
                months: v.months,
                days: v.days,
                nanos: v.nanoseconds,
            })
        }
        SqlType::Uuid => {
            let bytes = array.as_fixed_size_binary().value(row);
            halves(u128::from_le_bytes(
                bytes.try_into().expect("uuid arrays hold 16 bytes"),
            ))
        }
        SqlType::Point => {
            let at = coordinates_at(array, row);
            [at[0].to_bits(), at[1].to_bits()]
        }
        _ => unreachable!("{t} is not held in two words"),
    }
}

fn wrong_value(t: SqlType, v: &Value) -> Error {
    Error::internal(format!("a value of type {t} was expected, got {v:?}"))
}

macro_rules! build_primitive {
    ($t:expr, $values:expr, $arrow:ty, $pattern:pat => $native:expr) => {{
        let mut b =
            PrimitiveBuilder::<$arrow>::with_capacity($values.len()).with_data_type(arrow_type($t));
        for v in $values {
            match v {
                Value::Null => b.append_null(),
                $pattern => b.append_value($native),
                other => return Err(wrong_value($t, other)),
            }
        }
        Arc::new(b.finish()) as ArrayRef
    }};
}

macro_rules! build {
    ($t:expr, $values:expr, $builder:expr, $pattern:pat => $native:expr) => {{
        let mut b = $builder;
        for v in $values {
            match v {
                Value::Null => b.append_null(),
                $pattern => b.append_value($native),
                other => return Err(wrong_value($t, other)),
            }
        }
        Arc::new(b.finish()) as ArrayRef
    }};
}

/// An array of [`arrow_type`]`(t)`.
///
/// # Errors
/// A value of another type, or a numeric that does not fit the type's 64 bits, is an internal
/// error.
pub fn array_of(t: SqlType, values: &[Value]) -> Result<ArrayRef> {
    let n = values.len();
    Ok(match t {
        SqlType::Boolean => {
            build!(t, values, BooleanBuilder::with_capacity(n), Value::Boolean(v) => *v)
        }
        SqlType::SmallInt => build_primitive!(t, values, Int16Type, Value::SmallInt(v) => *v),
        SqlType::Integer => build_primitive!(t, values, Int32Type, Value::Integer(v) => *v),
        SqlType::BigInt => build_primitive!(t, values, Int64Type, Value::BigInt(v) => *v),
        SqlType::Real => build_primitive!(t, values, Float32Type, Value::Real(v) => *v),
        SqlType::Double => build_primitive!(t, values, Float64Type, Value::Double(v) => *v),
        SqlType::Numeric { .. } => return numeric_array(t, values),
        SqlType::Date => build_primitive!(t, values, Date32Type, Value::Date(v) => *v),
        SqlType::Time => {
            build_primitive!(t, values, Time64MicrosecondType, Value::Time(v) => *v)
        }
        SqlType::Timestamp => {
            build_primitive!(t, values, TimestampMicrosecondType, Value::Timestamp(v) => *v)
        }
        SqlType::TimestampTz => {
            build_primitive!(t, values, TimestampMicrosecondType, Value::TimestampTz(v) => *v)
        }
        SqlType::Interval => {
            build_primitive!(t, values, IntervalMonthDayNanoType, Value::Interval(v) =>
                IntervalMonthDayNano::new(v.months, v.days, v.nanos))
        }
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json => {
            build!(t, values, StringViewBuilder::with_capacity(n), Value::Text(v) => &**v)
        }
        SqlType::Bytea => {
            build!(t, values, BinaryViewBuilder::with_capacity(n), Value::Bytea(v) => &**v)
        }
        SqlType::Uuid => return uuid_array(t, values),
        SqlType::Point | SqlType::Box => return coordinates_array_of(t, values),
    })
}

fn numeric_array(t: SqlType, values: &[Value]) -> Result<ArrayRef> {
    if physical(t) == Physical::Wide {
        return Ok(build_primitive!(t, values, Decimal128Type, Value::Numeric(v) => *v));
    }
    Ok(
        build_primitive!(t, values, Decimal64Type, Value::Numeric(v) =>
        i64::try_from(*v).map_err(|_| wrong_value(t, &Value::Numeric(*v)))?),
    )
}

fn uuid_array(t: SqlType, values: &[Value]) -> Result<ArrayRef> {
    let mut b = FixedSizeBinaryBuilder::with_capacity(values.len(), 16);
    for v in values {
        match v {
            Value::Null => b.append_null(),
            Value::Uuid(v) => b.append_value(v).expect("16 bytes fit a 16-byte array"),
            other => return Err(wrong_value(t, other)),
        }
    }
    Ok(Arc::new(b.finish()))
}

fn coordinates_array_of(t: SqlType, values: &[Value]) -> Result<ArrayRef> {
    let data_type = arrow_type(t);
    let width = fixed_width(&data_type).unwrap_or_default();
    let mut bytes = MutableBuffer::with_capacity(values.len() * width);
    for v in values {
        match (t, v) {
            (_, Value::Null) => bytes.extend_zeros(width),
            (SqlType::Point, Value::Point(v)) => {
                let words = v.words().map(u64::to_le_bytes);
                bytes.extend_from_slice(words.as_flattened());
            }
            (SqlType::Box, Value::Box(v)) => bytes.extend_from_slice(v.as_bytes()),
            (_, other) => return Err(wrong_value(t, other)),
        }
    }
    let nulls: NullBuffer = values.iter().map(|v| !v.is_null()).collect();
    let nulls = (nulls.null_count() > 0).then_some(nulls);
    Ok(coordinate_array(&data_type, bytes.into(), nulls))
}
