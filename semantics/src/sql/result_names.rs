//! Names that the result of a SELECT shares with columns of FROM.
//!
//! In PostgreSQL a name within an expression of ORDER BY or DISTINCT ON is a column of FROM; only a
//! bare name alone is a column of the result. DataFusion takes a bare name for the result's column
//! in expressions too, and it refuses `t.a` beside a result column `a`. So a result column gets a
//! hidden suffix ([`crate::output_names`]) if such an expression names a column of FROM as it is
//! called. A query within another one is put into a SELECT that restores the names.
//!
//! Invariant: no other clause needs the name. A name in a subquery of the expression may be a
//! column of that subquery; then GROUP BY may mean the result's column, which keeps its name.

use super::names::{column_name, folded, is_column, name_columns};
use super::order_by::{columns_by_position, is_same, without_parentheses};
use super::walk::walk;
use crate::output_names::{SEPARATOR, output_name};
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, GroupByExpr, Ident, OrderByKind, Query, Select, SelectItem, SetExpr, Statement,
    TableFactor, Visitor,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use std::collections::HashMap;
use std::ops::ControlFlow;
use strandline_base::{Error, Result};

/// Separates the names of a query's result from those of FROM, and the names of the queries that
/// its WITH and its set operations contain.
///
/// # Errors
/// 42702 for a name that ORDER BY cannot resolve; 0A000 for a query within this one whose wildcard
/// hides the names to restore.
pub(super) fn separate(query: &mut Query) -> Result<()> {
    let ctes = query.with.iter_mut().flat_map(|with| &mut with.cte_tables);
    for cte in ctes {
        separate_within(&mut cte.query)?;
    }
    sides(&mut query.body)?;
    columns_by_position(query)?;
    rename(query);
    Ok(())
}

/// [`separate`] for a query within another one, which refers to its columns by their names.
///
/// # Errors
/// As [`separate`].
pub(super) fn separate_within(query: &mut Query) -> Result<()> {
    columns_by_position(query)?;
    match rename(query) {
        true => restore_names(query),
        false => Ok(()),
    }
}

/// Separates the names of the queries in a set operation or in parentheses.
fn sides(body: &mut SetExpr) -> Result<()> {
    match body {
        SetExpr::Query(query) => separate_within(query),
        SetExpr::SetOperation { left, right, .. } => {
            for side in [left, right] {
                enclose_distinct_on(side);
                sides(side)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Makes a side of a set operation with DISTINCT ON a query of its own.
fn enclose_distinct_on(side: &mut SetExpr) {
    if let SetExpr::Select(select) = side
        && matches!(select.distinct, Some(Distinct::On(_)))
        && let Some(mut query) = template()
    {
        std::mem::swap(query.body.as_mut(), side);
        *side = SetExpr::Query(Box::new(query));
    }
}

/// Gives hidden names to result columns. Returns whether there are any.
fn rename(query: &mut Query) -> bool {
    let SetExpr::Select(select) = query.body.as_mut() else {
        return false;
    };
    let Select {
        distinct,
        projection,
        group_by,
        ..
    } = select.as_mut();
    let mut exprs: Vec<&mut Expr> = Vec::new();
    if let Some(Distinct::On(on)) = distinct {
        on.iter_mut().for_each(without_parentheses);
        exprs.extend(on);
    }
    if let Some(OrderByKind::Expressions(by)) = query.order_by.as_mut().map(|o| &mut o.kind) {
        exprs.extend(by.iter_mut().map(|item| &mut item.expr));
    }
    let mut mentions = Mentions::default();
    for expr in &exprs {
        if !matches!(expr, Expr::Identifier(_)) {
            let _ = walk(&**expr, &mut mentions);
        }
    }
    let mut renamed: HashMap<String, Ident> = HashMap::new();
    for (at, item) in projection.iter_mut().enumerate() {
        let (name, expr) = match item {
            SelectItem::UnnamedExpr(expr) if !is_column(expr) => (column_name(expr), expr),
            SelectItem::ExprWithAlias { expr, alias } => (folded(alias), expr),
            _ => continue,
        };
        if !mentions.have(&name, expr, groups_by(group_by, &name)) {
            continue;
        }
        let alias = Ident::with_quote('"', format!("{name}{SEPARATOR}result {at}"));
        renamed.entry(name).or_insert_with(|| alias.clone());
        let expr = std::mem::replace(expr, Expr::Identifier(Ident::new("")));
        *item = SelectItem::ExprWithAlias { expr, alias };
    }
    for expr in exprs {
        if let Expr::Identifier(name) = expr
            && let Some(alias) = renamed.get(&folded(name))
        {
            *name = alias.clone();
        }
    }
    !renamed.is_empty()
}

/// Whether an item of GROUP BY is this bare name.
fn groups_by(group_by: &GroupByExpr, wanted: &str) -> bool {
    let is_wanted = |expr: &Expr| matches!(expr, Expr::Identifier(name) if folded(name) == wanted);
    matches!(group_by, GroupByExpr::Expressions(exprs, _) if exprs.iter().any(is_wanted))
}

/// The columns that expressions name.
#[derive(Default)]
struct Mentions {
    found: Vec<Mention>,
    /// the number of subqueries around the visitor
    depth: usize,
}

struct Mention {
    column: Expr,
    name: String,
    in_subquery: bool,
}

impl Mentions {
    /// Whether a column called `name` that may differ from the result's column `expr` is among
    /// them; `grouped`: GROUP BY has the bare name.
    fn have(&self, name: &str, expr: &Expr, grouped: bool) -> bool {
        self.found.iter().any(|mention| {
            mention.name == name
                && !is_same(&mention.column, expr)
                && !(grouped && mention.in_subquery)
        })
    }
}

impl Visitor for Mentions {
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
        let name = match expr {
            Expr::Identifier(name) => Some(name),
            Expr::CompoundIdentifier(parts) => parts.last(),
            _ => None,
        };
        if let Some(name) = name {
            self.found.push(Mention {
                column: expr.clone(),
                name: folded(name),
                in_subquery: self.depth > 0,
            });
        }
        ControlFlow::Continue(())
    }
}

/// Puts a query with hidden names into `SELECT … FROM (query)` with the names of its columns.
fn restore_names(query: &mut Query) -> Result<()> {
    let SetExpr::Select(select) = query.body.as_mut() else {
        return Ok(());
    };
    // Columns of one name get distinct ones.
    name_columns(select);
    let items: Option<Vec<SelectItem>> = select.projection.iter().map(restored).collect();
    let Some(items) = items else {
        return Err(Error::unsupported(
            "ORDER BY an expression over a column of FROM, beside a result column of its name and \
             a wildcard, is not supported in a subquery",
        )
        .with_hint("Give the result column another name."));
    };
    let Some(mut outer) = template() else {
        return Ok(());
    };
    if let SetExpr::Select(outer) = outer.body.as_mut() {
        outer.projection = items;
        for from in &mut outer.from {
            if let TableFactor::Derived { subquery, .. } = &mut from.relation {
                std::mem::swap(subquery.as_mut(), query);
            }
        }
    }
    *query = outer;
    Ok(())
}

/// The column of a SELECT list with the name that users see. None: a wildcard.
fn restored(item: &SelectItem) -> Option<SelectItem> {
    let name = match item {
        SelectItem::UnnamedExpr(expr) => column_name(expr),
        SelectItem::ExprWithAlias { alias, .. } => folded(alias),
        _ => return None,
    };
    Some(SelectItem::ExprWithAlias {
        alias: Ident::with_quote('"', output_name(&name)),
        expr: Expr::Identifier(Ident::with_quote('"', name)),
    })
}

/// A query over a derived table.
fn template() -> Option<Query> {
    let sql = "SELECT 1 FROM (SELECT 1) AS result";
    match Parser::parse_sql(&PostgreSqlDialect {}, sql).ok()?.pop()? {
        Statement::Query(query) => Some(*query),
        _ => None,
    }
}
