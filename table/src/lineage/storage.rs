//! A lineage table's storage: ranges, runs, files; the entry point of this crate.
//!
//! Invariants:
//! 1. The list of ranges only grows; a range number is its position.
//! 2. A run is listed before any base that has merged its records is published, so that a reader
//!    that loads a version first and the runs after it finds all history it may need.
//! 3. Rows are inserted only into insert ranges whose schema is the current one.
//!
//! Lock order: `grow` → a range's `publish` → row latches.
//!
//! Differences from the paper: the merge's high-water mark is a commit timestamp instead of a
//! tail sequence number, so that it passes over open transactions; history lives in update runs;
//! the page directory is the range version.

use crate::lineage::base::row_block::RowBlocks;
use crate::lineage::base::{
    BaseBody, BaseState, ChunkBase, ChunkColumn, MetaBlob, SupersededBytes,
};
use crate::lineage::consolidation::{Consolidation, OverlayMaker};
use crate::lineage::range::{Range, RangeVersion};
use crate::update_run::Run;
use arc_swap::{ArcSwap, Guard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use strandline_base::sync::Mutex;
use strandline_base::{
    AppendList, CommitTs, Error, ErrorKind, RANGE_ROWS, RangeNo, Result, SqlState, SqlType,
    StorageId,
};
use strandline_column::chunk::ChunkFooter;
use strandline_storage::file::data_file::DataFile;
use strandline_storage::file::{DataFiles, Extent};
use strandline_storage::pool::Pool;
use strandline_tail::change::UniformStart;
use strandline_tail::insert_range::InsertRange;
use strandline_tail::merge_watermarks::MergeWatermarks;
use strandline_tail::record_page::PageBytes;
use strandline_tail::schema::StorageSchema;
use strandline_txn::{StartWord, TxnManager};

/// State shared by all storages of a database.
#[derive(Clone)]
pub struct Shared {
    /// the chunk files and runs
    pub files: Arc<DataFiles>,
    /// the pool of frames
    pub pool: Arc<Pool>,
    /// resolves start words
    pub txns: Arc<TxnManager>,
    /// bytes of all record pages
    pub page_bytes: PageBytes,
    /// the next data or run file number
    pub next_file: Arc<AtomicU64>,
    /// makes overlays for scans
    pub consolidation: Arc<Consolidation>,
    /// An insert range is closed when its rows have so many bytes, or twice as many if most of them
    /// are narrow.
    pub range_bytes_max: usize,
    /// A row of more bytes is refused.
    pub row_bytes_max: usize,
}

impl Shared {
    /// A column of text or bytea of more bytes is merged block by block: a quarter of a range's
    /// bytes, between 256 KiB and 4 MiB.
    pub fn merge_column_bytes(&self) -> usize {
        (self.range_bytes_max / 4).clamp(256 << 10, 4 << 20)
    }

    /// Bytes that the merge of a range holds beside its tails: a column as the base has it, patched
    /// and encoded, and a piece of its file.
    pub fn merge_bytes(&self) -> usize {
        3 * self.merge_column_bytes() + (1 << 20)
    }

    /// A file number that was never used.
    pub fn new_file_id(&self) -> u64 {
        self.next_file.fetch_add(1, Ordering::Relaxed)
    }

    /// The chunk that was just written to `file`: its place and its footer, whose bounds are kept.
    /// On an object store the footer is kept, so that the first read takes one request.
    pub(crate) fn written_chunk(
        &self,
        file: &Arc<DataFile>,
        (extent, footer): (Extent, ChunkFooter),
        sql_type: SqlType,
    ) -> Arc<ChunkColumn> {
        let column = ChunkColumn::new(file.clone(), extent, sql_type, &self.pool);
        column.stored.keep_bounds(&footer);
        if self.files.reads_ahead() {
            column.stored.keep_written(footer);
        }
        column
    }
}

/// One storage of a lineage table.
pub struct Lineage {
    id: StorageId,
    pub(crate) shared: Shared,
    schema: ArcSwap<StorageSchema>,
    ranges: AppendList<Arc<Range>>,
    grow: Mutex<()>,
    /// the range that takes inserts
    open_range: ArcSwap<Option<Arc<OpenRange>>>,
    runs: ArcSwap<Vec<Arc<Run>>>,
}

/// The insert range that inserters claim slots of.
#[derive(Debug)]
pub(crate) struct OpenRange {
    pub(crate) no: RangeNo,
    pub(crate) rows: Arc<InsertRange>,
    /// bytes of its rows beyond the bytes per row that every row may have
    excess_bytes: AtomicUsize,
}

impl OpenRange {
    fn new(no: RangeNo, rows: Arc<InsertRange>) -> Arc<Self> {
        let excess_bytes = AtomicUsize::new(0);
        Arc::new(Self {
            no,
            rows,
            excess_bytes,
        })
    }

    /// A row of `bytes` has been put in. The range is closed when its rows have more than
    /// `bytes_max`; rows whose number alone bounds their bytes are not counted.
    pub(crate) fn note_row(&self, bytes: usize, bytes_max: usize) {
        let excess = bytes.saturating_sub(bytes_max / RANGE_ROWS);
        if excess > 0
            && self.excess_bytes.fetch_add(excess, Ordering::Relaxed) + excess >= bytes_max
        {
            self.rows.close();
        }
    }
}

/// A range in chunks as the manifest describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasedRange {
    /// the range's number
    pub no: RangeNo,
    /// slots in use
    pub rows: u32,
    /// which commits are in the rows' metadata and in the chunks
    pub merged: MergeWatermarks,
    /// the start of all rows if there is no metadata blob
    pub start: CommitTs,
    /// bounds of the rows' times
    pub start_max: u64,
    /// bounds of the rows' times
    pub last_updated_max: u64,
    /// rows marked deleted
    pub deleted: u32,
    /// per-row metadata: file, extent
    pub meta: Option<(u64, Extent)>,
    /// by column id: file, extent
    pub columns: Vec<Option<(u64, Extent)>>,
    /// bytes of these files that newer files have superseded
    pub superseded: SupersededBytes,
}

impl Lineage {
    /// An empty storage.
    pub fn new(id: StorageId, schema: Arc<StorageSchema>, shared: Shared) -> Arc<Self> {
        Arc::new(Self {
            id,
            shared,
            schema: ArcSwap::new(schema),
            ranges: AppendList::default(),
            grow: Mutex::new(()),
            open_range: ArcSwap::from_pointee(None),
            runs: ArcSwap::from_pointee(Vec::new()),
        })
    }

    /// The storage's id.
    pub fn id(&self) -> StorageId {
        self.id
    }
    /// The pool of its frames.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.shared.pool
    }

    /// Whether readers request bytes ahead, see [`DataFiles::reads_ahead`].
    pub fn reads_ahead(&self) -> bool {
        self.shared.files.reads_ahead()
    }
    /// The current columns.
    pub fn schema(&self) -> Arc<StorageSchema> {
        self.schema.load_full()
    }
    /// Adds columns at the end. Rows already there show the columns' missing values.
    pub fn set_schema(&self, schema: Arc<StorageSchema>) {
        self.schema.store(schema);
    }
    /// Rolls back the change that grew the schema from `before`. Only its transaction has written
    /// since. The old values of the new columns are removed, since the columns' ids may be used
    /// again with other types. No overlay contains such values.
    pub fn take_back_schema(&self, before: Arc<StorageSchema>) {
        let grown = self.schema.swap(before);
        for range in self.ranges().iter() {
            for tail in range.load().tails.iter().flatten() {
                for page in tail.pages().iter().filter(|page| page.is_for(&grown)) {
                    (0..page.claimed()).for_each(|i| page.set_start(i, StartWord::ABORTED));
                }
            }
        }
    }
    /// All ranges there are now.
    pub fn ranges(&self) -> Vec<Arc<Range>> {
        self.ranges.iter().cloned().collect()
    }
    /// The current columns, for short looks.
    pub(crate) fn load_schema(&self) -> Guard<Arc<StorageSchema>> {
        self.schema.load()
    }
    /// Range `no`, if it exists.
    #[inline]
    pub fn range(&self, no: RangeNo) -> Option<&Arc<Range>> {
        self.ranges.get(no.0 as usize)
    }
    /// The runs, newest first. Load a range's version before.
    pub fn runs(&self) -> Arc<Vec<Arc<Run>>> {
        self.runs.load_full()
    }
    /// Replaces the list of runs: newest first, disjoint in commit time.
    pub fn set_runs(&self, runs: Vec<Arc<Run>>) {
        let is_newer = |newer: &Arc<Run>, older: &Arc<Run>| newer.oldest_version() > older.max_ts();
        debug_assert!(runs.is_sorted_by(is_newer), "runs overlap in commit time");
        let _grow = self.grow.lock();
        self.runs.store(Arc::new(runs));
    }

    /// The storage is dropped: removes all its files when their last readers are done.
    pub fn remove_files(&self) {
        for range in self.ranges().iter() {
            let version = range.load_full();
            if let BaseBody::Chunks(chunks) = &version.base.body {
                chunks
                    .columns
                    .iter()
                    .flatten()
                    .for_each(|c| c.stored.file.remove_when_unused());
                chunks.meta.iter().for_each(|m| m.file.remove_when_unused());
            }
        }
        self.runs().iter().for_each(|run| run.remove_when_unused());
    }

    /// The insert range to claim slots of, with the current schema; opens a new one if `full` is
    /// the present one (or there is none).
    ///
    /// # Errors
    /// 54000 if no range number is left.
    pub(crate) fn open_range(&self, full: Option<RangeNo>) -> Result<Arc<OpenRange>> {
        let usable = |open: &Arc<OpenRange>| {
            Some(open.no) != full
                && Arc::ptr_eq(open.rows.schema(), &self.schema.load())
                && !open.rows.is_closed()
        };
        if let Some(open) = &**self.open_range.load()
            && usable(open)
        {
            return Ok(open.clone());
        }
        let _grow = self.grow.lock();
        if let Some(open) = &**self.open_range.load()
            && usable(open)
        {
            return Ok(open.clone());
        }
        if let Some(before) = &**self.open_range.load() {
            before.rows.close(); // full, or of an older schema: it may become chunks
        }
        let rows = Arc::new(InsertRange::new(self.schema(), &self.shared.page_bytes));
        let base = BaseState::new(BaseBody::Insert(rows.clone()));
        let no = self.push_range(base)?.no();
        let open = OpenRange::new(no, rows);
        self.open_range.store(Arc::new(Some(open.clone())));
        Ok(open)
    }

    /// Appends a range; the caller holds `grow`.
    fn push_range(&self, base: Arc<BaseState>) -> Result<Arc<Range>> {
        let range = Range::new(range_number(self.ranges.len())?, base);
        self.ranges.push(range.clone());
        Ok(range)
    }

    /// 54000 if a row of `bytes` is more than this database may hold in memory at a time.
    #[inline]
    pub fn check_row_bytes(&self, bytes: usize) -> Result<()> {
        match bytes <= self.shared.row_bytes_max {
            true => Ok(()),
            false => Err(row_too_large(bytes, self.shared.row_bytes_max)),
        }
    }

    /// Reserves a range number for a bulk load: an empty closed insert range, replaced later.
    ///
    /// # Errors
    /// 54000 if none is left.
    pub fn reserve_range(&self) -> Result<Arc<Range>> {
        let rows = Arc::new(InsertRange::new(self.schema(), &self.shared.page_bytes));
        rows.close();
        let _grow = self.grow.lock();
        self.push_range(BaseState::new(BaseBody::Insert(rows)))
    }

    /// The load that made `range` was rolled back: nothing but an empty closed range is left.
    pub fn empty_range(&self, range: &Range) {
        let rows = Arc::new(InsertRange::new(self.schema(), &self.shared.page_bytes));
        rows.close();
        let right = range.lock();
        let empty = RangeVersion::of(BaseState::new(BaseBody::Insert(rows)));
        range.publish(&right, empty);
    }

    /// Frees the records in memory of a storage whose rows cannot be restored. The chunks stay:
    /// `check` verifies them, and their files are known.
    pub fn forget_records(&self) {
        for range in self.ranges() {
            if let BaseBody::Insert(_) = range.load().base.body {
                self.empty_range(&range);
                continue;
            }
            let right = range.lock();
            let base = range.load_full().base.clone();
            range.publish(&right, RangeVersion::of(base));
        }
    }

    /// Range `no` takes no more rows: if it was the open one, its pages are not kept for that.
    pub(crate) fn forget_open(&self, no: RangeNo) {
        let is_open = || {
            let open = self.open_range.load();
            open.as_ref().as_ref().is_some_and(|open| open.no == no)
        };
        if !is_open() {
            return;
        }
        let _grow = self.grow.lock();
        if is_open() {
            self.open_range.store(Arc::new(None));
        }
    }

    /// Recovery: makes sure that range `no` exists. Missing ranges become empty insert ranges; the
    /// last of them stays open.
    pub fn ensure_range(&self, no: RangeNo) -> Arc<Range> {
        let _grow = self.grow.lock();
        loop {
            if let Some(range) = self.range(no) {
                return range.clone();
            }
            let rows = Arc::new(InsertRange::new(self.schema(), &self.shared.page_bytes));
            // At most `no`, which is missing.
            let next = RangeNo(self.ranges.len() as u32);
            let base = BaseState::new(BaseBody::Insert(rows));
            self.ranges.push(Range::new(next, base));
        }
    }

    /// Recovery is over: the last range, if it is an insert range with room, takes new inserts;
    /// all others are closed.
    pub fn finish_recovery(&self) {
        let ranges = self.ranges();
        for range in ranges.iter() {
            let version = range.load_full();
            let BaseBody::Insert(rows) = &version.base.body else {
                continue;
            };
            // Slots of transactions that did not commit before the end: nobody fills them now.
            rows.abandon_unpublished();
            let last = range.no().0 as usize + 1 == ranges.len();
            if last && Arc::ptr_eq(rows.schema(), &self.schema()) {
                let open = OpenRange::new(range.no(), rows.clone());
                // What of it is beyond the rows' share is not known: the values are in pages.
                open.note_row(rows.memory_bytes(), self.shared.range_bytes_max);
                self.open_range.store(Arc::new(Some(open)));
            } else {
                rows.close();
            }
        }
    }

    /// The chunk base that `based` describes.
    pub fn chunk_base(
        &self,
        based: &BasedRange,
        file: &mut dyn FnMut(u64) -> Arc<DataFile>,
    ) -> ChunkBase {
        let schema = self.schema();
        let pool = &self.shared.pool;
        let columns = based
            .columns
            .iter()
            .zip(schema.iter())
            .map(|(place, (_, spec))| {
                place.map(|(id, extent)| ChunkColumn::new(file(id), extent, spec.sql_type, pool))
            })
            .collect();
        ChunkBase {
            row_blocks: RowBlocks::default(),
            rows: based.rows,
            columns,
            start: UniformStart::new(StartWord::committed(based.start), 0),
            meta: based
                .meta
                .map(|(id, extent)| MetaBlob::new(file(id), extent, pool)),
            start_max: based.start_max,
            last_updated_max: based.last_updated_max,
            deleted: based.deleted,
            merged: based.merged.clone(),
            superseded: based.superseded.clone(),
        }
    }

    /// Recovery: gives range `based.no` its chunks.
    pub fn restore_base(
        &self,
        based: &BasedRange,
        file: &mut dyn FnMut(u64) -> Arc<DataFile>,
    ) -> Result<()> {
        let range = self.ensure_range(based.no);
        let base = BaseState::new(BaseBody::Chunks(Arc::new(self.chunk_base(based, file))));
        let right = range.lock();
        let mut version = (*range.load_full()).clone();
        version.base = base;
        range.publish(&right, version);
        Ok(())
    }
}

impl OverlayMaker for Lineage {
    fn make_overlay(&self, no: RangeNo, ts: CommitTs) {
        if let Some(range) = self.range(no) {
            range.consolidate(ts, &self.shared.txns, &self.shared.page_bytes);
        }
    }
}

/// The number of a storage's range behind `ranges` others; 54000 if there is none.
fn range_number(ranges: usize) -> Result<RangeNo> {
    let number = u32::try_from(ranges).map(RangeNo);
    number.map_err(|_| {
        Error::new(
            ErrorKind::Unavailable,
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!(
                "a table cannot have more than {} ranges of rows",
                1_u64 << 32
            ),
        )
        .with_hint("Load fewer, larger batches; CREATE TABLE AS makes a table with full ranges.")
    })
}

impl ChunkBase {
    /// How the manifest describes this base as range `no`.
    pub fn describe(&self, no: RangeNo) -> BasedRange {
        BasedRange {
            no,
            rows: self.rows,
            merged: self.merged.clone(),
            start: CommitTs(self.start.load().0),
            start_max: self.start_max,
            last_updated_max: self.last_updated_max,
            deleted: self.deleted,
            meta: self.meta.as_ref().map(|m| (m.file.id(), m.extent)),
            columns: self
                .columns
                .iter()
                .map(|c| c.as_ref().map(|c| (c.stored.file.id(), c.stored.extent)))
                .collect(),
            superseded: self.superseded.clone(),
        }
    }
}

#[cold]
fn row_too_large(bytes: usize, most: usize) -> Error {
    Error::new(
        ErrorKind::Invalid,
        SqlState::PROGRAM_LIMIT_EXCEEDED,
        format!("a row has {bytes} bytes, but memory_bytes is {most}"),
    )
    .with_hint("Raise memory_bytes when opening the database, or keep the value in parts.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_numbers_end_with_an_error() {
        let last = u32::MAX as usize;
        assert_eq!(range_number(last).expect("the last one"), RangeNo(u32::MAX));
        let error = range_number(last + 1).expect_err("none is left");
        assert_eq!(error.sqlstate(), SqlState::PROGRAM_LIMIT_EXCEEDED);
    }
}
