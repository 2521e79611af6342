//! Filling an index from the rows: at open, when a constraint is added, for CREATE INDEX. An index
//! in levels gets the entries of some rows again when it is opened.
//!
//! A build adds an entry for every key that a row has, or had within the retention. Writers may run
//! meanwhile. They enter their own changes, and the build leaves uncommitted changes to them. An
//! existing entry is not added again.
//!
//! Threads take ranges one by one. No sweep runs meanwhile: it would remove an entry just before a
//! thread, which has read an older version of the row, adds it again.

use crate::store::all_rows::{self, RangeSlots, values_at};
use crate::store::newest;
use crate::store::{Store, StoredIndex, StoredRange, TableStore, UnitWindows, VersionBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strandline_base::sync::Mutex;
use strandline_base::{ColumnId, CommitTs, Error, RangeNo, Result, RowId, Value};
use strandline_index::BulkLoad;
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::range::{Range, RangeVersion};
use strandline_txn::{StartWord, Visibility};

/// Rows whose entries a thread gathers before it adds them: their memory is no index's yet.
const LOAD_ROWS: usize = 1 << 21;

/// Receives the progress of a build, from all its threads.
pub(crate) trait BuildObserver: Sync {
    /// `slots` rows more are done. An error ends the build.
    fn advanced(&self, slots: u64) -> Result<()>;
    /// Whether memory is short: what a thread has gathered for an index in a file goes there.
    fn is_memory_short(&self) -> bool {
        false
    }
}

/// Ignores the progress.
pub(crate) struct Unobserved;

impl BuildObserver for Unobserved {
    fn advanced(&self, _slots: u64) -> Result<()> {
        Ok(())
    }
}

/// Fills `index`; uncommitted rows of `own` count.
pub(crate) fn fill(
    store: &Arc<Store>,
    index: &StoredIndex,
    own: StartWord,
    threads: usize,
    observer: &dyn BuildObserver,
) -> Result<()> {
    let _no_sweep = index.sweep.done.lock();
    let ranges = store.ranges();
    let next = AtomicUsize::new(0);
    let ahead = BuildAhead {
        store,
        columns: &index.columns,
        ts: newest(own).ts,
        ranges: &ranges,
        plan: Mutex::default(),
    };
    // Every slot may turn out to have an entry, or none.
    index.index.expect_entries(slots(store) as usize);
    let work = || {
        let (mut load, mut loaded) = (index.index.bulk_load(), 0);
        loop {
            let unit = next.fetch_add(1, Ordering::Relaxed);
            let Some(range) = ranges.get(unit) else {
                break;
            };
            ahead.advance(unit);
            let range = range.range();
            let slots = index_range(store, index, range, own, &mut *load, observer)?;
            ahead.end(unit);
            loaded += slots;
            if loaded >= LOAD_ROWS || observer.is_memory_short() {
                std::mem::replace(&mut load, index.index.bulk_load()).finish()?;
                loaded = 0;
            }
            observer.advanced(slots as u64)?;
        }
        load.finish()?;
        observer.advanced(0)
    };
    let outcome = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads.min(ranges.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let mut outcome = work();
        for other in others {
            let panicked = |_| Err(Error::internal("an index builder panicked"));
            outcome = outcome.and(other.join().unwrap_or_else(panicked));
        }
        outcome
    });
    index.index.expect_entries(0);
    outcome
}

/// Requests the columns of the next ranges of a build from an object store.
struct BuildAhead<'a> {
    store: &'a Store,
    columns: &'a [ColumnId],
    ts: CommitTs,
    ranges: &'a [StoredRange],
    plan: Mutex<BuildPlan>,
}

#[derive(Default)]
struct BuildPlan {
    windows: UnitWindows,
    /// the first range without windows
    next: usize,
}

impl BuildAhead<'_> {
    /// Starts windows for `unit`, which is about to be read, and for ranges after it.
    fn advance(&self, unit: usize) {
        if !self.store.lineage.reads_ahead() {
            return;
        }
        let mut plan = self.plan.lock();
        plan.next = plan.next.max(unit);
        while let Some(range) = self.ranges.get(plan.next) {
            let (at, pool) = (plan.next, self.store.lineage.pool());
            let mut requests = range.column_requests(self.columns);
            requests.extend(range.opening_requests(self.ts, std::iter::empty()));
            let is_full = plan.windows.is_full() && at > unit;
            if is_full || !plan.windows.start(at, requests, pool) {
                return;
            }
            plan.next += 1;
        }
    }

    /// Drops the windows of a range that was read.
    fn end(&self, unit: usize) {
        let windows = self.plan.lock().windows.end(unit);
        drop(windows);
    }
}

/// Adds the entries of the noted rows that `index` lacks, for every version that they have: ranges
/// in ascending order, each with its rows; None: all of them. How many rows there were. Nobody else
/// uses the index yet.
pub(crate) fn refill(
    store: &Store,
    index: &StoredIndex,
    noted: impl Iterator<Item = (RangeNo, Option<Vec<RowId>>)>,
) -> Result<u64> {
    let (mut load, mut entered) = (index.index.bulk_load(), 0);
    for (no, rows) in noted {
        let Some(range) = store.lineage.range(no) else {
            continue;
        };
        entered += match rows {
            None => index_range(store, index, range, StartWord(0), &mut *load, &Unobserved)?,
            Some(rows) => {
                for row in &rows {
                    push_versions(store, index, *row, &mut *load)?;
                }
                rows.len()
            }
        } as u64;
    }
    load.finish()?;
    Ok(entered)
}

/// Adds the entries of all versions of a row.
fn push_versions(
    store: &Store,
    index: &StoredIndex,
    row: RowId,
    load: &mut dyn BulkLoad,
) -> Result<()> {
    let (bounds, mut others) = (VersionBounds::WantedChange, Vec::new());
    let rows = store.rows();
    rows.visit_versions(row, &index.columns, bounds, &mut |version| {
        match index.key_of(version.values) {
            Ok(Some(key)) => load.push(&key, row, &mut others),
            // As in `index_former_keys`.
            Err(error) if index.computed().is_none() => Err(error),
            Ok(None) | Err(_) => Ok(()),
        }
    })
}

/// Slots of all ranges: the work of a build.
pub(crate) fn slots(store: &Store) -> u64 {
    let ranges = store.lineage.ranges();
    ranges
        .iter()
        .map(|range| u64::from(all_rows::slots(range)))
        .sum()
}

/// Enters every key that a row of the range has, or had within the retention. How many slots there
/// are.
fn index_range(
    store: &Store,
    index: &StoredIndex,
    range: &Arc<Range>,
    own: StartWord,
    load: &mut dyn BulkLoad,
    observer: &dyn BuildObserver,
) -> Result<usize> {
    let version = range.load_full();
    // What base has, deleted rows included: AS OF may ask for them.
    let mut others = Vec::new();
    let slots = visit_keys(
        store,
        index,
        (range, &version),
        &newest(own),
        &mut |values, row| load.push(values, row, &mut others),
    )?;
    index_former_keys(store, index, range, observer)?;
    Ok(slots)
}

/// Takes the entries of the rows of a bulk-loaded range out of all indexes: the load is about to be
/// rolled back, and its rows still carry the transaction's word. A range that cannot be read keeps
/// its entries, which lead to rows that nobody sees.
pub(crate) fn forget_loaded(store: &Store, no: RangeNo) {
    let Some(range) = store.lineage.range(no) else {
        return;
    };
    let version = range.load_full();
    let BaseBody::Chunks(chunks) = &version.base.body else {
        return;
    };
    let as_loaded = Visibility {
        ts: CommitTs::ZERO,
        own: chunks.start.load(),
        statement: chunks.start.statement + 1,
    };
    for index in store.indexes() {
        let retire = &mut |values: &[Value], row| {
            let bytes = index.index.encode(values);
            index.index.retire(&bytes, row, CommitTs::ZERO)
        };
        let _ = visit_keys(store, &index, (range, &version), &as_loaded, retire);
    }
}

/// Visits the keys of a range's rows at `visibility`. Slots without a visible row are visited too,
/// where they have values. Keys that have no entry are skipped. Returns the number of slots.
fn visit_keys(
    store: &Store,
    index: &StoredIndex,
    (range, version): (&Arc<Range>, &Arc<RangeVersion>),
    visibility: &Visibility,
    visit: &mut dyn FnMut(&[Value], RowId) -> Result<()>,
) -> Result<usize> {
    let slots = RangeSlots::read(store, (range, version), &index.columns, visibility)?;
    let computed = index.computed();
    let computed = match computed.map(|computed| computed.of_rows(&slots.columns)) {
        Some(Ok(keys)) => Some(keys),
        // Of a row that nobody sees that matters not.
        Some(Err(_)) => return visit_each(index, range.no(), &slots, visit),
        None => None,
    };
    let parts = computed.as_ref().map_or(&slots.columns, |keys| &keys.parts);
    let is_insert = matches!(version.base.body, BaseBody::Insert(_));
    let mut values = vec![Value::Null; parts.len()];
    for slot in 0..slots.len {
        if computed
            .as_ref()
            .is_some_and(|keys| !keys.is_selected(slot))
        {
            continue;
        }
        values_at(parts, slot, &mut values);
        let row = RowId::new(range.no(), slot as u16);
        if !index.has_entry(&values) {
            continue;
        }
        // A slot that nobody has written, or nobody sees any more, is NULL as well.
        if (is_insert || values.iter().any(Value::is_null))
            && !slots.is_visible(slot)
            && !has_versions(store, row)?
        {
            continue;
        }
        visit(&values, row)?;
    }
    Ok(slots.len)
}

/// As [`visit_keys`], row by row, for ranges where an expression fails for at least one row.
fn visit_each(
    index: &StoredIndex,
    range: RangeNo,
    slots: &RangeSlots,
    visit: &mut dyn FnMut(&[Value], RowId) -> Result<()>,
) -> Result<usize> {
    slots.visit(&mut |slot, values| match index.key_of(values) {
        Ok(Some(key)) => visit(&key, RowId::new(range, slot as u16)),
        Err(error) if slots.is_visible(slot) => Err(error),
        Ok(None) | Err(_) => Ok(()),
    })?;
    Ok(slots.len)
}

/// Whether a committed version of `row` may still be read.
fn has_versions(store: &Store, row: RowId) -> Result<bool> {
    Ok(!store.rows().has_expired(row)? && store.rows().has_versions(row)?)
}

/// Keys that rows had before an update of a key column. A sweep will look at them.
fn index_former_keys(
    store: &Store,
    index: &StoredIndex,
    range: &Range,
    observer: &dyn BuildObserver,
) -> Result<()> {
    let mut left = Vec::new();
    let bounds = VersionBounds::WantedChange;
    for row in store.lineage.rows_with_updates_of(range, &index.columns)? {
        index.note_moved();
        index.note_moved_row(row);
        let mut newest = None;
        store
            .rows()
            .visit_versions(row, &index.columns, bounds, &mut |version| {
                observer.advanced(0)?;
                newest = version.to.or(Some(version.from));
                match index.key_of(version.values) {
                    Ok(Some(key)) => index.index.add(&index.index.encode(&key), row).map(drop),
                    // An expression that failed for a version of the past has no value to look for.
                    Err(error) if index.computed().is_none() => Err(error),
                    Ok(None) | Err(_) => Ok(()),
                }
            })?;
        left.extend(newest.map(|newest| (newest, row)));
    }
    index.sweep.note_all_left(left);
    Ok(())
}
