//! Checkpoints: what is committed goes from tails and log into files.
//!
//! A checkpoint at T = stable: (1) merge the ranges that are due, (2) write one run per storage
//! with the committed records ≤ T that are in no run, (3) sync, append one manifest edit — the
//! atomic step —, (4) publish the merged ranges, (5) cut the log. A crash before (3) leaves
//! orphaned files, a crash after it loses nothing: replay skips what is at or below T.
//!
//! Invariants:
//! 1. A record leaves memory (its page is dropped) only when the manifest names a run that has it.
//! 2. The log is cut only behind the position that the manifest names.
//! 3. A storage whose records cannot be written stays as of its last checkpoint. The manifest says
//!    so (`behind`), and the log is kept from there; all other storages go on.
//! 4. The storage of a dropped table goes with its files when its own retention is over, whatever
//!    other tables keep; catalog versions that name it may stay (`forgotten`).
//! 5. After a manifest edit whose fate is unknown there is no further checkpoint, and the log takes
//!    no further commit: the files of that edit stay, as the next open may find it.
//!
//! Several threads may prepare ranges, each on its own; runs are written in row order all the same,
//! so that the files do not depend on the threads' number but for their ids.

mod storage_part;

use crate::catalog::edit::VersionsEdit;
use crate::catalog::retention::TimeMap;
use crate::catalog::versions::{Version, kept_storages, storages_of};
use crate::catalog::{Catalog, TableDef};
use crate::db::Db;
use crate::db::set_aside::Work;
use crate::maintenance::reserve::{full_disk, is_full_disk};
use crate::maintenance::set_aside::contained;
use crate::manifest_state::{ManifestEdit, ManifestState, to_json};
use crate::store::Store;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
pub(crate) use storage_part::Effort;
use storage_part::{StoragePart, Terms};
use strandline_base::{CommitTs, Error, Result, StorageId};
use strandline_storage::file::data_file::DataFile;
use strandline_storage::wal::Lsn;
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::merge::MergedRange;
use tracing::info;

/// So many checkpoints in a row free space on a full disk before it is a failure.
const FREEING_ROUNDS_MAX: usize = 4;

/// What a checkpoint did.
#[derive(Clone, Debug, Default)]
pub struct CheckpointReport {
    /// ranges merged into new chunks
    pub merged_ranges: u64,
    /// records written into runs
    pub run_records: u64,
    /// bytes of new chunk and run files
    pub bytes_written: u64,
}

impl CheckpointReport {
    fn add(&mut self, other: &Self) {
        self.merged_ranges += other.merged_ranges;
        self.run_records += other.run_records;
        self.bytes_written += other.bytes_written;
    }
}

/// How a checkpoint ended that changed the manifest.
pub(crate) struct CheckpointOutcome {
    pub report: CheckpointReport,
    /// storages were written or dropped
    pub has_changed: bool,
    /// the device refused something that other tables need as well: the disk is full
    pub failure: Option<Error>,
    /// the first table whose records could not be written
    pub behind: Option<Error>,
}

/// The moment that a checkpoint is of.
struct Moment {
    /// replay starts here
    log_from: u64,
    through: CommitTs,
    /// when histories begin
    time: TimeMap,
    /// no snapshot is older
    oldest: CommitTs,
}

/// The catalogs of a checkpoint and what they name.
struct Named {
    catalogs: Vec<Version>,
    /// versions have gone since the last checkpoint
    pruned: bool,
    /// storages that may be asked for
    live: BTreeSet<StorageId>,
    /// storages that only versions name in which they may not be asked for any more
    forgotten: BTreeSet<StorageId>,
}

/// The storages' parts of a checkpoint.
#[derive(Default)]
struct Parts {
    ready: Vec<StoragePart>,
    /// storages whose records could not be written
    failed: BTreeSet<StorageId>,
    /// why the first of them could not
    behind: Option<Error>,
    /// why merges were given up
    no_room: Option<Error>,
}

impl Db {
    /// Writes pending commits as runs, merges ranges that are due (all with pending records if
    /// `merge_all`), cuts the log. What fails for one table does not keep other work from being
    /// done.
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

    /// A checkpoint that makes do with the space there is: when the disk is full, it gives up the
    /// reserve and does what frees space, then the rest.
    pub(crate) fn checkpoint_in_space(&self, effort: Effort) -> Result<CheckpointOutcome> {
        if !self.has_given_up_reserve() {
            let outcome = self.write_checkpoint(effort);
            let is_full = match &outcome {
                Ok(outcome) => outcome.failure.is_some(),
                Err(error) => is_full_disk(error),
            };
            if !is_full {
                return outcome;
            }
            self.give_up_reserve();
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
        let logged = self.maintenance.logged_bytes.load(Ordering::Relaxed);
        let moment = self.checkpoint_moment()?;
        let named = self.named_at(&moment);
        let mut parts = self.prepare_parts(&named, moment.through, effort);
        let edit = self.edit_of(&parts, &state, &moment, &named);
        if parts.ready.is_empty() && edit.dropped.is_empty() && !named.pruned {
            // Nothing is gained by an edit.
            if let Some(failure) = parts.no_room.take().or(parts.behind.take()) {
                return Err(failure);
            }
        }
        let has_changed = !parts.ready.is_empty() || !edit.dropped.is_empty();
        self.device().sync_directory()?;
        self.append_edit(&edit, &mut parts)?;
        self.maintenance
            .logged_bytes
            .fetch_sub(logged, Ordering::Relaxed);
        state.apply(edit, "the checkpoint's edit")?;
        // The same versions, which share what they have in memory.
        state.catalogs = named.catalogs;
        let mut report = CheckpointReport::default();
        for part in parts.ready {
            report.add(&part.report);
            self.publish(part, moment.through);
        }
        if report.merged_ranges > 0 {
            self.open_readers.let_go();
        }
        self.drop_storages(&moment);
        self.measure_set_aside();
        self.note_checkpoint(&report);
        self.wal.cut_before(Lsn(state.replay_from()))?;
        self.compact_manifest(&state)?;
        Ok(CheckpointOutcome {
            report,
            has_changed,
            failure: parts
                .no_room
                .or_else(|| parts.behind.clone().filter(is_full_disk)),
            behind: parts.behind,
        })
    }

    /// What the checkpoint is of; the log is durable up to there.
    fn checkpoint_moment(&self) -> Result<Moment> {
        let (log_from, through) = {
            // Of the commits that these cover, the loaded ranges are stamped.
            let _nobody_is_completing = self.completing.write();
            (self.finished_lsn.load(Ordering::Acquire), self.stable())
        };
        // With relaxed commits stable may be ahead of the disk, and files must not be.
        self.wal.sync_all()?;
        Ok(Moment {
            log_from,
            through,
            time: self.retention.map(self.stable()),
            oldest: self.txns().oldest_snapshot().min(through),
        })
    }

    /// The catalogs that may still be asked for, and the storages that they name.
    fn named_at(&self, moment: &Moment) -> Named {
        let begins = |policy| moment.time.begin_of(policy);
        let pruned = self.catalogs.prune(begins, moment.oldest);
        // Later versions may not be in the log yet.
        let catalogs = self.catalogs.through(moment.through);
        let live = kept_storages(&catalogs, begins, moment.oldest);
        let forgotten = &storages_of(&catalogs) - &live;
        Named {
            catalogs,
            pruned,
            live,
            forgotten,
        }
    }

    /// Prepares the parts of the live storages, each by itself.
    fn prepare_parts(&self, named: &Named, through: CommitTs, effort: Effort) -> Parts {
        let mut parts = Parts::default();
        let Named { catalogs, live, .. } = named;
        if effort == Effort::DropsOnly {
            parts.failed.clone_from(live);
            parts.no_room = Some(full_disk());
            return parts;
        }
        let terms = Terms {
            through,
            effort,
            no_room: Mutex::default(),
        };
        self.set_aside.retain(|storage| live.contains(&storage));
        let stores = self.stores.read().clone();
        for (id, store) in stores.into_iter().filter(|(id, _)| live.contains(id)) {
            match self.prepare_part(&store, table_of(catalogs, id).as_deref(), &terms) {
                Ok(part) => parts.ready.extend(part),
                Err(error) => {
                    parts.failed.insert(id);
                    parts.behind.get_or_insert(error);
                }
            }
        }
        parts.no_room = terms.no_room.into_inner();
        parts
    }

    /// Prepares the part of one storage, unless that has failed and its pause is not over.
    fn prepare_part(
        &self,
        store: &Arc<Store>,
        table: Option<&TableDef>,
        terms: &Terms,
    ) -> Result<Option<StoragePart>> {
        let work = Work::WriteRecords;
        if let Some(failure) = self.pausing_failure(store, work, terms.retries()) {
            return Err(failure);
        }
        let part = contained(|| self.storage_part(store, table, terms));
        match &part {
            // No fault of the table's.
            Err(error) if is_full_disk(error) => terms.note_full_disk(error),
            Err(error) => self.note_work(store, work, Err(error)),
            Ok(_) => self.note_work(store, work, Ok(())),
        }
        part
    }

    /// The manifest edit that makes the checkpoint.
    fn edit_of(
        &self,
        parts: &Parts,
        state: &ManifestState,
        moment: &Moment,
        named: &Named,
    ) -> ManifestEdit {
        let Named { catalogs, live, .. } = named;
        let known = state.storages.keys().copied();
        let as_before = |id: &StorageId| (*id, state.covered(*id));
        ManifestEdit {
            checkpoint_ts: moment.through,
            log_from: moment.log_from,
            log_durable: self.wal.durable_lsn().0,
            next_file: self.shared.next_file.load(Ordering::Relaxed),
            catalogs: VersionsEdit::between(&state.catalogs, catalogs),
            identities: state.changed_identities(self.identities.values()),
            time: moment.time.clone(),
            storages: parts
                .ready
                .iter()
                .map(|p| (p.store.id(), p.edit.clone()))
                .collect(),
            dropped: known.filter(|id| !live.contains(id)).collect(),
            behind: parts.failed.iter().map(as_before).collect(),
            forgotten: named.forgotten.clone(),
        }
    }

    /// The atomic step. The files of the parts stay if it is done, or may be.
    fn append_edit(&self, edit: &ManifestEdit, parts: &mut Parts) -> Result<()> {
        let appended = self.manifest.append(&to_json(edit)?);
        let is_unknown = self.manifest.check_usable().is_err();
        if appended.is_ok() || is_unknown {
            // After a failed write the edit may be there at the next open all the same.
            parts.ready.iter_mut().for_each(|part| part.files.keep());
        }
        if is_unknown {
            self.refuse_writes();
        }
        appended
    }

    /// Writes the manifest anew if its edits have become long.
    fn compact_manifest(&self, state: &ManifestState) -> Result<()> {
        if !self.manifest.should_compact() {
            return Ok(());
        }
        let compacted = self.manifest.compact(&to_json(state)?);
        if self.manifest.check_usable().is_err() {
            self.refuse_writes();
        }
        compacted
    }

    /// The manifest can no longer be written: nor can the log, with the same error, so that there
    /// is one state. Commits that the log has by now are made durable and acknowledged.
    fn refuse_writes(&self) {
        if let Err(failure) = self.manifest.check_usable() {
            // An error of the log itself is what its users get instead.
            let _ = self.wal.close(failure);
        }
    }

    fn note_checkpoint(&self, report: &CheckpointReport) {
        let c = &self.counters;
        c.checkpoints.fetch_add(1, Ordering::Relaxed);
        c.merged_ranges
            .fetch_add(report.merged_ranges, Ordering::Relaxed);
        c.run_records
            .fetch_add(report.run_records, Ordering::Relaxed);
        c.bytes_written
            .fetch_add(report.bytes_written, Ordering::Relaxed);
    }

    fn publish(&self, part: StoragePart, through: CommitTs) {
        let lineage = &part.store.lineage;
        if let Some(runs) = part.runs {
            lineage.set_runs(runs);
        }
        part.replaced.iter().for_each(|run| run.doom());
        for version in &part.versions {
            lineage.note_persisted(version, through);
        }
        for merged in &part.merged {
            doom_replaced(&merged.range.load().base.body, merged);
            lineage.publish_merge(merged);
            self.merge_schedule
                .note_merged(part.store.id(), merged.range.no());
        }
        let listed = part.listed;
        part.store.unlisted.lock().retain(|no| !listed.contains(no));
    }

    /// Forgets storages that may not be asked for any more and no transaction is creating.
    fn drop_storages(&self, moment: &Moment) {
        let stores: Vec<Arc<Store>> = self.stores.read().values().cloned().collect();
        // In this order: a creating transaction publishes its catalog before it lets go.
        let free: Vec<_> = stores
            .into_iter()
            .filter(|store| !store.is_held())
            .collect();
        let catalogs = self.catalogs.through(CommitTs::MAX);
        let begins = |policy| moment.time.begin_of(policy);
        let live = kept_storages(&catalogs, begins, moment.oldest);
        for store in free.into_iter().filter(|store| !live.contains(&store.id())) {
            let mut stores = self.stores.write();
            if stores
                .get(&store.id())
                .is_some_and(|s| Arc::ptr_eq(s, &store))
            {
                stores.remove(&store.id());
                store.lineage.doom_files();
            }
        }
    }
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

/// The newest definition of the table that a storage belongs (or belonged) to.
pub(crate) fn table_of(versions: &[Version], id: StorageId) -> Option<Arc<TableDef>> {
    let find = |c: &Catalog| c.tables.values().find(|t| t.storage == id).cloned();
    versions.iter().rev().find_map(|(_, catalog)| find(catalog))
}

/// Removes the files that lie entirely in what a merge replaces.
fn doom_replaced(old: &BaseBody, merged: &MergedRange) {
    let BaseBody::Chunks(old) = old else { return };
    let new = merged.chunks();
    let kept: BTreeSet<u64> = new
        .columns
        .iter()
        .flatten()
        .map(|c| c.file.id())
        .chain(new.meta.as_ref().map(|m| m.file.id()))
        .collect();
    let files = old.columns.iter().flatten().map(|c| &c.file);
    for file in files.chain(old.meta.as_ref().map(|m| &m.file)) {
        if !kept.contains(&file.id()) {
            DataFile::doom(file);
        }
    }
}
