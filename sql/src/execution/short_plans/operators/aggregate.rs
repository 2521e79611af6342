//! Groups and their aggregates.

use crate::execution::short_plans::node::{Node, Operator, OuterRows};
use crate::execution::short_plans::run::{
    Expression, Pairs, Rows, Run, Stop, batch_of, mask, values,
};
use datafusion::arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array};
use datafusion::arrow::compute::{filter, take};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::logical_expr::Accumulator;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::scalar::ScalarValue;
use std::collections::HashMap;
use std::sync::Arc;

/// GROUP BY, DISTINCT, and aggregates of all rows.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Aggregate {
    pub input: Node,
    /// no group: all rows are one
    pub groups: Vec<Expression>,
    pub calls: Vec<Call>,
    pub schema: SchemaRef,
    pub text: String,
}

/// An aggregate function's call.
#[derive(Debug)]
pub(in crate::execution::short_plans) struct Call {
    pub function: Arc<AggregateFunctionExpr>,
    pub args: Vec<Expression>,
    pub filter: Option<Expression>,
}

/// The values of a call for all rows.
struct Arguments {
    args: Vec<ArrayRef>,
    filter: Option<BooleanArray>,
}

impl Call {
    fn arguments(&self, batch: &RecordBatch) -> Result<Arguments, Stop> {
        let args = self.args.iter().map(|arg| values(arg, batch));
        let filter = self.filter.as_ref().map(|filter| mask(filter, batch));
        Ok(Arguments {
            args: args.collect::<Result<_, _>>()?,
            filter: filter.transpose()?,
        })
    }

    /// The aggregate of the rows at `places`; None: of all rows.
    fn aggregate(
        &self,
        arguments: &Arguments,
        places: Option<&UInt32Array>,
    ) -> Result<ScalarValue, Stop> {
        let mut accumulator: Box<dyn Accumulator> = self.function.create_accumulator()?;
        let mut args = arguments.args.clone();
        let mut passing = arguments.filter.clone().map(|f| Arc::new(f) as ArrayRef);
        if let Some(places) = places {
            for arg in args.iter_mut().chain(&mut passing) {
                *arg = take(arg.as_ref(), places, None)?;
            }
        }
        if let Some(passing) = passing {
            let passing = passing.as_any().downcast_ref::<BooleanArray>();
            let passing = passing.ok_or(Stop::Undecided)?;
            for arg in &mut args {
                *arg = filter(arg.as_ref(), passing)?;
            }
        }
        accumulator.update_batch(&args)?;
        Ok(accumulator.evaluate()?)
    }
}

impl Aggregate {
    /// The rows of each group, in the order in which groups are met.
    fn grouped(keys: &[ArrayRef], rows: usize) -> Result<Vec<Vec<u32>>, Stop> {
        let fields = keys
            .iter()
            .map(|key| SortField::new(key.data_type().clone()));
        let converter = RowConverter::new(fields.collect())?;
        let encoded = converter.convert_columns(keys)?;
        let mut numbers: HashMap<OwnedRow, usize> = HashMap::new();
        let mut members: Vec<Vec<u32>> = Vec::new();
        for (at, row) in encoded.iter().take(rows).enumerate() {
            let number = *numbers.entry(row.owned()).or_insert(members.len());
            if number == members.len() {
                members.push(Vec::new());
            }
            let at = u32::try_from(at).map_err(|_| Stop::Undecided)?;
            if let Some(group) = members.get_mut(number) {
                group.push(at);
            }
        }
        Ok(members)
    }
}

impl Aggregate {
    /// The values of each group of a batch with rows; `more` are further keys. Also the first row
    /// of each group.
    fn groups_of(
        &self,
        batch: &RecordBatch,
        more: Option<ArrayRef>,
    ) -> Result<(RecordBatch, UInt32Array), Stop> {
        let calls = self.calls.iter().map(|call| call.arguments(batch));
        let calls: Vec<Arguments> = calls.collect::<Result<_, _>>()?;
        let keys = self.groups.iter().map(|group| values(group, batch));
        let keys: Vec<ArrayRef> = keys.collect::<Result<_, _>>()?;
        let all: Vec<ArrayRef> = keys.iter().cloned().chain(more).collect();
        let members = Self::grouped(&all, batch.num_rows())?;
        let first = members.iter().filter_map(|group| group.first().copied());
        let first = UInt32Array::from_iter_values(first);
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for key in &keys {
            columns.push(take(key.as_ref(), &first, None)?);
        }
        let members: Vec<UInt32Array> = members.into_iter().map(UInt32Array::from).collect();
        for (call, args) in self.calls.iter().zip(&calls) {
            let results = members
                .iter()
                .map(|group| call.aggregate(args, Some(group)));
            let results: Vec<ScalarValue> = results.collect::<Result<_, _>>()?;
            columns.push(ScalarValue::iter_to_array(results)?);
        }
        Ok((batch_of(&self.schema, columns, members.len())?, first))
    }

    /// The groups of each outer row.
    fn groups_for(&self, pairs: &Pairs) -> Result<Pairs, Stop> {
        if pairs.outer.is_empty() {
            let inner = RecordBatch::new_empty(self.schema.clone());
            let outer = Vec::new();
            return Ok(Pairs { outer, inner });
        }
        let places = UInt32Array::from(pairs.outer.clone());
        let (inner, first) = self.groups_of(&pairs.inner, Some(Arc::new(places)))?;
        // Rows of one outer row follow each other, and so do its groups.
        let outer = first.values().iter();
        let outer = outer.filter_map(|row| pairs.outer.get(*row as usize).copied());
        Ok(Pairs {
            outer: outer.collect(),
            inner,
        })
    }
}

impl Operator for Aggregate {
    fn run(&self, run: &mut Run<'_>) -> Rows {
        let batch = self.input.rows(run)?;
        if self.groups.is_empty() {
            let results = self.calls.iter().map(|call| {
                let args = call.arguments(&batch)?;
                let value = call.aggregate(&args, None)?;
                Ok::<_, Stop>(value.to_array()?)
            });
            return batch_of(&self.schema, results.collect::<Result<_, _>>()?, 1);
        }
        match batch.num_rows() {
            0 => Ok(RecordBatch::new_empty(self.schema.clone())),
            _ => Ok(self.groups_of(&batch, None)?.0),
        }
    }

    /// Without a group there is a row for each outer row, also without rows below.
    fn run_for(&self, run: &mut Run<'_>, outer: &OuterRows<'_>) -> Option<Result<Pairs, Stop>> {
        if self.groups.is_empty() {
            return None;
        }
        let pairs = self.input.rows_for(run, outer)?;
        Some(pairs.and_then(|pairs| self.groups_for(&pairs)))
    }

    fn text(&self) -> String {
        format!("Aggregate: {}", self.text)
    }

    fn inputs(&self) -> Vec<&Node> {
        vec![&self.input]
    }
}
