//! Rewrites parsed SQL before DataFusion plans it, where DataFusion's planner would decide
//! differently from PostgreSQL's parser.
//!
//! * Number literals get PostgreSQL's types: integer if it fits, else bigint, else numeric. A point
//!   or an exponent makes a numeric with exactly the written digits.
//! * Every column of a SELECT list gets PostgreSQL's name ([`names`]).
//! * A bare name in ORDER BY is a column of the SELECT list first ([`order_by`]); names in its
//!   expressions are columns of FROM ([`result_names`]).
//! * Casts become calls of `cast_as`, so that `x` and `x::t` have different names in the plan;
//!   the analyzer turns them into casts again.
//! * Comparisons of rows become comparisons of their columns ([`rows`]).
//! * `x op ANY (array)` and ALL become lists or calls of our functions ([`arrays`]).
//! * `x::timestamp(3)` rounds, and `INTERVAL '…' unit` becomes a cast ([`moments`]).
//! * `AT TIME ZONE`, `SIMILAR TO` become casts and calls of our functions;
//!   window functions that number rows return bigint.
//! * `generate_series` in a SELECT list makes rows ([`series`]).
//! * `unnest` in FROM accepts arguments from tables on its left, and WITH ORDINALITY ([`unnest`]).
//! * Items of FROM that depend on earlier items become joins with them ([`lateral`]).
//! * The columns of VALUES get one type each ([`values`]).
//! * Clients' spellings in queries of system tables become supported ones ([`catalog_names`]).
//! * A table function without column names gets PostgreSQL's.
//! * FOR UPDATE, FOR SHARE and TABLESAMPLE, which DataFusion ignores, are refused (0A000).
//!
//! [`normalize`] is applied once to a query or a DML statement (or an expression of one). Positions
//! in ORDER BY and GROUP BY, LIMIT, OFFSET and frame bounds stay plain numbers.

mod arrays;
mod calls;
mod cast_syntax;
mod catalog_names;
mod counts;
mod lateral;
mod moments;
mod names;
mod numbers;
mod order_by;
mod patterns;
mod result_names;
mod rows;
mod series;
mod subqueries;
mod unnest;
mod values;
pub mod walk;

pub use crate::output_names::output_name;
pub use cast_syntax::cast;
pub use names::{column_name, output_schema, renamed};

use crate::set_operations;
use calls::{call, function, last_name, named_cast, plain_frame};
use datafusion::sql::sqlparser::ast::{
    self, BinaryOperator, CastKind, Expr, GroupByExpr, Ident, LimitClause, Query, Select,
    TableAliasColumnDef, TableFactor, UnaryOperator, Value, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;
use strandline_base::{Error, Result};
use walk::walk_mut;

/// Rewrites a query, a DML statement or an expression; see the module's header.
///
/// # Errors
/// 0A000 for refused clauses.
pub fn normalize(node: &mut impl VisitMut) -> Result<()> {
    match walk_mut(node, &mut Normalizer) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Normalizer;

fn check(result: Result<()>) -> ControlFlow<Error> {
    match result {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    }
}

impl VisitorMut for Normalizer {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        check(result_names::separate(query))?;
        if writes(&query.body) {
            return ControlFlow::Break(Error::unsupported(
                "WITH clause containing a data-modifying statement must be at the top level",
            ));
        }
        if query.locks.is_empty() {
            return ControlFlow::Continue(());
        }
        ControlFlow::Break(
            Error::unsupported("SELECT … FOR UPDATE/SHARE is not supported yet")
                .with_hint("Under snapshot isolation a conflicting writer fails with 40001."),
        )
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        plain_positions(query);
        if let ast::SetExpr::Values(values) = query.body.as_mut() {
            values::give_types(values);
        }
        set_operations::in_from(query);
        if let Some(with) = query.with.as_mut().filter(|with| with.recursive) {
            for table in &mut with.cte_tables {
                set_operations::as_written(&mut table.query);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        check(series::expand(select))?;
        unnest::expand(select);
        lateral::join_items(select);
        names::name_columns(select);
        for item in &mut select.projection {
            if let ast::SelectItem::UnnamedExpr(expr)
            | ast::SelectItem::ExprWithAlias { expr, .. } = item
            {
                let _ = walk_mut(expr, &mut subqueries::ExistsAsValue::default());
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        if let GroupByExpr::Expressions(exprs, _) = &mut select.group_by {
            exprs.iter_mut().for_each(numbers::restore);
        }
        if let Some(ast::Distinct::On(exprs)) = &mut select.distinct {
            exprs.iter_mut().for_each(numbers::restore);
        }
        for definition in &mut select.named_window {
            if let ast::NamedWindowExpr::WindowSpec(spec) = &mut definition.1 {
                plain_frame(spec);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
        catalog_names::table_factor(factor);
        if let TableFactor::Derived { subquery, .. } = factor {
            check(result_names::separate_within(subquery))?;
        }
        check(table_factor(factor))
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        numbers::minus_before_power(expr);
        counts::count_rows(expr);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        catalog_names::expression(expr);
        check(expression(expr))
    }
}

/// Whether a query's body writes, as in WITH x AS (DELETE …).
fn writes(body: &ast::SetExpr) -> bool {
    matches!(
        body,
        ast::SetExpr::Insert(_)
            | ast::SetExpr::Update(_)
            | ast::SetExpr::Delete(_)
            | ast::SetExpr::Merge(_)
    )
}

/// ORDER BY positions, LIMIT, OFFSET and FETCH as plain numbers.
fn plain_positions(query: &mut Query) {
    if let Some(order_by) = &mut query.order_by
        && let ast::OrderByKind::Expressions(items) = &mut order_by.kind
    {
        items
            .iter_mut()
            .for_each(|item| numbers::restore(&mut item.expr));
    }
    match &mut query.limit_clause {
        Some(LimitClause::LimitOffset { limit, offset, .. }) => {
            limit.iter_mut().for_each(numbers::restore);
            offset
                .iter_mut()
                .for_each(|o| numbers::restore(&mut o.value));
        }
        Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
            numbers::restore(offset);
            numbers::restore(limit);
        }
        None => {}
    }
    // FETCH FIRST n ROWS is LIMIT n.
    if let Some(fetch) = query.fetch.take_if(|f| !f.with_ties && !f.percent) {
        let mut count = fetch.quantity.unwrap_or_else(|| numbers::plain("1"));
        numbers::restore(&mut count);
        match &mut query.limit_clause {
            Some(LimitClause::LimitOffset {
                limit: limit @ None,
                ..
            }) => *limit = Some(count),
            none @ None => {
                *none = Some(LimitClause::LimitOffset {
                    limit: Some(count),
                    offset: None,
                    limit_by: Vec::new(),
                });
            }
            _ => {}
        }
    }
}

/// Names table functions' columns, and refuses TABLESAMPLE.
fn table_factor(factor: &mut TableFactor) -> Result<()> {
    match factor {
        TableFactor::Table {
            sample: Some(_), ..
        }
        | TableFactor::Derived {
            sample: Some(_), ..
        } => Err(Error::unsupported("TABLESAMPLE is not supported")),
        TableFactor::Table {
            name,
            args: Some(_),
            alias,
            ..
        } if last_name(name).as_deref() == Some("generate_series") => {
            let alias = alias.get_or_insert_with(|| ast::TableAlias {
                explicit: true,
                name: Ident::new("generate_series"),
                columns: Vec::new(),
                at: None,
            });
            if alias.columns.is_empty() {
                let name = alias.name.clone();
                alias.columns.push(TableAliasColumnDef {
                    name,
                    data_type: None,
                });
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Rewrites a negative number literal, and operators that DataFusion lacks to functions.
fn unary(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::UnaryOp {
            op: UnaryOperator::BitwiseNot,
            expr: operand,
        } => Some(call("bit_not", vec![(**operand).clone()])),
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr: operand,
        } => numbers::negated(operand),
        Expr::UnaryOp { op, expr: operand } => {
            let name = match op {
                UnaryOperator::PGAbs => "abs",
                UnaryOperator::PGSquareRoot => "sqrt",
                UnaryOperator::PGCubeRoot => "cbrt",
                _ => return None,
            };
            Some(call(name, vec![(**operand).clone()]))
        }
        _ => None,
    }
}

/// Rewrites comparisons with several values: `row IN (row, …)`, `row IN (subquery)`, `x op ANY
/// (array)`; and IS [NOT] DISTINCT FROM.
fn many(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::IsDistinctFrom(left, right) => *expr = rows::distinction(left, right, true)?,
        Expr::IsNotDistinctFrom(left, right) => *expr = rows::distinction(left, right, false)?,
        Expr::InList {
            expr: operand,
            list,
            negated,
        } => {
            if let Some(compared) = rows::membership(operand, list, *negated)? {
                *expr = compared;
            }
        }
        Expr::InSubquery { expr: row, .. } if matches!(row.as_ref(), Expr::Tuple(_)) => {
            return Err(rows::in_subquery());
        }
        Expr::InSubquery { subquery, .. } => set_operations::values_in_from(subquery),
        Expr::AnyOp {
            left,
            compare_op,
            right,
            ..
        } => {
            if let Some(array) = arrays::written(right, None)? {
                **right = array;
            }
            if let Some(compared) = arrays::quantified(left, compare_op, right, false) {
                *expr = compared;
            }
        }
        Expr::AllOp {
            left,
            compare_op,
            right,
        } => {
            if let Some(array) = arrays::written(right, None)? {
                **right = array;
            }
            if let Some(compared) = arrays::quantified(left, compare_op, right, true) {
                *expr = compared;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Rewrites a written cast, and gives a literal its type.
fn casts(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::Cast {
            kind: CastKind::Cast | CastKind::DoubleColon,
            array: false,
            ..
        } => {
            if let Expr::Cast { expr: array, .. } = expr
                && arrays::is_hollow(array)
            {
                **array = Expr::Array(ast::Array {
                    elem: Vec::new(),
                    named: true,
                });
            }
            let restriction = moments::take_restriction(expr)?;
            match arrays::cast(expr)? {
                Some(array) => *expr = array,
                None => named_cast(expr),
            }
            moments::restrict(expr, restriction);
        }
        Expr::TypedString(_) => {
            let typed = moments::restricted_literal_cast(expr);
            if let Some(cast) = typed.or_else(|| cast_syntax::char_literal(expr)) {
                *expr = cast;
                return expression(expr);
            }
        }
        _ => {}
    }
    Ok(())
}

/// Rewrites a comparison of rows, or an operator that DataFusion lacks.
fn binary(left: &Expr, op: &BinaryOperator, right: &Expr) -> Result<Option<Expr>> {
    match op {
        BinaryOperator::PGStartsWith => {
            Ok(Some(call("starts_with", vec![left.clone(), right.clone()])))
        }
        _ => rows::comparison(left, op, right),
    }
}

fn expression(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::Value(value) => {
            if let Value::Number(digits, _) = &value.value {
                *expr = numbers::typed(digits)?;
            }
        }
        Expr::UnaryOp { .. } => {
            if let Some(replaced) = unary(expr) {
                *expr = replaced;
            }
        }
        Expr::Cast { .. } | Expr::TypedString(_) => return casts(expr),
        Expr::Interval(_) => return moments::interval(expr),
        Expr::AtTimeZone {
            timestamp,
            time_zone,
        } => {
            let args = vec![(**time_zone).clone(), (**timestamp).clone()];
            *expr = call("timezone", args);
        }
        Expr::SimilarTo { .. } => {
            if let Some(matches) = patterns::similar_to(expr)? {
                *expr = matches;
            }
        }
        Expr::CompoundFieldAccess { root, access_chain } => {
            if let Some(found) = arrays::subscripted(root, access_chain) {
                *expr = found;
            }
        }
        Expr::Like {
            pattern,
            escape_char,
            ..
        }
        | Expr::ILike {
            pattern,
            escape_char,
            ..
        } => {
            return patterns::escaped_pattern(pattern, escape_char);
        }
        Expr::BinaryOp { left, op, right } => {
            if let Some(replaced) = binary(left, op, right)? {
                *expr = replaced;
            }
        }
        Expr::Substring { .. } => patterns::substring(expr),
        Expr::IsNull(_) | Expr::IsNotNull(_) => {
            if let Some(condition) = rows::is_null(expr) {
                *expr = condition;
            }
        }
        Expr::Function(_) => {
            moments::round_current(expr)?;
            return function(expr);
        }
        Expr::Identifier(name) if names::is_function(name) => {
            *expr = call(&name.value.to_ascii_lowercase(), Vec::new());
        }
        _ => return many(expr),
    }
    Ok(())
}
