//! INSERT: numbers the rows of the source in its order and draws their identity values.
//!
//! Later projections may process parts of the rows in parallel. The number restores the order
//! before the rows are inserted, and every identity value stays with its row.

use super::defaults::identity_values;
use super::widen::{SortKey, Widening};
use crate::planning::owner::Owner;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array,
    UInt64Array,
};
use datafusion::arrow::compute::take;
use datafusion::arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::common::TableReference;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_base::Result;
use strandline_column::types::arrow_type;
use strandline_engine::catalog::TableDef;
use strandline_semantics::error::from_arrow;

/// The node's name.
pub(super) const NAME: &str = "InsertOrder";
/// The field with the row's number.
pub(super) const ORDER: &str = "#order";

/// The field with the identity values of the column at `position`.
pub(super) fn identity_field(position: usize) -> String {
    format!("#identity{position}")
}

/// An identity column to draw values for.
#[derive(Clone, Copy)]
pub(super) struct Drawn {
    /// its position in the table
    pub position: usize,
    /// the boolean input field that selects the rows; all rows if `None`
    pub only: Option<usize>,
}

/// The numbering of a statement's rows.
pub(super) struct Sequence {
    /// the target
    pub table: Arc<TableDef>,
    /// the statement of the rows
    pub owner: Owner,
    /// the identity columns
    pub drawn: Vec<Drawn>,
    /// the sort keys of the rows
    pub sorted: Vec<SortKey>,
    /// rows numbered so far
    pub next: AtomicU64,
}

impl Sequence {
    fn draw(&self, drawn: &Drawn, batch: &RecordBatch) -> Result<ArrayRef> {
        let column = &self.table.columns[drawn.position];
        let statement = self.owner.statement()?;
        let draw = |rows| identity_values(statement, &self.table, column, rows);
        let Some(only) = drawn.only else {
            return draw(batch.num_rows());
        };
        let wanted: &BooleanArray = batch.column(only).as_boolean();
        let mut next = 0;
        let places: UInt32Array = (0..wanted.len())
            .map(|row| {
                let takes = wanted.is_valid(row) && wanted.value(row);
                takes.then(|| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        take(&draw(next as usize)?, &places, None).map_err(|e| from_arrow(&e))
    }
}

impl Widening for Sequence {
    fn name(&self) -> &'static str {
        NAME
    }

    fn explain(&self) -> String {
        let columns = self
            .drawn
            .iter()
            .map(|d| self.table.columns[d.position].name.as_str());
        format!(
            "{} identity=[{}]",
            self.table.name,
            columns.collect::<Vec<_>>().join(", ")
        )
    }

    fn fields(&self) -> Vec<(Option<TableReference>, Field)> {
        let mut fields = vec![(None, Field::new(ORDER, DataType::UInt64, false))];
        fields.extend(self.drawn.iter().map(|d| {
            let data_type = arrow_type(self.table.columns[d.position].sql_type);
            (
                None,
                Field::new(identity_field(d.position), data_type, true),
            )
        }));
        fields
    }

    fn input_order(&self) -> &[SortKey] {
        &self.sorted
    }

    fn sorted_by(&self) -> Option<usize> {
        Some(0)
    }

    fn of(&self, owner: Owner) -> Arc<dyn Widening> {
        Arc::new(Self {
            table: self.table.clone(),
            owner,
            drawn: self.drawn.clone(),
            sorted: self.sorted.clone(),
            next: AtomicU64::new(0),
        })
    }

    fn extend(&self, batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        let rows = batch.num_rows() as u64;
        let first = self.next.fetch_add(rows, Ordering::Relaxed);
        let mut columns = batch.columns().to_vec();
        columns.push(Arc::new(UInt64Array::from_iter_values(first..first + rows)));
        for drawn in &self.drawn {
            columns.push(self.draw(drawn, batch)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(schema.clone(), columns, &options)
            .map_err(|e| from_arrow(&e))
    }
}
