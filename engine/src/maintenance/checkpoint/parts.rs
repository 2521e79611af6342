//! The second step of a checkpoint: each storage's part is prepared by itself. A failure of one
//! table's part does not stop the others.

use super::lineage::StoragePart;
use super::moment::Named;
use super::new_files::NewFiles;
use super::terms::Terms;
use crate::catalog::TableDef;
use crate::db::Db;
use crate::db::set_aside::Work;
use crate::maintenance::effort::Effort;
use crate::maintenance::outcome::{CheckpointOutcome, CheckpointReport};
use crate::maintenance::reserve::is_full_disk;
use crate::maintenance::set_aside::contained;
use crate::manifest_state::KeptLog;
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strandline_base::sync::Mutex;
use strandline_base::{CommitTs, Error, Result, StorageId};
use strandline_device::Device;

/// The storages' parts of a checkpoint.
pub(super) struct Parts {
    pub ready: Vec<StoragePart>,
    /// storages whose records could not be written
    pub failed: BTreeSet<StorageId>,
    /// those of them that are closed off
    pub closed_off: Vec<Arc<Store>>,
    /// their logs, if these do not have to stay in the log
    pub kept_logs: BTreeMap<StorageId, KeptLog>,
    pub kept_files: NewFiles,
    /// why the first of them could not
    pub behind: Option<Error>,
    /// why merges were given up
    pub no_room: Option<Error>,
}

impl Parts {
    fn new(device: &Arc<dyn Device>) -> Self {
        Self {
            ready: Vec::new(),
            failed: BTreeSet::new(),
            closed_off: Vec::new(),
            kept_logs: BTreeMap::new(),
            kept_files: NewFiles::new(device),
            behind: None,
            no_room: None,
        }
    }

    /// Whether there are new chunk files.
    pub fn has_merged(&self) -> bool {
        let mut reports = self.ready.iter().map(|part| &part.report);
        reports.any(|report| report.merged_ranges + report.compacted_files > 0)
    }

    /// How a checkpoint of these parts ended. A full disk is a failure of the database; any other
    /// failure is its table's.
    pub fn outcome(self, report: CheckpointReport, has_changed: bool) -> CheckpointOutcome {
        let full = || self.behind.clone().filter(is_full_disk);
        CheckpointOutcome {
            report,
            has_changed,
            failure: self.no_room.clone().or_else(full),
            behind: self.behind,
        }
    }
}

impl Db {
    /// Prepares the parts of the live storages, each by itself.
    pub(super) fn prepare_parts(&self, named: &Named, through: CommitTs, effort: Effort) -> Parts {
        let mut parts = Parts::new(self.device());
        let Named { storages, live, .. } = named;
        if effort == Effort::DropsOnly {
            parts.failed.clone_from(live);
            parts.no_room = Some(self.full_disk());
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
            if store.check_restored().is_err() {
                parts.failed.insert(id);
                parts.closed_off.push(store);
                continue;
            }
            match self.prepare_part(&store, storages.table(id).map(|t| &**t), &terms) {
                Ok(part) => parts.ready.extend(part),
                Err(error) => {
                    parts.failed.insert(id);
                    parts.behind.get_or_insert(error);
                }
            }
        }
        if effort != Effort::Freeing && !terms.is_full() {
            self.compact_all(&mut parts, named, &terms);
        }
        parts.no_room = terms.no_room.into_inner();
        parts
    }

    /// Compacts chunk files, after all other work: on a nearly full disk what it takes for a while
    /// is not missing there.
    fn compact_all(&self, parts: &mut Parts, named: &Named, terms: &Terms) {
        let Named { storages, live, .. } = named;
        for (id, store) in self.stores.read().clone() {
            if live.contains(&id) && !parts.failed.contains(&id) {
                let table = storages.table(id).map(|table| &**table);
                if !self.compact_files(&store, table, terms, &mut parts.ready) {
                    return;
                }
            }
        }
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
}
