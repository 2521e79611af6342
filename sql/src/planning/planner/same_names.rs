//! Filters that find their columns where several have the same name.
//!
//! DataFusion pushes filters down from node to node and looks their columns up by name, among them
//! the bound of a Top-K and the keys that a join learns. A join's output, or a projection of it,
//! may have several columns of a name: the filter would be that of the first one, and drop rows
//! that belong to the result. [`PushUnambiguous`] keeps a filter above such a node if one of its
//! columns shares its name there.

use crate::planning::one_input::hands_on_its_input;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, internal_err};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterDescription, FilterDescription, FilterPushdownPhase,
};
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties,
};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// What the names of the rules begin with that this one stands for: before and after the choice of
/// nodes.
pub(super) const REPLACED: &str = "FilterPushdown";

/// DataFusion's rule, which does not take one column for another.
#[derive(Debug)]
pub(super) struct PushUnambiguous(pub Arc<dyn PhysicalOptimizerRule + Send + Sync>);

impl PhysicalOptimizerRule for PushUnambiguous {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn schema_check(&self) -> bool {
        self.0.schema_check()
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // Names repeat above joins only.
        if !plan.exists(|node| Ok(node.children().len() > 1))? {
            return self.0.optimize(plan, config);
        }
        let marked = plan.transform_up(|node| {
            let unique = unique_columns(&node.schema());
            Ok(match unique.len() == node.schema().fields().len() {
                true => Transformed::no(node),
                false => Transformed::yes(Arc::new(SameNamesExec {
                    input: node,
                    unique,
                })),
            })
        })?;
        let pushed = self.0.optimize(marked.data, config)?;
        if !marked.transformed {
            return Ok(pushed);
        }
        let plain = pushed.transform_up(|node| {
            Ok(match node.downcast_ref::<SameNamesExec>() {
                Some(mark) => Transformed::yes(Arc::clone(&mark.input)),
                None => Transformed::no(node),
            })
        })?;
        Ok(plain.data)
    }
}

/// The places of the columns whose names no other one has.
fn unique_columns(schema: &Schema) -> HashSet<usize> {
    let mut times: HashMap<&str, usize> = HashMap::new();
    for field in schema.fields() {
        *times.entry(field.name()).or_default() += 1;
    }
    let fields = schema.fields().iter().enumerate();
    let unique = fields.filter(|(_, field)| times.get(field.name().as_str()) == Some(&1));
    unique.map(|(at, _)| at).collect()
}

/// Its input, some of whose columns share their names. It is in a plan while filters are pushed.
#[derive(Debug)]
struct SameNamesExec {
    input: Arc<dyn ExecutionPlan>,
    /// the places of the other columns
    unique: HashSet<usize>,
}

impl SameNamesExec {
    fn with_input(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        let unique = self.unique.clone();
        Self { input, unique }
    }
}

impl DisplayAs for SameNamesExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ExecutionPlan for SameNamesExec {
    fn name(&self) -> &str {
        "SameNamesExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    hands_on_its_input!();

    fn gather_filters_for_pushdown(
        &self,
        _phase: FilterPushdownPhase,
        parent_filters: Vec<Arc<dyn PhysicalExpr>>,
        _config: &ConfigOptions,
    ) -> Result<FilterDescription> {
        let child = ChildFilterDescription::from_child_with_allowed_indices(
            &parent_filters,
            self.unique.clone(),
            &self.input,
        )?;
        Ok(FilterDescription::new().with_child(child))
    }
}
