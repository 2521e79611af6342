//! Events of a recovery for `tracing`: its beginning, its progress, its end.

use crate::db::RecoveryReport;
use crate::manifest_state::ManifestState;
use std::sync::Arc;
use strandline_base::Clock;
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

    /// The log is read; row maps and key indexes come next.
    pub fn indexing(&self, report: &RecoveryReport) {
        let transactions = report.log_records;
        debug!(transactions, "recovery: log replayed, building key indexes");
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
