//! The table that a statement changes, and its name within the statement's expressions.

use crate::parse::names;
use crate::planning::context::StatementContext;
use datafusion::common::{Column, TableReference};
use datafusion::sql::sqlparser::ast;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState};
use strandline_engine::catalog::TableDef;

/// The target of an INSERT, UPDATE, DELETE or MERGE.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// the table's definition in the statement's catalog
    pub table: Arc<TableDef>,
    /// its alias, or its own name
    pub alias: String,
    name: ast::ObjectName,
}

impl Target {
    /// The target of an INSERT, with its alias.
    pub fn named(
        context: &StatementContext,
        name: &ast::ObjectName,
        alias: Option<&ast::Ident>,
    ) -> Result<Self> {
        let table = context.resolve_table(name)?;
        let alias = alias.map_or_else(|| table.name.clone(), names::fold);
        Ok(Self {
            table,
            alias,
            name: name.clone(),
        })
    }

    /// The target of UPDATE, DELETE or MERGE; `verb` is for error messages.
    pub fn of_factor(
        context: &StatementContext,
        factor: &ast::TableFactor,
        verb: &str,
    ) -> Result<Self> {
        let ast::TableFactor::Table {
            name,
            alias,
            args,
            with_hints,
            version,
            with_ordinality,
            partitions,
            json_path,
            sample,
            index_hints,
        } = factor
        else {
            return Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                format!("{verb} needs the name of a table, not \"{factor}\""),
            ));
        };
        if version.is_some() {
            return Err(Error::invalid(
                SqlState::WRONG_OBJECT_TYPE,
                format!("cannot {verb} \"{name}\" as of a moment in the past"),
            )
            .with_hint("The past can be read, not changed: leave out FOR SYSTEM_TIME AS OF."));
        }
        let plain = args.is_none()
            && with_hints.is_empty()
            && !with_ordinality
            && partitions.is_empty()
            && json_path.is_none()
            && sample.is_none()
            && index_hints.is_empty()
            && alias
                .as_ref()
                .is_none_or(|a| a.columns.is_empty() && a.at.is_none());
        if !plain {
            return Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                format!("syntax error: the target \"{factor}\" of {verb} has extra clauses"),
            )
            .with_hint("Write the table's name and, if needed, an alias."));
        }
        Self::named(context, name, alias.as_ref().map(|a| &a.name))
    }

    /// The target of UPDATE or DELETE, which must not be a join.
    pub fn of_joined(
        context: &StatementContext,
        joined: &ast::TableWithJoins,
        verb: &str,
        other_tables: &str,
    ) -> Result<Self> {
        if !joined.joins.is_empty() {
            return Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                format!("syntax error: {verb} changes one table, not a join"),
            )
            .with_hint(format!("Name the other tables in {other_tables}.")));
        }
        Self::of_factor(context, &joined.relation, verb)
    }

    /// The same table under another alias.
    pub fn called(&self, alias: &str) -> Self {
        Self {
            alias: alias.to_string(),
            ..self.clone()
        }
    }

    /// The target as a factor of FROM, always with its alias.
    pub fn factor(&self) -> ast::TableFactor {
        table_factor(&self.name, Some(names::ident(&self.alias)))
    }

    /// The target as an item of FROM.
    pub fn joined(&self) -> ast::TableWithJoins {
        from_as(&self.name, &self.alias)
    }

    /// The qualifier of the target's columns in plans.
    pub fn qualifier(&self) -> TableReference {
        TableReference::bare(self.alias.clone())
    }

    /// A column of the target in a plan.
    pub fn column(&self, name: &str) -> Column {
        Column::new(Some(self.qualifier()), name)
    }

    /// `alias._rowid` in SQL.
    pub fn row_id(&self) -> ast::Expr {
        ast::Expr::CompoundIdentifier(vec![names::ident(&self.alias), names::ident(names::ROW_ID)])
    }

    /// The position of column `name` (`column` or `alias.column`) in SET or in a column list.
    pub fn position(&self, name: &ast::ObjectName) -> Result<usize> {
        let parts = names::parts(name)?;
        let column = match parts.as_slice() {
            [column] => column,
            [table, column] if *table == self.alias || *table == self.table.name => column,
            _ => {
                return Err(Error::invalid(
                    SqlState::UNDEFINED_COLUMN,
                    format!("\"{name}\" is not a column of \"{}\"", self.table.name),
                ));
            }
        };
        self.table
            .columns
            .iter()
            .position(|c| c.name == *column)
            .ok_or_else(|| {
                self.table
                    .require_column(column)
                    .err()
                    .unwrap_or_else(|| Error::internal("a column is there and is not"))
            })
    }
}

fn table_factor(name: &ast::ObjectName, alias: Option<ast::Ident>) -> ast::TableFactor {
    ast::TableFactor::Table {
        name: name.clone(),
        alias: alias.map(|name| ast::TableAlias {
            explicit: true,
            name,
            columns: Vec::new(),
            at: None,
        }),
        args: None,
        with_hints: Vec::new(),
        version: None,
        with_ordinality: false,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// A table as an item of FROM, with an alias.
pub(crate) fn from_as(name: &ast::ObjectName, alias: &str) -> ast::TableWithJoins {
    ast::TableWithJoins {
        relation: table_factor(name, Some(names::ident(alias))),
        joins: Vec::new(),
    }
}

/// A table as an item of FROM, without alias.
pub(super) fn plain_from(name: &ast::ObjectName) -> ast::TableWithJoins {
    ast::TableWithJoins {
        relation: table_factor(name, None),
        joins: Vec::new(),
    }
}
