//! Looks at the newest versions of referenced and referencing rows.

use crate::catalog::foreign_keys::{UniqueOver, equal_value};
use crate::catalog::index::ForeignKeyDef;
use crate::catalog::{Catalog, TableDef, column_of};
use crate::store::all_rows::visit_slots;
use crate::store::{
    Store, StoredIndex, TableStore, find_key, forget_expired, key_index, newest, secondary_index,
};
use crate::transaction::Transaction;
use std::sync::Arc;
use strandline_base::{ColumnId, Error, Result, RowId, SqlType, Value};
use strandline_index::{Direction, is_same_key};
use strandline_txn::{Looks, Visibility};

/// Rows that are taken from an index at a time.
const CHUNK_ROWS: usize = 1024;

/// The referenced side of a foreign key, ready to be looked into.
pub(super) struct ParentKey {
    pub table: Arc<TableDef>,
    store: Arc<Store>,
    index: Arc<StoredIndex>,
    /// per column of the referenced key: its place in the foreign key, the type there and its own
    parts: Vec<(usize, SqlType, SqlType)>,
}

impl ParentKey {
    /// That of `key`, a foreign key of `child`.
    pub fn new(
        transaction: &Transaction,
        catalog: &Catalog,
        child: &TableDef,
        key: &ForeignKeyDef,
    ) -> Result<Self> {
        let missing = || Error::internal(format!("foreign key \"{}\" has no parent", key.name));
        let table = catalog.tables.get(&key.parent).ok_or_else(missing)?;
        let store = transaction.db().store(table.storage)?;
        let def = maintained(transaction, table);
        let index = match def.unique_over(&key.parent_columns).ok_or_else(missing)? {
            UniqueOver::Key(at) => key_index(&store, &def.keys[at].columns)?,
            UniqueOver::Index(id) => secondary_index(&store, id)?,
        };
        let columns = &index.columns;
        let mut parts = Vec::with_capacity(columns.len());
        for id in columns {
            let place = key.parent_columns.iter().position(|c| c == id);
            let place = place.ok_or_else(missing)?;
            let from = key.columns.get(place).ok_or_else(missing)?;
            let (from, to) = (column_of(child, *from)?, column_of(table, *id)?);
            parts.push((place, from.sql_type, to.sql_type));
        }
        Ok(Self {
            table: table.clone(),
            index,
            store,
            parts,
        })
    }

    /// The referenced key that equals `values` of the referencing columns; None: there can be none.
    pub fn of_child(&self, values: &[Value]) -> Option<Vec<Value>> {
        let part = |(place, from, to): &(usize, SqlType, SqlType)| {
            equal_value(values.get(*place)?, *from, *to)
        };
        self.parts.iter().map(part).collect()
    }

    /// The referenced key with `values` in the order of the foreign key.
    pub fn of_parent(&self, values: &[Value]) -> Option<Vec<Value>> {
        let parts = self.parts.iter();
        parts
            .map(|(place, ..)| values.get(*place).cloned())
            .collect()
    }

    /// Whether a row has this key. Waits for the unfinished writers whose outcome decides it.
    pub fn is_there(&self, transaction: &Transaction, key: &[Value]) -> Result<bool> {
        let Some(bytes) = self.index.key_bytes(key) else {
            return Ok(false);
        };
        let mut rows = Vec::new();
        self.index.index.lookup(&bytes, &mut rows)?;
        for row in rows {
            let columns = &self.index.columns;
            match has_key(transaction, &self.store, row, columns, key)? {
                RowKey::Same => return Ok(true),
                RowKey::Other => {}
                RowKey::NoRow => forget_expired(&self.store, &self.index, &bytes, row)?,
            }
        }
        Ok(false)
    }

    /// Whether `visibility` sees a row with this key.
    pub fn was_there(&self, key: &[Value], visibility: &Visibility) -> Result<bool> {
        Ok(find_key(&self.store, &self.index, key, visibility)?.is_some())
    }
}

/// The definition whose indexes get the entries of all writers: the newest one, unless the
/// transaction has changed definitions. An index of an older one may have been dropped, or
/// replaced, since the statement began, and lacks what others have written since.
fn maintained(transaction: &Transaction, table: &Arc<TableDef>) -> Arc<TableDef> {
    let newest = transaction.db().catalog();
    let newest = newest
        .tables
        .get(&table.id)
        .filter(|newest| newest.storage == table.storage && !transaction.has_changed_catalog());
    newest.unwrap_or(table).clone()
}

/// The rows of `child` that reference the key `old` (columns in the order of the foreign key).
/// Waits for the unfinished writers whose outcome decides it. With `first` the search ends at the
/// first row.
pub(super) fn referencing_rows(
    transaction: &Transaction,
    child: &Arc<TableDef>,
    (key, parent): (&ForeignKeyDef, &TableDef),
    old: &[Value],
    first: bool,
) -> Result<Vec<RowId>> {
    let mut values = Vec::with_capacity(old.len());
    for ((id, of), value) in key.columns.iter().zip(&key.parent_columns).zip(old) {
        let (to, from) = (column_of(child, *id)?, column_of(parent, *of)?);
        match equal_value(value, from.sql_type, to.sql_type) {
            Some(value) => values.push(value),
            None => return Ok(Vec::new()), // no value of the referencing column equals it
        }
    }
    let store = transaction.db().store(child.storage)?;
    let mut found = Vec::new();
    let mut look = |row| {
        if first && !found.is_empty() {
            return Ok(());
        }
        if has_key(transaction, &store, row, &key.columns, &values)? == RowKey::Same {
            found.push(row);
        }
        Ok(())
    };
    match candidates(&maintained(transaction, child), &store, key, &values)? {
        Some(rows) => rows.into_iter().try_for_each(&mut look)?,
        None => visit_slots(&store, &mut look)?,
    }
    Ok(found)
}

/// The rows that an index of `child` has under the values of the referencing columns; None: no
/// index serves.
fn candidates(
    child: &TableDef,
    store: &Store,
    key: &ForeignKeyDef,
    values: &[Value],
) -> Result<Option<Vec<RowId>>> {
    let index = match child.index_over(&key.columns) {
        Some(UniqueOver::Key(at)) => key_index(store, &child.keys[at].columns)?,
        Some(UniqueOver::Index(id)) => match store.secondary_index(id) {
            Some(index) => index,
            None => return Ok(None),
        },
        None => return Ok(None),
    };
    if !index.is_usable() {
        return Ok(None);
    }
    let place = |id: &ColumnId| key.columns.iter().position(|c| c == id);
    let places = index.columns.iter().map_while(place);
    let ordered: Vec<Value> = places.filter_map(|at| values.get(at).cloned()).collect();
    let mut rows = Vec::new();
    match index.prefix(&ordered) {
        Some(range) => {
            let mut cursor = index.index.cursor(&range, Direction::Forward)?;
            while cursor.next_rows(CHUNK_ROWS, &mut rows)? {}
        }
        None => {
            if let Some(bytes) = index.key_bytes(&ordered) {
                index.index.lookup(&bytes, &mut rows)?;
            }
        }
    }
    rows.sort_unstable();
    rows.dedup();
    Ok(Some(rows))
}

/// A row's values in several columns.
#[derive(PartialEq)]
enum RowKey {
    /// the values asked for
    Same,
    /// others
    Other,
    /// the row is gone
    NoRow,
}

/// Whether the newest version of `row` has `key` in `columns`. Changes of this transaction count.
/// An uncommitted change of another transaction is waited for only if its outcome changes the
/// answer.
fn has_key(
    transaction: &Transaction,
    store: &Store,
    row: RowId,
    columns: &[ColumnId],
    key: &[Value],
) -> Result<RowKey> {
    let own = transaction.word()?;
    let speculative = transaction.options().speculative;
    let stored = store.rows();
    let mut values = vec![Value::Null; columns.len()];
    let mut seen_by = |word| {
        Ok::<_, Error>(
            match stored.read(row, &newest(word), columns, &mut values)? {
                false => RowKey::NoRow,
                true if is_same_key(&values, key) => RowKey::Same,
                true => RowKey::Other,
            },
        )
    };
    let mut looks = Looks::default();
    loop {
        // First the writer: one that comes later looks itself, after its write.
        let writer = stored.unfinished_writer(row, own, speculative)?;
        let committed = seen_by(own)?;
        let Some(writer) = writer else {
            return Ok(committed);
        };
        let with_writer = seen_by(writer)?;
        if (with_writer == RowKey::Same) == (committed == RowKey::Same) {
            return Ok(match committed {
                RowKey::NoRow => RowKey::Other, // it may come
                known => known,
            });
        }
        transaction.wait_for(writer, &mut looks)?;
    }
}
