//! One storage's part of a checkpoint: its ranges are merged, its records go into a run, its runs
//! are united. Each step stays by itself: a range that cannot be merged, and runs that cannot be
//! united, are set aside (see `maintenance::set_aside`), and the rest goes on.
//!
//! Nothing is visible to others before the part is published: a part that fails is dropped with its
//! files.

use crate::catalog::TableDef;
use crate::db::Db;
use crate::db::set_aside::Work;
use crate::maintenance::compaction;
use crate::maintenance::due::Due;
use crate::maintenance::reserve::is_full_disk;
use crate::maintenance::set_aside::contained;
use crate::manifest_state::{RangeEntry, StorageEdit};
use crate::store::Store;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::{CommitTs, Error, RangeNo, Result, RowId};
use strandline_device::Device;
use strandline_storage::file::data_file::data_file_name;
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::history::pending::PendingRecords;
use strandline_table::lineage::history::{Reduction, unite};
use strandline_table::lineage::horizon::Horizon;
use strandline_table::lineage::merge::MergedRange;
use strandline_table::lineage::range::{Range, RangeVersion};
use strandline_table::update_run::{Run, RunWriter, run_file_name};
use strandline_tail::release::TailMask;
use strandline_tail::tail_pages::Tail;
use strandline_txn::StartWord;

use super::CheckpointReport;

/// One storage's part of a checkpoint.
pub(super) struct StoragePart {
    pub store: Arc<Store>,
    pub edit: StorageEdit,
    pub merged: Vec<MergedRange>,
    /// the new list, if it has changed
    pub runs: Option<Vec<Arc<Run>>>,
    /// runs that have been rewritten into another one
    pub replaced: Vec<Arc<Run>>,
    pub versions: Vec<Arc<RangeVersion>>,
    pub listed: Vec<RangeNo>,
    /// what it has written
    pub report: CheckpointReport,
    pub files: NewFiles,
}

impl StoragePart {
    fn new(store: &Arc<Store>, device: &Arc<dyn Device>) -> Self {
        Self {
            store: store.clone(),
            edit: StorageEdit::default(),
            merged: Vec::new(),
            runs: None,
            replaced: Vec::new(),
            versions: Vec::new(),
            listed: Vec::new(),
            report: CheckpointReport::default(),
            files: NewFiles::new(device),
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

    /// Adds what a range has come to: its new base, if it was merged.
    fn add(&mut self, version: Arc<RangeVersion>, merged: Option<MergedRange>) {
        self.versions.push(version);
        let Some(merged) = merged else { return };
        self.report.merged_ranges += 1;
        self.report.bytes_written += merged.bytes;
        let no = merged.range.no();
        let entry = RangeEntry::of(&merged.chunks().describe(no));
        self.edit.ranges.insert(no, entry);
        self.merged.push(merged);
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

/// How much a checkpoint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// merges what is due
    Due,
    /// merges everything that has pending records, and tries again what has failed
    All,
    /// on a full disk: merges only where that removes deleted rows
    Freeing,
    /// on a full disk: removes dropped storages; all others stay as of their last checkpoint
    DropsOnly,
}

/// What all parts of a checkpoint are prepared with.
pub(super) struct Terms {
    pub through: CommitTs,
    pub effort: Effort,
    /// set when the disk was full: no further merge is tried
    pub no_room: Mutex<Option<Error>>,
}

impl Terms {
    fn is_full(&self) -> bool {
        self.no_room.lock().is_some()
    }
    /// Whether work that failed is tried again before its pause is over.
    pub fn retries(&self) -> bool {
        self.effort == Effort::All
    }
    /// The disk is full: smaller files may still be written, but nothing is merged.
    pub fn note_full_disk(&self, error: &Error) {
        self.no_room.lock().get_or_insert_with(|| error.clone());
    }
}

/// What ranges of a storage are prepared with.
struct Preparation<'a> {
    store: &'a Arc<Store>,
    terms: &'a Terms,
    horizon: &'a Horizon,
    columns_max: usize,
}

/// A range's part of a checkpoint.
struct PreparedRange {
    version: Arc<RangeVersion>,
    merged: Option<MergedRange>,
    /// what is in no run yet
    records: PendingRecords,
}

impl Db {
    /// Prepares the part of one storage; None if nothing of it has changed.
    ///
    /// # Errors
    /// Its records cannot be written. What was written is removed.
    pub(super) fn storage_part(
        &self,
        store: &Arc<Store>,
        table: Option<&TableDef>,
        terms: &Terms,
    ) -> Result<Option<StoragePart>> {
        let horizon = self.horizon_of(store, table, terms.through);
        let lineage = &store.lineage;
        let mut part = StoragePart::new(store, self.device());
        let preparation = Preparation {
            store,
            terms,
            horizon: &horizon,
            // What an open transaction adds may still be taken back.
            columns_max: table.map_or(lineage.schema().len(), |t| t.next_column as usize),
        };
        let mut writer: Option<RunWriter> = None;
        for group in lineage.ranges().chunks(self.settings.merge_threads.max(1)) {
            for prepared in self.prepare_all(&preparation, group, &mut part.files)? {
                prepared.records.each(&horizon, |record| {
                    let run = match &mut writer {
                        Some(run) => run,
                        None => writer.insert(self.new_run(store, &mut part.files)?),
                    };
                    part.report.run_records += 1;
                    run.push(record)
                })?;
                part.add(prepared.version, prepared.merged);
            }
        }
        self.list_loaded(store, terms.through, &mut part);
        if let Some(writer) = writer {
            let run = Arc::new(writer.finish()?);
            part.report.bytes_written += run.bytes();
            let before = lineage.runs();
            part.runs = Some([run].into_iter().chain(before.iter().cloned()).collect());
        }
        self.unite_if_due(&mut part, &horizon, terms);
        Ok(part.finish(preparation.columns_max))
    }

    /// Which versions of a storage may still be asked for.
    fn horizon_of(&self, store: &Store, table: Option<&TableDef>, through: CommitTs) -> Horizon {
        self.horizon_from(store, self.kept_from(table, through))
    }

    /// From when on the history policy keeps every version, as of `through`.
    pub(crate) fn kept_from(&self, table: Option<&TableDef>, through: CommitTs) -> CommitTs {
        let policy = table.map(|t| t.history).unwrap_or_default();
        self.history_begins()(policy).min(through)
    }

    /// The same of a storage whose history is kept from `kept_from` on.
    pub(crate) fn horizon_from(&self, store: &Store, kept_from: CommitTs) -> Horizon {
        // In this order: who registers a snapshot too late to be seen here sees this.
        store.raise_kept_from(kept_from);
        let (txns, intervals) = (self.txns(), self.txns().held_intervals());
        Horizon::new(kept_from, txns.registered_snapshots(), intervals)
    }

    /// Prepares some ranges, each on a thread of its own.
    fn prepare_all(
        &self,
        preparation: &Preparation<'_>,
        ranges: &[Arc<Range>],
        files: &mut NewFiles,
    ) -> Result<Vec<PreparedRange>> {
        let prepare = |range: &Arc<Range>| contained(|| Ok(self.prepare(preparation, range)));
        let prepared: Vec<Result<PreparedRange>> = match ranges {
            [range] => vec![prepare(range)],
            _ => std::thread::scope(|scope| {
                let spawn = |range| scope.spawn(move || prepare(range));
                let threads: Vec<_> = ranges.iter().map(spawn).collect();
                let joined = threads.into_iter().map(|thread| thread.join());
                joined
                    .map(|prepared| {
                        prepared.unwrap_or_else(|_| Err(Error::internal("a merge thread panicked")))
                    })
                    .collect()
            }),
        };
        // Also of those that are in vain because another one has failed.
        let merged = prepared.iter().flatten().flat_map(|p| &p.merged);
        let new = merged.flat_map(|m| &m.file);
        files.extend(new.map(|file| data_file_name(file.id())));
        prepared.into_iter().collect()
    }

    /// Merges a range if it is due and takes what is to go into the run.
    fn prepare(&self, preparation: &Preparation<'_>, range: &Arc<Range>) -> PreparedRange {
        let lineage = &preparation.store.lineage;
        let version = range.load_full();
        let merged = self.merge_if_due(preparation, range, &version);
        let with_inserts = merged.is_none();
        let (through, columns_max) = (preparation.terms.through, preparation.columns_max);
        let no = range.no();
        let records = lineage.pending_records(no, &version, through, with_inserts, columns_max);
        PreparedRange {
            version,
            merged,
            records,
        }
    }

    /// Merges a range if it is due and neither set aside nor refused by a full disk.
    fn merge_if_due(
        &self,
        preparation: &Preparation<'_>,
        range: &Arc<Range>,
        version: &RangeVersion,
    ) -> Option<MergedRange> {
        let Preparation {
            store,
            terms,
            horizon,
            columns_max,
        } = *preparation;
        let (no, work) = (range.no(), Work::Merge(range.no()));
        if terms.is_full() || self.pausing_failure(store, work, terms.retries()).is_some() {
            return None;
        }
        let merged = contained(|| {
            let due = match terms.effort {
                Effort::Freeing if has_deletes(version) => Due::All,
                Effort::Freeing | Effort::DropsOnly => Due::No,
                Effort::Due | Effort::All => self.due(store, no, version, terms.retries()),
            };
            if due == Due::No && !is_dead(version, horizon)? {
                return Ok(None);
            }
            let all = due == Due::All;
            let lineage = &store.lineage;
            let merged = lineage.merge_range(range, terms.through, horizon, columns_max, all)?;
            if merged.is_none() && due != Due::No {
                // What is pending may be what small rollbacks have left.
                lineage.release_aborted(no, TailMask::MAX);
            }
            Ok(merged)
        });
        match merged {
            Ok(merged) => {
                self.note_work(store, work, Ok(()));
                merged
            }
            // No fault of the range's.
            Err(error) if is_full_disk(&error) => {
                terms.note_full_disk(&error);
                None
            }
            Err(error) => {
                self.note_work(store, work, Err(&error));
                None
            }
        }
    }

    /// Unites runs if that pays; runs that cannot be read are left as they are.
    fn unite_if_due(&self, part: &mut StoragePart, horizon: &Horizon, terms: &Terms) {
        let (store, work) = (part.store.clone(), Work::UniteRuns);
        if terms.is_full()
            || self
                .pausing_failure(&store, work, terms.retries())
                .is_some()
        {
            return;
        }
        match contained(|| self.unite_runs(part, horizon, terms.retries())) {
            Ok(bytes) => {
                part.report.bytes_written += bytes;
                self.note_work(&store, work, Ok(()));
            }
            Err(error) if is_full_disk(&error) => terms.note_full_disk(&error),
            Err(error) => self.note_work(&store, work, Err(&error)),
        }
    }

    /// Rewrites neighbouring runs into one if that pays; the bytes written.
    fn unite_runs(&self, part: &mut StoragePart, horizon: &Horizon, all: bool) -> Result<u64> {
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
        let mut files = NewFiles::new(self.device());
        let united = self.unite(&part.store, &runs[group.clone()], &reduction, &mut files)?;
        part.files.take(files);
        let bytes = united.as_ref().map_or(0, |run| run.bytes());
        part.replaced = runs.splice(group, united).collect();
        part.runs = Some(runs);
        Ok(bytes)
    }

    /// Rewrites neighbouring runs into one; see [`unite`].
    fn unite(
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
}

/// Files that a checkpoint has written, removed unless they are kept.
pub(super) struct NewFiles {
    device: Arc<dyn Device>,
    names: Vec<String>,
}

impl NewFiles {
    pub fn new(device: &Arc<dyn Device>) -> Self {
        let device = device.clone();
        let names = Vec::new();
        Self { device, names }
    }
    fn extend(&mut self, names: impl IntoIterator<Item = String>) {
        self.names.extend(names);
    }
    fn take(&mut self, mut others: Self) {
        self.names.append(&mut others.names);
    }
    /// They stay: the manifest names them, or may do so.
    pub fn keep(&mut self) {
        self.names.clear();
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

/// Whether a merge may remove rows of a range.
fn has_deletes(version: &RangeVersion) -> bool {
    let tails = version.tails.iter().flatten();
    let pending = |tail: &Arc<Tail>| tail.pages().iter().any(|page| page.has_deletes());
    let is_marked = match &version.base.body {
        BaseBody::Chunks(chunks) => chunks.deleted > 0,
        BaseBody::Insert(_) => false,
    };
    is_marked || tails.into_iter().any(pending)
}

/// Whether nothing but deleted rows is in a range that nobody may ask for any more.
fn is_dead(version: &RangeVersion, horizon: &Horizon) -> Result<bool> {
    match &version.base.body {
        BaseBody::Chunks(chunks) if version.has_no_tail() => chunks.is_dead_at(horizon),
        _ => Ok(false),
    }
}
