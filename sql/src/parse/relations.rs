//! The relations that a query names.

use super::names;
use datafusion::sql::sqlparser::ast::{ObjectName, Query, VisitorMut};
use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use strandline_semantics::sql::walk::walk_mut;

/// Adds `schema` to bare names of relations that are not common table expressions. Returns the
/// relations of the query, each as schema and name.
pub fn qualify(query: &mut Query, schema: &str) -> BTreeSet<(String, String)> {
    let mut ctes = HashSet::new();
    let _ = walk_mut(&mut query.clone(), &mut CteNames(&mut ctes));
    let mut qualifier = Qualifier {
        schema,
        ctes,
        found: BTreeSet::new(),
    };
    let _ = walk_mut(query, &mut qualifier);
    qualifier.found
}

struct Qualifier<'a> {
    schema: &'a str,
    ctes: HashSet<String>,
    found: BTreeSet<(String, String)>,
}

impl VisitorMut for Qualifier<'_> {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &mut ObjectName) -> ControlFlow<()> {
        let file = name
            .0
            .first()
            .and_then(|p| p.as_ident())
            .is_some_and(|i| i.quote_style == Some('\''));
        if let Ok(only) = names::single(name)
            && !file
            && !self.ctes.contains(&only)
        {
            *name = ObjectName::from(vec![names::ident(self.schema), names::ident(&only)]);
        }
        if let Ok(found) = names::qualified(name, self.schema) {
            self.found.insert(found);
        }
        ControlFlow::Continue(())
    }
}

struct CteNames<'a>(&'a mut HashSet<String>);

impl VisitorMut for CteNames<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(with) = &query.with {
            self.0.extend(
                with.cte_tables
                    .iter()
                    .map(|cte| names::fold(&cte.alias.name)),
            );
        }
        ControlFlow::Continue(())
    }
}
