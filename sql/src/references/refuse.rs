//! Clauses that DataFusion parses and then ignores. Ignoring them would be a silent downgrade, so
//! they are errors.

use crate::names;
use datafusion::sql::sqlparser::ast::{
    Query, Select, TableFactor, TableVersion, VisitMut, VisitorMut,
};
use std::ops::ControlFlow;
use strandline_base::{Error, Result, SqlState};

/// Refuses what would be ignored anywhere in `query`.
pub fn check(query: &mut Query) -> Result<()> {
    match query.visit(&mut Refusal) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Refusal;

fn refuse(what: &str) -> ControlFlow<Error> {
    ControlFlow::Break(Error::unsupported(format!("{what} is not supported")))
}

impl VisitorMut for Refusal {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        if let Some(lock) = query.locks.first() {
            return ControlFlow::Break(
                Error::unsupported(format!("FOR {} is not supported", lock.lock_type)).with_hint(
                    "Under REPEATABLE READ a concurrent change of the row is reported when \
                     it is updated.",
                ),
            );
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

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        if select.into.is_some() {
            return ControlFlow::Break(
                Error::unsupported("SELECT INTO is not supported here")
                    .with_hint("Use CREATE TABLE … AS SELECT …."),
            );
        }
        if select.top.is_some() {
            return refuse("TOP");
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

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Error> {
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
            TableFactor::Pivot { .. } | TableFactor::Unpivot { .. } => refuse("PIVOT"),
            TableFactor::MatchRecognize { .. } => refuse("MATCH_RECOGNIZE"),
            _ => ControlFlow::Continue(()),
        }
    }
}
