//! Scanning a range into Arrow arrays.
//!
//! A quiet range (no tail, maxima at or below the snapshot) is its decoded chunks, nothing else.
//! Otherwise the fold says which rows there are and what to patch. Filter columns are decoded
//! first; the others only if a row survives.

use crate::base::{BaseBody, BaseState};
use crate::chunk::ChunkFooter;
use crate::column_buffer::{gather, patch};
use crate::fold::Fold;
use crate::lineage::Lineage;
use crate::range::{Range, RangeVersion};
use crate::record_page::Cell;
use crate::row_meta::RowBits;
use arrow_array::{ArrayRef, BooleanArray};
use arrow_buffer::{BooleanBuffer, Buffer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_base::{ColumnId, Result};
use strandline_txn::Visibility;

/// What scans did.
#[derive(Debug, Default)]
pub struct ScanCounters {
    /// columns of ranges decoded from their encoded form
    pub chunks_decoded: AtomicU64,
    /// visible tail records looked at
    pub tail_records_patched: AtomicU64,
    /// history records used
    pub history_records_read: AtomicU64,
}

/// One range at one snapshot, ready to give columns.
pub struct RangeSnapshot<'a> {
    lineage: &'a Lineage,
    version: Arc<RangeVersion>,
    columns: &'a [ColumnId],
    /// None: base as it is
    fold: Option<Fold>,
    rows: usize,
    counters: &'a ScanCounters,
}

impl Lineage {
    /// Prepares `range` for reading `columns` at `visibility`.
    pub fn range_snapshot<'a>(
        &'a self,
        range: &Range,
        visibility: &Visibility,
        columns: &'a [ColumnId],
        counters: &'a ScanCounters,
    ) -> Result<RangeSnapshot<'a>> {
        let version = range.load_full();
        self.range_snapshot_of(range, &version, visibility, columns, counters)
    }

    /// The same for a version loaded before.
    pub fn range_snapshot_of<'a>(
        &'a self,
        range: &Range,
        version: &Arc<RangeVersion>,
        visibility: &Visibility,
        columns: &'a [ColumnId],
        counters: &'a ScanCounters,
    ) -> Result<RangeSnapshot<'a>> {
        let quiet = match &version.base.body {
            BaseBody::Chunks(chunks) if version.has_no_tail() => chunks
                .is_quiet_at(visibility.ts)
                .then_some(chunks.rows as usize),
            _ => None,
        };
        let fold = match quiet {
            Some(_) => None,
            None => Some(self.fold(range.no(), version, visibility, columns)?),
        };
        if let Some(fold) = &fold {
            counters
                .tail_records_patched
                .fetch_add(fold.records, Ordering::Relaxed);
            counters
                .history_records_read
                .fetch_add(fold.history, Ordering::Relaxed);
        }
        let rows = quiet.or(fold.as_ref().map(|f| f.rows)).unwrap_or(0);
        Ok(RangeSnapshot {
            lineage: self,
            version: version.clone(),
            columns,
            fold,
            rows,
            counters,
        })
    }
}

impl RangeSnapshot<'_> {
    /// Slots of the range, visible or not.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The visible slots; None: all.
    pub fn visible(&self) -> Option<BooleanArray> {
        let bits = self.fold.as_ref()?.visible.as_ref()?;
        Some(BooleanArray::new(boolean_buffer(bits, self.rows), None))
    }

    /// The `at`-th column, one value per slot (also of invisible ones).
    pub fn column(&self, at: usize) -> Result<ArrayRef> {
        let column = self.columns[at];
        let schema = self.lineage.schema();
        let spec = schema.column(column);
        let array = base_array(&self.version.base, column, spec, self.rows, self.counters)?;
        match &self.fold {
            Some(fold) if !fold.is_unpatched(at) => patch(spec, array, fold.patches(at, spec)),
            _ => Ok(array),
        }
    }

    /// The footer of the `at`-th column's chunk, if base alone gives the column.
    pub fn footer(&self, at: usize) -> Result<Option<Arc<ChunkFooter>>> {
        if self.fold.as_ref().is_some_and(|f| !f.is_unpatched(at)) {
            return Ok(None);
        }
        let BaseBody::Chunks(chunks) = &self.version.base.body else {
            return Ok(None);
        };
        let Some(chunk) = chunks.column(self.columns[at]) else {
            return Ok(None);
        };
        Ok(Some(chunk.footer()?.clone()))
    }
}

/// Bits as an Arrow buffer of `rows` bits.
pub fn boolean_buffer(bits: &RowBits, rows: usize) -> BooleanBuffer {
    let words: Vec<u8> = bits.words().iter().flat_map(|w| w.to_le_bytes()).collect();
    BooleanBuffer::new(Buffer::from_vec(words), 0, rows)
}

fn base_array(
    base: &BaseState,
    column: ColumnId,
    spec: &crate::schema::StorageColumn,
    rows: usize,
    counters: &ScanCounters,
) -> Result<ArrayRef> {
    match &base.body {
        BaseBody::Insert(inserted) => {
            // A rolled-back change of the table may have used the id for another type.
            let known = inserted.schema().get(column);
            let is_same = known.is_some_and(|c| c.sql_type == spec.sql_type);
            gather(spec, rows, |slot| match inserted.existing_page(slot) {
                Some((page, i)) if is_same => page.cell(i, column),
                _ => Cell::Absent,
            })
        }
        BaseBody::Chunks(chunks) => match chunks.column(column) {
            Some(chunk) => chunk.array(&counters.chunks_decoded),
            None => gather(spec, rows, |_| Cell::Absent),
        },
    }
}
