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
//! A rolled-back transaction removes its own entries before its end is visible to others. It notes
//! the rows of entries that may not be its own, as if they had left a key (see `moved_keys`).
//!
//! # Why no entry is lost
//!
//! An update writes its record first and then enters the row's new key, which an earlier version of
//! the row may have entered already. An insertion does the same in an index in a file, which may
//! have the entry of a row that a crash has ended and whose place the new row takes. A sweep loads
//! the stable timestamp, reads which keys the row's versions need, and compares the row's entries
//! with them. History is read without any lock.
//! [`RowKeys`] excludes entering a key only while the sweep verifies that nobody has written the
//! row since the timestamp, and then removes entries.
//!
//! * The key is entered before the removal: its record was written earlier still. The verification
//!   finds an unfinished writer, or a commit after the timestamp, and the sweep leaves the row; or
//!   the commit was stable before the row's versions were read, and its key is among those needed;
//!   or the writer was rolled back, and needs no entry.
//! * The key is entered after the removal: the entry is added again.
//!
//! The uniqueness check ("enter, then look") stays right: a removed entry has a key that its row
//! does not have and that no unfinished change gives it.
//!
//! # When it is worth it
//!
//! A sweep visits all entries of an index. It is due when as many rows have been deleted (in base)
//! or have left a key since the last sweep as make up an eighth of the entries: eight visits per
//! removed entry. If history still needs some of these rows, the next sweep is due once no moment
//! before the last sweep can be read. Rows that could not be read do not count: they are looked at
//! again by a sweep that is due for others.
//!
//! A walk holds the entries of a bounded number of rows ([`Settings::sweep_bytes`]); more rows take
//! more walks, in order of their numbers.
//!
//! Lock order: `done` → (one after the other) the index's locks, `left`, [`RowKeys`]. Below that of
//! [`RowKeys`] are those of point reads and of marks (`store::moved_rows`). Updates come to `left`
//! and to [`RowKeys`] with their transaction's `state` locked, insertions without.
//!
//! [`RowKeys`]: strandline_index::RowKeys
//! [`Settings::sweep_bytes`]: crate::Settings::sweep_bytes

use crate::catalog::{KeyDef, TableDef};
use crate::db::opened_entries::has_unknown;
use crate::db::set_aside::Work;
use crate::db::{Db, closed};
use crate::store::gone_rows::{RowsByRange, gone_rows};
use crate::store::key_sweep::Swept;
use crate::store::{Horizon, Store, StoredIndex, StoredRange, TableStore, VersionBounds, newest};
use std::cell::LazyCell;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strandline_base::{CommitTs, Result, RowId, StorageId};
use strandline_index::KeyBytes;
use strandline_txn::StartWord;

/// Bytes that a row takes during a walk, but for its entries, and half of those of few short keys.
const ROW_BYTES: usize = 128;

/// The entries of rows that a walk has met, of as many rows as there is memory for.
struct Gathered {
    entries: Vec<(RowId, KeyBytes)>,
    bytes: usize,
    bytes_max: usize,
    /// only the entries of lower rows are here; None: of all rows
    end: Option<RowId>,
}

impl Gathered {
    fn new(bytes_max: usize) -> Self {
        Self {
            entries: Vec::new(),
            bytes: 0,
            bytes_max,
            end: None,
        }
    }

    fn bytes_of((_, key): &(RowId, KeyBytes)) -> usize {
        size_of::<(RowId, KeyBytes)>() + key.as_slice().len()
    }

    fn add(&mut self, row: RowId, key: &KeyBytes) {
        if self.end.is_some_and(|end| row >= end) {
            return;
        }
        let entry = (row, key.clone());
        self.bytes += Self::bytes_of(&entry);
        self.entries.push(entry);
        if self.bytes > self.bytes_max {
            self.cut();
        }
    }

    /// Leaves the upper half of the rows to a later walk. The entries of one row stay together.
    fn cut(&mut self) {
        self.entries.sort_unstable();
        let Some((middle, _)) = self.entries.get(self.entries.len() / 2) else {
            return;
        };
        let (middle, first) = (*middle, self.entries.first().map(|(row, _)| *row));
        let end = match first == Some(middle) {
            true => RowId(middle.0 + 1),
            false => middle,
        };
        let kept = self.entries.partition_point(|(row, _)| *row < end);
        self.entries.truncate(kept);
        self.bytes = self.entries.iter().map(Self::bytes_of).sum();
        self.end = Some(end);
        // Entries of a single row that exceed the memory are not sorted again and again.
        self.bytes_max = self.bytes_max.max(2 * self.bytes);
    }
}

impl Db {
    /// Sweeps the indexes with enough removable entries; with `all`, those with any. Returns
    /// whether an index was read. Entries of rows that cannot be read stay. An index that cannot be
    /// read is set aside.
    pub(crate) fn sweep_keys(&self, all: bool) -> bool {
        let stores: Vec<Arc<Store>> = self.stores.read().values().cloned().collect();
        let mut any = false;
        self.drop_ended_comparison();
        let catalog = self.catalog();
        let tables = catalog.tables.values().map(|table| (table.storage, table));
        let tables: HashMap<StorageId, &Arc<TableDef>> = tables.collect();
        let storages = LazyCell::new(|| self.catalogs.storages(self.stable()));
        for store in &stores {
            if !is_each_defined(store, tables.get(&store.id()).copied()) {
                self.remove_dropped(store);
            }
            let (ranges, indexes) = (store.ranges(), store.indexes());
            for key in indexes.iter().filter(|key| key.is_usable()) {
                let work = key.file().map(Work::SweepIndex);
                if work.is_some_and(|work| self.pausing_failure(store, work, all).is_some()) {
                    continue;
                }
                // One sweep at a time: the other one is about the same entries.
                let Some(mut done) = key.sweep.done.try_lock() else {
                    continue;
                };
                // Another one may have its entries by now, whose sweep it does not know of.
                if !store.has_index(key) {
                    continue;
                }
                let table = || storages.table(store.id()).map(|table| &**table);
                let compared = self.compare_opened(store, key);
                let swept = compared.and_then(|compared| {
                    let swept = self.sweep_key((store, table), key, &ranges, &mut done, all)?;
                    Ok(compared || swept)
                });
                any |= !matches!(swept, Ok(false));
                self.note_sweep(store, key, swept);
            }
        }
        any
    }

    /// Notes how reading the entries of an index in a file ended. `swept`: whether any were read.
    fn note_sweep(&self, store: &Store, key: &Arc<StoredIndex>, swept: Result<bool>) {
        let Some(work) = key.file().map(Work::SweepIndex) else {
            return;
        };
        match swept {
            // The next turn of a comparison may still fail.
            Ok(true) if !has_unknown(key) => self.note_work(store, work, Ok(())),
            Ok(_) => {}
            // A walk that the closing has ended.
            Err(_) if self.maintenance.closed.load(Ordering::Acquire) => {}
            Err(failure) => {
                self.forget_comparison(key);
                self.note_work(store, work, Err(&failure));
            }
        }
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

    fn sweep_key<'a>(
        &self,
        (store, table): (&Store, impl Fn() -> Option<&'a TableDef>),
        key: &StoredIndex,
        ranges: &[StoredRange],
        done: &mut Swept,
        all: bool,
    ) -> Result<bool> {
        let (through, deleted) = (self.stable(), done.unswept_of_all(ranges));
        if deleted == 0 && key.sweep.left_by(through) == 0 {
            return Ok(false);
        }
        let kept_from = self.kept_from(table(), through);
        let left = key.sweep.left_by(kept_from);
        let oldest = kept_from.min(self.txns().oldest_snapshot());
        let may_go = (deleted + left).saturating_sub(done.unreadable);
        if !all && !done.is_due(may_go, key.index.len() as u64, oldest) {
            return Ok(false);
        }
        let horizon = self.horizon_from(store, kept_from);
        if key.file().is_some() {
            self.index_files.announce_sweep(store.id(), kept_from)?;
        }
        let gone = gone_rows(ranges, done, &horizon);
        let swept = self.sweep_rows(store, key, &gone, &horizon);
        let kept = done.unswept_of_all(ranges) + key.sweep.left_by(kept_from);
        (done.through, done.oldest) = (through, oldest);
        done.unreadable = *swept.as_ref().unwrap_or(&0);
        done.kept = kept.saturating_sub(done.unreadable);
        swept.map(|_| true)
    }

    /// Removes the entries of `gone` rows, and the entries under keys that rows have left: of as
    /// many rows in one walk over the index as memory allows. Returns how many rows cannot be read.
    ///
    /// # Errors
    /// Those of the index.
    fn sweep_rows(
        &self,
        store: &Store,
        key: &StoredIndex,
        gone: &RowsByRange,
        horizon: &Horizon,
    ) -> Result<u64> {
        let mut unreadable = 0;
        let mut next = Some(RowId(0));
        while let Some(from) = next.filter(|_| !self.maintenance.closed.load(Ordering::Acquire)) {
            let more;
            (more, next) = self.sweep_part(store, key, (gone, from), horizon)?;
            unreadable += more;
        }
        Ok(unreadable)
    }

    /// One walk of [`Db::sweep_rows`], for the rows that have left a key from `from` on. Returns
    /// how many of them cannot be read, and where the next walk begins.
    fn sweep_part(
        &self,
        store: &Store,
        key: &StoredIndex,
        (gone, from): (&RowsByRange, RowId),
        horizon: &Horizon,
    ) -> Result<(u64, Option<RowId>)> {
        let bytes_max = self.settings.sweep_bytes();
        let rows_max = bytes_max / ROW_BYTES;
        let (taken, _in_hand) = key
            .sweep
            .take_left_by(horizon.kept_from(), from.range(), rows_max);
        let mut next = taken.next.map(|range| RowId::new(range, 0));
        let mut left = taken.rows;
        // A range that came after `gone` was made is for the next sweep.
        let is_later = |row: RowId| !gone.knows(row) || row < from;
        let mut later: Vec<_> = left.extract_if(.., |(_, row)| is_later(*row)).collect();
        let mut moved = gone.none_of_the_same();
        left.iter().for_each(|(_, row)| moved.add(*row));
        let mut gathered = Gathered::new(bytes_max);
        let retained = key.index.retain(&mut |bytes, row| {
            if gone.has(row) {
                return false;
            }
            if moved.has(row) {
                gathered.add(row, bytes);
            }
            true
        });
        if let Err(failure) = retained {
            // What was not looked at is for the next sweep.
            key.sweep.note_all_left(left.into_iter().chain(later));
            return Err(failure);
        }
        if let Some(end) = gathered.end {
            later.extend(left.extract_if(.., |(_, row)| *row >= end));
            next = Some(end);
        }
        let mut entries = gathered.entries;
        entries.sort_unstable();
        // Each row once, by when it left a key last; those that are done with are taken out.
        left.sort_unstable_by_key(|(ts, row)| (*row, std::cmp::Reverse(*ts)));
        left.dedup_by_key(|(_, row)| *row);
        let (mut unreadable, mut unreadable_range) = (0, None);
        left.retain(|(_, row)| {
            let first = entries.partition_point(|(of, _)| of < row);
            let own = entries[first..].iter().take_while(|(of, _)| of == row);
            let own: Vec<&KeyBytes> = own.map(|(_, bytes)| bytes).collect();
            if own.is_empty() {
                return false;
            }
            // One failed read tells of the other rows of the range.
            if unreadable_range != Some(row.range()) {
                match self.settle_row((store, key), *row, &own, horizon) {
                    Ok(is_settled) => return !is_settled,
                    Err(_) => unreadable_range = Some(row.range()),
                }
            }
            unreadable += 1;
            true
        });
        key.sweep.note_all_left(left.into_iter().chain(later));
        Ok((unreadable, next))
    }

    /// Retires the entries of a row under its `own` keys that no reader needs. Returns whether the
    /// row needs no further visit. A database that is being closed leaves its rows.
    fn settle_row(
        &self,
        (store, key): (&Store, &StoredIndex),
        row: RowId,
        own: &[&KeyBytes],
        horizon: &Horizon,
    ) -> Result<bool> {
        let since = self.stable();
        let check = || match self.maintenance.closed.load(Ordering::Acquire) {
            true => Err(closed()),
            false => Ok(()),
        };
        let Some(needed) = needed((store, key), row, horizon, check)? else {
            return Ok(false);
        };
        let row_keys = &key.sweep.row_keys;
        row_keys.remove(|| settle((store, key), row, own, &needed, since))
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
/// the row meanwhile. Returns whether the row needs no further visit. `since`: stable before
/// `needed` was found out.
fn settle(
    (store, key): (&Store, &StoredIndex),
    row: RowId,
    own: &[&KeyBytes],
    needed: &Needed,
    since: CommitTs,
) -> Result<bool> {
    let (stored, nobody) = (store.rows(), StartWord(0));
    if stored.unfinished_writer(row, nobody, false)?.is_some()
        || stored.has_changed_since(row, since, nobody)?
    {
        return Ok(false);
    }
    for bytes in own {
        if needed.newest.as_ref() != Some(*bytes) && !needed.former.contains(*bytes) {
            key.index.retire(bytes, row, CommitTs::ZERO)?;
        }
    }
    let is_settled = needed.former.is_empty();
    if let Some(moved) = key.moved_rows().filter(|_| is_settled) {
        moved.settle(row);
    }
    Ok(is_settled)
}

/// The keys that a row has, or had at a moment that may be asked for.
struct Needed {
    newest: Option<KeyBytes>,
    former: BTreeSet<KeyBytes>,
}

/// None: an unfinished transaction has written the row. `check` ends the search by its error.
fn needed(
    (store, key): (&Store, &StoredIndex),
    row: RowId,
    horizon: &Horizon,
    check: impl Fn() -> Result<()>,
) -> Result<Option<Needed>> {
    let (stored, nobody) = (store.rows(), StartWord(0));
    if stored.unfinished_writer(row, nobody, false)?.is_some() {
        return Ok(None);
    }
    let found = key.key_at(stored, row, &newest(nobody))?;
    let mut needed = Needed {
        newest: found.and_then(|found| key.key_bytes(&found)),
        former: BTreeSet::new(),
    };
    // Else all moments see the newest version.
    if stored.has_changed_since(row, horizon.oldest(), nobody)? {
        let bounds = VersionBounds::WantedChange;
        stored.visit_versions(row, &key.columns, bounds, &mut |version| {
            check()?;
            if let Some(to) = version.to
                && horizon.sees(version.from, to)
                && let Some(had) = key.key_of(version.values)?
            {
                needed.former.insert(key.index.encode(&had));
            }
            Ok(())
        })?;
    }
    Ok(Some(needed))
}

#[cfg(all(test, not(shuttle)))]
mod tests;
