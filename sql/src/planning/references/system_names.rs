//! Names without a schema that are also system tables' names. PostgreSQL searches `pg_catalog`
//! before the schemas of `search_path`.

use crate::catalogs::pg_catalog;
use crate::parse::cte_scopes::CteScopes;
use crate::parse::names;
use datafusion::sql::sqlparser::ast::{ObjectName, Query, VisitorMut};
use std::ops::ControlFlow;
use strandline_semantics::sql::walk::walk_mut;

/// Gives the names of system tables their schema where they would not be found without it.
pub fn qualify(query: &mut Query, is_hidden: impl Fn(&str) -> bool) {
    let mut qualifier = Qualifier {
        ctes: CteScopes::default(),
        is_hidden: &is_hidden,
    };
    let _ = walk_mut(query, &mut qualifier);
}

struct Qualifier<'a> {
    ctes: CteScopes,
    is_hidden: &'a dyn Fn(&str) -> bool,
}

impl VisitorMut for Qualifier<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        self.ctes.enter(query);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.ctes.leave();
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
        if let Ok(name) = names::single(relation)
            && pg_catalog::has(&name)
            && !self.ctes.has(&name)
            && (self.is_hidden)(&name)
        {
            let system = names::ident(pg_catalog::PG_CATALOG);
            *relation = ObjectName::from(vec![system, names::ident(&name)]);
        }
        ControlFlow::Continue(())
    }
}
