//! The result of a query of one row by its key, in the engine's values. A caller takes the values
//! ([`ValueRow::take`]) or asks for an Arrow batch, which costs more to make than the lookup of the
//! row.

use crate::values::result::QueryResult;
use crate::values::value::array_of_one;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlType, Value};

/// The columns of a [`ValueRow`], shared by all executions of a statement.
#[derive(Debug)]
pub(crate) struct ValueColumns {
    pub types: Vec<SqlType>,
    pub schema: SchemaRef,
}

/// The rows of a query that gives at most one; see [`Portal::take_row`](crate::Portal::take_row).
#[derive(Clone, Debug)]
pub struct ValueRow {
    columns: Arc<ValueColumns>,
    values: Option<Vec<Value>>,
}

impl ValueRow {
    /// `values`, one per column; None: no row.
    pub(crate) fn new(columns: Arc<ValueColumns>, values: Option<Vec<Value>>) -> Self {
        Self { columns, values }
    }

    /// Names and Arrow types of the columns. A numeric value is an unscaled integer; its Arrow type
    /// has the scale.
    pub fn schema(&self) -> &SchemaRef {
        &self.columns.schema
    }

    /// The number of rows: one or none.
    pub fn row_count(&self) -> usize {
        usize::from(self.values.is_some())
    }

    /// Takes the row's values, one per column; None: no row, or it is taken already.
    pub fn take(&mut self) -> Option<Vec<Value>> {
        self.values.take()
    }

    /// Takes the row as a batch; None: no row, or it is taken already.
    pub fn take_batch(&mut self) -> Result<Option<RecordBatch>> {
        let Some(values) = self.values.take() else {
            return Ok(None);
        };
        let columns = self.columns.types.iter().zip(&values);
        let arrays = columns.map(|(t, value)| array_of_one(*t, value));
        RecordBatch::try_new(self.columns.schema.clone(), arrays.collect::<Result<_>>()?)
            .map(Some)
            .map_err(|error| Error::internal(format!("a row as a batch: {error}")))
    }

    /// The row as a result of batches.
    pub fn into_result(mut self) -> Result<QueryResult> {
        let batch = self.take_batch()?;
        let schema = self.columns.schema.clone();
        Ok(QueryResult::new(schema, batch.into_iter().collect()))
    }
}
