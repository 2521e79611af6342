//! Rewriting of parsed SQL before DataFusion plans it: what PostgreSQL's parser decides and
//! DataFusion's planner would decide otherwise.
//!
//! * Number literals get PostgreSQL's types: integer if it fits, else bigint, else numeric; a
//!   point or an exponent makes a numeric of just the digits written.
//! * Every column of a SELECT list gets PostgreSQL's name ([`names`]).
//! * Casts become calls of `cast_as`, so that `x` and `x::t` have different names in the plan;
//!   the analyzer turns them into casts again.
//! * `INTERVAL '…' unit`, `AT TIME ZONE`, `SIMILAR TO` become casts and calls of our functions;
//!   window functions that number rows give bigint.
//! * A table function without column names gets them as PostgreSQL names them.
//! * FOR UPDATE, FOR SHARE and TABLESAMPLE, which DataFusion ignores, are refused (0A000).
//!
//! [`normalize`] takes a query or a DML statement (or an expression of one), once. Positions in
//! ORDER BY and GROUP BY, LIMIT, OFFSET and frame bounds stay plain numbers.

mod names;
mod numbers;

pub use names::output_name;

use super::cast::CAST_AS;
use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, GroupByExpr, Ident, LimitClause, ObjectName, Query,
    Select, Subscript, TableAliasColumnDef, TableFactor, UnaryOperator, Value, VisitMut,
    VisitorMut, WindowFrameBound, WindowSpec, WindowType,
};
use std::ops::ControlFlow;
use strandline_base::{Error, Result};

/// Rewrites a query, a DML statement or an expression; see the module's header.
///
/// # Errors
/// 0A000 for what is refused.
pub fn normalize(node: &mut impl VisitMut) -> Result<()> {
    match node.visit(&mut Normalizer) {
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
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        names::name_columns(select);
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
        check(table_factor(factor))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        check(expression(expr))
    }
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

fn plain_frame(spec: &mut WindowSpec) {
    let Some(frame) = &mut spec.window_frame else {
        return;
    };
    for bound in std::iter::once(&mut frame.start_bound).chain(frame.end_bound.as_mut()) {
        if let WindowFrameBound::Preceding(Some(n)) | WindowFrameBound::Following(Some(n)) = bound {
            numbers::restore(n);
        }
    }
}

/// Names of table functions' columns; TABLESAMPLE.
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

fn last_name(name: &ObjectName) -> Option<String> {
    name.0
        .last()?
        .as_ident()
        .map(|ident| ident.value.to_ascii_lowercase())
}

fn expression(expr: &mut Expr) -> Result<()> {
    match expr {
        Expr::Value(value) => {
            if let Value::Number(digits, _) = &value.value {
                *expr = numbers::typed(digits)?;
            }
        }
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr: operand,
        } => {
            if let Some(negated) = numbers::negated(operand) {
                *expr = negated;
            }
        }
        Expr::Cast {
            kind: CastKind::Cast | CastKind::DoubleColon,
            array: false,
            ..
        } => {
            named_cast(expr);
        }
        Expr::Interval(_) => interval(expr),
        Expr::AtTimeZone {
            timestamp,
            time_zone,
        } => {
            let args = vec![(**time_zone).clone(), (**timestamp).clone()];
            *expr = call("timezone", args);
        }
        Expr::SimilarTo {
            negated,
            expr: operand,
            pattern,
            escape_char,
        } => {
            if escape_char.is_some() {
                return Err(Error::unsupported("SIMILAR TO … ESCAPE is not supported"));
            }
            let matches = call("similar_to", vec![(**operand).clone(), (**pattern).clone()]);
            *expr = if *negated {
                Expr::UnaryOp {
                    op: UnaryOperator::Not,
                    expr: Box::new(matches),
                }
            } else {
                matches
            };
        }
        Expr::CompoundFieldAccess { access_chain, .. } => {
            for access in access_chain {
                if let AccessExpr::Subscript(Subscript::Index { index }) = access {
                    numbers::restore(index);
                }
            }
        }
        Expr::Function(_) => function(expr),
        _ => {}
    }
    Ok(())
}

/// `name(args)`
fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args
        .into_iter()
        .map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e)))
        .collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type,
        array: false,
        format: None,
    }
}

/// `CAST(x AS t)` as `cast_as(x, CAST(NULL AS t))`; a parameter takes its type from the cast.
fn named_cast(expr: &mut Expr) {
    let Expr::Cast {
        expr: operand,
        data_type,
        format: None,
        ..
    } = expr
    else {
        return;
    };
    let is_parameter =
        |e: &Expr| matches!(e, Expr::Value(v) if matches!(v.value, Value::Placeholder(_)));
    if is_parameter(operand) || matches!(data_type, DataType::Array(_)) {
        return;
    }
    let null = cast(Expr::Value(Value::Null.into()), data_type.clone());
    let operand = std::mem::replace(operand.as_mut(), numbers::plain("0"));
    *expr = call(CAST_AS, vec![operand, null]);
}

/// `INTERVAL 'text' [unit]` as a cast of the text, read by our input function.
fn interval(expr: &mut Expr) {
    let Expr::Interval(interval) = expr else {
        return;
    };
    numbers::restore(&mut interval.value);
    let Expr::Value(value) = interval.value.as_ref() else {
        return;
    };
    let Value::SingleQuotedString(text) = &value.value else {
        return;
    };
    let text = match &interval.leading_field {
        Some(unit) if interval.last_field.is_none() && text.trim().parse::<f64>().is_ok() => {
            format!("{text} {unit}")
        }
        _ => text.clone(),
    };
    let text = Expr::Value(Value::SingleQuotedString(text).into());
    *expr = cast(
        text,
        DataType::Interval {
            fields: None,
            precision: None,
        },
    );
}

/// Window functions: plain numbers in frames and as arguments, bigint results.
fn function(expr: &mut Expr) {
    let Expr::Function(function) = expr else {
        return;
    };
    let Some(over) = &mut function.over else {
        return;
    };
    if let WindowType::WindowSpec(spec) = over {
        plain_frame(spec);
    }
    let name = last_name(&function.name).unwrap_or_default();
    let first_plain = if name == "ntile" { 0 } else { 1 };
    if let FunctionArguments::List(list) = &mut function.args {
        for arg in list.args.iter_mut().skip(first_plain) {
            if let FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) = arg {
                numbers::restore(e);
            }
        }
    }
    let result = match name.as_str() {
        "row_number" | "rank" | "dense_rank" => DataType::BigInt(None),
        "ntile" => DataType::Integer(None),
        _ => return,
    };
    let inner = std::mem::replace(expr, numbers::plain("0"));
    *expr = cast(inner, result);
}
