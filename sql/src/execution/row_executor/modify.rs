//! UPDATE and DELETE of the row with a key, or of the rows that a search finds; their new values,
//! and the values that RETURNING takes from them.

use super::arithmetic::{Number, compute};
use super::execution::{Decided, Execution};
use super::expressions::Rows;
use super::program::{Find, Key, Projection, Scalar, SetList, Update};
use super::search::Search;
use super::value::assigned;
use crate::values::result::QueryResult;
use crate::values::value_row::ValueColumns;
use datafusion::arrow::array::RecordBatch;
use std::sync::Arc;
use strandline_base::{ColumnId, Error, Result, Value};
use strandline_column::types::array_of;
use strandline_engine::catalog::TableDef;
use strandline_engine::{Effect, Modify, PointTable, Statement};

impl Execution<'_> {
    pub(super) fn update(
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
        Ok((!sets.are_undecided()).then_some((statement, changed)))
    }

    pub(super) fn apply(
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

    pub(super) fn delete(
        &self,
        table: &Arc<TableDef>,
        find: &Find,
        written: &mut Written,
    ) -> Decided<u64> {
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

    fn constants_are_numbers(&self, scalar: &Scalar) -> bool {
        match scalar {
            Scalar::Constant(source) => {
                let datum = self.datum(source);
                datum.is_some_and(|datum| Number::of_datum(&datum).is_some())
            }
            Scalar::Column(..) | Scalar::Excluded(..) | Scalar::Computed(_) => true,
            Scalar::Arithmetic(_, left, right) => {
                self.constants_are_numbers(left) && self.constants_are_numbers(right)
            }
        }
    }
}

/// What is assigned to a column.
enum NewValue<'a> {
    Known(Value),
    Computed(&'a Scalar),
}

/// The new values of a row.
pub(super) struct Modification<'a> {
    execution: &'a Execution<'a>,
    table: &'a TableDef,
    list: &'a SetList,
    /// one per entry of the list
    values: Vec<NewValue<'a>>,
    /// the row that an INSERT proposes
    excluded: &'a [Value],
    pub is_undecided: bool,
    /// the condition does not hold for the row that was looked at last
    pub is_left: bool,
}

impl<'a> Modification<'a> {
    /// None: a constant is not what its place wants, which is wrong even if there is no row.
    pub fn new(
        execution: &'a Execution<'a>,
        table: &'a TableDef,
        list: &'a SetList,
        excluded: &'a [Value],
    ) -> Option<Self> {
        let computed = list.computed.iter().map(|computed| &computed.expressions);
        if !computed
            .chain(&list.condition)
            .all(|e| e.fit(&execution.slots()))
        {
            return None;
        }
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
            is_left: false,
        })
    }

    /// The new values of `row`, whose columns are those that the list reads.
    pub fn decide(&mut self, row: &[Value], set: &mut Vec<(ColumnId, Value)>) -> Result<Effect> {
        let holds = match &self.list.condition {
            None => Some(true),
            Some(condition) => {
                condition.hold(&self.execution.slots(), &Rows::one(row, self.excluded))
            }
        };
        self.is_left = holds == Some(false);
        if self.is_left {
            return Ok(Effect::Leave);
        }
        if holds.is_none() {
            self.is_undecided = true;
            return Ok(Effect::Leave);
        }
        if self.assign(row, set).is_none() || !self.passes(row, set) {
            self.is_undecided = true;
            return Ok(Effect::Leave);
        }
        Ok(Effect::Update)
    }

    fn assign(&self, row: &[Value], set: &mut Vec<(ColumnId, Value)>) -> Option<()> {
        let computed = match &self.list.computed {
            None => Vec::new(),
            Some(computed) => {
                computed.of(&self.execution.slots(), &Rows::one(row, self.excluded))?
            }
        };
        for ((position, _), new) in self.list.set.iter().zip(&self.values) {
            let column = &self.table.columns[*position];
            let value = match new {
                NewValue::Known(value) => value.clone(),
                NewValue::Computed(Scalar::Column(place, _)) => row[*place].clone(),
                NewValue::Computed(Scalar::Excluded(position, _)) => {
                    self.excluded[*position].clone()
                }
                NewValue::Computed(Scalar::Computed(at)) => computed.get(*at)?.clone(),
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
            Scalar::Computed(_) => None,
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
    pub fn new_row(&self, row: &[Value], set: &[(ColumnId, Value)]) -> Vec<Value> {
        let mut new = row[..self.table.columns.len()].to_vec();
        for ((position, _), (_, value)) in self.list.set.iter().zip(set) {
            new[*position].clone_from(value);
        }
        new
    }
}

/// The rows that RETURNING gives.
pub(super) struct Written {
    wanted: bool,
    /// all columns in order, row after row
    values: Vec<Value>,
    /// the number of values that are final
    settled: usize,
}

impl Written {
    /// None yet; `wanted`: they are asked for.
    pub fn new(wanted: bool) -> Self {
        Self {
            wanted,
            values: Vec::new(),
            settled: 0,
        }
    }

    /// `rows` are written, instead of any that are not settled: a write may look at a row again.
    pub fn keep(&mut self, rows: impl FnOnce() -> Vec<Value>) {
        if self.wanted {
            self.values.truncate(self.settled);
            self.values.extend(rows());
        }
    }

    /// One more row is written.
    fn add(&mut self, row: impl FnOnce() -> Vec<Value>) {
        if self.wanted {
            self.values.extend(row());
        }
    }

    /// Nothing was written unless `done`.
    pub fn keep_only(&mut self, done: bool) {
        if !done {
            self.values.truncate(self.settled);
        }
    }

    /// What has been kept is final.
    pub fn settle(&mut self) {
        self.settled = self.values.len();
    }

    /// The wanted columns of rows with `width` columns; None: not decided here.
    pub fn result(
        &self,
        execution: &Execution<'_>,
        wanted: &Projection,
        width: usize,
    ) -> Decided<QueryResult> {
        if let Some(computed) = &wanted.computed {
            let rows = Rows::many(&self.values, width);
            return Ok(computed.result(&execution.slots(), &wanted.result.schema, &rows));
        }
        let ValueColumns { types, schema } = wanted.result.as_ref();
        if self.values.is_empty() {
            return Ok(Some(QueryResult::new(schema.clone(), Vec::new())));
        }
        let columns = wanted.positions.iter().zip(types);
        let arrays = columns.map(|(position, t)| {
            let rows = self.values.chunks_exact(width);
            let column: Vec<Value> = rows.map(|row| row[*position].clone()).collect();
            array_of(*t, &column)
        });
        let rows = RecordBatch::try_new(schema.clone(), arrays.collect::<Result<_>>()?)
            .map_err(|error| Error::internal(format!("rows as a batch: {error}")))?;
        Ok(Some(QueryResult::new(schema.clone(), vec![rows])))
    }
}
