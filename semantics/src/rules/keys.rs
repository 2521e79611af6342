//! Keys that DataFusion wrongly takes for keys of groups.
//!
//! A table's key determines the other columns of its row, even where joins have repeated the row.
//! DataFusion takes it for a key of every GROUP BY that includes it. But a row that is joined with
//! different rows is in several groups if their columns are grouped by too, and its key then occurs
//! several times. By such a false key DataFusion adds or drops columns of a GROUP BY above the
//! groups, drops a DISTINCT, and turns joins into semi joins. In the same way it takes a row's key
//! for a key of the rows that unnesting makes from the row, and drops the sort keys after it in
//! ORDER BY.
//!
//! So a [`Keyless`] node, which reports no keys, is put above groups and unnested rows with a false
//! key. [`KeylessRelations`] puts it above subqueries, WITH queries and views in FROM, because
//! GROUP BY is planned by the keys of FROM. [`HideFalseKeys`] and [`DistinctRows`] put it wherever
//! optimizer rules have made such groups. [`RemoveKeyless`], the last rule, removes it.

use super::any_node;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchemaRef, Dependency, FunctionalDependencies, Result, internal_err};
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use datafusion::logical_expr::{
    Aggregate, Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};
use datafusion::sql::sqlparser::ast::{Ident, TableFactor};
use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// Returns its input's rows without reporting keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Keyless {
    input: LogicalPlan,
    schema: DFSchemaRef,
}

impl Keyless {
    fn new(input: LogicalPlan) -> Result<Self> {
        let schema = input.schema().as_ref().clone();
        let schema = schema.with_functional_dependencies(FunctionalDependencies::empty())?;
        Ok(Self {
            input,
            schema: Arc::new(schema),
        })
    }

    fn plan(input: LogicalPlan) -> Result<LogicalPlan> {
        let node = Arc::new(Self::new(input)?);
        Ok(LogicalPlan::Extension(Extension { node }))
    }
}

impl PartialOrd for Keyless {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl UserDefinedLogicalNodeCore for Keyless {
    fn name(&self) -> &str {
        "Keyless"
    }
    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }
    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }
    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        HashSet::new()
    }
    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
    fn with_exprs_and_inputs(&self, _: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        match <[LogicalPlan; 1]>::try_from(inputs) {
            Ok([input]) => Self::new(input),
            Err(_) => internal_err!("{} has one input", self.name()),
        }
    }
    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }
    fn supports_limit_pushdown(&self) -> bool {
        true
    }
}

/// `plan` without keys.
pub(super) fn without_keys(plan: LogicalPlan) -> Result<LogicalPlan> {
    Keyless::plan(plan)
}

/// The input of a [`Keyless`].
fn keyless_input(plan: &LogicalPlan) -> Option<&LogicalPlan> {
    let LogicalPlan::Extension(extension) = plan else {
        return None;
    };
    let node = extension.node.as_any().downcast_ref::<Keyless>()?;
    Some(&node.input)
}

/// Hides false keys of items in FROM from the SQL planner.
#[derive(Debug)]
pub struct KeylessRelations;

impl RelationPlanner for KeylessRelations {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        // The context calls this planner again for the same relation; the mark ends the recursion.
        if !mark(&mut relation) {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let plan = context.plan(relation)?;
        let plan = match shows_false_key(&plan) {
            true => Keyless::plan(plan)?,
            false => plan,
        };
        let planned = PlannedRelation::new(plan, None);
        Ok(RelationPlanning::Planned(Box::new(planned)))
    }
}

/// Marks a relation that may be a query and returns true. Removes an existing mark and returns
/// false. The marks are clauses of other systems' SQL.
fn mark(relation: &mut TableFactor) -> bool {
    match relation {
        TableFactor::Derived { subquery, .. } => {
            let is_new = subquery.settings.take().is_none();
            if is_new {
                subquery.settings = Some(Vec::new());
            }
            is_new
        }
        TableFactor::Table { partitions, .. } => {
            let is_new = partitions.pop().is_none();
            if is_new {
                partitions.push(Ident::new("\u{1f}"));
            }
            is_new
        }
        _ => false,
    }
}

/// Adds [`HideFalseKeys`] before the rules that use keys, and [`RemoveKeyless`] at the end.
pub fn hide_false_keys(rules: &mut Vec<Arc<dyn OptimizerRule + Send + Sync>>) {
    let by_keys = [
        "replace_distinct_aggregate",
        "eliminate_join",
        "optimize_projections",
    ];
    for name in by_keys {
        if let Some(at) = rules.iter().position(|rule| rule.name() == name) {
            rules.insert(at, Arc::new(HideFalseKeys));
        }
    }
    rules.push(Arc::new(RemoveKeyless));
}

/// Wraps groups with a false key in [`Keyless`] nodes.
#[derive(Debug)]
pub struct HideFalseKeys;

impl OptimizerRule for HideFalseKeys {
    fn name(&self) -> &str {
        "hide_false_keys"
    }
    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !has_open_keys(&plan)? {
            return Ok(Transformed::no(plan));
        }
        plan.transform_up_with_subqueries(|node| {
            if keyless_input(&node).is_some() {
                return Ok(Transformed::no(node));
            }
            let hidden = node.map_children(|child| match has_false_key(&child) {
                true => Keyless::plan(child).map(Transformed::yes),
                false => Ok(Transformed::no(child)),
            })?;
            // Nodes inherit the keys of the nodes below them.
            Ok(Transformed::yes(hidden.data.recompute_schema()?))
        })
    }
}

/// DataFusion's `replace_distinct_aggregate`, which turns a DISTINCT into groups and drops a
/// DISTINCT above groups by their keys.
#[derive(Debug, Default)]
pub struct DistinctRows {
    inner: ReplaceDistinctWithAggregate,
}

impl OptimizerRule for DistinctRows {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn apply_order(&self) -> Option<ApplyOrder> {
        self.inner.apply_order()
    }
    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let replaced = self.inner.rewrite(plan, config)?;
        match replaced.transformed && has_false_key(&replaced.data) {
            true => replaced.map_data(Keyless::plan),
            false => Ok(replaced),
        }
    }
}

/// Removes [`Keyless`] nodes.
#[derive(Debug)]
pub struct RemoveKeyless;

impl OptimizerRule for RemoveKeyless {
    fn name(&self) -> &str {
        "remove_keyless"
    }
    fn rewrite(
        &self,
        plan: LogicalPlan,
        _config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        if !any_node(&plan, |node| Ok(keyless_input(node).is_some()))? {
            return Ok(Transformed::no(plan));
        }
        plan.transform_up_with_subqueries(|node| {
            Ok(match keyless_input(&node) {
                Some(input) => Transformed::yes(input.clone()),
                None => Transformed::no(node),
            })
        })
    }
}

/// Whether groups with a false key are below a node that uses their keys.
fn has_open_keys(plan: &LogicalPlan) -> Result<bool> {
    let sees = |node: &LogicalPlan| {
        keyless_input(node).is_none() && node.inputs().into_iter().any(has_false_key)
    };
    // Most statements have no such groups, which this test finds faster.
    Ok(any_node(plan, |node| Ok(has_false_key(node)))? && any_node(plan, |node| Ok(sees(node)))?)
}

/// Whether the rows of a plan are groups with a false key, or derived from them.
fn shows_false_key(plan: &LogicalPlan) -> bool {
    if keyless_input(plan).is_some() {
        return false;
    }
    has_false_key(plan) || plan.inputs().into_iter().any(shows_false_key)
}

/// Whether a plan groups by a key of a row that may be in several groups, or repeats a row with its
/// key.
fn has_false_key(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => {
            let keys = aggregate.input.schema().functional_dependencies();
            !keys.is_empty() && takes_false_key(aggregate)
        }
        LogicalPlan::Unnest(unnest) => {
            !unnest.list_type_columns.is_empty()
                && !unnest.schema.functional_dependencies().is_empty()
        }
        _ => false,
    }
}

/// Whether a key of joined rows is one of the groups and does not determine all other groups.
fn takes_false_key(aggregate: &Aggregate) -> bool {
    let schema = aggregate.input.schema();
    let fields = schema.field_names();
    let groups: Vec<Option<usize>> = aggregate
        .group_expr
        .iter()
        .map(|group| {
            let name = group.schema_name().to_string();
            fields.iter().position(|field| *field == name)
        })
        .collect();
    schema.functional_dependencies().iter().any(|key| {
        let determines = |group: &Option<usize>| {
            group.is_some_and(|at| {
                key.source_indices.contains(&at) || key.target_indices.contains(&at)
            })
        };
        let is_there = |at: &usize| groups.contains(&Some(*at));
        key.mode == Dependency::Multi
            && key.source_indices.iter().all(is_there)
            && !groups.iter().all(determines)
    })
}
