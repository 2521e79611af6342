//! A storage as the engine keeps it: the rows of one table, its indexes, and the lock that lets
//! definition changes wait for writers.
//!
//! [`Store`] is the handle of a table of any kind. Rows are read and written through
//! [`TableStore`]; ranges, files and statistics through the methods of [`Store`] and
//! [`StoredRange`]. Only this room and `maintenance/checkpoint/lineage` know that the rows are in a
//! lineage table (`cargo xtask tidy` checks it). A second kind of table makes the field `lineage`
//! and [`StoredRange`] enums, and gets a room of its own beside `checkpoint/lineage`.

pub(crate) mod all_rows;
pub(crate) mod dead_runs;
pub(crate) mod entered_keys;
mod files;
pub(crate) mod gone_rows;
mod holders;
mod images;
pub(crate) mod index_build;
mod key_hints;
mod key_of_row;
pub(crate) mod key_sweep;
mod left_rows;
pub(crate) mod merged_bases;
pub(crate) mod moved_keys;
pub(crate) mod moved_rows;
mod range;
mod range_reads;
mod restore;
mod sequences;
mod statistics;
mod stored_index;
mod table_store;
mod unit_windows;

pub(crate) use files::{HeldFiles, damage_of};
pub(crate) use holders::{Hold, Waiting};
pub(crate) use range::{RangeForm, RangeSummary, StoredRange};
pub(crate) use range_reads::StoreRequest;
pub(crate) use restore::{RestoredFrom, RowChange};
pub use sequences::KnownSequences;
pub use statistics::{ColumnStatistics, KnownBounds, TableStatistics};
pub(crate) use stored_index::{
    EntryKey, StoredIndex, find_duplicate, find_key, find_readable_index, forget_expired,
    hinted_row, key_index, readable_index, secondary_index,
};
pub(crate) use table_store::TableStore;
pub(crate) use unit_windows::UnitWindows;

// Results of reads, and what all storages share: callers name them as this room's.
pub(crate) use strandline_table::lineage::horizon::Horizon;
pub(crate) use strandline_table::lineage::image::RangeImage;
pub(crate) use strandline_table::lineage::read::NewestRow;
pub(crate) use strandline_table::lineage::read::versions::{RowVersion, VersionBounds};
pub(crate) use strandline_table::lineage::scan::versions::{
    RangeVersions, VersionInterval, VersionRows,
};
pub(crate) use strandline_table::lineage::scan::{RangePart, RangeSnapshot, ScanCounters};
pub(crate) use strandline_table::lineage::{BasedRange, Shared};
pub(crate) use strandline_table::update_run::RunRecord;

use crate::catalog::TableDef;
use crate::index_files::IndexFiles;
use arc_swap::ArcSwap;
use holders::Holders;
use std::sync::{Arc, OnceLock};
use strandline_base::sync::{AtomicU64, Mutex, Ordering};
use strandline_base::{ColumnId, CommitTs, Error, RangeNo, Result, StorageId, Value};
use strandline_table::lineage::Lineage;
use strandline_tail::schema::StorageSchema;
use strandline_txn::{StartWord, Visibility};

/// One storage as the engine keeps it.
pub struct Store {
    /// the rows
    lineage: Arc<Lineage>,
    /// one per distinct list of key columns
    keys: ArcSwap<Vec<Arc<StoredIndex>>>,
    /// secondary indexes, each with its own number
    secondary: ArcSwap<Vec<Arc<StoredIndex>>>,
    holders: Mutex<Holders>,
    /// versions superseded before it may be gone
    kept_from: AtomicU64,
    /// of columns, as of the newest checkpoint
    bounds: ArcSwap<KnownBounds>,
    /// of keys, as of the checkpoint that the database was opened with
    opened_sequences: ArcSwap<KnownSequences>,
    /// bulk-loaded ranges that no checkpoint has put into the manifest yet
    pub unlisted: Mutex<Vec<RangeNo>>,
    /// why its rows could not be restored, if so: nothing reads or writes them then
    unrestored: OnceLock<Error>,
    /// the files of the database's indexes
    index_files: Arc<IndexFiles>,
}

/// The storage's columns, by id, as `table` and everything before it defined them. Columns dropped
/// before have no definition any more: they keep a place of an arbitrary type that no reader
/// requests.
pub fn storage_schema(table: &TableDef, before: Option<&StorageSchema>) -> Arc<StorageSchema> {
    let known = before.map_or(0, StorageSchema::len) as u32;
    let columns = (0..table.next_column.max(known)).map(|id| {
        let id = ColumnId(id);
        match (table.column_by_id(id), before) {
            (Some(c), _) => (c.sql_type, c.missing.clone()),
            (None, Some(before)) if (id.0 as usize) < before.len() => (
                before.column(id).sql_type,
                before.column(id).missing.clone(),
            ),
            (None, _) => (strandline_base::SqlType::Boolean, Value::Null),
        }
    });
    StorageSchema::new(columns)
}

impl Store {
    /// An empty storage for `table` without indexes, taken by `holder` if a transaction is creating
    /// it. `before`: the columns it is known to have had.
    pub fn new(
        table: &TableDef,
        before: Option<&StorageSchema>,
        (shared, index_files): (&Shared, &Arc<IndexFiles>),
        holder: Option<StartWord>,
    ) -> Arc<Self> {
        let lineage = Lineage::new(table.storage, storage_schema(table, before), shared.clone());
        Arc::new(Self {
            lineage,
            keys: ArcSwap::from_pointee(Vec::new()),
            secondary: ArcSwap::from_pointee(Vec::new()),
            holders: Mutex::new(Holders::held_by(holder)),
            kept_from: AtomicU64::new(0),
            bounds: ArcSwap::default(),
            opened_sequences: ArcSwap::default(),
            unlisted: Mutex::default(),
            unrestored: OnceLock::new(),
            index_files: index_files.clone(),
        })
    }

    /// The rows, as any kind of table keeps them.
    #[inline]
    pub fn rows(&self) -> &(impl TableStore + use<>) {
        &*self.lineage
    }

    /// The table as the kind that it is: for a checkpoint's merges and runs.
    #[inline]
    pub fn lineage(&self) -> &Arc<Lineage> {
        &self.lineage
    }

    /// The storage's id.
    pub fn id(&self) -> StorageId {
        self.lineage.id()
    }

    /// The rows cannot be restored: they are neither read nor written until the next open. The
    /// first failure stays.
    pub fn close_off(&self, failure: Error) {
        let _ = self.unrestored.set(failure);
    }

    /// # Errors
    /// The failure of restoring the rows.
    pub fn check_restored(&self) -> Result<()> {
        let failure = self.unrestored.get();
        failure.map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Versions superseded before it may be gone.
    pub fn kept_from(&self) -> CommitTs {
        CommitTs(self.kept_from.load(Ordering::SeqCst))
    }

    /// Announces that versions superseded before `ts` will be dropped, unless a snapshot registered
    /// by now sees them. Never moves back, also if the policy or the clock changes.
    pub fn raise_kept_from(&self, ts: CommitTs) {
        self.kept_from.fetch_max(ts.0, Ordering::SeqCst);
    }
}

/// Sees everything committed, and everything of `own`.
pub(crate) fn newest(own: StartWord) -> Visibility {
    Visibility {
        ts: CommitTs::MAX,
        own,
        statement: u32::MAX,
    }
}
