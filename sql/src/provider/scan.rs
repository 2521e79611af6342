//! The plan node that reads a table. The engine offers a scan as a list of units (ranges of
//! 2^16 rows); all partitions take the next unit from one shared counter, so that none idles while
//! another has work left. Units whose blocks are in memory are read on the spot, others off the
//! asynchronous threads. One unit's batches are held per partition at a time.
//!
//! The engine's scan is opened when the node first runs (or is explained), after DataFusion has
//! settled the filters. Running a partition again (recursive queries) starts a new round with a
//! counter of its own.

use crate::error::{convert, wrap};
use crate::provider::filter::ScanFilters;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Metric, MetricValue, MetricsSet,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use strandline_base::{ColumnId, CommitTs, Error, ErrorKind, Result, SqlState};
use strandline_engine::catalog::TableDef;
use strandline_engine::{RowFilter, ScanRequest, Statement, TableScan};

/// Reads some columns of a table, filtered, in parallel.
pub struct ScanExec {
    source: Arc<Source>,
    schema: SchemaRef,
    limit: Option<usize>,
    statistics: Arc<Statistics>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    rounds: Mutex<Rounds>,
}

/// What the engine is asked for.
struct Source {
    table: Arc<TableDef>,
    statement: Arc<Statement>,
    as_of: Option<CommitTs>,
    columns: Vec<ColumnId>,
    with_row_id: bool,
    filters: ScanFilters,
    scan: OnceLock<Result<Arc<TableScan>>>,
}

/// Which round each partition runs, and each round's counter of units taken.
#[derive(Default)]
struct Rounds {
    started: Vec<usize>,
    taken: Vec<Arc<AtomicUsize>>,
}

impl ScanExec {
    /// `projection`: positions in `table_schema`, which is the table's columns and perhaps
    /// `_rowid` after them.
    #[expect(
        clippy::too_many_arguments,
        reason = "one caller, all of it decided there"
    )]
    pub fn try_new(
        table: Arc<TableDef>,
        statement: Arc<Statement>,
        as_of: Option<CommitTs>,
        table_schema: &SchemaRef,
        projection: &[usize],
        filters: ScanFilters,
        statistics: Statistics,
        limit: Option<usize>,
        target_partitions: usize,
    ) -> Result<Self, DataFusionError> {
        let row_id_at = table.columns.len();
        let with_row_id = projection.contains(&row_id_at);
        let is_last = projection.last() == Some(&row_id_at);
        if with_row_id && (!is_last || projection.iter().filter(|&&p| p == row_id_at).count() > 1) {
            return Err(wrap(Error::internal(
                "_rowid is not the last column of a scan",
            )));
        }
        let columns = projection
            .iter()
            .filter(|&&position| position != row_id_at)
            .map(|&position| table.columns[position].id)
            .collect();
        let schema = Arc::new(table_schema.project(projection)?);
        let statistics = Arc::new(statistics.project(Some(&projection.to_vec())));
        let rows = statistics
            .num_rows
            .get_value()
            .copied()
            .unwrap_or(usize::MAX);
        let partitions = partition_count(rows, target_partitions);
        let properties = Arc::new(PlanProperties::new(
            EquivalenceProperties::new(schema.clone()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Incremental,
            Boundedness::Bounded,
        ));
        let source = Source {
            table,
            statement,
            as_of,
            columns,
            with_row_id,
            filters,
            scan: OnceLock::new(),
        };
        Ok(Self {
            source: Arc::new(source),
            schema,
            limit,
            statistics,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
            rounds: Mutex::default(),
        })
    }

    fn with_limit(&self, limit: Option<usize>) -> Self {
        Self {
            source: self.source.clone(),
            schema: self.schema.clone(),
            limit,
            statistics: self.statistics.clone(),
            properties: self.properties.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
            rounds: Mutex::default(),
        }
    }

    /// The counter that `partition` shares with the others of its round.
    fn counter(&self, partition: usize) -> Arc<AtomicUsize> {
        let mut rounds = self.rounds.lock();
        if rounds.started.len() <= partition {
            rounds.started.resize(partition + 1, 0);
        }
        let round = rounds.started[partition];
        rounds.started[partition] += 1;
        if rounds.taken.len() <= round {
            rounds.taken.push(Arc::default());
        }
        rounds.taken[round].clone()
    }
}

/// Small tables are read by one partition: more would only cost exchanges.
fn partition_count(rows: usize, target_partitions: usize) -> usize {
    let units = rows.div_ceil(strandline_base::ids::RANGE_ROWS).max(1);
    units.min(target_partitions.max(1))
}

impl Source {
    fn open(&self) -> Result<Arc<TableScan>> {
        self.scan
            .get_or_init(|| {
                let rows = self.filters.rows.iter();
                let request = ScanRequest {
                    columns: self.columns.clone(),
                    with_row_id: self.with_row_id,
                    prune: self.filters.prune.clone(),
                    filters: rows.map(|f| f.clone() as Arc<dyn RowFilter>).collect(),
                    batch_rows: None,
                };
                match self.as_of {
                    Some(ts) => self.statement.scan_as_of(&self.table, ts, request),
                    None => self.statement.scan(&self.table, request),
                }
            })
            .clone()
    }

    fn check_cancelled(&self) -> Result<()> {
        if self
            .statement
            .transaction()
            .options()
            .cancel
            .load(Ordering::Relaxed)
        {
            return Err(Error::new(
                ErrorKind::Cancelled,
                SqlState::QUERY_CANCELED,
                "canceling statement due to user request",
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for ScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScanExec({})", self.source.table.name)
    }
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = &self.source.table;
        let columns: Vec<_> = self
            .schema
            .fields()
            .iter()
            .map(|c| c.name().as_str())
            .collect();
        let filters: Vec<_> = self.source.filters.rows.iter().map(|r| r.text()).collect();
        let tree = matches!(t, DisplayFormatType::TreeRender);
        let (start, between) = if tree {
            ("", "\n")
        } else {
            ("TableScan: ", ", ")
        };
        if table.schema == crate::names::PUBLIC {
            write!(f, "{start}{}", table.name)?;
        } else {
            write!(f, "{start}{}.{}", table.schema, table.name)?;
        }
        if let Some(ts) = self.source.as_of {
            write!(f, "{between}as_of={}", ts.0)?;
        }
        write!(f, "{between}columns=[{}]", columns.join(", "))?;
        if !filters.is_empty() {
            write!(f, "{between}filters=[{}]", filters.join(" AND "))?;
        }
        if let Some(limit) = self.limit {
            write!(f, "{between}limit={limit}")?;
        }
        if let Ok(scan) = self.source.open() {
            let total = scan.metrics().ranges_total.load(Ordering::Relaxed);
            write!(f, "{between}ranges={} of {total}", scan.units())?;
        }
        Ok(())
    }
}

impl ExecutionPlan for ScanExec {
    fn name(&self) -> &str {
        "TableScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion, DataFusionError>,
    ) -> Result<TreeNodeRecursion, DataFusionError> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        _children: Vec<Arc<dyn ExecutionPlan>>,
        _options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        Ok(self)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        self.replace_children(
            children,
            ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep),
        )
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        Ok(Arc::new(self.with_limit(self.limit)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let reservation = MemoryConsumer::new(format!("scan of {}", self.source.table.name))
            .register(context.memory_pool());
        let reader = Reader {
            scan: self.source.open().map_err(wrap)?,
            source: self.source.clone(),
            schema: self.schema.clone(),
            taken: self.counter(partition),
            ready: VecDeque::new(),
            left: self.limit.unwrap_or(usize::MAX),
            metrics: BaselineMetrics::new(&self.metrics, partition),
            reservation,
        };
        let stream = futures::stream::try_unfold(reader, |mut reader| async move {
            Ok(reader.next().await?.map(|batch| (batch, reader)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.schema.clone(),
            stream,
        )))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        let mut set = self.metrics.clone_inner();
        if let Some(Ok(scan)) = self.source.scan.get() {
            let m = scan.metrics();
            let mut add = |name: &'static str, value: &AtomicU64| {
                let count = Count::new();
                count.add(value.load(Ordering::Relaxed) as usize);
                let value = MetricValue::Count {
                    name: name.into(),
                    count,
                };
                set.push(Arc::new(Metric::new(value, None)));
            };
            add("ranges_total", &m.ranges_total);
            add("ranges_pruned", &m.ranges_pruned);
            add("blocks_pruned", &m.blocks_pruned);
            add("chunks_decoded", &m.chunks_decoded);
            add("tail_records_patched", &m.tail_records_patched);
            add("history_records_read", &m.history_records_read);
            add("rows_scanned", &m.rows_scanned);
        }
        Some(set)
    }

    fn statistics_from_inputs(
        &self,
        _input_stats: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>, DataFusionError> {
        if args.partition().is_some() {
            return Ok(Arc::new(Statistics::new_unknown(&self.schema)));
        }
        Ok(self.statistics.clone())
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    fn with_fetch(&self, limit: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(self.with_limit(limit)))
    }
}

/// One partition at work.
struct Reader {
    source: Arc<Source>,
    scan: Arc<TableScan>,
    schema: SchemaRef,
    taken: Arc<AtomicUsize>,
    ready: VecDeque<RecordBatch>,
    left: usize,
    metrics: BaselineMetrics,
    reservation: MemoryReservation,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        loop {
            if self.left == 0 {
                return Ok(None);
            }
            if let Some(batch) = self.ready.pop_front() {
                let batch = if batch.num_rows() > self.left {
                    batch.slice(0, self.left)
                } else {
                    batch
                };
                self.left -= batch.num_rows();
                self.metrics.record_output(batch.num_rows());
                return label(batch, &self.schema).map(Some);
            }
            self.source.check_cancelled().map_err(wrap)?;
            let unit = self.taken.fetch_add(1, Ordering::Relaxed);
            if unit >= self.scan.units() {
                self.reservation.free();
                return Ok(None);
            }
            let batches = self.read(unit).await?;
            let bytes = batches.iter().map(RecordBatch::get_array_memory_size).sum();
            self.reservation.resize(bytes);
            self.ready
                .extend(batches.into_iter().filter(|b| b.num_rows() > 0));
        }
    }

    async fn read(&self, unit: usize) -> Result<Vec<RecordBatch>, DataFusionError> {
        let _timer = self.metrics.elapsed_compute().timer();
        if self.scan.is_resident(unit) {
            return self.scan.read_unit(unit).map_err(wrap);
        }
        let scan = self.scan.clone();
        let task = tokio::task::spawn_blocking(move || scan.read_unit(unit));
        match task.await {
            Ok(batches) => batches.map_err(wrap),
            Err(error) => Err(wrap(convert(DataFusionError::ExecutionJoin(Box::new(
                error,
            ))))),
        }
    }
}

/// The engine's batch under the plan's schema (names, metadata).
fn label(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, DataFusionError> {
    if Arc::ptr_eq(&batch.schema(), schema) {
        return Ok(batch);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(
        schema.clone(),
        batch.columns().to_vec(),
        &options,
    )?)
}
