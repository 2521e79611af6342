//! The first rows of a scan in the order of an index.
//!
//! Entries are read in chunks, and their rows are fetched, or taken from entries that are certain.
//! A row has an entry for each key that it had, so it is kept only if its visible version has the
//! entry's key. Cut keys have no order among themselves.
//!
//! A walk by distance has no rows whose distance is NULL, and these come last. So it gives up if it
//! ends before the reader has enough.
//!
//! A walk gives up at a cut key, or at a place with NaN, or after so many entries that a scan would
//! have cost less. The node above ([`crate::planning::planner`]) then drops the rows so far and
//! runs another plan.

use super::ScanExec;
use super::fetch::Fetcher;
use super::source::Source;
use crate::planning::one_input::no_input;
use crate::planning::provider::access::{OrderedTerm, Walk, WalkEntries};
use crate::runtime::blocking::in_place;
use crate::values::value;
use datafusion::arrow::array::{RecordBatch, UInt32Array};
use datafusion::arrow::compute::{SortOptions, concat_batches, take_record_batch};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline_base::{Result, RowId, SqlType};
use strandline_engine::{CoveredColumns, Covering, EntryWatch, KeyBytes, RowKeys};
use strandline_semantics::error::{from_arrow, raise};
use strandline_semantics::functions::{SpatialOperator, as_signed_physical};
use strandline_semantics::types::sql_type_of_arrow;

/// The least entries of the first chunk; each further chunk has twice as many.
const CHUNK_MIN: usize = 16;
/// The most entries of a chunk.
const CHUNK_MAX: usize = 4096;

/// The rows that are wanted of each walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// all rows of a single walk, until the reader stops, after about this many
    Rows(usize),
    /// the first row; the first rows of several walks are returned together
    First,
}

/// Reads the rows of a scan in the order of indexes.
pub struct IndexWalkExec {
    source: Arc<Source>,
    schema: SchemaRef,
    walks: Arc<Vec<Walk>>,
    wanted: Wanted,
    /// the most entries to read
    limit: usize,
    gave_up: Arc<AtomicBool>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl ScanExec {
    /// Whether the scan has indexes that keep an order.
    pub fn has_indexes(&self) -> bool {
        let access = self.source.access.as_ref();
        access.is_some_and(|access| access.is_ordered())
    }

    /// The first `rows` rows of the scan, or a few more, ordered by expressions over its output.
    /// None: no index has the order, or a sort is cheaper.
    pub fn in_order(
        &self,
        order: &[(Arc<dyn PhysicalExpr>, SortOptions)],
        rows: usize,
    ) -> Result<Option<IndexWalkExec>> {
        if let [(by, options)] = order
            && let Some(walk) = self.by_distance(by, *options)
        {
            return self.walking_over(vec![walk], Wanted::Rows(rows));
        }
        let order = order
            .iter()
            .map(|(by, options)| self.ordered_term(by, *options, false));
        match order.collect::<Option<Vec<_>>>() {
            Some(order) => self.walking(&[order], Wanted::Rows(rows)),
            None => Ok(None),
        }
    }

    /// For each of `ends`, an expression over the output, a row with its least value (true: its
    /// greatest). There is no row for an expression that is always NULL.
    pub fn ends(&self, ends: &[(Arc<dyn PhysicalExpr>, bool)]) -> Result<Option<IndexWalkExec>> {
        let ends = ends.iter().map(|(of, greatest)| {
            let options = SortOptions::new(*greatest, false);
            Some(vec![self.ordered_term(of, options, true)?])
        });
        match ends.collect::<Option<Vec<_>>>() {
            Some(orders) => self.walking(&orders, Wanted::First),
            None => Ok(None),
        }
    }

    /// A walk in the order of the distance of a column from a constant point.
    fn by_distance(&self, by: &Arc<dyn PhysicalExpr>, options: SortOptions) -> Option<Walk> {
        let call = by.downcast_ref::<ScalarFunctionExpr>()?;
        if SpatialOperator::of_function(call.name()) != Some(SpatialOperator::Distance) {
            return None;
        }
        let [left, right] = call.args() else {
            return None;
        };
        let (column, point) = match left.downcast_ref::<Column>() {
            Some(column) => (column, right),
            None => (right.downcast_ref::<Column>()?, left),
        };
        let point = point.downcast_ref::<Literal>()?.value();
        if sql_type_of_arrow(&point.data_type()) != Some(SqlType::Point) {
            return None;
        }
        let point = value::from_scalar(point, SqlType::Point).ok()?;
        let term = *self.source.columns.get(column.index())?;
        let walk = self.source.access.as_ref()?.nearest(term, &point)?;
        let nulls_fit = !options.nulls_first || !walk.omits_nulls;
        (!options.descending && nulls_fit).then_some(walk)
    }

    fn ordered_term(
        &self,
        by: &Arc<dyn PhysicalExpr>,
        options: SortOptions,
        skips_null: bool,
    ) -> Option<OrderedTerm> {
        let by = as_signed_physical(by);
        let term = match by.downcast_ref::<Column>() {
            Some(column) => *self.source.columns.get(column.index())?,
            None => self.source.access.as_ref()?.term(by, &self.schema)?,
        };
        Some(OrderedTerm {
            term,
            options,
            skips_null,
        })
    }

    fn walking(
        &self,
        orders: &[Vec<OrderedTerm>],
        wanted: Wanted,
    ) -> Result<Option<IndexWalkExec>> {
        let Some(access) = self.source.access.as_ref() else {
            return Ok(None);
        };
        let mut walks = Vec::with_capacity(orders.len());
        for order in orders {
            match access.walk(order)? {
                Some(walk) => walks.push(walk),
                None => return Ok(None),
            }
        }
        self.walking_over(walks, wanted)
    }

    fn walking_over(&self, walks: Vec<Walk>, wanted: Wanted) -> Result<Option<IndexWalkExec>> {
        let Some(access) = self.source.access.as_ref().filter(|_| self.limit.is_none()) else {
            return Ok(None);
        };
        let rows = match wanted {
            Wanted::Rows(rows) => rows,
            Wanted::First => 1,
        };
        let Some(limit) = access.walk_limit(rows) else {
            return Ok(None);
        };
        let properties = PlanProperties::new(
            EquivalenceProperties::new(self.schema.clone()),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Ok(Some(IndexWalkExec {
            source: self.source.clone(),
            schema: self.schema.clone(),
            walks: Arc::new(walks),
            wanted,
            limit,
            gave_up: Arc::default(),
            properties: Arc::new(properties),
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }
}

impl IndexWalkExec {
    /// Set when a walk gives up, so that its rows are incomplete.
    pub fn gave_up(&self) -> &Arc<AtomicBool> {
        &self.gave_up
    }
}

impl fmt::Debug for IndexWalkExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IndexWalkExec({})", self.source.table.name)
    }
}

impl DisplayAs for IndexWalkExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, between) = match t {
            DisplayFormatType::TreeRender => ("", "\n"),
            _ if self.walks.iter().all(|walk| walk.is_covering) => ("IndexOnlyWalk: ", ", "),
            _ => ("IndexWalk: ", ", "),
        };
        write!(f, "{start}")?;
        self.source.fmt_request(f, &self.schema, between)?;
        let walks: Vec<&str> = self.walks.iter().map(|walk| walk.text.as_str()).collect();
        write!(f, "{between}index={}", walks.join(", "))
    }
}

impl ExecutionPlan for IndexWalkExec {
    fn name(&self) -> &str {
        "IndexWalk"
    }

    no_input!(no_expressions);

    fn execute(
        &self,
        partition: usize,
        _context: Arc<TaskContext>,
    ) -> PlanResult<SendableRecordBatchStream> {
        let counter = |name| MetricBuilder::new(&self.metrics).counter(name, partition);
        let walker = Walker {
            source: self.source.clone(),
            schema: self.schema.clone(),
            walks: self.walks.clone(),
            wanted: self.wanted,
            left: self.limit,
            gave_up: self.gave_up.clone(),
            open: None,
            is_done: false,
            metrics: BaselineMetrics::new(&self.metrics, partition),
            entries: counter("index_entries"),
            fetched: counter("rows_fetched"),
            rechecked: counter("rows_rechecked_away"),
        };
        let stream = futures::stream::try_unfold(walker, |mut walker| async move {
            let batch = in_place(|| walker.next()).map_err(raise)?;
            Ok(batch.map(|batch| (batch.record_output(&walker.metrics), walker)))
        });
        let schema = self.schema.clone();
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// One execution of the node.
struct Walker {
    source: Arc<Source>,
    schema: SchemaRef,
    walks: Arc<Vec<Walk>>,
    wanted: Wanted,
    /// the remaining entries
    left: usize,
    gave_up: Arc<AtomicBool>,
    /// the walk for [`Wanted::Rows`]
    open: Option<OpenWalk>,
    is_done: bool,
    metrics: BaselineMetrics,
    entries: Count,
    fetched: Count,
    rechecked: Count,
}

/// A running walk.
struct OpenWalk {
    /// the entries, and the computation of rows' keys; None: the index has been dropped
    entries: Option<(WalkEntries, RowKeys)>,
    fetcher: Fetcher,
    /// Some: the entries have what the fetcher reads
    covering: Option<(CoveredColumns, EntryWatch)>,
    chunk: usize,
    is_at_end: bool,
}

impl Walker {
    /// The next rows; None at the end, or when the walk has given up.
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        let elapsed = self.metrics.elapsed_compute().clone();
        let _timer = elapsed.timer();
        if self.is_done {
            return Ok(None);
        }
        match self.wanted {
            Wanted::First => {
                self.is_done = true;
                self.firsts()
            }
            Wanted::Rows(rows) => {
                let mut walk = match self.open.take() {
                    Some(walk) => walk,
                    None => self.open_walk(0, rows)?,
                };
                let batch = self.next_of(&mut walk)?;
                self.is_done = batch.is_none();
                self.open = Some(walk);
                Ok(batch)
            }
        }
    }

    /// The first rows of all walks in one batch, so that the reader gets all or none.
    fn firsts(&mut self) -> Result<Option<RecordBatch>> {
        let mut rows = Vec::with_capacity(self.walks.len());
        for number in 0..self.walks.len() {
            let mut walk = self.open_walk(number, 1)?;
            rows.extend(self.next_of(&mut walk)?.map(|batch| batch.slice(0, 1)));
            if self.gave_up.load(Ordering::Relaxed) {
                return Ok(None);
            }
        }
        concat_batches(&self.schema, &rows)
            .map(Some)
            .map_err(|e| from_arrow(&e))
    }

    fn open_walk(&self, number: usize, rows: usize) -> Result<OpenWalk> {
        let source = &self.source;
        source.open()?;
        let entries = self.walks[number].entries(&source.statement)?;
        let columns = entries.as_ref().map_or(&[][..], |(_, keys)| keys.columns());
        let fetcher = Fetcher::new(source.clone(), self.schema.clone(), columns)?;
        let covering = match &entries {
            Some(_) => {
                let walk = &self.walks[number];
                walk.covering(&source.statement, &source.table, fetcher.columns())?
            }
            None => None,
        };
        let ts = fetcher.ts();
        Ok(OpenWalk {
            entries: entries.map(|(entries, keys)| (entries.at(ts), keys)),
            fetcher,
            covering,
            chunk: rows.clamp(CHUNK_MIN, CHUNK_MAX),
            is_at_end: false,
        })
    }

    /// The next rows of a walk, at least one; None at its end, or when it gives up.
    fn next_of(&mut self, walk: &mut OpenWalk) -> Result<Option<RecordBatch>> {
        let mut chunk = Vec::new();
        while !walk.is_at_end {
            self.source.check_cancelled()?;
            let Some((entries, keys)) = walk.entries.as_mut().filter(|_| self.left > 0) else {
                self.gave_up.store(true, Ordering::Relaxed);
                return Ok(None);
            };
            chunk.clear();
            if let Some((_, watch)) = &mut walk.covering {
                watch.renew();
            }
            walk.is_at_end = !entries.next_chunk(walk.chunk.min(self.left), &mut chunk)?;
            self.left -= chunk.len();
            self.entries.add(chunk.len());
            walk.chunk = (walk.chunk * 2).min(CHUNK_MAX);
            if chunk.iter().any(|(key, _)| entries.is_unordered(key)) {
                self.gave_up.store(true, Ordering::Relaxed);
                return Ok(None);
            }
            let covering = walk.covering.as_ref();
            let covering = covering.map(|(columns, watch)| Covering { columns, watch });
            let batch = self.rows_of(&walk.fetcher, keys, &chunk, covering)?;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
        if self.walks.iter().any(|walk| walk.omits_nulls) {
            self.gave_up.store(true, Ordering::Relaxed);
        }
        Ok(None)
    }

    /// The rows to keep of a chunk of entries, in the chunk's order.
    fn rows_of(
        &self,
        fetcher: &Fetcher,
        keys: &RowKeys,
        chunk: &[(KeyBytes, RowId)],
        covering: Option<Covering<'_>>,
    ) -> Result<RecordBatch> {
        let mut ids: Vec<RowId> = chunk.iter().map(|(_, row)| *row).collect();
        ids.sort_unstable();
        ids.dedup();
        let rows = match covering {
            Some(covering) => fetcher.covered(&ids, &keys_of(chunk), &covering)?,
            None => fetcher.fetch(&ids)?,
        };
        self.fetched.add(rows.fetched);
        let passing = fetcher.passing(&rows)?;
        let columns = keys.columns().iter().map(|id| fetcher.column(&rows, *id));
        let keys = keys.of_rows(&columns.collect::<Result<Vec<_>>>()?, rows.ids.len())?;
        let mut places = Vec::with_capacity(chunk.len());
        for (key, row) in chunk {
            let Ok(at) = rows.ids.binary_search(row) else {
                continue;
            };
            let passes = passing.as_ref().is_none_or(|passing| passing.value(at));
            let has_key = keys.get(at).is_some_and(|own| own.as_ref() == Some(key));
            if passes && has_key {
                places.push(at as u32);
            }
        }
        self.rechecked.add(chunk.len() - places.len());
        let output = fetcher.output(&rows)?;
        take_record_batch(&output, &UInt32Array::from(places)).map_err(|e| from_arrow(&e))
    }
}

/// The entry of each row of a chunk, in the rows' order; None: it has several.
fn keys_of(chunk: &[(KeyBytes, RowId)]) -> Vec<Option<KeyBytes>> {
    let mut entries: Vec<(RowId, &KeyBytes)> = chunk.iter().map(|(key, row)| (*row, key)).collect();
    entries.sort_unstable();
    let keys = entries.chunk_by(|a, b| a.0 == b.0).map(|own| match own {
        [(_, key)] => Some((*key).clone()),
        _ => None,
    });
    keys.collect()
}
