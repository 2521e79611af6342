//! DELETE: `SELECT _rowid FROM t, others WHERE …`.

use super::operation::{Action, Repeated};
use super::pipeline::{DmlPlan, Needed, Pipeline, plan_returning, project};
use super::query::{numbered, plan_select, select, strip_alias};
use super::target::Target;
use super::update;
use crate::parse::dml_spellings as syntax;
use crate::parse::names::ROW_ID;
use crate::planning::context::StatementContext;
use datafusion::logical_expr::Expr;
use datafusion::sql::sqlparser::ast;
use strandline_base::{Error, Result, SqlState};

/// Plans a DELETE with its WITH clause.
pub(super) async fn plan(
    context: &StatementContext,
    delete: &ast::Delete,
    with: Option<&ast::With>,
) -> Result<DmlPlan> {
    refuse_foreign_clauses(delete)?;
    let (ast::FromTable::WithFromKeyword(tables) | ast::FromTable::WithoutKeyword(tables)) =
        &delete.from;
    let [table] = tables.as_slice() else {
        return Err(
            Error::invalid(SqlState::SYNTAX_ERROR, "DELETE changes one table")
                .with_hint("Name the other tables in USING."),
        );
    };
    let target = Target::of_joined(context, table, "DELETE", "USING")?;
    let mut from = vec![target.joined()];
    from.extend(delete.using.iter().flatten().cloned());

    let items = vec![numbered(0, target.row_id())];
    let query = select(with, items, from.clone(), delete.selection.clone());
    let planned = plan_select(context, &query, "DELETE").await?;
    let row_id = planned.exprs.into_iter().next().map(strip_alias);
    let row_id = row_id.ok_or_else(|| Error::internal("DELETE was planned without rows"))?;

    let returning = plan_returning(context, with, delete.returning.as_ref(), from).await?;
    let needed = Needed::by(&target, &[], returning.as_ref())?;
    let mut columns = vec![row_id.alias(ROW_ID)];
    let of_target = needed
        .columns
        .iter()
        .map(|p| target.column(&target.table.columns[*p].name));
    columns.extend(
        of_target
            .chain(needed.others.iter().cloned())
            .map(Expr::Column),
    );
    let pipeline = Pipeline {
        tag: "DELETE",
        rows: project(planned.input.as_ref().clone(), columns)?,
        actions: vec![Action::Delete],
        repeated: Repeated::Skipped,
        arbiters: Vec::new(),
        checks: Vec::new(),
        proposed: Vec::new(),
        returning,
    };
    pipeline.finish(context, &target)
}

fn refuse_foreign_clauses(delete: &ast::Delete) -> Result<()> {
    if delete.limit.is_some() {
        return Err(update::no_limit("DELETE", "LIMIT"));
    }
    if !delete.order_by.is_empty() {
        return Err(update::no_limit("DELETE", "ORDER BY"));
    }
    if delete.output.is_some() {
        return Err(syntax::no_output());
    }
    if !delete.tables.is_empty() || !delete.optimizer_hints.is_empty() {
        return Err(
            Error::invalid(SqlState::SYNTAX_ERROR, "syntax error: expected DELETE FROM")
                .with_hint("Write DELETE FROM t USING other WHERE …."),
        );
    }
    Ok(())
}
