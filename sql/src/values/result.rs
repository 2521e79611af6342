//! Results: Arrow batches, and rows with typed columns over them.

use crate::values::text;
use crate::values::value;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use strandline_base::{Error, Interval, Result, SqlState, Value};
use strandline_semantics::error::from_arrow;

mod gathered;
#[cfg(test)]
mod tests;

pub(crate) use gathered::Gathered;

/// All rows of a query.
#[derive(Clone, Debug)]
pub struct QueryResult {
    schema: SchemaRef,
    batches: Vec<RecordBatch>,
}

impl QueryResult {
    /// A result of `batches`, which all have `schema`.
    pub fn new(schema: SchemaRef, batches: Vec<RecordBatch>) -> Self {
        Self { schema, batches }
    }
    /// Names and Arrow types of the columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
    /// The rows as Arrow batches.
    pub fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }
    /// Takes the rows as Arrow batches.
    pub fn into_batches(self) -> Vec<RecordBatch> {
        self.batches
    }
    /// All rows in one batch.
    pub fn to_batch(&self) -> Result<RecordBatch> {
        concat_batches(&self.schema, &self.batches).map_err(|error| from_arrow(&error))
    }
    /// The number of rows.
    pub fn row_count(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
    /// The rows one by one.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.batches
            .iter()
            .flat_map(|batch| (0..batch.num_rows()).map(move |row| Row { batch, row }))
    }
    /// The value of the first column of the only row; an error unless there is exactly one row.
    pub fn single<T: FromCell>(&self) -> Result<T> {
        let mut rows = self.rows();
        match (rows.next(), rows.next()) {
            (Some(row), None) => row.get(0),
            _ => Err(Error::invalid(
                SqlState::CARDINALITY_VIOLATION,
                format!("expected one row, got {}", self.row_count()),
            )),
        }
    }
}

/// One row of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    batch: &'a RecordBatch,
    row: usize,
}

impl<'a> Row<'a> {
    /// Row `row` of `batch`.
    pub fn new(batch: &'a RecordBatch, row: usize) -> Self {
        Self { batch, row }
    }
    /// The number of columns.
    pub fn len(&self) -> usize {
        self.batch.num_columns()
    }
    /// Whether there are no columns.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The value of a column, by position from 0 or by name. NULL is an error unless `T` is an
    /// `Option` or a [`Value`]. A value that `T` cannot hold exactly is an error.
    pub fn get<T: FromCell>(&self, column: impl ColumnIndex) -> Result<T> {
        let position = column.position(self.batch)?;
        T::from_cell(self.batch.column(position), self.row).map_err(|error| {
            error.context(format!(
                "column \"{}\"",
                self.batch.schema().field(position).name()
            ))
        })
    }
    /// The value as text in PostgreSQL's form; None for NULL.
    pub fn text(&self, column: impl ColumnIndex) -> Result<Option<String>> {
        Ok(text::cell(
            self.batch.column(column.position(self.batch)?),
            self.row,
        ))
    }
}

/// A column's position from 0, or its name.
pub trait ColumnIndex {
    /// The position in `batch`.
    fn position(&self, batch: &RecordBatch) -> Result<usize>;
}

impl ColumnIndex for usize {
    fn position(&self, batch: &RecordBatch) -> Result<usize> {
        if *self < batch.num_columns() {
            return Ok(*self);
        }
        Err(Error::invalid(
            SqlState::UNDEFINED_COLUMN,
            format!(
                "there is no column {self}; the result has {}",
                batch.num_columns()
            ),
        ))
    }
}

impl ColumnIndex for &str {
    fn position(&self, batch: &RecordBatch) -> Result<usize> {
        batch.schema().index_of(self).map_err(|_| {
            Error::invalid(
                SqlState::UNDEFINED_COLUMN,
                format!("the result has no column \"{self}\""),
            )
        })
    }
}

/// A Rust type into which a column's value can be read.
pub trait FromCell: Sized {
    /// The value at `row`.
    fn from_cell(array: &ArrayRef, row: usize) -> Result<Self>;
}

fn mismatch<T>(array: &ArrayRef, row: usize) -> Error {
    let wanted = std::any::type_name::<T>()
        .rsplit("::")
        .next()
        .unwrap_or("value");
    match text::cell(array, row) {
        None => Error::invalid(
            SqlState("22002"),
            format!("NULL cannot be read as {wanted}; use Option<{wanted}>"),
        ),
        Some(text) => Error::invalid(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "the {} value {text} cannot be read as {wanted}",
                array.data_type()
            ),
        ),
    }
}

impl<T: FromCell> FromCell for Option<T> {
    fn from_cell(array: &ArrayRef, row: usize) -> Result<Self> {
        if array.is_null(row) || array.data_type() == &DataType::Null {
            return Ok(None);
        }
        T::from_cell(array, row).map(Some)
    }
}

impl FromCell for Value {
    fn from_cell(array: &ArrayRef, row: usize) -> Result<Self> {
        value::at(array, row)
    }
}

/// A value as an integer, if it is one.
fn integer(array: &ArrayRef, row: usize) -> Option<i128> {
    use datafusion::scalar::ScalarValue as S;
    match S::try_from_array(array, row).ok()? {
        S::Int8(v) => v.map(i128::from),
        S::Int16(v) => v.map(i128::from),
        S::Int32(v) => v.map(i128::from),
        S::Int64(v) => v.map(i128::from),
        S::UInt8(v) => v.map(i128::from),
        S::UInt16(v) => v.map(i128::from),
        S::UInt32(v) => v.map(i128::from),
        S::UInt64(v) => v.map(i128::from),
        S::Decimal32(Some(v), _, scale) => whole(v.into(), scale),
        S::Decimal64(Some(v), _, scale) => whole(v.into(), scale),
        S::Decimal128(Some(v), _, scale) => whole(v, scale),
        _ => None,
    }
}

fn whole(unscaled: i128, scale: i8) -> Option<i128> {
    let unit = 10i128.checked_pow(u32::try_from(scale).ok()?)?;
    (unscaled % unit == 0).then_some(unscaled / unit)
}

macro_rules! integers {
    ($($t:ty),*) => {
        $( impl FromCell for $t {
            fn from_cell(array: &ArrayRef, row: usize) -> Result<Self> {
                integer(array, row)
                    .and_then(|v| <$t>::try_from(v).ok())
                    .ok_or_else(|| mismatch::<$t>(array, row))
            }
        } )*
    };
}
integers!(i16, i32, i64, u64, i128);

impl FromCell for f64 {
    fn from_cell(array: &ArrayRef, row: usize) -> Result<Self> {
        let one = array.slice(row, 1);
        if one.is_null(0) || !one.data_type().is_numeric() {
            return Err(mismatch::<f64>(array, row));
        }
        let cast = strandline_semantics::cast::strict_cast(&one, &DataType::Float64)?;
        match value::at(&cast, 0)? {
            Value::Double(v) => Ok(v),
            _ => Err(mismatch::<f64>(array, row)),
        }
    }
}

macro_rules! plain {
    ($($t:ty, $pattern:pat => $out:expr;)*) => {
        $( impl FromCell for $t {
            fn from_cell(array: &ArrayRef, row: usize) -> Result<Self> {
                match value::at(array, row)? {
                    $pattern => Ok($out),
                    _ => Err(mismatch::<$t>(array, row)),
                }
            }
        } )*
    };
}
plain! {
    bool, Value::Boolean(v) => v;
    f32, Value::Real(v) => v;
    Vec<u8>, Value::Bytea(v) => v.to_vec();
    Interval, Value::Interval(v) => v;
    [u8; 16], Value::Uuid(v) => v;
}

impl FromCell for String {
    /// Any value in its text form.
    fn from_cell(array: &ArrayRef, row: usize) -> Result<Self> {
        text::cell(array, row).ok_or_else(|| mismatch::<String>(array, row))
    }
}
