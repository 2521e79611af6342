//! The nodes of DML plans as steps that [short plans](crate::execution::short_plans) take: each has
//! all its rows in one batch.

use super::apply::Applier;
use super::node::DmlNode;
use super::operation::{Action, Operation};
use super::row_set::ChangedRows;
use super::widen::{SortKey, WidenNode, Widening};
use crate::planning::owner::Owner;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::logical_expr::{Extension, LogicalPlan};
use std::fmt;
use std::sync::Arc;
use strandline_base::{ColumnId, Result};
use strandline_engine::Statement;
use strandline_engine::catalog::TableDef;

/// The node that changes rows.
#[derive(Clone, Debug)]
pub(crate) struct Change(Arc<Operation>);

impl Change {
    /// The change of a DML node, and the plan of the rows that say what is changed.
    pub fn of(node: &Extension) -> Option<(Self, &LogicalPlan)> {
        let node = node.node.as_any().downcast_ref::<DmlNode>()?;
        Some((Self(node.operation.clone()), &node.input))
    }

    /// The table that it changes.
    pub fn table(&self) -> &Arc<TableDef> {
        &self.0.table
    }

    /// Whether it deletes rows.
    pub fn deletes(&self) -> bool {
        self.0.actions.contains(&Action::Delete)
    }

    /// Whether it sets a column of rows that are there.
    pub fn sets(&self, column: ColumnId) -> bool {
        let is_set = |action: &Action| match action {
            Action::Update(set) => set.iter().any(|at| self.0.table.columns[*at].id == column),
            Action::Insert | Action::Delete | Action::Nothing => false,
        };
        self.0.actions.iter().any(is_set)
    }

    /// Its text in EXPLAIN.
    pub fn text(&self) -> String {
        self.0.explain()
    }

    /// Applies all rows; returns those that were changed.
    pub fn apply(
        &self,
        statement: &Arc<Statement>,
        changed: &Arc<ChangedRows>,
        rows: &RecordBatch,
    ) -> Result<RecordBatch> {
        let mut applier = Applier::new(self.0.clone(), statement.clone(), changed.clone());
        let done = applier.apply(rows)?;
        applier.finish()?;
        Ok(done)
    }
}

/// A node that appends columns, of no statement.
#[derive(Clone)]
pub(crate) struct Widen {
    widening: Arc<dyn Widening>,
    schema: SchemaRef,
}

impl Widen {
    /// That of a node, and its input.
    pub fn of(node: &Extension) -> Option<(Self, &LogicalPlan)> {
        let node = node.node.as_any().downcast_ref::<WidenNode>()?;
        let (widening, input, schema) = node.parts();
        Some((
            Self {
                widening: widening.of(Owner::NONE),
                schema: schema.clone(),
            },
            input,
        ))
    }

    /// The fields by which its input is sorted.
    pub fn input_order(&self) -> &[SortKey] {
        self.widening.input_order()
    }

    /// Its text in EXPLAIN.
    pub fn text(&self) -> String {
        format!("{}: {}", self.widening.name(), self.widening.explain())
    }

    /// All rows with the columns.
    pub fn extend(&self, statement: &Arc<Statement>, rows: &RecordBatch) -> Result<RecordBatch> {
        let widening = self.widening.of(statement.clone().into());
        widening.extend(rows, &self.schema)
    }
}

impl fmt::Debug for Widen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}
