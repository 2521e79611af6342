//! Inserts, updates and deletes of a statement.

use super::keys::{EntryPlace, NewKey, Uniqueness};
use super::{OnInvisibleDuplicate, Statement, not_null_violation, write_conflict};
use crate::catalog::{KeyDef, TableDef, column_of};
use crate::redo;
use crate::store::TableStore;
use crate::store::{Store, key_index, newest};
use arrow_array::RecordBatch;
use std::sync::Arc;
use strandline_base::{ColumnId, Result, RowId, Value};
use strandline_column::types::value_at;
use strandline_tail::change::{Change, PendingStamp, WriteOutcome, Writer};
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
        let (store, writer) = self.writable(table)?;
        let mut ids = Vec::with_capacity(rows.num_rows());
        let mut values = vec![Value::Null; table.next_column as usize];
        for row in 0..rows.num_rows() {
            for (at, column) in table.columns.iter().enumerate() {
                values[column.id.0 as usize] = value_at(column.sql_type, rows.column(at), row);
            }
            self.txn.admit_next_write()?;
            ids.push(self.insert_row(table, &store, &writer, &values, conflicts)?);
        }
        Ok(ids)
    }

    /// Inserts one row; `values` by column id.
    pub(crate) fn insert_row(
        &self,
        table: &Arc<TableDef>,
        store: &Arc<Store>,
        writer: &Writer,
        values: &[Value],
        conflicts: OnInvisibleDuplicate,
    ) -> Result<RowId> {
        for column in &table.columns {
            if column.not_null && values[column.id.0 as usize].is_null() {
                return Err(not_null_violation(table, &column.name));
            }
        }
        let mut state = self.txn.state.lock();
        state.check_open()?;
        let row = store.rows().insert(values, writer, &mut state.written)?;
        let bytes = state.written.last().map_or(0, PendingStamp::memory_bytes);
        self.txn.note_write(&mut state, (table.storage, row), bytes);
        let columns = table
            .columns
            .iter()
            .map(|c| (c.id, &values[c.id.0 as usize]));
        redo::put_insert(&mut state.redo, table.storage, row, columns);
        drop(state);
        for (at, key) in table.keys.iter().enumerate() {
            let part = |c: &ColumnId| values[c.0 as usize].clone();
            let key_values: Vec<Value> = key.columns.iter().map(part).collect();
            let place = EntryPlace {
                table,
                store,
                index: key_index(store, &key.columns)?,
                uniqueness: Uniqueness::Key(at),
                on_invisible: conflicts,
            };
            self.enter_key(place, Some(&key_values), row, NewKey::Inserted)?;
        }
        if !table.indexes.is_empty() {
            self.enter_secondary(table, store, values, row, conflicts)?;
        }
        self.note_inserted(table, store, row);
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
        let (store, writer) = self.writable(table)?;
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
            self.update_row(table, &store, &writer, row, &set)?;
        }
        Ok(())
    }

    /// Updates one row; false if it is gone.
    pub(crate) fn update_row(
        &self,
        table: &Arc<TableDef>,
        store: &Arc<Store>,
        writer: &Writer,
        row: RowId,
        set: &[(ColumnId, Value)],
    ) -> Result<bool> {
        for (id, value) in set {
            let column = column_of(table, *id)?;
            if column.not_null && value.is_null() {
                return Err(not_null_violation(table, &column.name));
            }
        }
        let is_set = |c: &ColumnId| set.iter().any(|(id, _)| id == c);
        let keys = table.keys.iter().flat_map(|key| &key.columns);
        let changed = match !table.indexes.is_empty() || keys.into_iter().any(is_set) {
            true => changed_columns(table, store, writer, row, set)?,
            false => Vec::new(),
        };
        let changes = |key: &KeyDef| key.columns.iter().any(|c| changed.contains(c));
        for key in table.keys.iter().filter(|key| changes(key)) {
            key_index(store, &key.columns)?.note_moved();
        }
        let own = writer.word;
        let before = self.before_change(table, (store, own), row, Some(set))?;
        if !self.write(table, store, writer, row, Change::Update(set))? {
            return Ok(false);
        }
        for (at, key) in table.keys.iter().enumerate() {
            if changes(key) {
                let mut values = vec![Value::Null; key.columns.len()];
                store
                    .rows()
                    .read(row, &newest(writer.word), &key.columns, &mut values)?;
                let place = EntryPlace {
                    table,
                    store,
                    index: key_index(store, &key.columns)?,
                    uniqueness: Uniqueness::Key(at),
                    on_invisible: OnInvisibleDuplicate::Violation,
                };
                self.enter_key(place, Some(&values), row, NewKey::Updated)?;
            }
        }
        if !table.indexes.is_empty() && !changed.is_empty() {
            self.enter_updated(table, store, (writer.word, row), (set, &changed))?;
        }
        if let Some(before) = before {
            self.note_updated(table, (store, own), row, before)?;
        }
        Ok(true)
    }

    /// Deletes rows. Rows that this transaction has deleted already are passed over.
    pub fn delete(&self, table: &Arc<TableDef>, rows: &[RowId]) -> Result<()> {
        let (store, writer) = self.writable(table)?;
        for &row in rows {
            self.txn.admit_next_write()?;
            self.delete_row(table, &store, &writer, row)?;
        }
        Ok(())
    }

    /// Deletes one row; false if it is gone.
    pub(crate) fn delete_row(
        &self,
        table: &Arc<TableDef>,
        store: &Arc<Store>,
        writer: &Writer,
        row: RowId,
    ) -> Result<bool> {
        let before = self.before_change(table, (store, writer.word), row, None)?;
        let is_deleted = self.write(table, store, writer, row, Change::Delete)?;
        if let Some(before) = before.filter(|_| is_deleted) {
            self.note_deleted(table, before);
        }
        Ok(is_deleted)
    }

    /// Writes one change, after waiting for transactions that hold the row; false if the row is
    /// gone.
    pub(crate) fn write(
        &self,
        table: &Arc<TableDef>,
        store: &Arc<Store>,
        writer: &Writer,
        row: RowId,
        change: Change<'_>,
    ) -> Result<bool> {
        let mut looks = Looks::default();
        let mut busy_since = None;
        loop {
            match self.try_write(table, store, writer, row, change)? {
                WriteOutcome::Done(_) => return Ok(true),
                WriteOutcome::Gone => return Ok(false),
                WriteOutcome::Conflict(_) => return Err(write_conflict(table)),
                WriteOutcome::Wait(holder) => self.txn.wait_for(holder, &mut looks)?,
                WriteOutcome::Busy => self.txn.wait_for_latch(&mut busy_since)?,
            }
        }
    }

    pub(crate) fn try_write(
        &self,
        table: &TableDef,
        store: &Store,
        writer: &Writer,
        row: RowId,
        change: Change<'_>,
    ) -> Result<WriteOutcome> {
        store.rows().check_change_bytes(change)?;
        let mut state = self.txn.state.lock();
        state.check_open()?;
        let state = &mut *state;
        let outcome = store
            .rows()
            .write(row, change, writer, &mut state.written)?;
        if let WriteOutcome::Done(bytes) = outcome {
            self.txn.note_write(state, (table.storage, row), bytes);
            redo::put_change(&mut state.redo, table.storage, row, change);
        }
        Ok(outcome)
    }
}

/// The columns that indexes read and whose values `set` changes in the version that the writer
/// builds upon. If that is not the newest one any more the write fails.
fn changed_columns(
    table: &TableDef,
    store: &Store,
    writer: &Writer,
    row: RowId,
    set: &[(ColumnId, Value)],
) -> Result<Vec<ColumnId>> {
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
    if store.rows().read(row, &before, &columns, &mut values)? {
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
