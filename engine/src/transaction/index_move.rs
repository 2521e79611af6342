//! Moves of indexes from memory into levels.
//!
//! An index of the default storage is in memory, where it is quickest. When all of these have more
//! than their share ([`Settings::memory_index_bytes`]), the largest moves into the levels of a
//! file, which take a fixed part of memory: before secondary indexes would refuse entries, and keys
//! would take the memory of everything else. It stays there. An index that was asked to be in
//! memory (`storage = 'memory'`, `key_index`) never moves.
//!
//! Protocol: a move is the build of a second index beside writers ([`super::index_build`]), whose
//! last transaction puts it in the place of the first. The second one of a key is not unique: the
//! first one refuses duplicates until then. A key's index takes over the entries of the second one
//! under the lock of the table, as those of a file of which nothing is known; the key sweep
//! compares them with the rows. No sweep goes over the second index from the last transaction on,
//! since the key's own would not know of it.
//!
//! Invariants:
//! 1. At any moment the definition in force has an index with all entries that it must have.
//! 2. A move waits for a definition's lock [`LOCK_WAIT_MAX`] at a time at most. Writers wait no
//!    longer for a move than that and one of its two short transactions, which sync the new file.
//! 3. A move that fails, or finds its table locked too often, leaves the first index as it is. Its
//!    table's moves are set aside, and tried again after growing pauses; others go on.
//!
//! Memory: the build puts what it has gathered into the file as soon as indexes have half of what
//! they may take. Until the move has ended, indexes in memory may take all of the cache's share.
//!
//! A thread of its own does the moves, since one lasts as long as CREATE INDEX. It ends with the
//! last move that is due, when the database is closed, and when nothing else holds the database. A
//! crash leaves the second definition as that of a build; the next opening removes it.
//!
//! [`Settings::memory_index_bytes`]: crate::Settings::memory_index_bytes

use super::index_build::{FilledIndex, is_in_the_way};
use crate::catalog::index::{IndexDef, IndexId, IndexMethod, IndexState, IndexStorage};
use crate::catalog::{Catalog, KeyDef, TableDef};
use crate::db::Db;
use crate::db::set_aside::Work;
use crate::settings::TxnOptions;
use crate::store::{Store, StoredIndex};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strandline_base::{ColumnId, Error, ErrorKind, Result, SqlState, SqlType, StorageId, TableId};

/// How long a move waits for other transactions at first, and at most: twice as long each time.
const LOCK_WAIT: Duration = Duration::from_millis(100);
const LOCK_WAIT_MAX: Duration = Duration::from_secs(2);
/// The pause between two such waits.
const LOCK_PAUSE: Duration = Duration::from_secs(1);
/// Such waits before the table's moves are set aside, at the beginning of a move and at its end.
const BEGIN_TRIES: usize = 10;
const END_TRIES: usize = 300;
/// An index with less than this part of the share of all does not move.
const LEAST_PART: usize = 32;

/// An index that may move.
struct Movable {
    table: TableId,
    /// for the log
    name: String,
    place: Place,
    store: Arc<Store>,
    bytes: usize,
}

/// The definition of an index that may move.
enum Place {
    /// that of the key over these columns
    Key(Vec<ColumnId>),
    Secondary(IndexId),
}

impl Db {
    /// Moves indexes from memory into levels as long as they have more than their share, the
    /// largest first. Returns how many have been moved. Without background threads nothing else
    /// does so.
    pub fn move_indexes(self: &Arc<Self>) -> u64 {
        let before = self.index_moves.moved.load(Ordering::Relaxed);
        while let Some(index) = self.next_index_move() {
            let outcome = self.move_index(&index);
            if outcome.is_err() && self.are_moves_over() {
                break;
            }
            if outcome.is_ok() {
                self.index_moves.moved.fetch_add(1, Ordering::Relaxed);
                tracing::info!(
                    table = self.table_name(index.store.id()),
                    index = index.name,
                    bytes = index.bytes,
                    "indexes in memory take more than their share: one has moved into levels"
                );
            }
            let outcome = outcome.as_ref().map(|_| ());
            self.note_work(&index.store, Work::MoveIndexes, outcome);
        }
        self.index_moves.moved.load(Ordering::Relaxed) - before
    }

    /// Whether a move is due.
    pub(crate) fn has_due_index_move(&self) -> bool {
        self.next_index_move().is_some()
    }

    fn are_moves_over(&self) -> bool {
        self.index_moves.is_cancelled() || self.maintenance.closed.load(Ordering::Acquire)
    }

    /// The next index to move, if indexes in memory have more than their share.
    fn next_index_move(&self) -> Option<Movable> {
        let limit = self.settings.memory_index_bytes();
        let taken = self.shared.pool.taken_bytes().load(Ordering::Relaxed);
        let may_write = !self.settings.only_looks && !self.has_given_up_reserve();
        if taken <= limit || !may_write || self.are_moves_over() {
            return None;
        }
        let catalog = self.catalog();
        let (mut all, mut movable) = (0, Vec::new());
        for table in catalog.tables.values() {
            let Ok(store) = self.store(table.storage) else {
                continue;
            };
            let is_pausing = self
                .pausing_failure(&store, Work::MoveIndexes, false)
                .is_some();
            for (bytes, place) in indexes_of(table, &store) {
                all += bytes;
                let place = place.filter(|_| !is_pausing && bytes >= limit / LEAST_PART);
                movable.extend(place.map(|(place, name)| Movable {
                    table: table.id,
                    name,
                    place,
                    store: store.clone(),
                    bytes,
                }));
            }
        }
        let largest = movable.into_iter().max_by_key(|index| index.bytes);
        largest.filter(|_| all > limit)
    }

    fn move_index(self: &Arc<Self>, index: &Movable) -> Result<()> {
        let options = TxnOptions {
            cancel: self.index_moves.cancel.clone(),
            ..TxnOptions::default()
        };
        let begin = |options: &_| self.begin_index(options, &mut |catalog| index.define(catalog));
        let place = self.patiently(BEGIN_TRIES, &options, begin)?;
        let filled = self.fill_defined_index(&options, place);
        let moved = filled.and_then(|filled| self.put_in_place(&options, index, &filled));
        // The opening of a database that has been closed meanwhile does this.
        if moved.is_err() && !self.maintenance.closed.load(Ordering::Acquire) {
            self.remove_unfinished(place);
        }
        moved
    }

    /// The last transaction of a move.
    fn put_in_place(
        self: &Arc<Self>,
        options: &TxnOptions,
        index: &Movable,
        filled: &FilledIndex,
    ) -> Result<()> {
        let _no_sweep = filled.index.sweep.done.lock();
        let mut change = |catalog: &mut Catalog| index.replace(catalog, filled);
        let finish = |options: &_| self.finish_index(options, filled, &mut change);
        self.patiently(END_TRIES, options, finish)?;
        if matches!(index.place, Place::Key(_)) {
            // The key's own index has its entries. No reader has ever used it.
            filled.store.remove_index(&filled.index);
        }
        Ok(())
    }

    /// Tries a change of definitions so often while another transaction is in the way.
    fn patiently<T>(
        &self,
        tries: usize,
        options: &TxnOptions,
        mut change: impl FnMut(&TxnOptions) -> Result<T>,
    ) -> Result<T> {
        let (mut wait, mut tried) = (LOCK_WAIT, 0);
        loop {
            tried += 1;
            let options = TxnOptions {
                lock_timeout: Some(wait),
                ..options.clone()
            };
            match change(&options) {
                Err(error) if is_in_the_way(&error) && tried < tries && !self.are_moves_over() => {
                    self.index_moves.pause(LOCK_PAUSE);
                    wait = (wait * 2).min(LOCK_WAIT_MAX);
                }
                outcome => return outcome,
            }
        }
    }

    /// Whether a table has an index that may move.
    pub(crate) fn has_movable_index(&self, store: &Store) -> bool {
        let catalog = self.catalog();
        let mut tables = catalog.tables.values();
        let table = tables.find(|table| table.storage == store.id());
        table.is_some_and(|table| indexes_of(table, store).any(|(_, place)| place.is_some()))
    }
}

/// The memory of each index in memory of a table, and whether it may move.
fn indexes_of(
    table: &TableDef,
    store: &Store,
) -> impl Iterator<Item = (usize, Option<(Place, String)>)> {
    let keys = table.keys.iter().map(|key| of_key(table, key, store));
    let secondary = table.indexes.iter().map(|def| of_index(def, store));
    keys.chain(secondary).flatten()
}

/// The memory of a key's index, if it is in memory, and whether it may move.
fn of_key(
    table: &TableDef,
    key: &KeyDef,
    store: &Store,
) -> Option<(usize, Option<(Place, String)>)> {
    let index = store.key(&key.columns)?;
    let bytes = memory_of(&index)?;
    let mut same = table.keys.iter().filter(|k| k.columns == key.columns);
    let first = same.next()?;
    if first.name != key.name {
        return None; // that of another key, too
    }
    let is_only = same.next().is_none();
    let may_move = is_only && is_default(table, key) && has_order(table, key);
    let place = may_move.then(|| (Place::Key(key.columns.clone()), key.name.clone()));
    Some((bytes, place))
}

/// Whether nobody has asked for the key's index in memory.
fn is_default(table: &TableDef, key: &KeyDef) -> bool {
    table.key_index.is_none() && !key.stays_in_memory
}

/// Whether all columns of a key have an order.
fn has_order(table: &TableDef, key: &KeyDef) -> bool {
    let mut columns = key.columns.iter().map(|id| table.column_by_id(*id));
    columns.all(|column| column.is_some_and(|column| column.sql_type != SqlType::Json))
}

/// The same of a secondary index.
fn of_index(def: &IndexDef, store: &Store) -> Option<(usize, Option<(Place, String)>)> {
    let index = store.secondary_index(def.id)?;
    let bytes = memory_of(&index)?;
    let place = may_move(def).then(|| (Place::Secondary(def.id), def.name.clone()));
    Some((bytes, place))
}

fn may_move(def: &IndexDef) -> bool {
    let is_default = def.storage.is_memory() && !def.stays_in_memory;
    is_default && def.state == IndexState::Valid && def.method == IndexMethod::Ordered
}

fn memory_of(index: &StoredIndex) -> Option<usize> {
    let is_there = index.is_in_memory() && index.is_usable();
    is_there.then(|| index.index.memory_bytes())
}

impl Movable {
    /// Adds the definition of the second index to the catalog.
    fn define(&self, catalog: &mut Catalog) -> Result<(TableId, IndexId)> {
        let table = catalog.tables.get(&self.table).ok_or_else(changed)?;
        let first = match &self.place {
            Place::Secondary(id) => {
                let found = table.indexes.iter().find(|def| def.id == *id);
                IndexDef::clone(found.filter(|def| may_move(def)).ok_or_else(changed)?)
            }
            Place::Key(columns) => {
                let key = self.key_of(table, columns)?;
                let def = key.clone().with_ordered_index(IndexStorage::Levels);
                IndexDef {
                    // The constraint says when duplicates are found.
                    unique: false,
                    nulls_not_distinct: false,
                    ..IndexDef::clone(&*def.ordered.ok_or_else(changed)?)
                }
            }
        };
        let id = IndexId(table.next_index);
        let second = IndexDef {
            id,
            name: free_name(catalog, &table.schema, &first.name),
            storage: IndexStorage::Levels,
            was_moved: true,
            file_number: None,
            ..first
        };
        let table = catalog.tables.get_mut(&self.table).ok_or_else(changed)?;
        let table = Arc::make_mut(table);
        table.next_index = table.next_index.saturating_add(1);
        table.indexes.push(Arc::new(second));
        Ok((self.table, id))
    }

    /// The key over these columns, with its index in memory.
    fn key_of<'a>(&self, table: &'a TableDef, columns: &[ColumnId]) -> Result<&'a KeyDef> {
        let mut same = table.keys.iter().filter(|key| key.columns == columns);
        let is_in_memory = |key: &&KeyDef| {
            let ordered = key.ordered.as_ref();
            ordered.is_none_or(|def| def.storage.is_memory()) && is_default(table, key)
        };
        match (same.next().filter(is_in_memory), same.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(changed()),
        }
    }

    /// Puts the second index, which is filled, in the place of the first.
    fn replace(&self, catalog: &mut Catalog, filled: &FilledIndex) -> Result<()> {
        let storage: StorageId = filled.store.id();
        let table = catalog.tables.get_mut(&self.table);
        let table = table.filter(|table| table.storage == storage);
        let table = Arc::make_mut(table.ok_or_else(changed)?);
        let second = table
            .indexes
            .iter()
            .position(|def| def.id == filled.place.1);
        let second = table.indexes.remove(second.ok_or_else(changed)?);
        match &self.place {
            Place::Secondary(id) => {
                let mut indexes = table.indexes.iter_mut();
                let first = indexes.find(|def| def.id == *id && may_move(def));
                let first = first.ok_or_else(changed)?;
                // Its name, comment and parameters may have changed meanwhile.
                *first = Arc::new(IndexDef {
                    id: second.id,
                    state: second.state,
                    complete_since: second.complete_since,
                    storage: second.storage,
                    was_moved: true,
                    file_number: second.file_number,
                    ..IndexDef::clone(first)
                });
            }
            Place::Key(columns) => {
                let key = self.key_of(table, columns)?.clone();
                let key = key.with_ordered_index(IndexStorage::Levels);
                let mut def = IndexDef::clone(&*key.ordered.clone().ok_or_else(changed)?);
                def.id = second.id;
                def.file_number = second.file_number;
                def.complete_since = second.complete_since;
                let keys = table.keys.iter_mut();
                for known in keys.filter(|known| known.columns == *columns) {
                    known.ordered = Some(Arc::new(def.clone()));
                }
            }
        }
        Ok(())
    }
}

/// A name for the second index that no relation of the schema has; PostgreSQL's REINDEX
/// CONCURRENTLY has such names.
fn free_name(catalog: &Catalog, schema: &str, first: &str) -> String {
    let is_taken = |name: &str| {
        let mut tables = catalog
            .tables
            .values()
            .filter(|table| table.schema == schema);
        catalog.view(schema, name).is_some()
            || tables.any(|table| {
                table.name == name
                    || table.keys.iter().any(|key| key.name == name)
                    || table.indexes.iter().any(|def| def.name == name)
            })
    };
    let name = |n: u32| match n {
        0 => format!("{first}_ccnew"),
        n => format!("{first}_ccnew{n}"),
    };
    let mut names = (0..).map(name);
    names.find(|name| !is_taken(name)).unwrap_or_default()
}

#[cold]
fn changed() -> Error {
    Error::new(
        ErrorKind::Conflict,
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        "the definition of the index has changed while it was moved",
    )
}
