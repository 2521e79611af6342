//! `Cursor.description`: names and types of a result's columns.

use arrow::datatypes::{DataType, Field, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// One 7-tuple per column: name, type, None, size in bytes, precision, scale, whether it may be
/// NULL.
pub fn of<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyList>> {
    let mut columns: Vec<Bound<'py, PyTuple>> = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let (precision, scale) = match field.data_type() {
            DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
                (Some(*p), Some(*s))
            }
            _ => (None, None),
        };
        let size = field.data_type().primitive_width();
        let nullable = field.is_nullable();
        let name = (
            field.name(),
            type_name(field),
            py.None(),
            size,
            precision,
            scale,
            nullable,
        );
        columns.push(name.into_pyobject(py)?);
    }
    PyList::new(py, columns)
}

/// The SQL type's name without length or precision.
fn type_name(field: &Field) -> String {
    let stored = field.metadata().get("strandline.sql_type");
    match stored.map(String::as_str) {
        Some("\"json\"") => return "json".into(),
        Some(stored) if stored.contains("varchar") => return "character varying".into(),
        Some(stored) if stored.contains("char") => return "character".into(),
        _ => {}
    }
    arrow_name(field.data_type())
}

fn arrow_name(t: &DataType) -> String {
    use DataType as T;
    let name = match t {
        T::Null => "unknown",
        T::Boolean => "boolean",
        T::Int8 | T::UInt8 | T::Int16 => "smallint",
        T::UInt16 | T::Int32 => "integer",
        T::UInt32 | T::Int64 | T::UInt64 => "bigint",
        T::Float16 | T::Float32 => "real",
        T::Float64 => "double precision",
        T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..) => "numeric",
        T::Utf8 | T::LargeUtf8 | T::Utf8View => "text",
        T::FixedSizeBinary(16) => "uuid",
        T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_) => "bytea",
        T::Date32 | T::Date64 => "date",
        T::Time32(_) | T::Time64(_) => "time without time zone",
        T::Timestamp(_, None) => "timestamp without time zone",
        T::Timestamp(_, Some(_)) => "timestamp with time zone",
        T::Interval(_) | T::Duration(_) => "interval",
        T::FixedSizeList(item, 2) if *item.data_type() == T::Float64 => "point",
        T::FixedSizeList(item, 4) if *item.data_type() == T::Float64 => "box",
        T::List(item) | T::LargeList(item) | T::FixedSizeList(item, _) => {
            return format!("{}[]", type_name(item));
        }
        T::Dictionary(_, values) => return arrow_name(values),
        T::Struct(_) => "record",
        other => return other.to_string(),
    };
    name.into()
}
