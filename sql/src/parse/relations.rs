//! The relations that a query names.

use super::cte_scopes::CteScopes;
use super::names;
use datafusion::sql::sqlparser::ast::{ObjectName, Query, TableFactor, VisitorMut};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use strandline_semantics::sql::walk::walk_mut;

/// Adds `schema` to bare names of relations that are neither WITH queries, system tables, files nor
/// table functions. Returns the relations of the query, each as schema and name.
pub fn qualify(
    query: &mut Query,
    schema: &str,
    is_system: fn(&str) -> bool,
) -> BTreeSet<(String, String)> {
    let mut qualifier = Qualifier {
        schema,
        is_system,
        ctes: CteScopes::default(),
        found: BTreeSet::new(),
    };
    let _ = walk_mut(query, &mut qualifier);
    qualifier.found
}

struct Qualifier<'a> {
    schema: &'a str,
    is_system: fn(&str) -> bool,
    ctes: CteScopes,
    found: BTreeSet<(String, String)>,
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

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        let TableFactor::Table {
            name, args: None, ..
        } = factor
        else {
            return ControlFlow::Continue(());
        };
        let first = name.0.first().and_then(|part| part.as_ident());
        if first.is_some_and(|ident| ident.quote_style == Some('\'')) {
            return ControlFlow::Continue(());
        }
        if let Ok(only) = names::single(name) {
            if self.ctes.has(&only) || (self.is_system)(&only) {
                return ControlFlow::Continue(());
            }
            *name = ObjectName::from(vec![names::ident(self.schema), names::ident(&only)]);
        }
        if let Ok(found) = names::qualified(name, self.schema) {
            self.found.insert(found);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of `sql` with schema `s`, and the relations that it names.
    fn qualified(sql: &str) -> (String, Vec<String>) {
        let mut query = crate::parse::query(sql).expect("parses");
        let found = qualify(&mut query, "s", |name| name == "pg_class");
        let found = found.into_iter();
        let found = found.map(|(schema, name)| format!("{schema}.{name}"));
        (query.to_string(), found.collect())
    }

    #[test]
    fn a_with_query_hides_a_relation_only_where_it_is_visible() {
        let cases = [
            (
                "SELECT * FROM t, (WITH t AS (SELECT 1 AS x) SELECT * FROM t) AS q",
                "SELECT * FROM \"s\".\"t\", (WITH t AS (SELECT 1 AS x) SELECT * FROM t) AS q",
                &["s.t"][..],
            ),
            (
                "WITH t AS (SELECT * FROM t) SELECT * FROM t JOIN u USING (a)",
                "WITH t AS (SELECT * FROM \"s\".\"t\") \
                 SELECT * FROM t JOIN \"s\".\"u\" USING(a)",
                &["s.t", "s.u"],
            ),
            (
                "WITH RECURSIVE t AS (SELECT 1 UNION SELECT * FROM t) SELECT * FROM t",
                "WITH RECURSIVE t AS (SELECT 1 UNION SELECT * FROM t) SELECT * FROM t",
                &[],
            ),
            (
                "SELECT * FROM pg_class, other.t, 'file.csv', generate_series(1, 3)",
                "SELECT * FROM pg_class, other.t, 'file.csv', generate_series(1, 3)",
                &["other.t"],
            ),
        ];
        for (sql, text, named) in cases {
            assert_eq!(
                qualified(sql),
                (
                    text.to_string(),
                    named.iter().map(ToString::to_string).collect()
                )
            );
        }
    }
}
