//! Rewriting of parsed SQL before DataFusion plans it: what PostgreSQL's parser decides and
//! DataFusion's planner would decide otherwise.
//!
//! * Number literals get PostgreSQL's types: integer if it fits, else bigint, else numeric; a
//!   point or an exponent makes a numeric of just the digits written.
//! * Every column of a SELECT list gets PostgreSQL's name ([`names`]).
//! * Casts become calls of `cast_as`, so that `x` and `x::t` have different names in the plan;
//!   the analyzer turns them into casts again.
//! * Comparisons of rows become comparisons of their columns ([`rows`]).
//! * `INTERVAL '…' unit`, `AT TIME ZONE`, `SIMILAR TO` become casts and calls of our functions;
//!   window functions that number rows give bigint.
//! * A table function without column names gets them as PostgreSQL names them.
//! * FOR UPDATE, FOR SHARE and TABLESAMPLE, which DataFusion ignores, are refused (0A000).
//!
//! [`normalize`] takes a query or a DML statement (or an expression of one), once. Positions in
//! ORDER BY and GROUP BY, LIMIT, OFFSET and frame bounds stay plain numbers.

mod names;
mod numbers;
mod rows;
mod subqueries;

pub use names::{output_name, output_schema, renamed};

use super::cast::CAST_AS;
use datafusion::sql::sqlparser::ast::{
    self, AccessExpr, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArgumentList, FunctionArguments, GroupByExpr, Ident, LimitClause, ObjectName, Query,
    Select, Subscript, TableAliasColumnDef, TableFactor, UnaryOperator, Value, VisitMut,
    VisitorMut, WindowFrameBound, WindowSpec, WindowType,
};
use std::ops::ControlFlow;
use strandline_base::{Error, Result, SqlState};

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
        order_by_positions(query);
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
        for item in &mut select.projection {
            if let ast::SelectItem::UnnamedExpr(expr)
            | ast::SelectItem::ExprWithAlias { expr, .. } = item
            {
                let _ = expr.visit(&mut subqueries::ExistsAsValue::default());
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
        check(table_factor(factor))
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        check(expression(expr))
    }
}

/// ORDER BY expressions of a SELECT DISTINCT that are columns of its list, by position.
fn order_by_positions(query: &mut Query) {
    let ast::SetExpr::Select(select) = query.body.as_ref() else {
        return;
    };
    let Some(ast::OrderByKind::Expressions(items)) = query.order_by.as_mut().map(|o| &mut o.kind)
    else {
        return;
    };
    if select.distinct.is_none() {
        return;
    }
    for item in items
        .iter_mut()
        .filter(|item| !matches!(item.expr, Expr::Value(_)))
    {
        let position = select.projection.iter().position(|column| match column {
            ast::SelectItem::UnnamedExpr(expr) => *expr == item.expr,
            ast::SelectItem::ExprWithAlias { expr, .. } => *expr == item.expr,
            _ => false,
        });
        let simple = select.projection.iter().all(|column| {
            matches!(
                column,
                ast::SelectItem::UnnamedExpr(_) | ast::SelectItem::ExprWithAlias { .. }
            )
        });
        if let (Some(position), true) = (position, simple) {
            item.expr = numbers::plain(&(position + 1).to_string());
        }
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
            plain_interval(n);
        }
    }
}

/// Undoes [`interval`] for a frame bound, where DataFusion wants the literal itself.
fn plain_interval(expr: &mut Expr) {
    let Expr::Cast {
        expr: text,
        data_type: DataType::Interval { .. },
        ..
    } = expr
    else {
        return;
    };
    *expr = Expr::Interval(ast::Interval {
        value: text.clone(),
        leading_field: None,
        leading_precision: None,
        last_field: None,
        fractional_seconds_precision: None,
    });
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
            op: UnaryOperator::BitwiseNot,
            expr: operand,
        } => {
            *expr = call("bit_not", vec![(**operand).clone()]);
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
            return escaped_pattern(pattern, escape_char);
        }
        Expr::BinaryOp { left, op, right } => {
            if let Some(compared) = rows::comparison(left, op, right)? {
                *expr = compared;
            }
        }
        Expr::InList {
            expr: operand,
            list,
            negated,
        } => {
            if let Some(compared) = rows::membership(operand, list, *negated)? {
                *expr = compared;
            }
        }
        Expr::Function(_) => function(expr),
        _ => {}
    }
    Ok(())
}

/// A pattern with another escape character than the backslash, which is DataFusion's only one.
fn escaped_pattern(pattern: &mut Expr, escape: &mut Option<ast::ValueWithSpan>) -> Result<()> {
    let Some(Value::SingleQuotedString(escape_text)) = escape.as_ref().map(|v| &v.value) else {
        return Ok(());
    };
    let mut characters = escape_text.chars();
    let (first, None) = (characters.next(), characters.next()) else {
        return Err(Error::invalid(SqlState("22019"), "invalid escape string")
            .with_hint("Escape string must be empty or one character."));
    };
    if first == Some('\\') {
        return Ok(());
    }
    let Expr::Value(ast::ValueWithSpan {
        value: Value::SingleQuotedString(text),
        ..
    }) = pattern
    else {
        return Err(Error::unsupported("LIKE … ESCAPE takes a constant pattern"));
    };
    let mut translated = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        match c {
            c if Some(c) == first => {
                translated.push('\\');
                translated.extend(characters.next());
            }
            '\\' => translated.push_str("\\\\"),
            other => translated.push(other),
        }
    }
    *text = translated;
    *escape = None;
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

fn plain_argument(arg: &mut FunctionArg) {
    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) = arg {
        numbers::restore(e);
    }
}

/// Names that DataFusion spells otherwise; plain numbers where literals are wanted; bigint results
/// of window functions.
fn function(expr: &mut Expr) {
    let Expr::Function(function) = expr else {
        return;
    };
    let name = last_name(&function.name).unwrap_or_default();
    let other_name = match name.as_str() {
        "every" => "bool_and",
        "variance" => "var_samp",
        _ => name.as_str(),
    };
    if other_name != name {
        function.name = ObjectName::from(vec![Ident::new(other_name)]);
    }
    if let ("round" | "trunc", FunctionArguments::List(list)) = (name.as_str(), &mut function.args)
    {
        // The number of digits decides the result's type.
        list.args.iter_mut().skip(1).for_each(plain_argument);
    }
    let Some(over) = &mut function.over else {
        return;
    };
    if let WindowType::WindowSpec(spec) = over {
        plain_frame(spec);
    }
    let first_plain = if name == "ntile" { 0 } else { 1 };
    if let FunctionArguments::List(list) = &mut function.args {
        list.args
            .iter_mut()
            .skip(first_plain)
            .for_each(plain_argument);
    }
    let result = match name.as_str() {
        "row_number" | "rank" | "dense_rank" => DataType::BigInt(None),
        "ntile" => DataType::Integer(None),
        _ => return,
    };
    let inner = std::mem::replace(expr, numbers::plain("0"));
    *expr = cast(inner, result);
}
