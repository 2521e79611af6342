//! The plan node that applies a DML statement.
//!
//! Its input has one row per change: the id of the row to change, the new values of its columns and
//! the results of CHECK conditions, at the positions of a [`Layout`](super::operation::Layout). The
//! node applies each batch through the engine. It returns the changed rows in the same shape, so
//! that a projection above it computes RETURNING. No optimizer rule moves a filter, a limit or a
//! projection through the node.

use super::apply::Applier;
use super::exec::DmlExec;
use super::operation::{Operation, Tally};
use super::sequence;
use super::widen::{WidenExec, WidenNode};
use crate::planning::one_input::{compared_by, logical_input};
use crate::planning::owner::Owner;
use async_trait::async_trait;
use datafusion::catalog::Session;
use datafusion::common::{DFSchemaRef, Result, internal_err};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, UserDefinedLogicalNode, UserDefinedLogicalNodeCore,
};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_planner::{ExtensionPlanner, PhysicalPlanner};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use strandline_semantics::error::raise;

/// The logical node. Two nodes are equal only if they belong to the same statement.
#[derive(Clone)]
pub(super) struct DmlNode {
    /// the operation
    pub operation: Arc<Operation>,
    /// the statement that runs it
    pub owner: Owner,
    /// what the running statement knows of its changes
    pub tally: Arc<Tally>,
    /// the computed rows
    pub input: LogicalPlan,
}

/// A copy of DML node `node` that `owner` runs and `tally` counts; None for any other node.
pub(crate) fn owned(node: &Extension, owner: &Owner, tally: &Arc<Tally>) -> Option<Extension> {
    let node: Arc<dyn UserDefinedLogicalNode> =
        if let Some(dml) = node.node.as_any().downcast_ref::<DmlNode>() {
            Arc::new(DmlNode {
                operation: dml.operation.clone(),
                owner: owner.clone(),
                tally: tally.clone(),
                input: dml.input.clone(),
            })
        } else {
            let widen = node.node.as_any().downcast_ref::<WidenNode>()?;
            Arc::new(widen.of(owner))
        };
    Some(Extension { node })
}

/// Whether a node of a plan belongs to DML.
pub(crate) fn is_own(node: &Extension) -> bool {
    let node = node.node.as_any();
    node.is::<DmlNode>() || node.is::<WidenNode>()
}

/// Whether a node numbers rows and draws identity values for them.
pub(crate) fn numbers_rows(node: &Extension) -> bool {
    node.node.as_any().is::<WidenNode>() && node.node.name() == sequence::NAME
}

impl fmt::Debug for DmlNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DmlNode({})", self.operation.explain())
    }
}

compared_by!(DmlNode, operation);

impl Hash for DmlNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.operation).hash(state);
        self.input.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for DmlNode {
    fn name(&self) -> &str {
        "Dml"
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dml: {}", self.operation.explain())
    }

    logical_input!(unchanged_schema);
}

/// Plans this module's logical nodes as physical nodes.
#[derive(Debug)]
struct DmlPlanner;

/// The extension planner of DML for a session.
pub fn extension_planner() -> Arc<dyn ExtensionPlanner + Send + Sync> {
    Arc::new(DmlPlanner)
}

#[async_trait]
impl ExtensionPlanner for DmlPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        _session: &dyn Session,
        _planning: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let input = || match physical_inputs {
            [input] => Ok(input.clone()),
            _ => internal_err!("a DML node has one input"),
        };
        if let Some(dml) = node.as_any().downcast_ref::<DmlNode>() {
            let statement = dml.owner.statement().map_err(raise)?.clone();
            let changed = dml.tally.changed();
            let applier = Applier::new(dml.operation.clone(), statement, changed);
            let explain = dml.operation.explain();
            return Ok(Some(Arc::new(DmlExec::new(
                explain,
                input()?,
                applier,
                dml.tally.clone(),
            ))));
        }
        if let Some(widen) = node.as_any().downcast_ref::<WidenNode>() {
            return Ok(Some(Arc::new(WidenExec::new(widen, input()?))));
        }
        Ok(None)
    }
}
