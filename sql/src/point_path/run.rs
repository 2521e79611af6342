//! Running a compiled statement in a transaction.

use super::arithmetic::{Number, compute};
use super::value::{Comparand, array_of_one, assigned, comparand};
use super::{Compiled, Conflict, Datum, Insert, Key, Operation, Scalar, Select, SetList, Source};
use crate::point::{CheckSet, identity};
use crate::result::QueryResult;
use datafusion::arrow::array::RecordBatch;
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{ColumnId, Error, Result, Value};
use strandline_engine::catalog::TableDef;
use strandline_engine::{Effect, OnInvisibleDuplicate, PointTable, Statement, Transaction};

/// What came of running a statement.
#[derive(Debug)]
pub(crate) enum Run {
    /// a query's rows
    Rows(QueryResult),
    /// the command tag and the number of rows
    Done(&'static str, u64),
    /// The full path decides. What has been written is to be undone.
    Undecided,
}

/// One execution of a compiled statement.
pub(crate) struct Execution<'a> {
    pub compiled: &'a Compiled,
    pub transaction: &'a Arc<Transaction>,
    pub values: &'a [ScalarValue],
    pub now_us: u64,
    /// the table's CHECK constraints, if it has any
    pub checks: Option<Arc<CheckSet>>,
}

/// `None` in it: not decided here.
type Decided<T> = Result<Option<T>>;

impl Execution<'_> {
    /// Runs the statement.
    pub fn run(&self) -> Result<Run> {
        let Some(statement) = &self.compiled.statement else {
            return Ok(Run::Undecided);
        };
        let table = &statement.table;
        let done = match &statement.operation {
            Operation::Select(select) => return self.select(select),
            Operation::Update(update) => {
                let written = self.modify(table, &update.key, |values| {
                    Modification::new(self, table, &update.set, values, &[])
                })?;
                written.map(|n| ("UPDATE", n))
            }
            Operation::Delete(key) => self.delete(table, key)?.map(|n| ("DELETE", n)),
            Operation::Insert(insert) => self.insert(table, insert)?.map(|n| ("INSERT", n)),
        };
        Ok(done.map_or(Run::Undecided, |(tag, rows)| Run::Done(tag, rows)))
    }

    fn datum(&self, source: &Source) -> Option<Datum> {
        source.datum(self.values, self.now_us)
    }

    /// The key's values; `Some(None)`: no row has it.
    fn key_values(&self, key: &Key) -> Option<Option<Vec<Value>>> {
        let mut found = Vec::with_capacity(key.parts.len());
        let mut never = false;
        for (sql_type, source) in &key.parts {
            match comparand(&self.datum(source)?, *sql_type)? {
                Comparand::Value(value) => found.push(value),
                Comparand::Never => never = true,
            }
        }
        Some((!never).then_some(found))
    }

    /// A statement for what needs one; None if it goes by another catalog.
    fn statement(&self) -> Decided<Arc<Statement>> {
        let statement = self.transaction.begin_statement()?;
        let same = Arc::ptr_eq(&self.transaction.catalog(), &self.compiled.catalog);
        Ok(same.then_some(statement))
    }

    fn select(&self, select: &Select) -> Result<Run> {
        let Some(key) = self.key_values(&select.key) else {
            return Ok(Run::Undecided);
        };
        let mut values = Vec::with_capacity(select.columns.len());
        let Some(key) = key else {
            return Ok(Run::Rows(QueryResult::new(select.schema.clone(), Vec::new())));
        };
        let (point, columns) = (&select.key.point, &select.columns);
        let found = match self.transaction.try_point_get(point, &key, columns, &mut values)? {
            true => true,
            false => {
                let Some(statement) = self.statement()? else {
                    return Ok(Run::Undecided);
                };
                let table = point.table();
                statement.point_get(table, select.key.index, &key, columns, &mut values)?
            }
        };
        let mut batches = Vec::new();
        if found {
            let columns = select.types.iter().zip(&values);
            let arrays = columns
                .map(|(t, value)| array_of_one(*t, value))
                .collect::<Result<_>>()?;
            let batch = RecordBatch::try_new(select.schema.clone(), arrays)
                .map_err(|error| Error::internal(format!("a row as a batch: {error}")))?;
            batches.push(batch);
        }
        Ok(Run::Rows(QueryResult::new(select.schema.clone(), batches)))
    }

    /// Changes the row with the key as a [`Modification`] says; how many rows were changed.
    fn modify<'m>(
        &self,
        table: &Arc<TableDef>,
        key: &Key,
        modification: impl FnOnce(&'m ()) -> Modification<'m>,
    ) -> Decided<u64> {
        let Some(values) = self.key_values(key) else {
            return Ok(None);
        };
        let Some(values) = values else {
            return Ok(Some(0));
        };
        let mut modification = modification(&());
        let place = (&key.point, key.index, values.as_slice());
        self.apply(table, place, &mut modification)
    }

    fn apply(
        &self,
        table: &Arc<TableDef>,
        (point, index, key): (&PointTable, usize, &[Value]),
        modification: &mut Modification<'_>,
    ) -> Decided<u64> {
        let reads = modification.list.reads.as_slice();
        let done = {
            let mut effect = |row: &[Value], set: &mut Vec<_>| modification.decide(row, set);
            match self.transaction.try_point_modify(point, key, reads, &mut effect)? {
                Some(written) => written,
                None => match self.statement()? {
                    Some(s) => s.point_modify(table, index, key, reads, &mut effect)?,
                    None => return Ok(None),
                },
            }
        };
        Ok((!modification.is_undecided).then_some(u64::from(done)))
    }

    fn delete(&self, table: &Arc<TableDef>, key: &Key) -> Decided<u64> {
        let Some(values) = self.key_values(key) else {
            return Ok(None);
        };
        let Some(values) = values else {
            return Ok(Some(0));
        };
        let mut effect = |_: &[Value], _: &mut Vec<_>| Ok(Effect::Delete);
        let transaction = self.transaction;
        let done = match transaction.try_point_modify(&key.point, &values, &[], &mut effect)? {
            Some(written) => written,
            None => match self.statement()? {
                Some(s) => s.point_modify(table, key.index, &values, &[], &mut effect)?,
                None => return Ok(None),
            },
        };
        Ok(Some(u64::from(done)))
    }

    fn insert(&self, table: &Arc<TableDef>, insert: &Insert) -> Decided<u64> {
        let width = table.columns.len();
        let mut rows = Vec::with_capacity(insert.rows.len() * width);
        for sources in &insert.rows {
            if !self.proposed(table, sources, &mut rows)? {
                return Ok(None);
            }
        }
        let conflicts = match &insert.conflict {
            None => OnInvisibleDuplicate::Violation,
            Some(conflict) => {
                match self.on_conflict(table, conflict, &rows)? {
                    None => return Ok(None),
                    Some(OnExisting::Done(rows)) => return Ok(Some(rows)),
                    Some(OnExisting::Missing) => {}
                }
                OnInvisibleDuplicate::Conflict
            }
        };
        let Some(statement) = self.statement()? else {
            return Ok(None);
        };
        statement.insert_values(table, &rows, conflicts)?;
        statement.finish()?;
        Ok(Some(insert.rows.len() as u64))
    }

    /// Appends the values of a row to insert; false if something is wrong with them.
    fn proposed(
        &self,
        table: &TableDef,
        sources: &[Source],
        rows: &mut Vec<Value>,
    ) -> Result<bool> {
        let from = rows.len();
        for (source, column) in sources.iter().zip(&table.columns) {
            let value = match source {
                Source::Identity => {
                    let next = self.transaction.db().next_identity(table, column.id)?;
                    identity(column, next).ok()
                }
                other => self.datum(other).and_then(|d| assigned(&d, column.sql_type)),
            };
            match value {
                Some(value) if !(column.not_null && value.is_null()) => rows.push(value),
                _ => return Ok(false),
            }
        }
        Ok(self.passes(table, &rows[from..]))
    }

    fn passes(&self, table: &TableDef, row: &[Value]) -> bool {
        let checks = self.checks.as_ref();
        checks.is_none_or(|checks| checks.check_row(table, row).is_ok())
    }

    /// What ON CONFLICT does if there is a row with the proposed row's key.
    fn on_conflict(
        &self,
        table: &Arc<TableDef>,
        conflict: &Conflict,
        row: &[Value],
    ) -> Decided<OnExisting> {
        let key: Vec<Value> = conflict.key.iter().map(|p| row[*p].clone()).collect();
        if key.iter().any(Value::is_null) {
            return Ok(Some(OnExisting::Missing));
        }
        let (point, index) = (&conflict.point, conflict.index);
        let Some(list) = &conflict.update else {
            let mut nothing = Vec::new();
            let found = self.transaction.try_point_get(point, &key, &[], &mut nothing)?
                || match self.statement()? {
                    Some(s) => s.point_get(table, index, &key, &[], &mut nothing)?,
                    None => return Ok(None),
                };
            return Ok(Some(match found {
                true => OnExisting::Done(0),
                false => OnExisting::Missing,
            }));
        };
        let mut modification = Modification::new(self, table, list, &(), row);
        let Some(written) = self.apply(table, (point, index, &key), &mut modification)? else {
            return Ok(None);
        };
        Ok(Some(match modification.has_seen_a_row {
            true => OnExisting::Done(written),
            false => OnExisting::Missing,
        }))
    }
}

/// What ON CONFLICT found.
enum OnExisting {
    /// the row is there, and so many were updated
    Done(u64),
    Missing,
}

/// The new values of a row.
struct Modification<'a> {
    execution: &'a Execution<'a>,
    table: &'a TableDef,
    list: &'a SetList,
    excluded: &'a [Value],
    has_seen_a_row: bool,
    is_undecided: bool,
}
