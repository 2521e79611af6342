//! Reads of a range into Arrow arrays: the rows that a snapshot sees, and all versions in an
//! interval. One call per range prepares a read; its result gives the columns.

use super::merged_bases::MergedBase;
use super::{Store, StoredRange};
use crate::request::ColumnPredicate;
use arrow_array::ArrayRef;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Result};
use strandline_storage::file::Extent;
use strandline_storage::file::data_file::DataFile;
use strandline_table::lineage::BasedRange;
use strandline_table::lineage::base::{BaseBody, ChunkBase, MetaBlob};
use strandline_table::lineage::scan::versions::{RangeVersions, VersionInterval};
use strandline_table::lineage::scan::{RangeSnapshot, ScanCounters};
use strandline_tail::change::{PendingStamp, Writer};
use strandline_txn::Visibility;

/// Bytes of a file that a read requests from an object store.
pub(crate) type StoreRequest = (Arc<DataFile>, Extent);

impl Store {
    /// Prepares `range` for reading `columns` at `visibility`. `merged`: the base that alone is
    /// right at that moment, which is read without tails if the range still has it.
    pub fn read_range(
        &self,
        range: &StoredRange,
        merged: Option<&MergedBase>,
        visibility: &Visibility,
        columns: &Arc<[ColumnId]>,
        counters: &Arc<ScanCounters>,
    ) -> Result<RangeSnapshot> {
        let (range, lineage) = (range.range(), &self.lineage);
        let merged = merged.and_then(|base| base.of(&range.load()));
        match merged {
            Some(base) => lineage.range_snapshot_of(range, &base, visibility, columns, counters),
            None => lineage.range_snapshot(range, visibility, columns, counters),
        }
    }

    /// Prepares all versions in an interval, from slot `next_row` on.
    pub fn read_versions(
        &self,
        range: &StoredRange,
        interval: VersionInterval,
        columns: &Arc<[ColumnId]>,
        next_row: usize,
    ) -> Result<RangeVersions> {
        let range = range.range();
        self.lineage
            .range_versions(range, interval, columns, next_row)
    }

    /// Encodes `arrays`, the columns `ids`, as one new range under the writer's start word.
    pub fn load_range(
        &self,
        ids: &[ColumnId],
        arrays: &[ArrayRef],
        rows: usize,
        writer: &Writer,
    ) -> Result<(BasedRange, Arc<DataFile>, PendingStamp)> {
        self.lineage.load_range(ids, arrays, rows, writer)
    }
}

impl StoredRange {
    /// The slots of the range, if a snapshot at `ts` sees a row in each of them by the base alone:
    /// no row has been inserted or changed later, none is deleted, and no tail has a record.
    pub fn quiet_slots(&self, ts: CommitTs) -> Option<usize> {
        let version = self.range().load();
        let has_tails = version.tails.iter().any(Option::is_some);
        match &version.base.body {
            BaseBody::Chunks(chunks) if !has_tails && chunks.is_quiet_at(ts) => {
                Some(chunks.rows as usize)
            }
            BaseBody::Chunks(_) | BaseBody::Insert(_) => None,
        }
    }

    /// Whether preparing a read at `ts` stays in memory: the bounds of the `pruning` columns are
    /// there, and the rows' metadata if the read needs them.
    pub fn opens_in_memory(
        &self,
        ts: CommitTs,
        mut pruning: impl Iterator<Item = ColumnId>,
    ) -> bool {
        self.with_chunks(true, |chunks| {
            let has_meta = meta_to_read(chunks, ts).is_none_or(|meta| meta.is_loaded());
            has_meta
                && pruning.all(|column| {
                    let chunk = chunks.column(column);
                    chunk.is_none_or(|chunk| chunk.stored.has_footer())
                })
        })
    }

    /// The bytes that preparing a read at `ts` requests from an object store: the bounds of the
    /// `pruning` columns, and the rows' metadata if the read needs them.
    pub fn opening_requests(
        &self,
        ts: CommitTs,
        pruning: impl Iterator<Item = ColumnId>,
    ) -> Vec<StoreRequest> {
        self.with_chunks(Vec::new(), |chunks| {
            let meta = meta_to_read(chunks, ts);
            let meta = meta.and_then(|meta| Some((meta.file.clone(), meta.request()?)));
            let footers = pruning.filter_map(|column| {
                let stored = &chunks.column(column)?.stored;
                Some((stored.file.clone(), stored.footer_request()?))
            });
            meta.into_iter().chain(footers).collect()
        })
    }

    /// Reads what preparing a read at `ts` reads.
    ///
    /// # Errors
    /// Those of the read.
    pub fn load_opening(
        &self,
        ts: CommitTs,
        mut pruning: impl Iterator<Item = ColumnId>,
    ) -> Result<()> {
        self.with_chunks(Ok(()), |chunks| {
            if let Some(meta) = meta_to_read(chunks, ts) {
                meta.load()?;
            }
            pruning.try_for_each(|column| match chunks.column(column) {
                Some(chunk) => chunk.stored.footer().map(drop),
                None => Ok(()),
            })
        })
    }

    /// The bytes that reading all of `columns` requests from an object store.
    pub fn column_requests(&self, columns: &[ColumnId]) -> Vec<StoreRequest> {
        self.with_chunks(Vec::new(), |chunks| {
            let requests = columns.iter().filter_map(|column| {
                let chunk = chunks.column(*column)?;
                Some((chunk.stored.file.clone(), chunk.scan_request()?))
            });
            requests.collect()
        })
    }

    /// Whether a row of the range may satisfy `predicate`, as far as memory tells.
    pub fn may_hold(&self, predicate: &ColumnPredicate) -> bool {
        let has_tails = self.range().load().tails.iter().any(Option::is_some);
        has_tails
            || self.with_chunks(true, |chunks| {
                let chunk = chunks.column(predicate.column);
                let bounds = chunk.and_then(|chunk| chunk.stored.known_bounds());
                bounds.is_none_or(|bounds| predicate.may_hold((&bounds.min, &bounds.max)))
            })
    }

    /// The result of `read` for a range in chunks, else `otherwise`.
    fn with_chunks<R>(&self, otherwise: R, read: impl FnOnce(&ChunkBase) -> R) -> R {
        let version = self.range().load_full();
        match &version.base.body {
            BaseBody::Chunks(chunks) => read(chunks),
            BaseBody::Insert(_) => otherwise,
        }
    }
}

/// The rows' metadata, if a read at `ts` needs them.
fn meta_to_read(chunks: &ChunkBase, ts: CommitTs) -> Option<&Arc<MetaBlob>> {
    chunks.meta.as_ref().filter(|_| !chunks.is_quiet_at(ts))
}
