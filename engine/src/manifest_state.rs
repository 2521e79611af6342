//! The manifest's records: the state of the database at a checkpoint, and edits of this state.
//!
//! Records are JSON (documented in `docs/format.md`): small, written once per checkpoint, and
//! readable for an operator.
//!
//! Invariant: applying the edits in order to the snapshot gives the state. An edit contains
//! differences of catalogs, every changed range as a whole, and the whole lists of every changed
//! storage.

use crate::catalog::Catalog;
use crate::catalog::edit::{VersionsEdit, stored_versions};
use crate::catalog::retention::TimeMap;
use crate::store::{BasedRange, KnownBounds, KnownSequences};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strandline_base::{
    ColumnId, CommitTs, Error, RangeNo, Result, SqlType, StorageId, TableId, Value,
};
use strandline_storage::file::Extent;
use strandline_storage::tiers::PairRecord;
use strandline_tail::merge_watermarks::MergeWatermarks;

/// The state of a database at its last checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ManifestState {
    /// every commit up to it is in ranges or runs, except in storages that are behind
    pub checkpoint_ts: CommitTs,
    /// start of the log's replay, if no storage is behind
    pub log_from: u64,
    /// end of the durable log; a log that ends earlier has been cut by another program
    pub log_durable: u64,
    /// smaller file numbers have been used
    pub next_file: u64,
    /// catalog versions, oldest first, each valid from its timestamp
    #[serde(with = "stored_versions")]
    pub catalogs: Vec<(CommitTs, Arc<Catalog>)>,
    /// (table, column, last value given out)
    pub identities: Vec<(TableId, ColumnId, i64)>,
    /// the elapsed times of timestamps
    pub time: TimeMap,
    /// the storages
    pub storages: BTreeMap<StorageId, StorageState>,
    /// storages whose records could not be written, as of their last successful checkpoint
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub behind: BTreeMap<StorageId, Covered>,
    /// log records that the log itself may lack by now, of storages that are behind
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept_logs: BTreeMap<StorageId, KeptLog>,
    /// dropped storages that catalog versions still have
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub forgotten: BTreeSet<StorageId>,
    /// the files of indexes; None: there has never been one
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_files: Option<IndexFilesState>,
    /// the second directory; None: there is none
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_tier: Option<CapacityTierState>,
}

/// The fact that a database has a second directory, should the role file that says so be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapacityTierState {
    /// the id of the pair of directories
    pub pair: u128,
    /// number of the database's own directory; 0: not known
    pub directory: u64,
}

impl From<PairRecord> for CapacityTierState {
    fn from(record: PairRecord) -> Self {
        Self {
            pair: record.pair_id,
            directory: record.directory,
        }
    }
}

impl From<CapacityTierState> for PairRecord {
    fn from(state: CapacityTierState) -> Self {
        Self {
            pair_id: state.pair,
            directory: state.directory,
        }
    }
}

/// The files of indexes at a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct IndexFilesState {
    /// start of their replay
    pub redo_from: u64,
    /// smaller file numbers have been used
    pub next: u32,
    /// by number of level file how much of the log its image covers at least: bytes and 1
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub levels: BTreeMap<u32, u64>,
    /// files that are not to be opened: they lack changes
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub lost: BTreeSet<u32>,
    /// by storage: entries of versions superseded before may be gone
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub swept_from: BTreeMap<StorageId, CommitTs>,
    /// newer versions of their pages may be in an SSD cache
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cached: bool,
}

/// The log records that only one storage needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptLog {
    /// the files, in the order of the log
    pub files: Vec<KeptLogFile>,
    /// they and the storage's own files have every commit up to it
    pub through: CommitTs,
}

/// A file of a kept log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptLogFile {
    /// its number
    pub id: u64,
    /// its length
    pub bytes: u64,
    /// data files that its records name
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub data_files: BTreeSet<u64>,
}

/// The coverage of a storage's files: they have every commit up to the timestamp, and the replay of
/// later commits starts at the log position.
pub type Covered = (CommitTs, u64);

/// A storage at a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageState {
    /// ranges in chunks, by number
    pub ranges: BTreeMap<RangeNo, RangeEntry>,
    /// runs, newest first
    pub runs: Vec<u64>,
    /// type and missing value of every column that its files may have, including dropped ones
    pub columns: Vec<(SqlType, Value)>,
    /// versions superseded before it may have been dropped
    pub kept_from: CommitTs,
    /// of columns, for estimates
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bounds: KnownBounds,
    /// of keys, for hints
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sequences: KnownSequences,
}

/// A range in chunks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RangeEntry {
    /// slots in use
    pub rows: u32,
    /// every commit up to it is in the chunks
    pub merged_through: u64,
    /// every commit up to it is in the rows' metadata; absent: equal to `merged_through`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows_merged_through: Option<u64>,
    /// columns that are behind the rows' metadata, with the commits that they have
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lagging: BTreeMap<u32, u64>,
    /// the start of all rows if there is no metadata blob
    pub start: u64,
    /// no row starts later
    pub start_max: u64,
    /// no row was updated later
    pub last_updated_max: u64,
    /// rows marked deleted
    pub deleted: u32,
    /// metadata blob: file, offset, length
    pub meta: Option<(u64, u64, u64)>,
    /// by column id: file, offset, length
    pub columns: Vec<Option<(u64, u64, u64)>>,
    /// bytes of these files that newer files have superseded, by file
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub superseded: BTreeMap<u64, u64>,
}

/// A change of the state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ManifestEdit {
    /// the new scalars
    pub checkpoint_ts: CommitTs,
    /// start of the log's replay
    pub log_from: u64,
    /// end of the durable log; a log that ends earlier has been cut by another program
    pub log_durable: u64,
    /// smaller file numbers have been used
    pub next_file: u64,
    /// the change of the list
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub catalogs: Option<VersionsEdit>,
    /// tables whose counters are gone
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub identities_gone: BTreeSet<TableId>,
    /// the counters that have changed
    pub identities: Vec<(TableId, ColumnId, i64)>,
    /// the elapsed times of timestamps
    pub time: TimeMap,
    /// changed storages
    pub storages: BTreeMap<StorageId, StorageEdit>,
    /// dropped storages
    pub dropped: Vec<StorageId>,
    /// the whole list
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub behind: BTreeMap<StorageId, Covered>,
    /// the whole list
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kept_logs: BTreeMap<StorageId, KeptLog>,
    /// the whole list
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub forgotten: BTreeSet<StorageId>,
    /// the whole state
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_files: Option<IndexFilesState>,
    /// the new second directory; absent: as it was
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_tier: Option<CapacityTierState>,
}

/// A change of a storage.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StorageEdit {
    /// new or replaced ranges
    pub ranges: BTreeMap<RangeNo, RangeEntry>,
    /// the whole list
    pub runs: Vec<u64>,
    /// the whole list
    pub columns: Vec<(SqlType, Value)>,
    /// versions superseded before it may have been dropped
    pub kept_from: CommitTs,
    /// the whole list
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub bounds: KnownBounds,
    /// the whole list
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sequences: KnownSequences,
}

fn place(p: Option<(u64, Extent)>) -> Option<(u64, u64, u64)> {
    p.map(|(file, e)| (file, e.offset, e.len))
}

fn extent(p: Option<(u64, u64, u64)>) -> Option<(u64, Extent)> {
    p.map(|(file, offset, len)| (file, Extent { offset, len }))
}

impl RangeEntry {
    /// The entry of a based range.
    pub fn of(range: &BasedRange) -> Self {
        Self {
            rows: range.rows,
            merged_through: range.merged.all().0,
            rows_merged_through: (range.merged.rows() > range.merged.all())
                .then_some(range.merged.rows().0),
            lagging: range.merged.lagging().map(|(c, ts)| (c.0, ts.0)).collect(),
            start: range.start.0,
            start_max: range.start_max,
            last_updated_max: range.last_updated_max,
            deleted: range.deleted,
            meta: place(range.meta),
            columns: range.columns.iter().map(|c| place(*c)).collect(),
            superseded: range.superseded.clone(),
        }
    }
    /// The based range of an entry.
    pub fn based(&self, no: RangeNo) -> BasedRange {
        let lagging = self.lagging.iter();
        let lagging = lagging.map(|(column, ts)| (ColumnId(*column), CommitTs(*ts)));
        BasedRange {
            no,
            rows: self.rows,
            merged: MergeWatermarks::with_lagging(
                CommitTs(self.rows_merged_through.unwrap_or(self.merged_through)),
                lagging,
            ),
            start: CommitTs(self.start),
            start_max: self.start_max,
            last_updated_max: self.last_updated_max,
            deleted: self.deleted,
            meta: extent(self.meta),
            columns: self.columns.iter().map(|c| extent(*c)).collect(),
            superseded: self.superseded.clone(),
        }
    }
}

impl ManifestState {
    /// The identity columns' values in `now` that differ from this state's.
    pub fn changed_identities(
        &self,
        mut now: Vec<(TableId, ColumnId, i64)>,
    ) -> Vec<(TableId, ColumnId, i64)> {
        // Both are ordered by table and column.
        now.retain(|value| self.identities.binary_search(value).is_err());
        now
    }
    /// Applies an edit.
    ///
    /// # Errors
    /// XX001 with `place` if the edit belongs to a different state.
    pub fn apply(&mut self, edit: ManifestEdit, place: &str) -> Result<()> {
        self.checkpoint_ts = edit.checkpoint_ts;
        self.log_from = edit.log_from;
        self.log_durable = edit.log_durable;
        self.next_file = edit.next_file;
        let gone = edit.identities_gone;
        self.identities.retain(|(table, ..)| !gone.contains(table));
        for value in edit.identities {
            let (table, column, _) = value;
            let found = self
                .identities
                .binary_search_by_key(&(table, column), |v| (v.0, v.1));
            match found {
                Ok(at) => self.identities[at] = value,
                Err(at) => self.identities.insert(at, value),
            }
        }
        self.time = edit.time;
        if let Some(catalogs) = edit.catalogs {
            catalogs.apply(&mut self.catalogs, place)?;
        }
        for (id, change) in edit.storages {
            let storage = self.storages.entry(id).or_default();
            storage.ranges.extend(change.ranges);
            storage.runs = change.runs;
            storage.columns = change.columns;
            storage.kept_from = change.kept_from;
            storage.bounds = change.bounds;
            storage.sequences = change.sequences;
        }
        for id in edit.dropped {
            self.storages.remove(&id);
        }
        self.behind = edit.behind;
        self.kept_logs = edit.kept_logs;
        self.forgotten = edit.forgotten;
        self.index_files = edit.index_files;
        self.capacity_tier = edit.capacity_tier.or(self.capacity_tier);
        Ok(())
    }
    /// The edit that changes nothing.
    pub fn unchanged(&self) -> ManifestEdit {
        ManifestEdit {
            checkpoint_ts: self.checkpoint_ts,
            log_from: self.log_from,
            log_durable: self.log_durable,
            next_file: self.next_file,
            time: self.time.clone(),
            behind: self.behind.clone(),
            kept_logs: self.kept_logs.clone(),
            forgotten: self.forgotten.clone(),
            index_files: self.index_files.clone(),
            ..ManifestEdit::default()
        }
    }
    /// What is recorded of the two directories.
    pub fn pair_record(&self) -> Option<PairRecord> {
        self.capacity_tier.map(PairRecord::from)
    }
    /// The coverage of a storage's files; later commits are in the log.
    pub fn covered(&self, storage: StorageId) -> Covered {
        let all = (self.checkpoint_ts, self.log_from);
        self.behind.get(&storage).copied().unwrap_or(all)
    }
    /// The commits of a storage that its files and its kept log have; later ones are in the log.
    pub fn kept_through(&self, storage: StorageId) -> CommitTs {
        let kept = self.kept_logs.get(&storage).map(|log| log.through);
        self.covered(storage).0.max(kept.unwrap_or_default())
    }
    /// The files of kept logs.
    pub fn kept_log_files(&self) -> impl Iterator<Item = &KeptLogFile> {
        self.kept_logs.values().flat_map(|log| &log.files)
    }
    /// The start of the log's replay.
    pub fn replay_from(&self) -> u64 {
        let behind = self.behind.values().map(|(_, log_from)| *log_from);
        let pages = self.index_files.iter().map(|files| files.redo_from);
        behind.chain(pages).fold(self.log_from, u64::min)
    }
    /// The start of the replay of indexes' files. A database whose manifest knows no such file has
    /// made its first one since the checkpoint.
    pub fn indexes_from(&self) -> u64 {
        let files = self.index_files.as_ref();
        files.map_or(self.log_from, |files| files.redo_from)
    }
    /// Decodes the manifest's records: a snapshot and edits.
    pub fn decode(records: &[Vec<u8>], place: &str) -> Result<Self> {
        let bad = |e: serde_json::Error| {
            Error::corrupt(place, format!("a manifest record is not understood: {e}"))
        };
        let mut records = records.iter();
        let first = records
            .next()
            .ok_or_else(|| Error::corrupt(place, "the manifest is empty"))?;
        let mut state: Self = serde_json::from_slice(first).map_err(bad)?;
        for record in records {
            state.apply(serde_json::from_slice(record).map_err(bad)?, place)?;
        }
        Ok(state)
    }
}

/// JSON of a manifest or catalog structure.
pub fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|e| Error::internal(format!("encoding as JSON: {e}")))
}
