//! From computed rows to a plan that applies them.
//!
//! Every statement ends as `RETURNING projection ← Dml node ← CHECK projection ← computed rows`.
//! The computed rows have these fields, each only if needed: `_rowid` (unqualified), [`ACTION`],
//! the new row's columns under the target's qualified names, and the other tables' columns that
//! RETURNING uses, under their own qualified names.

use super::arbiter::Arbiter;
use super::checks::PlannedCheck;
use super::node::DmlNode;
use super::operation::{Action, CheckColumn, Constraint, Layout, Operation, Repeated, Tally};
use super::query::{plan_select, select};
use super::target::Target;
use crate::parse::names::ROW_ID;
use crate::planning::context::StatementContext;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{Expr, Extension, LogicalPlan, Projection};
use datafusion::sql::sqlparser::ast;
use std::collections::HashSet;
use std::sync::Arc;
use strandline_base::{Error, Result};
use strandline_engine::catalog::ColumnDef;
use strandline_semantics::error::convert;

/// The field with the row's action, an index into the statement's actions.
pub(super) const ACTION: &str = "#action";

/// A planned statement.
pub(crate) struct DmlPlan {
    /// the whole plan
    pub plan: LogicalPlan,
    /// the form of its result
    pub form: DmlForm,
    /// the counters of its execution
    pub tally: Arc<Tally>,
}

/// The form of a statement's result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DmlForm {
    /// `INSERT`, `UPDATE`, `DELETE` or `MERGE`
    pub tag: &'static str,
    /// whether the plan's rows are the result of RETURNING
    pub returning: bool,
}

/// A statement whose rows are computed by a plan.
pub(super) struct Pipeline {
    /// `INSERT`, `UPDATE`, `DELETE` or `MERGE`
    pub tag: &'static str,
    /// the computed rows
    pub rows: LogicalPlan,
    /// the possible actions on a row
    pub actions: Vec<Action>,
    /// the treatment of a second change of a row
    pub repeated: Repeated,
    /// the arbiters of ON CONFLICT
    pub arbiters: Vec<Arbiter>,
    /// conditions on the new rows
    pub checks: Vec<PlannedCheck>,
    /// conditions that are fields of `rows` already
    pub proposed: Vec<(String, Constraint)>,
    /// RETURNING's expressions
    pub returning: Option<Vec<Expr>>,
}

impl Pipeline {
    /// Adds the conditions, the DML node and RETURNING to the plan.
    pub fn finish(self, context: &StatementContext, target: &Target) -> Result<DmlPlan> {
        let schema = self.rows.schema().clone();
        let first_check = schema.fields().len();
        let rows = if self.checks.is_empty() {
            self.rows
        } else {
            let mut exprs = all_columns(&schema);
            let conditions = self.checks.iter().enumerate();
            exprs.extend(conditions.map(|(n, c)| c.condition.clone().alias(format!("#check{n}"))));
            project(self.rows, exprs)?
        };
        let mut checks: Vec<CheckColumn> = self
            .checks
            .into_iter()
            .enumerate()
            .map(|(n, check)| CheckColumn {
                index: first_check + n,
                constraint: check.constraint,
                proposed: false,
            })
            .collect();
        for (name, constraint) in self.proposed {
            let index = unqualified(&schema, &name)
                .ok_or_else(|| Error::internal("a condition was not computed"))?;
            checks.push(CheckColumn {
                index,
                constraint,
                proposed: true,
            });
        }
        let qualifier = target.qualifier();
        let position = |c: &ColumnDef| schema.index_of_column_by_name(Some(&qualifier), &c.name);
        let columns = target.table.columns.iter().map(position).collect();
        let layout = Layout {
            row_id: unqualified(&schema, ROW_ID),
            action: unqualified(&schema, ACTION),
            columns,
            checks,
        };
        let operation = Operation {
            tag: self.tag,
            table: target.table.clone(),
            actions: self.actions,
            repeated: self.repeated,
            arbiters: self.arbiters,
            layout,
        };
        let tally = Arc::new(Tally::default());
        let node = DmlNode {
            operation: Arc::new(operation),
            owner: context.statement.clone().into(),
            tally: tally.clone(),
            input: rows,
        };
        let applied = LogicalPlan::Extension(Extension {
            node: Arc::new(node),
        });
        let returning = self.returning.is_some();
        let plan = match self.returning {
            Some(exprs) => project(applied, exprs)?,
            None => applied,
        };
        Ok(DmlPlan {
            plan,
            form: DmlForm {
                tag: self.tag,
                returning,
            },
            tally,
        })
    }
}

fn unqualified(schema: &DFSchema, name: &str) -> Option<usize> {
    schema
        .iter()
        .position(|(qualifier, field)| qualifier.is_none() && field.name() == name)
}

/// A projection, without the planner's normalizations: all columns are qualified already.
pub(super) fn project(input: LogicalPlan, exprs: Vec<Expr>) -> Result<LogicalPlan> {
    Projection::try_new(exprs, Arc::new(input))
        .map(LogicalPlan::Projection)
        .map_err(convert)
}

/// Every field of a schema.
pub(super) fn all_columns(schema: &DFSchema) -> Vec<Expr> {
    schema.columns().into_iter().map(Expr::Column).collect()
}

/// RETURNING's expressions over the tables in `from`.
pub(super) async fn plan_returning(
    context: &StatementContext,
    with: Option<&ast::With>,
    items: Option<&Vec<ast::SelectItem>>,
    from: Vec<ast::TableWithJoins>,
) -> Result<Option<Vec<Expr>>> {
    let Some(items) = items else { return Ok(None) };
    let query = select(with, items.clone(), from, None);
    Ok(Some(plan_select(context, &query, "RETURNING").await?.exprs))
}

/// The columns that `exprs` use, including their subqueries.
pub(super) fn references<'a>(exprs: impl IntoIterator<Item = &'a Expr>) -> Result<HashSet<Column>> {
    let mut found = HashSet::new();
    for expr in exprs {
        expr.apply(|e| {
            match e {
                Expr::Column(column) => {
                    found.insert(column.clone());
                }
                Expr::ScalarSubquery(subquery)
                | Expr::Exists(Exists { subquery, .. })
                | Expr::InSubquery(InSubquery { subquery, .. })
                | Expr::SetComparison(SetComparison { subquery, .. }) => {
                    for outer in &subquery.outer_ref_columns {
                        if let Expr::OuterReferenceColumn(_, column) = outer {
                            found.insert(column.clone());
                        }
                    }
                }
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })
        .map_err(convert)?;
    }
    Ok(found)
}

/// The fields that CHECK and RETURNING need besides the written columns.
pub(super) struct Needed {
    /// positions of target columns
    pub columns: Vec<usize>,
    /// columns of other tables
    pub others: Vec<Column>,
}

impl Needed {
    /// Collects the fields that the expressions use.
    pub fn by(
        target: &Target,
        checks: &[PlannedCheck],
        returning: Option<&Vec<Expr>>,
    ) -> Result<Self> {
        let exprs = checks
            .iter()
            .map(|c| &c.condition)
            .chain(returning.into_iter().flatten());
        let qualifier = target.qualifier();
        let mut columns = Vec::new();
        let mut others = Vec::new();
        for column in references(exprs)? {
            if column.relation.as_ref() != Some(&qualifier) {
                others.push(column);
            } else if let Some(p) = target
                .table
                .columns
                .iter()
                .position(|c| c.name == column.name)
            {
                columns.push(p);
            }
        }
        columns.sort_unstable();
        others.sort();
        Ok(Self { columns, others })
    }
}
