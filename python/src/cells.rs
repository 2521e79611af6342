//! The engine's values as Python's. A batch is converted column by column, in a loop per type, and
//! then cut into tuples. A row of values, the result of a statement on one key, is converted value
//! by value to the same objects.

use crate::errors;
use crate::temporal::{DAY_US, civil, clock};
use crate::values::{decimal_type, interval_type, uuid_type};
use arrow::array::cast::AsArray;
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal32Type, Decimal64Type, Decimal128Type, Field,
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalMonthDayNanoType,
    IntervalUnit, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{
    PyBytes, PyDate, PyDateTime, PyDelta, PyDict, PyList, PyString, PyTime, PyTuple, PyTzInfo,
};
use strandline::{Value, ValueRow};

type Cells<'py> = Vec<Bound<'py, PyAny>>;

/// The rows of `batch` as tuples.
pub fn tuples<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Vec<Bound<'py, PyTuple>>> {
    let schema = batch.schema_ref();
    let mut columns = Vec::with_capacity(batch.num_columns());
    for (field, array) in schema.fields().iter().zip(batch.columns()) {
        columns.push(column(py, field, array)?.into_iter());
    }
    let mut rows = Vec::with_capacity(batch.num_rows());
    let mut cells = Vec::with_capacity(columns.len());
    for _ in 0..batch.num_rows() {
        cells.extend(columns.iter_mut().filter_map(Iterator::next));
        rows.push(PyTuple::new(py, cells.drain(..))?);
    }
    Ok(rows)
}

/// Takes the row that was found, as a tuple; None if there was none, or if it has been taken.
pub fn row_tuple<'py>(
    py: Python<'py>,
    row: &mut ValueRow,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let Some(values) = row.take() else {
        return Ok(None);
    };
    let fields = row.schema().fields().iter();
    let cells = fields.zip(&values).map(|(field, value)| Cell(field, value));
    PyTuple::new(py, cells).map(Some)
}

/// A value and its column.
struct Cell<'a>(&'a Field, &'a Value);

impl<'py> IntoPyObject<'py> for Cell<'_> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = PyErr;

    fn into_pyobject(self, py: Python<'py>) -> PyResult<Self::Output> {
        cell(py, self.0, self.1)
    }
}

fn cell<'py>(py: Python<'py>, field: &Field, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Null => Ok(py.None().into_bound(py)),
        Value::Boolean(v) => v.into_bound_py_any(py),
        Value::SmallInt(v) => v.into_bound_py_any(py),
        Value::Integer(v) => v.into_bound_py_any(py),
        Value::BigInt(v) => v.into_bound_py_any(py),
        Value::Real(v) => v.into_bound_py_any(py),
        Value::Double(v) => v.into_bound_py_any(py),
        Value::Numeric(v) => {
            let scale = match field.data_type() {
                DataType::Decimal64(_, scale) | DataType::Decimal128(_, scale) => *scale,
                _ => 0,
            };
            let mut text = String::new();
            write_decimal(&mut text, *v, usize::try_from(scale).unwrap_or(0));
            decimal_type(py)?.call1((text,))
        }
        Value::Text(v) if is_json(field) => {
            py.import("json")?.getattr("loads")?.call1((v.as_ref(),))
        }
        Value::Text(v) => Ok(PyString::new(py, v).into_any()),
        Value::Bytea(v) => Ok(PyBytes::new(py, v).into_any()),
        Value::Date(v) => date(py, i64::from(*v)),
        Value::Time(v) => time(py, *v),
        Value::Timestamp(v) => timestamp(py, *v, None),
        Value::TimestampTz(v) => {
            let utc = PyTzInfo::utc(py)?.to_owned();
            timestamp(py, *v, Some(&utc))
        }
        Value::Interval(v) => interval(py, v.months, v.days, v.nanos),
        Value::Uuid(v) => uuid_type(py)?.call1((py.None(), PyBytes::new(py, v))),
        Value::Point(v) => point(py, v.coordinates()),
        Value::Box(v) => corners(py, v.high(), v.low()),
    }
}

/// The values of a column.
fn column<'py>(py: Python<'py>, field: &Field, array: &ArrayRef) -> PyResult<Cells<'py>> {
    if is_json(field) {
        return json(py, array);
    }
    use DataType as T;
    match array.data_type() {
        T::Null => Ok(vec![py.None().into_bound(py); array.len()]),
        T::Boolean => {
            let values = array.as_boolean();
            cells(py, array, |row| values.value(row).into_bound_py_any(py))
        }
        T::Int8 => numbers::<Int8Type>(py, array),
        T::Int16 => numbers::<Int16Type>(py, array),
        T::Int32 => numbers::<Int32Type>(py, array),
        T::Int64 => numbers::<Int64Type>(py, array),
        T::UInt8 => numbers::<UInt8Type>(py, array),
        T::UInt16 => numbers::<UInt16Type>(py, array),
        T::UInt32 => numbers::<UInt32Type>(py, array),
        T::UInt64 => numbers::<UInt64Type>(py, array),
        T::Float32 => numbers::<Float32Type>(py, array),
        T::Float64 => numbers::<Float64Type>(py, array),
        T::Utf8 => {
            let values = array.as_string::<i32>();
            cells(py, array, |row| {
                Ok(PyString::new(py, values.value(row)).into_any())
            })
        }
        T::Utf8View => {
            let values = array.as_string_view();
            cells(py, array, |row| {
                Ok(PyString::new(py, values.value(row)).into_any())
            })
        }
        T::BinaryView => {
            let values = array.as_binary_view();
            cells(py, array, |row| {
                Ok(PyBytes::new(py, values.value(row)).into_any())
            })
        }
        T::FixedSizeBinary(16) => uuids(py, array),
        T::Decimal32(_, scale) => decimals::<Decimal32Type>(py, array, *scale),
        T::Decimal64(_, scale) => decimals::<Decimal64Type>(py, array, *scale),
        T::Decimal128(_, scale) => decimals::<Decimal128Type>(py, array, *scale),
        _ => temporal_column(py, array),
    }
}

fn temporal_column<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Cells<'py>> {
    use DataType as T;
    match array.data_type() {
        T::Date32 => {
            let values = array.as_primitive::<Date32Type>();
            cells(py, array, |row| date(py, values.value(row).into()))
        }
        T::Time64(TimeUnit::Microsecond) => {
            let values = array.as_primitive::<Time64MicrosecondType>();
            cells(py, array, |row| time(py, values.value(row)))
        }
        T::Timestamp(TimeUnit::Microsecond, zone) => {
            let values = array.as_primitive::<TimestampMicrosecondType>();
            let utc = match zone {
                Some(_) => Some(PyTzInfo::utc(py)?.to_owned()),
                None => None,
            };
            cells(py, array, |row| {
                timestamp(py, values.value(row), utc.as_ref())
            })
        }
        T::Interval(IntervalUnit::MonthDayNano) => {
            let values = array.as_primitive::<IntervalMonthDayNanoType>();
            cells(py, array, |row| {
                let v = values.value(row);
                interval(py, v.months, v.days, v.nanoseconds)
            })
        }
        _ => nested_column(py, array),
    }
}

fn nested_column<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Cells<'py>> {
    use DataType as T;
    match array.data_type() {
        T::List(item) => {
            let lists = array.as_list::<i32>();
            cells(py, array, |row| list(py, item, &lists.value(row)))
        }
        T::LargeList(item) => {
            let lists = array.as_list::<i64>();
            cells(py, array, |row| list(py, item, &lists.value(row)))
        }
        T::FixedSizeList(item, 2 | 4) if *item.data_type() == T::Float64 => {
            let lists = array.as_fixed_size_list();
            cells(py, array, |row| {
                match **lists.value(row).as_primitive::<Float64Type>().values() {
                    [x, y] => point(py, [x, y]),
                    [high_x, high_y, low_x, low_y] => corners(py, [high_x, high_y], [low_x, low_y]),
                    _ => Ok(py.None().into_bound(py)),
                }
            })
        }
        T::FixedSizeList(item, _) => {
            let lists = array.as_fixed_size_list();
            cells(py, array, |row| list(py, item, &lists.value(row)))
        }
        T::Struct(fields) => {
            let structs = array.as_struct();
            cells(py, array, |row| {
                let entries = PyDict::new(py);
                for (field, member) in fields.iter().zip(structs.columns()) {
                    let value = column(py, field, &member.slice(row, 1))?;
                    entries.set_item(field.name(), &value[0])?;
                }
                Ok(entries.into_any())
            })
        }
        other => match plainer(other) {
            Some(target) => {
                let array = cast(array, &target)
                    .map_err(|error| errors::raise(py, "22000", error.to_string()))?;
                column(py, &Field::new("", target, true), &array)
            }
            None => cells(py, array, |row| {
                strandline::cell(array, row).into_bound_py_any(py)
            }),
        },
    }
}

/// The type to which values are cast before their conversion; None for types without one.
fn plainer(t: &DataType) -> Option<DataType> {
    use DataType as T;
    Some(match t {
        T::LargeUtf8 => T::Utf8View,
        T::Binary | T::LargeBinary | T::FixedSizeBinary(_) => T::BinaryView,
        T::Float16 => T::Float32,
        T::Date64 => T::Date32,
        T::Time32(_) | T::Time64(_) => T::Time64(TimeUnit::Microsecond),
        T::Timestamp(_, zone) => T::Timestamp(TimeUnit::Microsecond, zone.clone()),
        T::Interval(_) | T::Duration(_) => T::Interval(IntervalUnit::MonthDayNano),
        T::Dictionary(_, values) => values.as_ref().clone(),
        _ => return None,
    })
}

/// One object per row; None for NULL.
fn cells<'py>(
    py: Python<'py>,
    array: &ArrayRef,
    mut value: impl FnMut(usize) -> PyResult<Bound<'py, PyAny>>,
) -> PyResult<Cells<'py>> {
    let mut out = Vec::with_capacity(array.len());
    let has_nulls = array.null_count() > 0;
    for row in 0..array.len() {
        out.push(match has_nulls && array.is_null(row) {
            true => py.None().into_bound(py),
            false => value(row)?,
        });
    }
    Ok(out)
}

fn numbers<'py, T>(py: Python<'py>, array: &ArrayRef) -> PyResult<Cells<'py>>
where
    T: ArrowPrimitiveType,
    T::Native: IntoPyObjectExt<'py>,
{
    let values = array.as_primitive::<T>();
    cells(py, array, |row| values.value(row).into_bound_py_any(py))
}

fn decimals<'py, T>(py: Python<'py>, array: &ArrayRef, scale: i8) -> PyResult<Cells<'py>>
where
    T: ArrowPrimitiveType,
    T::Native: Into<i128>,
{
    let decimal = decimal_type(py)?;
    let values = array.as_primitive::<T>();
    let scale = usize::try_from(scale).unwrap_or(0);
    let mut text = String::new();
    cells(py, array, |row| {
        write_decimal(&mut text, values.value(row).into(), scale);
        decimal.call1((text.as_str(),))
    })
}

/// `unscaled` with `scale` digits after the point.
fn write_decimal(text: &mut String, unscaled: i128, scale: usize) {
    use std::fmt::Write;
    text.clear();
    let digits = unscaled.unsigned_abs();
    let sign = if unscaled < 0 { "-" } else { "" };
    // A write to a string never fails. One more digit stands before the point.
    let _ = write!(text, "{sign}{digits:0width$}", width = scale + 1);
    if scale > 0 {
        text.insert(text.len() - scale, '.');
    }
}

/// A point as the tuple (x, y).
fn point<'py>(py: Python<'py>, [x, y]: [f64; 2]) -> PyResult<Bound<'py, PyAny>> {
    (x, y).into_bound_py_any(py)
}

/// A box as a tuple of its upper right and its lower left corner.
fn corners<'py>(py: Python<'py>, high: [f64; 2], low: [f64; 2]) -> PyResult<Bound<'py, PyAny>> {
    (point(py, high)?, point(py, low)?).into_bound_py_any(py)
}

fn uuids<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Cells<'py>> {
    let uuid = uuid_type(py)?;
    let values = array.as_fixed_size_binary();
    cells(py, array, |row| {
        let bytes = PyBytes::new(py, values.value(row));
        uuid.call1((py.None(), bytes))
    })
}

fn is_json(field: &Field) -> bool {
    let stored = field.metadata().get("strandline.sql_type");
    stored.is_some_and(|t| t == "\"json\"")
}

fn json<'py>(py: Python<'py>, array: &ArrayRef) -> PyResult<Cells<'py>> {
    let loads = py.import("json")?.getattr("loads")?;
    cells(py, array, |row| match strandline::cell(array, row) {
        Some(text) => loads.call1((text,)),
        None => Ok(py.None().into_bound(py)),
    })
}

fn date(py: Python<'_>, day: i64) -> PyResult<Bound<'_, PyAny>> {
    let (year, month, day) = civil(day);
    Ok(PyDate::new(py, year_of(py, year)?, month, day)?.into_any())
}

fn year_of(py: Python<'_>, year: i64) -> PyResult<i32> {
    match year {
        1..=9999 => Ok(year as i32),
        _ => Err(errors::raise(
            py,
            "22008",
            format!("Python's dates reach from year 1 to 9999, this one is of the year {year}"),
        )),
    }
}

fn time(py: Python<'_>, us: i64) -> PyResult<Bound<'_, PyAny>> {
    if us >= DAY_US {
        return Err(errors::raise(py, "22008", "Python has no time 24:00:00"));
    }
    let (hour, minute, second, us) = clock(us);
    Ok(PyTime::new(py, hour, minute, second, us, None)?.into_any())
}

fn timestamp<'py>(
    py: Python<'py>,
    us: i64,
    zone: Option<&Bound<'py, PyTzInfo>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (year, month, day) = civil(us.div_euclid(DAY_US));
    let (hour, minute, second, us) = clock(us.rem_euclid(DAY_US));
    let year = year_of(py, year)?;
    let moment = PyDateTime::new(py, year, month, day, hour, minute, second, us, zone)?;
    Ok(moment.into_any())
}

/// A `timedelta`, or an `Interval` if there are months, which have no fixed length.
fn interval(py: Python<'_>, months: i32, days: i32, nanos: i64) -> PyResult<Bound<'_, PyAny>> {
    let us = nanos / 1_000;
    if months != 0 {
        return interval_type(py)?.call1((months, days, us));
    }
    let days = i64::from(days) + us.div_euclid(DAY_US);
    let us = us.rem_euclid(DAY_US);
    let (seconds, us) = ((us / 1_000_000) as i32, (us % 1_000_000) as i32);
    Ok(PyDelta::new(py, days as i32, seconds, us, true)?.into_any())
}

fn list<'py>(py: Python<'py>, item: &Field, items: &ArrayRef) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyList::new(py, column(py, item, items)?)?.into_any())
}
