//! Keys of a row that are not simply values of its columns: expressions, and conditions of partial
//! indexes.

use crate::catalog::index::{IndexDef, IndexExpression, IndexValue};
use crate::catalog::{TableDef, column_of};
use crate::expressions::{RowExpression, RowExpressions};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::{Field, Schema};
use std::sync::Arc;
use strandline_base::{ColumnId, Error, Result, SqlState, SqlType, Value};
use strandline_column::types::{arrow_type, value_at};

/// How a row's key is computed from the columns that its index reads.
pub(crate) struct KeyOfRow {
    parts: Vec<Part>,
    /// rows for which it is not true have no entry
    predicate: Option<Compiled>,
}

enum Part {
    /// at a position among the columns
    Column(usize),
    Expression(Compiled),
}

struct Compiled {
    expression: Arc<dyn RowExpression>,
    /// positions among the columns
    columns: Vec<usize>,
    types: Vec<SqlType>,
    result: SqlType,
}

/// The keys of many rows, part by part.
pub(crate) struct KeyArrays {
    pub parts: Vec<(SqlType, ArrayRef)>,
    /// None: every row has an entry
    pub selected: Option<ArrayRef>,
}

impl KeyArrays {
    /// Whether the row at `at` has an entry as far as the condition goes.
    pub fn is_selected(&self, at: usize) -> bool {
        let Some(selected) = &self.selected else {
            return true;
        };
        value_at(SqlType::Boolean, selected, at) == Value::Boolean(true)
    }
}

impl KeyOfRow {
    /// None: the key is the values of the index's columns.
    pub fn of(
        table: &TableDef,
        def: &IndexDef,
        expressions: Option<&dyn RowExpressions>,
    ) -> Result<Option<Self>> {
        let is_column = |value: &IndexValue| matches!(value, IndexValue::Column(_));
        if def.predicate.is_none() && def.parts.iter().all(|part| is_column(&part.value)) {
            return Ok(None);
        }
        let columns = def.key_columns();
        let compile = |expression: &IndexExpression| {
            compile(table, &columns, expression, expressions)
                .map_err(|e| e.context(format!("index \"{}\"", def.name)))
        };
        let mut parts = Vec::with_capacity(def.parts.len());
        for part in &def.parts {
            parts.push(match &part.value {
                IndexValue::Column(id) => Part::Column(position(&columns, *id)?),
                IndexValue::Expression(expression) => Part::Expression(compile(expression)?),
            });
        }
        let predicate = def.predicate.as_ref().map(compile).transpose()?;
        Ok(Some(Self { parts, predicate }))
    }

    /// The key of a row whose columns have these values; None: the condition is not true.
    pub fn of_row(&self, columns: &[Value]) -> Result<Option<Vec<Value>>> {
        if let Some(predicate) = &self.predicate
            && predicate.of_row(columns)? != Value::Boolean(true)
        {
            return Ok(None);
        }
        let part = |part: &Part| match part {
            Part::Column(at) => Ok(columns[*at].clone()),
            Part::Expression(expression) => expression.of_row(columns),
        };
        let key: Result<Vec<Value>> = self.parts.iter().map(part).collect();
        key.map(Some)
    }

    /// The keys of rows whose columns are these. An expression may fail for a row without an entry,
    /// so only rows for which the condition is true are computed; the others have NULL.
    pub fn of_rows(&self, columns: &[(SqlType, ArrayRef)]) -> Result<KeyArrays> {
        let Some(predicate) = &self.predicate else {
            return Ok(KeyArrays {
                parts: self.parts_of(columns)?,
                selected: None,
            });
        };
        let selected = predicate.of_rows(columns)?;
        let mut keys = KeyArrays {
            parts: Vec::new(),
            selected: Some(selected),
        };
        let rows = columns.first().map_or(0, |(_, array)| array.len());
        let mut chosen = Vec::with_capacity(rows);
        let mut places = Vec::with_capacity(rows);
        for row in 0..rows {
            let place = keys.is_selected(row).then_some(chosen.len() as u32);
            chosen.extend(place.map(|_| row as u32));
            places.push(place);
        }
        keys.parts = match chosen.len() == rows {
            true => self.parts_of(columns)?,
            false => {
                let chosen = taken(columns, &UInt32Array::from(chosen))?;
                taken(&self.parts_of(&chosen)?, &UInt32Array::from(places))?
            }
        };
        Ok(keys)
    }

    fn parts_of(&self, columns: &[(SqlType, ArrayRef)]) -> Result<Vec<(SqlType, ArrayRef)>> {
        let part = |part: &Part| match part {
            Part::Column(at) => Ok(columns[*at].clone()),
            Part::Expression(expression) => Ok((expression.result, expression.of_rows(columns)?)),
        };
        self.parts.iter().map(part).collect()
    }
}

/// The values at `rows`; NULL where a row is NULL.
fn taken(columns: &[(SqlType, ArrayRef)], rows: &UInt32Array) -> Result<Vec<(SqlType, ArrayRef)>> {
    let take = |(sql_type, array): &(SqlType, ArrayRef)| {
        let taken = arrow_select::take::take(array, rows, None);
        let taken = taken.map_err(|e| Error::internal(format!("taking rows: {e}")))?;
        Ok((*sql_type, taken))
    };
    columns.iter().map(take).collect()
}

impl Compiled {
    fn of_row(&self, columns: &[Value]) -> Result<Value> {
        let values: Vec<Value> = self.columns.iter().map(|at| columns[*at].clone()).collect();
        self.expression.evaluate_row(&values)
    }

    fn of_rows(&self, columns: &[(SqlType, ArrayRef)]) -> Result<ArrayRef> {
        let rows = columns.first().map_or(0, |(_, array)| array.len());
        let mut fields = Vec::with_capacity(self.columns.len());
        let mut arrays = Vec::with_capacity(self.columns.len());
        for (at, sql_type) in self.columns.iter().zip(&self.types) {
            fields.push(Field::new(format!("c{at}"), arrow_type(*sql_type), true));
            arrays.push(columns[*at].1.clone());
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch =
            RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options)
                .map_err(|e| Error::internal(format!("building a batch: {e}")))?;
        self.expression.evaluate(&batch)
    }
}

fn position(columns: &[ColumnId], id: ColumnId) -> Result<usize> {
    let at = columns.iter().position(|column| *column == id);
    at.ok_or_else(|| Error::internal("an index does not read a column of its key"))
}

fn compile(
    table: &TableDef,
    columns: &[ColumnId],
    expression: &IndexExpression,
    expressions: Option<&dyn RowExpressions>,
) -> Result<Compiled> {
    let expressions = expressions.ok_or_else(|| {
        Error::invalid(
            SqlState::FEATURE_NOT_SUPPORTED,
            "the database was opened without an evaluator of expressions, which its indexes need",
        )
    })?;
    let mut names = Vec::with_capacity(expression.columns.len());
    for id in &expression.columns {
        let column = column_of(table, *id)?;
        names.push((column.name.as_str(), column.sql_type));
    }
    let positions = expression.columns.iter().map(|id| position(columns, *id));
    Ok(Compiled {
        expression: expressions.compile(&expression.sql, &names, expression.sql_type)?,
        columns: positions.collect::<Result<_>>()?,
        types: names.iter().map(|(_, sql_type)| *sql_type).collect(),
        result: expression.sql_type,
    })
}
