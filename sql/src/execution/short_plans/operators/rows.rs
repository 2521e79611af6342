//! Rows that no table has.

use crate::execution::short_plans::node::{Node, Operator};
use crate::execution::short_plans::run::{Expression, Rows, Run, batch_of, constant};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::scalar::ScalarValue;

/// No row, or one row without columns.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Nothing {
    pub schema: SchemaRef,
    pub has_row: bool,
}

impl Operator for Nothing {
    fn run(&self, _run: &mut Run<'_>) -> Rows {
        if !self.has_row {
            return Ok(RecordBatch::new_empty(self.schema.clone()));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(1));
        let columns = self.schema.fields().iter();
        let columns = columns.map(|field| ScalarValue::try_from(field.data_type())?.to_array());
        let columns = columns.collect::<datafusion::error::Result<_>>()?;
        let schema = self.schema.clone();
        Ok(RecordBatch::try_new_with_options(
            schema, columns, &options,
        )?)
    }

    fn text(&self) -> String {
        match self.has_row {
            true => "OneRow".into(),
            false => "NoRows".into(),
        }
    }

    fn inputs(&self) -> Vec<&Node> {
        Vec::new()
    }
}

/// VALUES.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Values {
    pub schema: SchemaRef,
    pub rows: Vec<Vec<Expression>>,
}

impl Operator for Values {
    fn run(&self, _run: &mut Run<'_>) -> Rows {
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for at in 0..self.schema.fields().len() {
            let cells = self.rows.iter().filter_map(|row| row.get(at));
            let cells = cells.map(constant).collect::<Result<Vec<_>, _>>()?;
            columns.push(ScalarValue::iter_to_array(cells)?);
        }
        batch_of(&self.schema, columns, self.rows.len())
    }

    fn text(&self) -> String {
        format!("Values: {} rows", self.rows.len())
    }

    fn inputs(&self) -> Vec<&Node> {
        Vec::new()
    }
}

/// Rows that belong to the statement's text.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct KeptRows {
    pub rows: RecordBatch,
}

impl Operator for KeptRows {
    fn run(&self, _run: &mut Run<'_>) -> Rows {
        Ok(self.rows.clone())
    }

    fn text(&self) -> String {
        format!("Values: {} rows", self.rows.num_rows())
    }

    fn inputs(&self) -> Vec<&Node> {
        Vec::new()
    }
}
