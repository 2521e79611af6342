//! Execution of one unit of a scan: reads its blocks, filters them, returns batches.

use super::{TableScan, batch_of, select};
use crate::db::open_readers::Prepared;
use crate::request::RowFilter;
use crate::store::RangeSnapshot;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, UInt64Array};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strandline_base::{BLOCK_ROWS, Error, Result, RowId};
use strandline_column::row_bytes::batch_bytes;

/// Blocks read together; few, so that their decoded form stays in the processor's cache.
const PART_BLOCKS: usize = 4;

/// The first parts of a scan are single blocks, returned alone. A cursor that stays at its first
/// rows then holds little, and LIMIT reads little.
const SINGLE_BLOCKS: usize = 8;

/// Batches with fewer rows, as filters leave them, are combined.
const BATCH_ROWS_MIN: usize = 8192;

/// A reader of one unit of a scan.
pub struct UnitReader {
    scan: Arc<TableScan>,
    unit: usize,
    prepared: Prepared<RangeSnapshot>,
    /// by block: whether to read it
    keep: Vec<bool>,
    /// the scan's filters that must be evaluated for this unit
    filters: Vec<Arc<dyn RowFilter>>,
    next_block: usize,
    has_rows: bool,
}

impl TableScan {
    /// Opens unit `unit` (below `units()`).
    pub fn open_unit(self: &Arc<Self>, unit: usize) -> Result<UnitReader> {
        self.statement.check_cancelled()?;
        if let Some(ahead) = &self.ahead {
            ahead.advance(self, unit, !self.opens_in_memory(unit));
        }
        let snapshot = self.prepare(unit)?;
        let keep = self.blocks_to_read(&snapshot)?;
        if let Some(ahead) = &self.ahead
            && keep.contains(&true)
        {
            ahead.cover(self, unit);
        }
        let filters = match keep.contains(&true) {
            true => self.open_filters(&snapshot)?,
            false => Vec::new(),
        };
        let rows: usize = keep.iter().filter(|keep| **keep).count() * BLOCK_ROWS;
        self.metrics
            .rows_scanned
            .fetch_add(rows.min(snapshot.rows()) as u64, Ordering::Relaxed);
        let prepared = match keep.contains(&true) {
            true => {
                let readers = &self.statement.db().open_readers;
                Prepared::new(readers, snapshot)
            }
            false => Prepared::nothing(),
        };
        Ok(UnitReader {
            scan: self.clone(),
            unit,
            prepared,
            keep,
            filters,
            next_block: 0,
            has_rows: false,
        })
    }
}

impl UnitReader {
    /// Whether reading the rows reads no files.
    pub fn is_resident(&self) -> bool {
        let place = self.prepared.place();
        let prepared = place.lock();
        let Some(snapshot) = &*prepared else {
            return self.is_at_end();
        };
        let filtered = self.filters.iter().flat_map(|filter| filter.columns());
        let mut columns = self.scan.request.columns.iter().chain(filtered);
        columns.all(|column| snapshot.is_resident(*column))
    }

    /// Whether the unit has no further rows to read.
    pub fn is_at_end(&self) -> bool {
        let rest = self.keep.get(self.next_block..);
        rest.is_none_or(|rest| !rest.contains(&true))
    }

    /// The next rows, in row-id order; None at the end.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.is_at_end() {
            return Ok(None);
        }
        let place = self.prepared.place();
        let mut prepared = place.lock();
        let snapshot = match &mut *prepared {
            Some(snapshot) => snapshot,
            taken => taken.insert(self.scan.prepare(self.unit)?),
        };
        // Combine several parts if they are too small to be returned alone.
        let (mut batches, mut rows, mut bytes) = (Vec::new(), 0, 0);
        let least = match self.scan.parts.load(Ordering::Relaxed) < SINGLE_BLOCKS {
            true => 1,
            false => BATCH_ROWS_MIN,
        };
        while rows < least && bytes < self.scan.batch_bytes {
            let Some(blocks) = self.next_blocks(snapshot)? else {
                break;
            };
            // A range without any row that is visible to a snapshot may have lost all its slots.
            let first = snapshot.rows().min(blocks.start * BLOCK_ROWS);
            let span = first..snapshot.rows().min(blocks.end * BLOCK_ROWS);
            let batch = self.read(snapshot, span)?;
            if batch.num_rows() > 0 {
                rows += batch.num_rows();
                bytes += batch_bytes(&batch);
                batches.push(batch);
            }
        }
        let batch = match batches.as_slice() {
            [] => return Ok(None),
            [one] => one.clone(),
            several => arrow_select::concat::concat_batches(&self.scan.schema, several)
                .map_err(|e| Error::internal(format!("joining batches: {e}")))?,
        };
        self.has_rows = true;
        self.scan
            .metrics
            .rows_returned
            .fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        Ok(Some(batch))
    }

    /// The blocks to read next, `None` at the end: fewer than [`PART_BLOCKS`] if they are large.
    fn next_blocks(&mut self, snapshot: &RangeSnapshot) -> Result<Option<std::ops::Range<usize>>> {
        let rest = self.keep.get(self.next_block..).unwrap_or_default();
        let Some(skipped) = rest.iter().position(|keep| *keep) else {
            return Ok(None);
        };
        let first = self.next_block + skipped;
        let parts_before = self.scan.parts.fetch_add(1, Ordering::Relaxed);
        let most = match parts_before < SINGLE_BLOCKS {
            true => 1,
            false => PART_BLOCKS,
        };
        let wanted = self.keep[first..].iter().take(most);
        let end = first + wanted.take_while(|keep| **keep).count();
        let end = snapshot.end_within(first..end, self.scan.batch_bytes)?;
        self.next_block = end;
        Ok(Some(first..end))
    }

    fn read(&self, snapshot: &RangeSnapshot, span: std::ops::Range<usize>) -> Result<RecordBatch> {
        let scan = &self.scan;
        let nothing = || RecordBatch::new_empty(scan.schema.clone());
        if span.is_empty() {
            return Ok(nothing());
        }
        let part = snapshot.part(span.clone());
        let mut selection = part.visible();
        if is_empty(&selection) {
            return Ok(nothing());
        }
        let mut arrays: Vec<Option<ArrayRef>> = vec![None; scan.columns.len()];
        for filter in &self.filters {
            scan.apply(filter.as_ref(), &part, &mut arrays, &mut selection)?;
            if is_empty(&selection) {
                return Ok(nothing());
            }
        }
        let mut output = Vec::with_capacity(scan.schema.fields().len());
        for (at, array) in arrays
            .into_iter()
            .enumerate()
            .take(scan.request.columns.len())
        {
            output.push(match array {
                Some(array) => array,
                None => part.column(at)?,
            });
        }
        if scan.request.with_row_id {
            let first = RowId::new(scan.ranges[self.unit].0.no(), 0).0;
            let ids = first + span.start as u64..first + span.end as u64;
            output.push(Arc::new(UInt64Array::from_iter_values(ids)));
        }
        let rows = select(&mut output, span.len(), selection)?;
        // Build the batch last: slots without a visible row may be NULL in a NOT NULL column.
        batch_of(scan.schema.clone(), output, rows)
    }
}

impl Drop for UnitReader {
    fn drop(&mut self) {
        if let Some(ahead) = &self.scan.ahead {
            let was_read = self.keep.contains(&true) && (self.is_at_end() || self.has_rows);
            ahead.end(self.unit, was_read.then_some(self.has_rows));
        }
    }
}

fn is_empty(selection: &Option<BooleanArray>) -> bool {
    selection.as_ref().is_some_and(|s| s.true_count() == 0)
}
