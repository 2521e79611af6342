//! The third step of a checkpoint, the atomic one: an edit of the manifest. A manifest that can no
//! longer be written ends all writes.

use super::moment::{Moment, Named};
use super::parts::Parts;
use crate::catalog::edit::VersionsEdit;
use crate::db::Db;
use crate::manifest_state::{IndexFilesState, ManifestEdit, ManifestState, to_json};
use std::sync::atomic::Ordering;
use strandline_base::{Result, StorageId};

impl Db {
    /// The manifest edit that makes the checkpoint.
    pub(super) fn edit_of(
        &self,
        parts: &Parts,
        state: &ManifestState,
        moment: &Moment,
        named: &Named,
        index_files: Option<IndexFilesState>,
    ) -> ManifestEdit {
        let Named { catalogs, live, .. } = named;
        let known = state.storages.keys().copied();
        let behind = |id: &StorageId| {
            let (through, log_from) = state.covered(*id);
            // What a kept log lacks is not in the log yet: a closed-off table takes no writes.
            let is_kept = parts.kept_logs.contains_key(id);
            (
                *id,
                (through, if is_kept { moment.log_from } else { log_from }),
            )
        };
        let kept_log = |id: &StorageId| {
            let log = parts.kept_logs.get(id).or_else(|| state.kept_logs.get(id));
            Some((*id, log?.clone()))
        };
        ManifestEdit {
            checkpoint_ts: moment.through,
            log_from: moment.log_from,
            log_durable: self.wal.durable_lsn().0,
            next_file: self.shared.next_file.load(Ordering::Relaxed),
            catalogs: VersionsEdit::between(&state.catalogs, catalogs),
            identities_gone: state
                .identities
                .iter()
                .map(|(table, ..)| *table)
                .filter(|table| named.is_gone(*table))
                .collect(),
            identities: state.changed_identities(self.identities.values()),
            time: moment.time.clone(),
            storages: parts
                .ready
                .iter()
                .map(|p| (p.store.id(), p.edit.clone()))
                .collect(),
            dropped: known.filter(|id| !live.contains(id)).collect(),
            behind: parts.failed.iter().map(behind).collect(),
            kept_logs: parts.failed.iter().filter_map(kept_log).collect(),
            forgotten: named.forgotten.clone(),
            index_files,
            capacity_tier: None,
        }
    }

    /// The atomic step. The files of the parts stay if it is done, or may be.
    pub(super) fn append_edit(&self, edit: &ManifestEdit, parts: &mut Parts) -> Result<()> {
        let appended = self.manifest.append(&to_json(edit)?);
        let is_unknown = self.manifest.check_usable().is_err();
        if appended.is_ok() || is_unknown {
            // After a failed write the edit may be there at the next open all the same.
            parts.ready.iter_mut().for_each(|part| part.files.keep());
            parts.kept_files.keep();
        }
        if is_unknown {
            self.refuse_writes();
        }
        appended
    }

    /// Writes the manifest anew if its edits have become long.
    pub(super) fn compact_manifest(&self, state: &ManifestState) -> Result<()> {
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
}
