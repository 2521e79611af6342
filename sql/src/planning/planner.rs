//! From logical to physical plans: DataFusion's planner with our own nodes, and optimizer rules of
//! our own. They end the constants of outer joins and unions, keep filters away from ambiguous
//! names, use ordered indexes, and bound the bytes of projections' batches.

mod constants;
mod first_rows;
mod piecewise;
mod same_names;

use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::Result;
use datafusion::execution::context::QueryPlanner as DataFusionPlanner;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner};
use std::fmt;
use std::sync::Arc;

/// DataFusion's rules and ours.
pub(crate) fn optimizer_rules() -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
    let mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> =
        vec![Arc::new(constants::EndConstants)];
    rules.extend(PhysicalOptimizer::new().rules.into_iter().map(|rule| {
        match rule.name().starts_with(same_names::REPLACED) {
            true => Arc::new(same_names::PushUnambiguous(rule)) as _,
            false => rule,
        }
    }));
    rules.push(Arc::new(first_rows::FirstRows));
    rules
}

/// Plans DataFusion's nodes and ours.
pub(crate) struct QueryPlanner {
    planner: DefaultPhysicalPlanner,
}

impl QueryPlanner {
    /// A planner with the extension nodes of `own`.
    pub fn new(own: Vec<Arc<dyn ExtensionPlanner + Send + Sync>>) -> Self {
        Self {
            planner: DefaultPhysicalPlanner::with_extension_planners(own),
        }
    }
}

impl fmt::Debug for QueryPlanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueryPlanner")
    }
}

#[async_trait]
impl DataFusionPlanner for QueryPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = self.planner.create_physical_plan(plan, session).await?;
        piecewise::in_pieces(plan)
    }
}
