//! The plan node that locks rows.
//!
//! The node has one input and one output partition. Rows are locked in the order of the input, and
//! no more of them than LIMIT asks for. A row that is deleted, or that SKIP LOCKED skips, is
//! dropped. As with DML, no optimizer rule moves anything through the node.

use super::Lock;
use crate::planning::one_input::{as_its_input, compared_by, logical_input, one_input};
use crate::runtime::blocking::in_place;
use async_trait::async_trait;
use datafusion::arrow::array::{AsArray, BooleanArray, RecordBatch};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::UInt64Type;
use datafusion::catalog::Session;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Column, DFSchemaRef, Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_expr::{Distribution, OrderingRequirements};
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PhysicalExpr, PlanProperties,
};
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use futures::{StreamExt, TryStreamExt};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use strandline_base::RowId;
use strandline_engine::Statement;
use strandline_engine::catalog::TableDef;
use strandline_semantics::error::raise;

/// A table whose rows are locked.
#[derive(Clone, Debug)]
pub struct LockTarget {
    /// the input's column with the row ids (UInt64)
    pub column: Column,
    /// the table
    pub table: Arc<TableDef>,
    /// the strength of the lock, and the action on locked rows
    pub lock: Lock,
}

/// The logical node.
#[derive(Clone)]
pub struct LockNode {
    /// the locked tables, in this order
    pub targets: Arc<[LockTarget]>,
    /// the most rows to lock
    pub fetch: Option<usize>,
    /// the statement that locks
    pub statement: Arc<Statement>,
    /// the rows
    pub input: LogicalPlan,
}

impl fmt::Debug for LockNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockNode({})", explain(&self.targets, self.fetch))
    }
}

compared_by!(LockNode, targets);

impl Hash for LockNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.fetch.hash(state);
        self.input.hash(state);
    }
}

fn explain(targets: &[LockTarget], fetch: Option<usize>) -> String {
    let target = |target: &LockTarget| format!("{} {}", target.table.name, target.lock);
    let mut text = targets.iter().map(target).collect::<Vec<_>>().join(", ");
    if let Some(fetch) = fetch {
        text += &format!(", fetch={fetch}");
    }
    text
}

impl UserDefinedLogicalNodeCore for LockNode {
    fn name(&self) -> &str {
        "LockRows"
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockRows: {}", explain(&self.targets, self.fetch))
    }

    logical_input!(unchanged_schema);
}

/// Plans the logical node as the physical one.
#[derive(Debug)]
struct LockPlanner;

/// The extension planner of row locks for a session.
pub fn extension_planner() -> Arc<dyn ExtensionPlanner + Send + Sync> {
    Arc::new(LockPlanner)
}

#[async_trait]
impl ExtensionPlanner for LockPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _planning: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<LockNode>() else {
            return Ok(None);
        };
        let [input] = physical_inputs else {
            return internal_err!("a node that locks has one input");
        };
        let schema = node.input.schema();
        let places = node
            .targets
            .iter()
            .map(|t| schema.index_of_column(&t.column));
        let ordering = input.output_ordering().cloned();
        let work = Arc::new(Work {
            places: places.collect::<Result<_>>()?,
            targets: node.targets.clone(),
            fetch: node.fetch,
            statement: node.statement.clone(),
        });
        let ordering = ordering.map(OrderingRequirements::from);
        Ok(Some(Arc::new(LockRowsExec::new(
            work,
            input.clone(),
            ordering,
        ))))
    }
}

/// The locked tables and the locking statement.
struct Work {
    /// per target the input column with the row ids
    places: Vec<usize>,
    targets: Arc<[LockTarget]>,
    fetch: Option<usize>,
    statement: Arc<Statement>,
}

impl Work {
    /// Locks the rows of `batch`; the result marks the locked rows.
    fn lock(&self, batch: &RecordBatch) -> strandline_base::Result<BooleanArray> {
        let mut locked = vec![true; batch.num_rows()];
        for (target, place) in self.targets.iter().zip(&self.places) {
            let ids = batch.column(*place).as_primitive::<UInt64Type>().values();
            let wanted: Vec<usize> = (0..ids.len()).filter(|row| locked[*row]).collect();
            let rows: Vec<RowId> = wanted.iter().map(|row| RowId(ids[*row])).collect();
            let Lock { wait, .. } = target.lock;
            let row_lock = target.lock.row_lock();
            let done = self
                .statement
                .lock_rows(&target.table, &rows, row_lock, wait)?;
            for (row, done) in wanted.into_iter().zip(done) {
                locked[row] = done;
            }
        }
        Ok(BooleanArray::from(locked))
    }
}

/// Locks its input's rows and returns the locked ones.
struct LockRowsExec {
    work: Arc<Work>,
    input: Arc<dyn ExecutionPlan>,
    ordering: Option<OrderingRequirements>,
    properties: Arc<PlanProperties>,
}

impl LockRowsExec {
    fn new(
        work: Arc<Work>,
        input: Arc<dyn ExecutionPlan>,
        ordering: Option<OrderingRequirements>,
    ) -> Self {
        let properties = as_its_input(&input);
        Self {
            work,
            input,
            ordering,
            properties,
        }
    }

    fn with_input(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(self.work.clone(), input, self.ordering.clone())
    }
}

impl fmt::Debug for LockRowsExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = explain(&self.work.targets, self.work.fetch);
        write!(f, "LockRowsExec({text})")
    }
}

impl DisplayAs for LockRowsExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = explain(&self.work.targets, self.work.fetch);
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "LockRows: {text}")
            }
            DisplayFormatType::TreeRender => write!(f, "{text}"),
        }
    }
}

impl ExecutionPlan for LockRowsExec {
    fn name(&self) -> &str {
        "LockRows"
    }

    one_input!(CardinalityEffect::LowerEqual);

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 || self.input.output_partitioning().partition_count() != 1 {
            return internal_err!("rows are locked in one partition");
        }
        let run = Run {
            input: self.input.execute(0, context)?,
            left: self.work.fetch.unwrap_or(usize::MAX),
            work: self.work.clone(),
            batch: None,
        };
        let stream = futures::stream::try_unfold(run, |mut run| async move {
            Ok(run.next().await?.map(|batch| (batch, run)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            self.input.schema(),
            stream.boxed(),
        )))
    }
}

/// One execution.
struct Run {
    input: SendableRecordBatchStream,
    work: Arc<Work>,
    /// the rest of the last batch
    batch: Option<RecordBatch>,
    left: usize,
}

impl Run {
    /// The next locked rows.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while self.left > 0 {
            let batch = match self.batch.take() {
                Some(batch) => batch,
                None => match self.input.try_next().await? {
                    Some(batch) => batch,
                    None => return Ok(None),
                },
            };
            // At most as many as are still wanted, because every locked row is returned.
            let rows = batch.num_rows().min(self.left);
            let rest = batch.num_rows() - rows;
            self.batch = (rest > 0).then(|| batch.slice(rows, rest));
            let batch = batch.slice(0, rows);
            let locked = in_place(|| self.work.lock(&batch)).map_err(raise)?;
            let locked = filter_record_batch(&batch, &locked)?;
            self.left -= locked.num_rows();
            if locked.num_rows() > 0 {
                return Ok(Some(locked));
            }
        }
        Ok(None)
    }
}
