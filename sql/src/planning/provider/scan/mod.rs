//! The plan node that reads a table. The engine offers a scan as a list of units (ranges of 2^16
//! rows). All partitions take the next unit from one shared counter, so that none idles while units
//! are left. Units whose blocks are in memory are read on the spot, other units on blocking
//! threads. A partition holds one unit's batches at a time.
//!
//! The engine's scan is opened when the node first runs (or is explained), after DataFusion has
//! settled the filters. They include the dynamic filters of joins and of ORDER BY … LIMIT, which
//! are read again for every unit. Running a partition again (recursive queries) starts a new round
//! with its own counter.
//!
//! If the table's indexes find the rows at less cost ([`super::access`]), the node fetches these
//! rows instead ([`fetch`]). The first partition that is asked for rows decides this: by then the
//! build sides of joins have published their keys. If the entries have all columns that are read,
//! only rows whose entries are not certain are fetched. The first rows of an order come from walks
//! over an index ([`ordered`]).

mod fetch;
mod ordered;
mod reader;
mod source;

use crate::planning::one_input::no_input;
use crate::planning::provider::access::{Access, Candidates};
use crate::planning::provider::filter::{ScanFilter, ScanFilters};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Statistics;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, Count, ExecutionPlanMetricsSet, Metric, MetricValue, MetricsSet,
};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
pub use ordered::IndexWalkExec;
use parking_lot::Mutex;
pub(super) use reader::off_thread;
use reader::{Reader, Round, Work};
use source::Source;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use strandline_base::{CommitTs, Error, Result};
use strandline_engine::Statement;
use strandline_engine::catalog::TableDef;
use strandline_semantics::error::raise;

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

/// The number of rounds that each partition has started, and the state of each round.
#[derive(Default)]
struct Rounds {
    started: Vec<usize>,
    rounds: Vec<Arc<Round>>,
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
        access: Option<Arc<Access>>,
        statistics: Statistics,
        limit: Option<usize>,
        target_partitions: usize,
    ) -> Result<Self, DataFusionError> {
        let row_id_at = table.columns.len();
        let with_row_id = projection.contains(&row_id_at);
        let is_last = projection.last() == Some(&row_id_at);
        if with_row_id && (!is_last || projection.iter().filter(|&&p| p == row_id_at).count() > 1) {
            return Err(raise(Error::internal(
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
            access,
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

    fn with(&self, source: Arc<Source>, limit: Option<usize>) -> Self {
        Self {
            source,
            schema: self.schema.clone(),
            limit,
            statistics: self.statistics.clone(),
            properties: self.properties.clone(),
            metrics: ExecutionPlanMetricsSet::new(),
            rounds: Mutex::default(),
        }
    }

    /// The state that `partition` shares with the other partitions of its round.
    fn round(&self, partition: usize) -> Arc<Round> {
        let mut rounds = self.rounds.lock();
        if rounds.started.len() <= partition {
            rounds.started.resize(partition + 1, 0);
        }
        let round = rounds.started[partition];
        rounds.started[partition] += 1;
        if rounds.rounds.len() <= round {
            rounds.rounds.push(Arc::default());
        }
        rounds.rounds[round].clone()
    }

    /// The rows that the node fetches, if they are known: those of the plan, or of the joins'
    /// filters.
    fn candidates(&self) -> Option<Arc<Candidates>> {
        let rounds = self.rounds.lock();
        let run = rounds.rounds.iter().find_map(|round| round.candidates());
        let planned = || self.source.access.as_ref()?.planned();
        run.or_else(planned).cloned()
    }
}

/// Small tables are read by one partition, because more would only add exchanges.
fn partition_count(rows: usize, target_partitions: usize) -> usize {
    let units = rows.div_ceil(strandline_base::ids::RANGE_ROWS).max(1);
    units.min(target_partitions.max(1))
}

impl fmt::Debug for ScanExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScanExec({})", self.source.table.name)
    }
}

impl DisplayAs for ScanExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let candidates = self.candidates();
        let (start, between) = match (t, &candidates) {
            (DisplayFormatType::TreeRender, _) => ("", "\n"),
            (_, None) => ("TableScan: ", ", "),
            (_, Some(found)) if found.covered.is_some() => ("IndexOnlyScan: ", ", "),
            (_, Some(_)) => ("IndexScan: ", ", "),
        };
        write!(f, "{start}")?;
        self.source.fmt_request(f, &self.schema, between)?;
        if let Some(limit) = self.limit {
            write!(f, "{between}limit={limit}")?;
        }
        if let Some(found) = candidates {
            write!(f, "{between}index={}", found.text)?;
            return write!(f, "{between}rows={}", found.rows.len());
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

    no_input!();

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion, DataFusionError>,
    ) -> Result<TreeNodeRecursion, DataFusionError> {
        for filter in &self.source.filters.rows {
            if f(filter.expression())? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    /// Takes the dynamic filters that read only stored columns.
    fn handle_child_pushdown_result(
        &self,
        phase: FilterPushdownPhase,
        result: ChildPushdownResult,
        _config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>, DataFusionError> {
        if phase != FilterPushdownPhase::Post {
            return Ok(FilterPushdownPropagation::if_all(result));
        }
        let mut filters = self.source.filters.clone();
        let mut taken = Vec::with_capacity(result.parent_filters.len());
        for parent in result.parent_filters {
            match ScanFilter::dynamic(&parent.filter, &self.source.table, &self.schema)? {
                Some(filter) => {
                    filters.rows.push(Arc::new(filter));
                    taken.push(PushedDown::Yes);
                }
                None => taken.push(PushedDown::No),
            }
        }
        let changed = taken.iter().any(|t| matches!(t, PushedDown::Yes));
        let propagation = FilterPushdownPropagation::with_parent_pushdown_result(taken);
        if !changed {
            return Ok(propagation);
        }
        let source = Arc::new(self.source.with_filters(filters));
        Ok(propagation.with_updated_node(Arc::new(self.with(source, self.limit))))
    }

    fn reset_state(self: Arc<Self>) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        Ok(Arc::new(self.with(self.source.clone(), self.limit)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let reservation = MemoryConsumer::new(format!("scan of {}", self.source.table.name))
            .register(context.memory_pool());
        let reader = Reader {
            source: self.source.clone(),
            round: self.round(partition),
            partition,
            work: Work::Undecided,
            schema: self.schema.clone(),
            left: self.limit.unwrap_or(usize::MAX),
            metrics: BaselineMetrics::new(&self.metrics, partition),
            counters: self.metrics.clone(),
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
            add("chunks_decoded", &m.columns.chunks_decoded);
            add("tail_records_patched", &m.columns.tail_records_patched);
            add("history_records_read", &m.columns.history_records_read);
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
        Some(Arc::new(self.with(self.source.clone(), limit)))
    }
}
