//! CHECK constraints as plan expressions over a statement's new rows.

use super::operation::Constraint;
use super::query::{plan_definition, select, strip_alias};
use super::target::Target;
use crate::parse;
use crate::parse::names;
use crate::planning::context::StatementContext;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, TableReference};
use datafusion::logical_expr::Expr;
use datafusion::sql::sqlparser::ast;
use strandline_base::Result;
use strandline_semantics::error::convert;

/// A condition over columns `qualifier.column`.
#[derive(Clone)]
pub(super) struct PlannedCheck {
    /// the constraint of the condition
    pub constraint: Constraint,
    /// false: violated; NULL passes
    pub condition: Expr,
}

/// The target's CHECK constraints that use one of `columns` (positions) or no column; without
/// `columns` all of them.
pub(super) async fn plan(
    context: &StatementContext,
    target: &Target,
    columns: Option<&[usize]>,
) -> Result<Vec<PlannedCheck>> {
    let table = &target.table;
    if table.checks.is_empty() {
        return Ok(Vec::new());
    }
    let items = table
        .checks
        .iter()
        .enumerate()
        .map(|(n, check)| {
            Ok(super::query::numbered(
                n,
                parse::expression(&check.expression)?,
            ))
        })
        .collect::<Result<Vec<_>>>()?;
    // Conditions may use the table's name, never the statement's alias.
    let name = vec![names::ident(&table.schema), names::ident(&table.name)];
    let plain = Target::named(context, &ast::ObjectName::from(name), None)?;
    let query = select(None, items, vec![plain.joined()], None);
    let planned = plan_definition(context, &query, "CHECK").await?;
    let written: Option<Vec<&str>> =
        columns.map(|c| c.iter().map(|p| table.columns[*p].name.as_str()).collect());
    let mut checks = Vec::new();
    for (check, condition) in table.checks.iter().zip(planned.exprs) {
        let condition = strip_alias(condition);
        let refs = condition.column_refs();
        let concerned = match &written {
            Some(written) => {
                refs.is_empty() || refs.iter().any(|c| written.contains(&c.name.as_str()))
            }
            None => true,
        };
        if concerned {
            let constraint = Constraint::Check(check.name.clone());
            let condition = requalify(condition, &target.qualifier())?;
            checks.push(PlannedCheck {
                constraint,
                condition,
            });
        }
    }
    Ok(checks)
}

/// Moves all columns of the expression to `qualifier`.
pub(super) fn requalify(expr: Expr, qualifier: &TableReference) -> Result<Expr> {
    let moved = expr.transform(|e| {
        Ok(match e {
            Expr::Column(column) => Transformed::yes(Expr::Column(Column::new(
                Some(qualifier.clone()),
                column.name,
            ))),
            other => Transformed::no(other),
        })
    });
    moved.map(|t| t.data).map_err(convert)
}
