//! The hidden column `tableoid`, the oid of the table that a row is of. A table that is asked for
//! it becomes a subquery that has it, so that it is NULL where an outer join has no row of the
//! table. Wildcards leave it out.
//!
//! Differences from PostgreSQL: views have it too; under an alias with names of columns a table
//! does not.

use super::cte_scopes::CteScopes;
use super::hidden;
use crate::names::fold;
use crate::parse;
use datafusion::sql::sqlparser::ast::{
    ObjectNamePart, Query, Select, SetExpr, TableAlias, TableFactor, TableWithJoins, VisitMut,
    VisitorMut,
};
use std::collections::HashSet;
use std::ops::ControlFlow;
use strandline_base::{Error, Result};

const TABLE_OID: &str = "tableoid";

/// Gives the tables of `query` whose `tableoid` is named that column. Comes before the query is
/// normalized.
pub fn expand(query: &mut Query) -> Result<()> {
    if hidden::mentions(query, TABLE_OID).is_empty() {
        return Ok(());
    }
    let mut expander = Expander {
        ctes: CteScopes::default(),
    };
    match query.visit(&mut expander) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Expander {
    ctes: CteScopes,
}

impl VisitorMut for Expander {
    type Break = Error;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Error> {
        self.ctes.enter(query);
        let wanted = hidden::mentions(query, TABLE_OID);
        if !wanted.is_empty()
            && let Err(error) = self.expand_body(&mut query.body, &wanted)
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

impl Expander {
    fn expand_body(&self, body: &mut SetExpr, wanted: &HashSet<Option<String>>) -> Result<()> {
        match body {
            SetExpr::Select(select) => self.expand_select(select, wanted),
            SetExpr::SetOperation { left, right, .. } => {
                self.expand_body(left, wanted)?;
                self.expand_body(right, wanted)
            }
            _ => Ok(()),
        }
    }

    fn expand_select(&self, select: &mut Select, wanted: &HashSet<Option<String>>) -> Result<()> {
        let mut expanded = HashSet::new();
        for from in &mut select.from {
            self.expand_joined(from, wanted, &mut expanded)?;
        }
        if expanded.is_empty() {
            return Ok(());
        }
        for item in &mut select.projection {
            hidden::hide(item, &expanded, TABLE_OID)?;
        }
        Ok(())
    }

    fn expand_joined(
        &self,
        from: &mut TableWithJoins,
        wanted: &HashSet<Option<String>>,
        expanded: &mut HashSet<String>,
    ) -> Result<()> {
        self.expand_factor(&mut from.relation, wanted, expanded)?;
        for join in &mut from.joins {
            self.expand_factor(&mut join.relation, wanted, expanded)?;
        }
        Ok(())
    }

    fn expand_factor(
        &self,
        factor: &mut TableFactor,
        wanted: &HashSet<Option<String>>,
        expanded: &mut HashSet<String>,
    ) -> Result<()> {
        let (name, alias) = match factor {
            TableFactor::NestedJoin {
                table_with_joins, ..
            } => return self.expand_joined(table_with_joins, wanted, expanded),
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
        let is_cte = name.0.len() == 1 && self.ctes.has(&fold(last));
        let has_columns = alias.as_ref().is_some_and(|a| !a.columns.is_empty());
        if is_file || is_cte || has_columns {
            return Ok(());
        }
        let called = fold(alias.as_ref().map_or(last, |alias| &alias.name));
        if !wanted.contains(&None) && !wanted.contains(&Some(called.clone())) {
            return Ok(());
        }
        let shown = alias.take().unwrap_or_else(|| TableAlias {
            explicit: true,
            name: last.clone(),
            columns: Vec::new(),
            at: None,
        });
        let literal = name.to_string().replace('\'', "''");
        let sql = format!("SELECT *, '{literal}'::regclass::oid AS {TABLE_OID} FROM t");
        let mut subquery = parse::query(&sql)?;
        if let SetExpr::Select(select) = &mut *subquery.body
            && let [from] = select.from.as_mut_slice()
        {
            std::mem::swap(&mut from.relation, factor);
        }
        *factor = TableFactor::Derived {
            lateral: false,
            subquery: Box::new(subquery),
            alias: Some(shown),
            sample: None,
        };
        expanded.insert(called);
        Ok(())
    }
}
