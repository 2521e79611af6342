//! Operators that test, compute, order, cut and append rows.

use crate::execution::short_plans::node::{Node, Operator, OuterRows};
use crate::execution::short_plans::run::{
    Expression, Pairs, Rows, Run, Stop, batch_of, constant, filtered, taken, values,
};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::{SortColumn, SortOptions, concat_batches, lexsort_to_indices};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::scalar::ScalarValue;

/// The rows for which conditions hold.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Filter {
    pub input: Node,
    pub conditions: Vec<Expression>,
    pub text: String,
}

impl Operator for Filter {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        let batch = self.input.rows(run)?;
        filtered(&self.conditions, batch)
    }

    fn run_for(&self, run: &mut Run<'_>, outer: &OuterRows<'_>) -> Option<Result<Pairs, Stop>> {
        let pairs = self.input.rows_for(run, outer)?;
        Some(pairs.and_then(|pairs| pairs.filtered(&self.conditions)))
    }

    fn text(&self) -> String {
        format!("Filter: {}", self.text)
    }

    fn inputs(&self) -> Vec<&Node> {
        vec![&self.input]
    }
}

/// Values computed of each row.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Project {
    pub input: Node,
    pub columns: Vec<Expression>,
    pub schema: SchemaRef,
    pub text: String,
}

impl Project {
    fn computed(&self, batch: &RecordBatch) -> Rows {
        if batch.num_rows() == 0 {
            return Ok(RecordBatch::new_empty(self.schema.clone()));
        }
        let columns = self.columns.iter().map(|column| values(column, batch));
        let columns = columns.collect::<Result<_, _>>()?;
        batch_of(&self.schema, columns, batch.num_rows())
    }
}

impl Operator for Project {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        let batch = self.input.rows(run)?;
        self.computed(&batch)
    }

    fn run_for(&self, run: &mut Run<'_>, outer: &OuterRows<'_>) -> Option<Result<Pairs, Stop>> {
        let pairs = self.input.rows_for(run, outer)?;
        Some(pairs.and_then(|pairs| {
            let inner = self.computed(&pairs.inner)?;
            Ok(Pairs { inner, ..pairs })
        }))
    }

    fn text(&self) -> String {
        format!("Project: {}", self.text)
    }

    fn inputs(&self) -> Vec<&Node> {
        vec![&self.input]
    }
}

/// The rows in an order.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Sort {
    pub input: Node,
    pub by: Vec<(Expression, SortOptions)>,
    /// so many rows at most
    pub fetch: Option<usize>,
    pub text: String,
}

impl Operator for Sort {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        let batch = self.input.rows(run)?;
        if batch.num_rows() < 2 && self.fetch != Some(0) {
            return Ok(batch);
        }
        let column = |(by, options): &(Expression, SortOptions)| {
            Ok::<_, Stop>(SortColumn {
                values: values(by, &batch)?,
                options: Some(*options),
            })
        };
        let columns = self.by.iter().map(column).collect::<Result<Vec<_>, _>>()?;
        let order = lexsort_to_indices(&columns, self.fetch)?;
        taken(&batch, &order)
    }

    fn text(&self) -> String {
        format!("Sort: {}", self.text)
    }

    fn inputs(&self) -> Vec<&Node> {
        vec![&self.input]
    }
}

/// LIMIT and OFFSET.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Limit {
    pub input: Node,
    pub skip: Option<Expression>,
    pub fetch: Option<Expression>,
    /// the slot that tells operators below how many rows are enough
    pub enough: Option<usize>,
}

impl Operator for Limit {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        let skip = count(self.skip.as_ref())?.unwrap_or(0);
        let fetch = count(self.fetch.as_ref())?;
        if let Some(slot) = self.enough {
            let enough = fetch.map(|fetch| fetch.saturating_add(skip));
            let enough = enough.map(|rows| i64::try_from(rows).unwrap_or(i64::MAX));
            run.slots.set(slot, ScalarValue::Int64(enough));
        }
        let batch = self.input.rows(run)?;
        let skip = skip.min(batch.num_rows());
        let left = batch.num_rows() - skip;
        Ok(batch.slice(skip, fetch.unwrap_or(left).min(left)))
    }

    fn text(&self) -> String {
        "Limit".into()
    }

    fn inputs(&self) -> Vec<&Node> {
        vec![&self.input]
    }
}

/// A number of rows; None: no limit.
fn count(expression: Option<&Expression>) -> Result<Option<usize>, Stop> {
    let Some(expression) = expression else {
        return Ok(None);
    };
    let number = match constant(expression)? {
        value if value.is_null() => return Ok(None),
        ScalarValue::Int64(Some(number)) => usize::try_from(number).ok(),
        ScalarValue::Int32(Some(number)) => usize::try_from(number).ok(),
        _ => None,
    };
    number.map(Some).ok_or(Stop::Undecided)
}

/// The rows of several inputs.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Union {
    pub inputs: Vec<Node>,
    pub schema: SchemaRef,
}

impl Operator for Union {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        let mut parts = Vec::with_capacity(self.inputs.len());
        for input in &self.inputs {
            let part = input.rows(run)?;
            if part.num_rows() > 0 {
                let columns = part.columns().to_vec();
                parts.push(batch_of(&self.schema, columns, part.num_rows())?);
            }
        }
        Ok(concat_batches(&self.schema, &parts)?)
    }

    fn text(&self) -> String {
        "Union".into()
    }

    fn inputs(&self) -> Vec<&Node> {
        self.inputs.iter().collect()
    }
}
