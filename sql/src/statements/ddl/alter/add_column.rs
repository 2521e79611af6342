//! ADD COLUMN. A default with the same value for every row rewrites no rows: the definition keeps
//! the value for older rows. With a volatile default or an identity, an UPDATE gives each row its
//! own value.

use super::{add_declared, definition, edit};
use crate::execution::dml;
use crate::execution::row_rules::{self, evaluate};
use crate::parse;
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::statements::ddl::column::{self, DeclaredColumn};
use crate::statements::ddl::verify;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::TreeNode;
use datafusion::logical_expr::Volatility;
use datafusion::sql::sqlparser::ast::{self, Expr};
use strandline_base::{ColumnId, Error, Result, SqlState, TableId};
use strandline_engine::catalog::TableDef;
use strandline_semantics::error::convert;

pub async fn execute(
    context: &StatementContext,
    table: TableId,
    written: &ast::ColumnDef,
    if_not_exists: bool,
) -> Result<()> {
    let DeclaredColumn {
        mut def,
        constraints,
    } = column::declare(context, written)?;
    let before = definition(context, table)?;
    if before.column(&def.name).is_some() {
        let message = format!(
            "column \"{}\" of relation \"{}\" already exists",
            def.name, before.name
        );
        let taken = Error::invalid(SqlState::DUPLICATE_COLUMN, message);
        return context.skip(if_not_exists, taken);
    }
    let default = def.default.as_deref().map(parse::expression).transpose()?;
    let own_value_per_row = def.identity.is_some()
        || default
            .as_ref()
            .map_or(Ok(false), |expr| is_volatile(context, expr))?;
    if let (Some(expr), false) = (&default, own_value_per_row) {
        def.missing = evaluate(context, expr, def.sql_type).await?;
    }
    let name = def.name.clone();
    let not_null = def.not_null;
    def.not_null = not_null && !def.missing.is_null();
    edit(context, table, &mut |_, table| {
        let mut column = def.clone();
        column.id = ColumnId(table.next_column);
        table.next_column += 1;
        table.columns.push(column);
        Ok(())
    })?;
    if own_value_per_row {
        fill(context, &*definition(context, table)?, &name).await?;
    }
    if not_null && def.missing.is_null() {
        verify::not_null(context, &*definition(context, table)?, &name).await?;
        edit(context, table, &mut |_, table| {
            for column in &mut table.columns {
                column.not_null |= column.name == name;
            }
            Ok(())
        })?;
    }
    for constraint in &constraints {
        add_declared(context, table, constraint).await?;
    }
    Ok(())
}

fn is_volatile(context: &StatementContext, expr: &Expr) -> Result<bool> {
    let planned = context.plan_expression(expr, &DFSchema::empty())?;
    planned
        .exists(|e| {
            Ok(match e {
                datafusion::logical_expr::Expr::ScalarFunction(f) => {
                    f.func.signature().volatility == Volatility::Volatile
                }
                _ => false,
            })
        })
        .map_err(convert)
}

/// Gives every row its own value of the new column.
async fn fill(context: &StatementContext, table: &TableDef, column: &str) -> Result<()> {
    let sql = format!(
        "UPDATE {}.{} SET {} = DEFAULT",
        names::quote(&table.schema),
        names::quote(&table.name),
        names::quote(column)
    );
    let update = parse::statement(&sql)?;
    let statement = context.statement.transaction().begin_statement()?;
    let mut again = context.again(statement.clone());
    dml::execute(&mut again, &update, &Default::default()).await?;
    row_rules::finish(&again)
}
