//! Facts about a query, from one walk over its syntax tree. Planning leaves out each step whose
//! fact is missing: most queries have no locking clause, no parameter, no merged column, no hidden
//! column and no name of a system table.

use crate::catalogs::pg_catalog;
use crate::catalogs::pg_catalog::functions::Used;
use crate::parse::locking_clauses::read;
use crate::parse::names::{self, TABLE_OID};
use crate::planning::references::merged::merges;
use datafusion::sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, SetExpr, Value, ValueWithSpan, Visitor,
};
use std::ops::ControlFlow;
use strandline_semantics::sql::walk::walk;

/// Facts about a query and all queries in it.
#[derive(Default)]
pub struct QueryFacts {
    /// the first locking clause
    pub locking_clause: Option<&'static str>,
    /// it has INSERT, UPDATE, DELETE or MERGE
    pub changes_rows: bool,
    /// the system's functions that it calls
    pub used: Used,
    /// it has `$1`, `$2`, …
    pub has_parameters: bool,
    /// a join merges columns: USING or NATURAL
    pub merges_columns: bool,
    /// a relation has the name of a system table, without a schema
    pub names_system_table: bool,
    /// `tableoid` may be a column
    pub names_table_oid: bool,
}

impl QueryFacts {
    /// The facts about `query`.
    pub fn of(query: &Query) -> Self {
        let mut facts = Self::default();
        let _ = walk(query, &mut facts);
        facts
    }

    /// Whether the query changes and locks no rows, and calls no function that writes.
    pub fn only_reads(&self) -> bool {
        !self.changes_rows && self.locking_clause.is_none() && self.used.writer().is_none()
    }
}

impl Visitor for QueryFacts {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.changes_rows |= matches!(
            *query.body,
            SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_)
        );
        if self.locking_clause.is_none() {
            let first = query.locks.first();
            self.locking_clause = first.map(|clause| read(clause).0.clause());
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.merges_columns |= merges(&select.from);
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
        self.names_system_table |= names::single(name).is_ok_and(|name| pg_catalog::has(&name));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.used.note(expr);
        self.names_table_oid |= names::is_column(expr, TABLE_OID);
        ControlFlow::Continue(())
    }

    fn pre_visit_value(&mut self, value: &ValueWithSpan) -> ControlFlow<()> {
        self.has_parameters |= matches!(value.value, Value::Placeholder(_));
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_is_found_in_any_part_of_a_query() {
        let facts = |sql: &str| QueryFacts::of(&crate::parse::query(sql).expect(sql));
        let all = |facts: &QueryFacts| {
            [
                !facts.only_reads(),
                !facts.used.is_empty(),
                facts.has_parameters,
                facts.merges_columns,
                facts.names_system_table,
                facts.names_table_oid,
            ]
        };
        let none = [false; 6];
        assert_eq!(all(&facts("SELECT a, count(*) FROM t GROUP BY a")), none);
        let has = |at: usize, sql: &str| assert!(all(&facts(sql))[at], "{at}: {sql}");
        for part in [
            "SELECT 1 WHERE EXISTS ({})",
            "WITH c AS ({}) SELECT 1",
            "({}) UNION SELECT 1",
        ] {
            let within = |sql: &str| part.replace("{}", sql);
            has(0, &within("SELECT setval('s', 1)"));
            has(1, &within("SELECT pg_catalog.pg_get_userbyid(1)"));
            has(2, &within("SELECT a FROM t LIMIT $1"));
            has(3, &within("SELECT a FROM u, (t JOIN s USING (a))"));
            has(3, &within("SELECT a FROM t NATURAL JOIN s"));
            has(4, &within("SELECT a FROM t, pg_class"));
            has(5, &within("SELECT t.TableOid FROM t"));
            has(5, &within("SELECT a FROM t ORDER BY tableoid"));
        }
        has(0, "SELECT a FROM (SELECT a FROM t FOR UPDATE) AS q");
        has(0, "WITH c AS (DELETE FROM t RETURNING a) SELECT a FROM c");
        let not = all(&facts(
            "SELECT a AS tableoid, \"TABLEOID\" FROM pg_catalog.pg_class JOIN t ON true",
        ));
        assert_eq!(not, none);
    }
}
