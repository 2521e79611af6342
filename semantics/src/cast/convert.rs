//! Casting whole arrays.

use super::Mode;
use super::from_text::cast_text;
use crate::arithmetic::as_decimal;
use crate::calendar::{DAY, split_micros};
use crate::decimal::{MAX_DIGITS, Shape, divide_rounded, power_of_ten};
use crate::error::{invalid, out_of_range, raise};
use crate::geometry;
use crate::text::{ValueWriter, number};
use crate::types::{arrow_type, sql_name, sql_type_of_arrow};
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, Float64Array,
    Int64Array, PrimitiveArray, StringViewBuilder,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int16Type,
    Int32Type, Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, IntervalUnit,
    Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::Result;
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// Converts every value of `array` to the SQL type `to`; the result's Arrow type is
/// `arrow_type(to)`.
///
/// # Errors
/// 42846 if there is no such cast; the errors of the rules in the module's header.
pub fn cast_array(array: &ArrayRef, to: SqlType, mode: Mode) -> Result<ArrayRef> {
    let target = arrow_type(to);
    let Some(source) = sql_type_of_arrow(array.data_type()) else {
        return Err(no_cast(array.data_type(), to));
    };
    if *array.data_type() == DataType::Null {
        return Ok(cast(array, &target)?);
    }
    match source {
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json => {
            let text = cast(array, &DataType::Utf8View)?;
            return cast_text(text.as_string_view(), to, mode);
        }
        _ => {}
    }
    match to {
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json => {
            let text = write_text(array)?;
            cast_text(text.as_string_view(), to, mode)
        }
        SqlType::Boolean => to_boolean(array, source),
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => to_integer(array, to),
        SqlType::Numeric { precision, scale } => {
            to_numeric(array, Shape::new(precision, scale), to)
        }
        SqlType::Real | SqlType::Double => to_float(array, to),
        _ => to_other(array, source, to),
    }
}

fn no_cast(from: &DataType, to: SqlType) -> datafusion::error::DataFusionError {
    invalid(
        SqlState::CANNOT_COERCE,
        format!("cannot cast type {} to {to}", sql_name(from)),
    )
}

/// The output function, with `true` and `false` for booleans.
fn write_text(array: &ArrayRef) -> Result<ArrayRef> {
    let array = &canonical(array)?;
    let writer = ValueWriter::new(array)?;
    let mut builder = StringViewBuilder::with_capacity(array.len());
    let mut buffer = String::new();
    for row in 0..array.len() {
        if array.is_null(row) {
            builder.append_null();
            continue;
        }
        buffer.clear();
        writer
            .write(&mut buffer, row, ["false", "true"])
            .map_err(|_| datafusion::common::internal_datafusion_err!("formatting failed"))?;
        builder.append_value(&buffer);
    }
    Ok(Arc::new(builder.finish()))
}

/// Converts Arrow types that only DataFusion's functions produce to the types of SQL columns.
fn canonical(array: &ArrayRef) -> Result<ArrayRef> {
    match sql_type_of_arrow(array.data_type()) {
        Some(sql_type) if arrow_type(sql_type) != *array.data_type() => {
            Ok(cast(array, &arrow_type(sql_type))?)
        }
        _ => Ok(Arc::clone(array)),
    }
}

fn to_boolean(array: &ArrayRef, source: SqlType) -> Result<ArrayRef> {
    match source {
        SqlType::Boolean => Ok(Arc::clone(array)),
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => {
            let words = cast(array, &DataType::Int64)?;
            let words = words.as_primitive::<Int64Type>();
            Ok(Arc::new(BooleanArray::from_unary(words, |v| v != 0)))
        }
        _ => Err(no_cast(array.data_type(), SqlType::Boolean)),
    }
}

/// Applies `f` to every value that is not NULL; its first error is the result.
fn convert<A: ArrowPrimitiveType, B: ArrowPrimitiveType>(
    array: &PrimitiveArray<A>,
    to: SqlType,
    f: impl Fn(A::Native) -> Result<B::Native>,
) -> Result<ArrayRef> {
    let result: PrimitiveArray<B> = array.try_unary(f)?;
    Ok(Arc::new(result.with_data_type(arrow_type(to))))
}

fn to_integer(array: &ArrayRef, to: SqlType) -> Result<ArrayRef> {
    let words: Int64Array = match array.data_type() {
        DataType::Boolean => {
            let values = array.as_boolean().iter();
            values.map(|v| v.map(i64::from)).collect()
        }
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let doubles = cast(array, &DataType::Float64)?;
            doubles.as_primitive::<Float64Type>().try_unary(|v| {
                let rounded = v.round_ties_even();
                // 2^63 is the first double above bigint's range.
                let fits =
                    (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&rounded);
                if fits {
                    Ok(rounded as i64)
                } else {
                    Err(out_of_range(&to.to_string()))
                }
            })?
        }
        data_type if data_type.is_decimal() => {
            let (values, scale) = wide_decimals(array)?;
            let divisor = power_of_ten(scale);
            values.try_unary(|v| {
                i64::try_from(divide_rounded(v, divisor)).map_err(|_| out_of_range(&to.to_string()))
            })?
        }
        DataType::UInt64 => {
            let decimals = cast(array, &DataType::Decimal128(20, 0))?;
            return to_integer(&decimals, to);
        }
        data_type if data_type.is_integer() => cast(array, &DataType::Int64)?
            .as_primitive::<Int64Type>()
            .clone(),
        other => return Err(no_cast(other, to)),
    };
    match to {
        SqlType::SmallInt => convert::<Int64Type, Int16Type>(&words, to, |v| {
            i16::try_from(v).map_err(|_| out_of_range("smallint"))
        }),
        SqlType::Integer => convert::<Int64Type, Int32Type>(&words, to, |v| {
            i32::try_from(v).map_err(|_| out_of_range("integer"))
        }),
        _ => Ok(Arc::new(words)),
    }
}

/// A decimal or integer array as unscaled 128-bit integers and their scale.
fn wide_decimals(array: &ArrayRef) -> Result<(Decimal128Array, u8)> {
    let decimal = as_decimal(array.data_type()).unwrap_or(DataType::Decimal128(MAX_DIGITS, 0));
    let array = if array.data_type().is_integer() {
        cast(array, &decimal)?
    } else {
        Arc::clone(array)
    };
    match array.data_type() {
        DataType::Decimal64(_, s) => {
            let values = array.as_primitive::<Decimal64Type>();
            Ok((values.unary(i128::from), *s as u8))
        }
        DataType::Decimal128(_, s) => {
            Ok((array.as_primitive::<Decimal128Type>().clone(), *s as u8))
        }
        DataType::Decimal32(p, s) | DataType::Decimal256(p, s) => {
            let wide = cast(&array, &DataType::Decimal128((*p).min(MAX_DIGITS), *s))?;
            Ok((wide.as_primitive::<Decimal128Type>().clone(), *s as u8))
        }
        other => datafusion::common::internal_err!("{other} is not a decimal"),
    }
}

fn to_numeric(array: &ArrayRef, shape: Shape, to: SqlType) -> Result<ArrayRef> {
    let values: Decimal128Array = match array.data_type() {
        DataType::Float16 | DataType::Float32 => {
            let floats = cast(array, &DataType::Float32)?;
            let floats = floats.as_primitive::<Float32Type>();
            floats.try_unary(|v| float_to_numeric(f64::from(v), 6, shape))?
        }
        DataType::Float64 => {
            let doubles = array.as_primitive::<Float64Type>();
            doubles.try_unary(|v| float_to_numeric(v, 15, shape))?
        }
        data_type if data_type.is_decimal() || data_type.is_integer() => {
            let (values, scale) = wide_decimals(array)?;
            let overflow = || raise(number::field_overflow(shape));
            let rescaled = |v: i128| -> Option<i128> {
                let v = if scale <= shape.scale {
                    v.checked_mul(power_of_ten(shape.scale - scale))?
                } else {
                    divide_rounded(v, power_of_ten(scale - shape.scale))
                };
                number::fits(v, shape).then_some(v)
            };
            values.try_unary(|v| rescaled(v).ok_or_else(overflow))?
        }
        other => return Err(no_cast(other, to)),
    };
    if shape.is_narrow() {
        let narrow: PrimitiveArray<Decimal64Type> = values.unary(|v| v as i64);
        return Ok(Arc::new(narrow.with_data_type(shape.data_type())));
    }
    Ok(Arc::new(values.with_data_type(shape.data_type())))
}

/// A float rounded to its first `digits` significant digits, as a numeric.
fn float_to_numeric(value: f64, digits: usize, shape: Shape) -> Result<i128> {
    if !value.is_finite() {
        return Err(invalid(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!("cannot convert {value} to numeric: it has neither NaN nor infinity"),
        ));
    }
    let text = format!("{value:.0$e}", digits - 1);
    number::parse_numeric(&text, shape).map_err(raise)
}

fn to_float(array: &ArrayRef, to: SqlType) -> Result<ArrayRef> {
    let doubles: Float64Array = match array.data_type() {
        data_type if data_type.is_decimal() => {
            let (values, scale) = wide_decimals(array)?;
            values.unary(|v| numeric_to_double(v, scale))
        }
        data_type if data_type.is_numeric() => cast(array, &DataType::Float64)?
            .as_primitive::<Float64Type>()
            .clone(),
        other => return Err(no_cast(other, to)),
    };
    if to == SqlType::Double {
        return Ok(Arc::new(doubles));
    }
    let fault = |what: &str| {
        let message = format!("value out of range: {what}");
        invalid(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
    };
    convert::<Float64Type, Float32Type>(&doubles, to, |v| {
        let narrow = v as f32;
        if narrow.is_infinite() && v.is_finite() {
            Err(fault("overflow"))
        } else if narrow == 0.0 && v != 0.0 {
            Err(fault("underflow"))
        } else {
            Ok(narrow)
        }
    })
}

/// The nearest double. If both operands are exact, one division rounds once; else the conversion
/// goes through text.
fn numeric_to_double(unscaled: i128, scale: u8) -> f64 {
    const EXACT: u128 = 1 << 53;
    if unscaled.unsigned_abs() <= EXACT && scale <= 22 {
        return unscaled as f64 / 10f64.powi(i32::from(scale));
    }
    format!("{unscaled}e-{scale}").parse().unwrap_or(f64::NAN)
}

fn to_other(array: &ArrayRef, source: SqlType, to: SqlType) -> Result<ArrayRef> {
    let array = canonical(array)?;
    match (source, to) {
        _ if *array.data_type() == arrow_type(to) => Ok(array),
        (
            SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz,
            SqlType::Timestamp | SqlType::TimestampTz,
        ) => {
            let micros = cast(&array, &DataType::Timestamp(TimeUnit::Microsecond, None))?;
            let micros = micros.as_primitive::<TimestampMicrosecondType>().clone();
            Ok(Arc::new(micros.with_data_type(arrow_type(to))))
        }
        (SqlType::Timestamp | SqlType::TimestampTz, SqlType::Date) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>();
            convert::<_, Date32Type>(micros, to, |v| Ok(split_micros(v).0 as i32))
        }
        (SqlType::Timestamp | SqlType::TimestampTz, SqlType::Time) => {
            let micros = array.as_primitive::<TimestampMicrosecondType>();
            convert::<_, Time64MicrosecondType>(micros, to, |v| Ok(split_micros(v).1))
        }
        (SqlType::Time, SqlType::Interval) => {
            let micros = array.as_primitive::<Time64MicrosecondType>();
            convert::<_, IntervalMonthDayNanoType>(micros, to, |v| {
                Ok(IntervalMonthDayNano::new(0, 0, v * 1_000))
            })
        }
        (SqlType::Interval, SqlType::Time)
            if *array.data_type() == DataType::Interval(IntervalUnit::MonthDayNano) =>
        {
            let intervals = array.as_primitive::<IntervalMonthDayNanoType>();
            convert::<_, Time64MicrosecondType>(intervals, to, |v| {
                Ok((v.nanoseconds / 1_000).rem_euclid(DAY))
            })
        }
        (SqlType::Point, SqlType::Box) => geometry::boxes_of_points(&array),
        (SqlType::Box, SqlType::Point) => geometry::centers(&array),
        _ => Err(no_cast(array.data_type(), to)),
    }
}
