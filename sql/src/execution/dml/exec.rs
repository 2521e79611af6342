//! The physical node that applies a DML statement; see [`super::node`].
//!
//! The node has one input and one output partition, so a statement's rows are applied in one order.
//! A writer may wait for another transaction, so the node tells the runtime that its thread blocks.
//! The work stays on this thread, so that a cancelled statement leaves nothing running. The node
//! requires the sort order that its input has already, so that `INSERT … SELECT … ORDER BY` inserts
//! in that order.

use super::apply::Applier;
use super::operation::Tally;
use crate::planning::one_input::{as_its_input, one_input};
use crate::runtime::blocking::in_place;
use datafusion::arrow::array::RecordBatch;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{Distribution, OrderingRequirements};
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties,
    InputDistributionRequirements, PhysicalExpr, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use strandline_semantics::error::raise;

/// Applies its input and returns the changed rows.
pub(super) struct DmlExec {
    explain: String,
    input: Arc<dyn ExecutionPlan>,
    /// taken by the only execution
    applier: Arc<Mutex<Option<Applier>>>,
    tally: Arc<Tally>,
    ordering: Option<OrderingRequirements>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl DmlExec {
    /// The node over `input`; `explain` is its text in EXPLAIN.
    pub fn new(
        explain: String,
        input: Arc<dyn ExecutionPlan>,
        applier: Applier,
        tally: Arc<Tally>,
    ) -> Self {
        let ordering = input
            .output_ordering()
            .cloned()
            .map(OrderingRequirements::from);
        Self::over(
            explain,
            input,
            Arc::new(Mutex::new(Some(applier))),
            tally,
            ordering,
        )
    }

    fn over(
        explain: String,
        input: Arc<dyn ExecutionPlan>,
        applier: Arc<Mutex<Option<Applier>>>,
        tally: Arc<Tally>,
        ordering: Option<OrderingRequirements>,
    ) -> Self {
        let properties = as_its_input(&input);
        Self {
            explain,
            input,
            applier,
            tally,
            ordering,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }

    fn with_input(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::over(
            self.explain.clone(),
            input,
            self.applier.clone(),
            self.tally.clone(),
            self.ordering.clone(),
        )
    }
}

impl fmt::Debug for DmlExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DmlExec({})", self.explain)
    }
}

impl DisplayAs for DmlExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match t {
            DisplayFormatType::Default | DisplayFormatType::Verbose => {
                write!(f, "DmlExec: {}", self.explain)
            }
            DisplayFormatType::TreeRender => write!(f, "{}", self.explain),
        }
    }
}

impl ExecutionPlan for DmlExec {
    fn name(&self) -> &str {
        "DmlExec"
    }

    one_input!(CardinalityEffect::LowerEqual);

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 || self.input.output_partitioning().partition_count() != 1 {
            return internal_err!("a DML node runs in one partition");
        }
        let Some(applier) = self.applier.lock().take() else {
            return internal_err!("a DML statement cannot be applied twice");
        };
        let input = self.input.execute(0, context)?;
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let run = Run {
            input,
            applier,
            tally: self.tally.clone(),
            metrics,
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
    applier: Applier,
    tally: Arc<Tally>,
    metrics: BaselineMetrics,
}

impl Run {
    /// The next batch of changed rows.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        while let Some(batch) = self.input.try_next().await? {
            let _timer = self.metrics.elapsed_compute().timer();
            let changed = in_place(|| self.applier.apply(&batch)).map_err(raise)?;
            if changed.num_rows() > 0 {
                self.tally
                    .rows
                    .fetch_add(changed.num_rows() as u64, Ordering::Relaxed);
                self.metrics.record_output(changed.num_rows());
                return Ok(Some(changed));
            }
        }
        if !self.tally.complete.load(Ordering::Acquire) {
            in_place(|| self.applier.finish()).map_err(raise)?;
            self.tally.complete.store(true, Ordering::Release);
        }
        Ok(None)
    }
}
