//! What a statement is compiled for, and the names that its expressions know.

use super::planner::Planner;
use crate::catalogs::lookup;
use crate::parse::names;
use crate::planning::provider::registered::RegisteredTables;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{self, Expr, TableFactor};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use strandline_base::SqlType;
use strandline_engine::Db;
use strandline_engine::catalog::{Catalog, TableDef};

/// The proposed row's name.
pub(super) const EXCLUDED: &str = "excluded";

/// What statements are compiled for.
pub(crate) struct Compiler<'a> {
    pub db: &'a Db,
    pub catalog: &'a Arc<Catalog>,
    pub default_schema: &'a str,
    /// tables of the session that hide stored ones
    pub registered: &'a RegisteredTables,
    /// per parameter its type; None: its value's
    pub types: &'a [Option<SqlType>],
    /// values of parameters that have no declared type
    pub literals: &'a [ScalarValue],
    /// whether secondary indexes may be asked
    pub uses_indexes: bool,
    /// set when the statement asks for `now()`
    pub asks_now: Cell<bool>,
    /// its subqueries, inner ones first, with the types of their values
    pub subqueries: RefCell<Vec<(ast::Query, SqlType)>>,
    /// for expressions beyond those compiled from the syntax tree
    pub planner: Planner<'a>,
}

/// The names that a statement's expressions know: those of one table.
pub(super) struct Scope<'a> {
    pub table: &'a Arc<TableDef>,
    pub alias: String,
    /// the tables of the names, for the planner
    pub from: Vec<ast::TableWithJoins>,
    /// whether `excluded.c` is a column of a proposed row, and `c` alone is ambiguous
    pub proposes: bool,
}

/// A column of the table, or of the proposed row.
pub(super) enum Named {
    Column(usize),
    Excluded(usize),
}

impl Scope<'_> {
    pub fn position(&self, name: &ast::Ident) -> Option<usize> {
        let name = names::fold(name);
        self.table.columns.iter().position(|c| c.name == name)
    }

    pub fn named(&self, expr: &Expr) -> Option<Named> {
        match expr {
            Expr::Identifier(name) if !self.proposes => self.position(name).map(Named::Column),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [table, column] if names::fold(table) == self.alias => {
                    self.position(column).map(Named::Column)
                }
                [table, column] if self.proposes && names::fold(table) == EXCLUDED => {
                    self.position(column).map(Named::Excluded)
                }
                _ => None,
            },
            _ => None,
        }
    }

    pub fn column(&self, expr: &Expr) -> Option<usize> {
        match self.named(expr)? {
            Named::Column(position) => Some(position),
            Named::Excluded(_) => None,
        }
    }
}

impl Compiler<'_> {
    pub(super) fn table(&self, name: &ast::ObjectName) -> Option<&Arc<TableDef>> {
        let (schema, table) = lookup::existing(name, self.default_schema).ok()?;
        match self.registered.get(&table) {
            None => self.catalog.table(&schema, &table),
            Some(_) => None,
        }
    }

    /// The one table of a FROM.
    pub(super) fn scope(&self, from: &[ast::TableWithJoins]) -> Option<Scope<'_>> {
        let [ast::TableWithJoins { relation, joins }] = from else {
            return None;
        };
        let TableFactor::Table {
            name,
            alias,
            args: None,
            with_hints,
            version: None,
            with_ordinality: false,
            partitions,
            json_path: None,
            sample: None,
            index_hints,
        } = relation
        else {
            return None;
        };
        let plain_alias = |a: &ast::TableAlias| a.columns.is_empty() && a.at.is_none();
        let is_plain = joins.is_empty()
            && with_hints.is_empty()
            && partitions.is_empty()
            && index_hints.is_empty()
            && alias.as_ref().is_none_or(plain_alias);
        let table = self.table(name).filter(|_| is_plain)?;
        let alias = alias.as_ref().map(|a| names::fold(&a.name));
        Some(Scope {
            table,
            alias: alias.unwrap_or_else(|| table.name.clone()),
            from: from.to_vec(),
            proposes: false,
        })
    }
}
