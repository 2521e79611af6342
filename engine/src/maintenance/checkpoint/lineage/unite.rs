//! Unites runs of one storage that `compaction` chooses. Runs that cannot be read are set aside and
//! stay as they are.

use super::compaction::{self, Choice};
use super::storage_part::StoragePart;
use crate::db::Db;
use crate::db::set_aside::Work;
use crate::maintenance::checkpoint::new_files::NewFiles;
use crate::maintenance::checkpoint::terms::Terms;
use crate::maintenance::reserve::is_full_disk;
use crate::maintenance::set_aside::contained;
use crate::store::Store;
use std::sync::Arc;
use strandline_base::{Result, RowId};
use strandline_storage::file::Tier;
use strandline_storage::run::run_file_name;
use strandline_table::lineage::history::{Reduction, unite};
use strandline_table::lineage::horizon::Horizon;
use strandline_table::update_run::{Run, RunWriter, UpdateCodec};

impl Db {
    /// Unites runs if that pays; runs that cannot be read are left as they are.
    pub(super) fn unite_if_due(&self, part: &mut StoragePart, horizon: &Horizon, terms: &Terms) {
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
        let listed = part.store.lineage().runs();
        let mut runs = part.runs.clone().unwrap_or_else(|| Vec::clone(&listed));
        let merged = part.merged_through();
        let is_fast = |run: &Run| self.shared.files.is_on_fast_tier(run.file_name());
        let chosen = compaction::choose(&runs, horizon.oldest(), &merged, all, &is_fast);
        let Some(Choice { group, tier }) = chosen else {
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
        let target = (tier, &mut files);
        let united = self.unite(&part.store, &runs[group.clone()], &reduction, target)?;
        part.files.take(files);
        let bytes = united.as_ref().map_or(0, |run| run.bytes());
        part.replaced = runs.splice(group, united).collect();
        part.runs = Some(runs);
        Ok(bytes)
    }

    /// Rewrites neighbouring runs into one, on the given tier; see [`unite`].
    fn unite(
        &self,
        store: &Store,
        runs: &[Arc<Run>],
        reduction: &Reduction<'_>,
        (tier, files): (Tier, &mut NewFiles),
    ) -> Result<Option<Arc<Run>>> {
        let mut writer: Option<RunWriter> = None;
        unite(runs, reduction, |record| {
            let run = match &mut writer {
                Some(run) => run,
                None => writer.insert(self.new_run(store, tier, files)?),
            };
            run.push(record)
        })?;
        writer.map(|w| Ok(Arc::new(w.finish()?))).transpose()
    }

    pub(super) fn new_run(
        &self,
        store: &Store,
        tier: Tier,
        files: &mut NewFiles,
    ) -> Result<RunWriter> {
        let id = self.shared.new_file_id();
        files.extend([run_file_name(id)]);
        let codec = UpdateCodec::of(&store.lineage().schema());
        RunWriter::create(&self.shared.files, tier, &run_file_name(id), id, codec)
    }
}
