//! PostgreSQL's names of an index's columns: a column's name, a function's name, or `expr`.

use super::names;
use datafusion::sql::sqlparser::ast::{Expr, FunctionArguments};

/// The name of an expression without a better one.
pub(crate) const EXPRESSION: &str = "expr";

/// The name of an expression's column in an index.
pub(crate) fn of_expression(expression: &Expr) -> String {
    named(expression).unwrap_or_else(|| EXPRESSION.to_string())
}

fn named(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Identifier(ident) => Some(names::fold(ident)),
        Expr::CompoundIdentifier(parts) => parts.last().map(names::fold),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => named(inner),
        Expr::Cast {
            expr, data_type, ..
        } => named(expr).or_else(|| {
            let name = data_type.to_string().to_lowercase();
            Some(name.split('(').next()?.trim().to_string())
        }),
        Expr::Function(function) if !matches!(function.args, FunctionArguments::Subquery(_)) => {
            let last = function.name.0.last()?.as_ident()?;
            Some(names::fold(last))
        }
        Expr::Case { .. } => Some("case".to_string()),
        Expr::Substring { .. } => Some("substring".to_string()),
        Expr::Trim { .. } => Some("btrim".to_string()),
        Expr::Extract { .. } => Some("extract".to_string()),
        Expr::Position { .. } => Some("position".to_string()),
        Expr::Ceil { .. } => Some("ceil".to_string()),
        Expr::Floor { .. } => Some("floor".to_string()),
        _ => None,
    }
}

/// `name`, or `name` with the first number that makes it differ from all names in `taken`.
pub(crate) fn distinct(taken: &[String], name: String) -> String {
    let is_free = |name: &String| !taken.contains(name);
    if is_free(&name) {
        return name;
    }
    (1..)
        .map(|n| format!("{name}{n}"))
        .find(is_free)
        .expect("numbers do not end")
}

/// Whether PostgreSQL writes the expression without extra parentheses in an index's definition: a
/// column or a function call.
pub(crate) fn stands_alone(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Identifier(_)
            | Expr::Function(_)
            | Expr::Substring { .. }
            | Expr::Trim { .. }
            | Expr::Extract { .. }
            | Expr::Position { .. }
            | Expr::Ceil { .. }
            | Expr::Floor { .. }
            | Expr::Nested(_)
    )
}

#[cfg(test)]
mod tests {
    use super::{distinct, of_expression};

    #[test]
    fn are_postgresql_s() {
        let cases = [
            ("a", "a"),
            ("lower(a)", "lower"),
            ("(a + b)", "expr"),
            ("a || 'x'", "expr"),
            ("(a)::text", "a"),
            ("date_trunc('day', b)", "date_trunc"),
            ("case when a then 1 end", "case"),
            ("coalesce(a, 0)", "coalesce"),
        ];
        for (sql, name) in cases {
            let expression = crate::parse::expression(sql).expect(sql);
            assert_eq!(of_expression(&expression), name, "{sql}");
        }
        let taken = ["expr".to_string(), "expr1".to_string()];
        assert_eq!(distinct(&taken, "expr".to_string()), "expr2");
        assert_eq!(distinct(&taken, "a".to_string()), "a");
    }
}
