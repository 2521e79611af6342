//! Keys of a statement's rows: lookups, and uniqueness.
//!
//! Every new key goes into the key index before the check, which gives the rows that were under the
//! key's bytes before; the check at the end of the statement looks at those. So of two concurrent
//! writers of one key exactly the later one sees, and waits for, the other.

use super::{OnInvisibleDuplicate, Statement, write_conflict};
use crate::catalog::{TableDef, column_of};
use crate::display::value_text;
use crate::store::TableStore;
use crate::store::{Store, find_key, forget_expired, key_index, newest};
use arrow_array::RecordBatch;
use std::sync::Arc;
use strandline_base::{Error, ErrorKind, Result, RowId, SqlState, SqlType, Value};
use strandline_column::types::value_at;
use strandline_index::{KeyBytes, is_same_key};
use strandline_txn::{Isolation, Looks, StartWord, Visibility};

/// How a row came to a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NewKey {
    /// it was inserted
    Inserted,
    /// it was updated
    Updated,
}

/// A key to check at the end of the statement.
pub(crate) struct KeyCheck {
    pub table: Arc<TableDef>,
    pub store: Arc<Store>,
    /// indexes `TableDef::keys`
    pub key: usize,
    pub bytes: KeyBytes,
    pub row: RowId,
    /// rows that had an entry under these bytes before this one
    pub others: Vec<RowId>,
    pub on_invisible: OnInvisibleDuplicate,
}

impl Statement {
    #[expect(clippy::too_many_arguments, reason = "one call site per kind of write")]
    pub(super) fn add_key(
        &self,
        table: &Arc<TableDef>,
        store: &Arc<Store>,
        key: usize,
        values: &[Value],
        row: RowId,
        on_invisible: OnInvisibleDuplicate,
        new: NewKey,
    ) -> Result<()> {
        let index = key_index(store, &table.keys[key].columns)?;
        let bytes = index.key_bytes(values);
        let mut others = Vec::new();
        match (new, bytes.clone()) {
            // Also if it has no key now: it may have left one.
            (NewKey::Updated, bytes) => {
                let moved = &mut self.txn.state.lock().moved;
                moved.enter(&index, bytes, row, &mut others)?;
            }
            (NewKey::Inserted, Some(bytes)) => {
                index.index.insert(&bytes, row, &mut others)?;
                self.txn.state.lock().entries.push((index, bytes, row));
            }
            (NewKey::Inserted, None) => {}
        }
        if let Some(bytes) = bytes.filter(|_| !others.is_empty()) {
            self.check_later(KeyCheck {
                table: table.clone(),
                store: store.clone(),
                key,
                bytes,
                row,
                others,
                on_invisible,
            });
        }
        Ok(())
    }

    /// Has `finish` check a key that has been entered.
    pub(super) fn check_later(&self, check: KeyCheck) {
        self.checks.lock().push(check);
    }

    /// For each row of `keys` (columns in the order of the key's definition) the row of `table`
    /// visible to this statement (own inserts of this very statement included) that has this key.
    /// `key` indexes `TableDef::keys`. NULL in a key: None.
    pub fn find_by_key(
        &self,
        table: &Arc<TableDef>,
        key: usize,
        keys: &RecordBatch,
    ) -> Result<Vec<Option<RowId>>> {
        let store = self.txn.db().store(table.storage)?;
        let own = self.txn.word()?;
        let visibility = Visibility {
            own,
            statement: u32::MAX,
            ..self.visibility
        };
        let types = key_types(table, key)?;
        let columns = &table.keys[key].columns;
        (0..keys.num_rows())
            .map(|row| {
                let values: Vec<Value> = types
                    .iter()
                    .enumerate()
                    .map(|(i, t)| value_at(*t, keys.column(i), row))
                    .collect();
                self.txn.note_key(table, &store, columns, &values);
                find_key(&store, columns, &values, &visibility)
            })
            .collect()
    }

    pub(super) fn check_key(&self, check: &KeyCheck) -> Result<()> {
        let own = self.txn.word()?;
        let columns = &check.table.keys[check.key].columns;
        let stored = check.store.rows();
        let index = key_index(&check.store, columns)?;
        let mut mine = vec![Value::Null; columns.len()];
        let mut looks = Looks::default();
        loop {
            if !stored.read(check.row, &newest(own), columns, &mut mine)?
                || index.key_bytes(&mine).as_ref() != Some(&check.bytes)
            {
                return Ok(()); // deleted or changed again since
            }
            let mut waited = false;
            for &other in &check.others {
                let speculative = self.txn.options().speculative;
                if let Some(holder) = stored.unfinished_writer(other, own, speculative)? {
                    self.txn.wait_for(holder, &mut looks)?;
                    waited = true;
                    break;
                }
                let mut theirs = vec![Value::Null; columns.len()];
                if !stored.read(other, &newest(own), columns, &mut theirs)? {
                    forget_expired(&check.store, &index, &check.bytes, other)?;
                } else if is_same_key(&theirs, &mine) {
                    return Err(self.duplicate(check, own, other, &mine)?);
                }
            }
            if !waited {
                return Ok(());
            }
        }
    }

    fn duplicate(
        &self,
        check: &KeyCheck,
        own: StartWord,
        other: RowId,
        key: &[Value],
    ) -> Result<Error> {
        let columns = &check.table.keys[check.key].columns;
        let mut seen = vec![Value::Null; columns.len()];
        let visibility = Visibility {
            own,
            statement: u32::MAX,
            ..self.visibility
        };
        let stored = check.store.rows();
        let is_visible =
            stored.read(other, &visibility, columns, &mut seen)? && is_same_key(&seen, key);
        // A serializable transaction would have seen the row, had it run after the other one.
        let is_serializable = self.txn.options().isolation == Isolation::Serializable;
        let is_conflict = check.on_invisible == OnInvisibleDuplicate::Conflict || is_serializable;
        if !is_visible && is_conflict {
            return Ok(write_conflict(&check.table));
        }
        // That the key is there is something the transaction has read.
        self.txn.note_key(&check.table, &check.store, columns, key);
        unique_violation(&check.table, check.key, key)
    }
}

pub(crate) fn key_types(table: &TableDef, key: usize) -> Result<Vec<SqlType>> {
    table.keys[key]
        .columns
        .iter()
        .map(|c| Ok(column_of(table, *c)?.sql_type))
        .collect()
}

pub(crate) fn unique_violation(table: &TableDef, key: usize, values: &[Value]) -> Result<Error> {
    let def = &table.keys[key];
    let mut names = Vec::new();
    let mut shown = Vec::new();
    for (column, value) in def.columns.iter().zip(values) {
        let column = column_of(table, *column)?;
        names.push(column.name.clone());
        shown.push(value_text(column.sql_type, value));
    }
    Ok(Error::new(
        ErrorKind::Constraint,
        SqlState::UNIQUE_VIOLATION,
        format!(
            "duplicate key value violates unique constraint \"{}\" of table \"{}\"",
            def.name, table.name
        ),
    )
    .with_detail(format!(
        "Key ({})=({}) already exists.",
        names.join(", "),
        shown.join(", ")
    )))
}
