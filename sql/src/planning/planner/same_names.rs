//! Keeps filters above nodes whose columns share names.
//!
//! DataFusion pushes filters down from node to node and looks up their columns by name, such as the
//! bound of a Top-K and the keys that a join learns. A join's output, or a projection of it, may
//! have several columns of one name. The filter would then test the first of them and drop rows
//! that belong to the result. [`PushUnambiguous`] keeps a filter above such a node if one of its
//! columns has an ambiguous name there.

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

/// The name prefix of the replaced rules, which run before and after the choice of physical nodes.
pub(super) const REPLACED: &str = "FilterPushdown";

/// DataFusion's rule without confusion between columns of one name.
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

/// The positions of the columns with unique names.
fn unique_columns(schema: &Schema) -> HashSet<usize> {
    let mut times: HashMap<&str, usize> = HashMap::new();
    for field in schema.fields() {
        *times.entry(field.name()).or_default() += 1;
    }
    let fields = schema.fields().iter().enumerate();
    let unique = fields.filter(|(_, field)| times.get(field.name().as_str()) == Some(&1));
    unique.map(|(at, _)| at).collect()
}

/// Its input, in which some columns share a name. It is in a plan only while filters are pushed.
#[derive(Debug)]
struct SameNamesExec {
    input: Arc<dyn ExecutionPlan>,
    /// the positions of the columns with unique names
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
