//! When ranges are merged, and the share of time that merges may take \[L-Store §4.1, §4.4\].
//!
//! A range of chunks is due when it has many pending records, or has had some for long, or when
//! memory is short; an insert range when no slot of it is left. Checkpoints merge what is due. Many
//! pending records make scans slower and few make merges dear: every merge rewrites the updated
//! columns whole. The age bound ends the wait of a seldom written table for its merge, which
//! readers of merged moments depend on.
//!
//! After each checkpoint background merges pause until their share of one processor's time is kept,
//! which protects the writers' latency. Merges for lack of memory or for the log's size do not
//! pause.

use crate::db::Db;
use crate::maintenance::effort::Effort;
use crate::store::{RangeForm, RangeSummary, Store};
use std::sync::Arc;
use strandline_base::{RangeNo, StorageId};

/// Whether a range is to be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// not now
    No,
    /// the columns with a good part of the updates
    Columns,
    /// every column with an update
    All,
}

impl Db {
    /// Whether a checkpoint merges a range. `merge_all`: everything that has pending records.
    pub(crate) fn due(
        &self,
        store: &Store,
        range: RangeNo,
        summary: &RangeSummary,
        merge_all: bool,
    ) -> Due {
        let RangeSummary { rows, pending, .. } = *summary;
        let retry = self.merge_retry(store, range);
        if retry == Some(false) && !merge_all {
            return Due::No;
        }
        let is_due = match summary.form {
            RangeForm::Insert { is_full } => is_full && rows > 0,
            RangeForm::Chunks => pending >= self.settings.merge_pending_records,
        };
        let all = merge_all || retry.is_some() || self.is_short_of_memory();
        match summary.form {
            RangeForm::Insert { .. } if all && rows > 0 => Due::All,
            RangeForm::Chunks if merge_all && summary.deleted > 0 => Due::All,
            RangeForm::Chunks if pending > 0 && (all || self.is_old(store.id(), range)) => Due::All,
            _ if is_due => Due::Columns,
            _ => Due::No,
        }
    }

    fn is_old(&self, storage: StorageId, range: RangeNo) -> bool {
        let (age, now_us) = (self.settings.merge_age, self.elapsed_us());
        self.merge_schedule.is_old(storage, range, age, now_us)
    }

    pub(crate) fn is_short_of_memory(&self) -> bool {
        let used = self.shared.page_bytes.used();
        used.saturating_sub(self.set_aside.held_bytes()) > self.settings.tail_bytes()
    }

    /// One turn of the background work: a checkpoint if one is `wanted` or ranges are due that
    /// may be merged now, unless the last ones failed or achieved nothing and their pause is not
    /// over, which is what it returns; and a sweep of the key indexes that are due. What the
    /// background thread does five times a second.
    ///
    /// # Errors
    /// Those of [`Db::checkpoint`] but for what one table has to itself; while they pause after a
    /// failure, that failure.
    pub fn merge_due(&self, wanted: bool) -> strandline_base::Result<bool> {
        self.retention.note(self.stable());
        self.lend_to_tails();
        self.index_files.write_back();
        self.make_level_steps();
        self.make_cache_steps();
        self.make_block_cache_steps();
        let from = self.elapsed_us();
        let may_merge = self.merge_schedule.may_merge(from);
        self.measure_set_aside();
        let has_due = self.look_for_due(from);
        let failure = self.pacing_failure();
        // What has failed is tried again though nothing else asks for it.
        let is_mending = failure.is_some() || self.reserve.is_full();
        let has_cause = wanted || is_mending || self.is_short_of_memory() || (may_merge && has_due);
        let checkpoints = has_cause && !self.is_pausing();
        if checkpoints {
            if let Some(failure) = self.observed_checkpoint(Effort::Due)?.failure {
                return Err(failure);
            }
            self.merge_schedule
                .note_tried(self.settings.merge_age, from);
        } else if let Some(failure) = failure {
            return Err(failure);
        }
        let sweeps = (checkpoints || may_merge) && self.sweep_keys(false);
        if !checkpoints && !sweeps {
            return Ok(false);
        }
        let percent = self.settings.merge_percent;
        self.merge_schedule.rest(from, self.elapsed_us(), percent);
        Ok(checkpoints)
    }

    /// Notes which ranges have got pending records; whether one is due.
    fn look_for_due(&self, now: u64) -> bool {
        let stores: Vec<Arc<Store>> = self.stores.read().values().cloned().collect();
        let (mut with_pending, mut has_due) = (Vec::new(), false);
        for store in stores.iter().filter(|store| store.check_restored().is_ok()) {
            for range in store.ranges() {
                let summary = range.summary();
                if summary.form == RangeForm::Chunks && summary.pending > 0 {
                    with_pending.push((store.id(), range.no()));
                }
                has_due = has_due
                    || self.due(store, range.no(), &summary, false) != Due::No
                        && store.is_decided(&range, self.stable());
            }
        }
        self.merge_schedule.note_pending(with_pending, now);
        has_due
    }
}
