//! Point operations by key: the path of OLTP, which never enters the query engine.
//!
//! Under read committed a write that meets a newer committed version reads that version and applies
//! to it, as in PostgreSQL.

use crate::catalog::TableDef;
use crate::settings::ConflictPolicy;
use crate::statement::point_table::{Effect, Modify};
use crate::statement::write_target::WriteTarget;
use crate::statement::{OnInvisibleDuplicate, Statement};
use crate::store::TableStore;
use crate::store::{find_key, forget_expired, hinted_row, key_index};
use std::sync::Arc;
use strandline_base::{ColumnId, Result, RowId, SqlState, Value};
use strandline_index::is_same_key;
use strandline_txn::{Isolation, Visibility};

impl Statement {
    /// Appends the values of `columns` of the row with this key to `out`; false if there is no
    /// such row. `key` indexes `TableDef::keys`.
    pub fn point_get(
        &self,
        table: &Arc<TableDef>,
        key: usize,
        key_values: &[Value],
        columns: &[ColumnId],
        out: &mut Vec<Value>,
    ) -> Result<bool> {
        let store = self.transaction().db().store(table.storage)?;
        let def = &table.keys[key];
        let index = key_index(&store, &def.columns)?;
        if !index.has_entry(key_values) {
            return Ok(false);
        }
        self.transaction()
            .note_key(table, &store, &index, key_values);
        // One walk reads the key, to compare, and what was asked for.
        let (from, parts) = (out.len(), def.columns.len());
        let mut wanted = Vec::with_capacity(parts + columns.len());
        wanted.extend_from_slice(&def.columns);
        wanted.extend_from_slice(columns);
        out.resize(from + wanted.len(), Value::Null);
        let read = |row, out: &mut [Value]| {
            let stored = store.rows();
            stored.read(row, self.visibility(), &wanted, out)
        };
        let hints = index.hints(def);
        if let Some(row) = hints.and_then(|hints| hints.get(key_values))
            && read(row, &mut out[from..])?
            && is_same_key(&out[from..from + parts], key_values)
        {
            out.drain(from..from + parts);
            return Ok(true);
        }
        let bytes = index.index.encode(key_values);
        let mut rows = Vec::new();
        index.index.lookup(&bytes, &mut rows)?;
        self.hint_row((&index, def), key_values, &rows);
        for row in rows {
            if !read(row, &mut out[from..])? {
                forget_expired(&store, &index, &bytes, row)?;
            } else if is_same_key(&out[from..from + parts], key_values) {
                out.drain(from..from + parts);
                return Ok(true);
            }
        }
        out.truncate(from);
        Ok(false)
    }

    /// Inserts one full row in column order. Keys are checked before it returns.
    pub fn point_insert(&self, table: &Arc<TableDef>, row: &[Value]) -> Result<RowId> {
        let target = self.writable(table)?;
        let mut values = vec![Value::Null; table.next_column as usize];
        for (column, value) in table.columns.iter().zip(row) {
            values[column.id.0 as usize] = value.clone();
        }
        let violation = OnInvisibleDuplicate::Violation;
        let id = self.insert_row(&target, &values, violation)?;
        self.finish()?;
        Ok(id)
    }

    /// Sets columns of the row with this key; false if there is no such row. Keys are checked
    /// before it returns.
    pub fn point_update(
        &self,
        table: &Arc<TableDef>,
        key: usize,
        key_values: &[Value],
        set: &[(ColumnId, Value)],
    ) -> Result<bool> {
        let updated = self.on_newest(table, key, key_values, |target, row| {
            self.update_row(target, row, set)
        })?;
        self.finish()?;
        Ok(updated)
    }

    /// Deletes the row with this key; false if there is no such row.
    pub fn point_delete(
        &self,
        table: &Arc<TableDef>,
        key: usize,
        key_values: &[Value],
    ) -> Result<bool> {
        let deleted = self.on_newest(table, key, key_values, |target, row| {
            self.delete_row(target, row)
        })?;
        self.finish()?;
        Ok(deleted)
    }

    /// Changes the row with this key as `modify` decides. `modify` gets the values of `columns`,
    /// and is called again with the values of a newer version if there is one. Returns whether the
    /// row was changed. Keys are checked before it returns.
    pub fn point_modify(
        &self,
        table: &Arc<TableDef>,
        key: usize,
        key_values: &[Value],
        columns: &[ColumnId],
        modify: Modify<'_>,
    ) -> Result<bool> {
        let (mut row_values, mut set) = (vec![Value::Null; columns.len()], Vec::new());
        let done = self.on_newest(table, key, key_values, |target, row| {
            let visibility = Visibility {
                ts: target.writer.snapshot,
                own: target.writer.word,
                statement: self.visibility().statement,
            };
            let stored = target.store.rows();
            if !stored.read(row, &visibility, columns, &mut row_values)? {
                return Ok(false);
            }
            set.clear();
            match modify(&row_values, &mut set)? {
                Effect::Leave => Ok(false),
                Effect::Update => self.update_row(target, row, &set),
                Effect::Delete => self.delete_row(target, row),
            }
        })?;
        self.finish()?;
        Ok(done)
    }

    /// Inserts full rows in column order, one after the other in `rows`. Keys are checked by
    /// [`Statement::finish`].
    pub fn insert_values(
        &self,
        table: &Arc<TableDef>,
        rows: &[Value],
        conflicts: OnInvisibleDuplicate,
    ) -> Result<()> {
        let target = self.writable(table)?;
        let mut values = vec![Value::Null; table.next_column as usize];
        for row in rows.chunks_exact(table.columns.len().max(1)) {
            for (column, value) in table.columns.iter().zip(row) {
                values[column.id.0 as usize].clone_from(value);
            }
            self.insert_row(&target, &values, conflicts)?;
        }
        Ok(())
    }

    /// Whether a write that meets a newer committed version applies to that one.
    fn looks_again(&self) -> bool {
        let transaction = self.transaction();
        transaction.options().isolation == Isolation::ReadCommitted
            && transaction.conflicts() == ConflictPolicy::Wait
    }

    /// Runs `write` on the row with this key, and again on its newer version if one has committed
    /// since and the isolation level allows it.
    fn on_newest(
        &self,
        table: &Arc<TableDef>,
        key: usize,
        key_values: &[Value],
        mut write: impl FnMut(&WriteTarget<'_>, RowId) -> Result<bool>,
    ) -> Result<bool> {
        let mut target = self.writable(table)?;
        let def = &table.keys[key];
        let index = key_index(&target.store, &def.columns)?;
        self.transaction()
            .note_key(table, &target.store, &index, key_values);
        let mut visibility = Visibility {
            own: target.writer.word,
            ..*self.visibility()
        };
        loop {
            let hinted = hinted_row(&target.store, (&index, def), key_values, &visibility)?;
            let row = match hinted {
                Some(row) => row,
                None => {
                    let found = find_key(&target.store, &index, key_values, &visibility)?;
                    let Some(row) = found else {
                        return Ok(false);
                    };
                    self.hint_row((&index, def), key_values, &[row]);
                    row
                }
            };
            match write(&target, row) {
                Err(e) if e.sqlstate() == SqlState::SERIALIZATION_FAILURE && self.looks_again() => {
                    self.transaction().check_cancelled()?;
                    visibility.ts = self.transaction().newest_moment();
                    target.writer.snapshot = visibility.ts;
                }
                outcome => return outcome,
            }
        }
    }
}
