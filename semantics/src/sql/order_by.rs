//! ORDER BY of a SELECT: a bare name is a column of the SELECT list if one is called so, and a
//! column of FROM otherwise. Of SELECT DISTINCT, what is in the list becomes its position. Names
//! within expressions are the subject of [`super::result_names`].

use super::names::{column_name, folded};
use super::numbers;
use datafusion::sql::sqlparser::ast::{Expr, Ident, OrderByKind, Query, SelectItem, SetExpr};
use strandline_base::{Error, Result, SqlState};

/// A column of the SELECT list: its name and expression.
type Column<'a> = (String, &'a Expr);

/// See the module's header.
///
/// # Errors
/// 42702 for a name of several columns of the list that differ.
pub(super) fn columns_by_position(query: &mut Query) -> Result<()> {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return Ok(());
    };
    let Some(OrderByKind::Expressions(items)) = query.order_by.as_mut().map(|o| &mut o.kind) else {
        return Ok(());
    };
    let columns = select.projection.iter().filter_map(|item| match item {
        SelectItem::UnnamedExpr(expr) => Some((column_name(expr), expr)),
        SelectItem::ExprWithAlias { expr, alias } => Some((folded(alias), expr)),
        _ => None,
    });
    let columns: Vec<Column<'_>> = columns.collect();
    // Behind a wildcard a position is not known here.
    let has_positions = columns.len() == select.projection.len();
    for item in items.iter_mut() {
        without_parentheses(&mut item.expr);
        let named = match &item.expr {
            Expr::Value(_) => continue,
            Expr::Identifier(name) => position_of_name(&columns, name)?,
            _ => None,
        };
        if select.distinct.is_none() || !has_positions {
            continue;
        }
        let equal = || columns.iter().position(|(_, expr)| **expr == item.expr);
        if let Some(position) = named.or_else(equal) {
            item.expr = numbers::plain(&(position + 1).to_string());
        }
    }
    Ok(())
}

/// Leaves out the parentheses around a bare name.
pub(super) fn without_parentheses(expr: &mut Expr) {
    let mut inner = &*expr;
    while let Expr::Nested(nested) = inner {
        inner = nested;
    }
    if let Expr::Identifier(name) = inner {
        *expr = Expr::Identifier(name.clone());
    }
}

/// Where the column called `name` stands.
fn position_of_name(columns: &[Column<'_>], name: &Ident) -> Result<Option<usize>> {
    let name = folded(name);
    let called = |(column, _): &Column<'_>| *column == name;
    let Some(first) = columns.iter().position(called) else {
        return Ok(None);
    };
    let mut called = columns.iter().filter(|column| called(column));
    match called.all(|(_, expr)| is_same(expr, columns[first].1)) {
        true => Ok(Some(first)),
        false => Err(Error::invalid(
            SqlState::AMBIGUOUS_COLUMN,
            format!("ORDER BY \"{name}\" is ambiguous"),
        )),
    }
}

/// Whether two expressions are the same column: `a` and `t.a` are taken to be.
pub(super) fn is_same(a: &Expr, b: &Expr) -> bool {
    a == b
        || match (a, b) {
            (Expr::Identifier(bare), Expr::CompoundIdentifier(parts))
            | (Expr::CompoundIdentifier(parts), Expr::Identifier(bare)) => parts
                .last()
                .is_some_and(|last| folded(last) == folded(bare)),
            _ => false,
        }
}
