//! What the engine tells `tracing`: recovery, checkpoints, failures of background work.
//!
//! A database inside a program has no subscriber, so that nothing is printed and each event costs
//! a load and a branch. Events are rare: none is on the path of a transaction.

use crate::checkpoint::{CheckpointOutcome, Effort};
use crate::db::Db;
use crate::maintenance::set_aside::contained;
use crate::manifest_state::ManifestState;
use crate::recovery_report::RecoveryReport;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strandline_base::{Clock, Error, ErrorKind, Result};
use strandline_storage::wal::Lsn;
use tracing::{debug, error, info};

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

/// Background work has failed or works again: each change is told once, not every retry, whose
/// error may name another new file. `what` is a plural.
pub(crate) fn background_work(what: &str, before: Option<&Error>, now: Option<&Error>) {
    match (before, now) {
        (Some(before), Some(now)) if is_same_failure(before, now) => {}
        (_, Some(failure)) if failure.kind() == ErrorKind::Closed => {
            error!(sqlstate = failure.sqlstate().0, "{what} end: {failure}");
        }
        (_, Some(failure)) => error!(
            sqlstate = failure.sqlstate().0,
            "{what} fail, and are tried again: {failure}"
        ),
        (Some(_), None) => info!("{what} work again"),
        (None, None) => {}
    }
}

/// Whether two errors tell of one condition.
pub(crate) fn is_same_failure(before: &Error, now: &Error) -> bool {
    (before.kind(), before.sqlstate()) == (now.kind(), now.sqlstate())
}

impl Db {
    /// Runs a checkpoint, counts how long it took, tells what it did and notes how it ended.
    pub(crate) fn observed_checkpoint(&self, effort: Effort) -> Result<CheckpointOutcome> {
        let began_us = self.elapsed_us();
        let outcome = contained(|| self.checkpoint_in_space(effort));
        self.note_attempt(&outcome);
        let micros = self.elapsed_us().saturating_sub(began_us);
        let counted = &self.counters.checkpoint_micros;
        counted.fetch_add(micros, Ordering::Relaxed);
        if let Ok(CheckpointOutcome { report, .. }) = &outcome {
            info!(
                duration_ms = micros / 1_000,
                merged_ranges = report.merged_ranges,
                run_records = report.run_records,
                bytes_written = report.bytes_written,
                "checkpoint complete"
            );
        }
        outcome
    }
}
