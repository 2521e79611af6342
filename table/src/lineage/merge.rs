//! The merge: pending records and base into new base, in the background \[L-Store §4.1\].
//!
//! The five steps: (1) the commits in (`merged_through`, new] with new ≤ stable are taken from the
//! tail, open transactions are passed over; (2) only updated columns are loaded, and of these those
//! that are due; (3) they are read as a scan at `through` reads them (`scan`: base, then the tails'
//! records in order, later ones overwriting; a `Fold` only where base is newer), original start
//! times are kept, last-updated times and updated-column bits filled; (4) one swap of the range
//! version publishes the result; (5) outdated states and pages go when their last reader does.
//!
//! Invariants:
//! 1. Inputs are stable: chunks are immutable, commits at or before `through` are finished.
//! 2. Neither readers nor writers wait: the merge takes no latch, and `publish` only to swap.
//! 3. Every record that a merge folds into base is in a run before the merge is published.
//! 4. Memory is that of one column of narrow values, or of one block of wide ones
//!    (`merge/wide_column`).
//!
//! Columns are merged independently of each other: a column is due when it has a good part of the
//! updates of the most updated one, or is behind already. The rows' metadata is filled for all
//! updates, so that a reader recognizes rows for which a column's chunk is behind, and takes their
//! values from the tails (see `strandline_tail::merge_watermarks`).
//!
//! Differences from the paper: it visits records newest first and takes each row's first; we write
//! over older ones in their order, as scans do. It logs a merge as an operation and repeats it at
//! recovery; ours is an edit of the manifest that names files which are durable already, so that
//! recovery merges nothing, and a merge that no edit names has not happened.
//!
//! `strandline_tail::range` publishes the result, `strandline_tail::retirement` retires the tails.
//!
//! Lock order: `publish` while swapping (see there).

mod compaction;
mod wide_column;

use crate::lineage::Lineage;
use crate::lineage::base::row_block::RowBlocks;
use crate::lineage::base::row_meta::{NEVER, RowMeta};
use crate::lineage::base::row_times::RowTimes;
use crate::lineage::base::{
    BaseBody, BaseState, ChunkBase, ChunkColumn, MetaBlob, SupersededBytes,
};
use crate::lineage::horizon::Horizon;
use crate::lineage::merge::wide_column::MergedColumn;
use crate::lineage::range::{Range, RangeVersion};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Result, UPDATE_ROWS};
use strandline_storage::file::data_file::{DataFile, DataFileWriter};
use strandline_tail::change::UniformStart;
use strandline_tail::insert_range::InsertRange;
use strandline_tail::merge_watermarks::MergeWatermarks;
use strandline_tail::record_page::RecordKind;
use strandline_tail::visibility::{RecordState, record_state};
use strandline_txn::{StartWord, Visibility};

/// A column with fewer updates than this part of the most updated one's waits for another merge.
const DUE_PART: usize = 4;

/// A merged range, or one whose files are compacted: written and synced, not yet published.
pub struct MergeOutput {
    /// the range
    pub range: Arc<Range>,
    /// its new base
    pub base: Arc<BaseState>,
    /// the new file; None if no row is left
    pub file: Option<Arc<DataFile>>,
    /// bytes of the new file
    pub bytes: u64,
}

impl MergeOutput {
    /// The new base in chunks.
    pub fn chunks(&self) -> &ChunkBase {
        match &self.base.body {
            BaseBody::Chunks(chunks) => chunks,
            BaseBody::Insert(_) => unreachable!("a merge always makes chunks"),
        }
    }
}

impl Lineage {
    /// Whether an insert range may become chunks: every claimed slot has been decided at or before
    /// `through`.
    pub fn insert_range_is_finished(&self, rows: &InsertRange, through: CommitTs) -> bool {
        (0..rows.rows()).all(|slot| {
            let Some((page, i)) = rows.existing_page(slot as usize) else {
                return false;
            };
            if page.start(i) == StartWord::UNPUBLISHED {
                return false;
            }
            match record_state(page, i, StartWord(0), &self.shared.txns) {
                RecordState::Committed(ts) => ts <= through,
                RecordState::Nothing => true,
                RecordState::Own | RecordState::InProgress(_) | RecordState::PreCommitted(..) => {
                    false
                }
            }
        })
    }

    /// Merges everything committed at or before `through` into a new base and writes it. None if
    /// there is nothing to do, or an insert range is not finished yet. Deleted rows that no moment
    /// of `horizon` sees lose their values. `columns_max`: how many columns the table has by
    /// committed definitions; columns of an open transaction may still be rolled back.
    /// `all_columns`: also columns that are not due.
    pub fn merge_range(
        self: &Arc<Self>,
        range: &Arc<Range>,
        through: CommitTs,
        horizon: &Horizon,
        columns_max: usize,
        all_columns: bool,
    ) -> Result<Option<MergeOutput>> {
        let version = range.load_full();
        let (mut meta, mut rewrite) = match &version.base.body {
            BaseBody::Insert(rows) => {
                rows.close();
                if !self.insert_range_is_finished(rows, through) {
                    return Ok(None);
                }
                (self.meta_of_inserts(rows), rows.rows() > 0)
            }
            BaseBody::Chunks(chunks) => {
                let Some(meta) = self.meta_of_chunks(chunks, through)? else {
                    return Ok(None);
                };
                (meta, false)
            }
        };
        let pending = self.note_updates(&version, through, &mut meta);
        let merged = version.base.merged();
        let mut columns = due_columns(&pending, &merged, all_columns);
        let expired = expire_rows(&mut meta, horizon);
        if version.has_no_tail() && is_empty(&meta) {
            return Ok(Some(emptied(range, through)));
        }
        rewrite |= expired;
        if rewrite {
            columns = (0..columns_max as u32).map(ColumnId).collect();
        } else if columns.is_empty() && !self.has_merged_deletes(&version, through) {
            return Ok(None);
        }
        let behind = pending.keys().filter(|column| !columns.contains(column));
        let behind = behind.map(|&column| (column, merged.column(column)));
        let merged = MergeWatermarks::with_lagging(through, behind);
        let meta = meta.compacted();
        let (file, bytes, base) = self.write_base(range, &version, &meta, columns, merged)?;
        let base = BaseState::new(BaseBody::Chunks(Arc::new(base)));
        Ok(Some(MergeOutput {
            range: range.clone(),
            base,
            file: Some(file),
            bytes,
        }))
    }

    fn meta_of_inserts(&self, rows: &InsertRange) -> RowMeta {
        let count = rows.rows() as usize;
        let mut meta = RowMeta::uniform(count, 0);
        let mut starts = vec![0; count];
        for (slot, start) in starts.iter_mut().enumerate() {
            let state = rows
                .existing_page(slot)
                .map_or(RecordState::Nothing, |(page, i)| {
                    record_state(page, i, StartWord(0), &self.shared.txns)
                });
            match state {
                RecordState::Committed(ts) => *start = ts.0,
                _ => {
                    *start = NEVER;
                    meta.deleted.set(slot);
                }
            }
        }
        meta.starts = RowTimes::of_rows(starts);
        meta
    }

    /// None: the range was bulk-loaded by a transaction that has not committed by `through`.
    fn meta_of_chunks(&self, chunks: &ChunkBase, through: CommitTs) -> Result<Option<RowMeta>> {
        if let Some(meta) = &chunks.meta {
            return Ok(Some((*meta.load()?).clone()));
        }
        let word = chunks.start.load();
        if word.is_txn() || word == StartWord::ABORTED || word.0 > through.0 {
            return Ok(None);
        }
        Ok(Some(RowMeta::uniform(chunks.rows as usize, word.0)))
    }

    /// Step 1: fills times and bits from the records to merge; returns how many updates each column
    /// has that its chunk does not have yet.
    fn note_updates(
        &self,
        version: &RangeVersion,
        through: CommitTs,
        meta: &mut RowMeta,
    ) -> BTreeMap<ColumnId, usize> {
        let mut pending = BTreeMap::new();
        let merged = version.base.merged();
        self.each_merged(version, through, |slot, kind, ts, page, i| {
            if slot >= meta.starts.len() {
                return;
            }
            // What base has already needs no second merge.
            let is_new = ts > merged.rows();
            match kind {
                RecordKind::OldValue | RecordKind::Lock | RecordKind::ShareLock => {}
                RecordKind::Delete if is_new => {
                    meta.touch(slot, ts.0);
                    meta.deleted.set(slot);
                }
                RecordKind::Delete => {}
                RecordKind::Update => {
                    if is_new {
                        meta.touch(slot, ts.0);
                        page.columns_of(i).for_each(|c| meta.set_updated(slot, c));
                    }
                    let unmerged = page.columns_of(i).filter(|c| ts > merged.column(*c));
                    unmerged.for_each(|column| *pending.entry(column).or_default() += 1);
                }
            }
        });
        pending
    }

    fn has_merged_deletes(&self, version: &RangeVersion, through: CommitTs) -> bool {
        let merged = version.base.merged().rows();
        let mut any = false;
        self.each_merged(version, through, |_, kind, ts, _, _| {
            any |= kind == RecordKind::Delete && ts > merged;
        });
        any
    }

    fn each_merged(
        &self,
        version: &RangeVersion,
        through: CommitTs,
        mut visit: impl FnMut(
            usize,
            RecordKind,
            CommitTs,
            &strandline_tail::record_page::RecordPage,
            u32,
        ),
    ) {
        for (at, tail) in version.tails.iter().enumerate() {
            let Some(tail) = tail else { continue };
            for page in tail.pages().iter() {
                for i in 0..page.claimed() {
                    let state = record_state(page, i, StartWord(0), &self.shared.txns);
                    let RecordState::Committed(ts) = state else {
                        continue;
                    };
                    if ts <= through {
                        let (slot, kind) = page.slot_kind(i);
                        visit(at * UPDATE_ROWS + usize::from(slot), kind, ts, page, i);
                    }
                }
            }
        }
    }

    /// Steps 2 and 3: reads, encodes and writes the columns; the others keep their chunks.
    fn write_base(
        self: &Arc<Self>,
        range: &Arc<Range>,
        version: &Arc<RangeVersion>,
        meta: &RowMeta,
        columns: Vec<ColumnId>,
        merged: MergeWatermarks,
    ) -> Result<(Arc<DataFile>, u64, ChunkBase)> {
        let schema = self.schema();
        let rows = meta.starts.len();
        let at_through = Visibility {
            ts: merged.rows(),
            own: StartWord(0),
            statement: 0,
        };
        let (counters, wanted) = (Arc::default(), Arc::from(columns.as_slice()));
        let snapshot = self.range_snapshot_of(range, version, &at_through, &wanted, &counters)?;
        let mut chunks: Vec<Option<Arc<ChunkColumn>>> = match &version.base.body {
            BaseBody::Chunks(base) => base.columns.clone(),
            BaseBody::Insert(_) => Vec::new(),
        };
        let columns_max = columns.iter().map(|c| c.0 as usize + 1).max();
        chunks.resize(columns_max.unwrap_or(0).max(chunks.len()), None);
        let mut writer = DataFileWriter::new(&self.shared.files, self.shared.new_file_id());
        for (at, &column) in columns.iter().enumerate() {
            let spec = schema.column(column);
            let column_rows = MergedColumn {
                snapshot: &snapshot,
                at,
                spec,
                meta,
                wide_bytes: self.shared.merge_column_bytes(),
            };
            let written = column_rows.write(&mut writer)?;
            let file = writer.file();
            let chunk = self.shared.written_chunk(file, written, spec.sql_type);
            chunks[column.0 as usize] = Some(chunk);
        }
        let blob = match meta.uniform_start() {
            Some(_) => None,
            None => {
                let (extent, ()) = writer.blob(|identity, out| {
                    out.extend_from_slice(&meta.encode(identity));
                    Ok(())
                })?;
                Some(MetaBlob::new(
                    writer.file().clone(),
                    extent,
                    &self.shared.pool,
                ))
            }
        };
        let (file, bytes) = writer.finish()?;
        let start = CommitTs(meta.uniform_start().unwrap_or(meta.start_max()));
        let superseded = version.base.superseded_by(&chunks, blob.as_ref());
        let base = ChunkBase {
            row_blocks: RowBlocks::default(),
            rows: rows as u32,
            columns: chunks,
            start: UniformStart::new(StartWord::committed(start), 0),
            meta: blob,
            start_max: meta.start_max(),
            last_updated_max: meta.last_updated_max(),
            deleted: meta.deleted.count() as u32,
            merged,
            superseded,
        };
        Ok((file, bytes, base))
    }

    /// Steps 4 and 5: publishes a merge whose files are durable and in the manifest.
    pub fn publish_merge(&self, merged: &MergeOutput) {
        let range = &merged.range;
        range.publish_merge(merged.base.clone(), &merged.chunks().merged);
        self.forget_open(range.no());
    }
}

/// The columns to merge now, among columns with `pending` updates.
fn due_columns(
    pending: &BTreeMap<ColumnId, usize>,
    merged: &MergeWatermarks,
    all: bool,
) -> Vec<ColumnId> {
    let most = pending.values().copied().max().unwrap_or(0);
    let is_behind = |column: ColumnId| merged.column(column) < merged.rows();
    let due = |(column, updates): (&ColumnId, &usize)| {
        (all || updates * DUE_PART >= most || is_behind(*column)).then_some(*column)
    };
    pending.iter().filter_map(due).collect()
}

/// Whether the range has slots but no reader can ever see a row in one.
fn is_empty(meta: &RowMeta) -> bool {
    !meta.starts.is_empty() && meta.starts.runs().all(|(_, start)| start == NEVER)
}

/// A range without rows. It keeps its number, so that no row id is used twice, and
/// `merged_through`, so that records of its rows in runs are skipped.
fn emptied(range: &Arc<Range>, through: CommitTs) -> MergeOutput {
    let base = ChunkBase {
        row_blocks: RowBlocks::default(),
        rows: 0,
        columns: Vec::new(),
        start: UniformStart::new(StartWord::committed(CommitTs::ZERO), 0),
        meta: None,
        start_max: 0,
        last_updated_max: 0,
        deleted: 0,
        merged: MergeWatermarks::at(through),
        superseded: SupersededBytes::default(),
    };
    MergeOutput {
        range: range.clone(),
        base: BaseState::new(BaseBody::Chunks(Arc::new(base))),
        file: None,
        bytes: 0,
    }
}

/// Marks deleted rows that no moment of the horizon sees as never inserted. Returns whether there
/// were any.
fn expire_rows(meta: &mut RowMeta, horizon: &Horizon) -> bool {
    let expired: Vec<usize> = meta
        .deleted
        .iter()
        .filter(|&row| meta.starts[row] != NEVER && !meta.is_seen(row, horizon))
        .collect();
    for &row in &expired {
        meta.starts.set(row, NEVER);
        meta.last_updated.set(row, 0);
    }
    !expired.is_empty()
}

/// NULL for slots without a row, so that expired values are really gone. `array` begins at row
/// `first`.
fn scrub(
    spec: &strandline_base::cell::StorageColumn,
    array: arrow_array::ArrayRef,
    meta: &RowMeta,
    first: usize,
) -> Result<arrow_array::ArrayRef> {
    let rows = first..first + array.len();
    let gone: Vec<usize> = meta
        .deleted
        .iter()
        .filter(|r| rows.contains(r) && meta.starts[*r] == NEVER)
        .collect();
    let cells = gone
        .into_iter()
        .map(|row| (row - first, strandline_base::cell::Cell::Null));
    strandline_column::buffer::patch(spec, array, cells)
}
