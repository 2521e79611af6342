//! Values that are assigned to columns, planned as a select list without the rest of their
//! statement: the row executor evaluates them row by row.

use super::assignment::assign;
use super::pipeline::project;
use super::query::{numbered, plan_select, select, strip_alias};
use crate::planning::context::StatementContext;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::sqlparser::ast;
use strandline_base::Result;
use strandline_engine::catalog::ColumnDef;

/// `SELECT values FROM from`.
pub(crate) fn values_query(
    values: impl IntoIterator<Item = ast::Expr>,
    from: Vec<ast::TableWithJoins>,
) -> ast::Query {
    let items = values.into_iter().enumerate();
    let items = items.map(|(n, value)| numbered(n, value)).collect();
    select(None, items, from, None)
}

/// The plan of a query of [`values_query`] with each value in the type of its column.
pub(crate) async fn plan_values(
    context: &StatementContext,
    query: &ast::Query,
    columns: &[&ColumnDef],
) -> Result<LogicalPlan> {
    let planned = plan_select(context, query, "an assignment").await?;
    let schema = planned.input.schema().clone();
    let values = planned.exprs.into_iter().zip(columns).enumerate();
    let values = values.map(|(n, (value, column))| {
        Ok(assign(strip_alias(value), &schema, column)?.alias(format!("#{n}")))
    });
    let values = values.collect::<Result<_>>()?;
    project(planned.input.as_ref().clone(), values)
}
