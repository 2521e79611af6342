//! Data frames of other libraries, read through Arrow's C interface without copying.

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::SchemaRef;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3_arrow::error::PyArrowError;
use pyo3_arrow::input::AnyRecordBatch;

/// The batches of an object that has `__arrow_c_stream__` or `__arrow_c_array__`.
pub fn reader(frame: &Bound<'_, PyAny>) -> PyResult<Box<dyn RecordBatchReader + Send>> {
    if !frame.hasattr("__arrow_c_stream__")? && !frame.hasattr("__arrow_c_array__")? {
        let name = frame.get_type().name()?.to_string();
        return Err(PyTypeError::new_err(format!(
            "{name} is no table: it needs the method __arrow_c_stream__, as pyarrow's, pandas' \
             and polars' tables have it"
        )));
    }
    frame.extract::<AnyRecordBatch>()?.into_reader()
}

/// The schema and all batches of `frame`.
pub fn read(frame: &Bound<'_, PyAny>) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
    let reader = reader(frame)?;
    let schema = reader.schema();
    let batches = frame.py().detach(|| reader.collect::<Result<Vec<_>, _>>());
    Ok((schema, batches.map_err(PyArrowError::from)?))
}
