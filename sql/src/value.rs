//! One value as [`Value`] (the engine's), as [`ScalarValue`] (DataFusion's) and as text.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::scalar::ScalarValue;
use strandline_base::{Error, Interval, Result, SqlType, Value};
use strandline_column::types;
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

/// The SQL type that a value of Arrow type `t` has in results.
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
    }
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
    }
}
