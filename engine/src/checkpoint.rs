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
//!
//! Several threads may prepare ranges, each on its own; runs are written in row order all the same,
//! so that the files do not depend on the threads' number but for their ids.

use crate::catalog::{Catalog, TableDef};
use crate::catalog_versions::{Version, history_from, storages_of};
use crate::compaction;
use crate::db::Db;
use crate::manifest_state::{ManifestEdit, RangeEntry, StorageEdit, to_json};
use crate::merge_schedule::Due;
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strandline_base::{CommitTs, RangeNo, Result, RowId, StorageId};
use strandline_device::Device;
use strandline_storage::wal::Lsn;
use strandline_table::base::BaseBody;
use strandline_table::data_file::{DataFile, data_file_name};
use strandline_table::history::{Reduction, unite};
use strandline_table::horizon::Horizon;
use strandline_table::merge::MergedRange;
use strandline_table::pending::PendingRecords;
use strandline_table::range::{Range, RangeVersion};
use strandline_table::update_run::{Run, RunWriter, run_file_name};
use strandline_txn::StartWord;

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

/// One storage's part of a checkpoint.
struct StoragePart {
    store: Arc<Store>,
    edit: StorageEdit,
    merged: Vec<MergedRange>,
    /// the new list, if it has changed
    runs: Option<Vec<Arc<Run>>>,
    /// runs that have been rewritten into another one
    replaced: Vec<Arc<Run>>,
    versions: Vec<Arc<RangeVersion>>,
    listed: Vec<RangeNo>,
}

impl StoragePart {
    fn new(store: &Arc<Store>) -> Self {
        Self {
            store: store.clone(),
            edit: StorageEdit::default(),
            merged: Vec::new(),
            runs: None,
            replaced: Vec::new(),
            versions: Vec::new(),
            listed: Vec::new(),
        }
    }

    /// The base of a range when this part is published.
    fn base_of(&self, no: RangeNo) -> BaseBody {
        let merged = self.merged.iter().find(|merged| merged.range.no() == no);
        match (merged, self.store.lineage.range(no)) {
            (Some(merged), _) => merged.base.body.clone(),
            (None, Some(range)) => range.load().base.body.clone(),
            (None, None) => unreachable!("a run's rows are of ranges that exist"),
        }
    }

    /// How far each range is merged when this part is published.
    fn merged_through(&self) -> BTreeMap<RangeNo, CommitTs> {
        let ranges = self.store.lineage.ranges();
        let mut merged_through: BTreeMap<RangeNo, CommitTs> = ranges
            .iter()
            .map(|range| (range.no(), range.load().base.merged_through()))
            .collect();
        let merged = self.merged.iter();
        let merged = merged.map(|m| (m.range.no(), m.chunks().merged.all()));
        merged_through.extend(merged);
        merged_through
    }

    /// Completes the edit; None if nothing has changed.
    fn finish(mut self, columns_max: usize) -> Option<Self> {
        let schema = self.store.lineage.schema();
        let columns = schema.iter().take(columns_max);
        self.edit.columns = columns
            .map(|(_, c)| (c.sql_type, c.missing.clone()))
            .collect();
        self.edit.kept_from = self.store.kept_from();
        let listed = self.store.lineage.runs();
        let runs = self.runs.as_ref().unwrap_or(&listed);
        self.edit.runs = runs.iter().map(|r| r.id()).collect();
        (self.runs.is_some() || !self.edit.ranges.is_empty()).then_some(self)
    }
}

/// What ranges of a storage are prepared with.
struct Preparation<'a> {
    store: &'a Arc<Store>,
    through: CommitTs,
    horizon: &'a Horizon,
    columns_max: usize,
    merge_all: bool,
}

/// A range's part of a checkpoint.
struct PreparedRange {
    version: Arc<RangeVersion>,
    merged: Option<MergedRange>,
    /// what is in no run yet
    records: PendingRecords,
}

impl Db {
    /// Writes pending commits as runs, merges ranges that are due (all with pending records if
    /// `merge_all`), cuts the log.
    pub fn checkpoint(&self, merge_all: bool) -> Result<CheckpointReport> {
        let logged = self.maintenance.logged_bytes.swap(0, Ordering::Relaxed);
        let outcome = self.observe_checkpoint(|| self.write_checkpoint(merge_all));
        if outcome.is_err() {
            self.maintenance
                .logged_bytes
                .fetch_add(logged, Ordering::Relaxed);
        }
        outcome
    }

    fn write_checkpoint(&self, merge_all: bool) -> Result<CheckpointReport> {
        let mut state = self.checkpoint.lock();
        self.wal.check_usable()?;
        let (log_from, through) = {
            // Of the commits that these cover, the loaded ranges are stamped.
            let _nobody_is_completing = self.completing.write();
            (self.finished_lsn.load(Ordering::Acquire), self.stable())
        };
        // With relaxed commits stable may be ahead of the disk, and files must not be.
        self.wal.sync_all()?;
        let oldest = self.txns().oldest_snapshot().min(through);
        let pruned = self.catalogs.prune(self.now_us(), oldest);
        // Later versions may not be in the log yet.
        let catalogs = self.catalogs.through(through);
        let live = storages_of(&catalogs);
        let mut report = CheckpointReport::default();
        let mut files = NewFiles::new(&self.device);
        let mut parts = Vec::new();
        for (id, store) in self.stores.read().clone() {
            if live.contains(&id) {
                let table = table_of(&catalogs, id);
                let part = self.checkpoint_store(
                    &store,
                    table.as_deref(),
                    through,
                    merge_all,
                    &mut report,
                    &mut files,
                )?;
                parts.extend(part);
            }
        }
        self.device.sync_directory()?;
        let changed = pruned || state.catalogs.len() != catalogs.len() || {
            let newest = |versions: &[Version]| versions.last().map(|v| v.0);
            newest(&state.catalogs) != newest(&catalogs)
        };
        let known: Vec<StorageId> = state.storages.keys().copied().collect();
        let edit = ManifestEdit {
            checkpoint_ts: through,
            log_from,
            log_durable: self.wal.durable_lsn().0,
            next_file: self.shared.next_file.load(Ordering::Relaxed),
            catalogs: (changed || !parts.is_empty()).then_some(catalogs),
            identities: self.identities.values(),
            storages: parts
                .iter()
                .map(|p| (p.store.id(), p.edit.clone()))
                .collect(),
            dropped: known.into_iter().filter(|id| !live.contains(id)).collect(),
        };
        let appended = self.manifest.append(&to_json(&edit)?);
        // After a failed write the edit may be there at the next open all the same.
        files.keep_if(appended.is_ok() || self.manifest.check_usable().is_err());
        appended?;
        state.apply(edit);
        for part in parts {
            self.publish(part, through);
        }
        self.drop_storages();
        self.note_checkpoint(&report);
        if self.manifest.should_compact() {
            self.manifest.compact(&to_json(&*state)?)?;
        }
        self.wal.cut_before(Lsn(log_from))?;
        Ok(report)
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

    fn checkpoint_store(
        &self,
        store: &Arc<Store>,
        table: Option<&TableDef>,
        through: CommitTs,
        merge_all: bool,
        report: &mut CheckpointReport,
        files: &mut NewFiles,
    ) -> Result<Option<StoragePart>> {
        let policy = table.map(|t| t.history).unwrap_or_default();
        let kept_from = CommitTs(history_from(policy, self.now_us())).min(through);
        // In this order: who registers a snapshot too late to be seen here sees this.
        store.raise_kept_from(kept_from);
        let held = self.txns().oldest_hold().unwrap_or(kept_from);
        let horizon = Horizon::new(kept_from.min(held), self.txns().registered_snapshots());
        let lineage = &store.lineage;
        let mut part = StoragePart::new(store);
        let preparation = Preparation {
            store,
            through,
            horizon: &horizon,
            // What an open transaction adds may still be taken back.
            columns_max: table.map_or(lineage.schema().len(), |t| t.next_column as usize),
            merge_all,
        };
        let mut writer: Option<RunWriter> = None;
        for group in lineage.ranges().chunks(self.settings.merge_threads.max(1)) {
            for prepared in self.prepare_all(&preparation, group, files)? {
                prepared.records.each(&horizon, |record| {
                    let run = match &mut writer {
                        Some(run) => run,
                        None => writer.insert(self.new_run(store, files)?),
                    };
                    report.run_records += 1;
                    run.push(record)
                })?;
                part.versions.push(prepared.version);
                if let Some(merged) = prepared.merged {
                    report.merged_ranges += 1;
                    report.bytes_written += merged.bytes;
                    let no = merged.range.no();
                    let entry = RangeEntry::of(&merged.chunks().describe(no));
                    part.edit.ranges.insert(no, entry);
                    part.merged.push(merged);
                }
            }
        }
        self.list_loaded(store, through, &mut part);
        if let Some(writer) = writer {
            let run = Arc::new(writer.finish()?);
            report.bytes_written += run.bytes();
            let before = lineage.runs();
            part.runs = Some([run].into_iter().chain(before.iter().cloned()).collect());
        }
        report.bytes_written += self.compact(&mut part, &horizon, merge_all, files)?;
        Ok(part.finish(preparation.columns_max))
    }

    /// Prepares some ranges, each on a thread of its own.
    fn prepare_all(
        &self,
        preparation: &Preparation<'_>,
        ranges: &[Arc<Range>],
        files: &mut NewFiles,
    ) -> Result<Vec<PreparedRange>> {
        let prepared: Vec<Result<PreparedRange>> = match ranges {
            [range] => vec![self.prepare(preparation, range)],
            _ => std::thread::scope(|scope| {
                let prepare = |range| scope.spawn(move || self.prepare(preparation, range));
                let threads: Vec<_> = ranges.iter().map(prepare).collect();
                let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
                    Ok(prepared) => prepared,
                    Err(panic) => std::panic::resume_unwind(panic),
                };
                threads.into_iter().map(join).collect()
            }),
        };
        // Also of those that are in vain because another one has failed.
        let merged = prepared.iter().flatten().flat_map(|p| &p.merged);
        let new = merged.flat_map(|m| &m.file);
        files.extend(new.map(|file| data_file_name(file.id())));
        prepared.into_iter().collect()
    }

    /// Merges a range if it is due and takes what is to go into the run.
    fn prepare(&self, preparation: &Preparation<'_>, range: &Arc<Range>) -> Result<PreparedRange> {
        let Preparation {
            store,
            through,
            horizon,
            columns_max,
            merge_all,
        } = *preparation;
        let lineage = &store.lineage;
        let version = range.load_full();
        let due = self.due(store, range.no(), &version, merge_all);
        let mut merged = None;
        if due != Due::No || is_dead(&version, horizon)? {
            let all = due == Due::All;
            merged = lineage.merge_range(range, through, horizon, columns_max, all)?;
        }
        let with_inserts = merged.is_none();
        let no = range.no();
        let records = lineage.pending_records(no, &version, through, with_inserts, columns_max);
        Ok(PreparedRange {
            version,
            merged,
            records,
        })
    }

    /// Rewrites neighbouring runs into one if that pays; the bytes written.
    fn compact(
        &self,
        part: &mut StoragePart,
        horizon: &Horizon,
        all: bool,
        files: &mut NewFiles,
    ) -> Result<u64> {
        let listed = part.store.lineage.runs();
        let mut runs = part.runs.clone().unwrap_or_else(|| Vec::clone(&listed));
        let merged = part.merged_through();
        let Some(group) = compaction::choose(&runs, horizon.oldest(), &merged, all) else {
            return Ok(0);
        };
        let begin = |row: RowId| {
            part.base_of(row.range())
                .begin_of_deleted(row.slot(), horizon)
        };
        let reduction = Reduction {
            horizon,
            merged_through: &merged,
            has_oldest: group.end == runs.len(),
            begin: &begin,
        };
        let united = self.unite_runs(&part.store, &runs[group.clone()], &reduction, files)?;
        let bytes = united.as_ref().map_or(0, |run| run.bytes());
        part.replaced = runs.splice(group, united).collect();
        part.runs = Some(runs);
        Ok(bytes)
    }

    fn new_run(&self, store: &Store, files: &mut NewFiles) -> Result<RunWriter> {
        let id = self.shared.new_file_id();
        files.extend([run_file_name(id)]);
        let schema = store.lineage.schema();
        let types: Vec<_> = schema.iter().map(|(id, c)| (id, c.sql_type)).collect();
        RunWriter::create(&self.shared.files, &run_file_name(id), id, &types)
    }

    /// Bulk-loaded ranges whose load has committed since the last checkpoint; those whose load was
    /// rolled back are emptied.
    fn list_loaded(&self, store: &Store, through: CommitTs, part: &mut StoragePart) {
        let unlisted = store.unlisted.lock().clone();
        for no in unlisted {
            let Some(range) = store.lineage.range(no) else {
                continue;
            };
            let version = range.load_full();
            let BaseBody::Chunks(chunks) = &version.base.body else {
                continue;
            };
            let word = chunks.start.load();
            if word == StartWord::ABORTED {
                store.lineage.empty_range(range);
                store.unlisted.lock().retain(|n| *n != no);
            } else if word.commit_ts().is_some_and(|ts| ts <= through) {
                let entry = || RangeEntry::of(&chunks.describe(no));
                part.edit.ranges.entry(no).or_insert_with(entry);
                part.listed.push(no);
            }
        }
    }

    /// Rewrites neighbouring runs into one; see [`unite`].
    fn unite_runs(
        &self,
        store: &Store,
        runs: &[Arc<Run>],
        reduction: &Reduction<'_>,
        files: &mut NewFiles,
    ) -> Result<Option<Arc<Run>>> {
        let mut writer: Option<RunWriter> = None;
        unite(runs, reduction, |record| {
            let run = match &mut writer {
                Some(run) => run,
                None => writer.insert(self.new_run(store, files)?),
            };
            run.push(record)
        })?;
        writer.map(|w| Ok(Arc::new(w.finish()?))).transpose()
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

    /// Forgets storages that no kept catalog version names and no transaction is creating.
    fn drop_storages(&self) {
        let stores: Vec<Arc<Store>> = self.stores.read().values().cloned().collect();
        // In this order: a creating transaction publishes its catalog before it lets go.
        let free: Vec<_> = stores
            .into_iter()
            .filter(|store| !store.is_held())
            .collect();
        let live = storages_of(&self.catalogs.through(CommitTs::MAX));
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

/// The files that a checkpoint has written, removed if it fails.
struct NewFiles {
    device: Arc<dyn Device>,
    names: Vec<String>,
}

impl NewFiles {
    fn new(device: &Arc<dyn Device>) -> Self {
        let device = device.clone();
        let names = Vec::new();
        Self { device, names }
    }
    fn extend(&mut self, names: impl IntoIterator<Item = String>) {
        self.names.extend(names);
    }
    fn keep_if(&mut self, keep: bool) {
        if keep {
            self.names.clear();
        }
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for name in &self.names {
            // What cannot be removed now is an orphan, removed at the next open.
            let _ = self.device.remove(name);
        }
    }
}

/// Whether nothing but deleted rows is in a range that nobody may ask for any more.
fn is_dead(version: &RangeVersion, horizon: &Horizon) -> Result<bool> {
    match &version.base.body {
        BaseBody::Chunks(chunks) if version.has_no_tail() => chunks.is_dead_at(horizon),
        _ => Ok(false),
    }
}

/// The newest definition of the table that a storage belongs (or belonged) to.
fn table_of(versions: &[Version], id: StorageId) -> Option<Arc<TableDef>> {
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
