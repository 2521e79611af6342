//! `SELECT generate_series(1, 3), a FROM t`: a function that returns a set, beside the columns of
//! FROM. DataFusion makes an array of it. Here the function moves into FROM if possible, where its
//! rows are made as they are read.

use super::calls::{call, last_name};
use crate::sql::walk::{any_expression, walk};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArguments, GroupByExpr, Ident, Query, Select, SelectItem, SetExpr, Statement,
    TableFactor, TableFunctionArgs, TableWithJoins, Visit, Visitor,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use std::ops::ControlFlow;
use strandline_base::{Error, Result};

const NAME: &str = "generate_series";
/// The function's name in FROM; no user can write the control character.
const TABLE: &str = "generate_series\u{1f}";

/// Moves the function from the SELECT list into FROM. If its arguments depend on the row, or beside
/// another set function, it becomes the unnesting of its array.
///
/// # Errors
/// 0A000 where the rows would be made too early: with `*`, grouping or window functions.
pub fn expand(select: &mut Select) -> Result<()> {
    let mut nested = Nested::default();
    for expr in select.projection.iter().filter_map(expression) {
        nested.found -= usize::from(arguments(expr).is_some()) as isize;
        let _ = walk(expr, &mut nested);
    }
    if nested.found > 0 {
        return Err(Error::unsupported(
            "generate_series within an expression of a SELECT list is not supported",
        )
        .with_hint("Put it into FROM: SELECT g + 1 FROM generate_series(1, 3) AS g."));
    }
    let mut calls: Vec<FunctionArguments> = select
        .projection
        .iter()
        .filter_map(|item| arguments(expression(item)?))
        .collect();
    if calls.is_empty() {
        return Ok(());
    }
    if !is_plain(select) {
        return Err(
            Error::unsupported("generate_series is not supported in this SELECT list")
                .with_hint("Put it into FROM: SELECT g FROM generate_series(1, 3) AS g."),
        );
    }
    let constant = match (calls.pop(), calls.is_empty()) {
        (Some(args), true) => Some(args).filter(is_constant),
        _ => None,
    };
    for item in &mut select.projection {
        let Some(args) = expression(item).and_then(arguments) else {
            continue;
        };
        let expr = match &constant {
            Some(_) => {
                Expr::CompoundIdentifier(vec![Ident::with_quote('"', TABLE), Ident::new(NAME)])
            }
            None => unnested(args),
        };
        let alias = match item {
            SelectItem::ExprWithAlias { alias, .. } => alias.clone(),
            _ => Ident::new(NAME),
        };
        *item = SelectItem::ExprWithAlias { expr, alias };
    }
    select.from.extend(constant.and_then(table));
    Ok(())
}

/// Counts the calls of the function outside of subqueries.
#[derive(Default)]
struct Nested {
    depth: usize,
    found: isize,
}

impl Visitor for Nested {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if self.depth == 0 && !matches!(expr, Expr::Nested(_)) && arguments(expr).is_some() {
            self.found += 1;
        }
        ControlFlow::Continue(())
    }
}

fn expression(item: &SelectItem) -> Option<&Expr> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// `unnest(generate_series(args))`
fn unnested(args: FunctionArguments) -> Expr {
    let mut series = call(NAME, Vec::new());
    if let Expr::Function(function) = &mut series {
        function.args = args;
    }
    call("unnest", vec![series])
}

/// Whether no argument depends on a row.
pub(super) fn is_constant(args: &impl Visit) -> bool {
    !any_expression(args, |e| {
        matches!(
            e,
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Subquery(_)
        )
    })
}

fn arguments(expr: &Expr) -> Option<FunctionArguments> {
    match expr {
        Expr::Nested(inner) => arguments(inner),
        Expr::Function(function) if last_name(&function.name).as_deref() == Some(NAME) => {
            Some(function.args.clone())
        }
        _ => None,
    }
}

/// Whether the rows of the SELECT are the rows of its FROM and WHERE, possibly made distinct.
fn is_plain(select: &Select) -> bool {
    let ungrouped =
        matches!(&select.group_by, GroupByExpr::Expressions(exprs, _) if exprs.is_empty());
    let columns = select
        .projection
        .iter()
        .all(|item| expression(item).is_some_and(|expr| !has_window(expr)));
    ungrouped && select.having.is_none() && columns
}

fn has_window(expr: &Expr) -> bool {
    any_expression(
        expr,
        |e| matches!(e, Expr::Function(function) if function.over.is_some()),
    )
}

/// `generate_series(args) AS TABLE (generate_series)`
fn table(args: FunctionArguments) -> Option<TableWithJoins> {
    let template = format!("SELECT 1 FROM {NAME}() AS \"{TABLE}\" ({NAME})");
    let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &template)
        .ok()?
        .pop()?;
    let Statement::Query(query) = parsed else {
        return None;
    };
    let SetExpr::Select(select) = *query.body else {
        return None;
    };
    let mut from = select.from.into_iter().next()?;
    let FunctionArguments::List(list) = args else {
        return None;
    };
    if let TableFactor::Table { args, .. } = &mut from.relation {
        *args = Some(TableFunctionArgs {
            args: list.args,
            settings: None,
        });
    }
    Some(from)
}
