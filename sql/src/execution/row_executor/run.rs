//! Running a compiled statement in a transaction.

use super::modify::Written;
use super::value::{Comparand, comparand};
use super::{Compiled, Datum, Ends, Operation, Projection, Search, Select, Source};
use crate::execution::row_checks::CheckSet;
use crate::values::result::QueryResult;
use crate::values::value_row::{ValueColumns, ValueRow};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlType, Value};
use strandline_column::types::array_of;
use strandline_engine::catalog::TableDef;
use strandline_engine::{Statement, Transaction};

/// What came of running a statement.
#[derive(Debug)]
pub(crate) enum Run {
    /// a query's row, if there is one
    Row(ValueRow),
    /// a query's rows
    Rows(QueryResult),
    /// the command tag, the number of rows, and what RETURNING gives
    Done(&'static str, u64, Option<QueryResult>),
    /// The full path decides. What has been written is to be undone.
    Undecided,
}

/// One execution of a compiled statement.
pub(crate) struct Execution<'a> {
    pub compiled: &'a Compiled,
    pub transaction: &'a Arc<Transaction>,
    pub values: &'a [ScalarValue],
    /// 0 if the statement does not ask for it
    pub now_us: u64,
    /// the table's CHECK constraints, if it has any
    pub checks: Option<Arc<CheckSet>>,
}

/// `None` in it: not decided here.
pub(super) type Decided<T> = Result<Option<T>>;

impl Execution<'_> {
    /// Runs the statement.
    pub fn run(&self) -> Result<Run> {
        let Some(statement) = &self.compiled.statement else {
            return Ok(Run::Undecided);
        };
        let table = &statement.table;
        let mut written = Written::new(statement.returning.is_some());
        let done = match &statement.operation {
            Operation::Select(select) => return self.select(select),
            Operation::Search(search, columns) => return self.search(table, search, columns),
            Operation::Ends(ends) => return self.ends(table, ends),
            Operation::Update(u) => ("UPDATE", self.update(table, u, &mut written)?),
            Operation::Delete(find) => ("DELETE", self.delete(table, find, &mut written)?),
            Operation::Insert(i) => ("INSERT", self.insert(table, i, &mut written)?),
        };
        let (tag, Some(rows)) = done else {
            return Ok(Run::Undecided);
        };
        let returning = statement.returning.as_ref();
        let returned = returning.map(|columns| written.result(columns, table.columns.len()));
        Ok(Run::Done(tag, rows, returned.transpose()?))
    }

    pub(super) fn datum(&self, source: &Source) -> Option<Datum> {
        source.datum(self.values, self.now_us)
    }

    /// The key's values; `Some(None)`: no row has it.
    pub(super) fn key_values(&self, parts: &[(SqlType, Source)]) -> Option<Option<Vec<Value>>> {
        let mut found = Vec::with_capacity(parts.len());
        let mut never = false;
        for (sql_type, source) in parts {
            match comparand(&self.datum(source)?, *sql_type)? {
                Comparand::Value(value) => found.push(value),
                Comparand::Never => never = true,
            }
        }
        Some((!never).then_some(found))
    }

    /// A statement for what needs one; None if it goes by another catalog.
    pub(super) fn statement(&self) -> Decided<Arc<Statement>> {
        let statement = self.transaction.begin_statement()?;
        let same = Arc::ptr_eq(&self.transaction.catalog(), &self.compiled.catalog);
        Ok(same.then_some(statement))
    }

    fn select(&self, select: &Select) -> Result<Run> {
        let Some(key) = self.key_values(&select.key.parts) else {
            return Ok(Run::Undecided);
        };
        let columns = &select.columns.ids;
        let row = |values| Run::Row(ValueRow::new(select.columns.result.clone(), values));
        let Some(key) = key else {
            return Ok(row(None));
        };
        let mut values = Vec::with_capacity(columns.len());
        let point = &select.key.point;
        let found = match self
            .transaction
            .try_point_get(point, &key, columns, &mut values)?
        {
            true => true,
            false => {
                let Some(statement) = self.statement()? else {
                    return Ok(Run::Undecided);
                };
                let table = point.table();
                statement.point_get(table, select.key.index, &key, columns, &mut values)?
            }
        };
        Ok(row(found.then_some(values)))
    }

    fn search(&self, table: &Arc<TableDef>, search: &Search, wanted: &Projection) -> Result<Run> {
        let Some(statement) = self.statement()? else {
            return Ok(Run::Undecided);
        };
        let Some(mut rows) = self.find(&statement, table, search)? else {
            return Ok(Run::Undecided);
        };
        let ValueColumns { types, schema } = wanted.result.as_ref();
        let width = search.reads.len();
        let count = rows.len() / width.max(1);
        let mut cells = Vec::with_capacity(count);
        let arrays = types.iter().enumerate().map(|(at, t)| {
            cells.clear();
            let column = rows.iter_mut().skip(at).step_by(width);
            cells.extend(column.map(|value| std::mem::replace(value, Value::Null)));
            array_of(*t, &cells)
        });
        let arrays = arrays.collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let rows = RecordBatch::try_new_with_options(schema.clone(), arrays, &options)
            .map_err(|error| Error::internal(format!("rows as a batch: {error}")))?;
        let result = QueryResult::new(schema.clone(), vec![rows]);
        Ok(Run::Rows(result))
    }

    fn ends(&self, table: &Arc<TableDef>, ends: &Ends) -> Result<Run> {
        let Some(statement) = self.statement()? else {
            return Ok(Run::Undecided);
        };
        let mut values = Vec::with_capacity(ends.searches.len());
        for search in &ends.searches {
            let Some(found) = self.find(&statement, table, search)? else {
                return Ok(Run::Undecided);
            };
            values.push(found.into_iter().next().unwrap_or(Value::Null));
        }
        Ok(Run::Row(ValueRow::new(ends.result.clone(), Some(values))))
    }

    pub(super) fn passes(&self, table: &TableDef, row: &[Value]) -> bool {
        let checks = self.checks.as_ref();
        checks.is_none_or(|checks| checks.check_row(table, row).is_ok())
    }
}
