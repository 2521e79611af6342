//! EXISTS as a value. DataFusion executes it only as a condition, so in a SELECT list it becomes a
//! count that is compared with zero.

use datafusion::sql::sqlparser::ast::{
    Expr, GroupByExpr, Query, Select, SelectItem, SetExpr, Statement, TableFactor, UnaryOperator,
    VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use std::ops::ControlFlow;

/// Rewrites the EXISTS of one expression, excluding its subqueries.
#[derive(Default)]
pub struct ExistsAsValue {
    depth: usize,
}

impl VisitorMut for ExistsAsValue {
    type Break = ();

    fn pre_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _query: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Exists { subquery, negated } = expr
            && let Some(counted) = count_is_positive(subquery)
        {
            let value = Expr::Subquery(Box::new(counted));
            *expr = match *negated {
                true => Expr::UnaryOp {
                    op: UnaryOperator::Not,
                    expr: Box::new(value),
                },
                false => value,
            };
        }
        ControlFlow::Continue(())
    }
}

/// `SELECT count(*) > 0 FROM …` of a plain subquery, which may refer to the outer query; else
/// `SELECT count(*) > 0 FROM (subquery)`.
fn count_is_positive(subquery: &Query) -> Option<Query> {
    let template = "SELECT count(*) > 0 FROM (SELECT 1) AS found";
    let Statement::Query(mut query) = Parser::parse_sql(&PostgreSqlDialect {}, template)
        .ok()?
        .pop()?
    else {
        return None;
    };
    let SetExpr::Select(counting) = query.body.as_mut() else {
        return None;
    };
    if let Some(plain) = plain_select(subquery) {
        let mut plain = plain.clone();
        plain.projection = counting.projection.clone();
        let mut counted = subquery.clone();
        counted.order_by = None;
        counted.body = Box::new(SetExpr::Select(Box::new(plain)));
        return Some(counted);
    }
    let TableFactor::Derived {
        subquery: found, ..
    } = &mut counting.from.first_mut()?.relation
    else {
        return None;
    };
    **found = subquery.clone();
    Some(*query)
}

/// The SELECT of a query that only has FROM and WHERE.
fn plain_select(query: &Query) -> Option<&Select> {
    let SetExpr::Select(select) = query.body.as_ref() else {
        return None;
    };
    let ungrouped =
        matches!(&select.group_by, GroupByExpr::Expressions(exprs, _) if exprs.is_empty());
    let plain = ungrouped
        && query.with.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && select.distinct.is_none()
        && select.having.is_none()
        && !select.from.is_empty()
        && select.projection.iter().all(is_column_or_constant);
    plain.then_some(select)
}

/// Whether an item of the list cannot be an aggregate.
fn is_column_or_constant(item: &SelectItem) -> bool {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            matches!(
                expr,
                Expr::Value(_) | Expr::Identifier(_) | Expr::CompoundIdentifier(_)
            )
        }
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => true,
        _ => false,
    }
}
