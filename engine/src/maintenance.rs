//! Checkpoints and merges, in the background or on demand.
//!
//! A checkpoint at T = stable: (1) merge the ranges that are due, (2) write one run per storage
//! with the committed records ≤ T that are in no run, (3) sync, append one manifest edit — the
//! atomic step —, (4) publish the merged ranges, (5) cut the log. A crash before (3) leaves
//! orphaned files, a crash after it loses nothing: replay skips what is at or below T.
//!
//! Invariants:
//! 1. A record leaves memory (its page is dropped) only when the manifest names a run that has it.
//! 2. The log is cut only behind the position that the manifest names.
//! 3. Writers never wait for a checkpoint, except for memory when tails exceed their share.

use crate::catalog::{Catalog, TableDef};
use crate::catalog_versions::{Version, history_from, storages_of};
use crate::compaction;
use crate::db::{Db, Maintenance, closed};
use crate::events;
use crate::manifest_state::{ManifestEdit, RangeEntry, StorageEdit, to_json};
use crate::store::Store;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use strandline_base::{CommitTs, Error, ErrorKind, RangeNo, Result, RowId, SqlState, StorageId};
use strandline_device::Device;
use strandline_storage::wal::Lsn;
use strandline_table::base::BaseBody;
use strandline_table::data_file::{DataFile, data_file_name};
use strandline_table::history::{Reduction, unite};
use strandline_table::horizon::Horizon;
use strandline_table::insert_range::InsertRange;
use strandline_table::merge::MergedRange;
use strandline_table::range::RangeVersion;
use strandline_table::update_run::{Run, RunWriter, run_file_name};
use strandline_txn::StartWord;

/// How long the maintenance thread dozes when nobody wakes it.
const IDLE: Duration = Duration::from_millis(200);

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
        // What an open transaction adds may still be taken back.
        let columns_max = table.map_or(lineage.schema().len(), |t| t.next_column as usize);
        let mut writer: Option<RunWriter> = None;
        let all = merge_all || self.is_short_of_memory();
        for range in lineage.ranges().iter() {
            let version = range.load_full();
            let mut merged = None;
            if self.is_due(&version, merge_all) || is_dead(&version, &horizon)? {
                merged = lineage.merge_range(range, through, &horizon, columns_max, all)?;
                let file = merged.iter().flat_map(|m| &m.file);
                files.extend(file.map(|file| data_file_name(file.id())));
            }
            let with_inserts = merged.is_none();
            let no = range.no();
            let records = lineage.pending_records(
                no,
                &version,
                through,
                with_inserts,
                columns_max,
                &horizon,
            )?;
            for record in &records {
                let run = match &mut writer {
                    Some(run) => run,
                    None => writer.insert(self.new_run(store, files)?),
                };
                run.push(record)?;
            }
            report.run_records += records.len() as u64;
            part.versions.push(version);
            if let Some(merged) = merged {
                report.merged_ranges += 1;
                report.bytes_written += merged.bytes;
                let entry = RangeEntry::of(&merged.chunks().describe(range.no()));
                part.edit.ranges.insert(range.no(), entry);
                part.merged.push(merged);
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
        Ok(part.finish(columns_max))
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

    /// Whether a range should be merged now.
    fn is_due(&self, version: &RangeVersion, merge_all: bool) -> bool {
        let pending: u32 = version.tails.iter().flatten().map(|t| t.pending()).sum();
        match &version.base.body {
            BaseBody::Insert(rows) => {
                let full = rows.is_closed() || rows.rows() as usize >= strandline_base::RANGE_ROWS;
                rows.rows() > 0 && (merge_all || full || self.is_short_of_memory())
            }
            BaseBody::Chunks(chunks) => {
                let due = pending >= self.settings.merge_pending_records
                    || (pending > 0 && self.is_short_of_memory());
                due || (merge_all && (pending > 0 || chunks.deleted > 0))
            }
        }
    }

    fn is_short_of_memory(&self) -> bool {
        self.shared.page_bytes.load(Ordering::Relaxed) > self.settings.tail_bytes() / 2
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
                store.lineage.empty_range(&range);
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

    /// Asks the maintenance thread for a checkpoint soon.
    pub(crate) fn want_maintenance(&self) {
        let mut state = self.maintenance.state.lock();
        state.wanted = true;
        self.maintenance.work.notify_all();
    }

    /// Makes writers wait while tails use more memory than their share.
    pub(crate) fn wait_for_tail_memory(&self, cancelled: &dyn Fn() -> bool) -> Result<()> {
        let used = || self.shared.page_bytes.load(Ordering::Relaxed);
        let limit = self.settings.tail_bytes();
        if used() <= limit {
            return Ok(());
        }
        if !self.settings.background_maintenance {
            self.checkpoint(true)?;
            return self.refuse_if_over(used(), limit);
        }
        let mut state = self.maintenance.state.lock();
        let first = state.rounds;
        while used() > limit {
            if let Some(error) = state.failure.clone() {
                return Err(error);
            }
            if state.has_stopped {
                return Err(closed());
            }
            // A checkpoint that began before the wait may have missed what could be freed by now.
            if state.rounds >= first + 2 {
                return self.refuse_if_over(used(), limit);
            }
            if cancelled() {
                return Err(Error::new(
                    ErrorKind::Cancelled,
                    SqlState::QUERY_CANCELED,
                    "canceling statement due to user request",
                ));
            }
            state.wanted = true;
            self.maintenance.work.notify_all();
            self.maintenance.done.wait_for(&mut state, IDLE);
        }
        Ok(())
    }

    fn refuse_if_over(&self, used: usize, limit: usize) -> Result<()> {
        if used <= limit {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unavailable,
            SqlState::OUT_OF_MEMORY,
            format!("pending updates use {used} bytes of memory, their share is {limit}"),
        )
        .with_detail("Open transactions and snapshots keep them from being merged.")
        .with_hint("Commit in smaller steps, end long transactions, or raise memory_bytes."))
    }

    /// Starts the background thread. It holds the database only while it works.
    pub(crate) fn start_maintenance(self: &Arc<Self>) -> Result<()> {
        let db = Arc::downgrade(self);
        let maintenance = self.maintenance.clone();
        let thread = std::thread::Builder::new()
            .name("strandline-maintenance".into())
            .spawn(move || {
                let _stopping = Stopping(&maintenance);
                while let Some(wanted) = maintenance.next_turn() {
                    let Some(db) = db.upgrade() else { break };
                    db.maintenance_turn(wanted);
                }
            })
            .map_err(|e| Error::io("starting the maintenance thread", &e))?;
        self.maintenance.state.lock().thread = Some(thread);
        Ok(())
    }

    fn maintenance_turn(&self, wanted: bool) {
        // Relaxed commits reach the disk at the latest now.
        let mut result = self
            .wal
            .sync_all()
            .and_then(|()| self.wal.prepare_next_segment());
        if result.is_ok() && (wanted || self.is_short_of_memory() || self.has_due_range()) {
            result = self.checkpoint(false).map(|_| ());
        }
        let mut state = self.maintenance.state.lock();
        state.rounds += 1;
        events::background_work(state.failure.as_ref(), result.as_ref().err());
        state.failure = result.err();
        self.maintenance.done.notify_all();
    }

    fn has_due_range(&self) -> bool {
        let stores: Vec<Arc<Store>> = self.stores.read().values().cloned().collect();
        let through = self.stable();
        stores.iter().any(|store| {
            store.lineage.ranges().iter().any(|range| {
                let version = range.load_full();
                self.is_due(&version, false)
                    && match &version.base.body {
                        BaseBody::Insert(rows) => self.is_finished(store, rows, through),
                        BaseBody::Chunks(_) => true,
                    }
            })
        })
    }

    fn is_finished(&self, store: &Store, rows: &Arc<InsertRange>, through: CommitTs) -> bool {
        rows.rows() > 0 && store.lineage.insert_range_is_finished(rows, through)
    }

    /// Waits for running work, checkpoints, closes. Later transactions are refused.
    pub fn close(&self) -> Result<()> {
        if self.maintenance.closed.swap(true, Ordering::AcqRel) {
            return Err(closed());
        }
        let thread = {
            let mut state = self.maintenance.state.lock();
            self.maintenance.work.notify_all();
            state.thread.take()
        };
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
        let result = self.checkpoint(false).map(|_| ());
        // Transactions that are still open must not write into what may be another's by then.
        let result = result.and(self.wal.close(closed()));
        *self.lock.lock() = None;
        result
    }
}

impl Maintenance {
    /// Waits for work a little, after a failure in any case: whether a checkpoint is wanted; None
    /// when the database is closed.
    fn next_turn(&self) -> Option<bool> {
        let mut state = self.state.lock();
        let has_failed = state.failure.is_some();
        if (!state.wanted || has_failed) && !self.closed.load(Ordering::Acquire) {
            self.work.wait_for(&mut state, IDLE);
        }
        let wanted = std::mem::take(&mut state.wanted);
        (!self.closed.load(Ordering::Acquire)).then_some(wanted)
    }
}

/// The maintenance thread ends, orderly or by a panic: nobody may wait for it any more.
struct Stopping<'a>(&'a Maintenance);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.state.lock().has_stopped = true;
        self.0.done.notify_all();
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

impl Drop for Db {
    fn drop(&mut self) {
        self.maintenance.closed.store(true, Ordering::Release);
        self.maintenance.work.notify_all();
        // Relaxed commits are not lost by an orderly end without close.
        let _ = self.wal.sync_all();
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
