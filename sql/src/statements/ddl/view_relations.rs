//! What a view sees of its relations is fixed when it is defined: every table and view `t` of its
//! query becomes `(SELECT a, b FROM schema.t) AS t`, with the columns that the query can mean. So
//! a column that comes later is no part of a `*`, joins nothing in NATURAL JOIN, and makes no name
//! ambiguous. The list has all columns below `*`, `t.*` and NATURAL JOIN, otherwise the columns
//! that the query names, at least one. RENAME changes the lists, so that a view keeps its names.
//!
//! WITH queries, files, table functions and system tables stay as they are, and so does such a list
//! of a relation's columns: a view that is defined by the text of another one gets the same text.

use crate::catalogs::{information_schema, pg_catalog};
use crate::parse;
use crate::parse::cte_scopes::CteScopes;
use crate::parse::names::{self, ROW_ID, TABLE_OID, fold};
use crate::planning::context::StatementContext;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, ObjectName, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableFactor, TableWithJoins, VisitorMut,
};
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use strandline_base::{Error, Result};
use strandline_engine::catalog::{Catalog, TableDef};
use strandline_semantics::sql::output_name;
use strandline_semantics::sql::walk::walk_mut;

/// Fixes what `query`, the query of a view, sees of its relations.
pub async fn pin(query: &mut Query, context: &StatementContext) -> Result<()> {
    let mut mentions = Mentions::default();
    let _ = walk_mut(query, &mut mentions);
    let mut collector = Relations::new(context, &mentions, None);
    finish(walk_mut(&mut query.clone(), &mut collector))?;
    let mut columns = Vec::with_capacity(collector.found.len());
    for relation in collector.found {
        columns.push(columns_of(relation, context).await?);
    }
    let mut replacer = Relations::new(context, &mentions, Some(columns.into_iter()));
    finish(walk_mut(query, &mut replacer))
}

fn finish(flow: ControlFlow<Error>) -> Result<()> {
    match flow {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// The columns that `*` shows of a relation.
async fn columns_of(relation: TableFactor, context: &StatementContext) -> Result<Vec<String>> {
    let plan = context.plan_query(&selection(relation, "*")?).await?;
    let fields = plan.schema().fields().iter();
    Ok(fields.map(|f| output_name(f.name()).to_string()).collect())
}

/// An identifier that means `name`, with quotes only where they are needed.
fn plain(name: &str) -> Ident {
    match names::quote(name) == name {
        true => Ident::new(name),
        false => names::ident(name),
    }
}

/// `SELECT columns FROM relation`
fn selection(relation: TableFactor, columns: &str) -> Result<Query> {
    let mut query = parse::query(&format!("SELECT {columns} FROM t"))?;
    if let SetExpr::Select(select) = query.body.as_mut()
        && let [from] = select.from.as_mut_slice()
    {
        from.relation = relation;
    }
    Ok(query)
}

/// The columns of `SELECT a, b FROM t`, also with new names for the columns; None: the query does
/// more.
fn columns_listed(select: &Select) -> Result<Option<Vec<String>>> {
    let [TableWithJoins { relation, joins }] = select.from.as_slice() else {
        return Ok(None);
    };
    let is_bare = matches!(
        relation,
        TableFactor::Table {
            alias: None,
            args: None,
            ..
        }
    );
    if !is_bare || !joins.is_empty() {
        return Ok(None);
    }
    let columns = select.projection.iter().map(|item| match item {
        SelectItem::UnnamedExpr(Expr::Identifier(name))
        | SelectItem::ExprWithAlias {
            expr: Expr::Identifier(name),
            ..
        } => Some(fold(name)),
        _ => None,
    });
    let Some(columns) = columns.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let mut list = selection(relation.clone(), "*")?;
    let SetExpr::Select(list) = list.body.as_mut() else {
        return Ok(None);
    };
    list.projection = select.projection.clone();
    Ok((**list == *select).then_some(columns))
}

/// The names of columns that a query uses.
#[derive(Default)]
struct Mentions {
    bare: HashSet<String>,
    qualified: HashSet<(String, String)>,
    /// relations of which every column is used
    whole: HashSet<String>,
}

impl Mentions {
    fn has(&self, relation: &str, column: &str) -> bool {
        let qualified = (relation.to_string(), column.to_string());
        self.bare.contains(column) || self.qualified.contains(&qualified)
    }
}

impl VisitorMut for Mentions {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        expand_table_command(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        for item in &mut select.projection {
            if let SelectItem::QualifiedWildcard(
                SelectItemQualifiedWildcardKind::ObjectName(name),
                _,
            ) = item
            {
                unqualify(&mut name.0, 1, |part| part.as_ident());
                let last = name.0.last().and_then(|part| part.as_ident());
                self.whole.extend(last.map(fold));
            }
        }
        for join in joins(&select.from) {
            if let Some(JoinConstraint::Using(columns)) = join {
                let columns = columns.iter().filter_map(|c| names::single(c).ok());
                self.bare.extend(columns);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Error> {
        match expr {
            Expr::Identifier(name) => {
                self.bare.insert(fold(name));
            }
            Expr::CompoundIdentifier(parts) => {
                unqualify(parts, 2, itself);
                if let [.., relation, column] = parts.as_slice() {
                    self.qualified.insert((fold(relation), fold(column)));
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// `TABLE t` is `SELECT * FROM t`.
fn expand_table_command(query: &mut Query) {
    let SetExpr::Table(table) = query.body.as_ref() else {
        return;
    };
    let parts = table.schema_name.iter().chain(&table.table_name);
    let name: Vec<String> = parts.map(|part| names::quote(part)).collect();
    if let Ok(selected) = parse::query(&format!("SELECT * FROM {}", name.join("."))) {
        query.body = selected.body;
    }
}

fn itself(ident: &Ident) -> Option<&Ident> {
    Some(ident)
}

/// Leaves the last `kept` parts of `schema.relation.column`.
fn unqualify<P>(parts: &mut Vec<P>, kept: usize, ident: impl Fn(&P) -> Option<&Ident>) {
    let system = |part: &P| {
        ident(part).is_some_and(|schema| {
            let schema = fold(schema);
            schema == pg_catalog::PG_CATALOG || information_schema::is_system_schema(&schema)
        })
    };
    if parts.len() > kept && !parts.iter().any(system) {
        parts.drain(..parts.len() - kept);
    }
}

/// The conditions of all joins of a FROM list.
fn joins(from: &[TableWithJoins]) -> Vec<Option<&JoinConstraint>> {
    let mut found = Vec::new();
    for item in from {
        let relations = item.joins.iter().map(|join| &join.relation);
        for relation in std::iter::once(&item.relation).chain(relations) {
            if let TableFactor::NestedJoin {
                table_with_joins, ..
            } = relation
            {
                found.extend(joins(std::slice::from_ref(table_with_joins)));
            }
        }
        let conditions = item.joins.iter().map(|join| &join.join_operator);
        found.extend(conditions.map(crate::planning::references::merged::constraint));
    }
    found
}

/// A relation whose schema is fixed.
struct Fixed {
    table: String,
    /// whether it is a table, which has hidden columns
    is_table: bool,
    alias: Option<TableAlias>,
    columns: Vec<String>,
}

/// Collects the relations to pin, or pins them to `columns`.
struct Relations<'a> {
    context: &'a StatementContext,
    mentions: &'a Mentions,
    ctes: CteScopes,
    found: Vec<TableFactor>,
    columns: Option<std::vec::IntoIter<Vec<String>>>,
}

impl<'a> Relations<'a> {
    fn new(
        context: &'a StatementContext,
        mentions: &'a Mentions,
        columns: Option<std::vec::IntoIter<Vec<String>>>,
    ) -> Self {
        Self {
            context,
            mentions,
            ctes: CteScopes::default(),
            found: Vec::new(),
            columns,
        }
    }

    fn list_all(&mut self, select: &mut Select) -> Result<()> {
        let mut items = select.projection.iter();
        let natural =
            |join: &Option<&JoinConstraint>| matches!(join, Some(JoinConstraint::Natural));
        let whole = items.any(|item| matches!(item, SelectItem::Wildcard(_)))
            || joins(&select.from).iter().any(natural);
        self.list(&mut select.from, whole)
    }

    fn list(&mut self, from: &mut [TableWithJoins], whole: bool) -> Result<()> {
        for item in from {
            self.relation(&mut item.relation, whole)?;
            for join in &mut item.joins {
                self.relation(&mut join.relation, whole)?;
            }
        }
        Ok(())
    }

    fn relation(&mut self, factor: &mut TableFactor, whole: bool) -> Result<()> {
        match factor {
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => self.list(std::slice::from_mut(table_with_joins), whole),
            TableFactor::Table { args: None, .. } => {
                if let Some(fixed) = self.fixed(factor)? {
                    self.pin(factor, fixed, whole)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Pins the relation of a SELECT that only lists columns. If the relation has all of them, the
    /// SELECT stays as it is.
    fn only_list(&mut self, select: &mut Select, listed: &[String]) -> Result<()> {
        let [from] = select.from.as_mut_slice() else {
            return Ok(());
        };
        let Some(fixed) = self.fixed(&mut from.relation)? else {
            return Ok(());
        };
        let has = |column: &String| {
            fixed.columns.contains(column) || [ROW_ID, TABLE_OID].contains(&&**column)
        };
        let is_list = listed.iter().all(has);
        match is_list {
            true => Ok(()),
            false => self.pin(&mut from.relation, fixed, false),
        }
    }

    /// Fixes the schema of a relation and takes its columns; None: it is not pinned, or only
    /// collected.
    fn fixed(&mut self, factor: &mut TableFactor) -> Result<Option<Fixed>> {
        let TableFactor::Table { name, alias, .. } = factor else {
            return Ok(None);
        };
        let Some((schema, table)) = self.pinned_name(name)? else {
            return Ok(None);
        };
        *name = ObjectName::from(vec![plain(&schema), plain(&table)]);
        let alias = alias.take();
        let Some(columns) = &mut self.columns else {
            self.found.push(factor.clone());
            return Ok(None);
        };
        Ok(Some(Fixed {
            is_table: self.context.catalog.table(&schema, &table).is_some(),
            table,
            alias,
            columns: columns.next().unwrap_or_default(),
        }))
    }

    /// Replaces a relation by the list of its columns that the query can mean.
    fn pin(&self, factor: &mut TableFactor, fixed: Fixed, whole: bool) -> Result<()> {
        let all = fixed.columns;
        let shown = fixed.alias.unwrap_or_else(|| TableAlias {
            explicit: true,
            name: plain(&fixed.table),
            columns: Vec::new(),
            at: None,
        });
        let called = fold(&shown.name);
        let whole = whole || self.mentions.whole.contains(&called) || !shown.columns.is_empty();
        let used = |column: &&String| whole || self.mentions.has(&called, column);
        let mut listed: Vec<&str> = all.iter().filter(used).map(String::as_str).collect();
        if fixed.is_table && shown.columns.is_empty() {
            let hidden = [ROW_ID, TABLE_OID].into_iter();
            listed.extend(hidden.filter(|column| self.mentions.has(&called, column)));
        }
        if listed.is_empty() {
            listed.extend(all.first().map(String::as_str));
        }
        let listed: Vec<String> = listed.into_iter().map(names::quote).collect();
        let relation = factor.clone();
        *factor = TableFactor::Derived {
            lateral: false,
            subquery: Box::new(selection(relation, &listed.join(", "))?),
            alias: Some(shown),
            sample: None,
        };
        Ok(())
    }

    /// Schema and name of a relation that is pinned.
    fn pinned_name(&self, name: &ObjectName) -> Result<Option<(String, String)>> {
        let file = |ident: &Ident| ident.quote_style == Some('\'');
        if name.0.first().and_then(|p| p.as_ident()).is_some_and(file) {
            return Ok(None);
        }
        let bare = names::single(name).ok();
        if bare.is_some_and(|name| self.ctes.has(&name) || pg_catalog::has(&name)) {
            return Ok(None);
        }
        let (schema, table) = names::qualified(name, &self.context.default_schema)?;
        let catalog = &self.context.catalog;
        let known =
            catalog.table(&schema, &table).is_some() || catalog.view(&schema, &table).is_some();
        Ok(known.then_some((schema, table)))
    }
}

impl VisitorMut for Relations<'_> {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.ctes.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Error> {
        self.ctes.leave();
        ControlFlow::Continue(())
    }

    // After the parts of the SELECT, so that the queries made here are not visited.
    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Error> {
        let pinned = match columns_listed(select) {
            Ok(Some(listed)) => self.only_list(select, &listed),
            Ok(None) => self.list_all(select),
            Err(error) => Err(error),
        };
        match pinned {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

/// A new name of a table, or of one of its columns, in the lists of all views.
pub fn rename(
    catalog: &mut Catalog,
    table: &TableDef,
    new_table: Option<&str>,
    column: Option<(&str, &str)>,
) -> Result<()> {
    for view in &mut catalog.views {
        let mut query = parse::query(&view.query)?;
        let mut lists = Lists {
            schema: &table.schema,
            table: &table.name,
            new_table,
            column,
            is_changed: false,
        };
        let _ = walk_mut(&mut query, &mut lists);
        if lists.is_changed {
            parse::system_time::as_written(&mut query);
            Arc::make_mut(view).query = query.to_string();
        }
    }
    Ok(())
}

struct Lists<'a> {
    schema: &'a str,
    table: &'a str,
    new_table: Option<&'a str>,
    column: Option<(&'a str, &'a str)>,
    is_changed: bool,
}

impl Lists<'_> {
    /// The name in FROM of `(SELECT … FROM table)`; None for a moment of the past, when the table
    /// has its old names.
    fn relation<'s>(&self, select: &'s mut Select) -> Option<&'s mut ObjectName> {
        let [from] = select.from.as_mut_slice() else {
            return None;
        };
        let TableFactor::Table {
            name,
            alias: None,
            args: None,
            version: None,
            ..
        } = &mut from.relation
        else {
            return None;
        };
        let parts = names::parts(name).ok()?;
        (parts == [self.schema, self.table] && from.joins.is_empty()).then_some(name)
    }
}

impl VisitorMut for Lists<'_> {
    type Break = ();

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        let Some(name) = self.relation(select) else {
            return ControlFlow::Continue(());
        };
        if let Some(new) = self.new_table {
            *name = ObjectName::from(vec![plain(self.schema), plain(new)]);
            self.is_changed = true;
        }
        let Some((old, new)) = self.column else {
            return ControlFlow::Continue(());
        };
        for item in &mut select.projection {
            let (expr, alias) = match item {
                SelectItem::UnnamedExpr(expr) => (expr, None),
                SelectItem::ExprWithAlias { expr, alias } => (expr, Some(alias.clone())),
                _ => continue,
            };
            if matches!(expr, Expr::Identifier(ident) if fold(ident) == old) {
                *item = SelectItem::ExprWithAlias {
                    expr: Expr::Identifier(plain(new)),
                    alias: alias.unwrap_or_else(|| plain(old)),
                };
                self.is_changed = true;
            }
        }
        ControlFlow::Continue(())
    }
}
