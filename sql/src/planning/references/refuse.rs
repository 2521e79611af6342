//! Refuses clauses that DataFusion parses and ignores. Ignoring them would silently change a
//! query's meaning.

use crate::parse::names;
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, GroupByExpr, JoinConstraint, JoinOperator, LimitClause, OrderByKind, Query,
    Select, SelectFlavor, SelectItem, SetExpr, SetOperator, SetQuantifier, TableFactor,
    TableVersion, TableWithJoins, WildcardAdditionalOptions,
};
use std::ops::ControlFlow;
use strandline_base::{Error, SqlState};

fn refuse(what: &str) -> ControlFlow<Error> {
    ControlFlow::Break(Error::unsupported(format!("{what} is not supported")))
}

fn syntax(message: &str) -> ControlFlow<Error> {
    ControlFlow::Break(Error::invalid(SqlState::SYNTAX_ERROR, message))
}

/// Refuses joins of other dialects, and joins without a condition, which would become cross joins.
fn joins(from: &TableWithJoins) -> ControlFlow<Error> {
    use JoinOperator as J;
    for join in &from.joins {
        if join.global {
            return refuse("GLOBAL JOIN");
        }
        let constraint = match &join.join_operator {
            J::Join(c) | J::Inner(c) | J::Left(c) | J::LeftOuter(c) => c,
            J::Right(c) | J::RightOuter(c) | J::FullOuter(c) => c,
            J::CrossJoin(JoinConstraint::None) => continue,
            J::CrossJoin(_) => return syntax("CROSS JOIN takes no condition"),
            J::Semi(_) | J::LeftSemi(_) | J::RightSemi(_) => return refuse("SEMI JOIN"),
            J::Anti(_) | J::LeftAnti(_) | J::RightAnti(_) => return refuse("ANTI JOIN"),
            J::CrossApply | J::OuterApply => return refuse("APPLY"),
            J::AsOf { .. } => return refuse("ASOF JOIN"),
            J::StraightJoin(_) => return refuse("STRAIGHT_JOIN"),
            J::ArrayJoin | J::LeftArrayJoin | J::InnerArrayJoin => return refuse("ARRAY JOIN"),
        };
        if *constraint == JoinConstraint::None {
            return ControlFlow::Break(
                Error::invalid(SqlState::SYNTAX_ERROR, "JOIN needs ON, USING or NATURAL")
                    .with_hint("Write CROSS JOIN to pair every row with every row."),
            );
        }
    }
    ControlFlow::Continue(())
}

/// Refuses set operations of other dialects.
fn set_operations(body: &SetExpr) -> ControlFlow<Error> {
    let SetExpr::SetOperation {
        left,
        op,
        set_quantifier,
        right,
    } = body
    else {
        return ControlFlow::Continue(());
    };
    if *op == SetOperator::Minus {
        return ControlFlow::Break(
            Error::unsupported("MINUS is not supported").with_hint("Write EXCEPT."),
        );
    }
    if matches!(
        set_quantifier,
        SetQuantifier::ByName | SetQuantifier::AllByName | SetQuantifier::DistinctByName
    ) {
        return refuse("BY NAME after a set operation");
    }
    set_operations(left)?;
    set_operations(right)
}

/// Refuses `* EXCLUDE (a)` and the like. Only our own rewriting uses EXCLUDE, to keep a hidden
/// column out of a wildcard.
fn wildcard(options: &WildcardAdditionalOptions) -> ControlFlow<Error> {
    let is_ours = match &options.opt_exclude {
        None => true,
        Some(ExcludeSelectItem::Multiple(columns)) => columns
            .iter()
            .all(|name| [names::ROW_ID, names::TABLE_OID].contains(&name.to_string().as_str())),
        Some(ExcludeSelectItem::Single(_)) => false,
    };
    if !is_ours
        || options.opt_except.is_some()
        || options.opt_replace.is_some()
        || options.opt_rename.is_some()
        || options.opt_ilike.is_some()
        || options.opt_alias.is_some()
    {
        return refuse("EXCLUDE, EXCEPT, REPLACE, RENAME, ILIKE or AS after *");
    }
    ControlFlow::Continue(())
}

/// Refuses ignored clauses of a query, without the queries in it.
pub fn query(query: &Query) -> ControlFlow<Error> {
    if let Some(lock) = query.locks.first() {
        return ControlFlow::Break(
            Error::unsupported(format!("FOR {} is not supported", lock.lock_type)).with_hint(
                "Under REPEATABLE READ a concurrent change of the row is reported when \
                 it is updated.",
            ),
        );
    }
    set_operations(&query.body)?;
    if !query.pipe_operators.is_empty() {
        return refuse("|> after a query");
    }
    if let Some(order_by) = &query.order_by
        && (order_by.interpolate.is_some() || matches!(order_by.kind, OrderByKind::All(_)))
    {
        return refuse("ORDER BY ALL or INTERPOLATE");
    }
    match &query.limit_clause {
        Some(LimitClause::OffsetCommaLimit { .. }) => {
            return ControlFlow::Break(
                Error::invalid(SqlState::SYNTAX_ERROR, "LIMIT #,# syntax is not supported")
                    .with_hint("Use separate LIMIT and OFFSET clauses."),
            );
        }
        Some(LimitClause::LimitOffset { limit_by, .. }) if !limit_by.is_empty() => {
            return refuse("LIMIT … BY");
        }
        _ => {}
    }
    if query.for_clause.is_some() {
        return refuse("FOR XML or FOR JSON");
    }
    if query.settings.is_some() || query.format_clause.is_some() {
        return refuse("SETTINGS or FORMAT after a query");
    }
    if query
        .fetch
        .as_ref()
        .is_some_and(|f| f.with_ties || f.percent)
    {
        return refuse("FETCH … WITH TIES or PERCENT");
    }
    ControlFlow::Continue(())
}

/// Refuses ignored clauses of a SELECT, without the queries in it.
pub fn select(select: &Select) -> ControlFlow<Error> {
    if select.into.is_some() {
        return ControlFlow::Break(
            Error::unsupported("SELECT INTO is not supported here")
                .with_hint("Use CREATE TABLE … AS SELECT …."),
        );
    }
    if select.top.is_some() {
        return refuse("TOP");
    }
    if select.qualify.is_some() {
        return ControlFlow::Break(
            Error::unsupported("QUALIFY is not supported")
                .with_hint("Put the window function into a subquery and use WHERE."),
        );
    }
    match &select.group_by {
        GroupByExpr::All(_) => return refuse("GROUP BY ALL"),
        GroupByExpr::Expressions(_, modifiers) if !modifiers.is_empty() => {
            return refuse("WITH ROLLUP, CUBE or TOTALS after GROUP BY");
        }
        GroupByExpr::Expressions(..) => {}
    }
    if select.flavor != SelectFlavor::Standard {
        return refuse("FROM before SELECT");
    }
    if select.exclude.is_some() || select.select_modifiers.is_some() {
        return refuse("this clause of SELECT");
    }
    for item in &select.projection {
        if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item {
            wildcard(options)?;
        }
    }
    for from in &select.from {
        joins(from)?;
    }
    if !select.lateral_views.is_empty()
        || select.prewhere.is_some()
        || !select.connect_by.is_empty()
        || !select.cluster_by.is_empty()
        || !select.distribute_by.is_empty()
        || !select.sort_by.is_empty()
        || select.value_table_mode.is_some()
    {
        return refuse("this clause of SELECT");
    }
    ControlFlow::Continue(())
}

/// Refuses ignored clauses of an item of FROM.
pub fn table_factor(factor: &TableFactor) -> ControlFlow<Error> {
    match factor {
        TableFactor::Table {
            sample: Some(_), ..
        }
        | TableFactor::Derived {
            sample: Some(_), ..
        } => refuse("TABLESAMPLE"),
        TableFactor::Table {
            name,
            with_hints,
            partitions,
            json_path,
            index_hints,
            with_ordinality,
            version,
            args,
            ..
        } => {
            if name.0.len() > 1
                && let Err(error) = names::qualified(name, names::PUBLIC)
            {
                return ControlFlow::Break(error);
            }
            if !with_hints.is_empty()
                || !partitions.is_empty()
                || json_path.is_some()
                || !index_hints.is_empty()
            {
                return refuse("a hint or partition after a table's name");
            }
            if *with_ordinality {
                return refuse("WITH ORDINALITY");
            }
            match version {
                None => ControlFlow::Continue(()),
                Some(TableVersion::ForSystemTimeAsOf(_)) if args.is_none() => {
                    ControlFlow::Continue(())
                }
                Some(TableVersion::ForSystemTimeAsOf(_)) => ControlFlow::Break(Error::invalid(
                    SqlState::WRONG_OBJECT_TYPE,
                    "FOR SYSTEM_TIME applies to tables and views, not to functions",
                )),
                Some(other) => refuse(&other.to_string()),
            }
        }
        TableFactor::NestedJoin {
            table_with_joins, ..
        } => joins(table_with_joins),
        TableFactor::Pivot { .. } | TableFactor::Unpivot { .. } => refuse("PIVOT"),
        TableFactor::MatchRecognize { .. } => refuse("MATCH_RECOGNIZE"),
        _ => ControlFlow::Continue(()),
    }
}
