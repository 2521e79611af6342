//! Hidden columns, which a table shows only if the query names them. `t.column` asks table `t` of
//! its SELECT for the column, and a bare `column` asks all tables of it. Wildcards leave the column
//! out.

use crate::parse::cte_scopes::CteScopes;
use crate::parse::names::fold;
use datafusion::sql::sqlparser::ast::{
    ExcludeSelectItem, Expr, Ident, ObjectName, ObjectNamePart, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableFactor, TableWithJoins, VisitorMut,
};
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use strandline_base::{Error, Result};
use strandline_semantics::sql::walk::{any_expression, walk_mut};

/// The hidden columns that a table now shows.
pub type Columns = &'static [&'static str];

/// Calls `show` for each table of `query` from which `column` is asked; `show` returns the hidden
/// columns that the table now has. WITH queries and files are skipped.
pub fn show(
    query: &mut Query,
    column: &'static str,
    show: impl FnMut(&mut TableFactor) -> Result<Columns>,
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
pub type Qualifiers = HashSet<Option<String>>;

/// The tables of a SELECT that show hidden columns, by the name of their qualifier.
type Shown = HashMap<String, Columns>;

impl<S: FnMut(&mut TableFactor) -> Result<Columns>> VisitorMut for Walk<S> {
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

impl<S: FnMut(&mut TableFactor) -> Result<Columns>> Walk<S> {
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
        let mut shown = Shown::new();
        for from in &mut select.from {
            self.joined(from, wanted, &mut shown)?;
        }
        if shown.is_empty() {
            return Ok(());
        }
        let items = &mut select.projection;
        items.iter_mut().try_for_each(|item| hide(item, &shown))
    }

    fn joined(
        &mut self,
        from: &mut TableWithJoins,
        wanted: &Qualifiers,
        shown: &mut Shown,
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
        shown: &mut Shown,
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
        if !asks(wanted, &called) {
            return Ok(());
        }
        let columns = (self.show)(factor)?;
        if !columns.is_empty() {
            shown.insert(called, columns);
        }
        Ok(())
    }
}

/// The qualifiers of `column` in `query`; None is the bare name.
pub fn mentions(query: &Query, column: &str) -> Qualifiers {
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

/// Whether a column with these qualifiers is asked from the table `called`.
pub fn asks(wanted: &Qualifiers, called: &str) -> bool {
    wanted.contains(&None) || wanted.contains(&Some(called.to_string()))
}

/// Excludes from a wildcard the hidden columns that its tables show.
fn hide(item: &mut SelectItem, shown: &Shown) -> Result<()> {
    let (options, columns) = match item {
        SelectItem::Wildcard(options) => {
            let mut tables = shown.values();
            match (tables.next(), tables.next()) {
                (Some(columns), None) if options.opt_exclude.is_none() => (options, columns),
                _ => {
                    return Err(Error::unsupported(
                        "SELECT * together with hidden columns of several tables is not supported",
                    )
                    .with_hint("Name the columns, or write t.* for each table."));
                }
            }
        }
        SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(of), options) => {
            let Some(ObjectNamePart::Identifier(table)) = of.0.last() else {
                return Ok(());
            };
            match shown.get(&fold(table)) {
                Some(columns) => (options, columns),
                None => return Ok(()),
            }
        }
        _ => return Ok(()),
    };
    if options.opt_exclude.is_none() && options.opt_except.is_none() {
        let name = |column: &&str| ObjectName::from(vec![Ident::new(*column)]);
        let hidden = columns.iter().map(name).collect();
        options.opt_exclude = Some(ExcludeSelectItem::Multiple(hidden));
    }
    Ok(())
}
