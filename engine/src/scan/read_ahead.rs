//! Read-ahead of a scan over an object store: what the next units need is requested while the
//! present ones are read.
//!
//! A request takes tens of milliseconds, however few its bytes, and a store serves many at the same
//! time. So a scan keeps *windows* (`strandline_storage::file`) of the units to come on their way:
//!
//! 1. When a unit is opened, windows are started for it and for the units after it, up to
//!    32 windows (`store::unit_windows`) and a number of bytes. This number begins at
//!    [`BYTES_FIRST`] and doubles with each further unit that is opened, so that a scan which stops
//!    early has requested little in vain. The memory of the pool bounds it too.
//! 2. A unit has one window for columns that are adjacent in their file, or nearly so. What memory,
//!    the block cache or a window has is not requested.
//! 3. If conditions prune, no column of a unit is requested before its bounds are known. The bounds
//!    of up to [`OPENING_UNITS_MAX`] units are requested at the same time.
//! 4. While the last unit that ended had no row that its filters select, only the columns of the
//!    filters are requested.
//! 5. The windows of a unit are dropped when its reader is; those of the scan when the scan is.
//!
//! Invariants:
//! 1. A window is a hint. Readers find their bytes by file and offset, whatever the plan says: a
//!    range that a merge has changed after it was planned is read as without a plan.
//! 2. No error of a window ends a scan. A window that has failed ends the scan's read-ahead, and
//!    the read that needs its bytes repeats the request and reports the error.
//! 3. Only a thread that opens a unit which is not in memory waits, and only for bounds.
//!
//! Lock order: `plan` is held while windows are started, never while a read is waited for.

use super::TableScan;
use crate::store::{StoreRequest, StoredRange, UnitWindows};
use std::ops::Range;
use std::sync::Arc;
use strandline_base::sync::{Mutex, MutexGuard};
use strandline_base::{ColumnId, Result};
use strandline_storage::file::Window;
use strandline_storage::pool::Pool;

/// Bytes of windows of a scan that has just begun.
const BYTES_FIRST: usize = 8 << 20;
/// Units whose bounds are requested at the same time, at first and at most.
const OPENING_UNITS: usize = 4;
const OPENING_UNITS_MAX: usize = 32;

/// The read-ahead of one scan.
pub(super) struct ReadAhead {
    plan: Mutex<Plan>,
}

struct Plan {
    /// the windows of the units that were planned and have not ended
    units: UnitWindows,
    /// the first unit that was not planned
    next: usize,
    /// the first unit whose bounds were not loaded; unused if nothing prunes
    opened: usize,
    /// units whose bounds are loaded at a time
    opening_units: usize,
    /// a thread is loading bounds
    is_opening: bool,
    /// bytes that windows may have
    bytes_max: usize,
    /// whether units are planned with their output columns
    has_output: bool,
    /// whether a window has failed
    is_stopped: bool,
}

impl ReadAhead {
    pub fn new() -> Self {
        Self {
            plan: Mutex::new(Plan {
                units: UnitWindows::default(),
                next: 0,
                opened: 0,
                opening_units: OPENING_UNITS,
                is_opening: false,
                bytes_max: 0,
                has_output: true,
                is_stopped: false,
            }),
        }
    }

    /// Starts windows for `unit`, which is about to be opened, and for units after it. Waits for
    /// bounds if `may_wait`.
    pub fn advance(&self, scan: &TableScan, unit: usize, may_wait: bool) {
        let mut plan = self.plan.lock();
        plan.next = plan.next.max(unit);
        plan.opened = plan.opened.max(unit);
        plan.bytes_max = plan.bytes_max.saturating_mul(2).max(BYTES_FIRST);
        plan.pass_opened(scan);
        plan.start(scan, unit);
        let Some((units, windows)) = plan.begin_opening(scan, may_wait) else {
            return;
        };
        let is_loaded = MutexGuard::unlocked(&mut plan, || {
            let have_arrived = windows.iter().all(|window| window.wait());
            let is_loaded = |unit| scan.load_opening(unit).is_ok();
            let is_loaded = have_arrived && units.clone().all(is_loaded);
            drop(windows);
            is_loaded
        });
        plan.is_opening = false;
        plan.opened = plan.opened.max(units.end);
        plan.is_stopped |= !is_loaded;
        plan.start(scan, unit);
    }

    /// Starts windows for `unit`, whose bounds are known and do not prune it, unless it has some.
    pub fn cover(&self, scan: &TableScan, unit: usize) {
        let mut plan = self.plan.lock();
        if !plan.is_stopped && !plan.units.has(unit) {
            plan.start_unit(scan, unit);
        }
    }

    /// Drops the windows of `unit`. `has_rows`: whether its filters have selected a row; None if it
    /// was not read to its end.
    pub fn end(&self, unit: usize, has_rows: Option<bool>) {
        let mut plan = self.plan.lock();
        let windows = plan.units.end(unit);
        plan.is_stopped |= windows.iter().any(|window| window.has_failed());
        if let Some(has_rows) = has_rows {
            plan.has_output = has_rows;
        }
        let given_up = match plan.is_stopped {
            true => std::mem::take(&mut plan.units),
            false => UnitWindows::default(),
        };
        drop(plan);
        // Dropped with nothing locked.
        drop((windows, given_up));
    }
}

impl Plan {
    /// Starts windows for all units up to `unit`, and for later ones within the bounds.
    fn start(&mut self, scan: &TableScan, unit: usize) {
        let end = match scan.request.prune.is_empty() {
            true => scan.ranges.len(),
            false => self.opened,
        };
        while !self.is_stopped && self.next < end {
            let is_full = self.units.is_full() || self.units.bytes() >= self.bytes_max;
            if is_full && self.next > unit {
                return;
            }
            if !scan.is_pruned(self.next) && !self.start_unit(scan, self.next) {
                return;
            }
            self.next += 1;
        }
    }

    /// Starts the windows of a unit that it has not yet; whether there was room for all.
    fn start_unit(&mut self, scan: &TableScan, unit: usize) -> bool {
        let requests = scan.requests(unit, self.has_output);
        self.units.start(unit, requests, scan.pool())
    }

    /// Passes over units whose bounds are in memory.
    fn pass_opened(&mut self, scan: &TableScan) {
        let end = scan.ranges.len().min(self.next + OPENING_UNITS_MAX);
        while !self.is_opening && self.opened < end && scan.opens_in_memory(self.opened) {
            self.opened += 1;
        }
    }

    /// The units whose bounds are to be loaded now, and windows for them. None: there are none, or
    /// another thread loads some, or this one may not wait.
    fn begin_opening(
        &mut self,
        scan: &TableScan,
        may_wait: bool,
    ) -> Option<(Range<usize>, Vec<Arc<Window>>)> {
        let is_wanted = !scan.request.prune.is_empty() && self.next >= self.opened;
        if !is_wanted || !may_wait || self.is_opening || self.is_stopped {
            return None;
        }
        let end = self.opened.saturating_add(self.opening_units);
        let units = self.opened..end.min(scan.ranges.len());
        if units.is_empty() {
            return None;
        }
        self.is_opening = true;
        self.opening_units = (self.opening_units * 2).min(OPENING_UNITS_MAX);
        let requests = units.clone().flat_map(|unit| scan.opening_requests(unit));
        // Without room for all windows, the rest is read one by one.
        let (_, windows) = self.units.start_loose(requests.collect(), scan.pool());
        Some((units, windows))
    }
}

impl TableScan {
    pub(super) fn range(&self, unit: usize) -> &StoredRange {
        &self.ranges[unit].0
    }

    pub(super) fn pruning(&self) -> impl Iterator<Item = ColumnId> {
        self.request.prune.iter().map(|predicate| predicate.column)
    }

    fn pool(&self) -> &Arc<Pool> {
        &self.statement.db().shared.pool
    }

    /// Whether bounds in memory prune the unit.
    fn is_pruned(&self, unit: usize) -> bool {
        let mut predicates = self.request.prune.iter();
        !predicates.all(|predicate| self.range(unit).may_hold(predicate))
    }

    fn opening_requests(&self, unit: usize) -> Vec<StoreRequest> {
        self.range(unit)
            .opening_requests(self.visibility.ts, self.pruning())
    }

    fn load_opening(&self, unit: usize) -> Result<()> {
        self.range(unit)
            .load_opening(self.visibility.ts, self.pruning())
    }

    /// What reading the unit requests from the store, without output columns if not `has_output`.
    fn requests(&self, unit: usize, has_output: bool) -> Vec<StoreRequest> {
        let output = self.request.columns.iter().filter(|_| has_output);
        let filters = self.request.filters.iter();
        let filtered = filters.flat_map(|filter| filter.columns());
        let mut columns: Vec<ColumnId> = output.chain(filtered).copied().collect();
        columns.sort_unstable();
        columns.dedup();
        let mut requests = self.range(unit).column_requests(&columns);
        if self.request.prune.is_empty() {
            requests.extend(self.opening_requests(unit));
        }
        requests
    }
}
