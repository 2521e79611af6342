//! Keys of a statement's rows: lookups, and uniqueness.
//!
//! Every new key is entered into the key index before the check. Entering returns the rows that had
//! the key's bytes already; the check at the end of the statement examines these rows. So of two
//! concurrent writers of one key exactly the later one sees the other, and waits for it.

use super::write_target::WriteTarget;
use super::{OnInvisibleDuplicate, Statement, write_conflict};
use crate::catalog::index::IndexId;
use crate::catalog::{TableDef, column_of};
use crate::db::backpressure::SMALL_BYTES;
use crate::db::memory_account::HeldBytes;
use crate::store::TableStore;
use crate::store::{
    Store, StoredIndex, find_duplicate, forget_expired, key_index, newest, secondary_index,
};
use crate::transaction::Transaction;
use crate::transaction::deferred::DeferredCheck;
use crate::transaction::index_build::{index_parts, key_text};
use arrow_array::{ArrayRef, RecordBatch};
use std::sync::Arc;
use strandline_base::{
    ColumnId, Error, ErrorKind, Result, RowId, SqlState, SqlType, TableId, Value,
};
use strandline_column::types::value_at;
use strandline_index::KeyBytes;
use strandline_txn::{Isolation, Looks, Visibility};

/// How a row came to a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NewKey {
    /// it was inserted
    Inserted,
    /// it was updated
    Updated,
}

/// The constraint or index that makes a key unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uniqueness {
    /// a constraint; indexes `TableDef::keys`
    Key(usize),
    /// a secondary index; indexes `TableDef::indexes`
    Index(usize),
}

/// An index that a statement enters rows into.
pub(super) struct EntryPlace<'a> {
    pub target: &'a WriteTarget<'a>,
    pub index: &'a Arc<StoredIndex>,
    pub uniqueness: Uniqueness,
    pub on_invisible: OnInvisibleDuplicate,
}

/// A key to check at the end of the statement, or later if its constraint is deferred.
pub(crate) struct KeyCheck {
    pub table: Arc<TableDef>,
    pub store: Arc<Store>,
    pub index: Arc<StoredIndex>,
    pub uniqueness: Uniqueness,
    pub bytes: KeyBytes,
    pub row: RowId,
    /// rows that had an entry under these bytes before this one
    pub others: Vec<RowId>,
    pub on_invisible: OnInvisibleDuplicate,
}

impl Statement {
    /// Enters a row's key; None: it has no entry.
    pub(super) fn enter_key(
        &self,
        place: EntryPlace<'_>,
        key: Option<&[Value]>,
        row: RowId,
        new: NewKey,
    ) -> Result<()> {
        let index = place.index;
        let target = place.target;
        let entry = key.and_then(|key| index.entry_key(key));
        let mut others = Vec::new();
        match (new, entry) {
            // Also if it has no key now: it may have left one.
            (NewKey::Updated, entry) => {
                let mut state = self.txn.state.lock();
                let moved = &mut state.rare_work().moved;
                moved.enter(index, entry, row, &mut others)?;
            }
            (NewKey::Inserted, Some(entry)) => {
                index.enter_inserted(|| index.enter(&entry, row, &mut others))?;
                let mut state = self.txn.state.lock();
                state.entries.push(index, entry.bytes, row);
            }
            (NewKey::Inserted, None) => {}
        }
        if let Some(key) = key.filter(|_| !others.is_empty()) {
            self.check_later(KeyCheck {
                table: target.table.clone(),
                store: target.store.clone(),
                bytes: index.index.encode(key),
                index: index.clone(),
                uniqueness: place.uniqueness,
                row,
                others,
                on_invisible: place.on_invisible,
            })?;
        }
        Ok(())
    }

    /// Enters an inserted row, whose `values` are by column id, into the table's indexes.
    pub(super) fn enter_inserted(
        &self,
        target: &WriteTarget<'_>,
        values: &[Value],
        row: RowId,
        on_invisible: OnInvisibleDuplicate,
    ) -> Result<()> {
        let indexes = target.indexes()?;
        let place = |index, uniqueness| EntryPlace {
            target,
            index,
            uniqueness,
            on_invisible,
        };
        for (at, index) in indexes.keys.iter().enumerate() {
            let place = place(index, Uniqueness::Key(at));
            target.with_columns(&index.columns, values, |key| {
                self.enter_key(place, Some(key), row, NewKey::Inserted)
            })?;
        }
        if indexes.secondary.is_empty() {
            return Ok(());
        }
        if indexes.secondary.iter().any(|index| index.is_in_memory()) {
            self.txn.db().check_index_memory()?;
        }
        for (at, index) in indexes.secondary.iter().enumerate() {
            let place = place(index, Uniqueness::Index(at));
            target.with_columns(&index.columns, values, |columns| {
                let key = index.key_of(columns)?;
                self.enter_key(place, key.as_deref(), row, NewKey::Inserted)
            })?;
        }
        Ok(())
    }

    /// Enters an updated row, whose record has been written, into the secondary indexes that read a
    /// column of `changed`: the columns of `set` whose value differs from the one before.
    pub(super) fn enter_updated(
        &self,
        target: &WriteTarget<'_>,
        row: RowId,
        (set, changed): (&[(ColumnId, Value)], &[ColumnId]),
    ) -> Result<()> {
        let value_of = |id: &ColumnId| set.iter().find(|(set, _)| set == id);
        let mut columns = Vec::new();
        for (at, index) in target.indexes()?.secondary.iter().enumerate() {
            if !index.columns.iter().any(|id| changed.contains(id)) {
                continue;
            }
            if index.is_in_memory() {
                self.txn.db().check_index_memory()?;
            }
            columns.clear();
            let known = index.columns.iter().map_while(value_of);
            columns.extend(known.map(|(_, value)| value.clone()));
            if columns.len() < index.columns.len() {
                columns.clear();
                columns.resize(index.columns.len(), Value::Null);
                let (stored, own) = (target.store.rows(), target.writer.word);
                stored.read(row, &newest(own), &index.columns, &mut columns)?;
            }
            let place = EntryPlace {
                target,
                index,
                uniqueness: Uniqueness::Index(at),
                on_invisible: OnInvisibleDuplicate::Violation,
            };
            let key = index.key_of(&columns)?;
            self.enter_key(place, key.as_deref(), row, NewKey::Updated)?;
        }
        Ok(())
    }

    /// Has `finish` check a key that has been entered.
    ///
    /// # Errors
    /// 53200 if open transactions keep too much and this one is to give way.
    pub(super) fn check_later(&self, check: KeyCheck) -> Result<()> {
        self.checks.lock().push(check, &self.txn)
    }

    /// The same for keys that another thread has entered for this statement.
    pub(super) fn check_all_later(&self, entered: KeyChecks) -> Result<()> {
        let KeyChecks { list, held, .. } = entered;
        drop(held); // counted from here on with those of the statement
        let mut checks = self.checks.lock();
        for check in list {
            checks.push(check, &self.txn)?;
        }
        Ok(())
    }

    /// Checks the keys that the statement has entered, or defers that.
    pub(super) fn check_keys(&self) -> Result<()> {
        let mut checks = std::mem::take(&mut *self.checks.lock());
        for check in std::mem::take(&mut checks.list) {
            match check.is_deferred(&self.txn) {
                true => {
                    checks.hand_over(&check);
                    self.txn.defer(check.deferred(self.visibility))?;
                }
                false => check.run(&self.txn, &self.visibility)?,
            }
        }
        Ok(())
    }

    /// For each row of `keys` (columns in the order of the key's definition) the row of `table`
    /// visible to this statement (own inserts of this very statement included) that has this key.
    /// `key` indexes `TableDef::keys`. NULL in a key: None, unless NULLs are not distinct.
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
        let index = key_index(&store, &table.keys[key].columns)?;
        (0..keys.num_rows())
            .map(|row| {
                let values: Vec<Value> = types
                    .iter()
                    .enumerate()
                    .map(|(i, t)| value_at(*t, keys.column(i), row))
                    .collect();
                self.txn.note_key(table, &store, &index, &values);
                let wanted = (values.as_slice(), table.keys[key].nulls_not_distinct);
                find_duplicate(&store, &index, wanted, &visibility)
            })
            .collect()
    }

    /// For each of `rows` (columns as in `TableDef::columns`) the row of `table` visible to this
    /// statement (own inserts of this very statement included) that has its key in a unique
    /// secondary index; None for a row that has no entry there.
    pub fn find_by_index(
        &self,
        table: &Arc<TableDef>,
        index: IndexId,
        rows: &RecordBatch,
    ) -> Result<Vec<Option<RowId>>> {
        let store = self.txn.db().store(table.storage)?;
        let index = secondary_index(&store, index)?;
        let own = self.txn.word()?;
        let visibility = Visibility {
            own,
            statement: u32::MAX,
            ..self.visibility
        };
        let mut columns = Vec::with_capacity(index.columns.len());
        for id in &index.columns {
            let at = table.position(*id);
            let at = at.ok_or_else(|| Error::internal("a column of an index is missing"))?;
            columns.push((table.columns[at].sql_type, rows.column(at).clone()));
        }
        let mut found = Vec::with_capacity(rows.num_rows());
        for row in 0..rows.num_rows() {
            let value = |(sql_type, array): &(SqlType, ArrayRef)| value_at(*sql_type, array, row);
            let values: Vec<Value> = columns.iter().map(value).collect();
            found.push(match index.key_of(&values)? {
                Some(key) => {
                    self.txn.note_key(table, &store, &index, &key);
                    let wanted = (&*key, index.nulls_are_equal());
                    find_duplicate(&store, &index, wanted, &visibility)?
                }
                None => None,
            });
        }
        Ok(found)
    }
}

/// The keys that a statement has to check at its end. Once they are many, they are counted among
/// what its transaction keeps.
#[derive(Default)]
pub(super) struct KeyChecks {
    list: Vec<KeyCheck>,
    /// bytes that the checks keep beside the list
    heap: usize,
    /// None: they are few
    held: Option<HeldBytes>,
}

impl KeyChecks {
    pub fn push(&mut self, check: KeyCheck, txn: &Transaction) -> Result<()> {
        self.heap += check.heap_bytes();
        self.list.push(check);
        let bytes = self.list.capacity() * size_of::<KeyCheck>() + self.heap;
        match bytes < SMALL_BYTES {
            true => Ok(()),
            false => txn.hold_checks(&mut self.held, bytes),
        }
    }

    /// The transaction counts `check` itself from now on.
    fn hand_over(&mut self, check: &KeyCheck) {
        if let Some(held) = &mut self.held {
            let bytes = size_of::<KeyCheck>() + check.heap_bytes();
            held.set(held.bytes().saturating_sub(bytes));
        }
    }
}

impl KeyCheck {
    /// Bytes that it keeps beside itself.
    fn heap_bytes(&self) -> usize {
        self.bytes.heap_bytes() + self.others.capacity() * size_of::<RowId>()
    }

    /// Waits for unfinished writers of the key; an error if another row has it. `visibility`: of
    /// the statement that has entered it.
    pub fn run(&self, txn: &Transaction, visibility: &Visibility) -> Result<()> {
        let own = txn.word()?;
        let (stored, index) = (self.store.rows(), &self.index);
        let nulls_are_equal = self.nulls_are_equal();
        let mut looks = Looks::default();
        loop {
            let mine = match index.key_at(stored, self.row, &newest(own))? {
                Some(mine) if index.key_bytes(&mine).as_ref() == Some(&self.bytes) => mine,
                _ => return Ok(()), // deleted or changed again since
            };
            let mut waited = false;
            for &other in &self.others {
                let speculative = txn.options().speculative;
                if let Some(holder) = stored.unfinished_writer(other, own, speculative)? {
                    txn.wait_for(holder, &mut looks)?;
                    waited = true;
                    break;
                }
                match index.key_at(stored, other, &newest(own))? {
                    None => forget_expired(&self.store, index, &self.bytes, other)?,
                    Some(theirs) => {
                        if StoredIndex::are_duplicates(&theirs, &mine, nulls_are_equal) {
                            return Err(self.duplicate(txn, visibility, other, &mine)?);
                        }
                    }
                }
            }
            if !waited {
                return Ok(());
            }
        }
    }

    /// Whether its constraint is checked before the commit only.
    pub fn is_deferred(&self, txn: &Transaction) -> bool {
        match self.uniqueness {
            Uniqueness::Key(at) => {
                let def = &self.table.keys[at];
                txn.is_deferred(self.table.id, &def.name, def.timing)
            }
            Uniqueness::Index(_) => false,
        }
    }

    /// To be run before the commit. `visibility`: of the statement that has entered the key.
    pub fn deferred(self, visibility: Visibility) -> Box<dyn DeferredCheck> {
        Box::new(DeferredKeyCheck {
            check: self,
            visibility,
        })
    }

    fn nulls_are_equal(&self) -> bool {
        match self.uniqueness {
            Uniqueness::Key(at) => self.table.keys[at].nulls_not_distinct,
            Uniqueness::Index(at) => self.table.indexes[at].nulls_not_distinct,
        }
    }

    fn duplicate(
        &self,
        txn: &Transaction,
        visibility: &Visibility,
        other: RowId,
        key: &[Value],
    ) -> Result<Error> {
        let visibility = Visibility {
            own: txn.word()?,
            statement: u32::MAX,
            ..*visibility
        };
        let seen = self.index.key_at(self.store.rows(), other, &visibility)?;
        let nulls_are_equal = self.nulls_are_equal();
        let is_visible =
            seen.is_some_and(|seen| StoredIndex::are_duplicates(&seen, key, nulls_are_equal));
        // A serializable transaction would have seen the row, had it run after the other one.
        let is_serializable = txn.options().isolation == Isolation::Serializable;
        let is_conflict = self.on_invisible == OnInvisibleDuplicate::Conflict || is_serializable;
        if !is_visible && is_conflict {
            return Ok(write_conflict(&self.table));
        }
        // That the key is there is something the transaction has read.
        txn.note_key(&self.table, &self.store, &self.index, key);
        unique_violation(&self.table, self.uniqueness, key)
    }
}

/// A check of a key whose constraint is deferred.
struct DeferredKeyCheck {
    check: KeyCheck,
    visibility: Visibility,
}

impl DeferredCheck for DeferredKeyCheck {
    fn constraint(&self) -> (TableId, &str) {
        let table = &self.check.table;
        let name = match self.check.uniqueness {
            Uniqueness::Key(at) => &table.keys[at].name,
            Uniqueness::Index(at) => &table.indexes[at].name,
        };
        (table.id, name)
    }

    fn table(&self) -> TableId {
        self.check.table.id
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.check.heap_bytes()
    }

    fn run(&self, transaction: &Transaction) -> Result<()> {
        self.check.run(transaction, &self.visibility)
    }
}

pub(crate) fn key_types(table: &TableDef, key: usize) -> Result<Vec<SqlType>> {
    table.keys[key]
        .columns
        .iter()
        .map(|c| Ok(column_of(table, *c)?.sql_type))
        .collect()
}

pub(crate) fn unique_violation(
    table: &TableDef,
    uniqueness: Uniqueness,
    key: &[Value],
) -> Result<Error> {
    let (name, parts) = match uniqueness {
        Uniqueness::Key(at) => {
            let def = &table.keys[at];
            let mut parts = Vec::with_capacity(def.columns.len());
            for id in &def.columns {
                let column = column_of(table, *id)?;
                parts.push((column.name.as_str(), column.sql_type));
            }
            (&def.name, parts)
        }
        Uniqueness::Index(at) => {
            let def = &table.indexes[at];
            (&def.name, index_parts(table, def)?)
        }
    };
    Ok(Error::new(
        ErrorKind::Constraint,
        SqlState::UNIQUE_VIOLATION,
        format!(
            "duplicate key value violates unique constraint \"{name}\" of table \"{}\"",
            table.name
        ),
    )
    .with_subject(table.constraint_subject(name))
    .with_detail(format!("Key {} already exists.", key_text(&parts, key))))
}
