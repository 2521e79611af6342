//! Scans for the query engine: ranges as work units, filters inside, Arrow batches out.

use crate::catalog::TableDef;
use crate::statement::{Statement, column_of};
use crate::store::Store;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_base::{BLOCK_ROWS, ColumnId, CommitTs, Error, Result, RowId, SqlState, Value};
use strandline_table::base::BaseBody;
use strandline_table::range::Range;
use strandline_table::scan::{RangeSnapshot, ScanCounters};
use strandline_table::types::arrow_type;
use strandline_txn::{SnapshotGuard, StartWord, Visibility};

/// Rows per batch unless asked otherwise.
const BATCH_ROWS: usize = 16_384;

/// What to read.
#[derive(Clone, Default)]
pub struct ScanRequest {
    /// Columns in output order.
    pub columns: Vec<ColumnId>,
    /// Adds a last column `_rowid` (UInt64).
    pub with_row_id: bool,
    /// Conjuncts that prune ranges and blocks by min/max; not applied to rows.
    pub prune: Vec<ColumnPredicate>,
    /// Conjuncts applied to rows; their columns are decoded first.
    pub filters: Vec<Arc<dyn RowFilter>>,
    /// Rows per batch wished for (default 16,384).
    pub batch_rows: Option<usize>,
}

/// `column op value`; a NULL column never satisfies it.
#[derive(Clone, Debug)]
pub struct ColumnPredicate {
    /// the column
    pub column: ColumnId,
    /// the comparison
    pub op: CompareOp,
    /// a value of the column's type
    pub value: Value,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareOp {
    /// =
    Eq,
    /// <
    Lt,
    /// <=
    Le,
    /// >
    Gt,
    /// >=
    Ge,
}

/// A predicate over some columns of the table, evaluated inside the scan.
pub trait RowFilter: Send + Sync {
    /// The columns it reads.
    fn columns(&self) -> &[ColumnId];
    /// `batch` has exactly those columns, in that order. NULL counts as false.
    fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray>;
}

/// What a scan did, for EXPLAIN ANALYZE.
#[derive(Debug, Default)]
pub struct ScanMetrics {
    /// ranges of the table
    pub ranges_total: AtomicU64,
    /// ranges not read thanks to min/max
    pub ranges_pruned: AtomicU64,
    /// blocks not looked at thanks to min/max
    pub blocks_pruned: AtomicU64,
    /// columns of ranges decoded
    pub chunks_decoded: AtomicU64,
    /// pending records looked at
    pub tail_records_patched: AtomicU64,
    /// history records used
    pub history_records_read: AtomicU64,
    /// slots looked at
    pub rows_scanned: AtomicU64,
    /// rows handed out
    pub rows_returned: AtomicU64,
}

/// A running scan: a list of work units (ranges) that any thread may take.
pub struct TableScan {
    store: Arc<Store>,
    _snapshot: SnapshotGuard,
    visibility: Visibility,
    request: ScanRequest,
    /// output columns, then those only filters or pruning read
    columns: Vec<ColumnId>,
    schema: SchemaRef,
    ranges: Vec<Arc<Range>>,
    metrics: ScanMetrics,
    statement: Arc<crate::transaction::Transaction>,
}

impl Statement {
    /// A scan at this statement's snapshot.
    pub fn scan(&self, table: &Arc<TableDef>, request: ScanRequest) -> Result<Arc<TableScan>> {
        let snapshot = self.snapshot_guard().clone();
        self.scan_at(table, snapshot, *self.visibility(), request)
    }

    /// A scan AS OF `ts`, which is at most the stable timestamp (later waits; in the future is an
    /// error; older than the retention is 72000). `table` is the definition at that moment.
    pub fn scan_as_of(
        &self,
        table: &Arc<TableDef>,
        ts: CommitTs,
        request: ScanRequest,
    ) -> Result<Arc<TableScan>> {
        let db = self.transaction().db();
        let snapshot = db.txns().snapshot(Some(ts))?;
        // Only from here on nothing of that moment is dropped any more.
        db.check_retained(table, ts)?;
        let visibility = Visibility {
            ts,
            own: StartWord(0),
            statement: 0,
        };
        self.scan_at(table, snapshot, visibility, request)
    }

    fn scan_at(
        &self,
        table: &Arc<TableDef>,
        snapshot: SnapshotGuard,
        visibility: Visibility,
        request: ScanRequest,
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
        let all = store.lineage.ranges();
        metrics
            .ranges_total
            .store(all.len() as u64, Ordering::Relaxed);
        let ranges = all.iter().cloned().collect();
        Ok(Arc::new(TableScan {
            store,
            _snapshot: snapshot,
            visibility,
            request,
            columns,
            schema: Arc::new(Schema::new(fields)),
            ranges,
            metrics,
            statement: self.transaction().clone(),
        }))
    }
}

impl TableScan {
    /// The schema of the batches.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    /// How many units there are.
    pub fn units(&self) -> usize {
        self.ranges.len()
    }
    /// What the scan did so far.
    pub fn metrics(&self) -> &ScanMetrics {
        &self.metrics
    }
    /// An estimate of the rows that will come, for the optimizer and progress bars.
    pub fn estimated_rows(&self) -> u64 {
        self.ranges.iter().map(|r| slots_of(r)).sum()
    }
    /// Whether reading unit `unit` stays in memory.
    pub fn is_resident(&self, unit: usize) -> bool {
        let version = self.ranges[unit].load();
        match &version.base.body {
            BaseBody::Insert(_) => true,
            BaseBody::Chunks(chunks) => self
                .columns
                .iter()
                .all(|c| chunks.column(*c).is_none_or(|chunk| chunk.is_resident())),
        }
    }

    /// Reads unit `unit` (below `units()`), all its batches, in row-id order.
    pub fn read_unit(&self, unit: usize) -> Result<Vec<RecordBatch>> {
        self.statement.check_cancelled()?;
        let range = &self.ranges[unit];
        let counters = ScanCounters::default();
        let lineage = &self.store.lineage;
        let snapshot = lineage.range_snapshot(range, &self.visibility, &self.columns, &counters)?;
        let batches = self.read_range(range, &snapshot)?;
        let add = |to: &AtomicU64, from: &AtomicU64| {
            to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        add(&self.metrics.chunks_decoded, &counters.chunks_decoded);
        add(
            &self.metrics.tail_records_patched,
            &counters.tail_records_patched,
        );
        add(
            &self.metrics.history_records_read,
            &counters.history_records_read,
        );
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        self.metrics
            .rows_returned
            .fetch_add(rows as u64, Ordering::Relaxed);
        Ok(batches)
    }

    fn read_range(&self, range: &Range, snapshot: &RangeSnapshot<'_>) -> Result<Vec<RecordBatch>> {
        let rows = snapshot.rows();
        if rows == 0 {
            return Ok(Vec::new());
        }
        let mut selection = snapshot.visible();
        if !self.prune(snapshot, &mut selection)? || is_empty(&selection) {
            self.metrics.ranges_pruned.fetch_add(1, Ordering::Relaxed);
            return Ok(Vec::new());
        }
        self.metrics
            .rows_scanned
            .fetch_add(rows as u64, Ordering::Relaxed);
        let mut arrays: Vec<Option<ArrayRef>> = vec![None; self.columns.len()];
        for filter in &self.request.filters {
            self.apply(filter.as_ref(), snapshot, &mut arrays, &mut selection)?;
            if is_empty(&selection) {
                return Ok(Vec::new());
            }
        }
        let mut output = Vec::with_capacity(self.schema.fields().len());
        for (at, array) in arrays
            .iter_mut()
            .enumerate()
            .take(self.request.columns.len())
        {
            output.push(match array.take() {
                Some(array) => array,
                None => snapshot.column(at)?,
            });
        }
        if self.request.with_row_id {
            let first = RowId::new(range.no(), 0).0;
            output.push(Arc::new(UInt64Array::from_iter_values(
                first..first + rows as u64,
            )));
        }
        self.batches(output, rows, selection)
    }

    /// Prunes by the blocks' bounds; false if nothing can be left.
    fn prune(
        &self,
        snapshot: &RangeSnapshot<'_>,
        selection: &mut Option<BooleanArray>,
    ) -> Result<bool> {
        let rows = snapshot.rows();
        let mut keep = vec![true; rows.div_ceil(BLOCK_ROWS)];
        for predicate in &self.request.prune {
            let at = self.position(predicate.column)?;
            let Some(footer) = snapshot.footer(at)? else {
                continue;
            };
            for (block, keep) in keep.iter_mut().enumerate() {
                *keep &= predicate.may_hold(footer.bounds(block));
            }
        }
        let pruned = keep.iter().filter(|k| !**k).count();
        if pruned == 0 {
            return Ok(true);
        }
        self.metrics
            .blocks_pruned
            .fetch_add(pruned as u64, Ordering::Relaxed);
        if pruned == keep.len() {
            return Ok(false);
        }
        let mask: BooleanArray = (0..rows).map(|row| Some(keep[row / BLOCK_ROWS])).collect();
        narrow(selection, mask)?;
        Ok(true)
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
        snapshot: &RangeSnapshot<'_>,
        arrays: &mut [Option<ArrayRef>],
        selection: &mut Option<BooleanArray>,
    ) -> Result<()> {
        let mut inputs = Vec::with_capacity(filter.columns().len());
        let mut fields = Vec::with_capacity(filter.columns().len());
        for &column in filter.columns() {
            let at = self.position(column)?;
            let array = match &arrays[at] {
                Some(array) => array.clone(),
                None => arrays[at].insert(snapshot.column(at)?).clone(),
            };
            fields.push(Field::new(
                format!("c{column}"),
                array.data_type().clone(),
                true,
            ));
            inputs.push(array);
        }
        let batch = batch_of(Arc::new(Schema::new(fields)), inputs, snapshot.rows())?;
        let mask = filter.evaluate(&batch)?;
        let mask = match mask.null_count() {
            0 => mask,
            _ => arrow_select::filter::prep_null_mask_filter(&mask),
        };
        narrow(selection, mask)
    }

    fn batches(
        &self,
        mut output: Vec<ArrayRef>,
        mut rows: usize,
        selection: Option<BooleanArray>,
    ) -> Result<Vec<RecordBatch>> {
        if let Some(selection) = selection
            && selection.true_count() < rows
        {
            let filter = arrow_select::filter::FilterBuilder::new(&selection)
                .optimize()
                .build();
            for array in &mut output {
                *array = filter
                    .filter(array)
                    .map_err(|e| Error::internal(format!("filtering a column: {e}")))?;
            }
            rows = filter.count();
        }
        // Only now: slots without a visible row may be NULL in a NOT NULL column.
        let whole = batch_of(self.schema.clone(), output, rows)?;
        let size = self.request.batch_rows.unwrap_or(BATCH_ROWS).max(1);
        Ok((0..rows)
            .step_by(size)
            .map(|at| whole.slice(at, size.min(rows - at)))
            .collect())
    }
}

fn slots_of(range: &Range) -> u64 {
    let version = range.load();
    match &version.base.body {
        BaseBody::Insert(rows) => u64::from(rows.rows()),
        BaseBody::Chunks(chunks) => u64::from(chunks.rows.saturating_sub(chunks.deleted)),
    }
}

fn is_empty(selection: &Option<BooleanArray>) -> bool {
    selection.as_ref().is_some_and(|s| s.true_count() == 0)
}

fn narrow(selection: &mut Option<BooleanArray>, mask: BooleanArray) -> Result<()> {
    *selection = Some(match selection.take() {
        None => mask,
        Some(before) => BooleanArray::new(before.values() & mask.values(), None),
    });
    Ok(())
}

fn batch_of(schema: SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema, columns, &options).map_err(|e| {
        Error::invalid(
            SqlState::INTERNAL_ERROR,
            format!("building a batch of a scan: {e}"),
        )
    })
}

impl ColumnPredicate {
    /// Whether some row of a block with these bounds may satisfy the predicate.
    fn may_hold(&self, (min, max): (Option<Value>, Option<Value>)) -> bool {
        use std::cmp::Ordering::{Equal, Greater, Less};
        // No bound, or one that does not compare: leave it to the filter.
        let order = |bound: Option<Value>| bound.and_then(|b| b.compare(&self.value));
        let (min, max) = (order(min), order(max));
        match self.op {
            CompareOp::Eq => min != Some(Greater) && max != Some(Less),
            CompareOp::Lt => min.is_none_or(|m| m == Less),
            CompareOp::Le => min.is_none_or(|m| m == Less || m == Equal),
            CompareOp::Gt => max.is_none_or(|m| m == Greater),
            CompareOp::Ge => max.is_none_or(|m| m == Greater || m == Equal),
        }
    }
}
