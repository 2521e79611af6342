//! Running a compiled statement in a transaction.

use super::arithmetic::{Number, compute};
use super::value::{Comparand, assigned, comparand};
use super::{
    Compiled, Conflict, Datum, Ends, Find, Insert, Key, Operation, Projection, Scalar, Search,
    Select, SetList, Source, Update,
};
use crate::execution::row_checks::CheckSet;
use crate::execution::row_values::identity;
use crate::values::result::QueryResult;
use crate::values::value_row::{ValueColumns, ValueRow};
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use strandline_base::{ColumnId, Error, Result, SqlState, SqlType, Value};
use strandline_column::types::array_of;
use strandline_engine::catalog::TableDef;
use strandline_engine::{Effect, Modify, OnInvisibleDuplicate, PointTable, Statement, Transaction};

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
        let mut written = Written {
            wanted: statement.returning.is_some(),
            values: Vec::new(),
        };
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

    fn constants_are_numbers(&self, scalar: &Scalar) -> bool {
        match scalar {
            Scalar::Constant(source) => {
                let datum = self.datum(source);
                datum.is_some_and(|datum| Number::of_datum(&datum).is_some())
            }
            Scalar::Column(..) | Scalar::Excluded(..) => true,
            Scalar::Arithmetic(_, left, right) => {
                self.constants_are_numbers(left) && self.constants_are_numbers(right)
            }
        }
    }

    /// The key's values; `Some(None)`: no row has it.
    fn key_values(&self, parts: &[(SqlType, Source)]) -> Option<Option<Vec<Value>>> {
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
    fn statement(&self) -> Decided<Arc<Statement>> {
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

    fn update(
        &self,
        table: &Arc<TableDef>,
        update: &Update,
        written: &mut Written,
    ) -> Decided<u64> {
        let Some(mut modification) = Modification::new(self, table, &update.set, &[]) else {
            return Ok(None);
        };
        let key = match &update.find {
            Find::Key(key) => key,
            Find::Search(search) => {
                let mut effect = |row: &[Value], set: &mut Vec<_>| {
                    let effect = modification.decide(row, set)?;
                    if effect == Effect::Update {
                        written.add(|| modification.new_row(row, set));
                    }
                    Ok(effect)
                };
                let found = self.modify_found(table, search, &mut effect)?;
                let Some((statement, rows)) = found.filter(|_| !modification.is_undecided) else {
                    return Ok(None);
                };
                statement.finish()?;
                return Ok(Some(rows));
            }
        };
        match self.key_values(&key.parts) {
            None => Ok(None),
            Some(None) => Ok(Some(0)),
            Some(Some(values)) => {
                let place = (&key.point, key.index, values.as_slice());
                self.apply(table, place, &mut modification, written)
            }
        }
    }

    /// Changes the rows that a search finds; its statement, which is to be finished, and how many
    /// rows were changed.
    fn modify_found(
        &self,
        table: &Arc<TableDef>,
        search: &Search,
        modify: Modify<'_>,
    ) -> Decided<(Arc<Statement>, u64)> {
        let Some(statement) = self.statement()? else {
            return Ok(None);
        };
        let Some(sets) = self.sets(search) else {
            return Ok(None);
        };
        let Some(rows) = self.candidates(&statement, table, &sets)? else {
            return Ok(None);
        };
        let mut effect = |row: &[Value], set: &mut Vec<_>| match sets.hold(row) {
            true => modify(row, set),
            false => Ok(Effect::Leave),
        };
        let changed = statement.modify_rows(table, &rows, &search.reads, &mut effect)?;
        Ok(Some((statement, changed)))
    }

    fn apply(
        &self,
        table: &Arc<TableDef>,
        (point, index, key): (&PointTable, usize, &[Value]),
        modification: &mut Modification<'_>,
        written: &mut Written,
    ) -> Decided<u64> {
        let reads = modification.list.reads.as_slice();
        let done = {
            let mut effect = |row: &[Value], set: &mut Vec<_>| {
                let effect = modification.decide(row, set)?;
                written.keep(|| modification.new_row(row, set));
                Ok(effect)
            };
            match self
                .transaction
                .try_point_modify(point, key, reads, &mut effect)?
            {
                Some(written) => written,
                None => match self.statement()? {
                    Some(s) => s.point_modify(table, index, key, reads, &mut effect)?,
                    None => return Ok(None),
                },
            }
        };
        written.keep_only(done);
        Ok((!modification.is_undecided).then_some(u64::from(done)))
    }

    fn delete(&self, table: &Arc<TableDef>, find: &Find, written: &mut Written) -> Decided<u64> {
        let key = match find {
            Find::Key(key) => key,
            Find::Search(search) => {
                let mut effect = |row: &[Value], _: &mut Vec<_>| {
                    written.add(|| row[..table.columns.len()].to_vec());
                    Ok(Effect::Delete)
                };
                let Some((statement, rows)) = self.modify_found(table, search, &mut effect)? else {
                    return Ok(None);
                };
                statement.finish()?;
                return Ok(Some(rows));
            }
        };
        self.delete_by_key(table, key, written)
    }

    fn delete_by_key(
        &self,
        table: &Arc<TableDef>,
        key: &Key,
        written: &mut Written,
    ) -> Decided<u64> {
        let Some(values) = self.key_values(&key.parts) else {
            return Ok(None);
        };
        let Some(values) = values else {
            return Ok(Some(0));
        };
        let mut reads = Vec::new();
        if written.wanted {
            reads.extend(table.columns.iter().map(|column| column.id));
        }
        let mut effect = |row: &[Value], _: &mut Vec<_>| {
            written.keep(|| row.to_vec());
            Ok(Effect::Delete)
        };
        let transaction = self.transaction;
        let done = match transaction.try_point_modify(&key.point, &values, &reads, &mut effect)? {
            Some(done) => done,
            None => match self.statement()? {
                Some(s) => s.point_modify(table, key.index, &values, &reads, &mut effect)?,
                None => return Ok(None),
            },
        };
        written.keep_only(done);
        Ok(Some(u64::from(done)))
    }

    fn insert(
        &self,
        table: &Arc<TableDef>,
        insert: &Insert,
        written: &mut Written,
    ) -> Decided<u64> {
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
                match self.on_conflict(table, conflict, &rows, written)? {
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
        let inserted = statement.insert_values(table, &rows, conflicts);
        match inserted.and_then(|()| statement.finish()) {
            // Committed after the look for it and before this statement's snapshot.
            Err(error)
                if insert.conflict.is_some() && error.sqlstate() == SqlState::UNIQUE_VIOLATION =>
            {
                return Ok(None);
            }
            outcome => outcome?,
        }
        written.keep(|| rows);
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
                other => self
                    .datum(other)
                    .and_then(|d| assigned(&d, column.sql_type)),
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
        written: &mut Written,
    ) -> Decided<OnExisting> {
        let key: Vec<Value> = conflict.key.iter().map(|p| row[*p].clone()).collect();
        if key.iter().any(Value::is_null) {
            return Ok(Some(OnExisting::Missing));
        }
        let (point, index) = (&conflict.point, conflict.index);
        let Some(list) = &conflict.update else {
            let mut nothing = Vec::new();
            let found = self
                .transaction
                .try_point_get(point, &key, &[], &mut nothing)?
                || match self.statement()? {
                    Some(s) => s.point_get(table, index, &key, &[], &mut nothing)?,
                    None => return Ok(None),
                };
            return Ok(Some(match found {
                true => OnExisting::Done(0),
                false => OnExisting::Missing,
            }));
        };
        let Some(mut modification) = Modification::new(self, table, list, row) else {
            return Ok(None);
        };
        let place = (point, index, key.as_slice());
        let Some(updated) = self.apply(table, place, &mut modification, written)? else {
            return Ok(None);
        };
        Ok(Some(match updated {
            0 => OnExisting::Missing,
            rows => OnExisting::Done(rows),
        }))
    }
}

/// What ON CONFLICT found.
enum OnExisting {
    /// the row is there, and so many were updated
    Done(u64),
    Missing,
}

/// What is assigned to a column.
enum NewValue<'a> {
    Known(Value),
    Computed(&'a Scalar),
}

/// The new values of a row.
struct Modification<'a> {
    execution: &'a Execution<'a>,
    table: &'a TableDef,
    list: &'a SetList,
    /// one per entry of the list
    values: Vec<NewValue<'a>>,
    /// the row that an INSERT proposes
    excluded: &'a [Value],
    is_undecided: bool,
}

impl<'a> Modification<'a> {
    /// None: a constant is not what its place wants, which is wrong even if there is no row.
    fn new(
        execution: &'a Execution<'a>,
        table: &'a TableDef,
        list: &'a SetList,
        excluded: &'a [Value],
    ) -> Option<Self> {
        let mut values = Vec::with_capacity(list.set.len());
        for (position, scalar) in &list.set {
            let column = &table.columns[*position];
            values.push(match scalar {
                Scalar::Constant(source) => {
                    let datum = execution.datum(source)?;
                    NewValue::Known(assigned(&datum, column.sql_type)?)
                }
                computed => {
                    execution.constants_are_numbers(computed).then_some(())?;
                    NewValue::Computed(computed)
                }
            });
        }
        Some(Self {
            execution,
            table,
            list,
            values,
            excluded,
            is_undecided: false,
        })
    }

    /// The new values of `row`, whose columns are those that the list reads.
    fn decide(&mut self, row: &[Value], set: &mut Vec<(ColumnId, Value)>) -> Result<Effect> {
        if self.assign(row, set).is_none() || !self.passes(row, set) {
            self.is_undecided = true;
            return Ok(Effect::Leave);
        }
        Ok(Effect::Update)
    }

    fn assign(&self, row: &[Value], set: &mut Vec<(ColumnId, Value)>) -> Option<()> {
        for ((position, _), new) in self.list.set.iter().zip(&self.values) {
            let column = &self.table.columns[*position];
            let value = match new {
                NewValue::Known(value) => value.clone(),
                NewValue::Computed(Scalar::Column(place, _)) => row[*place].clone(),
                NewValue::Computed(Scalar::Excluded(position, _)) => {
                    self.excluded[*position].clone()
                }
                NewValue::Computed(scalar) => {
                    self.number(scalar, row)?.assigned(column.sql_type)?
                }
            };
            if column.not_null && value.is_null() {
                return None;
            }
            set.push((column.id, value));
        }
        Some(())
    }

    fn number(&self, scalar: &Scalar, row: &[Value]) -> Option<Number> {
        match scalar {
            Scalar::Constant(source) => Number::of_datum(&self.execution.datum(source)?),
            Scalar::Column(place, t) => Number::of_value(&row[*place], *t),
            Scalar::Excluded(position, t) => Number::of_value(&self.excluded[*position], *t),
            Scalar::Arithmetic(operation, left, right) => {
                let (left, right) = (self.number(left, row)?, self.number(right, row)?);
                compute(*operation, &left, &right)
            }
        }
    }

    /// Whether the new row passes the CHECK constraints, for which all columns are read, in order.
    fn passes(&self, row: &[Value], set: &[(ColumnId, Value)]) -> bool {
        self.execution.checks.is_none()
            || self.execution.passes(self.table, &self.new_row(row, set))
    }

    /// The row as it will be, if all its columns have been read.
    fn new_row(&self, row: &[Value], set: &[(ColumnId, Value)]) -> Vec<Value> {
        let mut new = row[..self.table.columns.len()].to_vec();
        for ((position, _), (_, value)) in self.list.set.iter().zip(set) {
            new[*position].clone_from(value);
        }
        new
    }
}

/// The rows that RETURNING gives.
struct Written {
    wanted: bool,
    /// all columns in order, row after row
    values: Vec<Value>,
}

impl Written {
    /// `rows` are written, instead of any before: a write may look at a row again.
    fn keep(&mut self, rows: impl FnOnce() -> Vec<Value>) {
        if self.wanted {
            self.values = rows();
        }
    }

    /// One more row is written.
    fn add(&mut self, row: impl FnOnce() -> Vec<Value>) {
        if self.wanted {
            self.values.extend(row());
        }
    }

    /// Nothing was written unless `done`.
    fn keep_only(&mut self, done: bool) {
        if !done {
            self.values.clear();
        }
    }

    /// The wanted columns of rows with `width` columns.
    fn result(&self, wanted: &Projection, width: usize) -> Result<QueryResult> {
        let ValueColumns { types, schema } = wanted.result.as_ref();
        if self.values.is_empty() {
            return Ok(QueryResult::new(schema.clone(), Vec::new()));
        }
        let columns = wanted.positions.iter().zip(types);
        let arrays = columns.map(|(position, t)| {
            let rows = self.values.chunks_exact(width);
            let column: Vec<Value> = rows.map(|row| row[*position].clone()).collect();
            array_of(*t, &column)
        });
        let rows = RecordBatch::try_new(schema.clone(), arrays.collect::<Result<_>>()?)
            .map_err(|error| Error::internal(format!("rows as a batch: {error}")))?;
        Ok(QueryResult::new(schema.clone(), vec![rows]))
    }
}
