//! The indexes of a storage: one for each PRIMARY KEY or UNIQUE constraint, and one for each
//! secondary index. Both are entered, undone, swept, built and checked in the same way.
//!
//! An entry leads from a key to a row that has, or had, this key: readers look at the row. A hash
//! index of a constraint has no entry for a key with a NULL, unless NULLs are equal; an ordered
//! index has. An index of points or boxes has none: no search by position finds NULL. A partial
//! index has entries of the rows that fulfil its condition.
//!
//! Invariants:
//! 1. A valid index has an entry for every version that is visible at its `complete_since` or later
//!    and fulfils its condition. Reads of older moments scan.
//! 2. An update touches the indexes that read a column which it sets, and no other. A delete and a
//!    merge touch none.
//! 3. Of two transactions that give one key to two rows of a unique index, the one that enters its
//!    entry later sees the other's, waits for it if it is open, and looks again.
//!
//! Protocol of a write: write the record, then enter the key, within the transaction. A rollback,
//! also to a savepoint, removes its new entries before its end is visible to others. Entries that
//! may not be its own stay for the sweep: a build beside it adds no entry that is there, and an
//! index with LIDBlocks does not know which entries are new. A committed
//! update notes the row: the sweep (`maintenance::key_sweep`) compares the row's entries with the
//! versions that may still be asked for. It goes over an index when an eighth of the entries may
//! go, so a hot column keeps its index within 9/8 of what is needed.
//!
//! An update also marks its row before it enters the key: readers take values from the entries of
//! unmarked rows ([`super::moved_rows`], `statement::covered_rows`).
//!
//! Uniqueness is checked at the end of the statement, or before the commit is logged if the
//! constraint is deferred. NULLs are different keys unless the definition says NULLS NOT DISTINCT.
//!
//! Failures: a build that fails or is cancelled removes the definition and the entries; a crash
//! leaves a building definition, which the next open removes. An index that cannot be built at open
//! is unusable: it has no entries, and what needs them fails. A dropped index stays for the
//! snapshots that use an older definition. An expression that fails for a row fails the write, or
//! the build; a version of the past for which it fails has no entry. Expressions and conditions are
//! SQL text in the catalog, evaluated by the `RowExpressions` that the database is opened with.
//!
//! Memory: all indexes take theirs from the cache's share. Above three quarters of that share
//! secondary indexes in memory get no further entries: writes to their tables and builds fail with
//! 53200, reads and deletes go on. Indexes in files have fixed parts.
//!
//! An index in a file (`crate::index_files`) is not built at opening. It may have entries of
//! transactions that were not committed before a crash, and of rows that left a key before the
//! opening. So all its rows count as moved until a sweep has compared every entry with its row.

mod make;

use super::dead_runs::DeadRuns;
use super::key_hints::KeyHints;
use super::key_of_row::KeyOfRow;
use super::key_sweep::KeySweep;
use super::moved_rows::MovedRows;
use super::{Store, TableStore};
use crate::catalog::index::IndexId;
use crate::catalog::index_file::IndexFile;
use crate::catalog::{KeyDef, TableDef};
use crate::index_files::HeldFile;
use std::borrow::Cow;
use std::sync::Arc;
use strandline_base::sync::{AtomicBool, Ordering};
use strandline_base::{ColumnId, CommitTs, Error, Result, RowId, Value};
use strandline_index::{
    AccessMethod, Cursor, Direction, KeyBytes, KeyRange, OrderedKeys, SpatialQuery, TreeFigures,
    is_same_key,
};
use strandline_txn::Visibility;

/// One index of a storage.
pub struct StoredIndex {
    /// the columns that it reads; of an index over nothing but columns its key's parts in order
    pub columns: Vec<ColumnId>,
    /// key → rows that have or had it
    pub index: Arc<dyn AccessMethod>,
    kind: Kind,
    /// no two rows have the same key
    is_unique: bool,
    /// NULLS NOT DISTINCT
    nulls_are_equal: bool,
    /// a row may have, or have had, another key than that of an entry
    moved: AtomicBool,
    /// a build beside writers adds the entries of committed versions
    is_filling: AtomicBool,
    /// entries that may go
    pub(crate) sweep: KeySweep,
    /// the file of an index that is kept
    file: Option<HeldFile>,
}

/// The purpose of an index.
enum Kind {
    /// constraints over its columns; Some: ordered
    Constraint(Option<Box<Ordered>>),
    /// CREATE INDEX
    Secondary(Box<Secondary>),
}

/// The part that only secondary indexes have.
struct Secondary {
    id: IndexId,
    /// None: the values of its columns
    key: Option<KeyOfRow>,
    order: SecondaryOrder,
}

/// The order of a secondary index's entries.
enum SecondaryOrder {
    /// by their keys
    ByKey(Ordered),
    /// none: the keys are points or boxes
    None(MovedRows),
}

/// The part that only ordered indexes have.
struct Ordered {
    /// the encoder of its keys
    keys: OrderedKeys,
    /// rows whose entries say nothing certain about them
    moved_rows: MovedRows,
    /// entries that walks of today leave out
    dead_runs: DeadRuns,
    /// the rows of keys that were looked up
    hints: KeyHints,
}

/// A row's key, encoded for an entry.
#[derive(Clone)]
pub(crate) struct EntryKey {
    pub bytes: KeyBytes,
    /// no other row may have the same one
    pub is_unique: bool,
}

impl StoredIndex {
    /// Whether it has its entries.
    pub fn is_usable(&self) -> bool {
        self.index.failure().is_none()
    }

    fn as_secondary(&self) -> Option<&Secondary> {
        match &self.kind {
            Kind::Constraint(_) => None,
            Kind::Secondary(secondary) => Some(secondary),
        }
    }

    /// The file that has its entries; None: they are in memory.
    pub(crate) fn file(&self) -> Option<IndexFile> {
        self.file.as_ref().map(|file| file.id())
    }

    /// Opened from its file, it has got the entries of all commits that the file may lack.
    pub(crate) fn set_complete(&self) {
        if let Some(file) = &self.file {
            file.set_complete();
        }
    }

    /// Makes the entries durable that neither its file nor the log has.
    ///
    /// # Errors
    /// The device's and the log's: 53100 on a full disk.
    pub(crate) fn store_unlogged(&self) -> Result<()> {
        self.file.as_ref().map_or(Ok(()), HeldFile::store_unlogged)
    }

    /// Whether its entries take memory for as long as they are there.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.file.is_none()
    }

    /// Whether it is in levels, where the entries of many rows cost less at once than in parts.
    pub(crate) fn is_in_levels(&self) -> bool {
        self.file.as_ref().is_some_and(HeldFile::is_in_levels)
    }

    /// The bytes of its file, or of its memory.
    pub(crate) fn bytes(&self) -> u64 {
        let memory = || self.index.memory_bytes() as u64;
        self.file.as_ref().map_or_else(memory, HeldFile::bytes)
    }

    /// Figures of its levels, for which all blocks are read, if it is in levels.
    pub(crate) fn level_figures(&self) -> Option<TreeFigures> {
        self.file.as_ref()?.level_figures()
    }

    /// The names of its files, with what its LIDBlocks have; None: it is in memory.
    pub(crate) fn files_in_words(&self) -> Option<String> {
        let file = self.file.as_ref()?;
        let names: Vec<String> = match file.id() {
            IndexFile::Blocks(_) => file.id().names().collect(),
            IndexFile::Pages(_) | IndexFile::Levels(_) => vec![file.id().name()],
        };
        let names = names.join(", ");
        Some(match file.blocks() {
            Ok(None) => names,
            Ok(Some(blocks)) => format!("{names}: {blocks}"),
            Err(error) => format!("{names}: {}", error.message()),
        })
    }

    /// Verifies the index by itself; appends the damage found, one line each.
    pub(crate) fn check(&self, damage: &mut Vec<String>) -> Result<()> {
        let before = damage.len();
        self.index.check(damage)?;
        if let Some(file) = self.file.as_ref().filter(|_| damage.len() == before) {
            file.check(damage);
        }
        Ok(())
    }

    /// All entries: in the order of their keys, if they have one.
    ///
    /// # Errors
    /// Those of the device; XX000 of a hash index.
    pub(crate) fn entries(&self) -> Result<Box<dyn Cursor + '_>> {
        match self.index.spatial() {
            Some(boxes) => boxes.search(&SpatialQuery::All),
            None => self.index.cursor(&KeyRange::default(), Direction::Forward),
        }
    }

    /// The number of its definition; None: it is a constraint's.
    pub fn id(&self) -> Option<IndexId> {
        self.as_secondary().map(|secondary| secondary.id)
    }

    /// How a row's key is computed, unless it is the values of [`StoredIndex::columns`].
    pub(crate) fn computed(&self) -> Option<&KeyOfRow> {
        self.as_secondary()?.key.as_ref()
    }

    fn order(&self) -> Option<&Ordered> {
        match &self.kind {
            Kind::Constraint(order) => order.as_deref(),
            Kind::Secondary(secondary) => match &secondary.order {
                SecondaryOrder::ByKey(order) => Some(order),
                SecondaryOrder::None(_) => None,
            },
        }
    }

    /// Whether readers may walk over its entries in order.
    pub fn is_ordered(&self) -> bool {
        self.order().is_some()
    }

    /// Whether keys with NULLs have entries.
    pub fn enters_nulls(&self) -> bool {
        self.nulls_are_equal || self.is_ordered()
    }

    /// Whether a constraint's definition makes NULLs equal to each other.
    pub fn nulls_are_equal(&self) -> bool {
        self.nulls_are_equal
    }

    /// Whether no two rows may have the same key.
    pub fn is_unique(&self) -> bool {
        self.is_unique
    }

    /// The keys of an ordered index whose leading parts have these values; None: its entries have
    /// no order.
    pub(crate) fn prefix(&self, leading: &[Value]) -> Option<KeyRange> {
        Some(self.order()?.keys.prefix(leading))
    }

    /// The bytes under which the index holds entries of a key; None: the key has no entry.
    pub fn key_bytes(&self, key: &[Value]) -> Option<KeyBytes> {
        self.has_entry(key).then(|| self.index.encode(key))
    }

    /// Whether a key has an entry.
    #[inline]
    pub fn has_entry(&self, key: &[Value]) -> bool {
        !key.iter().any(Value::is_null) || self.enters_nulls()
    }

    /// As [`StoredIndex::key_bytes`], to be entered.
    pub(crate) fn entry_key(&self, key: &[Value]) -> Option<EntryKey> {
        let has_null = key.iter().any(Value::is_null);
        if has_null && !self.enters_nulls() {
            return None;
        }
        Some(EntryKey {
            bytes: self.index.encode(key),
            is_unique: self.is_unique && (self.nulls_are_equal || !has_null),
        })
    }

    /// Whether no two rows may have this key.
    pub(crate) fn is_unique_key(&self, key: &[Value]) -> bool {
        self.is_unique && (self.nulls_are_equal || !key.iter().any(Value::is_null))
    }

    /// The key of a row whose [`StoredIndex::columns`] have these values; None: it has no entry.
    pub(crate) fn key_of<'a>(&self, columns: &'a [Value]) -> Result<Option<Cow<'a, [Value]>>> {
        let key = match self.computed() {
            None => Some(Cow::Borrowed(columns)),
            Some(computed) => computed.of_row(columns)?.map(Cow::Owned),
        };
        Ok(key.filter(|key| self.has_entry(key)))
    }

    /// The key of `row`; None if it is not visible or has no entry.
    pub(crate) fn key_at(
        &self,
        rows: &impl TableStore,
        row: RowId,
        visibility: &Visibility,
    ) -> Result<Option<Vec<Value>>> {
        let mut values = vec![Value::Null; self.columns.len()];
        if !rows.read(row, visibility, &self.columns, &mut values)? {
            return Ok(None);
        }
        if self.computed().is_none() {
            return Ok(Some(values).filter(|key| self.has_entry(key)));
        }
        Ok(self.key_of(&values)?.map(Cow::into_owned))
    }

    /// Whether two rows with these keys violate uniqueness. `nulls_are_equal`: by the constraint in
    /// question.
    pub(crate) fn are_duplicates(a: &[Value], b: &[Value], nulls_are_equal: bool) -> bool {
        if !nulls_are_equal {
            return is_same_key(a, b);
        }
        let is_same = |(a, b): (&Value, &Value)| {
            (a.is_null() && b.is_null())
                || is_same_key(std::slice::from_ref(a), std::slice::from_ref(b))
        };
        a.len() == b.len() && a.iter().zip(b).all(is_same)
    }

    /// Adds an entry; whether it is new. `others` gets the other rows under a unique key.
    pub(crate) fn enter(
        &self,
        key: &EntryKey,
        row: RowId,
        others: &mut Vec<RowId>,
    ) -> Result<bool> {
        let is_new = match key.is_unique {
            true => self.index.insert(&key.bytes, row, others)?,
            false => self.index.add(&key.bytes, row)?,
        };
        if let Some(order) = self.order() {
            order.dead_runs.entered(&key.bytes, row);
        }
        Ok(is_new)
    }

    /// Runs `enter`, which adds entries of inserted rows whose records have been written. An index
    /// in a file may have such an entry since before a crash, and a sweep may be about to remove
    /// it: no entry is removed meanwhile. In memory an inserted row has no entries before.
    #[inline]
    pub(crate) fn enter_inserted<R>(&self, enter: impl FnOnce() -> R) -> R {
        match self.is_in_memory() {
            true => enter(),
            false => self.sweep.row_keys.enter(enter),
        }
    }

    /// Whether a row may have changed its key since it was inserted.
    pub fn rows_may_have_moved(&self) -> bool {
        self.moved.load(Ordering::Acquire)
    }
    /// A row is about to change its key, or has done so before the index was made.
    pub fn note_moved(&self) {
        self.moved.store(true, Ordering::Release);
    }

    /// A build beside writers begins. Nobody has the index yet.
    pub(crate) fn begin_filling(&self) {
        self.is_filling.store(true, Ordering::Release);
    }
    /// The entries of all committed versions are there.
    pub(crate) fn end_filling(&self) {
        self.is_filling.store(false, Ordering::Release);
    }
    /// Whether entries of committed versions may be missing.
    pub(super) fn is_filling(&self) -> bool {
        self.is_filling.load(Ordering::Acquire)
    }

    /// The index is not maintained from here on.
    fn note_unmaintained(&self) {
        self.note_moved();
        if let Some(moved) = self.moved_rows() {
            moved.mark_all();
        }
    }

    /// This row has changed, or will change, its key; the new key has not been entered yet. Hash
    /// indexes note no rows.
    pub(crate) fn note_moved_row(&self, row: RowId) {
        if let Some(moved) = self.moved_rows() {
            moved.mark(row);
        }
    }

    /// An index's rows that may have several entries; None: it is a hash index.
    pub(crate) fn moved_rows(&self) -> Option<&MovedRows> {
        if let Kind::Secondary(secondary) = &self.kind
            && let SecondaryOrder::None(moved_rows) = &secondary.order
        {
            return Some(moved_rows);
        }
        Some(&self.order()?.moved_rows)
    }

    /// An ordered index's runs of dead entries; None: its entries have no order.
    pub(crate) fn dead_runs(&self) -> Option<&DeadRuns> {
        Some(&self.order()?.dead_runs)
    }

    /// Hints of the rows that keys of a constraint lead to. None: it is deferrable, or has a hash
    /// index, which is as quick.
    pub(crate) fn hints(&self, constraint: &KeyDef) -> Option<&KeyHints> {
        let order = self.order().filter(|_| !constraint.is_deferrable());
        Some(&order?.hints)
    }

    /// The encoder of an ordered index's keys; None: its entries have no order.
    pub(crate) fn ordered_keys(&self) -> Option<&OrderedKeys> {
        Some(&self.order()?.keys)
    }
}

impl Store {
    /// The indexes of constraints.
    pub fn keys(&self) -> arc_swap::Guard<Arc<Vec<Arc<StoredIndex>>>> {
        self.keys.load()
    }

    /// The secondary indexes, dropped ones included until they are removed.
    pub fn secondary(&self) -> arc_swap::Guard<Arc<Vec<Arc<StoredIndex>>>> {
        self.secondary.load()
    }

    /// All indexes.
    pub fn indexes(&self) -> Vec<Arc<StoredIndex>> {
        let mut all = Vec::clone(&self.keys.load());
        all.extend_from_slice(&self.secondary.load());
        all
    }

    /// The index over exactly these columns of a constraint.
    pub fn key(&self, columns: &[ColumnId]) -> Option<Arc<StoredIndex>> {
        let keys = self.keys.load();
        keys.iter().find(|key| key.columns == columns).cloned()
    }

    /// A secondary index; None if it has been dropped.
    pub fn secondary_index(&self, id: IndexId) -> Option<Arc<StoredIndex>> {
        let all = self.secondary.load();
        all.iter().find(|index| index.id() == Some(id)).cloned()
    }

    /// Adds an index, or replaces the one with the same definition. The caller holds the table
    /// exclusively, or no statement uses it yet.
    pub fn put_index(&self, index: Arc<StoredIndex>) {
        let place = match index.id() {
            None => &self.keys,
            Some(_) => &self.secondary,
        };
        let is_replaced = |known: &StoredIndex| match index.id() {
            None => known.columns == index.columns,
            id => known.id() == id,
        };
        place.rcu(|known| {
            let mut indexes = Vec::with_capacity(known.len() + 1);
            for known in known.iter() {
                match is_replaced(known) {
                    // Whoever still holds it is not told any more when a key changes.
                    true => known.note_unmaintained(),
                    false => indexes.push(known.clone()),
                }
            }
            indexes.push(index.clone());
            indexes
        });
    }

    /// Replaces an index by one with the same definition, unless it has been replaced or removed.
    /// Returns whether it was there.
    pub fn replace_index(&self, known: &Arc<StoredIndex>, index: &Arc<StoredIndex>) -> bool {
        let place = match known.id() {
            None => &self.keys,
            Some(_) => &self.secondary,
        };
        // As in `put_index`.
        known.note_unmaintained();
        let before = place.rcu(|all| {
            let each = all.iter().map(|each| match Arc::ptr_eq(each, known) {
                true => index.clone(),
                false => each.clone(),
            });
            each.collect::<Vec<_>>()
        });
        before.iter().any(|each| Arc::ptr_eq(each, known))
    }

    /// Whether an index is there, and has not been replaced or removed.
    pub(crate) fn has_index(&self, index: &Arc<StoredIndex>) -> bool {
        let place = match index.id() {
            None => &self.keys,
            Some(_) => &self.secondary,
        };
        place.load().iter().any(|known| Arc::ptr_eq(known, index))
    }

    /// Removes an index; readers that hold it keep it.
    pub fn remove_index(&self, index: &Arc<StoredIndex>) {
        let place = match index.id() {
            None => &self.keys,
            Some(_) => &self.secondary,
        };
        // As in `put_index`.
        index.note_unmaintained();
        place.rcu(|known| {
            let mut indexes = Vec::clone(known);
            indexes.retain(|known| !Arc::ptr_eq(known, index));
            indexes
        });
    }
}

/// The row with this key that is visible; a key with NULL is no row's.
pub(crate) fn find_key(
    store: &Store,
    index: &StoredIndex,
    key: &[Value],
    visibility: &Visibility,
) -> Result<Option<RowId>> {
    find_duplicate(store, index, (key, false), visibility)
}

/// The row with this key of a constraint, if a hint leads to it and it is visible. None says
/// nothing.
pub(crate) fn hinted_row(
    store: &Store,
    (index, constraint): (&StoredIndex, &KeyDef),
    key: &[Value],
    visibility: &Visibility,
) -> Result<Option<RowId>> {
    let hints = index.hints(constraint);
    let Some(row) = hints.and_then(|hints| hints.get(key)) else {
        return Ok(None);
    };
    let found = index.key_at(store.rows(), row, visibility)?;
    Ok(found.filter(|found| is_same_key(found, key)).map(|_| row))
}

/// The row that is visible and has a key that may not be there twice; `nulls_are_equal`: NULLs
/// included.
pub(crate) fn find_duplicate(
    store: &Store,
    index: &StoredIndex,
    (key, nulls_are_equal): (&[Value], bool),
    visibility: &Visibility,
) -> Result<Option<RowId>> {
    if !nulls_are_equal && key.iter().any(Value::is_null) {
        return Ok(None);
    }
    let Some(bytes) = index.key_bytes(key) else {
        return Ok(None);
    };
    let mut rows = Vec::new();
    index.index.lookup(&bytes, &mut rows)?;
    for row in rows {
        match index.key_at(store.rows(), row, visibility)? {
            Some(found) if StoredIndex::are_duplicates(&found, key, nulls_are_equal) => {
                return Ok(Some(row));
            }
            Some(_) => {}
            None => forget_expired(store, index, &bytes, row)?,
        }
    }
    Ok(None)
}

/// Removes a row that no reader can see any more from the index when a lookup finds it, so that a
/// key that is deleted and inserted repeatedly stays fast.
pub(crate) fn forget_expired(
    store: &Store,
    index: &StoredIndex,
    key: &KeyBytes,
    row: RowId,
) -> Result<()> {
    if store.rows().has_expired(row)? {
        index.index.retire(key, row, CommitTs::ZERO)?;
    }
    Ok(())
}

/// The index of a constraint over exactly these columns.
pub(crate) fn key_index(store: &Store, columns: &[ColumnId]) -> Result<Arc<StoredIndex>> {
    store
        .key(columns)
        .ok_or_else(|| Error::internal("a key has no index"))
}

/// A secondary index that its table's definition has.
pub(crate) fn secondary_index(store: &Store, id: IndexId) -> Result<Arc<StoredIndex>> {
    store
        .secondary_index(id)
        .ok_or_else(|| Error::internal("a secondary index is not there"))
}

/// The index with this number that readers of `table` walk over: a secondary index, or that of an
/// ordered key. None: it has been dropped.
pub(crate) fn find_readable_index(
    store: &Store,
    table: &TableDef,
    id: IndexId,
) -> Option<Arc<StoredIndex>> {
    match table.ordered_key(id) {
        // One that could not be built fails, and says why.
        Some(key) => {
            let index = store.key(&key.columns);
            index.filter(|index| index.is_ordered() || !index.is_usable())
        }
        None => store.secondary_index(id),
    }
}

/// As [`find_readable_index`], of an index that is there.
pub(crate) fn readable_index(
    store: &Store,
    table: &TableDef,
    id: IndexId,
) -> Result<Arc<StoredIndex>> {
    find_readable_index(store, table, id)
        .ok_or_else(|| Error::internal("an index that is read is not there"))
}
