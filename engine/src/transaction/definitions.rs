//! Changes of the catalog by a transaction: the lock on the catalog, the new storages, and the wait
//! for the tables' writers.
//!
//! Lock order: the right to change the catalog (`Db::ddl`) → holds of storages; both wait in the
//! wait-for graph, with the transaction's state released.

use super::Transaction;
use crate::catalog::edit::CatalogEdit;
use crate::catalog::index::{IndexDef, IndexState};
use crate::catalog::ordered_keys::BuiltKey;
use crate::catalog::{Catalog, KeyDef, TableDef};
use crate::db::Db;
use crate::manifest_state::to_json;
use crate::store::TableStore;
use crate::store::index_build::{Unobserved, fill};
use crate::store::{Hold, Store, StoredIndex, Waiting, find_readable_index, storage_schema};
use std::collections::BTreeSet;
use std::sync::Arc;
use strandline_base::{ColumnId, Error, ErrorKind, Result, SqlState, StorageId};
use strandline_tail::schema::StorageSchema;
use strandline_txn::{Looks, StartWord};

/// The changes to storages that a catalog change has made before its commit.
#[derive(Default)]
pub(crate) struct Adopted {
    /// new storages
    pub(crate) created: Vec<Arc<Store>>,
    /// storages that got columns, with their schemas before
    pub(crate) grown: Vec<(Arc<Store>, Arc<StorageSchema>)>,
    /// keys of existing rows
    pub(crate) keys: Vec<BuiltKey>,
    /// indexes in files in whose place others are now
    pub(crate) replaced: Vec<(Arc<Store>, Arc<StoredIndex>)>,
}

impl Db {
    /// Creates the storages that are in `catalog` and not in `before`, held by `word`. Adds new
    /// columns to existing storages, and creates the indexes of new keys.
    pub(crate) fn adopt_storages(
        &self,
        before: &Catalog,
        catalog: &Catalog,
        word: StartWord,
        adopted: &mut Adopted,
    ) -> Result<()> {
        let known: BTreeSet<StorageId> = before.tables.values().map(|t| t.storage).collect();
        for table in catalog.tables.values() {
            let is_same = |old: &Arc<TableDef>| Arc::ptr_eq(old, table) || old == table;
            if before.tables.get(&table.id).is_some_and(is_same) {
                continue;
            }
            if known.contains(&table.storage) {
                let store = self.any_store(table.storage)?;
                let schema = store.rows().schema();
                if schema.len() < table.next_column as usize {
                    self.store(table.storage)?; // restored
                    let grown = storage_schema(table, Some(&schema));
                    store.rows().set_schema(grown);
                    adopted.grown.push((store.clone(), schema));
                }
                // An index over the same columns may remain from a constraint that was dropped or
                // rolled back. It lacks the entries of rows written since.
                let old = before.tables.get(&table.id).map_or(&[][..], |t| &t.keys);
                for key in &table.keys {
                    if has_key(old, key, &table.keys, &store) {
                        adopted.keys.extend(self.kept_key(table, key, old));
                        continue;
                    }
                    self.store(table.storage)?; // restored
                    let built = before.tables.get(&table.id);
                    let index = match built.and_then(|old| built_beside(old, key, &store)) {
                        Some(built) => built.as_key(table, &store)?,
                        None => self.built_key(table, key, &store, word)?,
                    };
                    let known = store.key(&key.columns);
                    let known = known.filter(|known| known.file().is_some());
                    adopted
                        .replaced
                        .extend(known.map(|known| (store.clone(), known)));
                    store.put_index(index);
                    adopted.keys.push(BuiltKey {
                        table: table.id,
                        columns: key.columns.clone(),
                        complete_since: self.complete_since(table, &store),
                    });
                }
            } else {
                // The number may have been used by a rolled-back transaction.
                let shared = (&self.shared, &self.index_files);
                let store = Store::new(table, None, shared, Some(word));
                self.stores.write().insert(table.storage, store.clone());
                adopted.created.push(store.clone());
                for key in &table.keys {
                    store.put_index(StoredIndex::of_key(table, &key.columns, &store)?);
                }
            }
        }
        Ok(())
    }

    /// The index of a key, filled from the rows.
    fn built_key(
        &self,
        table: &TableDef,
        key: &KeyDef,
        store: &Arc<Store>,
        word: StartWord,
    ) -> Result<Arc<StoredIndex>> {
        let index = StoredIndex::of_key(table, &key.columns, store)?;
        let threads = self.settings.recovery_threads;
        fill(store, &index, word, threads, &Unobserved)?;
        Ok(index)
    }

    /// Makes definitions name the files of their indexes: those that `catalog` changes since
    /// `before`, or all.
    pub(crate) fn name_index_files(
        &self,
        before: Option<&Catalog>,
        catalog: &mut Catalog,
    ) -> Result<()> {
        for table in catalog.tables.values_mut() {
            let old = before.and_then(|before| before.tables.get(&table.id));
            if old.is_none_or(|old| !Arc::ptr_eq(old, table))
                && let Some(named) = self.naming_files(table)?
            {
                *table = Arc::new(named);
            }
        }
        Ok(())
    }

    /// Makes the entries durable of the indexes that are valid in `catalog` and were not in
    /// `before`: an opening replays only what the log has from then on.
    fn store_unlogged(&self, before: &Catalog, catalog: &Catalog) -> Result<()> {
        let known = before.finished_index_files();
        for table in catalog.tables.values() {
            let is_new = |def: &&Arc<IndexDef>| {
                let file = def.file().filter(|_| def.state == IndexState::Valid);
                file.is_some_and(|file| !known.contains(&file))
            };
            for def in table.readable_indexes().filter(is_new) {
                let store = self.any_store(table.storage)?;
                if let Some(index) = find_readable_index(&store, table, def.id) {
                    index.store_unlogged()?;
                }
            }
        }
        Ok(())
    }

    /// Whether a definition does not name the file of its index.
    pub(crate) fn has_unnamed_files(&self) -> Result<bool> {
        for table in self.catalog().tables.values() {
            if self.naming_files(table)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The definition that names the files of its indexes, unless `table` does so.
    fn naming_files(&self, table: &TableDef) -> Result<Option<TableDef>> {
        let store = self.any_store(table.storage)?;
        let file_of = |def: &IndexDef| {
            let index = find_readable_index(&store, table, def.id)?;
            // An opening that only looks passes over no file for good.
            let only_looks = self.settings.only_looks;
            index.file().or_else(|| def.file().filter(|_| only_looks))
        };
        // The files of a table that could not be restored wait for an opening that restores it.
        Ok(match store.check_restored() {
            Ok(()) => table.naming_files(file_of),
            Err(_) => None,
        })
    }

    /// Since when the ordered index of a key has been complete that goes on with the index of
    /// another key, one of `old`.
    fn kept_key(&self, table: &TableDef, key: &KeyDef, old: &[KeyDef]) -> Option<BuiltKey> {
        let is_same = |known: &&KeyDef| known.columns == key.columns;
        let orders = old
            .iter()
            .filter(is_same)
            .map(|known| known.ordered.as_ref());
        let known = orders.flatten().map(|index| index.complete_since).max();
        key.ordered.as_ref()?;
        Some(BuiltKey {
            table: table.id,
            columns: key.columns.clone(),
            // The order may remain from a constraint that has been dropped.
            complete_since: known.unwrap_or(self.stable()),
        })
    }

    /// Takes the right to change the catalog until the transaction of `word` ends.
    pub(crate) fn lock_ddl(&self, word: StartWord, waiting: &Waiting<'_>) -> Result<()> {
        let mut looks = Looks::default();
        loop {
            let holder = {
                let mut ddl = self.ddl.lock();
                match *ddl {
                    Some(holder) if holder != word => holder,
                    _ => {
                        *ddl = Some(word);
                        return Ok(());
                    }
                }
            };
            let is_in_the_way = || *self.ddl.lock() == Some(holder);
            waiting.wait_for_release(word, holder, &is_in_the_way, &mut looks)?;
        }
    }
    pub(crate) fn release_ddl(&self, word: StartWord) {
        let mut ddl = self.ddl.lock();
        if *ddl == Some(word) {
            *ddl = None;
        }
    }
}

/// The secondary index of the table `old` that a move has filled for this key: its definition had
/// the number that the key's has now.
fn built_beside(old: &TableDef, key: &KeyDef, store: &Store) -> Option<Arc<StoredIndex>> {
    let def = old.index(key.ordered.as_ref()?.id)?;
    store.secondary_index(def.id)
}

/// Whether the index of one of the keys `old` serves `key`, one of `keys`, as it is.
fn has_key(old: &[KeyDef], key: &KeyDef, keys: &[KeyDef], store: &Store) -> bool {
    let is_known = |known: &KeyDef| known.columns == key.columns;
    let index = store.key(&key.columns);
    let is_ordered = || index.as_ref().is_some_and(|index| index.is_ordered());
    let is_in_memory = || {
        let is_usable = |index: &Arc<StoredIndex>| index.index.failure().is_none();
        index
            .as_ref()
            .is_none_or(|index| index.is_in_memory() && is_usable(index))
    };
    old.iter().any(is_known)
        && StoredIndex::has_equal_nulls(keys, &key.columns)
            <= StoredIndex::has_equal_nulls(old, &key.columns)
        && match &key.ordered {
            None => is_in_memory(),
            Some(def) if !def.is_on_device() => is_in_memory() && is_ordered(),
            Some(_) => goes_on_in_file(old, &key.columns, keys),
        }
}

/// Whether an index in a file over these columns goes on: a key has the number of one of `old`. New
/// numbers ask for a new index, in the place of a damaged one as well.
fn goes_on_in_file(old: &[KeyDef], columns: &[ColumnId], keys: &[KeyDef]) -> bool {
    let same = old.iter().filter(|known| known.columns == columns);
    let mut known = same.filter_map(|known| known.ordered.as_ref());
    let stays = |id| {
        let mut defs = keys.iter().filter_map(|key| key.ordered.as_ref());
        defs.any(|def| def.id == id)
    };
    known.any(|def| def.is_on_device() && stays(def.id))
}

impl Transaction {
    /// Edits the transaction's catalog. Waits for other DDL, and then for the writers of every
    /// table whose definition changes. New storages are created empty. The editor must prevent
    /// duplicate names.
    pub fn change_catalog(&self, edit: &mut dyn FnMut(&mut Catalog) -> Result<()>) -> Result<()> {
        let word = self.word()?;
        let cancelled = || self.is_cancelled();
        let waiting = self.waiting(&cancelled);
        self.state.lock().locks_ddl = true;
        self.db.lock_ddl(word, &waiting)?;
        let before = self.ddl_base()?;
        let mut catalog = Catalog::clone(&before);
        edit(&mut catalog)?;
        catalog.forget_dropped();
        catalog.link_foreign_keys();
        catalog.link_ordered_keys();
        catalog.check_numbers()?;
        check_storable(&CatalogEdit::between(&before, &catalog))?;
        for (id, old) in &before.tables {
            let is_same = |new: &Arc<TableDef>| Arc::ptr_eq(new, old) || new == old;
            let new = catalog.tables.get(id);
            if !new.is_some_and(is_same) {
                if let Some(rare) = &self.state.lock().rare {
                    rare.deferred.refuse_change(old, new.map(Arc::as_ref))?;
                }
                let store = self.db.any_store(old.storage)?;
                store.lock_exclusive(word, &waiting)?;
                self.state.lock().hold(store, Hold::Alone);
            }
        }
        let mut adopted = Adopted::default();
        let mut built = Vec::new();
        let outcome = self
            .db
            .adopt_storages(&before, &catalog, word, &mut adopted)
            .and_then(|()| self.build_indexes(&before, &mut catalog, word, &mut built))
            .and_then(|()| self.db.name_index_files(Some(&before), &mut catalog))
            .and_then(|()| self.db.store_unlogged(&before, &catalog));
        for key in &adopted.keys {
            catalog.complete_ordered_key(key);
        }
        let mut state = self.state.lock();
        if !built.is_empty() {
            state.rare_work().built.extend(built);
        }
        for created in adopted.created {
            state.hold(created, Hold::Alone);
        }
        if !adopted.replaced.is_empty() {
            state.rare_work().replaced.extend(adopted.replaced);
        }
        if !adopted.grown.is_empty() {
            state.rare_work().grown.extend(adopted.grown);
        }
        outcome?;
        state.catalog = Arc::new(catalog);
        state.catalog_changed = true;
        self.hints.set_plain(false);
        Ok(())
    }

    /// Lets an identity column of `table` go on after `value`, or at `value` if that is not given
    /// yet. Takes effect at once and is not undone by a rollback; it is in the log when this
    /// transaction has committed.
    ///
    /// # Errors
    /// 22003 if there is no value before the first one; the errors of a change of definitions,
    /// whose lock keeps the column as it is.
    pub fn set_identity(
        &self,
        table: &TableDef,
        column: ColumnId,
        value: i64,
        is_given: bool,
    ) -> Result<()> {
        let def = table.column_by_id(column).and_then(|c| c.identity.as_ref());
        let def = def.ok_or_else(|| Error::internal("the column is no identity"))?;
        let last = match is_given {
            true => Some(value),
            false => value.checked_sub(def.increment),
        };
        let last = last.ok_or_else(|| {
            Error::invalid(
                SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
                format!(
                    "the identity column of table \"{}\" cannot begin at {value}",
                    table.name
                ),
            )
        })?;
        // A transaction that changes definitions writes a log record, which includes the counters.
        self.change_catalog(&mut |_| Ok(()))?;
        self.db.identities.set(table.id, column, last);
        Ok(())
    }

    /// The catalog from which a change starts: this transaction's own if it has changed it already,
    /// otherwise the newest one.
    fn ddl_base(&self) -> Result<Arc<Catalog>> {
        let state = self.state.lock();
        if state.catalog_changed {
            return Ok(state.catalog.clone());
        }
        let newest = self.db.catalog();
        if state.snapshot.is_some() && !Arc::ptr_eq(&newest, &state.catalog) {
            return Err(Error::new(
                ErrorKind::Conflict,
                SqlState::SERIALIZATION_FAILURE,
                "could not serialize access due to a concurrent change of the catalog",
            )
            .with_hint("Retry the transaction."));
        }
        Ok(newest)
    }
}

/// Refuses a definition that JSON cannot represent (a NaN default of an added column), which would
/// make the database unreadable.
fn check_storable(edit: &CatalogEdit) -> Result<()> {
    let json = to_json(edit)?;
    match serde_json::from_slice::<CatalogEdit>(&json) {
        Ok(back) if back == *edit => Ok(()),
        _ => Err(Error::unsupported(
            "the definition has a value that the catalog cannot store (NaN or infinity)",
        )),
    }
}
