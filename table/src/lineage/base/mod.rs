//! The base of a range: an insert range, or one immutable chunk per column \[L-Store §2.2, §3.2\].
//!
//! A merge replaces a [`BaseState`] as a whole; a reader of live tails keeps the state it has
//! loaded. When the last reader of a state and of all earlier ones has let go, the tail pages that
//! its successor has merged are dropped (see `strandline_tail::succession`). Scans, which may stay
//! long, keep the rows and the pages they need and let go of the state.
//!
//! Invariants:
//! 1. The rows' metadata and each chunk hold the state of the range as of their own time
//!    (`merged`).
//! 2. `start_max` and `last_updated_max` bound the rows' times from above; a snapshot at or after
//!    both needs to look at `deleted` only.
//! 3. A range without `meta` has one start word for all rows, and none was updated or deleted.

mod chunk_column;
mod meta_blob;
pub mod row_block;
pub mod row_meta;
pub mod row_set;
pub mod row_times;
mod stored_chunk;
mod superseded;

pub use chunk_column::{BlockValues, ChunkColumn};
pub use meta_blob::MetaBlob;
pub use stored_chunk::{ColumnBounds, StoredChunk};
pub use superseded::SupersededBytes;

use crate::lineage::base::row_block::{BlockRow, RowBlocks, RowChunks};
use crate::lineage::base::row_meta::NEVER;
use crate::lineage::horizon::Horizon;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Result, Value};
use strandline_storage::pool::Pool;
use strandline_tail::change::UniformStart;
use strandline_tail::insert_range::InsertRange;
use strandline_tail::merge_watermarks::MergeWatermarks;
use strandline_tail::release::Renewed;
use strandline_tail::retirement::DonePages;
use strandline_tail::schema::StorageSchema;
use strandline_tail::succession::{Succeeded, Successor};
use strandline_tail::tail::Tail;

/// A range's base, and the pages that may be dropped once it has no reader.
#[derive(Debug)]
pub struct BaseState {
    /// insert range or chunks
    pub body: BaseBody,
    successor: Successor<BaseState>,
}

/// The two forms of a base. A clone keeps the rows, and nothing that is retired after them.
#[derive(Clone, Debug)]
pub enum BaseBody {
    /// rows that have not been merged into chunks yet
    Insert(Arc<InsertRange>),
    /// chunks
    Chunks(Arc<ChunkBase>),
}

impl BaseBody {
    /// When the deleted row in `slot` began; None if no moment of `horizon` sees it.
    pub fn begin_of_deleted(&self, slot: usize, horizon: &Horizon) -> Result<Option<CommitTs>> {
        let Self::Chunks(chunks) = self else {
            return Ok(Some(CommitTs::ZERO)); // it is not merged yet
        };
        let Some(meta) = &chunks.meta else {
            return Ok((slot < chunks.rows as usize).then_some(CommitTs::ZERO));
        };
        let meta = meta.load()?;
        let is_seen = slot < meta.starts.len() && meta.is_seen(slot, horizon);
        Ok(is_seen.then(|| CommitTs(meta.starts[slot])))
    }
}

impl BaseState {
    /// A base with nothing to retire yet.
    pub fn new(body: BaseBody) -> Arc<Self> {
        Arc::new(Self {
            body,
            successor: Successor::default(),
        })
    }
    /// Up to which commit everything is in the base.
    pub fn merged_through(&self) -> CommitTs {
        match &self.body {
            BaseBody::Insert(_) => CommitTs::ZERO,
            BaseBody::Chunks(chunks) => chunks.merged.all(),
        }
    }
    /// Which commits are in the base, column by column.
    pub fn merged(&self) -> MergeWatermarks {
        match &self.body {
            BaseBody::Insert(_) => MergeWatermarks::default(),
            BaseBody::Chunks(chunks) => chunks.merged.clone(),
        }
    }
}

impl Succeeded for BaseState {
    /// A tail and its pages that hold no unmerged record.
    type Release = (Arc<Tail>, DonePages);
    fn successor(&self) -> &Successor<Self> {
        &self.successor
    }
    fn release((tail, done): Self::Release) {
        tail.drop_pages(&done);
    }
}

impl Renewed for BaseState {
    fn renewed(&self) -> Arc<Self> {
        Self::new(self.body.clone())
    }
    fn lineage(&self) -> MergeWatermarks {
        self.merged()
    }
}

/// A range in chunks.
#[derive(Debug)]
pub struct ChunkBase {
    /// slots in use, at most [`RANGE_ROWS`](strandline_base::RANGE_ROWS); 0 if all rows are gone
    /// for good
    pub rows: u32,
    /// by column id; None: the column was added after the chunks were written
    pub columns: Vec<Option<Arc<ChunkColumn>>>,
    /// the common start of all rows; rules if `meta` is None
    pub start: Arc<UniformStart>,
    /// per-row times, bits and deletions, if they differ
    pub meta: Option<Arc<MetaBlob>>,
    /// no row starts later
    pub start_max: u64,
    /// no row was updated or deleted later, as far as base knows
    pub last_updated_max: u64,
    /// rows marked deleted, slots without a row included
    pub deleted: u32,
    /// which commits are in the rows' metadata and in the chunks
    pub merged: MergeWatermarks,
    /// bytes of the range's files that newer files have superseded
    pub superseded: SupersededBytes,
    /// the rows side by side, for point reads
    pub row_blocks: RowBlocks,
}

impl ChunkBase {
    /// Whether a snapshot at `ts` sees all rows exactly as base has them.
    pub fn is_quiet_at(&self, ts: CommitTs) -> bool {
        self.deleted == 0 && self.is_settled_at(ts)
    }
    /// Whether a snapshot at `ts` sees base as it is, deletions included.
    pub fn is_settled_at(&self, ts: CommitTs) -> bool {
        let started = match &self.meta {
            None => {
                let word = self.start.load();
                !word.is_txn() && word.0 <= ts.0
            }
            Some(_) => self.start_max <= ts.0,
        };
        started && self.last_updated_max <= ts.0
    }
    /// Whether all rows of the range were deleted, no moment of the horizon sees one, and they
    /// still take space.
    pub fn is_dead_at(&self, horizon: &Horizon) -> Result<bool> {
        if self.rows == 0 || self.deleted < self.rows {
            return Ok(false);
        }
        match &self.meta {
            Some(meta) if self.last_updated_max > horizon.oldest().0 => {
                let meta = meta.load()?;
                Ok(meta.deleted.iter().all(|row| !meta.is_seen(row, horizon)))
            }
            _ => Ok(true),
        }
    }
    /// Whether most of the rows that take space were deleted, and no moment of the horizon sees
    /// them. A merge removes their values. The metadata is read only if most rows were deleted.
    pub fn is_mostly_dead_at(&self, horizon: &Horizon) -> Result<bool> {
        let may_be = self.deleted > self.rows / 2 && self.last_updated_max > 0;
        let Some(meta) = self.meta.as_ref().filter(|_| may_be) else {
            return Ok(false);
        };
        let meta = meta.load()?;
        let kept = meta.starts.iter().filter(|start| *start != NEVER);
        let is_dead = |row: &usize| meta.starts[*row] != NEVER && !meta.is_seen(*row, horizon);
        let dead = meta.deleted.iter().filter(is_dead);
        Ok(dead.count() > kept.count() / 2)
    }
    /// Gives `read` the row at `slot`, if there is a block for `columns` or making one is worth it.
    #[inline]
    pub fn read_row(
        &self,
        slot: usize,
        columns: impl Iterator<Item = ColumnId> + Clone,
        pool: &Arc<Pool>,
        read: impl FnMut(BlockRow<'_>),
    ) -> Result<()> {
        let chunks = RowChunks {
            rows: self.rows,
            columns: &self.columns,
        };
        self.row_blocks.read_row(chunks, slot, columns, pool, read)
    }
    /// The chunk of `column`.
    pub fn column(&self, column: ColumnId) -> Option<&Arc<ChunkColumn>> {
        self.columns.get(column.0 as usize)?.as_ref()
    }
}

/// Values of a row of the base of a range, in either form of base, given with the positions of
/// their columns. Blocks that are not in memory are read together.
pub fn base_values(
    base: &BaseState,
    slot: usize,
    columns: impl Iterator<Item = (usize, ColumnId)>,
    schema: &StorageSchema,
    mut give: impl FnMut(usize, Value),
) -> Result<()> {
    let missing = |column: ColumnId| schema.column(column).missing.clone();
    match &base.body {
        BaseBody::Insert(rows) => {
            let page = rows.existing_page(slot);
            for (at, column) in columns {
                let value = match &page {
                    Some((page, i)) => page.value(*i, column, schema.column(column))?,
                    None => missing(column),
                };
                give(at, value);
            }
            Ok(())
        }
        BaseBody::Chunks(chunks) => {
            let mut added = Vec::new();
            let stored = columns.filter_map(|(at, column)| {
                let chunk = chunks.column(column);
                if chunk.is_none() {
                    added.push((at, column));
                }
                Some((at, chunk?))
            });
            ChunkColumn::row_values(stored, slot, &mut give)?;
            for (at, column) in added {
                give(at, missing(column));
            }
            Ok(())
        }
    }
}
