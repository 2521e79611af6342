//! The first rows of an order, and the minima and maxima of columns, by walks over indexes.
//!
//! `ORDER BY … LIMIT` is a sort that keeps the first rows; MIN and MAX are an aggregate over all
//! rows. If an index of the scan below has the order, [`FirstRows`] puts a node above. The node
//! first tries the same plan with a walk over the index in place of the sort, or of the scan. The
//! number of rows that predicates reject is unknown, so the walk gives up after as many entries as
//! the scan would cost. The node then runs the original plan.
//!
//! The rule comes last, because the other rules know plans without an index only.

use crate::planning::provider::scan::{IndexWalkExec, ScanExec};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateInputMode};
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PhysicalExpr,
    PlanProperties,
};
use futures::{StreamExt, TryStreamExt};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline_semantics::error::raise;

/// The most rows of an order from an index: they are buffered until all have arrived.
const ROWS_MAX: usize = 8192;

type Plan = Arc<dyn ExecutionPlan>;

/// A scan, and expressions over its output.
type OverScan<'a> = (&'a ScanExec, Vec<Arc<dyn PhysicalExpr>>);

/// Puts [`FirstRowsExec`] where an index has the order.
#[derive(Debug)]
pub(super) struct FirstRows;

impl PhysicalOptimizerRule for FirstRows {
    fn name(&self) -> &str {
        "first_rows"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(&self, plan: Plan, _config: &ConfigOptions) -> Result<Plan> {
        // Most plans have no index.
        let is_indexed = |node: &Plan| {
            let scan = node.downcast_ref::<ScanExec>();
            Ok(scan.is_some_and(ScanExec::has_indexes))
        };
        if !plan.exists(is_indexed)? {
            return Ok(plan);
        }
        let changed = plan.transform_down(|node| {
            let found = match first_of_order(&node)? {
                Some(found) => Some(found),
                None => ends_of_columns(&node)?,
            };
            Ok(match found {
                Some(found) => Transformed::new(found, true, TreeNodeRecursion::Jump),
                None => Transformed::no(node),
            })
        })?;
        Ok(changed.data)
    }
}

/// `node` with a walk to try first, if it sorts and keeps the first rows.
fn first_of_order(node: &Plan) -> Result<Option<Plan>> {
    let Some(rows) = node.fetch().filter(|rows| *rows <= ROWS_MAX) else {
        return Ok(None);
    };
    let below = match node.downcast_ref::<SortPreservingMergeExec>() {
        Some(merge) => merge.input(),
        None => node,
    };
    let is_whole = node.output_partitioning().partition_count() == 1;
    let Some(sort) = below.downcast_ref::<SortExec>().filter(|_| is_whole) else {
        return Ok(None);
    };
    let by = sort.expr().iter().map(|by| Arc::clone(&by.expr)).collect();
    let Some((scan, by)) = scan_below(sort.input(), by, true)? else {
        return Ok(None);
    };
    let options = sort.expr().iter().map(|by| by.options);
    let order: Vec<_> = by.into_iter().zip(options).collect();
    match scan.in_order(&order, rows).map_err(raise)? {
        Some(walk) => before(node, sort.input(), walk, Some(rows)).map(Some),
        None => Ok(None),
    }
}

/// `node` with walks to try first, if it computes only MIN and MAX of all rows.
fn ends_of_columns(node: &Plan) -> Result<Option<Plan>> {
    let Some(top) = node.downcast_ref::<AggregateExec>() else {
        return Ok(None);
    };
    let Some(first) = first_aggregate(top) else {
        return Ok(None);
    };
    let Some(ends) = ends_of(first) else {
        return Ok(None);
    };
    let (of, greatest): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let Some((scan, of)) = scan_below(first.input(), of, false)? else {
        return Ok(None);
    };
    let mut ends: Vec<_> = of.into_iter().zip(greatest).collect();
    ends.dedup();
    match scan.ends(&ends).map_err(raise)? {
        Some(walk) => before(node, node, walk, None).map(Some),
        None => Ok(None),
    }
}

/// The aggregate without groups below `top` that reads the rows.
fn first_aggregate(top: &AggregateExec) -> Option<&AggregateExec> {
    let mut aggregate = top;
    loop {
        if !aggregate.group_expr().is_empty() {
            return None;
        }
        if aggregate.mode().input_mode() == AggregateInputMode::Raw {
            return Some(aggregate);
        }
        let mut below = aggregate.input();
        while let Some(gathers) = below.downcast_ref::<CoalescePartitionsExec>() {
            below = gathers.input();
        }
        aggregate = below.downcast_ref::<AggregateExec>()?;
    }
}

/// Per aggregate its argument, and whether it is MAX; None if one is another function.
fn ends_of(aggregate: &AggregateExec) -> Option<Vec<(Arc<dyn PhysicalExpr>, bool)>> {
    let is_filtered = aggregate.filter_expr().iter().any(Option::is_some);
    let ends = aggregate.aggr_expr().iter().map(|function| {
        let greatest = match function.fun().name() {
            "min" => false,
            "max" => true,
            _ => return None,
        };
        match function.expressions().as_slice() {
            [argument] => Some((Arc::clone(argument), greatest)),
            _ => None,
        }
    });
    let ends: Vec<_> = ends.collect::<Option<_>>()?;
    (!is_filtered && !ends.is_empty()).then_some(ends)
}

/// The scan below `node` if the nodes between pass rows on one by one, and `expressions` over the
/// node's output as expressions over the scan's. `filtered`: rows may be dropped in between.
fn scan_below(
    node: &Plan,
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    filtered: bool,
) -> Result<Option<OverScan<'_>>> {
    if let Some(scan) = node.downcast_ref::<ScanExec>() {
        return Ok(Some((scan, expressions)));
    }
    let expressions = if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        let given: Vec<_> = projection.expr().iter().map(|e| &e.expr).collect();
        below(expressions, &|at| given.get(at).copied().cloned())?
    } else if let Some(filter) = node.downcast_ref::<FilterExec>().filter(|_| filtered) {
        let schema = filter.input().schema();
        match filter.projection() {
            None => expressions,
            Some(kept) => below(expressions, &|at| {
                let at = *kept.get(at)?;
                let name = schema.fields().get(at)?.name();
                Some(Arc::new(Column::new(name, at)))
            })?,
        }
    } else if node.is::<CooperativeExec>() || is_exchange(node) {
        expressions
    } else {
        return Ok(None);
    };
    match node.children().as_slice() {
        [child] if node.fetch().is_none() => scan_below(child, expressions, filtered),
        _ => Ok(None),
    }
}

/// Expressions in which `input` replaces each column by its position.
fn below(
    expressions: Vec<Arc<dyn PhysicalExpr>>,
    input: &dyn Fn(usize) -> Option<Arc<dyn PhysicalExpr>>,
) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
    let replace = |part: Arc<dyn PhysicalExpr>| {
        let Some(column) = part.downcast_ref::<Column>() else {
            return Ok(Transformed::no(part));
        };
        match input(column.index()) {
            Some(given) => Ok(Transformed::new(given, true, TreeNodeRecursion::Jump)),
            None => internal_err!("{part} is not a column of its input"),
        }
    };
    let expressions = expressions.into_iter();
    let replaced = expressions.map(|e| Ok(e.transform_down(replace)?.data));
    replaced.collect()
}

/// Whether a node only moves rows between partitions; a walk has a single partition.
fn is_exchange(node: &Plan) -> bool {
    node.is::<CoalescePartitionsExec>() || node.is::<RepartitionExec>()
}

/// `node` that first tries its part `part` with `walk` in place of the scan.
fn before(node: &Plan, part: &Plan, walk: IndexWalkExec, rows: Option<usize>) -> Result<Plan> {
    let gave_up = Arc::clone(walk.gave_up());
    let attempt = with_leaf(part, &(Arc::new(walk) as Plan))?;
    Ok(Arc::new(FirstRowsExec {
        children: [attempt, Arc::clone(node)],
        rows,
        gave_up,
    }))
}

/// Replaces the leaf of a chain of nodes.
fn with_leaf(node: &Plan, leaf: &Plan) -> Result<Plan> {
    match node.children().as_slice() {
        [] => Ok(Arc::clone(leaf)),
        [child] if is_exchange(node) => with_leaf(child, leaf),
        [child] => {
            let child = with_leaf(child, leaf)?;
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            Arc::clone(node).replace_children(vec![child], options)
        }
        _ => internal_err!("a walk below a node with several inputs"),
    }
}

/// Tries one plan and, if it gives up, runs another one.
#[derive(Debug)]
struct FirstRowsExec {
    /// the plan with the walk, and the plan without
    children: [Plan; 2],
    /// the number of the first plan's rows in the result; None: all
    rows: Option<usize>,
    /// whether the first plan gave up, so that its rows are incomplete
    gave_up: Arc<AtomicBool>,
}

impl DisplayAs for FirstRowsExec {
    fn fmt_as(&self, t: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if t != DisplayFormatType::TreeRender {
            write!(f, "FirstRows: ")?;
        }
        match self.rows {
            Some(rows) => write!(f, "limit={rows}"),
            None => write!(f, "ends"),
        }
    }
}

impl ExecutionPlan for FirstRowsExec {
    fn name(&self) -> &str {
        "FirstRows"
    }

    fn schema(&self) -> SchemaRef {
        let [_, whole] = &self.children;
        whole.schema()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        let [_, whole] = &self.children;
        whole.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true, true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false, false]
    }

    fn children(&self) -> Vec<&Plan> {
        self.children.iter().collect()
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Plan>,
        _: ReplaceChildrenOptions,
    ) -> Result<Plan> {
        match <[Plan; 2]>::try_from(children) {
            Ok(children) => Ok(Arc::new(Self {
                children,
                rows: self.rows,
                gave_up: self.gave_up.clone(),
            })),
            Err(_) => internal_err!("{} has two inputs", self.name()),
        }
    }

    fn with_new_children(self: Arc<Self>, children: Vec<Plan>) -> Result<Plan> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        self.replace_children(children, options)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return internal_err!("{} has one partition", self.name());
        }
        let [attempt, whole] = self.children.clone();
        let (gave_up, rows) = (self.gave_up.clone(), self.rows);
        let schema = self.schema();
        let result = async move {
            gave_up.store(false, Ordering::Relaxed);
            let mut left = rows.unwrap_or(usize::MAX);
            let mut batches = Vec::new();
            let mut stream = attempt.execute(0, Arc::clone(&context))?;
            while left > 0
                && let Some(batch) = stream.try_next().await?
            {
                let batch = batch.slice(0, batch.num_rows().min(left));
                left -= batch.num_rows();
                batches.push(batch);
            }
            if left > 0 && gave_up.load(Ordering::Relaxed) {
                return whole.execute(0, context);
            }
            let found = futures::stream::iter(batches.into_iter().map(Ok));
            let found = RecordBatchStreamAdapter::new(whole.schema(), found);
            Ok(Box::pin(found) as SendableRecordBatchStream)
        };
        let stream = futures::stream::once(result).try_flatten();
        Ok(Box::pin(RecordBatchStreamAdapter::new(
            schema,
            stream.boxed(),
        )))
    }
}
