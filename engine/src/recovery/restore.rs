//! Restoring a database's state from the manifest, the runs and the log.
//!
//! A storage whose rows cannot be restored (a damaged or missing run, a log record that does not
//! suit its rows) is closed off: nothing reads or writes it until the next open. It stays as of its
//! last checkpoint, and its part of the log is kept (`maintenance::checkpoint`), so nothing is
//! lost. An index that cannot be built is unusable. All other tables are opened.

use super::noted_rows::NotedRows;
use super::page_records::PageRecords;
use super::parallel::in_parallel;
use super::progress::RecoveryProgress;
use crate::catalog::TableDef;
use crate::catalog::index::{IndexDef, IndexMethod, IndexState, IndexStorage};
use crate::catalog::index_file::IndexFile;
use crate::db::set_aside::Work;
use crate::db::{RecoveryReport, Restored};
use crate::expressions::RowExpressions;
use crate::index_files::IndexRecord;
use crate::maintenance::set_aside;
use crate::manifest_state::{KeptLog, ManifestState};
use crate::redo::{self, Commit, KINDS, Operation, Redo, Restoration, RowOperation, Scope};
use crate::settings::Settings;
use crate::store::index_build::{Unobserved, fill, slots};
use crate::store::{Store, StoredIndex, StoredRange};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strandline_base::{CommitTs, Error, Result, StorageId};
use strandline_device::Device;
use strandline_storage::file::data_file::data_file_id;
use strandline_storage::kept_log::{kept_log_id, kept_log_name, read_kept_log};
use strandline_storage::run::run_file_id;
use strandline_storage::wal::Lsn;
use strandline_txn::StartWord;

/// Row operations collected before they are applied in parallel.
const BATCH_OPERATIONS: usize = 1 << 16;

/// Bytes of the log records whose row operations are collected, beside a last one.
const BATCH_BYTES: usize = 8 << 20;

/// A recovery at work.
pub(super) struct Recovery {
    /// as far as it is restored
    pub database: Restoration,
    runs: BTreeSet<u64>,
    kept_logs: BTreeSet<u64>,
    /// data files that kept logs name
    kept_data_files: BTreeSet<u64>,
    checkpoint_ts: CommitTs,
    /// storages of which files have less, and up to when
    behind: BTreeMap<StorageId, CommitTs>,
    /// up to when these storages' files and kept logs have everything
    kept_through: BTreeMap<StorageId, CommitTs>,
    pub last: CommitTs,
    /// operations done again, by kind
    pub operations: [u64; KINDS.len()],
    batch: Vec<(CommitTs, RowOperation)>,
    /// bytes of the log records that `batch` is of
    batch_bytes: usize,
    pub threads: usize,
    pub progress: RecoveryProgress,
    pub report: RecoveryReport,
    /// work on single storages that failed
    pub failures: Vec<(StorageId, Work, Error)>,
    /// the log's changes of indexes' pages
    pub page_records: PageRecords,
    /// the end of the log's last record that was read
    read_through: Lsn,
    /// rows whose entries are added to indexes in levels again
    pub noted_rows: NotedRows,
    /// the files of indexes that could be opened
    pub index_files: BTreeSet<IndexFile>,
    /// see [`Settings::only_looks`]
    pub only_looks: bool,
}

/// Restores a part of `store`, unless another part of it has failed; a failure or a panic closes it
/// off. None: the part is not restored.
fn contained<R>(store: &Store, restore: impl FnOnce() -> Result<R>) -> Option<R> {
    store.check_restored().ok()?;
    let restored = set_aside::contained(restore);
    restored.map_err(|failure| store.close_off(failure)).ok()
}

impl Recovery {
    pub fn new(
        database: Restoration,
        state: &ManifestState,
        settings: &Settings,
        progress: RecoveryProgress,
    ) -> Result<Self> {
        let mut recovery = Self {
            database,
            runs: BTreeSet::new(),
            kept_logs: state.kept_log_files().map(|file| file.id).collect(),
            kept_data_files: state
                .kept_log_files()
                .flat_map(|file| file.data_files.iter().copied())
                .collect(),
            checkpoint_ts: state.checkpoint_ts,
            behind: state.behind.iter().map(|(id, b)| (*id, b.0)).collect(),
            kept_through: state
                .behind
                .keys()
                .map(|id| (*id, state.kept_through(*id)))
                .collect(),
            last: state.checkpoint_ts,
            operations: [0; KINDS.len()],
            batch: Vec::new(),
            batch_bytes: 0,
            threads: settings.recovery_threads.max(1),
            progress,
            report: RecoveryReport::default(),
            failures: Vec::new(),
            page_records: PageRecords::new(Lsn(state.indexes_from()), settings.memory_bytes),
            read_through: Lsn(state.replay_from()),
            noted_rows: NotedRows::new(Lsn(state.indexes_from()), settings.memory_bytes),
            index_files: BTreeSet::new(),
            only_looks: settings.only_looks,
        };
        recovery.report.threads = recovery.threads as u64;
        for (id, storage) in &state.storages {
            let Some(store) = recovery.database.stores.get(id).cloned() else {
                continue;
            };
            for (no, entry) in &storage.ranges {
                recovery.database.restore_base(&store, *no, entry)?;
            }
            recovery.report.ranges += storage.ranges.len() as u64;
            // Their files stay, whether they can be read or not.
            recovery.runs.extend(&storage.runs);
            let files = &recovery.database.shared.files;
            contained(&store, || store.restore_runs(files, &storage.runs));
            store.raise_kept_from(storage.kept_from);
            store.set_bounds(storage.bounds.clone());
            store.set_sequences(storage.sequences.clone());
        }
        recovery.restore_runs()?;
        recovery.progress.restored(&recovery.report);
        Ok(recovery)
    }

    /// Puts the pending records of all runs back into tails, range by range.
    fn restore_runs(&mut self) -> Result<()> {
        let mut ranges: Vec<(&Store, StoredRange)> = Vec::new();
        for store in self.database.stores.values() {
            let all = store.ranges().into_iter();
            ranges.extend(all.map(|range| (&**store, range)));
        }
        let (next, restored) = (AtomicUsize::new(0), Restored::default());
        in_parallel(self.threads.min(ranges.len()), |_| {
            while let Some((store, range)) = ranges.get(next.fetch_add(1, Ordering::Relaxed)) {
                let covered = self.covered(store.id());
                let count = contained(store, || store.restore_pending(range, covered));
                restored.add(count.unwrap_or(0));
            }
            Ok(())
        })?;
        self.report.run_records = restored.count();
        Ok(())
    }

    /// Up to which commit a storage's files have everything.
    fn covered(&self, storage: StorageId) -> CommitTs {
        let behind = self.behind.get(&storage).copied();
        behind.unwrap_or(self.checkpoint_ts)
    }

    /// Up to which commit the log's operations of this scope need no replay.
    fn kept_through(&self, scope: Scope) -> CommitTs {
        let behind = scope.storage().and_then(|id| self.kept_through.get(&id));
        behind.copied().unwrap_or(self.checkpoint_ts)
    }

    /// Replays the logs that are kept for single storages. One that cannot be read closes its
    /// storage off.
    pub fn restore_kept_logs(
        &mut self,
        device: &dyn Device,
        database_id: u128,
        kept_logs: &BTreeMap<StorageId, KeptLog>,
    ) -> Result<()> {
        for (id, log) in kept_logs {
            let Some(store) = self.database.stores.get(id).cloned() else {
                continue;
            };
            for file in &log.files {
                let place = kept_log_name(file.id);
                let which = (database_id, file.id, file.bytes);
                contained(&store, || {
                    read_kept_log(device, which, &mut |record| {
                        self.replay_kept(*id, record, &place)
                    })
                });
            }
        }
        self.apply()
    }

    fn replay_kept(&mut self, storage: StorageId, record: &[u8], place: &str) -> Result<()> {
        let (ts, operations) = redo::decode(record, place)?;
        if ts <= self.covered(storage) {
            return Ok(());
        }
        let commit = Commit { ts, place };
        for redo in operations {
            self.replay_operation(&commit, redo)?;
        }
        self.note_batched(record.len())
    }

    pub fn replay(&mut self, end: Lsn, payload: &[u8]) -> Result<()> {
        let begin = std::mem::replace(&mut self.read_through, end);
        match IndexRecord::decode(payload)? {
            Some(IndexRecord::Pages(record)) => {
                self.page_records.note((begin, end), record);
                return Ok(());
            }
            Some(IndexRecord::Swept(storage, from)) => {
                self.database.index_files.recover_sweep(storage, from);
                return Ok(());
            }
            None => {}
        }
        let place = format!("log record that ends at position {}", end.0);
        let (ts, mut operations) = redo::decode(payload, &place)?;
        self.last = self.last.max(ts);
        self.report.log_records += 1;
        self.progress.replayed(end, &self.report);
        let is_covered = ts <= self.checkpoint_ts;
        let (is_noted, mut kept) = (self.noted_rows.wants(end), self.kept_through.values());
        if is_covered && !is_noted && kept.all(|through| ts <= *through) {
            return Ok(());
        }
        let commit = Commit { ts, place: &place };
        // The catalog of a transaction holds for its rows as well.
        operations.sort_by_key(|redo| redo.operation.scope() != Scope::Definitions);
        for redo in operations {
            if is_noted {
                let versions = &self.database.catalogs;
                self.noted_rows.note(&redo.operation, versions);
            }
            if ts > self.kept_through(redo.operation.scope()) {
                self.replay_operation(&commit, redo)?;
            }
        }
        self.note_batched(payload.len())
    }

    /// Applies the collected operations, to which a record of `bytes` bytes has added some, if they
    /// are many.
    fn note_batched(&mut self, bytes: usize) -> Result<()> {
        self.batch_bytes += bytes;
        match self.batch.len() >= BATCH_OPERATIONS || self.batch_bytes >= BATCH_BYTES {
            true => self.apply(),
            false => Ok(()),
        }
    }

    fn replay_operation(&mut self, commit: &Commit<'_>, redo: Redo) -> Result<()> {
        self.operations[redo.kind] += 1;
        match redo.operation {
            Operation::Row(row) => self.batch.push((commit.ts, row)),
            Operation::Other(other) => {
                if other.scope() != Scope::Identities {
                    self.apply()?;
                }
                other.restore(commit, &mut self.database)?;
            }
        }
        Ok(())
    }

    /// Applies the collected row operations, each thread those of its ranges.
    pub fn apply(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let stores = &self.database.stores;
        // Missing ranges are made first, in order: threads only fill them.
        for (_, operation) in &batch {
            if let Some(store) = stores.get(&operation.storage) {
                store.restore_ranges(operation.row.range());
            }
        }
        self.report.row_operations += batch.len() as u64;
        let threads = self.threads as u64;
        in_parallel(self.threads, |thread| {
            for (ts, operation) in &batch {
                let RowOperation { storage, row, .. } = operation;
                if (u64::from(row.range().0) + u64::from(storage.0)) % threads == thread
                    && let Some(store) = stores.get(storage)
                {
                    contained(store, || operation.restore(store, *ts));
                }
            }
            Ok(())
        })
    }

    fn is_orphan(&self, name: &str) -> bool {
        if let Some(id) = data_file_id(name) {
            return !self.database.files.contains_key(&id) && !self.kept_data_files.contains(&id);
        }
        run_file_id(name).is_some_and(|id| !self.runs.contains(&id))
            || kept_log_id(name).is_some_and(|id| !self.kept_logs.contains(&id))
    }

    /// Removes files that nothing refers to, closes what cannot be continued, builds the indexes.
    pub fn finish(
        &mut self,
        device: &dyn Device,
        expressions: Option<&dyn RowExpressions>,
    ) -> Result<()> {
        for name in device.list()? {
            if self.is_orphan(&name) {
                device.remove(&name)?;
            }
        }
        for (id, store) in &self.database.stores {
            if let Err(failure) = store.check_restored() {
                if let Some(table) = self.database.newest_with(*id) {
                    self.give_up_levels(table);
                }
                self.failures.push((*id, Work::Restore, failure));
                store.forget_records();
                continue;
            }
            store.finish_recovery();
            let table = self.database.newest_with(*id);
            for key in store.keys().iter() {
                let is_in_file =
                    |table: &&Arc<TableDef>| !table.storage_of_key(&key.columns).is_memory();
                let filled = set_aside::contained(|| match table.filter(is_in_file) {
                    Some(table) => self.key_in_file(table, key, store),
                    None => {
                        fill(store, key, StartWord(0), self.threads, &Unobserved)?;
                        Ok(0)
                    }
                });
                self.report.entered_rows += filled.as_ref().unwrap_or(&0);
                if let Err(failure) = filled {
                    let failure = unusable(
                        failure,
                        &self.database.key_name(*id, &key.columns),
                        self.only_looks,
                    );
                    store.put_index(key.made_unusable(store, failure.clone()));
                    self.failures.push((*id, Work::BuildIndexes, failure));
                }
            }
        }
        self.build_secondary(expressions);
        Ok(())
    }

    /// Builds the secondary indexes of the newest definitions.
    fn build_secondary(&mut self, expressions: Option<&dyn RowExpressions>) {
        let Some((_, catalog)) = self.database.catalogs.last() else {
            return;
        };
        for table in catalog.tables.values() {
            let Some(store) = self.database.stores.get(&table.storage) else {
                continue;
            };
            for def in &table.indexes {
                let built = set_aside::contained(|| {
                    // An index that is being built is about to be removed, and nobody reads that
                    // of a table that cannot be restored: an ordered one in memory stands in.
                    if def.state != IndexState::Valid || store.check_restored().is_err() {
                        let def = IndexDef {
                            method: IndexMethod::Ordered,
                            storage: IndexStorage::Memory,
                            ..IndexDef::clone(def)
                        };
                        let index = StoredIndex::secondary(table, &def, store, expressions)?;
                        return Ok((index, 0));
                    }
                    if let Some(opened) = self.secondary_of_file(table, def, store, expressions)? {
                        return Ok(opened);
                    }
                    let index = StoredIndex::secondary(table, def, store, expressions)?;
                    let building = self.progress.building(table, def, slots(store));
                    fill(store, &index, StartWord(0), self.threads, &building)?;
                    Ok((index, 0))
                });
                let (index, entered) = built.unwrap_or_else(|failure| {
                    let failure =
                        unusable(failure, &format!("index \"{}\"", def.name), self.only_looks);
                    let id = table.storage;
                    self.failures
                        .push((id, Work::BuildIndexes, failure.clone()));
                    (StoredIndex::unusable_secondary(def, store, failure), 0)
                });
                self.report.entered_rows += entered;
                store.put_index(index);
            }
        }
    }
}

/// The error of an index that could not be built, or not be opened by an opening that only looks.
fn unusable(failure: Error, index: &str, only_looks: bool) -> Error {
    if only_looks {
        return failure.context(index);
    }
    let what = format!("{index} could not be built when the database was opened");
    failure.context(what).with_hint(
        "Restore a backup, or drop the index or its constraint and copy what scans can read. An \
         index that found too little memory is built by REINDEX, or by opening with more.",
    )
}
