//! The hidden column `_rowid`. A table shows it only where the query names it: `t._rowid` marks
//! the table called `t` of that SELECT, a bare `_rowid` all its tables. Wildcards of a SELECT with
//! a marked table leave it out.
//!
//! The mark is put where PostgreSQL's grammar has nothing, in the factor's list of partitions,
//! and taken away when the reference is replaced.

use super::cte_scopes::CteScopes;
use super::hidden;
use crate::names::{ROW_ID, fold};
use datafusion::sql::sqlparser::ast::{
    Ident, ObjectNamePart, Query, Select, SetExpr, TableFactor, TableWithJoins, VisitMut,
    VisitorMut,
};
use std::collections::HashSet;
use std::ops::ControlFlow;
use strandline_base::{Error, Result};

/// The mark of a table whose `_rowid` is wanted.
pub const MARK: &str = "\u{1}rowid";

/// Marks the tables of `query` whose `_rowid` is named.
pub fn mark(query: &mut Query) -> Result<()> {
    if hidden::mentions(query, ROW_ID).is_empty() {
        return Ok(());
    }
    let mut marker = Marker {
        ctes: CteScopes::default(),
    };
    match query.visit(&mut marker) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Marker {
    ctes: CteScopes,
}

impl VisitorMut for Marker {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.ctes.enter(query);
        let wanted = hidden::mentions(query, ROW_ID);
        if !wanted.is_empty()
            && let Err(error) = self.mark_body(&mut query.body, &wanted)
        {
            return ControlFlow::Break(error);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.ctes.leave();
        ControlFlow::Continue(())
    }
}

impl Marker {
    fn mark_body(&self, body: &mut SetExpr, wanted: &HashSet<Option<String>>) -> Result<()> {
        match body {
            SetExpr::Select(select) => self.mark_select(select, wanted),
            SetExpr::SetOperation { left, right, .. } => {
                self.mark_body(left, wanted)?;
                self.mark_body(right, wanted)
            }
            _ => Ok(()),
        }
    }

    fn mark_select(&self, select: &mut Select, wanted: &HashSet<Option<String>>) -> Result<()> {
        let mut marked = HashSet::new();
        for from in &mut select.from {
            self.mark_joined(from, wanted, &mut marked);
        }
        if marked.is_empty() {
            return Ok(());
        }
        for item in &mut select.projection {
            hidden::hide(item, &marked, ROW_ID)?;
        }
        Ok(())
    }

    fn mark_joined(
        &self,
        from: &mut TableWithJoins,
        wanted: &HashSet<Option<String>>,
        marked: &mut HashSet<String>,
    ) {
        self.mark_factor(&mut from.relation, wanted, marked);
        for join in &mut from.joins {
            self.mark_factor(&mut join.relation, wanted, marked);
        }
    }

    fn mark_factor(
        &self,
        factor: &mut TableFactor,
        wanted: &HashSet<Option<String>>,
        marked: &mut HashSet<String>,
    ) {
        match factor {
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => {
                self.mark_joined(table_with_joins, wanted, marked);
            }
            TableFactor::Table {
                name,
                alias,
                args: None,
                partitions,
                ..
            } => {
                let Some(ObjectNamePart::Identifier(last)) = name.0.last() else {
                    return;
                };
                if name.0.len() == 1 && self.ctes.has(&fold(last)) {
                    return;
                }
                if last.quote_style == Some('\'') {
                    return;
                }
                let called = fold(alias.as_ref().map_or(last, |alias| &alias.name));
                if wanted.contains(&None) || wanted.contains(&Some(called.clone())) {
                    partitions.push(Ident::new(MARK));
                    marked.insert(called);
                }
            }
            _ => {}
        }
    }
}
