//! Partial indexes: whether a scan's conditions let through only rows that an index has.

use super::condition::{Conjunction, exact};
use crate::parse;
use crate::planning::provider::table_schema::condition_schema;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::simplifier::PhysicalExprSimplifier;
use datafusion::sql::sqlparser::ast::{self, ExprWithAlias};
use std::sync::Arc;
use strandline_base::Result;
use strandline_engine::catalog::TableDef;
use strandline_engine::catalog::index::IndexDef;
use strandline_semantics as semantics;
use strandline_semantics::error::convert;

/// Whether every row for which `condition` is true has an entry in `index`.
///
/// A predicate that sets of values do not say exactly is not followed from any condition.
pub fn is_implied(
    index: &IndexDef,
    table: &TableDef,
    condition: &Conjunction,
    state: &SessionState,
) -> Result<bool> {
    let Some(predicate) = &index.predicate else {
        return Ok(true);
    };
    // To plan the predicate costs more than to look at its columns.
    let mut read = predicate.columns.iter();
    if !read.all(|id| condition.columns.contains_key(id)) {
        return Ok(false);
    }
    let wanted = physical(parse::expression(&predicate.sql)?, table, state)?;
    let wanted = exact(&wanted, table);
    Ok(wanted.is_some_and(|wanted| {
        wanted.iter().all(|(column, values)| {
            let known = condition.columns.get(column);
            known.is_some_and(|known| known.is_within(values))
        })
    }))
}

/// Whether every row for which `condition`, as it is written, is true has an entry in `index`.
pub fn is_implied_by(
    index: &IndexDef,
    table: &TableDef,
    condition: &ast::Expr,
    state: &SessionState,
) -> Result<bool> {
    let mut known = Conjunction::default();
    known.add_physical(&physical(condition.clone(), table, state)?, table);
    is_implied(index, table, &known, state)
}

fn physical(
    mut parsed: ast::Expr,
    table: &TableDef,
    state: &SessionState,
) -> Result<Arc<dyn PhysicalExpr>> {
    semantics::sql::normalize(&mut parsed)?;
    let parsed = ExprWithAlias {
        expr: parsed,
        alias: None,
    };
    let schema = condition_schema(table)?;
    let planned = state.create_logical_expr_from_sql_expr(parsed, &schema);
    let physical = planned.and_then(|planned| state.create_physical_expr(planned, &schema));
    // Constants are cast to the columns' types.
    let simplifier = PhysicalExprSimplifier::new(schema.as_arrow());
    let simple = physical.and_then(|physical| simplifier.simplify(physical));
    simple.map_err(convert)
}
