//! Expressions over the columns of rows, evaluated by the query engine's code over small batches.
//!
//! A batch has one column per [`Input`], parameters and `now()` included: a [`Slot`] reads the one
//! value that its column repeats. So compiled expressions have no state, and executions share them.
//! `None`: not decided here; the full path words the error.

use super::source::Source;
use super::value::is_of;
use crate::parse::params::own_type;
use crate::values::result::QueryResult;
use crate::values::value::array_of_one;
use datafusion::arrow::array::new_null_array;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::Result as PlanResult;
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::scalar::ScalarValue;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use strandline_base::{SqlType, Value};
use strandline_column::types::{array_of, arrow_type, value_at};
use strandline_semantics::cast::{Mode, cast_array};

/// Where a column of a batch comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// a column of the row: its place among the columns read
    Column(usize),
    /// a column of the row that an INSERT proposes: its position in the table
    Excluded(usize),
    Parameter(usize),
    /// a parameter without a declared type: its value is read as the literal that it is
    Literal(usize),
    /// `now()`
    Now,
}

impl Input {
    /// Whether all rows have the same value.
    pub fn is_slot(self) -> bool {
        matches!(self, Self::Parameter(_) | Self::Literal(_) | Self::Now)
    }
}

/// Compiled expressions over the same rows.
#[derive(Debug)]
pub(super) struct Expressions {
    pub inputs: Vec<(Input, SqlType)>,
    /// one field per input
    pub schema: SchemaRef,
    pub compiled: Vec<Arc<dyn PhysicalExpr>>,
}

/// What parameters and `now()` are in an execution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots<'a> {
    pub values: &'a [ScalarValue],
    pub now_us: u64,
}

/// Rows to evaluate expressions for.
pub(super) struct Rows<'a> {
    /// row after row
    values: &'a [Value],
    /// the number of values of a row
    width: usize,
    count: usize,
    /// the row that an INSERT proposes
    excluded: &'a [Value],
}

impl<'a> Rows<'a> {
    /// One row, and the one that an INSERT proposes.
    pub fn one(row: &'a [Value], excluded: &'a [Value]) -> Self {
        Self {
            values: row,
            width: row.len(),
            count: 1,
            excluded,
        }
    }

    /// Rows of `width` columns.
    pub fn many(values: &'a [Value], width: usize) -> Self {
        Self {
            values,
            width,
            count: values.len() / width.max(1),
            excluded: &[],
        }
    }

    fn column(&self, place: usize, t: SqlType) -> Option<ArrayRef> {
        if self.count == 1 {
            return array_of_one(t, self.values.get(place)?).ok();
        }
        let cells = self.values.iter().skip(place).step_by(self.width);
        let cells: Vec<Value> = cells.cloned().collect();
        array_of(t, &cells).ok()
    }
}

impl Expressions {
    /// Whether every parameter has a value of its type.
    pub fn fit(&self, slots: &Slots<'_>) -> bool {
        self.inputs.iter().all(|(input, t)| match input {
            Input::Parameter(index) => {
                let value = slots.values.get(*index);
                value.is_some_and(|value| is_of(value, *t))
            }
            Input::Literal(index) => {
                let value = slots.values.get(*index);
                value.is_some_and(|value| own_type(value).1 == Some(*t))
            }
            _ => true,
        })
    }

    /// One array per expression.
    pub fn evaluate(&self, slots: &Slots<'_>, rows: &Rows<'_>) -> Option<Vec<ArrayRef>> {
        let fields = self.schema.fields().iter();
        let arrays = self.inputs.iter().zip(fields).map(|((input, t), field)| {
            let repeat = |value| repeated(value, field.data_type(), rows.count);
            match input {
                Input::Column(place) => rows.column(*place, *t),
                Input::Excluded(position) => array_of_one(*t, rows.excluded.get(*position)?).ok(),
                Input::Parameter(index) => repeat(slots.values.get(*index)?),
                Input::Literal(index) => repeat(&own_type(slots.values.get(*index)?).0),
                Input::Now => repeat(&Source::Now.datum(slots.values, slots.now_us)?.value),
            }
        });
        let arrays = arrays.collect::<Option<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows.count));
        let schema = Arc::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, arrays, &options).ok()?;
        let results = self.compiled.iter().map(|expression| {
            let value = expression.evaluate(&batch).ok()?;
            value.into_array(rows.count).ok()
        });
        results.collect()
    }

    /// Whether a condition holds for a row.
    pub fn hold(&self, slots: &Slots<'_>, row: &Rows<'_>) -> Option<bool> {
        let results = self.evaluate(slots, row)?;
        let mut conditions = results.iter().map(|result| {
            let condition = result.as_boolean_opt()?;
            Some(condition.is_valid(0) && condition.value(0))
        });
        conditions.try_fold(true, |all, holds| Some(all && holds?))
    }

    /// The rows of a query's result.
    pub fn result(
        &self,
        slots: &Slots<'_>,
        schema: &SchemaRef,
        rows: &Rows<'_>,
    ) -> Option<QueryResult> {
        if rows.count == 0 {
            return Some(QueryResult::new(schema.clone(), Vec::new()));
        }
        let columns = self.evaluate(slots, rows)?;
        let batch = RecordBatch::try_new(schema.clone(), columns).ok()?;
        Some(QueryResult::new(schema.clone(), vec![batch]))
    }
}

/// `rows` times the value of a slot of the type.
fn repeated(value: &ScalarValue, t: &DataType, rows: usize) -> Option<ArrayRef> {
    use ScalarValue as S;
    if value.is_null() {
        return Some(new_null_array(t, rows));
    }
    let text = match value {
        S::Utf8(Some(text)) | S::Utf8View(Some(text)) | S::LargeUtf8(Some(text)) => text,
        other if other.data_type() == *t => return other.to_array_of_size(rows).ok(),
        _ => return None,
    };
    let text = match t {
        DataType::Utf8 => S::Utf8(Some(text.clone())),
        DataType::Utf8View => S::Utf8View(Some(text.clone())),
        _ => return None,
    };
    text.to_array_of_size(rows).ok()
}

/// New values of columns.
#[derive(Debug)]
pub(super) struct ComputedValues {
    pub expressions: Expressions,
    /// the columns' types
    pub types: Vec<SqlType>,
}

impl ComputedValues {
    /// The values for a row.
    pub fn of(&self, slots: &Slots<'_>, row: &Rows<'_>) -> Option<Vec<Value>> {
        let results = self.expressions.evaluate(slots, row)?;
        let values = results.iter().zip(&self.types).map(|(array, t)| {
            if *array.data_type() == arrow_type(*t) {
                return Some(value_at(*t, array, 0));
            }
            let array = cast_array(array, *t, Mode::Assignment).ok()?;
            Some(value_at(*t, &array, 0))
        });
        values.collect()
    }
}

/// A column of the batch whose rows all have the same value, as that value. The column is a child:
/// CASE evaluates its parts over batches of fewer columns and renumbers them.
#[derive(Clone, Debug, Eq)]
pub(super) struct Slot(pub Arc<dyn PhysicalExpr>);

impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq(&other.0)
    }
}

impl Hash for Slot {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "slot {}", self.0)
    }
}

impl PhysicalExpr for Slot {
    fn data_type(&self, schema: &Schema) -> PlanResult<DataType> {
        self.0.data_type(schema)
    }

    fn nullable(&self, _schema: &Schema) -> PlanResult<bool> {
        Ok(true)
    }

    fn evaluate(&self, batch: &RecordBatch) -> PlanResult<ColumnarValue> {
        let column = self.0.evaluate(batch)?.into_array(batch.num_rows())?;
        let value = match column.is_empty() {
            // No row has it.
            true => ScalarValue::try_from(column.data_type()),
            false => ScalarValue::try_from_array(&column, 0),
        };
        value.map(ColumnarValue::Scalar)
    }

    fn return_field(&self, schema: &Schema) -> PlanResult<FieldRef> {
        self.0.return_field(schema)
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.0]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> PlanResult<Arc<dyn PhysicalExpr>> {
        Ok(match children.into_iter().next() {
            Some(column) => Arc::new(Self(column)),
            None => self,
        })
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
