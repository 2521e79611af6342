//! Running a compiled statement in a transaction.

use super::execution::{Execution, Run};
use super::expressions::Rows;
use super::modify::Written;
use super::program::{Ends, Operation, Projection, Select};
use super::search::Search;
use crate::planning::locking::Lock;
use crate::values::result::QueryResult;
use crate::values::value::arrays_of_rows;
use crate::values::value_row::{ValueColumns, ValueRow};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use std::sync::Arc;
use strandline_base::{Error, Result, Value};
use strandline_engine::catalog::TableDef;

impl Execution<'_> {
    /// Runs the statement.
    pub fn run(&self) -> Result<Run> {
        match &self.compiled.statement {
            None => Ok(Run::Undecided),
            Some(statement) if statement.subqueries.is_empty() => self.run_alone(),
            Some(statement) => self.run_with(&statement.subqueries),
        }
    }

    /// Runs the statement, whose subqueries have run.
    pub(super) fn run_alone(&self) -> Result<Run> {
        let Some(statement) = &self.compiled.statement else {
            return Ok(Run::Undecided);
        };
        let table = &statement.table;
        let returning = statement.returning.as_ref();
        if !returning.is_none_or(|columns| columns.fit(&self.slots())) {
            return Ok(Run::Undecided);
        }
        let mut written = Written::new(returning.is_some());
        let done = match &statement.operation {
            Operation::Select(select) => return self.select(select),
            Operation::Search(search, columns, lock) => {
                return self.search(table, search, columns, *lock);
            }
            Operation::Ends(ends) => return self.ends(table, ends),
            Operation::Aggregates(query) => return self.aggregate(table, query),
            Operation::Update(u) => ("UPDATE", self.update(table, u, &mut written)?),
            Operation::Delete(find) => ("DELETE", self.delete(table, find, &mut written)?),
            Operation::Insert(i) => ("INSERT", self.insert(table, i, &mut written)?),
        };
        let (tag, Some(rows)) = done else {
            return Ok(Run::Undecided);
        };
        let returned = match returning {
            None => None,
            Some(columns) => match written.result(self, columns, table.columns.len())? {
                None => return Ok(Run::Undecided),
                result => result,
            },
        };
        Ok(Run::Done(tag, rows, returned))
    }

    pub(super) fn select(&self, select: &Select) -> Result<Run> {
        let Some(key) = self.key_values(&select.key.parts) else {
            return Ok(Run::Undecided);
        };
        if !select.columns.fit(&self.slots()) {
            return Ok(Run::Undecided);
        }
        let columns = &select.columns.ids;
        let Some(key) = key else {
            return Ok(self.row(&select.columns, None));
        };
        let mut values = Vec::with_capacity(columns.len());
        let point = &select.key.point;
        // A point read has a snapshot of its own.
        let may_be_alone = self.begun.is_none();
        let transaction = self.transaction;
        let found =
            match may_be_alone && transaction.try_point_get(point, &key, columns, &mut values)? {
                true => true,
                false => {
                    let Some(statement) = self.statement()? else {
                        return Ok(Run::Undecided);
                    };
                    let table = point.table();
                    statement.point_get(table, select.key.index, &key, columns, &mut values)?
                }
            };
        Ok(self.row(&select.columns, found.then_some(values)))
    }

    /// The result of a query of one row, of which the columns to be read are given.
    fn row(&self, columns: &Projection, row: Option<Vec<Value>>) -> Run {
        let Some(computed) = &columns.computed else {
            return Run::Row(ValueRow::new(columns.result.clone(), row));
        };
        let schema = &columns.result.schema;
        let result = match &row {
            None => Some(QueryResult::new(schema.clone(), Vec::new())),
            Some(row) => computed.result(&self.slots(), schema, &Rows::one(row, &[])),
        };
        result.map_or(Run::Undecided, Run::Rows)
    }

    fn search(
        &self,
        table: &Arc<TableDef>,
        search: &Search,
        wanted: &Projection,
        lock: Option<Lock>,
    ) -> Result<Run> {
        if !wanted.fit(&self.slots()) {
            return Ok(Run::Undecided);
        }
        let Some(statement) = self.statement()? else {
            return Ok(Run::Undecided);
        };
        let Some(mut rows) = self.find(&statement, table, search, lock)? else {
            return Ok(Run::Undecided);
        };
        if let Some(computed) = &wanted.computed {
            let rows = Rows::many(&rows, search.reads.len());
            let result = computed.result(&self.slots(), &wanted.result.schema, &rows);
            return Ok(result.map_or(Run::Undecided, Run::Rows));
        }
        let ValueColumns { types, schema } = wanted.result.as_ref();
        let width = search.reads.len();
        let count = rows.len() / width.max(1);
        if count <= 1 {
            rows.truncate(types.len());
            let row = (count == 1).then_some(rows);
            return Ok(Run::Row(ValueRow::new(wanted.result.clone(), row)));
        }
        let arrays = arrays_of_rows(&mut rows, width, types)?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let rows = RecordBatch::try_new_with_options(schema.clone(), arrays, &options)
            .map_err(|error| Error::internal(format!("rows as a batch: {error}")))?;
        let result = QueryResult::new(schema.clone(), vec![rows]);
        Ok(Run::Rows(result))
    }

    pub(super) fn ends(&self, table: &Arc<TableDef>, ends: &Ends) -> Result<Run> {
        let Some(statement) = self.statement()? else {
            return Ok(Run::Undecided);
        };
        let mut values = Vec::with_capacity(ends.searches.len());
        for search in &ends.searches {
            let Some(found) = self.find(&statement, table, search, None)? else {
                return Ok(Run::Undecided);
            };
            values.push(found.into_iter().next().unwrap_or(Value::Null));
        }
        Ok(Run::Row(ValueRow::new(ends.result.clone(), Some(values))))
    }
}
