//! `t FOR SYSTEM_TIME FROM … TO` and `BETWEEN … AND`: every version of the table's rows that was
//! valid in the interval, with the times from and to which it was valid.
//!
//! The engine offers the versions as a list of units (ranges), like a scan. Partition p of n takes
//! every n-th unit from p on. A unit may read history from files, so units are read on blocking
//! threads, one batch at a time. Predicates stay above the node.

use crate::parse::names;
use crate::planning::one_input::no_input;
use crate::planning::provider::scan::off_thread;
use crate::planning::provider::table_schema::{arrow_field, arrow_schema};
use async_trait::async_trait;
use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{
    Boundedness, ChildrenPropertiesMode, EmissionType, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties,
};
use std::fmt;
use std::sync::Arc;
use strandline_base::{CommitTs, Error, Result, SqlState, SqlType};
use strandline_engine::catalog::TableDef;
use strandline_engine::{Statement, VersionColumn, VersionReader, VersionScan};
use strandline_semantics::error::raise;

/// The versions of a table's rows in an interval.
pub struct Versions {
    def: Arc<TableDef>,
    statement: Arc<Statement>,
    as_of: Option<CommitTs>,
    interval: (CommitTs, CommitTs),
    schema: SchemaRef,
}

impl Versions {
    /// The versions valid at some moment of `interval`, whose bounds are inclusive, that are
    /// visible to `statement` or at the moment `as_of`.
    pub fn new(
        def: Arc<TableDef>,
        statement: Arc<Statement>,
        as_of: Option<CommitTs>,
        interval: (CommitTs, CommitTs),
    ) -> Result<Self> {
        let schema = Arc::new(schema(&def)?);
        Ok(Self {
            def,
            statement,
            as_of,
            interval,
            schema,
        })
    }
}

/// The table's columns, all nullable, then `valid_from` and `valid_to`.
fn schema(def: &TableDef) -> Result<Schema> {
    let stored = arrow_schema(def);
    let mut fields: Vec<_> = stored
        .fields()
        .iter()
        .map(|field| field.as_ref().clone().with_nullable(true))
        .collect();
    for (name, _) in VersionColumn::TIMES {
        if def.column(name).is_some() {
            return Err(Error::invalid(
                SqlState::DUPLICATE_COLUMN,
                format!("table \"{}\" has a column \"{name}\" of its own", def.name),
            )
            .with_detail("FOR SYSTEM_TIME with an interval adds a column of that name.")
            .with_hint("Rename the table's column."));
        }
        fields.push(arrow_field(name, SqlType::TimestampTz, true));
    }
    Ok(Schema::new(fields))
}

impl fmt::Debug for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Versions({}.{})", self.def.schema, self.def.name)
    }
}

#[async_trait]
impl TableProvider for Versions {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        _limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let projection = projection.unwrap_or(&all);
        let stored = &self.def.columns;
        let column = |&at: &usize| match stored.get(at) {
            Some(column) => VersionColumn::Stored(column.id),
            None => VersionColumn::TIMES[at - stored.len()].1,
        };
        let columns: Vec<VersionColumn> = projection.iter().map(column).collect();
        let scan = self
            .statement
            .scan_versions(&self.def, self.interval, self.as_of, &columns)
            .map_err(raise)?;
        let schema = Arc::new(self.schema.project(projection)?);
        let partitions = scan.units().min(state.config().target_partitions()).max(1);
        Ok(Arc::new(VersionsExec {
            def: self.def.clone(),
            interval: self.interval,
            scan,
            properties: Arc::new(PlanProperties::new(
                EquivalenceProperties::new(schema.clone()),
                Partitioning::UnknownPartitioning(partitions),
                EmissionType::Incremental,
                Boundedness::Bounded,
            )),
            schema,
            partitions,
            metrics: ExecutionPlanMetricsSet::new(),
        }))
    }
}

/// Reads versions, in parallel.
struct VersionsExec {
    def: Arc<TableDef>,
    interval: (CommitTs, CommitTs),
    scan: Arc<VersionScan>,
    schema: SchemaRef,
    partitions: usize,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl fmt::Debug for VersionsExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VersionsExec({})", self.def.name)
    }
}

impl DisplayAs for VersionsExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, between) = match t {
            DisplayFormatType::TreeRender => ("", "\n"),
            DisplayFormatType::Default | DisplayFormatType::Verbose => ("TableVersions: ", ", "),
        };
        let def = &self.def;
        if def.schema == names::PUBLIC {
            write!(f, "{start}{}", def.name)?;
        } else {
            write!(f, "{start}{}.{}", def.schema, def.name)?;
        }
        let (from, through) = self.interval;
        let fields = self.schema.fields().iter();
        let columns: Vec<_> = fields.map(|field| field.name().as_str()).collect();
        write!(f, "{between}from={}{between}through={}", from.0, through.0)?;
        write!(f, "{between}columns=[{}]", columns.join(", "))?;
        write!(f, "{between}ranges={}", self.scan.units())
    }
}

impl ExecutionPlan for VersionsExec {
    fn name(&self) -> &str {
        "TableVersions"
    }

    no_input!(no_expressions);

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream, DataFusionError> {
        let reservation = MemoryConsumer::new(format!("versions of {}", self.def.name))
            .register(context.memory_pool());
        let reader = Reader {
            scan: self.scan.clone(),
            schema: self.schema.clone(),
            next_unit: partition,
            step: self.partitions,
            unit: None,
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
        Some(self.metrics.clone_inner())
    }
}

/// The execution of one partition.
struct Reader {
    scan: Arc<VersionScan>,
    schema: SchemaRef,
    next_unit: usize,
    step: usize,
    unit: Option<VersionReader>,
    metrics: BaselineMetrics,
    reservation: MemoryReservation,
}

impl Reader {
    async fn next(&mut self) -> Result<Option<RecordBatch>, DataFusionError> {
        loop {
            let (scan, unit) = (self.scan.clone(), self.next_unit);
            let reader = match self.unit.take() {
                Some(reader) => Some(reader),
                None if unit >= scan.units() => {
                    self.reservation.free();
                    return Ok(None);
                }
                None => {
                    self.next_unit += self.step;
                    None
                }
            };
            let read = move || {
                let mut reader = match reader {
                    Some(reader) => reader,
                    None => scan.open_unit(unit)?,
                };
                Ok::<_, Error>((reader.next_batch()?, reader))
            };
            let _timer = self.metrics.elapsed_compute().timer();
            let (batch, reader) = off_thread(read).await?;
            let Some(batch) = batch else { continue };
            self.unit = Some(reader);
            self.reservation.resize(batch.get_array_memory_size());
            let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
            let columns = batch.columns().to_vec();
            let named = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
            return Ok(Some(named.record_output(&self.metrics)));
        }
    }
}
