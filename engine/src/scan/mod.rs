//! Scans for the query engine: ranges as work units, filters inside, Arrow batches out.
//!
//! A unit is prepared when it is opened, and again if a checkpoint has released it between two
//! batches (see `db::open_readers`). The blocks to read and the filters to evaluate are determined
//! once: both follow from the snapshot's rows, which do not change.

mod history_query;
mod read_ahead;
mod relaxed;
mod statistics;
mod unit;
mod versions;

pub use relaxed::Relaxed;
pub use unit::UnitReader;
pub use versions::{VersionColumn, VersionReader, VersionScan};

use crate::catalog::{TableDef, column_of};
use crate::request::{RowFilter, ScanRequest};
use crate::statement::Statement;
use crate::store::merged_bases::MergedBase;
use crate::store::{RangePart, RangeSnapshot, ScanCounters, Store, StoredRange};
use crate::transaction::Transaction;
use arrow_array::builder::BooleanBufferBuilder;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use read_ahead::ReadAhead;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use strandline_base::{BLOCK_ROWS, ColumnId, CommitTs, Error, Result, SqlState};
use strandline_column::types::arrow_type;
use strandline_txn::{SnapshotGuard, StartWord, Visibility};

/// Work counters of a scan, for EXPLAIN ANALYZE.
#[derive(Debug, Default)]
pub struct ScanMetrics {
    /// ranges of the table
    pub ranges_total: AtomicU64,
    /// ranges not read because of min/max
    pub ranges_pruned: AtomicU64,
    /// blocks not examined because of min/max
    pub blocks_pruned: AtomicU64,
    /// work on the ranges' columns
    pub columns: Arc<ScanCounters>,
    /// slots examined
    pub rows_scanned: AtomicU64,
    /// rows returned
    pub rows_returned: AtomicU64,
}

/// A range, and the base that suffices for a read if the range still has it.
type ScanRange = (StoredRange, Option<MergedBase>);

/// A running scan: a list of work units (ranges) that any thread may take.
pub struct TableScan {
    store: Arc<Store>,
    _snapshot: SnapshotGuard,
    visibility: Visibility,
    request: ScanRequest,
    /// output columns, then columns that only filters or pruning read
    columns: Arc<[ColumnId]>,
    schema: SchemaRef,
    ranges: Vec<ScanRange>,
    metrics: ScanMetrics,
    statement: Arc<Transaction>,
    /// number of parts read so far
    parts: AtomicUsize,
    /// a batch ends after this many bytes of rows, even if the rows are few
    batch_bytes: usize,
    /// over an object store
    ahead: Option<ReadAhead>,
}

impl Statement {
    /// A scan at this statement's snapshot.
    pub fn scan(&self, table: &Arc<TableDef>, request: ScanRequest) -> Result<Arc<TableScan>> {
        let snapshot = self.snapshot_guard().clone();
        self.transaction().note_scan(table, &request, false)?;
        let merged = self.merged().get(&table.storage);
        let ranges = merged.map(|ranges| {
            let ranges = ranges.iter();
            ranges.map(|(r, v)| (r.clone(), Some(v.clone()))).collect()
        });
        self.scan_at(table, snapshot, *self.visibility(), request, ranges)
    }

    /// A scan AS OF `ts`, at most the stable timestamp. (The scan waits for a later one; a
    /// timestamp in the future is an error, and one older than the retention is 72000.) `table` is
    /// the definition at that moment.
    pub fn scan_as_of(
        &self,
        table: &Arc<TableDef>,
        ts: CommitTs,
        request: ScanRequest,
    ) -> Result<Arc<TableScan>> {
        let db = self.transaction().db();
        let cancelled = || self.transaction().is_cancelled();
        let snapshot = db.txns().snapshot_at(ts, &cancelled)?;
        // From here on no version of that moment can be dropped.
        db.check_retained(table, ts)?;
        let visibility = Visibility {
            ts,
            own: StartWord(0),
            statement: 0,
        };
        self.scan_at(table, snapshot, visibility, request, None)
    }

    fn scan_at(
        &self,
        table: &Arc<TableDef>,
        snapshot: SnapshotGuard,
        visibility: Visibility,
        request: ScanRequest,
        ranges: Option<Vec<ScanRange>>,
    ) -> Result<Arc<TableScan>> {
        let store = self.transaction().db().store(table.storage)?;
        let mut fields = Vec::with_capacity(request.columns.len() + 1);
        for &id in &request.columns {
            let c = column_of(table, id)?;
            fields.push(Field::new(&c.name, arrow_type(c.sql_type), !c.not_null));
        }
        if request.with_row_id {
            fields.push(Field::new("_rowid", DataType::UInt64, false));
        }
        let mut columns = request.columns.clone();
        let filtered = request.filters.iter().flat_map(|f| f.columns().to_vec());
        for id in filtered.chain(request.prune.iter().map(|p| p.column)) {
            if !columns.contains(&id) {
                columns.push(id);
            }
        }
        let metrics = ScanMetrics::default();
        let all = store.ranges();
        metrics
            .ranges_total
            .store(all.len() as u64, Ordering::Relaxed);
        let ranges = ranges.unwrap_or_else(|| all.into_iter().map(|r| (r, None)).collect());
        let reads_ahead = self.transaction().db().shared.files.reads_ahead();
        Ok(Arc::new(TableScan {
            store,
            _snapshot: snapshot,
            visibility,
            request,
            columns: columns.into(),
            schema: Arc::new(Schema::new(fields)),
            ranges,
            metrics,
            statement: self.transaction().clone(),
            parts: AtomicUsize::new(0),
            batch_bytes: self.transaction().db().settings().range_bytes(),
            ahead: reads_ahead.then(ReadAhead::new),
        }))
    }
}

impl TableScan {
    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    /// The number of units.
    pub fn units(&self) -> usize {
        self.ranges.len()
    }
    /// The scan's work so far.
    pub fn metrics(&self) -> &ScanMetrics {
        &self.metrics
    }
    /// An estimate of the number of rows, for the optimizer and progress bars.
    pub fn estimated_rows(&self) -> u64 {
        let live_rows = |range: &StoredRange| u64::from(range.summary().live_rows());
        self.ranges.iter().map(|(range, _)| live_rows(range)).sum()
    }
    /// Whether opening unit `unit` reads no files: the bounds that prune it are in memory, and so
    /// is the rows' metadata, if it is needed.
    pub fn opens_in_memory(&self, unit: usize) -> bool {
        self.range(unit)
            .opens_in_memory(self.visibility.ts, self.pruning())
    }

    /// Prepares unit `unit` for reading at the scan's snapshot.
    fn prepare(&self, unit: usize) -> Result<RangeSnapshot> {
        let (range, merged) = &self.ranges[unit];
        let (columns, counters) = (&self.columns, &self.metrics.columns);
        let (merged, visibility) = (merged.as_ref(), &self.visibility);
        self.store
            .read_range(range, merged, visibility, columns, counters)
    }

    /// Reads all batches of unit `unit` (below `units()`), in row-id order.
    pub fn read_unit(self: &Arc<Self>, unit: usize) -> Result<Vec<RecordBatch>> {
        let mut reader = self.open_unit(unit)?;
        std::iter::from_fn(|| reader.next_batch().transpose()).collect()
    }

    /// Prunes by the range's bounds, then by the blocks'; returns which blocks may have rows.
    fn blocks_to_read(&self, snapshot: &RangeSnapshot) -> Result<Vec<bool>> {
        let mut keep = vec![true; snapshot.rows().div_ceil(BLOCK_ROWS)];
        for predicate in &self.request.prune {
            let at = self.position(predicate.column)?;
            if let Some(bounds) = snapshot.range_bounds(at)?
                && !predicate.may_hold((&bounds.min, &bounds.max))
            {
                keep.clear();
                break;
            }
            for (block, keep) in keep.iter_mut().enumerate().filter(|(_, keep)| **keep) {
                if let Some((min, max)) = snapshot.bounds(block, at)? {
                    *keep = predicate.may_hold((&min, &max));
                }
            }
        }
        let pruned = keep.iter().filter(|k| !**k).count();
        if pruned == keep.len() {
            self.metrics.ranges_pruned.fetch_add(1, Ordering::Relaxed);
        } else {
            self.metrics
                .blocks_pruned
                .fetch_add(pruned as u64, Ordering::Relaxed);
        }
        Ok(keep)
    }

    /// The filters for which the range's bounds do not prove that they select every row.
    fn open_filters(&self, snapshot: &RangeSnapshot) -> Result<Vec<Arc<dyn RowFilter>>> {
        let mut open = Vec::with_capacity(self.request.filters.len());
        for filter in &self.request.filters {
            if !self.selects_all(filter.as_ref(), snapshot)? {
                open.push(filter.clone());
            }
        }
        Ok(open)
    }

    /// Whether the range's bounds prove that `filter` selects every row.
    fn selects_all(&self, filter: &dyn RowFilter, snapshot: &RangeSnapshot) -> Result<bool> {
        let Some(comparison) = filter.comparison() else {
            return Ok(false);
        };
        let bounds = snapshot.range_bounds(self.position(comparison.column)?)?;
        Ok(bounds.is_some_and(|bounds| {
            bounds.nulls == 0 && comparison.always_holds((&bounds.min, &bounds.max))
        }))
    }

    fn position(&self, column: ColumnId) -> Result<usize> {
        self.columns
            .iter()
            .position(|c| *c == column)
            .ok_or_else(|| Error::internal("a scan filters by a column it does not read"))
    }

    fn apply(
        &self,
        filter: &dyn RowFilter,
        part: &RangePart<'_>,
        arrays: &mut [Option<ArrayRef>],
        selection: &mut Option<BooleanArray>,
    ) -> Result<()> {
        let rows = part.span().len();
        // The rows to evaluate; None: all.
        let sparse = selection
            .as_ref()
            .filter(|s| filter.is_costly() && s.true_count() * 4 < rows * 3)
            .cloned();
        let mut inputs = Vec::with_capacity(filter.columns().len());
        let mut fields = Vec::with_capacity(filter.columns().len());
        for &column in filter.columns() {
            let at = self.position(column)?;
            let array = match &arrays[at] {
                Some(array) => array.clone(),
                None => arrays[at].insert(part.column(at)?).clone(),
            };
            fields.push(Field::new(
                format!("c{column}"),
                array.data_type().clone(),
                true,
            ));
            inputs.push(array);
        }
        let evaluated = select(&mut inputs, rows, sparse.clone())?;
        let batch = batch_of(Arc::new(Schema::new(fields)), inputs, evaluated)?;
        let mask = filter.evaluate(&batch)?;
        let mask = match mask.null_count() {
            0 => mask,
            _ => arrow_select::filter::prep_null_mask_filter(&mask),
        };
        match sparse {
            Some(sparse) => *selection = Some(spread(&sparse, &mask)),
            None => narrow(selection, mask),
        }
        Ok(())
    }
}

/// The rows of `selection` whose counterpart in `mask`, which has one bit per selected row, is set.
fn spread(selection: &BooleanArray, mask: &BooleanArray) -> BooleanArray {
    let mut rows = BooleanBufferBuilder::new(selection.len());
    rows.append_n(selection.len(), false);
    let mask = mask.values();
    for (at, row) in selection.values().set_indices().enumerate() {
        if mask.value(at) {
            rows.set_bit(row, true);
        }
    }
    BooleanArray::new(rows.finish(), None)
}

/// Keeps the selected ones of the `rows` rows of `columns`; returns their number.
fn select(columns: &mut [ArrayRef], rows: usize, selection: Option<BooleanArray>) -> Result<usize> {
    let Some(selection) = selection.filter(|s| s.true_count() < rows) else {
        return Ok(rows);
    };
    let filter = arrow_select::filter::FilterBuilder::new(&selection)
        .optimize()
        .build();
    for array in columns {
        *array = filter
            .filter(array)
            .map_err(|e| Error::internal(format!("filtering a column: {e}")))?;
    }
    Ok(filter.count())
}

fn narrow(selection: &mut Option<BooleanArray>, mask: BooleanArray) {
    *selection = Some(match selection.take() {
        None => mask,
        Some(before) => BooleanArray::new(before.values() & mask.values(), None),
    });
}

pub(crate) fn batch_of(
    schema: SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options).map_err(|e| {
        Error::invalid(
            SqlState::INTERNAL_ERROR,
            format!("building a batch of a scan: {e}"),
        )
    })
}
