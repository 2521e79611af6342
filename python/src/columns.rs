//! Rows of Python values as columns, for appenders and for statements that run once per row.
//!
//! A column begins with the type of its first value. Whole numbers, floats and texts stay in
//! Arrow's builders. A column of another type, or of several types, is kept as scalars until its
//! end. Numbers of several types then become the one type that represents them all.

use crate::arrays::array_of;
use crate::values::scalar;
use arrow::array::{
    Array, ArrayRef, Float64Builder, Int64Builder, NullArray, RecordBatch, RecordBatchOptions,
    StringBuilder,
};
use arrow::datatypes::{Field, Schema};
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyString};
use std::sync::Arc;
use strandline::ScalarValue;

/// One column under construction.
enum Column {
    Nulls(usize),
    Integers(Int64Builder),
    Floats(Float64Builder),
    Texts(StringBuilder),
    Mixed(Vec<ScalarValue>),
}

impl Column {
    fn push(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if value.is_none() {
            self.push_null();
            return Ok(());
        }
        if let Self::Nulls(nulls) = self {
            *self = Self::beginning(*nulls, value);
        }
        let is_taken = match self {
            Self::Integers(builder) => match value.cast_exact::<PyInt>().map(|v| v.extract()) {
                Ok(Ok(v)) => {
                    builder.append_value(v);
                    true
                }
                _ => false,
            },
            Self::Floats(builder) => match value.cast_exact::<PyFloat>() {
                Ok(v) => {
                    builder.append_value(v.extract()?);
                    true
                }
                Err(_) => false,
            },
            Self::Texts(builder) => match value.cast_exact::<PyString>() {
                Ok(v) => {
                    builder.append_value(v.to_str()?);
                    true
                }
                Err(_) => false,
            },
            Self::Mixed(_) | Self::Nulls(_) => false,
        };
        if !is_taken {
            let value = scalar(value)?;
            self.as_mixed().push(value);
        }
        Ok(())
    }

    fn push_null(&mut self) {
        match self {
            Self::Nulls(nulls) => *nulls += 1,
            Self::Integers(builder) => builder.append_null(),
            Self::Floats(builder) => builder.append_null(),
            Self::Texts(builder) => builder.append_null(),
            Self::Mixed(values) => values.push(ScalarValue::Null),
        }
    }

    /// A column that begins with `nulls` NULLs before `value`.
    fn beginning(nulls: usize, value: &Bound<'_, PyAny>) -> Self {
        if value.is_exact_instance_of::<PyInt>() {
            let mut builder = Int64Builder::new();
            builder.append_nulls(nulls);
            Self::Integers(builder)
        } else if value.is_exact_instance_of::<PyFloat>() {
            let mut builder = Float64Builder::new();
            builder.append_nulls(nulls);
            Self::Floats(builder)
        } else if value.is_exact_instance_of::<PyString>() {
            let mut builder = StringBuilder::new();
            builder.append_nulls(nulls);
            Self::Texts(builder)
        } else {
            Self::Mixed(vec![ScalarValue::Null; nulls])
        }
    }

    fn as_mixed(&mut self) -> &mut Vec<ScalarValue> {
        if !matches!(self, Self::Mixed(_)) {
            let array = std::mem::replace(self, Self::Nulls(0)).finish_uniform();
            let scalars = (0..array.len()).map(|row| match array.is_null(row) {
                true => ScalarValue::Null,
                false => ScalarValue::try_from_array(&array, row).unwrap_or(ScalarValue::Null),
            });
            *self = Self::Mixed(scalars.collect());
        }
        match self {
            Self::Mixed(values) => values,
            _ => unreachable!("it has just become one"),
        }
    }

    fn finish_uniform(self) -> ArrayRef {
        match self {
            Self::Nulls(rows) => Arc::new(NullArray::new(rows)),
            Self::Integers(mut builder) => Arc::new(builder.finish()),
            Self::Floats(mut builder) => Arc::new(builder.finish()),
            Self::Texts(mut builder) => Arc::new(builder.finish()),
            Self::Mixed(values) => Arc::new(NullArray::new(values.len())),
        }
    }

    fn finish(self) -> Result<ArrayRef, Vec<ScalarValue>> {
        match self {
            Self::Mixed(values) => array_of(values.clone()).ok_or(values),
            uniform => Ok(uniform.finish_uniform()),
        }
    }
}

/// Rows under construction, all of one width.
pub struct Rows {
    columns: Vec<Column>,
    rows: usize,
}

/// The result of [`Rows::finish`].
pub enum Finished {
    /// columns
    Batch(RecordBatch),
    /// rows, since a column has values of types that have no common type
    Scalars(Vec<Vec<ScalarValue>>),
}

impl Rows {
    /// No rows of `width` values.
    pub fn new(width: usize) -> Self {
        Self {
            columns: (0..width).map(|_| Column::Nulls(0)).collect(),
            rows: 0,
        }
    }

    /// Values per row.
    pub fn width(&self) -> usize {
        self.columns.len()
    }

    /// The number of complete rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Adds the next row's value in column `at`. [`Rows::end_row`] follows the row's last value.
    pub fn push(&mut self, at: usize, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.columns[at].push(value)
    }

    /// Ends a row.
    pub fn end_row(&mut self) {
        self.rows += 1;
    }

    /// Takes the rows and leaves none.
    pub fn finish(&mut self) -> strandline::Result<Finished> {
        let width = self.width();
        let Self { columns, rows } = std::mem::replace(self, Self::new(width));
        let finished: Vec<_> = columns.into_iter().map(Column::finish).collect();
        if finished.iter().all(Result::is_ok) {
            let columns = finished.into_iter().flatten().collect();
            return batch(columns, rows).map(Finished::Batch);
        }
        let scalar = |column: &Result<ArrayRef, Vec<ScalarValue>>, row| match column {
            Ok(array) => ScalarValue::try_from_array(array, row).unwrap_or(ScalarValue::Null),
            Err(values) => values[row].clone(),
        };
        let row = |row| finished.iter().map(|column| scalar(column, row)).collect();
        Ok(Finished::Scalars((0..rows).map(row).collect()))
    }
}

fn batch(columns: Vec<ArrayRef>, rows: usize) -> strandline::Result<RecordBatch> {
    let field = |(at, array): (usize, &ArrayRef)| {
        Field::new(format!("{}", at + 1), array.data_type().clone(), true)
    };
    let fields: Vec<Field> = columns.iter().enumerate().map(field).collect();
    let schema = Arc::new(Schema::new(fields));
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options)
        .map_err(|error| strandline::Error::internal(error.to_string()))
}
