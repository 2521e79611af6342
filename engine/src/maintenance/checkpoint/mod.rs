//! Checkpoints: they write committed records from tails and log into files.
//!
//! A checkpoint at T = stable takes these steps, a file each: (1) `moment`: T, and the catalogs and
//! storages that may still be read; (2) `parts`, by storage, in `lineage`: `merge` the ranges that
//! are due, write one run with the committed records ≤ T that are in no run (`storage_part`),
//! `unite` runs, `compact_files`, and `kept_logs` for closed-off tables, and the pages of
//! `index_files`; (3) `manifest_edit`: sync, append one edit, the atomic step; (4) `publish` the
//! merged ranges and the runs, then `drop_storages`; (5) `log_cut`. A crash before (3) leaves
//! orphaned files. A crash after it loses nothing: replay skips commits at or below T.
//!
//! Invariants:
//! 1. A record leaves memory (its page is dropped) only when the manifest names a run that has it.
//! 2. The log is cut only behind the position that the manifest names.
//! 3. A storage whose records cannot be written stays as of its last checkpoint. The manifest says
//!    so (`behind`), and the log is kept from there, or what the storage needs of it is copied into
//!    a file (`kept_logs`); all other storages go on.
//! 4. The storage of a dropped table goes with its files when its own retention is over, whatever
//!    other tables keep; catalog versions that name it may stay (`forgotten`).
//! 5. After a manifest edit whose fate is unknown there is no further checkpoint, and the log takes
//!    no further commit: the files of that edit stay, as the next open may find it.
//!
//! Several threads may prepare ranges, each on its own; runs are written in row order all the same,
//! so that the files do not depend on the threads' number but for their ids.

mod drop_storages;
mod index_files;
mod kept_logs;
mod lineage;
mod log_cut;
mod manifest_edit;
mod moment;
mod new_files;
mod object_owner;
mod parts;
mod terms;

use super::effort::Effort;
use super::outcome::{CheckpointOutcome, CheckpointReport};
use super::reserve::is_full_disk;
use super::set_aside::contained;
use crate::db::Db;
use kept_logs::kept_log_ids;
use std::sync::atomic::Ordering;
use strandline_base::Result;
use strandline_storage::tiers::owner::Owner;
use tracing::info;

/// So many checkpoints in a row free space on a full disk before it is a failure.
const FREEING_ROUNDS_MAX: usize = 4;

impl Db {
    /// Writes pending commits as runs, merges ranges that are due (all with pending records if
    /// `merge_all`), cuts the log. A failure of one table's work does not stop other work.
    ///
    /// # Errors
    /// The disk is full, the log or the manifest cannot be written, or a table's records cannot:
    /// the log then stays.
    pub fn checkpoint(&self, merge_all: bool) -> Result<CheckpointReport> {
        let effort = match merge_all {
            true => Effort::All,
            false => Effort::Due,
        };
        let outcome = self.observed_checkpoint(effort)?;
        self.sweep_keys(merge_all);
        match outcome.failure.or(outcome.behind) {
            Some(failure) => Err(failure),
            None => Ok(outcome.report),
        }
    }

    /// A checkpoint within the available space: when the disk is full, it gives up the reserve and
    /// does first the work that frees space.
    pub(crate) fn checkpoint_in_space(&self, effort: Effort) -> Result<CheckpointOutcome> {
        if !self.has_given_up_reserve() {
            let outcome = self.write_checkpoint(effort);
            let full = match &outcome {
                Ok(outcome) => outcome.failure.as_ref(),
                Err(error) => Some(error).filter(|error| is_full_disk(error)),
            };
            let Some(full) = full else {
                return outcome;
            };
            self.give_up_reserve(full);
        }
        let mut freed = self.free_space()?;
        if freed.failure.is_some() {
            return Ok(freed);
        }
        match self.restore_reserve() {
            Ok(()) => self.write_checkpoint(effort),
            Err(error) => {
                freed.failure = Some(error);
                Ok(freed)
            }
        }
    }

    /// Checkpoints that free space, as long as each makes room for the next.
    fn free_space(&self) -> Result<CheckpointOutcome> {
        let mut rounds = 0;
        loop {
            let mut outcome = self.write_checkpoint(Effort::Freeing);
            if outcome.as_ref().is_err_and(is_full_disk) {
                outcome = self.write_checkpoint(Effort::DropsOnly);
            }
            let outcome = outcome?;
            rounds += 1;
            let is_done = outcome.failure.is_none() || !outcome.has_changed;
            if is_done || rounds == FREEING_ROUNDS_MAX {
                return Ok(outcome);
            }
        }
    }

    /// The steps of a checkpoint.
    fn write_checkpoint(&self, effort: Effort) -> Result<CheckpointOutcome> {
        let mut state = self.checkpoint.lock();
        self.check_writable()?;
        self.check_owner(Owner::check_if_reachable)?;
        let logged = self.maintenance.logged_bytes.load(Ordering::Relaxed);
        let moment = self.checkpoint_moment()?;
        let named = self.named_at(&moment);
        let mut parts = self.prepare_parts(&named, moment.through, effort);
        self.keep_logs(&mut parts, &state, &moment, effort);
        self.identities.retain(|table| !named.is_gone(table));
        let index_files = self.store_index_files(&mut parts, &state, effort)?;
        let edit = self.edit_of(&parts, &state, &moment, &named, index_files);
        let has_files = !parts.ready.is_empty() || !parts.kept_files.is_empty();
        // A lost file is named before writers pass its index over.
        let has_news_of_files = edit.index_files != state.index_files;
        if !has_files && edit.dropped.is_empty() && !named.pruned && !has_news_of_files {
            // Nothing is gained by an edit.
            if parts.no_room.is_some() || parts.behind.is_some() {
                return Ok(parts.outcome(CheckpointReport::default(), false));
            }
        }
        let has_changed = !parts.ready.is_empty() || !edit.dropped.is_empty();
        self.device().sync_directory()?;
        if parts.has_merged() {
            // Merges take their time, and files are removed soon. The store has answered just now.
            self.check_owner(Owner::check)?;
        }
        self.append_edit(&edit, &mut parts)?;
        if let Some(cache) = self.shared.files.block_cache() {
            // A crash does not take the counter of files below this number any more.
            cache.raise_files_end(edit.next_file);
        }
        self.maintenance
            .logged_bytes
            .fetch_sub(logged, Ordering::Relaxed);
        let kept_before = kept_log_ids(&state);
        state.apply(edit, "the checkpoint's edit")?;
        self.remove_kept_logs(&kept_before - &kept_log_ids(&state));
        // The same versions, which share what they have in memory.
        state.catalogs = named.catalogs;
        let mut report = CheckpointReport::default();
        for part in std::mem::take(&mut parts.ready) {
            report.add(&part.report);
            self.publish(part, moment.through);
        }
        if report.merged_ranges + report.compacted_files > 0 {
            self.open_readers.let_go();
        }
        if let Some(files) = &state.index_files {
            self.index_files.note_lost_named(&files.lost);
        }
        self.give_up_lost_files();
        self.drop_storages(&moment);
        self.remove_unused_files(&moment);
        self.measure_set_aside();
        self.note_checkpoint(&report);
        self.cut_log(&state)?;
        self.compact_manifest(&state)?;
        Ok(parts.outcome(report, has_changed))
    }

    fn note_checkpoint(&self, report: &CheckpointReport) {
        let c = &self.counters;
        c.checkpoints.fetch_add(1, Ordering::Relaxed);
        c.merged_ranges
            .fetch_add(report.merged_ranges, Ordering::Relaxed);
        c.run_records
            .fetch_add(report.run_records, Ordering::Relaxed);
        c.compacted_files
            .fetch_add(report.compacted_files, Ordering::Relaxed);
        c.bytes_written
            .fetch_add(report.bytes_written, Ordering::Relaxed);
    }
}

impl Db {
    /// Runs a checkpoint, measures its duration, reports it and records its outcome.
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
                compacted_files = report.compacted_files,
                bytes_written = report.bytes_written,
                "checkpoint complete"
            );
        }
        outcome
    }
}
