//! The rules of SQL for the engine's referential actions: CHECK constraints and DEFAULTs of the
//! rows that they change, and the end of a statement with such actions.

use super::row_checks::RowChecks;
use super::row_values::identity;
use crate::parse;
use crate::planning::context::StatementContext;
use crate::runtime::blocking::{in_place, wait};
use crate::values::value;
use datafusion::common::ScalarValue;
use datafusion::sql::sqlparser::ast::Expr;
use futures::StreamExt;
use std::sync::Arc;
use strandline_base::{ColumnId, Error, Result, SqlType, Value};
use strandline_engine::catalog::TableDef;
use strandline_engine::{RowRules, Statement};
use strandline_semantics::error::convert;

/// The rules of tables in a statement's session.
struct ContextRules<'a> {
    context: &'a StatementContext,
    checks: RowChecks,
}

impl RowRules for ContextRules<'_> {
    fn check(&self, table: &Arc<TableDef>, row: &[Value]) -> Result<()> {
        let (state, now_us) = (&*self.context.state, self.context.now_us());
        let checks = self.checks.of(table, state, now_us)?;
        checks.check_row(table, row)
    }

    fn default_value(&self, table: &Arc<TableDef>, column: ColumnId) -> Result<Value> {
        let missing = || Error::internal(format!("table \"{}\" lacks a column", table.name));
        let column = table.column_by_id(column).ok_or_else(missing)?;
        if column.identity.is_some() {
            let db = self.context.statement.transaction().db();
            return identity(column, db.next_identity(table, column.id)?);
        }
        match &column.default {
            None => Ok(Value::Null),
            Some(text) => {
                let default = parse::expression(text)?;
                wait(evaluate(self.context, &default, column.sql_type))
            }
        }
    }
}

/// Ends the context's statement: checks its keys and foreign keys, and runs its actions.
pub(crate) fn finish(context: &StatementContext) -> Result<()> {
    finish_statement(context, &context.statement)
}

/// [`finish`] for another statement of the session.
pub(crate) fn finish_statement(context: &StatementContext, statement: &Statement) -> Result<()> {
    if !statement.has_row_events() {
        return statement.finish();
    }
    let rules = ContextRules {
        context,
        checks: RowChecks::default(),
    };
    in_place(|| statement.finish_with(&rules))
}

/// The value of a constant expression in a column of type `t`.
pub(crate) async fn evaluate(context: &StatementContext, expr: &Expr, t: SqlType) -> Result<Value> {
    let query = parse::query(&format!("SELECT {expr}"))?;
    let plan = context.plan_query(&query).await?;
    let (_, mut stream) = context.run(plan).await?;
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(convert)?;
        if batch.num_rows() > 0 {
            let scalar = ScalarValue::try_from_array(batch.column(0), 0).map_err(convert)?;
            return value::from_scalar(&scalar, t);
        }
    }
    Ok(Value::Null)
}
