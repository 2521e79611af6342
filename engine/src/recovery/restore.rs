//! Restoring a database's state from the manifest, the runs and the log.

use super::progress::RecoveryProgress;
use super::replay::{apply_row, in_parallel, place_of, restore_range};
use crate::catalog::edit::{CatalogEdit, misplaced};
use crate::catalog::identity::Identities;
use crate::catalog::{Catalog, TableDef};
use crate::db::{RecoveryReport, Restored};
use crate::manifest_state::{ManifestState, RangeEntry};
use crate::redo::{self, Redo};
use crate::store::key_build::build_key;
use crate::store::{Store, storage_schema};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use strandline_base::{CommitTs, Error, RangeNo, Result, StorageId};
use strandline_device::Device;
use strandline_storage::file::data_file::{DataFile, data_file_id};
use strandline_storage::wal::Lsn;
use strandline_table::lineage::{Lineage, Shared};
use strandline_table::range::Range;
use strandline_table::update_run::{Run, run_file_id, run_file_name};
use strandline_tail::schema::StorageSchema;
use strandline_txn::StartWord;

/// Row operations collected before they are applied in parallel.
const BATCH_OPERATIONS: usize = 1 << 16;

/// Bytes of the log records whose row operations are collected, beside a last one.
const BATCH_BYTES: usize = 8 << 20;

pub(super) struct Recovery {
    shared: Shared,
    pub stores: BTreeMap<StorageId, Arc<Store>>,
    /// what the manifest says of the storages' columns
    columns: BTreeMap<StorageId, Arc<StorageSchema>>,
    files: BTreeMap<u64, Arc<DataFile>>,
    runs: BTreeSet<u64>,
    pub identities: Identities,
    pub catalogs: Vec<(CommitTs, Arc<Catalog>)>,
    checkpoint_ts: CommitTs,
    /// storages of which files have less, and up to when
    behind: BTreeMap<StorageId, CommitTs>,
    /// storages that only catalogs of the past name
    forgotten: BTreeSet<StorageId>,
    pub last: CommitTs,
    batch: Vec<(CommitTs, Redo)>,
    /// bytes of the log records that `batch` is of
    batch_bytes: usize,
    threads: usize,
    pub progress: RecoveryProgress,
    pub report: RecoveryReport,
}

impl Recovery {
    pub fn new(
        shared: Shared,
        state: &ManifestState,
        threads: usize,
        progress: RecoveryProgress,
    ) -> Result<Self> {
        let mut recovery = Self {
            shared,
            stores: BTreeMap::new(),
            columns: state
                .storages
                .iter()
                .map(|(id, storage)| (*id, StorageSchema::new(storage.columns.clone())))
                .collect(),
            files: BTreeMap::new(),
            runs: BTreeSet::new(),
            identities: Identities::recovered(&state.identities),
            catalogs: state.catalogs.clone(),
            checkpoint_ts: state.checkpoint_ts,
            behind: state.behind.iter().map(|(id, b)| (*id, b.0)).collect(),
            forgotten: state.forgotten.clone(),
            last: state.checkpoint_ts,
            batch: Vec::new(),
            batch_bytes: 0,
            threads: threads.max(1),
            progress,
            report: RecoveryReport::default(),
        };
        recovery.report.threads = recovery.threads as u64;
        let mut before: Option<&Catalog> = None;
        for (_, catalog) in &state.catalogs {
            let is_known = |table: &&Arc<TableDef>| {
                let old = before.and_then(|before| before.tables.get(&table.id));
                old.is_some_and(|old| Arc::ptr_eq(old, table))
            };
            recovery.adopt(catalog.tables.values().filter(|table| !is_known(table)));
            before = Some(catalog);
        }
        for (id, storage) in &state.storages {
            let Some(store) = recovery.stores.get(id).cloned() else {
                continue;
            };
            for (no, entry) in &storage.ranges {
                recovery.restore_range(&store, *no, entry)?;
            }
            recovery.report.ranges += storage.ranges.len() as u64;
            recovery.open_runs(&store, &storage.runs)?;
            store.raise_kept_from(storage.kept_from);
        }
        recovery.restore_runs()?;
        recovery.progress.restored(&recovery.report);
        Ok(recovery)
    }

    /// Storages of the tables that are new or changed in a catalog version; later versions have at
    /// least the columns of earlier ones.
    fn adopt<'a>(&mut self, tables: impl Iterator<Item = &'a Arc<TableDef>>) {
        for table in tables {
            match self.stores.get(&table.storage) {
                None if self.forgotten.contains(&table.storage) => {}
                None => {
                    let before = self.columns.get(&table.storage);
                    let before = before.map(AsRef::as_ref);
                    let store = Store::new(table, before, &self.shared, None);
                    self.stores.insert(table.storage, store);
                }
                Some(store) => {
                    let schema = store.lineage.schema();
                    if schema.len() < table.next_column as usize {
                        let grown = storage_schema(table, Some(&schema));
                        store.lineage.set_schema(grown);
                    }
                    for key in &table.keys {
                        if store.key(&key.columns).is_none() {
                            store.put_key(store.empty_key(key.columns.clone()));
                        }
                    }
                }
            }
        }
    }

    fn file(&mut self, id: u64) -> Arc<DataFile> {
        let files = &self.shared.files;
        self.files
            .entry(id)
            .or_insert_with(|| DataFile::existing(files, id))
            .clone()
    }

    fn restore_range(&mut self, store: &Store, no: RangeNo, entry: &RangeEntry) -> Result<()> {
        store
            .lineage
            .restore_base(&entry.based(no), &mut |id| self.file(id))
    }

    /// Opens the runs, and makes the ranges that have rows in them but no chunks yet.
    fn open_runs(&mut self, store: &Store, ids: &[u64]) -> Result<()> {
        let lineage = &store.lineage;
        let types: Vec<_> = lineage
            .schema()
            .iter()
            .map(|(id, c)| (id, c.sql_type))
            .collect();
        let mut runs = Vec::with_capacity(ids.len());
        for &id in ids {
            let run = Run::open(&self.shared.files, &run_file_name(id), id, &types)?;
            runs.push(Arc::new(run));
            self.runs.insert(id);
        }
        if let Some(last) = runs.iter().map(|run| run.max_row().range()).max() {
            lineage.ensure_range(last);
        }
        lineage.set_runs(runs);
        Ok(())
    }

    /// Puts the pending records of all runs back into tails, range by range.
    fn restore_runs(&mut self) -> Result<()> {
        let mut ranges: Vec<(&Lineage, Arc<Range>)> = Vec::new();
        for store in self.stores.values() {
            let all = store.lineage.ranges();
            ranges.extend(all.iter().map(|range| (&*store.lineage, range.clone())));
        }
        let (next, restored) = (AtomicUsize::new(0), Restored::default());
        in_parallel(self.threads.min(ranges.len()), |_| {
            while let Some((lineage, range)) = ranges.get(next.fetch_add(1, Ordering::Relaxed)) {
                restored.add(restore_range(lineage, range)?);
                lineage.note_persisted(&range.load_full(), self.covered(lineage.id()));
            }
            Ok(())
        })?;
        self.report.run_records = restored.count();
        Ok(())
    }

    /// Up to which commit files have everything of a storage.
    fn covered(&self, storage: StorageId) -> CommitTs {
        let behind = self.behind.get(&storage);
        behind.copied().unwrap_or(self.checkpoint_ts)
    }

    pub fn replay(&mut self, end: Lsn, payload: &[u8]) -> Result<()> {
        let place = format!("log record that ends at position {}", end.0);
        let (ts, operations) = redo::decode(payload, &place)?;
        self.last = self.last.max(ts);
        self.report.log_records += 1;
        self.progress.replayed(end, &self.report);
        let is_covered = ts <= self.checkpoint_ts;
        if is_covered && self.behind.values().all(|through| ts <= *through) {
            return Ok(());
        }
        // The catalog of a transaction holds for its rows as well.
        for operation in &operations {
            if let Redo::Catalog(json) = operation
                && !is_covered
            {
                self.apply()?;
                let edit: CatalogEdit = serde_json::from_slice(json).map_err(|e| {
                    Error::corrupt(&place, format!("a logged catalog is not understood: {e}"))
                })?;
                let last = self.catalogs.last();
                let catalog = last.and_then(|(_, last)| edit.apply(last));
                let catalog = catalog.ok_or_else(|| misplaced(&place))?;
                self.adopt(edit.tables());
                self.catalogs.push((ts, Arc::new(catalog)));
            }
        }
        for operation in operations {
            match operation {
                Redo::Catalog(_) => {}
                Redo::Identity { .. } if is_covered => {}
                Redo::Identity {
                    table,
                    column,
                    value,
                } => {
                    self.identities.recover(table, column, value);
                }
                Redo::Bulk { storage, range } if ts > self.covered(storage) => {
                    self.apply()?;
                    self.restore_bulk(storage, &range, ts, &place)?;
                }
                Redo::Bulk { .. } => {}
                row if place_of(&row).is_some_and(|(storage, _)| ts > self.covered(storage)) => {
                    self.batch.push((ts, row));
                }
                _covered => {}
            }
        }
        self.batch_bytes += payload.len();
        if self.batch.len() >= BATCH_OPERATIONS || self.batch_bytes >= BATCH_BYTES {
            self.apply()?;
        }
        Ok(())
    }

    fn restore_bulk(
        &mut self,
        storage: StorageId,
        json: &[u8],
        ts: CommitTs,
        place: &str,
    ) -> Result<()> {
        let (no, mut entry): (RangeNo, RangeEntry) = serde_json::from_slice(json)
            .map_err(|e| Error::corrupt(place, format!("a logged range is not understood: {e}")))?;
        let Some(store) = self.stores.get(&storage).cloned() else {
            return Ok(());
        };
        entry.start = ts.0;
        entry.start_max = ts.0;
        self.restore_range(&store, no, &entry)?;
        store.unlisted.lock().push(no);
        Ok(())
    }

    /// Applies the collected row operations, each thread those of its ranges.
    pub fn apply(&mut self) -> Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        let stores = &self.stores;
        // Missing ranges are made first, in order: threads only fill them.
        for (_, operation) in &batch {
            if let Some((storage, row)) = place_of(operation)
                && let Some(store) = stores.get(&storage)
            {
                store.lineage.ensure_range(row.range());
            }
        }
        self.report.row_operations += batch.len() as u64;
        let threads = self.threads as u64;
        in_parallel(self.threads, |thread| {
            for (ts, operation) in &batch {
                if let Some((storage, row)) = place_of(operation)
                    && (u64::from(row.range().0) + u64::from(storage.0)) % threads == thread
                    && let Some(store) = stores.get(&storage)
                {
                    apply_row(store, *ts, operation)?;
                }
            }
            Ok(())
        })
    }

    /// Removes files that nothing refers to, closes what cannot be continued, builds the indexes.
    pub fn finish(&mut self, device: &dyn Device) -> Result<()> {
        for name in device.list()? {
            let orphan = match (data_file_id(&name), run_file_id(&name)) {
                (Some(id), _) => !self.files.contains_key(&id),
                (_, Some(id)) => !self.runs.contains(&id),
                _ => false,
            };
            if orphan {
                device.remove(&name)?;
            }
        }
        for store in self.stores.values() {
            store.lineage.finish_recovery();
            let keys: Vec<_> = store.keys().iter().map(|k| k.columns.clone()).collect();
            for columns in keys {
                build_key(store, &columns, StartWord(0))?;
            }
        }
        Ok(())
    }
}
