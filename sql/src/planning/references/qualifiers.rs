//! The qualifiers of columns: `t.a`, `s.t.a`, `t.*`, `s.t.*`.
//!
//! DataFusion compares qualifiers loosely: it takes `t` for `s.t`, and `public.t` for a table that
//! FROM names without a schema. It finds the columns of a wildcard only by the exact spelling in
//! FROM. So each table of FROM that is written with a schema gets an alias: its own name, or one
//! with the schema if another table has the same name. Qualifiers become these aliases.
//!
//! In a subquery, DataFusion takes `t.a` for field `a` of a column `t` before it looks for a table
//! `t` of the query around. Where the subquery's tables may have a column `t`, the qualifier of the
//! outer table gets a schema ([`AROUND`]), which leaves no such reading.
//!
//! Difference from PostgreSQL: `s.t.a` also finds `s.t AS t`, whose alias hides the schema there.
//! The target of an UPDATE is written so.

use crate::catalogs::lookup;
use crate::parse::cte_scopes::CteScopes;
use crate::parse::names::{self, fold};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName, ObjectNamePart,
    Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor,
    TableWithJoins, VisitorMut,
};
use datafusion::sql::sqlparser::tokenizer::Span;
use std::ops::ControlFlow;
use strandline_base::{Error, Result, SqlState};
use strandline_semantics::sql::walk::walk_mut;

/// The schema of a qualifier that is a table of a query around; no user can write the control
/// character.
const AROUND: &str = "\u{1f}around";

/// Whether the relation `schema.name` may have the column: `(schema, name, column)`.
type HasColumn<'a> = &'a dyn Fn(&str, &str, &str) -> bool;

/// Resolves the qualifiers of `query`.
///
/// # Errors
/// 42P09 for a name that several tables of a SELECT have, 42P01 for a schema that none has.
pub fn resolve(query: &mut Query, default_schema: &str, has_column: HasColumn<'_>) -> Result<()> {
    let mut walk = Walk {
        default_schema,
        has_column,
        ctes: CteScopes::default(),
        frames: Vec::new(),
    };
    match walk_mut(query, &mut walk) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// An item of FROM.
struct Item {
    /// the name of its columns' qualifier, as a query may write it
    called: String,
    /// its schema and name, unless an alias hides them or it is no table
    table: Option<(String, String)>,
    has_alias: bool,
    /// the table whose columns it has under their own names; None: its columns are not known here
    source: Option<(String, String)>,
    /// the qualifier in the rewritten query
    qualifier: String,
}

/// The items that a query or a SELECT adds to the visible ones.
struct Frame {
    items: Vec<Item>,
    /// a query whose body is one SELECT, which shares its items with ORDER BY
    of_query: bool,
    /// that SELECT is visited already
    entered: bool,
}

struct Walk<'a> {
    default_schema: &'a str,
    has_column: HasColumn<'a>,
    ctes: CteScopes,
    frames: Vec<Frame>,
}

impl VisitorMut for Walk<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.ctes.enter(query);
        let items = match query.body.as_mut() {
            SetExpr::Select(select) => self.items(&mut select.from),
            _ => Vec::new(),
        };
        self.frames.push(Frame {
            items,
            of_query: true,
            entered: !matches!(query.body.as_ref(), SetExpr::Select(_)),
        });
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.ctes.leave();
        self.frames.pop();
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        match self.frames.last_mut() {
            Some(frame) if frame.of_query && !frame.entered => frame.entered = true,
            _ => {
                let items = self.items(&mut select.from);
                self.frames.push(Frame {
                    items,
                    of_query: false,
                    entered: true,
                });
            }
        }
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(name),
                _,
            ) = item
                && let Err(error) = self.wildcard(name)
            {
                return ControlFlow::Break(error);
            }
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, _: &mut Select) -> ControlFlow<Error> {
        if self.frames.last().is_some_and(|frame| !frame.of_query) {
            self.frames.pop();
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        let resolved = match expr {
            Expr::CompoundIdentifier(parts) => self.column(parts),
            Expr::Function(function) => match &mut function.args {
                FunctionArguments::List(list) => {
                    list.args.iter_mut().try_for_each(|arg| match arg {
                        FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) => {
                            self.wildcard(name)
                        }
                        _ => Ok(()),
                    })
                }
                _ => Ok(()),
            },
            _ => Ok(()),
        };
        match resolved {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

impl Walk<'_> {
    /// The items of a FROM list; gives aliases to its tables.
    fn items(&self, from: &mut [TableWithJoins]) -> Vec<Item> {
        let mut found = Vec::new();
        from.iter_mut()
            .for_each(|from| self.joined(from, &mut found));
        let mut items: Vec<Item> = Vec::with_capacity(found.len());
        for (item, _) in &found {
            items.push(Item {
                qualifier: self.qualifier(item, &found),
                called: item.called.clone(),
                table: item.table.clone(),
                has_alias: item.has_alias,
                source: item.source.clone(),
            });
        }
        for (item, (_, factor)) in items.iter().zip(&mut found) {
            let TableFactor::Table { name, alias, .. } = factor else {
                continue;
            };
            if alias.is_none() && (name.0.len() > 1 || item.qualifier != item.called) {
                *alias = Some(TableAlias {
                    explicit: true,
                    name: names::ident(&item.qualifier),
                    columns: Vec::new(),
                    at: None,
                });
            }
        }
        items
    }

    /// The alias of an item of FROM. It has the schema if DataFusion could confuse the item with
    /// another one of the list or of a query around it.
    fn qualifier(&self, item: &Item, list: &[(Item, &mut TableFactor)]) -> String {
        let Some((schema, name)) = item.table.as_ref().filter(|_| !item.has_alias) else {
            return item.called.clone();
        };
        let list = list.iter().map(|(other, _)| other);
        let around = self.frames.iter().flat_map(|frame| &frame.items);
        let around = around.filter(|other| other.table.is_some());
        let confused = |other: &Item| other.called == item.called && other.table != item.table;
        match list.chain(around).any(confused) {
            true => format!("{name} of {schema}"),
            false => item.called.clone(),
        }
    }

    fn joined<'f>(
        &self,
        from: &'f mut TableWithJoins,
        found: &mut Vec<(Item, &'f mut TableFactor)>,
    ) {
        let joined = from.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut from.relation).chain(joined) {
            match factor {
                TableFactor::NestedJoin {
                    table_with_joins,
                    alias: None,
                } => self.joined(table_with_joins, found),
                factor => {
                    if let Some(item) = self.item(factor) {
                        found.push((item, factor));
                    }
                }
            }
        }
    }

    /// None: nothing can name the item.
    fn item(&self, factor: &TableFactor) -> Option<Item> {
        let (name, alias, is_table) = match factor {
            TableFactor::Table {
                name, alias, args, ..
            } => (Some(name), alias, args.is_none()),
            TableFactor::Function { name, alias, .. } => (Some(name), alias, false),
            TableFactor::Derived { alias, .. }
            | TableFactor::NestedJoin { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::TableFunction { alias, .. } => (None, alias, false),
            _ => return None,
        };
        let own = match name.and_then(|name| name.0.last()) {
            Some(ObjectNamePart::Identifier(ident)) if ident.quote_style != Some('\'') => {
                Some(fold(ident))
            }
            _ => None,
        };
        let called = alias.as_ref().map(|alias| fold(&alias.name));
        let called = called.or_else(|| own.clone())?;
        let source = name.filter(|name| {
            let is_cte = names::single(name).is_ok_and(|name| self.ctes.has(&name));
            is_table && own.is_some() && !is_cte
        });
        let source = source.and_then(|name| lookup::existing(name, self.default_schema).ok());
        let renames = alias
            .as_ref()
            .is_some_and(|alias| !alias.columns.is_empty());
        Some(Item {
            table: source.clone().filter(|_| own.as_ref() == Some(&called)),
            has_alias: alias.is_some(),
            source: source.filter(|_| !renames),
            qualifier: called.clone(),
            called,
        })
    }

    /// Gives `t.a` or `s.t.a` the qualifier of its table.
    fn column(&self, parts: &mut Vec<Ident>) -> Result<()> {
        let Some((column, table)) = parts.split_last() else {
            return Ok(());
        };
        let name = ObjectName::from(table.to_vec());
        for (depth, frame) in self.frames.iter().enumerate().rev() {
            let Some(found) = self.find(frame, &name)? else {
                continue;
            };
            let inner = self.frames[depth + 1..].iter().flat_map(|f| &f.items);
            if inner.clone().any(|i| i.qualifier == found.qualifier) {
                return Err(Error::unsupported(format!(
                    "{name}, whose name a query within has too, is not supported"
                ))
                .with_hint("Give one of them another alias."));
            }
            let is_hidden = inner
                .into_iter()
                .any(|i| self.may_have(i, &found.qualifier));
            if let [only] = table
                && fold(only) == found.qualifier
                && !is_hidden
            {
                return Ok(());
            }
            let qualifier = Ident {
                span: table.last().map_or(Span::empty(), |last| last.span),
                ..names::ident(&found.qualifier)
            };
            let around = is_hidden.then(|| names::ident(AROUND));
            *parts = around
                .into_iter()
                .chain([qualifier, column.clone()])
                .collect();
            return Ok(());
        }
        match table.len() > 1 {
            true => self.refuse(&name),
            false => Ok(()),
        }
    }

    /// Gives `t.*` or `s.t.*` the qualifier of its table.
    fn wildcard(&self, name: &mut ObjectName) -> Result<()> {
        let Some(frame) = self.frames.last() else {
            return Ok(());
        };
        if let Some(found) = self.find(frame, name)?
            && (name.0.len() > 1 || found.qualifier != found.called)
        {
            *name = ObjectName::from(vec![names::ident(&found.qualifier)]);
        }
        Ok(())
    }

    /// Whether an item may have the column.
    fn may_have(&self, item: &Item, column: &str) -> bool {
        match &item.source {
            Some((schema, name)) => (self.has_column)(schema, name, column),
            None => true,
        }
    }

    /// The item of a frame that a qualifier means.
    fn find<'f>(&self, frame: &'f Frame, qualifier: &ObjectName) -> Result<Option<&'f Item>> {
        let Ok(parts) = names::parts(qualifier) else {
            return Ok(None);
        };
        if parts.len() > 1 {
            let wanted = names::qualified(qualifier, self.default_schema)?;
            let mut items = frame.items.iter();
            return Ok(items.find(|item| item.table.as_ref() == Some(&wanted)));
        }
        let mut items = frame
            .items
            .iter()
            .filter(|item| parts.first() == Some(&item.called));
        let Some(first) = items.next() else {
            return Ok(None);
        };
        let others: Vec<&Item> = items.collect();
        if let Some(named) = std::iter::once(first)
            .chain(others.iter().copied())
            .find(|item| item.has_alias || others.is_empty())
        {
            return Ok(Some(named));
        }
        Err(Error::invalid(
            SqlState("42P09"),
            format!("table reference \"{}\" is ambiguous", first.called),
        ))
    }

    /// 42P01 for a schema and a table of which FROM has only the table, in another schema.
    fn refuse(&self, qualifier: &ObjectName) -> Result<()> {
        let (_, table) = names::qualified(qualifier, self.default_schema)?;
        let mut items = self.frames.iter().flat_map(|frame| &frame.items);
        match items.any(|item| item.called == table) {
            true => Err(Error::invalid(
                SqlState::UNDEFINED_TABLE,
                format!("invalid reference to FROM-clause entry for table \"{table}\""),
            )),
            false => Ok(()),
        }
    }
}
