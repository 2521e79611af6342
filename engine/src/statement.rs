//! One running statement: what it sees and how it writes.
//!
//! Write-write conflicts: under read committed a newer committed version is `Conflict` + 40001,
//! which the caller answers by rolling back to the savepoint before the statement and running it
//! again with a new one; under snapshot the same error goes to the user.
//!
//! Uniqueness: every new key goes into the key index before the check, which gives the rows that
//! were under the key's hash before; the check at the end of the statement looks at those. So of
//! two concurrent writers of one key exactly the later one sees, and waits for, the other.

use crate::catalog::{KeyDef, TableDef};
use crate::redo;
use crate::relaxed::MergedRanges;
use crate::store::{KeyColumns, Store};
use crate::transaction::Transaction;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use parking_lot::Mutex;
use std::sync::Arc;
use strandline_base::{
    ColumnId, CommitTs, Error, ErrorKind, Result, RowId, SqlState, SqlType, Value,
};
use strandline_column::types::{array_of, arrow_type, value_at};
use strandline_index::is_same_key;
use strandline_table::write::{Change, WriteOutcome, Writer, Written};
use strandline_txn::{Isolation, Looks, SnapshotGuard, StartWord, Visibility};

/// What a duplicate key of a row that the statement does not see means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnInvisibleDuplicate {
    /// unique_violation (plain INSERT)
    Violation,
    /// 40001, so that ON CONFLICT runs again with a snapshot that sees the row
    Conflict,
}

/// How a row came to a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NewKey {
    /// it was inserted
    Inserted,
    /// it was updated
    Updated,
    /// it was bulk-loaded: a rollback finds it in the loaded range
    Loaded,
}

/// A key to check at the end of the statement.
pub(crate) struct KeyCheck {
    table: Arc<TableDef>,
    store: Arc<Store>,
    key: usize,
    hash: u64,
    row: RowId,
    /// rows that had an entry under the key's hash before this one
    others: Vec<RowId>,
    on_invisible: OnInvisibleDuplicate,
}

/// One running statement.
pub struct Statement {
    txn: Arc<Transaction>,
    snapshot: SnapshotGuard,
    visibility: Visibility,
    checks: Mutex<Vec<KeyCheck>>,
    /// what scans read instead of the ranges, see `relaxed`
    merged: MergedRanges,
}

/// Sees everything committed, and everything of `own`.
pub(crate) fn newest(own: StartWord) -> Visibility {
    Visibility {
        ts: CommitTs::MAX,
        own,
        statement: u32::MAX,
    }
}

impl Statement {
    pub(crate) fn new(
        txn: Arc<Transaction>,
        snapshot: SnapshotGuard,
        visibility: Visibility,
    ) -> Self {
        Self {
            txn,
            snapshot,
            visibility,
            checks: Mutex::default(),
            merged: MergedRanges::new(),
        }
    }

    /// The same reading `ranges`, which its snapshot sees as they are.
    pub(crate) fn over_merged(self, merged: MergedRanges) -> Self {
        Self { merged, ..self }
    }
    pub(crate) fn merged(&self) -> &MergedRanges {
        &self.merged
    }

    /// Its transaction.
    pub fn transaction(&self) -> &Arc<Transaction> {
        &self.txn
    }
    /// What it sees of others.
    pub fn snapshot_ts(&self) -> CommitTs {
        self.visibility.ts
    }
    pub(crate) fn snapshot_guard(&self) -> &SnapshotGuard {
        &self.snapshot
    }
    pub(crate) fn visibility(&self) -> &Visibility {
        &self.visibility
    }

    /// The store of `table`, with this transaction registered as a writer of it.
    pub(crate) fn writable(&self, table: &Arc<TableDef>) -> Result<(Arc<Store>, Writer)> {
        let store = self.txn.db().store(table.storage)?;
        let word = self.txn.lock_store(&store)?;
        self.check_definition(table)?;
        self.txn.db().check_mergeable(&store)?;
        self.txn.admit_write()?;
        let writer = Writer {
            word,
            statement: self.visibility.statement,
            snapshot: self.visibility.ts,
            speculative: self.txn.options().speculative,
        };
        Ok((store, writer))
    }

    /// The definition may have changed while this statement waited for the table.
    fn check_definition(&self, table: &Arc<TableDef>) -> Result<()> {
        let catalog = self.txn.catalog();
        let same = |c: &crate::catalog::Catalog| {
            c.tables
                .get(&table.id)
                .is_some_and(|t| Arc::ptr_eq(t, table) || t == table)
        };
        if same(&catalog)
            && (Arc::ptr_eq(&catalog, &self.txn.db().catalog())
                || self.txn.has_changed_catalog()
                || same(&self.txn.db().catalog()))
        {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Conflict,
            SqlState::SERIALIZATION_FAILURE,
            format!(
                "the definition of table \"{}\" changed concurrently",
                table.name
            ),
        )
        .with_hint("Retry the transaction."))
    }

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
        let row = store.lineage.insert(values, writer, &mut state.written)?;
        let bytes = state.written.last().map_or(0, Written::memory_bytes);
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
            self.add_key(
                table,
                store,
                at,
                &key_values,
                row,
                conflicts,
                NewKey::Inserted,
            )?;
        }
        Ok(row)
    }

    #[expect(clippy::too_many_arguments, reason = "one call site per kind of write")]
    fn add_key(
        &self,
        table: &Arc<TableDef>,
        store: &Arc<Store>,
        key: usize,
        values: &[Value],
        row: RowId,
        on_invisible: OnInvisibleDuplicate,
        new: NewKey,
    ) -> Result<()> {
        let hash = Store::key_hash(values);
        let mut others = Vec::new();
        if new == NewKey::Updated {
            // Also if it has no key now: it may have left one.
            let index = key_index(store, &table.keys[key].columns)?;
            let moved = &mut self.txn.state.lock().moved;
            moved.enter(&index, hash, row, &mut others);
        }
        let Some(hash) = hash else {
            return Ok(());
        };
        if new != NewKey::Updated {
            let index = key_index(store, &table.keys[key].columns)?;
            index.index.insert(hash, row, &mut others);
            if new == NewKey::Inserted {
                self.txn.state.lock().entries.push((index, hash, row));
            }
        }
        if !others.is_empty() {
            let (table, store) = (table.clone(), store.clone());
            let check = KeyCheck {
                table,
                store,
                key,
                hash,
                row,
                others,
                on_invisible,
            };
            self.checks.lock().push(check);
        }
        Ok(())
    }

    /// Enters a bulk-loaded row's key.
    pub(crate) fn add_bulk_key(
        &self,
        table: &Arc<TableDef>,
        store: &Arc<Store>,
        key: usize,
        values: &[Value],
        row: RowId,
    ) -> Result<()> {
        self.add_key(
            table,
            store,
            key,
            values,
            row,
            OnInvisibleDuplicate::Violation,
            NewKey::Loaded,
        )
    }

    /// Sets `columns` of `rows`; one column of `values` per entry of `columns`, one row per row.
    /// Rows that this transaction has deleted meanwhile are passed over.
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
        let sets = |key: &KeyDef| {
            key.columns
                .iter()
                .any(|c| set.iter().any(|(id, _)| id == c))
        };
        for key in table.keys.iter().filter(|key| sets(key)) {
            key_index(store, &key.columns)?.note_moved();
        }
        if !self.write(table, store, writer, row, Change::Update(set))? {
            return Ok(false);
        }
        for (at, key) in table.keys.iter().enumerate() {
            if sets(key) {
                let mut values = vec![Value::Null; key.columns.len()];
                store
                    .lineage
                    .read(row, &newest(writer.word), &key.columns, &mut values)?;
                let violation = OnInvisibleDuplicate::Violation;
                self.add_key(table, store, at, &values, row, violation, NewKey::Updated)?;
            }
        }
        Ok(true)
    }

    /// Deletes rows. Rows that this transaction has deleted already are passed over.
    pub fn delete(&self, table: &Arc<TableDef>, rows: &[RowId]) -> Result<()> {
        let (store, writer) = self.writable(table)?;
        for &row in rows {
            self.txn.admit_next_write()?;
            self.write(table, &store, &writer, row, Change::Delete)?;
        }
        Ok(())
    }

    /// Writes one change, waiting for whoever is in the way; false if the row is gone.
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
        store.lineage.check_change_bytes(change)?;
        let mut state = self.txn.state.lock();
        state.check_open()?;
        let state = &mut *state;
        let outcome = store
            .lineage
            .write(row, change, writer, &mut state.written)?;
        if let WriteOutcome::Done(bytes) = outcome {
            self.txn.note_write(state, (table.storage, row), bytes);
            redo::put_change(&mut state.redo, table.storage, row, change);
        }
        Ok(outcome)
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

    /// Reads columns of rows by id as this statement sees them (missing ids are left out).
    pub fn fetch(
        &self,
        table: &Arc<TableDef>,
        rows: &[RowId],
        columns: &[ColumnId],
    ) -> Result<RecordBatch> {
        let store = self.txn.db().store(table.storage)?;
        let mut cells: Vec<Vec<Value>> = vec![Vec::with_capacity(rows.len()); columns.len()];
        let mut values = vec![Value::Null; columns.len()];
        for &row in rows {
            if store
                .lineage
                .read(row, &self.visibility, columns, &mut values)?
            {
                for (cells, value) in cells.iter_mut().zip(&mut values) {
                    cells.push(std::mem::replace(value, Value::Null));
                }
            }
        }
        let mut fields = Vec::with_capacity(columns.len());
        let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
        for (&id, cells) in columns.iter().zip(&cells) {
            let column = column_of(table, id)?;
            fields.push(Field::new(
                &column.name,
                arrow_type(column.sql_type),
                !column.not_null,
            ));
            arrays.push(array_of(column.sql_type, cells)?);
        }
        record_batch(
            Schema::new(fields),
            arrays,
            cells.first().map_or(0, Vec::len),
        )
    }

    /// Ends the statement: deferred uniqueness checks.
    pub fn finish(&self) -> Result<()> {
        let checks = std::mem::take(&mut *self.checks.lock());
        for check in &checks {
            self.check_key(check)?;
        }
        Ok(())
    }

    fn check_key(&self, check: &KeyCheck) -> Result<()> {
        let own = self.txn.word()?;
        let columns = &check.table.keys[check.key].columns;
        let lineage = &check.store.lineage;
        let mut mine = vec![Value::Null; columns.len()];
        let mut looks = Looks::default();
        loop {
            if !lineage.read(check.row, &newest(own), columns, &mut mine)?
                || Store::key_hash(&mine) != Some(check.hash)
            {
                return Ok(()); // deleted or changed again since
            }
            let mut waited = false;
            for &other in &check.others {
                let speculative = self.txn.options().speculative;
                if let Some(holder) = lineage.unfinished_writer(other, own, speculative)? {
                    self.txn.wait_for(holder, &mut looks)?;
                    waited = true;
                    break;
                }
                let mut theirs = vec![Value::Null; columns.len()];
                if !lineage.read(other, &newest(own), columns, &mut theirs)? {
                    forget_expired(&check.store, columns, check.hash, other)?;
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
        let lineage = &check.store.lineage;
        let is_visible =
            lineage.read(other, &visibility, columns, &mut seen)? && is_same_key(&seen, key);
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

/// The rows under a key, visible, with exactly this key.
pub(crate) fn find_key(
    store: &Store,
    columns: &[ColumnId],
    values: &[Value],
    visibility: &Visibility,
) -> Result<Option<RowId>> {
    let Some(hash) = Store::key_hash(values) else {
        return Ok(None);
    };
    let index = key_index(store, columns)?;
    let mut rows = Vec::new();
    index.index.lookup(hash, &mut rows);
    let mut found = vec![Value::Null; columns.len()];
    for row in rows {
        if !store.lineage.read(row, visibility, columns, &mut found)? {
            forget_expired(store, columns, hash, row)?;
        } else if is_same_key(&found, values) {
            return Ok(Some(row));
        }
    }
    Ok(None)
}

/// A row that nobody can see any more leaves the index when somebody comes across it, so that a
/// key that is deleted and inserted again and again stays fast.
pub(crate) fn forget_expired(
    store: &Store,
    columns: &[ColumnId],
    hash: u64,
    row: RowId,
) -> Result<()> {
    if store.lineage.has_expired(row)? {
        key_index(store, columns)?.index.remove(hash, row);
    }
    Ok(())
}

pub(crate) fn key_index(store: &Store, columns: &[ColumnId]) -> Result<Arc<KeyColumns>> {
    store
        .key(columns)
        .ok_or_else(|| Error::internal("a key has no index"))
}

pub(crate) fn column_of(table: &TableDef, id: ColumnId) -> Result<&crate::catalog::ColumnDef> {
    table.column_by_id(id).ok_or_else(|| {
        Error::internal(format!(
            "table \"{}\" has no column with id {id}",
            table.name
        ))
    })
}

pub(crate) fn key_types(table: &TableDef, key: usize) -> Result<Vec<SqlType>> {
    table.keys[key]
        .columns
        .iter()
        .map(|c| Ok(column_of(table, *c)?.sql_type))
        .collect()
}

pub(crate) fn record_batch(
    schema: Schema,
    arrays: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(schema), arrays, &options)
        .map_err(|e| Error::internal(format!("building a batch: {e}")))
}

pub(crate) fn write_conflict(table: &TableDef) -> Error {
    Error::new(
        ErrorKind::Conflict,
        SqlState::SERIALIZATION_FAILURE,
        format!(
            "could not serialize access to table \"{}\" due to a concurrent update",
            table.name
        ),
    )
    .with_hint("Retry the transaction.")
}

pub(crate) fn not_null_violation(table: &TableDef, column: &str) -> Error {
    Error::new(
        ErrorKind::Constraint,
        SqlState::NOT_NULL_VIOLATION,
        format!(
            "null value in column \"{column}\" of relation \"{}\" violates not-null constraint",
            table.name
        ),
    )
}

pub(crate) fn unique_violation(table: &TableDef, key: usize, values: &[Value]) -> Result<Error> {
    let def = &table.keys[key];
    let mut names = Vec::new();
    let mut shown = Vec::new();
    for (column, value) in def.columns.iter().zip(values) {
        let column = column_of(table, *column)?;
        names.push(column.name.clone());
        shown.push(crate::display::value_text(column.sql_type, value));
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
