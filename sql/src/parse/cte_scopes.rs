//! The names that refer to WITH queries at a place of a statement, for visitors of unresolved
//! names.
//!
//! The body of a WITH query sees only the WITH queries before it (all of them under RECURSIVE). A
//! name is visible in the query that it belongs to and in the queries inside it.

use super::names::fold;
use datafusion::sql::sqlparser::ast::Query;
use std::collections::{HashSet, VecDeque};

/// The scopes of the queries around a visitor. A visitor enters the bodies of WITH queries first,
/// in order.
#[derive(Default)]
pub struct CteScopes(Vec<Scope>);

#[derive(Default)]
struct Scope {
    in_force: HashSet<String>,
    /// names whose bodies are not visited yet
    pending: VecDeque<String>,
}

impl CteScopes {
    /// The visitor enters `query`.
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

    /// The visitor leaves its present query. If that was the body of a WITH query, its name becomes
    /// visible.
    pub fn leave(&mut self) {
        self.0.pop();
        if let Some(scope) = self.0.last_mut() {
            let visited = scope.pending.pop_front();
            scope.in_force.extend(visited);
        }
    }

    /// Whether `name` is a WITH query that the body of the visitor's present query can see.
    pub fn has(&self, name: &str) -> bool {
        let own = self
            .0
            .last()
            .is_some_and(|s| s.pending.iter().any(|n| n == name));
        own || self.0.iter().any(|s| s.in_force.contains(name))
    }
}
