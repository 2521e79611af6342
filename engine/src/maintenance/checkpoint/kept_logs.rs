//! The logs of closed-off tables. Such a table takes no writes until the next open, so all that it
//! needs of the log is there when the database is opened: the first checkpoint copies it into a
//! *kept log*, a file for each such table, and the log is cut as always. An opening that can
//! restore the table replays its kept log, then the log.
//!
//! Invariants:
//! 1. A kept log has all operations on its storage of commits after those in the storage's files,
//!    up to its `through`. Replay takes operations on the storage up to `through` from the kept log
//!    only, later ones from the log only.
//! 2. The manifest's edit that moves the start of the replay is the one that names the file, which
//!    is durable by then. A crash before it leaves an orphan.
//! 3. Data files that a kept log names stay, also while it cannot be read.

use super::moment::Moment;
use super::new_files::NewFiles;
use super::parts::Parts;
use crate::db::Db;
use crate::db::set_aside::Work;
use crate::index_files::IndexRecord;
use crate::maintenance::effort::Effort;
use crate::maintenance::set_aside::contained;
use crate::manifest_state::{KeptLog, KeptLogFile, ManifestState};
use crate::redo;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use strandline_base::{CommitTs, Result, StorageId};
use strandline_storage::kept_log::{KeptLogWriter, kept_log_name};
use strandline_storage::wal::Lsn;

/// A kept log that is being written.
struct Keeping {
    /// earlier commits are in the storage's files or in its kept log
    after: CommitTs,
    log: KeptLog,
    file: Option<(KeptLogFile, KeptLogWriter)>,
}

impl Db {
    /// Copies the log records that only closed-off storages need into kept logs, if that has not
    /// been done since the database was opened. Else the log stays.
    pub(super) fn keep_logs(
        &self,
        parts: &mut Parts,
        state: &ManifestState,
        moment: &Moment,
        effort: Effort,
    ) {
        let Some(first) = parts.closed_off.first() else {
            return;
        };
        let pausing = self.pausing_failure(first, Work::KeepLog, effort == Effort::All);
        let kept = match pausing {
            Some(failure) => Err(failure),
            None => contained(|| self.kept_logs(parts, state, moment)),
        };
        let outcome = kept.as_ref().map(|_| ());
        for store in &parts.closed_off {
            self.note_work(store, Work::KeepLog, outcome);
        }
        match kept {
            Ok(logs) => parts.kept_logs = logs,
            Err(error) => {
                // Removes what was written.
                parts.kept_files = NewFiles::new(self.device());
                parts.behind.get_or_insert(error);
            }
        }
    }

    fn kept_logs(
        &self,
        parts: &mut Parts,
        state: &ManifestState,
        moment: &Moment,
    ) -> Result<BTreeMap<StorageId, KeptLog>> {
        let (mut logs, mut keeping) = (BTreeMap::new(), BTreeMap::new());
        let mut from = moment.log_from;
        for id in parts.closed_off.iter().map(|store| store.id()) {
            let log = state.kept_logs.get(&id).cloned().unwrap_or_default();
            if log.through >= self.opened_through && state.kept_logs.contains_key(&id) {
                logs.insert(id, log);
                continue;
            }
            from = from.min(state.covered(id).1);
            let after = state.kept_through(id);
            let file = None;
            keeping.insert(id, Keeping { after, log, file });
        }
        if keeping.is_empty() {
            return Ok(logs);
        }
        let to = Lsn(moment.log_from);
        self.wal.read((Lsn(from), to), &mut |_, record| {
            self.keep_record(record, &mut keeping, &mut parts.kept_files)
        })?;
        for (id, Keeping { mut log, file, .. }) in keeping {
            if let Some((mut file, writer)) = file {
                file.bytes = writer.finish()?;
                log.files.push(file);
            }
            log.through = moment.through;
            logs.insert(id, log);
        }
        Ok(logs)
    }

    /// Copies the operations of a log record that kept logs need.
    fn keep_record(
        &self,
        record: &[u8],
        keeping: &mut BTreeMap<StorageId, Keeping>,
        new_files: &mut NewFiles,
    ) -> Result<()> {
        if IndexRecord::decode(record)?.is_some() {
            return Ok(());
        }
        let (ts, operations) = redo::decode(record, "a log record")?;
        let mut copies: BTreeMap<StorageId, Vec<u8>> = BTreeMap::new();
        for redo in operations {
            let storage = redo.operation.scope().storage();
            let Some((storage, kept)) = storage.and_then(|id| Some((id, keeping.get_mut(&id)?)))
            else {
                continue;
            };
            if ts <= kept.after {
                continue;
            }
            let (file, _) = match &mut kept.file {
                Some(file) => file,
                None => kept.file.insert(self.new_kept_log(new_files)?),
            };
            file.data_files.extend(redo.operation.data_files());
            let copy = copies.entry(storage);
            let copy = copy.or_insert_with(|| redo::header_of(record).to_vec());
            copy.extend_from_slice(&record[redo.at]);
        }
        for (storage, copy) in copies {
            if let Some((_, writer)) = keeping.get_mut(&storage).and_then(|k| k.file.as_mut()) {
                writer.push(&copy)?;
            }
        }
        Ok(())
    }

    fn new_kept_log(&self, new_files: &mut NewFiles) -> Result<(KeptLogFile, KeptLogWriter)> {
        let id = self.shared.next_file.fetch_add(1, Ordering::Relaxed);
        new_files.extend([kept_log_name(id)]);
        let writer = KeptLogWriter::create(&**self.device(), self.manifest.database_id(), id)?;
        let file = KeptLogFile {
            id,
            ..KeptLogFile::default()
        };
        Ok((file, writer))
    }

    /// Removes kept logs that the manifest no longer names.
    pub(super) fn remove_kept_logs(&self, ids: BTreeSet<u64>) {
        for id in ids {
            // What cannot be removed now is an orphan, removed at the next open.
            let _ = self.device().remove(&kept_log_name(id));
        }
    }
}

/// The numbers of the kept logs' files.
pub(super) fn kept_log_ids(state: &ManifestState) -> BTreeSet<u64> {
    state.kept_log_files().map(|file| file.id).collect()
}
