//! Events of a recovery for `tracing`: its beginning, its progress, its end.

use crate::catalog::TableDef;
use crate::catalog::index::IndexDef;
use crate::db::RecoveryReport;
use crate::manifest_state::ManifestState;
use crate::store::index_build::BuildObserver;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_base::{Clock, Result};
use strandline_storage::wal::Lsn;
use tracing::{debug, info};

/// How long a recovery works, in microseconds, before it tells again how far it is.
const PROGRESS_US: u64 = 5_000_000;

/// Tells how far a recovery is, every few seconds.
pub(crate) struct RecoveryProgress {
    clock: Arc<dyn Clock>,
    log_from: u64,
    told_us: u64,
}

impl RecoveryProgress {
    /// The recovery of the database at `location` begins.
    pub fn begin(clock: Arc<dyn Clock>, location: &str, state: &ManifestState) -> Self {
        info!(
            location,
            checkpoint = %state.checkpoint_ts,
            storages = state.storages.len(),
            log_from = state.replay_from(),
            "recovery begins"
        );
        let told_us = clock.elapsed_us();
        let log_from = state.replay_from();
        Self {
            clock,
            log_from,
            told_us,
        }
    }

    /// Pending records of runs are back in tails.
    pub fn restored(&self, report: &RecoveryReport) {
        let RecoveryReport {
            ranges,
            run_records,
            ..
        } = *report;
        debug!(
            ranges,
            run_records, "recovery: runs restored, log comes next"
        );
    }

    /// The log has been replayed up to `end`.
    pub fn replayed(&mut self, end: Lsn, report: &RecoveryReport) {
        let now_us = self.clock.elapsed_us();
        if now_us < self.told_us.saturating_add(PROGRESS_US) {
            return;
        }
        self.told_us = now_us;
        info!(
            log_bytes = end.0.saturating_sub(self.log_from),
            transactions = report.log_records,
            row_operations = report.row_operations,
            "recovery: replaying the log"
        );
    }

    /// A secondary index is about to be built from `rows` rows.
    pub fn building(&self, table: &TableDef, def: &IndexDef, rows: u64) -> IndexProgress<'_> {
        debug!(
            table = table.name,
            index = def.name,
            rows,
            "recovery: building an index"
        );
        IndexProgress {
            clock: &*self.clock,
            table: table.name.clone(),
            index: def.name.clone(),
            rows,
            done: AtomicU64::new(0),
            told_us: AtomicU64::new(self.clock.elapsed_us()),
        }
    }

    /// The log is read; row maps and key indexes come next.
    pub fn indexing(&self, report: &RecoveryReport) {
        let transactions = report.log_records;
        debug!(transactions, "recovery: log replayed, building key indexes");
    }
}

/// Tells how far the build of an index is, every few seconds.
pub(crate) struct IndexProgress<'a> {
    clock: &'a dyn Clock,
    table: String,
    index: String,
    rows: u64,
    done: AtomicU64,
    told_us: AtomicU64,
}

impl BuildObserver for IndexProgress<'_> {
    fn advanced(&self, slots: u64) -> Result<()> {
        let done = self.done.fetch_add(slots, Ordering::Relaxed) + slots;
        let (now_us, told_us) = (
            self.clock.elapsed_us(),
            self.told_us.load(Ordering::Relaxed),
        );
        if now_us >= told_us.saturating_add(PROGRESS_US) {
            self.told_us.store(now_us, Ordering::Relaxed);
            let Self {
                table, index, rows, ..
            } = self;
            info!(table, index, rows, done, "recovery: building an index");
        }
        Ok(())
    }
}

/// A recovery has ended.
pub(crate) fn recovered(location: &str, report: &RecoveryReport) {
    info!(
        location,
        duration_ms = report.micros / 1_000,
        log_bytes = report.log_bytes,
        transactions = report.log_records,
        row_operations = report.row_operations,
        ranges = report.ranges,
        run_records = report.run_records,
        threads = report.threads,
        "recovery finished"
    );
}
