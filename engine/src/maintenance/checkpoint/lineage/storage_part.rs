//! One storage's part of a checkpoint: its ranges are merged, its records go into a run, its runs
//! are united. The steps fail independently: a range that cannot be merged, and runs that cannot be
//! united, are set aside (see `maintenance::set_aside`); the other steps continue.
//!
//! Nothing is visible to others before the part is published: a part that fails is dropped with its
//! files.

use super::merge::Preparation;
use crate::catalog::TableDef;
use crate::db::Db;
use crate::maintenance::checkpoint::new_files::NewFiles;
use crate::maintenance::checkpoint::terms::Terms;
use crate::maintenance::outcome::CheckpointReport;
use crate::manifest_state::{RangeEntry, StorageEdit};
use crate::store::Store;
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::{CommitTs, RangeNo, Result};
use strandline_device::{Device, Tier};
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::merge::MergeOutput;
use strandline_table::lineage::range::RangeVersion;
use strandline_table::update_run::{Run, RunWriter};
use strandline_txn::StartWord;

/// One storage's part of a checkpoint.
pub(in crate::maintenance::checkpoint) struct StoragePart {
    pub store: Arc<Store>,
    pub edit: StorageEdit,
    pub merged: Vec<MergeOutput>,
    /// ranges that are not merged, and whose files are compacted
    pub compacted: Vec<MergeOutput>,
    /// the new list, if it has changed
    pub runs: Option<Vec<Arc<Run>>>,
    /// runs that have been rewritten into another one
    pub replaced: Vec<Arc<Run>>,
    pub versions: Vec<Arc<RangeVersion>>,
    pub listed: Vec<RangeNo>,
    /// the files and bytes written
    pub report: CheckpointReport,
    pub files: NewFiles,
}

impl StoragePart {
    pub(super) fn new(store: &Arc<Store>, device: &Arc<dyn Device>) -> Self {
        Self {
            store: store.clone(),
            edit: StorageEdit::default(),
            merged: Vec::new(),
            compacted: Vec::new(),
            runs: None,
            replaced: Vec::new(),
            versions: Vec::new(),
            listed: Vec::new(),
            report: CheckpointReport::default(),
            files: NewFiles::new(device),
        }
    }

    /// The base of a range when this part is published.
    pub fn base_of(&self, no: RangeNo) -> BaseBody {
        let merged = self.merged.iter().find(|merged| merged.range.no() == no);
        match (merged, self.store.lineage().range(no)) {
            (Some(merged), _) => merged.base.body.clone(),
            (None, Some(range)) => range.load().base.body.clone(),
            (None, None) => unreachable!("a run's rows are of ranges that exist"),
        }
    }

    /// How far each range is merged when this part is published.
    pub fn merged_through(&self) -> BTreeMap<RangeNo, CommitTs> {
        let ranges = self.store.lineage().ranges();
        let mut merged_through: BTreeMap<RangeNo, CommitTs> = ranges
            .iter()
            .map(|range| (range.no(), range.load().base.merged_through()))
            .collect();
        let merged = self.merged.iter();
        let merged = merged.map(|m| (m.range.no(), m.chunks().merged.all()));
        merged_through.extend(merged);
        merged_through
    }

    /// Adds a prepared range: its new base, if it was merged.
    fn add(&mut self, version: Arc<RangeVersion>, merged: Option<MergeOutput>) {
        self.versions.push(version);
        let Some(merged) = merged else { return };
        self.report.merged_ranges += 1;
        self.report.bytes_written += merged.bytes;
        self.name(&merged);
        self.merged.push(merged);
    }

    /// Adds a range whose files are compacted, which this part may have merged before.
    pub(super) fn add_compacted(&mut self, compacted: MergeOutput, files: usize) {
        self.report.compacted_files += files as u64;
        self.report.bytes_written += compacted.bytes;
        self.name(&compacted);
        let no = compacted.range.no();
        match self
            .merged
            .iter_mut()
            .find(|merged| merged.range.no() == no)
        {
            Some(merged) => *merged = compacted,
            None => self.compacted.push(compacted),
        }
    }

    /// The manifest's edit names the new base.
    fn name(&mut self, new: &MergeOutput) {
        let no = new.range.no();
        let entry = RangeEntry::of(&new.chunks().describe(no));
        self.edit.ranges.insert(no, entry);
    }

    /// Completes the edit; None if nothing has changed.
    pub(super) fn finish(mut self, columns_max: usize) -> Option<Self> {
        let schema = self.store.lineage().schema();
        let columns = schema.iter().take(columns_max);
        self.edit.columns = columns
            .map(|(_, c)| (c.sql_type, c.missing.clone()))
            .collect();
        self.edit.kept_from = self.store.kept_from();
        let listed = self.store.lineage().runs();
        let runs = self.runs.as_ref().unwrap_or(&listed);
        self.edit.runs = runs.iter().map(|r| r.id()).collect();
        if self.runs.is_none() && self.edit.ranges.is_empty() {
            return None;
        }
        let ranges = self.store.lineage().ranges().into_iter();
        let bodies = ranges.map(|range| self.base_of(range.no()));
        self.edit.bounds = self.store.bounds_of(bodies, self.edit.columns.len());
        self.store.set_bounds(self.edit.bounds.clone());
        self.edit.sequences = self.store.sequences();
        Some(self)
    }
}

/// How many columns a table has by committed definitions: what an open transaction adds may still
/// be taken back.
pub(super) fn columns_max(store: &Store, table: Option<&TableDef>) -> usize {
    table.map_or(store.lineage().schema().len(), |t| t.next_column as usize)
}

impl Db {
    /// Prepares the part of one storage; None if the storage has not changed.
    ///
    /// # Errors
    /// Its records cannot be written. The files written so far are removed.
    pub(in crate::maintenance::checkpoint) fn storage_part(
        &self,
        store: &Arc<Store>,
        table: Option<&TableDef>,
        terms: &Terms,
    ) -> Result<Option<StoragePart>> {
        let horizon = self.horizon_of(store, table, terms.through);
        let lineage = store.lineage();
        let mut part = StoragePart::new(store, self.device());
        let preparation = Preparation {
            store,
            terms,
            horizon: &horizon,
            columns_max: columns_max(store, table),
        };
        let mut writer: Option<RunWriter> = None;
        for group in lineage.ranges().chunks(self.merges_at_once()) {
            for prepared in self.prepare_all(&preparation, group, &mut part.files)? {
                prepared.records.each(&horizon, |record| {
                    let run = match &mut writer {
                        Some(run) => run,
                        None => writer.insert(self.new_run(store, Tier::Fast, &mut part.files)?),
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

    /// Bulk-loaded ranges whose load has committed since the last checkpoint; those whose load was
    /// rolled back are emptied.
    fn list_loaded(&self, store: &Store, through: CommitTs, part: &mut StoragePart) {
        let unlisted = store.unlisted.lock().clone();
        for no in unlisted {
            let Some(range) = store.lineage().range(no) else {
                continue;
            };
            let version = range.load_full();
            let BaseBody::Chunks(chunks) = &version.base.body else {
                continue;
            };
            let word = chunks.start.load();
            if word == StartWord::ABORTED {
                store.lineage().empty_range(range);
                store.unlisted.lock().retain(|n| *n != no);
            } else if word.commit_ts().is_some_and(|ts| ts <= through) {
                let entry = || RangeEntry::of(&chunks.describe(no));
                part.edit.ranges.entry(no).or_insert_with(entry);
                part.listed.push(no);
            }
        }
    }
}
