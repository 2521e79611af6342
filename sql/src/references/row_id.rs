//! The hidden column `_rowid`. A table shows it only where the query names it: `t._rowid` marks
//! the table called `t` of that SELECT, a bare `_rowid` all its tables. Wildcards of a SELECT with
//! a marked table leave it out.
//!
//! The mark is put where PostgreSQL's grammar has nothing, in the factor's list of partitions,
//! and taken away when the reference is replaced.

use super::cte_scopes::CteScopes;
use crate::names::{ROW_ID, fold};
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, VisitMut, VisitorMut,
    visit_expressions,
};
use std::collections::HashSet;
use std::ops::ControlFlow;
use strandline_base::{Error, Result};

/// The mark of a table whose `_rowid` is wanted.
pub const MARK: &str = "\u{1}rowid";

/// Marks the tables of `query` whose `_rowid` is named.
pub fn mark(query: &mut Query) -> Result<()> {
    if mentions(query).is_empty() {
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

/// The qualifiers under which `_rowid` is named; None is the bare name.
fn mentions(query: &Query) -> HashSet<Option<String>> {
    let mut found = HashSet::new();
    let _ = visit_expressions(query, |expr| {
        match expr {
            Expr::Identifier(ident) if fold(ident) == ROW_ID => {
                found.insert(None);
            }
            Expr::CompoundIdentifier(parts) => {
                if let [.., table, column] = parts.as_slice()
                    && fold(column) == ROW_ID
                {
                    found.insert(Some(fold(table)));
                }
            }
            _ => {}
        }
        ControlFlow::<()>::Continue(())
    });
    found
}

struct Marker {
    ctes: CteScopes,
}

impl VisitorMut for Marker {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.ctes.enter(query);
        let wanted = mentions(query);
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
            hide(item, &marked)?;
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

/// Keeps `_rowid` out of a wildcard.
fn hide(item: &mut SelectItem, marked: &HashSet<String>) -> Result<()> {
    let options = match item {
        SelectItem::Wildcard(options) if marked.len() == 1 => options,
        SelectItem::Wildcard(_) => {
            return Err(Error::unsupported(
                "SELECT * together with the _rowid of several tables is not supported",
            )
            .with_hint("Name the columns, or write t.* for each table."));
        }
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), options) => {
            match of.0.last() {
                Some(ObjectNamePart::Identifier(table)) if marked.contains(&fold(table)) => options,
                _ => return Ok(()),
            }
        }
        _ => return Ok(()),
    };
    if options.opt_exclude.is_none() && options.opt_except.is_none() {
        let hidden = ObjectName::from(vec![Ident::new(ROW_ID)]);
        options.opt_exclude = Some(ExcludeSelectItem::Single(hidden));
    }
    Ok(())
}
