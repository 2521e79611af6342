//! The plan node that applies a DML statement.
//!
//! Its input computes, per row, what is to happen: the id of the row to change, the new values of
//! its columns, the results of CHECK conditions ([`Layout`] says where). The node applies each
//! batch through the engine and passes on the rows that it changed, unchanged in shape, so that a
//! projection above it computes RETURNING. It never lets an optimizer rule move a filter, a limit
//! or a projection through itself: what reaches it is what is done.

use super::apply::Applier;
use super::arbiter::Arbiter;
use super::exec::DmlExec;
use super::widen::{WidenExec, WidenNode};
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
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use strandline_engine::catalog::TableDef;
use strandline_semantics::error::raise;

/// What happens to a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// a new row of all columns
    Insert,
    /// new values for the columns at these positions
    Update(Vec<usize>),
    /// the row goes
    Delete,
    /// nothing; it is not counted and not returned
    Nothing,
}

/// What a second change of one row means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeated {
    /// the first change wins (UPDATE … FROM, DELETE … USING)
    Skipped,
    /// 21000, in the words of ON CONFLICT DO UPDATE
    UpsertError,
    /// 21000, in the words of MERGE
    MergeError,
}

/// A condition that new rows must meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CheckColumn {
    /// the input column with its result; NULL passes
    pub index: usize,
    /// the constraint
    pub constraint: Constraint,
    /// It holds for the row as proposed, before ON CONFLICT: every input row must meet it.
    pub proposed: bool,
}

/// What a condition comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Constraint {
    /// the CHECK constraint of this name
    Check(String),
    /// NOT NULL of this column
    NotNull(String),
}

/// Where the node finds things in its input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// the id of the existing row (UInt64)
    pub row_id: Option<usize>,
    /// the row's action, an index into [`Operation::actions`] (Int32); NULL: nothing. Without
    /// this column every row has action 0.
    pub action: Option<usize>,
    /// per column of the table the input column with its new value
    pub columns: Vec<Option<usize>>,
    /// the conditions
    pub checks: Vec<CheckColumn>,
}

/// A DML statement, ready to be applied.
#[derive(Debug)]
pub(super) struct Operation {
    /// `INSERT`, `UPDATE`, `DELETE` or `MERGE`
    pub tag: &'static str,
    /// the target
    pub table: Arc<TableDef>,
    /// what can happen to a row
    pub actions: Vec<Action>,
    /// what a second change of a row means
    pub repeated: Repeated,
    /// ON CONFLICT: what decides whether a row conflicts
    pub arbiters: Vec<Arbiter>,
    /// where things are in the input
    pub layout: Layout,
}

impl Operation {
    /// Whether this is INSERT … ON CONFLICT.
    pub fn is_upsert(&self) -> bool {
        !self.arbiters.is_empty()
    }

    fn explain(&self) -> String {
        let mut text = format!("{} {}", self.tag, self.table.name);
        if let [Action::Update(columns)] = self.actions.as_slice() {
            text += &format!(" set=[{}]", self.column_names(columns));
        }
        if self.is_upsert() {
            let keys: Vec<_> = self
                .arbiters
                .iter()
                .map(|arbiter| arbiter.name(&self.table))
                .collect();
            let action = match self.actions.get(1) {
                Some(Action::Update(columns)) => format!("UPDATE [{}]", self.column_names(columns)),
                _ => "NOTHING".to_string(),
            };
            text += &format!(" on_conflict=[{}] do={action}", keys.join(", "));
        }
        text
    }

    fn column_names(&self, positions: &[usize]) -> String {
        let names: Vec<_> = positions
            .iter()
            .map(|p| self.table.columns[*p].name.as_str())
            .collect();
        names.join(", ")
    }
}

/// What a running statement has done.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// rows changed so far
    pub(super) rows: AtomicU64,
    /// the whole input has been applied
    pub(super) complete: AtomicBool,
}

/// The logical node. Two nodes are equal only if they are the same statement.
#[derive(Clone)]
pub(super) struct DmlNode {
    /// what to do
    pub operation: Arc<Operation>,
    /// for whom
    pub owner: Owner,
    /// what has been done
    pub tally: Arc<Tally>,
    /// which rows
    pub input: LogicalPlan,
}

/// The node of DML that `node` is, for `owner` to run, who counts in `tally`; None: another's.
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

/// Whether a node of a plan is one of DML's.
pub(crate) fn is_own(node: &Extension) -> bool {
    let node = node.node.as_any();
    node.is::<DmlNode>() || node.is::<WidenNode>()
}

impl fmt::Debug for DmlNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DmlNode({})", self.operation.explain())
    }
}

impl PartialEq for DmlNode {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.operation, &other.operation) && self.input == other.input
    }
}

impl Eq for DmlNode {}

impl PartialOrd for DmlNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self == other).then_some(Ordering::Equal)
    }
}

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

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        self.input.schema()
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Dml: {}", self.operation.explain())
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let ([], Ok([input])) = (exprs.as_slice(), <[LogicalPlan; 1]>::try_from(inputs)) else {
            return internal_err!("a DML node has one input and no expressions");
        };
        Ok(Self {
            input,
            ..self.clone()
        })
    }
}

/// Makes the physical nodes of this module's logical ones.
#[derive(Debug)]
struct DmlPlanner;

/// The planner that a session needs to run DML.
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
            let applier = Applier::new(dml.operation.clone(), statement);
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
