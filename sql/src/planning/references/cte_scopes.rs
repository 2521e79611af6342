//! Which names mean WITH queries at a place of a statement, for visitors that look at names before
//! they are resolved.
//!
//! A WITH query's own body sees only the queries written before it (all of them under RECURSIVE); a
//! name is in force in the query that it belongs to and in those inside, nowhere else.

use crate::parse::names::fold;
use datafusion::sql::sqlparser::ast::Query;
use std::collections::{HashSet, VecDeque};

/// The scopes of the queries that a visitor is in. A visitor comes to the bodies of WITH queries
/// first, in order.
#[derive(Default)]
pub struct CteScopes(Vec<Scope>);

#[derive(Default)]
struct Scope {
    in_force: HashSet<String>,
    /// whose bodies have not been visited
    pending: VecDeque<String>,
}

impl CteScopes {
    /// The visitor comes to `query`.
    pub fn enter(&mut self, query: &Query) {
        let mut scope = Scope::default();
        if let Some(with) = &query.with {
            let names = with.cte_tables.iter().map(|cte| fold(&cte.alias.name));
            if with.recursive {
                scope.in_force.extend(names);
            } else {
                scope.pending.extend(names);
            }
        }
        self.0.push(scope);
    }

    /// It leaves the query that it came to last: if that was the body of a WITH query, the name is
    /// in force from now on.
    pub fn leave(&mut self) {
        self.0.pop();
        if let Some(scope) = self.0.last_mut() {
            let visited = scope.pending.pop_front();
            scope.in_force.extend(visited);
        }
    }

    /// Whether `name` is a WITH query to the body of the query that the visitor came to last.
    pub fn has(&self, name: &str) -> bool {
        let own = self
            .0
            .last()
            .is_some_and(|s| s.pending.iter().any(|n| n == name));
        own || self.0.iter().any(|s| s.in_force.contains(name))
    }
}
