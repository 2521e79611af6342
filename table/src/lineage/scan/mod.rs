//! Scanning a range into Arrow arrays, a part of its rows at a time.
//!
//! A quiet range (no tail, maxima at or below the snapshot) is its decoded chunks, nothing else. A
//! settled range (maxima at or below the snapshot) is its chunks plus, per update range, the values
//! of the tails. Only a range whose base is newer than the snapshot is folded as a whole, with
//! history. Parts are small enough that decoded values stay in the processor's cache until they are
//! used.

mod base_validity;
mod fold;
pub mod versions;

use crate::lineage::Lineage;
use crate::lineage::base::row_set::RowBits;
use crate::lineage::base::{BaseBody, ChunkBase, ChunkColumn, ColumnBounds};
use crate::lineage::consolidation::OverlayMaker;
use crate::lineage::range::{Range, RangeVersion};
use crate::lineage::scan::fold::Fold;
use arrow_array::{ArrayRef, BooleanArray};
use arrow_buffer::{BooleanBuffer, Buffer};
use std::ops::Range as Span;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use strandline_base::cell::Cell;
use strandline_base::value_words::Physical;
use strandline_base::{BLOCK_ROWS, ColumnId, Result, SqlType, UPDATE_RANGES, UPDATE_ROWS};
use strandline_column::buffer::{gather, patch, patch_words};
use strandline_column::chunk::BlockBounds;
use strandline_column::types::{arrow_type, is_of_any_length};
use strandline_column::word_patches::WordPatches;
use strandline_storage::file::Access;
use strandline_tail::insert_range::InsertRange;
use strandline_tail::patches::PatchList;
use strandline_tail::tails_reader::{TailsReader, TailsView};
use strandline_tail::visibility::{sees, sees_record};
use strandline_txn::Visibility;

/// Work counters of scans.
#[derive(Debug, Default)]
pub struct ScanCounters {
    /// columns of ranges decoded from their encoded form
    pub chunks_decoded: AtomicU64,
    /// visible tail records and consolidated values looked at
    pub tail_records_patched: AtomicU64,
    /// history records used
    pub history_records_read: AtomicU64,
}

/// One range at one snapshot, prepared to return parts. It holds no version of the range, so it
/// does not delay the release of memory that later merges replace or retire.
pub struct RangeSnapshot {
    lineage: Arc<Lineage>,
    base: BaseBody,
    range: Arc<Range>,
    tails: TailsReader,
    visibility: Visibility,
    columns: Arc<[ColumnId]>,
    rows: usize,
    body: VisibleRows,
    leaves_overlays: bool,
    counters: Arc<ScanCounters>,
    /// by position in the wanted columns
    decoded: Vec<AtomicBool>,
}

/// How the snapshot sees the range's rows.
enum VisibleRows {
    /// none
    Nothing,
    /// base's rows that are in `visible` (None: all), changed by the tails
    Settled { visible: Option<RowBits> },
    /// base is newer in places
    Folded(Fold),
}

impl Lineage {
    /// Prepares `range` for reading `columns` at `visibility`.
    pub fn range_snapshot(
        self: &Arc<Self>,
        range: &Arc<Range>,
        visibility: &Visibility,
        columns: &Arc<[ColumnId]>,
        counters: &Arc<ScanCounters>,
    ) -> Result<RangeSnapshot> {
        let version = range.load_full();
        let mut snapshot =
            self.range_snapshot_of(range, &version, visibility, columns, counters)?;
        snapshot.leaves_overlays = true;
        Ok(snapshot)
    }

    /// The same for a version loaded before, for a reader that reads the range once.
    pub fn range_snapshot_of(
        self: &Arc<Self>,
        range: &Arc<Range>,
        version: &Arc<RangeVersion>,
        visibility: &Visibility,
        columns: &Arc<[ColumnId]>,
        counters: &Arc<ScanCounters>,
    ) -> Result<RangeSnapshot> {
        let (rows, body) = match &version.base.body {
            BaseBody::Insert(inserted) => {
                let rows = inserted.rows() as usize;
                let visible = self.inserted(inserted, rows, visibility);
                (rows, VisibleRows::Settled { visible })
            }
            BaseBody::Chunks(chunks) => {
                let rows = chunks.rows as usize;
                let body = match &chunks.meta {
                    _ if chunks.is_quiet_at(visibility.ts) => {
                        VisibleRows::Settled { visible: None }
                    }
                    Some(meta) if chunks.is_settled_at(visibility.ts) => VisibleRows::Settled {
                        visible: Some(meta.load()?.deleted.inverted(rows)),
                    },
                    None if !self.sees_start(chunks, visibility) => VisibleRows::Nothing,
                    None => VisibleRows::Settled { visible: None },
                    Some(meta) => {
                        let (no, meta) = (range.no(), meta.load()?);
                        let fold = self.fold(no, version, rows, &meta, visibility, columns)?;
                        counters
                            .tail_records_patched
                            .fetch_add(fold.records, Ordering::Relaxed);
                        counters
                            .history_records_read
                            .fetch_add(fold.history, Ordering::Relaxed);
                        VisibleRows::Folded(fold)
                    }
                };
                (rows, body)
            }
        };
        Ok(RangeSnapshot {
            lineage: self.clone(),
            base: version.base.body.clone(),
            range: range.clone(),
            tails: range.tails_reader(version, visibility.ts),
            visibility: *visibility,
            columns: columns.clone(),
            rows: if matches!(body, VisibleRows::Nothing) {
                0
            } else {
                rows
            },
            body,
            leaves_overlays: false,
            counters: counters.clone(),
            decoded: columns.iter().map(|_| AtomicBool::new(false)).collect(),
        })
    }

    /// Whether the load that made `chunks` is visible.
    fn sees_start(&self, chunks: &ChunkBase, visibility: &Visibility) -> bool {
        let start = &chunks.start;
        sees(
            || start.load(),
            || start.statement,
            visibility,
            &self.shared.txns,
        )
    }

    /// The visible rows of an insert range; None: all.
    fn inserted(
        &self,
        inserted: &InsertRange,
        rows: usize,
        visibility: &Visibility,
    ) -> Option<RowBits> {
        let mut visible = RowBits::new(rows);
        for slot in 0..rows {
            if let Some((page, i)) = inserted.existing_page(slot)
                && sees_record(page, i, visibility, &self.shared.txns)
            {
                visible.set(slot);
            }
        }
        (visible.count() < rows).then_some(visible)
    }
}

impl RangeSnapshot {
    /// Slots of the range, visible or not.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bounds of the `at`-th column in `block`; None: not known, because tails change base's
    /// values.
    pub fn bounds(&self, block: usize, at: usize) -> Result<Option<BlockBounds>> {
        let column = self.columns[at];
        let is_changed = match &self.body {
            VisibleRows::Nothing => true,
            VisibleRows::Folded(fold) => !fold.is_unpatched(at),
            VisibleRows::Settled { .. } => self
                .tails
                .has_cells(block * BLOCK_ROWS / UPDATE_ROWS, column),
        };
        match self.chunk(column) {
            Some(chunk) if !is_changed => Ok(Some(chunk.stored.footer()?.bounds(block))),
            _ => Ok(None),
        }
    }

    /// Bounds of the `at`-th column in the whole range; None as in [`RangeSnapshot::bounds`].
    pub fn range_bounds(&self, at: usize) -> Result<Option<&ColumnBounds>> {
        let column = self.columns[at];
        let is_changed = match &self.body {
            VisibleRows::Nothing => true,
            VisibleRows::Folded(fold) => !fold.is_unpatched(at),
            VisibleRows::Settled { .. } => {
                (0..UPDATE_RANGES).any(|tail| self.tails.has_cells(tail, column))
            }
        };
        match self.chunk(column) {
            Some(chunk) if !is_changed => chunk.stored.column_bounds().map(Some),
            _ => Ok(None),
        }
    }

    /// Whether base's values of a column are in memory.
    pub fn is_resident(&self, column: ColumnId) -> bool {
        self.chunk(column).is_none_or(|chunk| chunk.is_resident())
    }

    /// The end of the first of `blocks` whose encoded columns have `bytes` together; one block
    /// at least.
    pub fn end_within(&self, blocks: Span<usize>, bytes: usize) -> Result<usize> {
        let bytes = bytes as u64;
        let chunks = || self.columns.iter().filter_map(|column| self.chunk(*column));
        if blocks.len() <= 1 || chunks().map(|chunk| chunk.stored.extent.len).sum::<u64>() <= bytes
        {
            return Ok(blocks.end);
        }
        let mut total = 0;
        for block in blocks.clone() {
            for chunk in chunks() {
                let range = chunk.stored.footer()?.block_range(block);
                total += range.end - range.start;
            }
            if total > bytes && block > blocks.start {
                return Ok(block);
            }
        }
        Ok(blocks.end)
    }

    fn chunk(&self, column: ColumnId) -> Option<&Arc<ChunkColumn>> {
        match &self.base {
            BaseBody::Chunks(chunks) => chunks.column(column),
            BaseBody::Insert(_) => None,
        }
    }

    /// The rows in `span`, which begins at a block and ends at one or at the last row.
    pub fn part(&self, span: Span<usize>) -> RangePart<'_> {
        debug_assert!(span.start.is_multiple_of(BLOCK_ROWS) && span.end <= self.rows);
        let mut visible = match &self.body {
            VisibleRows::Nothing => Some(RowBits::new(span.len())),
            VisibleRows::Settled { visible } => visible.as_ref().map(|v| v.slice(span.clone())),
            VisibleRows::Folded(fold) => fold.visible.as_ref().map(|v| v.slice(span.clone())),
        };
        let mut tails = None;
        if let VisibleRows::Settled { .. } = self.body {
            let view = self.view_tails(&span);
            for slot in view.deleted() {
                let row = usize::from(slot) - span.start;
                if row < span.len() {
                    visible
                        .get_or_insert_with(|| RowBits::all(span.len()))
                        .clear(row);
                }
            }
            tails = Some(view);
        }
        RangePart {
            snapshot: self,
            span,
            visible,
            tails,
            is_past_pool: false,
        }
    }

    /// A new overlay of the range pays: the thread that makes overlays does, or this reader.
    fn want_overlay(&self) {
        let (lineage, no, ts) = (&self.lineage, self.range.no(), self.visibility.ts);
        let consolidation = &lineage.shared.consolidation;
        let maker: Weak<dyn OverlayMaker> = Arc::<Lineage>::downgrade(lineage);
        if !consolidation.takes(maker, (lineage.id(), no), ts) {
            lineage.make_overlay(no, ts);
        }
    }

    fn view_tails(&self, span: &Span<usize>) -> TailsView<'_> {
        let shared = &self.lineage.shared;
        let (visibility, columns) = (&self.visibility, &self.columns);
        let at = span.start / UPDATE_ROWS..span.end.div_ceil(UPDATE_ROWS);
        let view = self.tails.view(at, visibility, columns, &shared.txns);
        self.counters
            .tail_records_patched
            .fetch_add(view.records(columns), Ordering::Relaxed);
        let visited = view.visited;
        if self.leaves_overlays
            && visited.tails > 0
            && let Some(overlay) = self.tails.grows()
            && self
                .range
                .note_visit(overlay, visited.tails, visited.records)
        {
            self.want_overlay();
        }
        view
    }
}

/// Consecutive rows of a range at a snapshot.
pub struct RangePart<'a> {
    snapshot: &'a RangeSnapshot,
    span: Span<usize>,
    visible: Option<RowBits>,
    /// the tails' values, unless they are folded in
    tails: Option<TailsView<'a>>,
    /// whether base's values are read without a place in the pool
    is_past_pool: bool,
}

impl RangePart<'_> {
    /// The same rows; text and bytea of base that the pool does not have are read by blocks and
    /// get no place in it.
    pub fn past_the_pool(mut self) -> Self {
        self.is_past_pool = true;
        self
    }

    /// Bytes of the `at`-th column, of text or bytea: base's as they are encoded, and the values
    /// that are put in the place of base's. Nothing is read or decoded.
    pub fn stored_bytes(&self, at: usize) -> u64 {
        let snapshot = self.snapshot;
        let column = snapshot.columns[at];
        let len = |cell: Cell<'_>| match cell {
            Cell::Bytes(bytes) => bytes.len() as u64,
            _ => 0,
        };
        let base: u64 = match &snapshot.base {
            BaseBody::Insert(inserted) => {
                let pages = self
                    .span
                    .clone()
                    .filter_map(|row| inserted.existing_page(row));
                pages.map(|(page, i)| len(page.cell(i, column))).sum()
            }
            BaseBody::Chunks(_) => snapshot.chunk(column).map_or(0, |c| c.stored.extent.len),
        };
        let patches: u64 = match &snapshot.body {
            VisibleRows::Folded(fold) => {
                let schema = snapshot.lineage.schema();
                let spec = schema.column(column);
                fold.patches(at, spec, self.span.clone())
                    .map(|(_, cell)| len(cell))
                    .sum()
            }
            _ => {
                let lists = self.tails.iter().flat_map(|view| view.patches(at, column));
                lists
                    .flat_map(|list| list.iter(column))
                    .map(|(_, cell)| len(cell))
                    .sum()
            }
        };
        base + patches
    }

    /// The rows, visible or not.
    pub fn span(&self) -> Span<usize> {
        self.span.clone()
    }

    /// The visible rows; None: all.
    pub fn visible(&self) -> Option<BooleanArray> {
        let bits = self.visible.as_ref()?;
        Some(BooleanArray::new(
            boolean_buffer(bits, self.span.len()),
            None,
        ))
    }

    /// The `at`-th column, one value per row, invisible rows included.
    pub fn column(&self, at: usize) -> Result<ArrayRef> {
        let snapshot = self.snapshot;
        let column = snapshot.columns[at];
        let schema = snapshot.lineage.schema();
        let spec = schema.column(column);
        let rows = self.span.len();
        if let VisibleRows::Folded(fold) = &snapshot.body {
            let (array, _) = self.base_array(at, spec, None)?;
            let patches = fold.patches(at, spec, self.span.clone());
            return patch(spec, array, patches);
        }
        let lists: Vec<_> = self
            .tails
            .iter()
            .flat_map(|view| view.patches(at, column))
            .collect();
        let is_fixed = spec.physical == Physical::Word && spec.sql_type != SqlType::Boolean;
        let words = (is_fixed && !lists.is_empty()).then(|| lists.iter().map(PatchList::words));
        let words = words.and_then(|words| words.collect::<Option<Vec<_>>>());
        let words = words.map(|words| WordPatches::new(words, self.span.clone()));
        let (array, is_patched) = self.base_array(at, spec, words.as_ref())?;
        if lists.is_empty() || is_patched {
            return Ok(array);
        }
        if let Some(words) = words {
            return patch_words(array, &words);
        }
        let start = self.span.start;
        let cells = lists.iter().flat_map(|list| {
            list.iter(column)
                .map(move |(slot, cell)| (usize::from(slot) - start, cell))
                .filter(move |(row, _)| *row < rows)
        });
        patch(spec, array, cells)
    }

    /// The base's values, and whether `patches` have been applied already.
    fn base_array(
        &self,
        at: usize,
        spec: &strandline_base::cell::StorageColumn,
        patches: Option<&WordPatches<'_>>,
    ) -> Result<(ArrayRef, bool)> {
        let snapshot = self.snapshot;
        let column = snapshot.columns[at];
        let span = self.span.clone();
        let gathered = match &snapshot.base {
            BaseBody::Insert(inserted) => {
                // A rolled-back change of the table may have used the id for another type. Types of
                // the same array hold the same values: the column's was changed to a longer text.
                let known = inserted.schema().get(column);
                let array_type = arrow_type(spec.sql_type);
                let is_same = known.is_some_and(|c| arrow_type(c.sql_type) == array_type);
                gather(spec, span.len(), |i| {
                    match inserted.existing_page(span.start + i) {
                        Some((page, i)) if is_same => page.cell(i, column),
                        _ => Cell::Absent,
                    }
                })
            }
            BaseBody::Chunks(chunks) => match chunks.column(column) {
                Some(chunk) => {
                    let blocks = span.start / BLOCK_ROWS..span.end.div_ceil(BLOCK_ROWS);
                    if self.is_past_pool && blocks.len() == 1 && is_of_any_length(spec.sql_type) {
                        let array = chunk.one_block(blocks.start, Access::Sequential)?;
                        return Ok((array, false));
                    }
                    let values = chunk.blocks(blocks, patches)?;
                    if values.was_decoded && !snapshot.decoded[at].swap(true, Ordering::Relaxed) {
                        let count = &snapshot.counters.chunks_decoded;
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    return Ok((values.array, values.is_patched));
                }
                None => gather(spec, span.len(), |_| Cell::Absent),
            },
        };
        Ok((gathered?, false))
    }
}

/// Bits as an Arrow buffer of `rows` bits.
fn boolean_buffer(bits: &RowBits, rows: usize) -> BooleanBuffer {
    let words: Vec<u8> = bits.words().iter().flat_map(|w| w.to_le_bytes()).collect();
    BooleanBuffer::new(Buffer::from_vec(words), 0, rows)
}
