//! Conversions of one value between [`Value`] (the engine's), [`ScalarValue`] (DataFusion's) and
//! text.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::array::{
    BooleanArray, PrimitiveArray, StringViewArray, types::ArrowPrimitiveType,
};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::arrow::datatypes::{
    Date32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{Error, Interval, Result, SqlType, Value};
use strandline_column::types;
use strandline_column::types::{array_of, arrow_type};
use strandline_semantics::cast::{Mode, cast_array, strict_cast};
use strandline_semantics::error::convert;
use strandline_semantics::types::{sql_name, sql_type_of_arrow};

/// `value` as a value of column type `t`, by the rules of assignment.
pub fn from_scalar(value: &ScalarValue, t: SqlType) -> Result<Value> {
    if value.is_null() {
        return Ok(Value::Null);
    }
    let array = value.to_array().map_err(convert)?;
    let array = cast_array(&array, t, Mode::Assignment).map_err(convert)?;
    Ok(types::value_at(t, &array, 0))
}

/// The SQL type in results of a value of Arrow type `t`.
pub fn sql_type_of(t: &DataType) -> Result<SqlType> {
    sql_type_of_arrow(t).ok_or_else(|| {
        Error::unsupported(format!(
            "values of type {} cannot be stored or read singly",
            sql_name(t)
        ))
    })
}

/// The value at `row` of an array of any type that has an SQL type.
pub fn at(array: &ArrayRef, row: usize) -> Result<Value> {
    if array.is_null(row) || array.data_type() == &DataType::Null {
        return Ok(Value::Null);
    }
    let t = sql_type_of(array.data_type())?;
    let target = types::arrow_type(t);
    if array.data_type() == &target {
        return Ok(types::value_at(t, array, row));
    }
    let one = strict_cast(&array.slice(row, 1), &target)?;
    Ok(types::value_at(t, &one, 0))
}

/// `value` as DataFusion's scalar, for parameters.
pub fn to_scalar(value: &Value) -> ScalarValue {
    match value {
        Value::Null => ScalarValue::Null,
        Value::Boolean(v) => ScalarValue::Boolean(Some(*v)),
        Value::SmallInt(v) => ScalarValue::Int16(Some(*v)),
        Value::Integer(v) => ScalarValue::Int32(Some(*v)),
        Value::BigInt(v) => ScalarValue::Int64(Some(*v)),
        Value::Real(v) => ScalarValue::Float32(Some(*v)),
        Value::Double(v) => ScalarValue::Float64(Some(*v)),
        Value::Numeric(v) => ScalarValue::Decimal128(Some(*v), 38, 0),
        Value::Text(v) => ScalarValue::Utf8View(Some(v.to_string())),
        Value::Bytea(v) => ScalarValue::BinaryView(Some(v.to_vec())),
        Value::Date(v) => ScalarValue::Date32(Some(*v)),
        Value::Time(v) => ScalarValue::Time64Microsecond(Some(*v)),
        Value::Timestamp(v) => ScalarValue::TimestampMicrosecond(Some(*v), None),
        Value::TimestampTz(v) => ScalarValue::TimestampMicrosecond(Some(*v), Some("+00:00".into())),
        Value::Interval(Interval {
            months,
            days,
            nanos,
        }) => ScalarValue::new_interval_mdn(*months, *days, *nanos),
        Value::Uuid(v) => ScalarValue::FixedSizeBinary(16, Some(v.to_vec())),
        Value::Point(_) => geometric(SqlType::Point, value),
        Value::Box(_) => geometric(SqlType::Box, value),
    }
}

fn geometric(t: SqlType, value: &Value) -> ScalarValue {
    array_of(t, std::slice::from_ref(value))
        .ok()
        .and_then(|array| ScalarValue::try_from_array(&array, 0).ok())
        .expect("a value has its type's array, and that a scalar")
}

/// A timestamp of any unit as microseconds since the epoch; None if it is no timestamp or NULL.
pub fn timestamp_us(value: &ScalarValue) -> Option<i64> {
    match value.cast_to(&DataType::Timestamp(
        TimeUnit::Microsecond,
        Some("+00:00".into()),
    )) {
        Ok(ScalarValue::TimestampMicrosecond(us, _)) => us,
        _ => None,
    }
}

/// The SQL name of a value's type, for messages.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "unknown",
        Value::Boolean(_) => "boolean",
        Value::SmallInt(_) => "smallint",
        Value::Integer(_) => "integer",
        Value::BigInt(_) => "bigint",
        Value::Real(_) => "real",
        Value::Double(_) => "double precision",
        Value::Numeric(_) => "numeric",
        Value::Text(_) => "text",
        Value::Bytea(_) => "bytea",
        Value::Date(_) => "date",
        Value::Time(_) => "time without time zone",
        Value::Timestamp(_) => "timestamp without time zone",
        Value::TimestampTz(_) => "timestamp with time zone",
        Value::Interval(_) => "interval",
        Value::Uuid(_) => "uuid",
        Value::Point(_) => "point",
        Value::Box(_) => "box",
    }
}

fn one<P: ArrowPrimitiveType>(v: P::Native, t: SqlType) -> ArrayRef {
    let array = PrimitiveArray::<P>::new(vec![v].into(), None);
    match t {
        SqlType::Numeric { .. } | SqlType::TimestampTz => {
            Arc::new(array.with_data_type(arrow_type(t)))
        }
        _ => Arc::new(array),
    }
}

/// The first columns of rows that stand one after the other, of `width` cells each, as arrays of
/// `types`. The cells are taken.
pub(crate) fn arrays_of_rows(
    cells: &mut [Value],
    width: usize,
    types: &[SqlType],
) -> Result<Vec<ArrayRef>> {
    let mut column = Vec::with_capacity(cells.len() / width.max(1));
    let arrays = types.iter().enumerate().map(|(at, t)| {
        column.clear();
        let values = cells.iter_mut().skip(at).step_by(width);
        column.extend(values.map(|value| std::mem::replace(value, Value::Null)));
        array_of(*t, &column)
    });
    arrays.collect()
}

/// An array of one value.
pub(crate) fn array_of_one(t: SqlType, value: &Value) -> Result<ArrayRef> {
    Ok(match (t, value) {
        (SqlType::SmallInt, Value::SmallInt(v)) => one::<Int16Type>(*v, t),
        (SqlType::Integer, Value::Integer(v)) => one::<Int32Type>(*v, t),
        (SqlType::BigInt, Value::BigInt(v)) => one::<Int64Type>(*v, t),
        (SqlType::Real, Value::Real(v)) => one::<Float32Type>(*v, t),
        (SqlType::Double, Value::Double(v)) => one::<Float64Type>(*v, t),
        (SqlType::Date, Value::Date(v)) => one::<Date32Type>(*v, t),
        (SqlType::Timestamp, Value::Timestamp(v))
        | (SqlType::TimestampTz, Value::TimestampTz(v)) => one::<TimestampMicrosecondType>(*v, t),
        (SqlType::Boolean, Value::Boolean(v)) => Arc::new(BooleanArray::from(vec![*v])),
        (SqlType::Numeric { .. }, Value::Numeric(v)) => {
            let wide = matches!(
                arrow_type(t),
                datafusion::arrow::datatypes::DataType::Decimal128(..)
            );
            match i64::try_from(*v) {
                Ok(narrow) if !wide => one::<Decimal64Type>(narrow, t),
                _ if wide => one::<Decimal128Type>(*v, t),
                _ => return array_of(t, std::slice::from_ref(value)),
            }
        }
        (SqlType::Text | SqlType::Varchar(_), Value::Text(v)) => {
            Arc::new(StringViewArray::from_iter_values([v]))
        }
        _ => return array_of(t, std::slice::from_ref(value)),
    })
}
