//! SET of UPDATE, ON CONFLICT DO UPDATE and MERGE: `c = e`, `(a, b) = (e, f)`,
//! `(a, b) = (SELECT …)`, `c = DEFAULT`.

use super::target::Target;
use datafusion::sql::sqlparser::ast;
use strandline_base::{Error, Result, SqlState};

/// The new value of a column.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::large_enum_variant,
    reason = "few, and gone when the statement is planned"
)]
pub(super) enum NewValue {
    /// DEFAULT
    Default,
    /// an expression
    Expr(ast::Expr),
}

impl NewValue {
    /// Recognizes the keyword DEFAULT, which the parser reads as an identifier.
    pub fn of(expr: &ast::Expr) -> Self {
        match expr {
            ast::Expr::Identifier(ident)
                if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default") =>
            {
                Self::Default
            }
            ast::Expr::Nested(inner) if Self::of(inner) == Self::Default => Self::Default,
            other => Self::Expr(other.clone()),
        }
    }
}

/// The columns that are set, by position in the table, in their written order.
pub(super) fn read(
    target: &Target,
    assignments: &[ast::Assignment],
) -> Result<Vec<(usize, NewValue)>> {
    let mut set = Vec::with_capacity(assignments.len());
    for assignment in assignments {
        match &assignment.target {
            ast::AssignmentTarget::ColumnName(name) => {
                set.push((target.position(name)?, NewValue::of(&assignment.value)));
            }
            ast::AssignmentTarget::Tuple(names) => {
                let positions = names
                    .iter()
                    .map(|n| target.position(n))
                    .collect::<Result<Vec<_>>>()?;
                let values = row_values(&assignment.value, positions.len())?;
                set.extend(positions.into_iter().zip(values));
            }
        }
    }
    for (i, (position, _)) in set.iter().enumerate() {
        if set[..i].iter().any(|(p, _)| p == position) {
            return Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                format!(
                    "multiple assignments to same column \"{}\"",
                    target.table.columns[*position].name
                ),
            ));
        }
    }
    Ok(set)
}

/// The right-hand side of a multi-column SET.
fn row_values(value: &ast::Expr, columns: usize) -> Result<Vec<NewValue>> {
    let values = match value {
        ast::Expr::Tuple(items) => items.iter().map(NewValue::of).collect(),
        ast::Expr::Function(function) if is_row(function) => row_arguments(function)?,
        ast::Expr::Subquery(query) => return subquery_columns(query, columns),
        ast::Expr::Nested(inner) if matches!(**inner, ast::Expr::Subquery(_)) => {
            return row_values(inner, columns);
        }
        one => vec![NewValue::of(one)],
    };
    if values.len() == columns {
        return Ok(values);
    }
    Err(wrong_count(values.len(), columns))
}

fn wrong_count(values: usize, columns: usize) -> Error {
    Error::invalid(
        SqlState::SYNTAX_ERROR,
        format!(
            "number of columns does not match number of values: {columns} columns, {values} values"
        ),
    )
}

fn is_row(function: &ast::Function) -> bool {
    crate::parse::names::parts(&function.name).is_ok_and(|parts| parts == ["row"])
}

fn row_arguments(function: &ast::Function) -> Result<Vec<NewValue>> {
    let ast::FunctionArguments::List(list) = &function.args else {
        return Ok(Vec::new());
    };
    list.args
        .iter()
        .map(|arg| match arg {
            ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(expr)) => Ok(NewValue::of(expr)),
            other => Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                format!("\"{other}\" is not a value of ROW"),
            )),
        })
        .collect()
}

/// One scalar subquery per column of a subquery that returns a row. Each is computed separately, so
/// the subquery must determine its row.
fn subquery_columns(query: &ast::Query, columns: usize) -> Result<Vec<NewValue>> {
    let refused = |what: &str| {
        Error::unsupported(format!(
            "{what} in the subquery of a multi-column SET is not supported"
        ))
        .with_hint("Put the subquery into FROM, or set the columns one by one.")
    };
    let ast::SetExpr::Select(select) = query.body.as_ref() else {
        return Err(refused("UNION, VALUES or a nested query"));
    };
    if select.distinct.is_some() {
        return Err(refused("DISTINCT"));
    }
    let limited = query.limit_clause.is_some() || query.fetch.is_some();
    if limited && query.order_by.is_none() {
        return Err(refused("LIMIT without ORDER BY"));
    }
    let scalar = |item: &ast::SelectItem| {
        matches!(
            item,
            ast::SelectItem::UnnamedExpr(_) | ast::SelectItem::ExprWithAlias { .. }
        )
    };
    if !select.projection.iter().all(scalar) {
        return Err(refused("* "));
    }
    if select.projection.len() != columns {
        return Err(wrong_count(select.projection.len(), columns));
    }
    let one_column = |i: usize| {
        let mut select = select.clone();
        select.projection = vec![select.projection[i].clone()];
        let query = ast::Query {
            body: Box::new(ast::SetExpr::Select(select)),
            ..query.clone()
        };
        NewValue::Expr(ast::Expr::Subquery(Box::new(query)))
    };
    Ok((0..columns).map(one_column).collect())
}
