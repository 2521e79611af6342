//! Background removal of index entries that no reader needs.
//!
//! An entry records that a row has, or had, a key. It is needed while a reader may find the row by
//! it: at a moment that may still be read (see [`Horizon`]), or because the newest version, or an
//! unfinished one, has the key. Two kinds of rows leave entries behind:
//!
//! * A row is *gone* when it was deleted and no moment sees it any more. Its slot is never used or
//!   written again, so no key is entered for it. All its entries are removed.
//! * A row has *left* a key when an update of a key column has committed. The transaction notes the
//!   row. Once the history policy no longer keeps that moment, each entry of the row is compared
//!   with the versions that readers may see.
//!
//! A rolled-back transaction removes its own entries before its end is visible to others (see
//! `moved_keys`).
//!
//! # Why no entry is lost
//!
//! An update writes its record first and then enters the row's new key, which an earlier version of
//! the row may have entered already. [`RowKeys`] excludes entering a key during the comparison of
//! the row's entries with its versions. If the key is entered before the comparison, the comparison
//! sees the record of the unfinished writer, or the committed version, and keeps the entry. If it
//! is entered after the comparison, the entry is added again. The uniqueness check ("enter, then
//! look") stays right: a removed entry has a key that its row does not have and that no unfinished
//! change gives it.
//!
//! # When it is worth it
//!
//! A sweep visits all entries of an index. It is due when as many rows have been deleted (in base)
//! or have left a key since the last sweep as make up an eighth of the entries: eight visits per
//! removed entry. If history still needs some of these rows, the next sweep is due once no moment
//! before the last sweep can be read.
//!
//! Lock order: `done` → (one after the other) the index's locks, `left`, [`RowKeys`]. Below that of
//! [`RowKeys`] are those of point reads. Writers come to `left` and to [`RowKeys`] with their
//! transaction's `state` locked.
//!
//! [`RowKeys`]: strandline_index::RowKeys

use super::horizons::table_of;
use crate::catalog::{KeyDef, TableDef};
use crate::db::Db;
use crate::store::gone_rows::{RowsByRange, gone_rows};
use crate::store::key_sweep::Swept;
use crate::store::{Horizon, Store, StoredIndex, StoredRange, TableStore, newest};
use std::collections::HashMap;
use std::sync::Arc;
use strandline_base::{CommitTs, Result, RowId, StorageId};
use strandline_index::KeyBytes;
use strandline_txn::{StartWord, Visibility};

impl Db {
    /// Sweeps the indexes with enough removable entries; with `all`, those with any. Returns
    /// whether an index was swept. Entries of rows that cannot be read stay.
    pub(crate) fn sweep_keys(&self, all: bool) -> bool {
        let stores: Vec<Arc<Store>> = self.stores.read().values().cloned().collect();
        let mut any = false;
        let catalog = self.catalog();
        let tables = catalog.tables.values().map(|table| (table.storage, table));
        let tables: HashMap<StorageId, &Arc<TableDef>> = tables.collect();
        for store in &stores {
            if !is_each_defined(store, tables.get(&store.id()).copied()) {
                self.remove_dropped(store);
            }
            let (ranges, indexes) = (store.ranges(), store.indexes());
            for key in indexes.iter().filter(|key| key.is_usable()) {
                // One sweep at a time: the other one is about the same entries.
                if let Some(mut done) = key.sweep.done.try_lock() {
                    any |= self.sweep_key(store, key, &ranges, &mut done, all);
                }
            }
        }
        any
    }

    /// Removes indexes whose definition or constraint has been dropped, once no statement uses a
    /// definition that has them.
    fn remove_dropped(&self, store: &Store) {
        let known = store.indexes();
        // In this order: a transaction that makes an index holds the table until its definition is
        // in the catalog, or the index has gone again.
        if store.is_held_alone() {
            return;
        }
        let since = self.catalogs.newest();
        let Ok(newest) = self.catalogs.at(CommitTs::MAX) else {
            return;
        };
        let table = newest
            .tables
            .values()
            .find(|table| table.storage == store.id());
        for index in known.iter() {
            if !is_defined(index, table)
                && index.sweep.dropped_before(since) <= self.txns().oldest_snapshot()
            {
                store.remove_index(index);
            }
        }
    }

    fn sweep_key(
        &self,
        store: &Store,
        key: &StoredIndex,
        ranges: &[StoredRange],
        done: &mut Swept,
        all: bool,
    ) -> bool {
        let (through, deleted) = (self.stable(), done.unswept_of_all(ranges));
        if deleted == 0 && key.sweep.left_by(through) == 0 {
            return false;
        }
        let table = table_of(&self.catalogs.through(through), store.id());
        let kept_from = self.kept_from(table.as_deref(), through);
        let left = key.sweep.left_by(kept_from);
        let oldest = kept_from.min(self.txns().oldest_snapshot());
        if !all && !done.is_due(deleted + left, key.index.len() as u64, oldest) {
            return false;
        }
        let horizon = self.horizon_from(store, kept_from);
        let gone = gone_rows(ranges, done, &horizon);
        self.sweep_rows(store, key, &gone, &horizon);
        done.kept = done.unswept_of_all(ranges) + key.sweep.left_by(kept_from);
        (done.through, done.oldest) = (through, oldest);
        true
    }

    /// Removes the entries of `gone` rows, and the entries under keys that rows have left.
    fn sweep_rows(&self, store: &Store, key: &StoredIndex, gone: &RowsByRange, horizon: &Horizon) {
        let mut left = key.sweep.take_left_by(horizon.kept_from());
        // A range that came after `gone` was made is for the next sweep.
        let later: Vec<_> = left.extract_if(.., |(_, row)| !gone.knows(*row)).collect();
        let mut moved = gone.none_of_the_same();
        left.iter().for_each(|(_, row)| moved.add(*row));
        let mut entries: Vec<(RowId, KeyBytes)> = Vec::new();
        let retained = key.index.retain(&mut |bytes, row| {
            if gone.has(row) {
                return false;
            }
            if moved.has(row) {
                entries.push((row, bytes.clone()));
            }
            true
        });
        if retained.is_err() {
            // What was not looked at is for the next sweep.
            key.sweep.note_all_left(left.into_iter().chain(later));
            return;
        }
        entries.sort_unstable();
        // Each row once, by when it left a key last; those that are done with are taken out.
        left.sort_unstable_by_key(|(ts, row)| (*row, std::cmp::Reverse(*ts)));
        left.dedup_by_key(|(_, row)| *row);
        left.retain(|(_, row)| {
            let first = entries.partition_point(|(of, _)| of < row);
            let own = entries[first..].iter().take_while(|(of, _)| of == row);
            let own: Vec<&KeyBytes> = own.map(|(_, bytes)| bytes).collect();
            let settle = || settle(store, key, *row, &own, horizon);
            let is_settled = own.is_empty() || key.sweep.row_keys.remove(settle);
            !is_settled
        });
        key.sweep.note_all_left(left.into_iter().chain(later));
    }
}

/// Whether the table's definition has an index.
pub(super) fn is_defined(index: &StoredIndex, table: Option<&Arc<TableDef>>) -> bool {
    let is_key = |key: &KeyDef| key.columns == index.columns;
    table.is_some_and(|table| match index.id() {
        Some(id) => table.index(id).is_some(),
        None => table.keys.iter().any(is_key),
    })
}

fn is_each_defined(store: &Store, table: Option<&Arc<TableDef>>) -> bool {
    let are_defined = |indexes: &[Arc<StoredIndex>]| {
        let mut indexes = indexes.iter();
        indexes.all(|index| is_defined(index, table))
    };
    are_defined(&store.keys()) && are_defined(&store.secondary())
}

/// Retires the entries of a row under its `own` keys that no reader needs; no key is entered for
/// the row meanwhile. Returns whether the row needs no further visit.
fn settle(
    store: &Store,
    key: &StoredIndex,
    row: RowId,
    own: &[&KeyBytes],
    horizon: &Horizon,
) -> bool {
    let Ok(Some(needed)) = needed(store, key, row, horizon) else {
        return false;
    };
    let mut are_retired = true;
    for bytes in own {
        if needed.newest.as_ref() != Some(*bytes) && !needed.former.contains(bytes) {
            let retired = key.index.retire(bytes, row, CommitTs::ZERO);
            are_retired &= retired.is_ok();
        }
    }
    are_retired && needed.former.is_empty()
}

/// The keys that a row has, or had at a moment that may be asked for.
struct Needed {
    newest: Option<KeyBytes>,
    former: Vec<KeyBytes>,
}

/// None: an unfinished transaction has written the row.
fn needed(
    store: &Store,
    key: &StoredIndex,
    row: RowId,
    horizon: &Horizon,
) -> Result<Option<Needed>> {
    let (stored, nobody) = (store.rows(), StartWord(0));
    if stored.unfinished_writer(row, nobody, false)?.is_some() {
        return Ok(None);
    }
    let key_at = |visibility: &Visibility| -> Result<Option<KeyBytes>> {
        let found = key.key_at(stored, row, visibility)?;
        Ok(found.and_then(|found| key.key_bytes(&found)))
    };
    let mut needed = Needed {
        newest: key_at(&newest(nobody))?,
        former: Vec::new(),
    };
    // Else all moments see the newest version.
    if stored.has_changed_since(row, horizon.oldest(), nobody)? {
        let times = stored.version_times(row)?;
        for version in times.windows(2) {
            if horizon.sees(version[0], version[1]) {
                let at = Visibility {
                    ts: version[0],
                    own: nobody,
                    statement: 0,
                };
                needed.former.extend(key_at(&at)?);
            }
        }
    }
    Ok(Some(needed))
}
