//! Inserts, updates and deletes of a statement.

use super::keys::{EntryPlace, NewKey, Uniqueness};
use super::write_target::WriteTarget;
use super::{OnInvisibleDuplicate, Statement, not_null_violation, write_conflict};
use crate::catalog::{KeyDef, TableDef, column_of};
use crate::redo;
use crate::store::{TableStore, newest};
use arrow_array::RecordBatch;
use std::sync::Arc;
use strandline_base::{ColumnId, Result, RowId, Value};
use strandline_column::types::value_at;
use strandline_tail::change::{Change, PendingStamp, WriteOutcome};
use strandline_txn::{Looks, Visibility};

impl Statement {
    /// Inserts rows; columns as in `TableDef::columns`. NOT NULL is checked here, keys at
    /// `finish`, CHECK by the caller.
    pub fn insert(
        &self,
        table: &Arc<TableDef>,
        rows: &RecordBatch,
        conflicts: OnInvisibleDuplicate,
    ) -> Result<Vec<RowId>> {
        let target = self.writable(table)?;
        let mut ids = Vec::with_capacity(rows.num_rows());
        let mut values = vec![Value::Null; table.next_column as usize];
        for row in 0..rows.num_rows() {
            for (at, column) in table.columns.iter().enumerate() {
                values[column.id.0 as usize] = value_at(column.sql_type, rows.column(at), row);
            }
            self.txn.admit_next_write()?;
            ids.push(self.insert_row(&target, &values, conflicts)?);
        }
        Ok(ids)
    }

    /// Inserts one row; `values` by column id.
    pub(crate) fn insert_row(
        &self,
        target: &WriteTarget<'_>,
        values: &[Value],
        conflicts: OnInvisibleDuplicate,
    ) -> Result<RowId> {
        let (table, store) = (target.table, &target.store);
        for column in &table.columns {
            if column.not_null && values[column.id.0 as usize].is_null() {
                return Err(not_null_violation(table, &column.name));
            }
        }
        let mut state = self.txn.state.lock();
        state.check_open()?;
        let row = store
            .rows()
            .insert(values, &target.writer, &mut state.written)?;
        let bytes = state.written.last().map_or(0, PendingStamp::memory_bytes);
        self.txn.note_write(&mut state, (table.storage, row), bytes);
        let columns = table
            .columns
            .iter()
            .map(|c| (c.id, &values[c.id.0 as usize]));
        redo::put_insert(&mut state.redo, table.storage, row, columns);
        drop(state);
        self.enter_inserted(target, values, row, conflicts)?;
        self.note_inserted(table, store, row)?;
        Ok(row)
    }

    /// Sets `columns` of `rows`; one column of `values` per entry of `columns`, one row per row.
    /// Rows that this transaction has deleted since they were found are skipped.
    pub fn update(
        &self,
        table: &Arc<TableDef>,
        rows: &[RowId],
        columns: &[ColumnId],
        values: &RecordBatch,
    ) -> Result<()> {
        let target = self.writable(table)?;
        let mut types = Vec::with_capacity(columns.len());
        for &id in columns {
            types.push(column_of(table, id)?.sql_type);
        }
        let mut set = Vec::with_capacity(columns.len());
        for (at, &row) in rows.iter().enumerate() {
            self.txn.admit_next_write()?;
            set.clear();
            for (i, &id) in columns.iter().enumerate() {
                set.push((id, value_at(types[i], values.column(i), at)));
            }
            self.update_row(&target, row, &set)?;
        }
        Ok(())
    }

    /// Updates one row; false if it is gone.
    pub(crate) fn update_row(
        &self,
        target: &WriteTarget<'_>,
        row: RowId,
        set: &[(ColumnId, Value)],
    ) -> Result<bool> {
        let (table, store, own) = (target.table, &target.store, target.writer.word);
        for (id, value) in set {
            let column = column_of(table, *id)?;
            if column.not_null && value.is_null() {
                return Err(not_null_violation(table, &column.name));
            }
        }
        let is_set = |c: &ColumnId| set.iter().any(|(id, _)| id == c);
        let keys = table.keys.iter().flat_map(|key| &key.columns);
        let changed = match !table.indexes.is_empty() || keys.into_iter().any(is_set) {
            true => changed_columns(target, row, set)?,
            false => Vec::new(),
        };
        let changes = |key: &KeyDef| key.columns.iter().any(|c| changed.contains(c));
        if !changed.is_empty() {
            let keys = table.keys.iter().zip(&target.indexes()?.keys);
            keys.filter(|(key, _)| changes(key))
                .for_each(|(_, index)| index.note_moved());
        }
        let before = self.before_change(table, (store, own), row, Some(set))?;
        if !self.write(target, row, Change::Update(set))? {
            return Ok(false);
        }
        if !changed.is_empty() {
            self.enter_updated_keys(target, row, &changes)?;
            self.enter_updated(target, row, (set, &changed))?;
        }
        if let Some(before) = before {
            self.note_updated(table, (store, own), row, before)?;
        }
        Ok(true)
    }

    /// Enters an updated row, whose record has been written, into the indexes of the constraints
    /// whose key it `changes`.
    fn enter_updated_keys(
        &self,
        target: &WriteTarget<'_>,
        row: RowId,
        changes: &dyn Fn(&KeyDef) -> bool,
    ) -> Result<()> {
        let keys = target.table.keys.iter().zip(&target.indexes()?.keys);
        for (at, (key, index)) in keys.enumerate() {
            if !changes(key) {
                continue;
            }
            let mut values = vec![Value::Null; key.columns.len()];
            let (stored, own) = (target.store.rows(), target.writer.word);
            stored.read(row, &newest(own), &key.columns, &mut values)?;
            let place = EntryPlace {
                target,
                index,
                uniqueness: Uniqueness::Key(at),
                on_invisible: OnInvisibleDuplicate::Violation,
            };
            self.enter_key(place, Some(&values), row, NewKey::Updated)?;
        }
        Ok(())
    }

    /// Deletes rows. Rows that this transaction has deleted already are passed over.
    pub fn delete(&self, table: &Arc<TableDef>, rows: &[RowId]) -> Result<()> {
        let target = self.writable(table)?;
        for &row in rows {
            self.txn.admit_next_write()?;
            self.delete_row(&target, row)?;
        }
        Ok(())
    }

    /// Deletes one row; false if it is gone.
    pub(crate) fn delete_row(&self, target: &WriteTarget<'_>, row: RowId) -> Result<bool> {
        let table = target.table;
        let place = (&*target.store, target.writer.word);
        let before = self.before_change(table, place, row, None)?;
        let is_deleted = self.write(target, row, Change::Delete)?;
        if let Some(before) = before.filter(|_| is_deleted) {
            self.note_deleted(table, before)?;
        }
        Ok(is_deleted)
    }

    /// Writes one change, after waiting for transactions that hold the row; false if the row is
    /// gone.
    pub(crate) fn write(
        &self,
        target: &WriteTarget<'_>,
        row: RowId,
        change: Change<'_>,
    ) -> Result<bool> {
        let mut looks = Looks::default();
        let mut busy_since = None;
        loop {
            match self.try_write(target, row, change)? {
                WriteOutcome::Done(_) => return Ok(true),
                WriteOutcome::Gone => return Ok(false),
                WriteOutcome::Conflict(_) => return Err(write_conflict(target.table)),
                WriteOutcome::Wait(holder) => self.txn.wait_for(holder, &mut looks)?,
                WriteOutcome::Busy => self.txn.wait_for_latch(&mut busy_since)?,
            }
        }
    }

    pub(crate) fn try_write(
        &self,
        target: &WriteTarget<'_>,
        row: RowId,
        change: Change<'_>,
    ) -> Result<WriteOutcome> {
        let store = &target.store;
        store.rows().check_change_bytes(change)?;
        let mut state = self.txn.state.lock();
        state.check_open()?;
        let state = &mut *state;
        let outcome = store
            .rows()
            .write(row, change, &target.writer, &mut state.written)?;
        if let WriteOutcome::Done(bytes) = outcome {
            let storage = target.table.storage;
            self.txn.note_write(state, (storage, row), bytes);
            redo::put_change(&mut state.redo, storage, row, change);
        }
        Ok(outcome)
    }
}

/// The columns that indexes read and whose values `set` changes in the version that the writer
/// builds upon. If that is not the newest one any more the write fails.
fn changed_columns(
    target: &WriteTarget<'_>,
    row: RowId,
    set: &[(ColumnId, Value)],
) -> Result<Vec<ColumnId>> {
    let (table, writer) = (target.table, &target.writer);
    let is_read = |id: &ColumnId| {
        table.keys.iter().any(|key| key.columns.contains(id))
            || table.indexes.iter().any(|index| index.has_key_column(*id))
    };
    let mut columns: Vec<ColumnId> = set.iter().map(|(id, _)| *id).filter(is_read).collect();
    if columns.is_empty() {
        return Ok(columns);
    }
    let before = Visibility {
        ts: writer.snapshot,
        own: writer.word,
        statement: u32::MAX,
    };
    let mut values = vec![Value::Null; columns.len()];
    if target
        .store
        .rows()
        .read(row, &before, &columns, &mut values)?
    {
        let mut values = values.iter();
        columns.retain(|id| {
            let new = set.iter().find(|(set, _)| set == id);
            let old = values.next();
            !new.zip(old)
                .is_some_and(|((_, new), old)| is_identical(new, old))
        });
    }
    Ok(columns)
}

/// Whether no expression can tell the values from each other.
fn is_identical(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.to_bits() == b.to_bits(),
        (Value::Real(a), Value::Real(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}
