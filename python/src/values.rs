//! Python's values as the engine's, for parameters.
//!
//! Values of the common types are recognized by their exact type. Subclasses, and scalars of NumPy
//! and pandas, take a slower path.

use crate::errors;
use crate::temporal::{DAY_US, days};
use arrow::datatypes::IntervalMonthDayNano;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDate, PyDateAccess, PyDateTime, PyDelta, PyDeltaAccess, PyDict,
    PyFloat, PyInt, PyList, PyMemoryView, PyString, PyTime, PyTimeAccess, PyTuple, PyType,
    PyTzInfoAccess,
};
use strandline::ScalarValue;

const OUT_OF_RANGE: &str = "22003";
/// The largest number of digits that a numeric has.
const DIGITS: usize = 38;

/// `value` as a parameter.
pub fn scalar(value: &Bound<'_, PyAny>) -> PyResult<ScalarValue> {
    if value.is_none() {
        return Ok(ScalarValue::Null);
    }
    if let Ok(v) = value.cast_exact::<PyInt>() {
        return integer(v);
    }
    if let Ok(v) = value.cast_exact::<PyString>() {
        return Ok(ScalarValue::Utf8(Some(v.to_str()?.to_owned())));
    }
    if let Ok(v) = value.cast_exact::<PyFloat>() {
        return Ok(ScalarValue::Float64(Some(v.extract()?)));
    }
    if let Ok(v) = value.cast_exact::<PyBool>() {
        return Ok(ScalarValue::Boolean(Some(v.is_true())));
    }
    if let Ok(v) = value.cast::<PyBytes>() {
        return Ok(ScalarValue::Binary(Some(v.as_bytes().to_vec())));
    }
    temporal(value)
}

fn integer(value: &Bound<'_, PyInt>) -> PyResult<ScalarValue> {
    if let Ok(v) = value.extract::<i64>() {
        return Ok(ScalarValue::Int64(Some(v)));
    }
    let digits = value.str()?;
    decimal(value.py(), digits.to_str()?)
}

fn temporal(value: &Bound<'_, PyAny>) -> PyResult<ScalarValue> {
    // A `datetime` is a `date` as well, and pandas' NaT is a `datetime`.
    if is_missing(value)? {
        return Ok(ScalarValue::Null);
    }
    if let Ok(v) = value.cast::<PyDateTime>() {
        return moment(v);
    }
    if let Ok(v) = value.cast::<PyDate>() {
        let day = days(v.get_year().into(), v.get_month(), v.get_day());
        return Ok(ScalarValue::Date32(Some(day as i32)));
    }
    if let Ok(v) = value.cast::<PyTime>() {
        if v.get_tzinfo().is_some() {
            return Err(unknown(value, "times have no time zone"));
        }
        return Ok(ScalarValue::Time64Microsecond(Some(clock_us(v))));
    }
    if let Ok(v) = value.cast::<PyDelta>() {
        let us = i64::from(v.get_seconds()) * 1_000_000 + i64::from(v.get_microseconds());
        return Ok(interval(0, v.get_days(), us * 1_000));
    }
    other(value)
}

/// Whether the value is one of pandas' marks for a missing value.
fn is_missing(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let name = value.get_type().name()?;
    Ok(name == "NaTType" || name == "NAType")
}

fn clock_us(value: &impl PyTimeAccess) -> i64 {
    let minutes = i64::from(value.get_hour()) * 60 + i64::from(value.get_minute());
    (minutes * 60 + i64::from(value.get_second())) * 1_000_000 + i64::from(value.get_microsecond())
}

fn moment(value: &Bound<'_, PyDateTime>) -> PyResult<ScalarValue> {
    let day = days(value.get_year().into(), value.get_month(), value.get_day());
    let local = day * DAY_US + clock_us(value);
    if value.get_tzinfo().is_none() {
        return Ok(ScalarValue::TimestampMicrosecond(Some(local), None));
    }
    let offset = value.call_method0("utcoffset")?;
    let offset = offset.cast::<PyDelta>()?;
    let offset_us = i64::from(offset.get_days()) * DAY_US
        + i64::from(offset.get_seconds()) * 1_000_000
        + i64::from(offset.get_microseconds());
    let zone = Some("+00:00".into());
    Ok(ScalarValue::TimestampMicrosecond(
        Some(local - offset_us),
        zone,
    ))
}

fn interval(months: i32, days: i32, nanos: i64) -> ScalarValue {
    ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(months, days, nanos)))
}

fn other(value: &Bound<'_, PyAny>) -> PyResult<ScalarValue> {
    let py = value.py();
    if value.is_instance(decimal_type(py)?)? {
        return decimal(py, value.str()?.to_str()?);
    }
    if value.is_instance(uuid_type(py)?)? {
        let bytes: Vec<u8> = value.getattr("bytes")?.extract()?;
        return Ok(ScalarValue::FixedSizeBinary(16, Some(bytes)));
    }
    if value.is_instance(interval_type(py)?)? {
        let (months, days, us): (i32, i32, i64) = (
            value.getattr("months")?.extract()?,
            value.getattr("days")?.extract()?,
            value.getattr("microseconds")?.extract()?,
        );
        return Ok(interval(months, days, us.saturating_mul(1_000)));
    }
    if value.is_instance(JSON.import(py, "strandline._types", "Json")?)? {
        return json(&value.getattr("value")?);
    }
    if value.is_instance_of::<PyDict>() {
        return json(value);
    }
    if let Ok(v) = value.cast::<PyList>() {
        return list(py, v.iter());
    }
    if let Ok(v) = value.cast::<PyTuple>() {
        return list(py, v.iter());
    }
    if value.is_instance_of::<PyByteArray>() || value.is_instance_of::<PyMemoryView>() {
        let bytes = py.get_type::<PyBytes>().call1((value,))?;
        return scalar(&bytes);
    }
    foreign(value)
}

/// Converts subclasses of the plain types, and scalars of other libraries.
fn foreign(value: &Bound<'_, PyAny>) -> PyResult<ScalarValue> {
    if let Ok(v) = value.cast::<PyInt>() {
        return integer(v);
    }
    if let Ok(v) = value.cast::<PyString>() {
        return Ok(ScalarValue::Utf8(Some(v.to_str()?.to_owned())));
    }
    if let Ok(v) = value.cast::<PyFloat>() {
        return Ok(ScalarValue::Float64(Some(v.extract()?)));
    }
    if value.hasattr("dtype")? && value.hasattr("item")? {
        // NumPy's timestamps have units of their own. Python has no type with nanoseconds.
        let plain = match value.get_type().name()?.to_str()? {
            "datetime64" => value
                .call_method1("astype", ("datetime64[us]",))?
                .call_method0("item")?,
            "timedelta64" => value
                .call_method1("astype", ("timedelta64[us]",))?
                .call_method0("item")?,
            _ => value.call_method0("item")?,
        };
        if !plain.hasattr("dtype")? {
            return scalar(&plain);
        }
    }
    Err(unknown(value, "it has no SQL type"))
}

fn unknown(value: &Bound<'_, PyAny>, why: &str) -> PyErr {
    let name = value.get_type().name();
    let name = name.map_or_else(|_| "?".to_string(), |name| name.to_string());
    let message = format!("a value of type {name} cannot be a parameter: {why}");
    errors::raise(value.py(), "42846", message)
}

fn json(value: &Bound<'_, PyAny>) -> PyResult<ScalarValue> {
    let text = value.py().import("json")?.call_method1("dumps", (value,))?;
    Ok(ScalarValue::Utf8(Some(text.extract()?)))
}

fn list<'py>(
    py: Python<'py>,
    items: impl Iterator<Item = Bound<'py, PyAny>>,
) -> PyResult<ScalarValue> {
    let items = items
        .map(|item| scalar(&item))
        .collect::<PyResult<Vec<_>>>()?;
    let array = crate::arrays::array_of(items)
        .ok_or_else(|| errors::raise(py, "42804", "the items of a list must have one type"))?;
    let item = arrow::datatypes::Field::new_list_field(array.data_type().clone(), true);
    let offsets = arrow::buffer::OffsetBuffer::from_lengths([array.len()]);
    let list = arrow::array::ListArray::try_new(item.into(), offsets, array, None);
    match list {
        Ok(list) => Ok(ScalarValue::List(list.into())),
        Err(error) => Err(errors::raise(py, "42804", error.to_string())),
    }
}

/// A decimal from Python's notation: `-12.50`, `1E+5`, `NaN`.
fn decimal(py: Python<'_>, text: &str) -> PyResult<ScalarValue> {
    let refused = || {
        let message = format!("{text} is out of range: a numeric has at most 38 digits");
        errors::raise(py, OUT_OF_RANGE, message)
    };
    let (mantissa, exponent) = match text.split_once(['E', 'e']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse().map_err(|_| refused())?),
        None => (text, 0i64),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let scale = fraction.len() as i64 - exponent;
    let digits = format!("{whole}{fraction}");
    let mut unscaled: i128 = digits.parse().map_err(|_| refused())?;
    if scale < 0 {
        let factor = u32::try_from(-scale)
            .ok()
            .and_then(|n| 10i128.checked_pow(n));
        unscaled = factor
            .and_then(|f| unscaled.checked_mul(f))
            .ok_or_else(refused)?;
    }
    let scale = usize::try_from(scale.max(0)).map_err(|_| refused())?;
    if scale > DIGITS || unscaled.unsigned_abs() >= 10u128.pow(DIGITS as u32) {
        return Err(refused());
    }
    Ok(ScalarValue::Decimal128(
        Some(unscaled),
        DIGITS as u8,
        scale as i8,
    ))
}

static DECIMAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static UUID: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static INTERVAL: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static JSON: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// `decimal.Decimal`.
pub fn decimal_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    DECIMAL.import(py, "decimal", "Decimal")
}

/// `uuid.UUID`.
pub fn uuid_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    UUID.import(py, "uuid", "UUID")
}

/// `strandline.Interval`.
pub fn interval_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    INTERVAL.import(py, "strandline._types", "Interval")
}
