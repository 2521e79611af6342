//! Hidden columns, which a table shows only if the query names them. `t.column` asks table `t` of
//! its SELECT for the column, and a bare `column` asks all tables of it. Wildcards leave the column
//! out.

use crate::parse::cte_scopes::CteScopes;
use crate::parse::names::fold;
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, VisitorMut,
};
use std::collections::HashSet;
use std::ops::ControlFlow;
use strandline_base::{Error, Result};
use strandline_semantics::sql::walk::{any_expression, walk_mut};

/// Calls `show` for each table of `query` from which `column` is asked; `show` returns whether the
/// table now has the column. WITH queries and files are skipped.
pub fn show(
    query: &mut Query,
    column: &'static str,
    show: impl FnMut(&mut TableFactor) -> Result<bool>,
) -> Result<()> {
    if mentions(query, column).is_empty() {
        return Ok(());
    }
    let mut walk = Walk {
        ctes: CteScopes::default(),
        column,
        show,
    };
    match walk_mut(query, &mut walk) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Walk<S> {
    ctes: CteScopes,
    column: &'static str,
    show: S,
}

/// The qualifiers of a column in a query; None is the bare name.
type Qualifiers = HashSet<Option<String>>;

impl<S: FnMut(&mut TableFactor) -> Result<bool>> VisitorMut for Walk<S> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.ctes.enter(query);
        let wanted = mentions(query, self.column);
        if !wanted.is_empty()
            && let Err(error) = self.body(&mut query.body, &wanted)
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

impl<S: FnMut(&mut TableFactor) -> Result<bool>> Walk<S> {
    fn body(&mut self, body: &mut SetExpr, wanted: &Qualifiers) -> Result<()> {
        match body {
            SetExpr::Select(select) => self.select(select, wanted),
            SetExpr::SetOperation { left, right, .. } => {
                self.body(left, wanted)?;
                self.body(right, wanted)
            }
            _ => Ok(()),
        }
    }

    fn select(&mut self, select: &mut Select, wanted: &Qualifiers) -> Result<()> {
        let mut shown = HashSet::new();
        for from in &mut select.from {
            self.joined(from, wanted, &mut shown)?;
        }
        if shown.is_empty() {
            return Ok(());
        }
        let items = &mut select.projection;
        items
            .iter_mut()
            .try_for_each(|item| hide(item, &shown, self.column))
    }

    fn joined(
        &mut self,
        from: &mut TableWithJoins,
        wanted: &Qualifiers,
        shown: &mut HashSet<String>,
    ) -> Result<()> {
        self.factor(&mut from.relation, wanted, shown)?;
        let joins = from.joins.iter_mut();
        joins
            .map(|join| &mut join.relation)
            .try_for_each(|factor| self.factor(factor, wanted, shown))
    }

    fn factor(
        &mut self,
        factor: &mut TableFactor,
        wanted: &Qualifiers,
        shown: &mut HashSet<String>,
    ) -> Result<()> {
        let (name, alias) = match factor {
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => return self.joined(table_with_joins, wanted, shown),
            TableFactor::Table {
                name,
                alias,
                args: None,
                ..
            } => (name, alias),
            _ => return Ok(()),
        };
        let Some(ObjectNamePart::Identifier(last)) = name.0.last() else {
            return Ok(());
        };
        let is_file = last.quote_style == Some('\'');
        if is_file || name.0.len() == 1 && self.ctes.has(&fold(last)) {
            return Ok(());
        }
        let called = fold(alias.as_ref().map_or(last, |alias| &alias.name));
        let is_asked = wanted.contains(&None) || wanted.contains(&Some(called.clone()));
        if is_asked && (self.show)(factor)? {
            shown.insert(called);
        }
        Ok(())
    }
}

/// The qualifiers of `column` in `query`; None is the bare name.
fn mentions(query: &Query, column: &str) -> Qualifiers {
    let mut found = HashSet::new();
    any_expression(query, |expr| {
        match expr {
            Expr::Identifier(ident) if fold(ident) == column => {
                found.insert(None);
            }
            Expr::CompoundIdentifier(parts) => {
                if let [.., table, last] = parts.as_slice()
                    && fold(last) == column
                {
                    found.insert(Some(fold(table)));
                }
            }
            _ => {}
        }
        false
    });
    found
}

/// Excludes `column`, which the tables `marked` show, from a wildcard.
fn hide(item: &mut SelectItem, marked: &HashSet<String>, column: &str) -> Result<()> {
    let options = match item {
        SelectItem::Wildcard(options) if marked.len() == 1 => options,
        SelectItem::Wildcard(_) => {
            return Err(Error::unsupported(format!(
                "SELECT * together with the {column} of several tables is not supported"
            ))
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
        let hidden = ObjectName::from(vec![Ident::new(column)]);
        options.opt_exclude = Some(ExcludeSelectItem::Single(hidden));
    }
    Ok(())
}
