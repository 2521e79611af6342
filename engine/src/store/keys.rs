//! The key indexes of a storage: one for each PRIMARY KEY or UNIQUE constraint.

use super::key_sweep::KeySweep;
use super::{Store, TableStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline_base::{ColumnId, CommitTs, Error, Result, RowId, Value};
use strandline_index::{AccessMethod, KeyBytes, MemoryIndex, is_same_key};
use strandline_txn::Visibility;

/// The index of one PRIMARY KEY or UNIQUE constraint.
pub struct KeyColumns {
    /// the key's columns in order
    pub columns: Vec<ColumnId>,
    /// key → rows that have or had it
    pub index: Arc<dyn AccessMethod>,
    /// a row may have, or have had, another key than that of an entry
    moved: AtomicBool,
    /// entries that may go
    pub(crate) sweep: KeySweep,
}

impl KeyColumns {
    /// What its index holds entries of a key under; None if a part is NULL (NULLs are distinct, and
    /// have no entry).
    pub fn key_bytes(&self, values: &[Value]) -> Option<KeyBytes> {
        (!values.iter().any(Value::is_null)).then(|| self.index.encode(values))
    }
    /// Whether some row may have changed its key since it was inserted.
    pub fn rows_may_have_moved(&self) -> bool {
        self.moved.load(Ordering::Acquire)
    }
    /// A row is about to change its key, or has done so before the index was made.
    pub fn note_moved(&self) {
        self.moved.store(true, Ordering::Release);
    }
}

impl Store {
    /// An index with nothing in it. Its memory is taken from the cache's.
    pub fn empty_key(&self, columns: Vec<ColumnId>) -> Arc<KeyColumns> {
        let memory = self.lineage.pool().taken_bytes().clone();
        Arc::new(KeyColumns {
            columns,
            index: Arc::new(MemoryIndex::counted(memory)),
            moved: AtomicBool::new(false),
            sweep: KeySweep::default(),
        })
    }

    /// The indexes.
    pub fn keys(&self) -> arc_swap::Guard<Arc<Vec<Arc<KeyColumns>>>> {
        self.keys.load()
    }

    /// The index over exactly these columns.
    pub fn key(&self, columns: &[ColumnId]) -> Option<Arc<KeyColumns>> {
        self.keys
            .load()
            .iter()
            .find(|k| k.columns == columns)
            .cloned()
    }

    /// Adds an index, filled.
    pub fn put_key(&self, key: Arc<KeyColumns>) {
        let mut keys = Vec::clone(&self.keys.load());
        // Whoever still holds one that is replaced is not told any more when a key changes.
        for replaced in keys.extract_if(.., |k| k.columns == key.columns) {
            replaced.note_moved();
        }
        keys.push(key);
        self.keys.store(Arc::new(keys));
    }
}

/// The rows under a key, visible, with exactly this key.
pub(crate) fn find_key(
    store: &Store,
    columns: &[ColumnId],
    values: &[Value],
    visibility: &Visibility,
) -> Result<Option<RowId>> {
    let index = key_index(store, columns)?;
    let Some(key) = index.key_bytes(values) else {
        return Ok(None);
    };
    let mut rows = Vec::new();
    index.index.lookup(&key, &mut rows)?;
    let mut found = vec![Value::Null; columns.len()];
    for row in rows {
        if !store.rows().read(row, visibility, columns, &mut found)? {
            forget_expired(store, &index, &key, row)?;
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
    index: &KeyColumns,
    key: &KeyBytes,
    row: RowId,
) -> Result<()> {
    if store.rows().has_expired(row)? {
        index.index.retire(key, row, CommitTs::ZERO)?;
    }
    Ok(())
}

pub(crate) fn key_index(store: &Store, columns: &[ColumnId]) -> Result<Arc<KeyColumns>> {
    store
        .key(columns)
        .ok_or_else(|| Error::internal("a key has no index"))
}
