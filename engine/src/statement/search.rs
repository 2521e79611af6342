//! Searches of few rows: row ids from an index's keys, and reading and changing these rows one by
//! one. The query engine, which reads columnar, has [`super::index_rows`].
//!
//! An index gives candidates: rows that have, or had, a key. The caller reads each of them and
//! compares its values.

use super::{Modify, RowView, Statement};
use crate::catalog::index::IndexId;
use crate::catalog::{KeyDef, TableDef};
use crate::statement::point_table::Effect;
use crate::store::{StoredIndex, TableStore, hinted_row, key_index, readable_index};
use std::sync::Arc;
use strandline_base::{ColumnId, Result, RowId, Value};
use strandline_index::KeyRange;
use strandline_txn::Visibility;

impl Statement {
    /// Whether an index can be read and has an entry for each version that this statement
    /// sees, if the version fulfils the index's condition.
    pub fn sees_index(&self, table: &TableDef, index: IndexId) -> bool {
        let is_complete = |since| since <= self.snapshot_ts();
        let def = table.index(index);
        def.is_some_and(|def| is_complete(def.complete_since)) && self.has_index(table, index)
    }

    /// About how many entries a range of an index has: exactly if they are few.
    pub fn index_estimate(
        &self,
        table: &TableDef,
        index: IndexId,
        range: &KeyRange,
    ) -> Result<Option<usize>> {
        let store = self.transaction().db().store(table.storage)?;
        Ok(readable_index(&store, table, index)?.index.estimate(range))
    }

    /// Appends the rows that have, or had, this whole key of a plain index. A
    /// serializable transaction notes the key.
    pub fn rows_of_index_key(
        &self,
        table: &TableDef,
        index: IndexId,
        key: &[Value],
        rows: &mut Vec<RowId>,
    ) -> Result<()> {
        let store = self.transaction().db().store(table.storage)?;
        let index = readable_index(&store, table, index)?;
        if let Some(bytes) = index.key_bytes(key) {
            index.index.lookup(&bytes, rows)?;
        }
        self.transaction().note_key(table, &store, &index, key);
        Ok(())
    }

    /// Appends the row with this key that this statement sees, among others that have, or had, the
    /// key; `key` indexes `TableDef::keys`. The caller notes the read of a serializable
    /// transaction: [`Statement::note_key`] or a scan.
    pub fn rows_of_key(
        &self,
        table: &TableDef,
        key: usize,
        values: &[Value],
        rows: &mut Vec<RowId>,
    ) -> Result<()> {
        let store = self.transaction().db().store(table.storage)?;
        let def = &table.keys[key];
        let index = key_index(&store, &def.columns)?;
        if !index.has_entry(values) {
            return Ok(());
        }
        let constraint = (&*index, def);
        if let Some(row) = hinted_row(&store, constraint, values, self.visibility())? {
            rows.push(row);
            return Ok(());
        }
        let before = rows.len();
        index.index.lookup(&index.index.encode(values), rows)?;
        self.hint_row(constraint, values, &rows[before..]);
        Ok(())
    }

    /// Keeps the row at hand that is the only one of a key's entries.
    pub(super) fn hint_row(
        &self,
        (index, constraint): (&StoredIndex, &KeyDef),
        key: &[Value],
        rows: &[RowId],
    ) {
        if let (Some(hints), [row]) = (index.hints(constraint), rows) {
            hints.put(key, *row, self.transaction().db().settings().hint_bytes());
        }
    }

    /// Notes that this statement reads the row with this key.
    pub fn note_key(&self, table: &TableDef, key: usize, values: &[Value]) -> Result<()> {
        if self.transaction().notes_reads() {
            let store = self.transaction().db().store(table.storage)?;
            let index = key_index(&store, &table.keys[key].columns)?;
            self.transaction().note_key(table, &store, &index, values);
        }
        Ok(())
    }

    /// Changes each of `rows` that this statement sees as `modify` decides from the values of
    /// `columns`. Returns the number of changed rows. Keys are checked by [`Statement::finish`].
    /// 40001 if a row has a version newer than the statement's snapshot: under read committed the
    /// caller runs the statement again.
    pub fn modify_rows(
        &self,
        table: &Arc<TableDef>,
        rows: &[RowId],
        columns: &[ColumnId],
        modify: Modify<'_>,
    ) -> Result<u64> {
        let target = self.writable(table)?;
        let visibility = Visibility {
            own: target.writer.word,
            ..*self.visibility()
        };
        let (mut values, mut set) = (vec![Value::Null; columns.len()], Vec::new());
        let mut changed = 0;
        for &row in rows {
            self.transaction().admit_next_write()?;
            let stored = target.store.rows();
            if !stored.read(row, &visibility, columns, &mut values)? {
                continue;
            }
            set.clear();
            let is_changed = match modify(&values, &mut set)? {
                Effect::Leave => false,
                Effect::Update => self.update_row(&target, row, &set)?,
                Effect::Delete => self.delete_row(&target, row)?,
            };
            changed += u64::from(is_changed);
        }
        Ok(changed)
    }
}

impl RowView {
    /// Reads columns of one row into `values`, one per column; false if the row is not visible.
    pub fn read(&self, row: RowId, columns: &[ColumnId], values: &mut [Value]) -> Result<bool> {
        let stored = self.store.rows();
        stored.read(row, &self.visibility, columns, values)
    }
}
