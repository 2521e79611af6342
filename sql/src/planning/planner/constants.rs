//! Columns that are constant below a node and not above it.
//!
//! DataFusion removes constant columns from an ORDER BY. Two of its nodes report too many
//! constants: an outer join, whose unmatched side becomes NULL, and a union, whose inputs have
//! different constants. (They are constant per partition, but partitions share the bound of a
//! Top-K.) Equal columns have the same problem. A union does not know its inputs' equalities, and
//! asks its inputs for orders that they name by other columns.
//!
//! [`EndConstants`] puts a node without cost above such inputs that reports no properties. It hides
//! their orders too, because a sort that is pushed below it would drop the constants again.

use crate::planning::one_input::hands_on_its_input;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, Result, Statistics, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{
    CardinalityEffect, ChildrenPropertiesMode, ReplaceChildrenOptions,
};
use datafusion::physical_plan::filter_pushdown::{FilterDescription, FilterPushdownPhase};
use datafusion::physical_plan::joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::statistics::{ChildStats, StatisticsArgs};
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PhysicalExpr,
    PlanProperties,
};
use std::fmt;
use std::sync::Arc;

/// Hides constants at outer joins and unions.
#[derive(Debug)]
pub(super) struct EndConstants;

impl PhysicalOptimizerRule for EndConstants {
    fn name(&self) -> &str {
        "end_constants"
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Most plans have no outer join and no union.
        if !plan.exists(|node| Ok(may_end(node)))? {
            return Ok(plan);
        }
        let changed = plan.transform_up(|node| {
            if !may_end(&node) {
                return Ok(Transformed::no(node));
            }
            let ends = ends(&node);
            if !ends.contains(&true) {
                return Ok(Transformed::no(node));
            }
            let children = node.children().into_iter().zip(ends);
            let children = children.map(|(child, end)| match end {
                true => Arc::new(EndExec::new(Arc::clone(child))) as Arc<dyn ExecutionPlan>,
                false => Arc::clone(child),
            });
            let children = children.collect();
            let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
            node.replace_children(children, options)
                .map(Transformed::yes)
        })?;
        Ok(changed.data)
    }
}

/// Whether constants of the inputs may end at a node: a union or an outer join.
fn may_end(node: &Arc<dyn ExecutionPlan>) -> bool {
    let is_outer = |join| matches!(join, JoinType::Left | JoinType::Right | JoinType::Full);
    node.is::<UnionExec>() || join_type(node).is_some_and(is_outer)
}

/// Per child of a node whether it has constants that end at the node.
fn ends(node: &Arc<dyn ExecutionPlan>) -> Vec<bool> {
    let is_union = node.is::<UnionExec>();
    let has_constants = |child: &Arc<dyn ExecutionPlan>| {
        let known = child.equivalence_properties();
        !known.constants().is_empty() || is_union && !known.eq_group().is_empty()
    };
    let join = join_type(node);
    let becomes_null = |at: usize| match join {
        Some(JoinType::Left) => at == 1,
        Some(JoinType::Right) => at == 0,
        Some(JoinType::Full) => true,
        _ => false,
    };
    let children = node.children().into_iter().enumerate();
    children
        .map(|(at, child)| (is_union || becomes_null(at)) && has_constants(child))
        .collect()
}

fn join_type(node: &Arc<dyn ExecutionPlan>) -> Option<JoinType> {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return Some(*join.join_type());
    }
    if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
        return Some(*join.join_type());
    }
    let join = node.downcast_ref::<SortMergeJoinExec>()?;
    Some(join.join_type())
}

/// Returns its input's rows without any known properties of their values.
#[derive(Debug)]
struct EndExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl EndExec {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let properties = input.properties().as_ref().clone();
        let nothing = EquivalenceProperties::new(input.schema());
        Self {
            properties: Arc::new(properties.with_eq_properties(nothing)),
            input,
        }
    }

    fn with_input(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(input)
    }
}

impl DisplayAs for EndExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for EndExec {
    fn name(&self) -> &str {
        "EndOfConstantsExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Equal
    }

    hands_on_its_input!();

    fn child_stats_requests(&self, partition: Option<usize>) -> Vec<ChildStats> {
        vec![ChildStats::At(partition)]
    }

    fn statistics_from_inputs(
        &self,
        input_stats: &[Arc<Statistics>],
        _args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        match input_stats {
            [input] => Ok(Arc::clone(input)),
            _ => internal_err!("{} has one input", self.name()),
        }
    }

    fn gather_filters_for_pushdown(
        &self,
        _phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> Result<FilterDescription> {
        FilterDescription::from_children(parent_filters, &self.children())
    }
}
