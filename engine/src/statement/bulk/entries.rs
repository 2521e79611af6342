//! Entering bulk-loaded ranges into the indexes of their table: each index on one thread, as a
//! sorted batch of the ranges' keys.
//!
//! The load registers the ranges with its transaction first. A rollback therefore takes the entries
//! back, also if entering has failed half-way.
//!
//! Memory: an index collects the keys of these ranges, which have no more bytes than one range, and
//! counts them among the indexes' memory. So many threads enter at a time as what is left of
//! [`Settings::index_bytes`](crate::Settings::index_bytes) has room for ranges.

use super::BulkInsert;
use crate::statement::OnInvisibleDuplicate;
use crate::statement::keys::{KeyCheck, KeyChecks, Uniqueness};
use crate::statement::write_target::TableIndexes;
use crate::store::StoredIndex;
use arrow_array::ArrayRef;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strandline_base::{Error, RangeNo, Result, RowId, SqlType, Value};
use strandline_column::types::value_at;
use strandline_index::{BulkLoad, KeyBytes};

/// A loaded range, whose rows are to be entered.
pub(super) struct LoadedRange {
    pub no: RangeNo,
    /// by the table's columns; those that an index reads are there
    pub columns: Vec<Option<ArrayRef>>,
    pub rows: usize,
}

impl BulkInsert {
    /// Enters the rows of loaded ranges into all indexes. Keys that are there already are noted
    /// in the order of the table's definition, whichever thread has met them.
    pub(super) fn enter_ranges(&self, ranges: &[LoadedRange]) -> Result<()> {
        let indexes = TableIndexes::of(&self.table, &self.store)?;
        let keys = indexes.keys.iter().enumerate();
        let secondary = indexes.secondary.iter().enumerate();
        let keys = keys.map(|(at, index)| (index, Uniqueness::Key(at)));
        let secondary = secondary.map(|(at, index)| (index, Uniqueness::Index(at)));
        let indexes: Vec<(&Arc<StoredIndex>, Uniqueness)> = keys.chain(secondary).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut entered = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some((index, uniqueness)) = indexes.get(at) else {
                    return entered;
                };
                entered.push((at, self.enter_index(index, *uniqueness, ranges)));
            }
        };
        let threads = self.entering_threads().min(indexes.len());
        let mut entered = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let mut entered = work();
            for other in others {
                let panicked = |_| Error::internal("a thread that enters a load panicked");
                entered.extend(other.join().map_err(panicked)?);
            }
            Ok::<_, Error>(entered)
        })?;
        entered.sort_unstable_by_key(|(at, _)| *at);
        for (_, checks) in entered {
            let checks = checks?;
            self.statement.check_all_later(checks)?;
        }
        Ok(())
    }

    /// The workers that encode no range, within the memory for indexes.
    fn entering_threads(&self) -> usize {
        let db = self.statement.transaction().db();
        let used = db.shared.pool.taken_bytes().load(Ordering::Relaxed);
        let left = db.settings().index_bytes().saturating_sub(used);
        let free = self.workers.saturating_sub(self.encoding.len());
        free.min(left / self.range_bytes()).max(1)
    }

    /// Enters the ranges into one index; the keys that are to be checked.
    fn enter_index(
        &self,
        index: &Arc<StoredIndex>,
        uniqueness: Uniqueness,
        ranges: &[LoadedRange],
    ) -> Result<KeyChecks> {
        let txn = self.statement.transaction();
        if index.id().is_some() && index.is_in_memory() {
            txn.db().check_index_memory()?;
        }
        let mut load = match index.is_unique() {
            true => index.index.bulk_load_unique(),
            false => index.index.bulk_load(),
        };
        let mut checks = KeyChecks::default();
        let mut check = |bytes, row, others| {
            let check = KeyCheck {
                table: self.table.clone(),
                store: self.store.clone(),
                index: index.clone(),
                uniqueness,
                bytes,
                row,
                others,
                on_invisible: OnInvisibleDuplicate::Violation,
            };
            checks.push(check, txn)
        };
        for range in ranges {
            txn.check_cancelled()?;
            self.push_range(index, range, &mut *load, &mut check)?;
        }
        for found in index.enter_inserted(|| load.collisions())? {
            check(found.key, found.row, found.others)?;
        }
        index.enter_inserted(|| load.finish())?;
        if let Some(dead) = index.dead_runs() {
            dead.entered_many();
        }
        Ok(checks)
    }

    /// Adds the keys of a range to a load, and calls `check` with those that are there already.
    fn push_range(
        &self,
        index: &StoredIndex,
        range: &LoadedRange,
        load: &mut dyn BulkLoad,
        check: &mut dyn FnMut(KeyBytes, RowId, Vec<RowId>) -> Result<()>,
    ) -> Result<()> {
        let parts = self.parts_of(index, range)?;
        let computed = index
            .computed()
            .map(|key| key.of_rows(&parts))
            .transpose()?;
        let parts = computed.as_ref().map_or(&parts, |keys| &keys.parts);
        let (mut values, mut others) = (vec![Value::Null; parts.len()], Vec::new());
        for row in 0..range.rows {
            let is_selected = computed.as_ref().is_none_or(|keys| keys.is_selected(row));
            if !is_selected {
                continue;
            }
            for (value, (sql_type, array)) in values.iter_mut().zip(parts) {
                *value = value_at(*sql_type, array, row);
            }
            if !index.has_entry(&values) {
                continue;
            }
            let row = RowId::new(range.no, row as u16);
            index.enter_inserted(|| load.push(&values, row, &mut others))?;
            if !others.is_empty() {
                let others = std::mem::take(&mut others);
                check(index.index.encode(&values), row, others)?;
            }
        }
        Ok(())
    }

    /// The types and values of an index's columns.
    fn parts_of(
        &self,
        index: &StoredIndex,
        range: &LoadedRange,
    ) -> Result<Vec<(SqlType, ArrayRef)>> {
        let mut parts = Vec::with_capacity(index.columns.len());
        for id in &index.columns {
            let part = self.table.position(*id).and_then(|at| {
                let sql_type = self.table.columns[at].sql_type;
                Some((sql_type, range.columns[at].clone()?))
            });
            parts.push(part.ok_or_else(|| Error::internal("a key column is missing"))?);
        }
        Ok(parts)
    }
}
