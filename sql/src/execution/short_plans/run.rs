//! One run of a short plan: what its operators share, and what comes of it.

use super::slots::Slots;
use crate::execution::dml::ChangedRows;
use crate::execution::row_executor::Compiled;
use datafusion::arrow::array::{
    ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, cast::AsArray,
};
use datafusion::arrow::compute::{filter_record_batch, take};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::scalar::ScalarValue;
use std::sync::{Arc, LazyLock};
use strandline_base::Error;
use strandline_engine::Statement;

/// So many rows a run reads from tables at most: more are better read by block.
pub(super) const ROWS_MAX: usize = 1024;
/// So many pairs of rows a join of two small inputs compares at most.
pub(super) const PAIRS_MAX: usize = 16 << 10;

/// One row without columns, over which constant expressions are evaluated.
static ONE_ROW: LazyLock<Option<RecordBatch>> = LazyLock::new(|| {
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options).ok()
});

/// A compiled expression.
pub(super) type Expression = Arc<dyn PhysicalExpr>;

/// Why a run ends without a result.
#[derive(Debug)]
pub(super) enum Stop {
    /// The full path decides: rows are many, or an expression has failed.
    Undecided,
    /// the statement fails
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<DataFusionError> for Stop {
    fn from(_: DataFusionError) -> Self {
        Self::Undecided
    }
}

impl From<ArrowError> for Stop {
    fn from(_: ArrowError) -> Self {
        Self::Undecided
    }
}

/// All rows of an operator, whose columns are those of the plan that it was compiled from.
pub(super) type Rows = Result<RecordBatch, Stop>;

/// Rows of an inner side with their outer rows: places of these, which ascend, and as many rows.
pub(super) struct Pairs {
    pub outer: Vec<u32>,
    pub inner: RecordBatch,
}

impl Pairs {
    /// Those for which a mask is true.
    pub fn masked(self, mask: &BooleanArray) -> Result<Self, Stop> {
        if mask.true_count() == self.outer.len() {
            return Ok(self);
        }
        let holds = mask.iter().map(|holds| holds == Some(true));
        let kept = self.outer.iter().zip(holds);
        Ok(Self {
            outer: kept
                .filter_map(|(at, holds)| holds.then_some(*at))
                .collect(),
            inner: filter_record_batch(&self.inner, mask)?,
        })
    }

    /// Those for which all conditions on the inner row hold.
    pub fn filtered(mut self, conditions: &[Expression]) -> Result<Self, Stop> {
        for condition in conditions {
            if self.outer.is_empty() {
                break;
            }
            let mask = mask(condition, &self.inner)?;
            self = self.masked(&mask)?;
        }
        Ok(self)
    }
}

/// The state of a run.
pub(super) struct Run<'a> {
    pub statement: &'a Arc<Statement>,
    /// what the plan is valid for
    pub compiled: &'a Compiled,
    pub slots: &'a Slots,
    pub memory: MemoryReservation,
    /// rows that may still be read
    pub rows_left: usize,
    /// per node the rows that it has given, if somebody asks
    pub rows: Option<Vec<usize>>,
    /// the rows that are not changed again
    pub changed: Arc<ChangedRows>,
    /// how many rows the present part has changed
    pub changes: u64,
    /// the rows that earlier parts have returned
    pub returned: Vec<RecordBatch>,
}

impl Run<'_> {
    /// Notes how many rows a node has given.
    pub fn note(&mut self, node: usize, rows: usize) {
        if let Some(known) = self.rows.as_mut().and_then(|all| all.get_mut(node)) {
            *known += rows;
        }
    }

    /// Counts rows that were read.
    pub fn read(&mut self, rows: usize) -> Result<(), Stop> {
        let left = self.rows_left.checked_sub(rows);
        self.rows_left = left.ok_or(Stop::Undecided)?;
        Ok(())
    }

    /// Takes the memory of rows until the run ends.
    pub fn charge(&mut self, batch: &RecordBatch) -> Result<(), Stop> {
        match batch.num_rows() {
            0 => Ok(()),
            _ => Ok(self.memory.try_grow(batch.get_array_memory_size())?),
        }
    }
}

/// The value of an expression without columns.
pub(super) fn constant(expression: &Expression) -> Result<ScalarValue, Stop> {
    let one_row = ONE_ROW.as_ref().ok_or(Stop::Undecided)?;
    Ok(match expression.evaluate(one_row)? {
        ColumnarValue::Scalar(value) => value,
        ColumnarValue::Array(array) => ScalarValue::try_from_array(&array, 0)?,
    })
}

/// The values of an expression for all rows.
pub(super) fn values(expression: &Expression, batch: &RecordBatch) -> Result<ArrayRef, Stop> {
    Ok(expression.evaluate(batch)?.into_array(batch.num_rows())?)
}

/// For which rows a condition holds; NULL counts as false.
pub(super) fn mask(condition: &Expression, batch: &RecordBatch) -> Result<BooleanArray, Stop> {
    let mask = values(condition, batch)?;
    mask.as_boolean_opt().cloned().ok_or(Stop::Undecided)
}

/// The rows for which all conditions hold.
pub(super) fn filtered(conditions: &[Expression], mut batch: RecordBatch) -> Rows {
    for condition in conditions {
        if batch.num_rows() == 0 {
            break;
        }
        let mask = mask(condition, &batch)?;
        if mask.true_count() < batch.num_rows() {
            batch = filter_record_batch(&batch, &mask)?;
        }
    }
    Ok(batch)
}

/// The rows at `places`.
pub(super) fn taken(batch: &RecordBatch, places: &UInt32Array) -> Rows {
    let columns = batch.columns().iter();
    let columns = columns.map(|column| take(column.as_ref(), places, None));
    let columns = columns.collect::<Result<_, _>>()?;
    batch_of(batch.schema_ref(), columns, places.len())
}

/// A batch of `rows` rows, which may have no column.
pub(super) fn batch_of(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Rows {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let batch = RecordBatch::try_new_with_options(schema.clone(), columns, &options)?;
    Ok(batch)
}
