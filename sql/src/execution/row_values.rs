//! Checks of single values that are written without SQL: type, length, precision, NOT NULL, and the
//! range of an identity column.

use crate::values::value;
use strandline_base::{Error, ErrorKind, Result, SqlState, SqlType, Value};
use strandline_engine::catalog::{ColumnDef, TableDef};
use strandline_semantics::text::binary::check_json;

/// Whether a column may hold `value`: exactly its type, within its length or precision. NOT NULL is
/// checked when the row is written.
pub(crate) fn check_value(column: &ColumnDef, value: &Value) -> Result<()> {
    use SqlType as T;
    let fits = match (column.sql_type, value) {
        (_, Value::Null)
        | (T::Boolean, Value::Boolean(_))
        | (T::SmallInt, Value::SmallInt(_))
        | (T::Integer, Value::Integer(_))
        | (T::BigInt, Value::BigInt(_))
        | (T::Real, Value::Real(_))
        | (T::Double, Value::Double(_))
        | (T::Text, Value::Text(_))
        | (T::Bytea, Value::Bytea(_))
        | (T::Date, Value::Date(_))
        | (T::Time, Value::Time(_))
        | (T::Timestamp, Value::Timestamp(_))
        | (T::TimestampTz, Value::TimestampTz(_))
        | (T::Interval, Value::Interval(_))
        | (T::Uuid, Value::Uuid(_))
        | (T::Point, Value::Point(_))
        | (T::Box, Value::Box(_)) => true,
        (T::Numeric { precision, .. }, Value::Numeric(v)) => {
            return if v.unsigned_abs() < 10u128.pow(u32::from(precision)) {
                Ok(())
            } else {
                Err(Error::invalid(
                    SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                    format!(
                        "value out of range for column \"{}\" ({})",
                        column.name, column.sql_type
                    ),
                ))
            };
        }
        (T::Json, Value::Text(v)) => return check_json(v),
        (T::Varchar(n), Value::Text(v)) => return check_length(column, v, n, false),
        (T::Char(n), Value::Text(v)) => return check_length(column, v, n, true),
        _ => false,
    };
    if fits {
        Ok(())
    } else {
        Err(wrong_type(column, value))
    }
}

fn check_length(column: &ColumnDef, text: &str, n: u32, exactly: bool) -> Result<()> {
    let n = n as usize;
    let length = if text.is_ascii() {
        text.len()
    } else {
        text.chars().count()
    };
    if length == n || (length < n && !exactly) {
        return Ok(());
    }
    let error = Error::invalid(
        SqlState::STRING_DATA_RIGHT_TRUNCATION,
        format!(
            "a text of {length} characters does not fit column \"{}\" ({})",
            column.name, column.sql_type
        ),
    );
    Err(if exactly {
        error.with_hint("Pad the text with blanks.")
    } else {
        error
    })
}

fn wrong_type(column: &ColumnDef, value: &Value) -> Error {
    Error::new(
        ErrorKind::Invalid,
        SqlState::DATATYPE_MISMATCH,
        format!(
            "column \"{}\" is of type {} but the value is of type {}",
            column.name,
            column.sql_type,
            value::type_name(value)
        ),
    )
}

pub(crate) fn not_null(def: &TableDef, column: &ColumnDef) -> Error {
    Error::new(
        ErrorKind::Constraint,
        SqlState::NOT_NULL_VIOLATION,
        format!(
            "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
            column.name, def.name
        ),
    )
    .with_subject(def.column_subject(&column.name))
}

/// The next value of an identity column in the column's type.
pub(crate) fn identity(column: &ColumnDef, next: i64) -> Result<Value> {
    let value = match column.sql_type {
        SqlType::SmallInt => i16::try_from(next).ok().map(Value::SmallInt),
        SqlType::Integer => i32::try_from(next).ok().map(Value::Integer),
        _ => Some(Value::BigInt(next)),
    };
    value.ok_or_else(|| {
        Error::invalid(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            format!(
                "the identity of column \"{}\" has left the range of {}",
                column.name, column.sql_type
            ),
        )
    })
}
