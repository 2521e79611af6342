//! SELECTs built from the parts of a DML statement, and the parts of their plans.
//!
//! The query planner resolves names, scopes, subqueries, CTEs and types. A DML statement's
//! expressions are therefore planned as the select list of a query over the tables that they may
//! use. The statement takes the planned expressions from it and, for UPDATE, DELETE and MERGE, the
//! plan below them. Expressions of RETURNING and CHECK are planned in the same way over the same
//! tables. The plan below them is dropped, and they are put on top of the DML node, whose columns
//! have the same qualified names.

use crate::parse::names::ROW_ID;
use crate::planning::context::StatementContext;
use datafusion::logical_expr::{Expr, LogicalPlan};
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};

/// GROUP BY or aggregates where only scalar expressions are allowed.
const GROUPING_ERROR: SqlState = SqlState("42803");
/// Window functions where only scalar expressions are allowed.
const WINDOWING_ERROR: SqlState = SqlState("42P20");

/// `SELECT projection FROM from WHERE selection`, after `WITH with`.
pub(super) fn select(
    with: Option<&ast::With>,
    projection: Vec<ast::SelectItem>,
    from: Vec<ast::TableWithJoins>,
    selection: Option<ast::Expr>,
) -> ast::Query {
    let select = ast::Select {
        select_token: ast::helpers::attached_token::AttachedToken::empty(),
        optimizer_hints: Vec::new(),
        distinct: None,
        select_modifiers: None,
        top: None,
        top_before_distinct: false,
        projection,
        exclude: None,
        into: None,
        from,
        lateral_views: Vec::new(),
        prewhere: None,
        selection,
        connect_by: Vec::new(),
        group_by: ast::GroupByExpr::Expressions(Vec::new(), Vec::new()),
        cluster_by: Vec::new(),
        distribute_by: Vec::new(),
        sort_by: Vec::new(),
        having: None,
        named_window: Vec::new(),
        qualify: None,
        window_before_qualify: false,
        value_table_mode: None,
        flavor: ast::SelectFlavor::Standard,
    };
    of_body(with, ast::SetExpr::Select(Box::new(select)))
}

/// A query of `body` alone, after `WITH with`.
pub(super) fn of_body(with: Option<&ast::With>, body: ast::SetExpr) -> ast::Query {
    ast::Query {
        with: with.cloned(),
        body: Box::new(body),
        order_by: None,
        limit_clause: None,
        fetch: None,
        locks: Vec::new(),
        for_clause: None,
        settings: None,
        format_clause: None,
        pipe_operators: Vec::new(),
    }
}

/// `expr AS "#n"`: a name that is unique among the items and differs from all user names.
pub(super) fn numbered(n: usize, expr: ast::Expr) -> ast::SelectItem {
    ast::SelectItem::ExprWithAlias {
        expr,
        alias: crate::parse::names::ident(&format!("#{n}")),
    }
}

/// The select list of a plan and the plan below it.
pub(super) struct Planned {
    /// one per item, with its alias
    pub exprs: Vec<Expr>,
    /// the plan that the expressions are computed over
    pub input: Arc<LogicalPlan>,
}

/// Plans a query made by [`select`], whose items must be scalar; `place` is the clause's name in
/// errors.
pub(super) async fn plan_select(
    context: &StatementContext,
    query: &ast::Query,
    place: &str,
) -> Result<Planned> {
    planned(Box::pin(context.plan_query(query)).await, place)
}

/// As [`plan_select`], for expressions of the table's definition: the user needs no right to read
/// what they name.
pub(super) async fn plan_definition(
    context: &StatementContext,
    query: &ast::Query,
    place: &str,
) -> Result<Planned> {
    planned(Box::pin(context.plan_system_query(query)).await, place)
}

fn planned(plan: Result<LogicalPlan>, place: &str) -> Result<Planned> {
    let plan = plan.map_err(|error| match error.sqlstate() {
        GROUPING_ERROR if error.message().contains(ROW_ID) => aggregates_in(place),
        GROUPING_ERROR => aggregates_in(place).with_detail(error.message()),
        _ => error,
    })?;
    let LogicalPlan::Projection(projection) = plan else {
        return Err(not_scalar(&plan, place));
    };
    match projection.input.as_ref() {
        LogicalPlan::Aggregate(_) | LogicalPlan::Window(_) | LogicalPlan::Unnest(_) => {
            Err(not_scalar(&projection.input, place))
        }
        _ => Ok(Planned {
            exprs: projection.expr,
            input: projection.input,
        }),
    }
}

fn aggregates_in(place: &str) -> Error {
    Error::invalid(
        GROUPING_ERROR,
        format!("aggregate functions are not allowed in {place}"),
    )
    .with_hint("Put the aggregate into a subquery: (SELECT max(x) FROM t).")
}

fn not_scalar(plan: &LogicalPlan, place: &str) -> Error {
    match plan {
        LogicalPlan::Aggregate(_) => aggregates_in(place),
        LogicalPlan::Window(_) => Error::invalid(
            WINDOWING_ERROR,
            format!("window functions are not allowed in {place}"),
        )
        .with_hint("Put the window function into a subquery."),
        LogicalPlan::Unnest(_) => Error::unsupported(format!(
            "set-returning functions are not allowed in {place}"
        )),
        other => Error::internal(format!("{place} was planned as {}", other.display())),
    }
}

/// `WITH with SELECT expr` without FROM, one per expression.
pub(super) async fn plan_scalars(
    context: &StatementContext,
    with: Option<&ast::With>,
    exprs: Vec<ast::Expr>,
    place: &str,
) -> Result<Vec<Expr>> {
    if exprs.is_empty() {
        return Ok(Vec::new());
    }
    let items = exprs
        .into_iter()
        .enumerate()
        .map(|(n, e)| numbered(n, e))
        .collect();
    let planned = plan_select(context, &select(with, items, Vec::new(), None), place).await?;
    Ok(planned.exprs.into_iter().map(strip_alias).collect())
}

/// The expression below its aliases.
pub(super) fn strip_alias(expr: Expr) -> Expr {
    match expr {
        Expr::Alias(alias) => strip_alias(*alias.expr),
        other => other,
    }
}
