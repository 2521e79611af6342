//! The result of a query of one row by its key, as the engine's values. A caller that uses values
//! takes them ([`ValueRow::take`]); an Arrow batch is made only on request, because it costs more
//! than finding the row did.

use crate::values::result::QueryResult;
use crate::values::value::array_of_one;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlType, Value};

/// The columns of a [`ValueRow`], the same for all executions of a statement.
#[derive(Debug)]
pub(crate) struct ValueColumns {
    pub types: Vec<SqlType>,
    pub schema: SchemaRef,
}

/// The rows of a query that gives one at most. [`Portal::take_row`](crate::Portal::take_row) has
/// them.
#[derive(Clone, Debug)]
pub struct ValueRow {
    columns: Arc<ValueColumns>,
    values: Option<Vec<Value>>,
}

impl ValueRow {
    /// `values`, one per column; None: there is no row.
    pub(crate) fn new(columns: Arc<ValueColumns>, values: Option<Vec<Value>>) -> Self {
        Self { columns, values }
    }

    /// Names and Arrow types of the columns. A value is what Arrow's type says: of a numeric it has
    /// the scale.
    pub fn schema(&self) -> &SchemaRef {
        &self.columns.schema
    }

    /// How many rows there are: one or none.
    pub fn row_count(&self) -> usize {
        usize::from(self.values.is_some())
    }

    /// Takes the row's values, one per column; None: there is no row, or it has been taken.
    pub fn take(&mut self) -> Option<Vec<Value>> {
        self.values.take()
    }

    /// Takes the row as a batch; None: there is no row, or it has been taken.
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
