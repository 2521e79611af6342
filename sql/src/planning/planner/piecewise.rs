//! Projections that may widen their rows compute a batch in pieces, so that their output batches
//! are bounded in bytes. DataFusion bounds batches in rows alone.
//!
//! The first piece of a partition is small. The bytes of each piece predict the width of the next
//! one and so give its number of rows. Batches of narrow rows stay whole except for the first.

use datafusion::arrow::array::{RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::metrics::{
    BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet, RecordOutput,
};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties,
};
use futures::{StreamExt, TryStreamExt};
use std::fmt;
use std::sync::Arc;
use strandline_column::row_bytes::batch_bytes;

/// The target bytes of a piece.
const PIECE_BYTES: usize = 4 << 20;
/// Rows of a partition's first piece.
const FIRST_ROWS: usize = 64;

/// `plan` with the projections that may widen rows computed in pieces.
pub(super) fn in_pieces(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let changed = plan.transform_up(|node| {
        let projection = node.downcast_ref::<ProjectionExec>();
        Ok(
            match projection.filter(|projection| may_widen(projection)) {
                Some(projection) => Transformed::yes(Arc::new(PiecewiseExec::new(
                    projection.clone(),
                )) as Arc<dyn ExecutionPlan>),
                None => Transformed::no(node),
            },
        )
    })?;
    Ok(changed.data)
}

/// Whether a column of variable width is computed.
fn may_widen(projection: &ProjectionExec) -> bool {
    let schema = projection.schema();
    let fields = schema.fields().iter();
    projection
        .expr()
        .iter()
        .zip(fields)
        .any(|(computed, field)| {
            let expr = &computed.expr;
            let is_given = expr.is::<Column>() || expr.is::<Literal>();
            !is_given && !has_fixed_width(field.data_type())
        })
}

fn has_fixed_width(data_type: &DataType) -> bool {
    data_type.is_primitive()
        || matches!(
            data_type,
            DataType::Boolean | DataType::Null | DataType::FixedSizeBinary(_)
        )
}

/// A projection that computes its batches in pieces.
#[derive(Debug)]
struct PiecewiseExec {
    projection: ProjectionExec,
    metrics: ExecutionPlanMetricsSet,
}

impl PiecewiseExec {
    fn new(projection: ProjectionExec) -> Self {
        Self {
            projection,
            metrics: ExecutionPlanMetricsSet::new(),
        }
    }
}

impl DisplayAs for PiecewiseExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.projection.fmt_as(t, f)
    }
}

impl ExecutionPlan for PiecewiseExec {
    fn name(&self) -> &str {
        self.projection.name()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.projection.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        self.projection.maintains_input_order()
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        self.projection.benefits_from_input_partitioning()
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        self.projection.cardinality_effect()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.projection.children()
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        self.projection.apply_expressions(f)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        options: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let projection = Arc::new(self.projection.clone());
        let replaced = projection.replace_children(children, options)?;
        match replaced.downcast_ref::<ProjectionExec>() {
            Some(projection) => Ok(Arc::new(Self::new(projection.clone()))),
            None => internal_err!("a projection with other children is one"),
        }
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let schema = self.projection.schema();
        let input = self.projection.input().execute(partition, context)?;
        let pieces = Pieces {
            input,
            rest: None,
            rows: FIRST_ROWS,
            exprs: self.projection.expr().into(),
            schema: schema.clone(),
            metrics: BaselineMetrics::new(&self.metrics, partition),
        };
        let stream = futures::stream::try_unfold(pieces, |mut pieces| async move {
            Ok(pieces.next().await?.map(|piece| (piece, pieces)))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            schema,
            stream.boxed(),
        )))
    }
}

/// The execution of one partition.
struct Pieces {
    input: SendableRecordBatchStream,
    /// the rest of the input's batch
    rest: Option<RecordBatch>,
    /// rows of the next piece
    rows: usize,
    exprs: Arc<[ProjectionExpr]>,
    schema: SchemaRef,
    metrics: BaselineMetrics,
}

impl Pieces {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match self.input.try_next().await? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        let _timer = self.metrics.elapsed_compute().timer();
        let rows = batch.num_rows();
        let taken = rows.min(self.rows);
        if taken < rows {
            self.rest = Some(batch.slice(taken, rows - taken));
        }
        let piece = self.compute(&batch.slice(0, taken))?;
        self.rows = rows_of_next(taken, batch_bytes(&piece));
        Ok(Some(piece.record_output(&self.metrics)))
    }

    fn compute(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let computed = |p: &ProjectionExpr| p.expr.evaluate(batch)?.into_array(rows);
        let columns = self.exprs.iter().map(computed).collect::<Result<_>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let piece = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        Ok(piece)
    }
}

/// The rows of [`PIECE_BYTES`] bytes at the width of `rows` rows of `bytes`; at least one.
fn rows_of_next(rows: usize, bytes: usize) -> usize {
    match (rows, bytes) {
        (0, _) => FIRST_ROWS,
        (_, 0) => usize::MAX,
        (rows, bytes) => (PIECE_BYTES.saturating_mul(rows) / bytes).max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_piece_follows_from_the_last_ones_bytes() {
        assert_eq!(rows_of_next(64, 64 * PIECE_BYTES), 1);
        assert_eq!(rows_of_next(64, 64 * 1024), 4096);
        assert_eq!(rows_of_next(8192, 8192 * 16), 1 << 18);
        assert_eq!(rows_of_next(64, 0), usize::MAX);
        assert_eq!(rows_of_next(0, 0), FIRST_ROWS);
    }
}
