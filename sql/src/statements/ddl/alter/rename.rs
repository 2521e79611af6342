//! RENAME: a column, the table, a constraint. Conditions and views stored as text are rewritten.

use super::{definition, edit};
use crate::parse;
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::statements::ddl::constraint_names::undefined_constraint;
use crate::statements::ddl::{create_table, dependents, relation_names, view_relations};
use datafusion::sql::sqlparser::ast::{Expr, Ident, RenameTableNameKind, VisitorMut};
use std::ops::ControlFlow;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, TableId};
use strandline_engine::catalog::TableDef;
use strandline_engine::catalog::index::IndexValue;
use strandline_semantics::sql::walk::walk_mut;

pub async fn column(
    context: &StatementContext,
    table: TableId,
    old: &Ident,
    new: &Ident,
) -> Result<()> {
    let def = definition(context, table)?;
    let old = names::fold(old);
    let id = def.require_column(&old)?.id;
    let new = names::fold(new);
    names::check_column(&new)?;
    if def.column(&new).is_some() {
        return Err(Error::invalid(
            SqlState::DUPLICATE_COLUMN,
            format!(
                "column \"{new}\" of relation \"{}\" already exists",
                def.name
            ),
        ));
    }
    edit(context, table, &mut |catalog, def| {
        view_relations::rename(catalog, def, None, Some((&old, &new)))?;
        for column in &mut def.columns {
            if column.id == id {
                column.name.clone_from(&new);
            }
        }
        rewrite_expressions(
            def,
            &mut Renaming {
                table: None,
                column: Some((&old, &new)),
            },
        )
    })?;
    dependents::settle(
        context,
        &format!("column {old} of table {}", def.name),
        false,
    )
    .await
}

pub async fn table(
    context: &StatementContext,
    table: TableId,
    new: &RenameTableNameKind,
) -> Result<()> {
    let (RenameTableNameKind::To(new) | RenameTableNameKind::As(new)) = new;
    let new = names::single(new)?;
    names::check(&new)?;
    let old = definition(context, table)?.name.clone();
    edit(context, table, &mut |catalog, def| {
        create_table::require_free(catalog, &def.schema, &new)?;
        view_relations::rename(catalog, def, Some(&new), None)?;
        def.name.clone_from(&new);
        rewrite_expressions(
            def,
            &mut Renaming {
                table: Some((&old, &new)),
                column: None,
            },
        )
    })?;
    dependents::settle(context, &format!("table {old}"), false).await
}

pub fn constraint(
    context: &StatementContext,
    table: TableId,
    old: &Ident,
    new: &Ident,
) -> Result<()> {
    let (old, new) = (names::fold(old), names::fold(new));
    names::check(&new)?;
    edit(context, table, &mut |catalog, def| {
        let is_key = def.keys.iter().any(|key| key.name == old);
        let keys = def.keys.iter_mut().map(|k| &mut k.name);
        let references = def.foreign_keys.iter_mut().map(Arc::make_mut);
        let mut all: Vec<&mut String> = keys
            .chain(def.checks.iter_mut().map(|c| &mut c.name))
            .chain(references.map(|k| &mut k.name))
            .collect();
        if all.iter().any(|name| **name == new) {
            return Err(Error::invalid(
                SqlState::DUPLICATE_OBJECT,
                format!(
                    "constraint \"{new}\" for relation \"{}\" already exists",
                    def.name
                ),
            ));
        }
        if is_key {
            relation_names::require_free(catalog, &def.schema, &new)?;
        }
        match all.iter_mut().find(|name| ***name == old) {
            Some(name) => name.clone_from(&new),
            None => return Err(undefined_constraint(&old, &def.name)),
        }
        Ok(())
    })
}

/// The old and the new name of the table, or of one of its columns, in stored conditions.
struct Renaming<'a> {
    table: Option<(&'a str, &'a str)>,
    column: Option<(&'a str, &'a str)>,
}

fn rewrite_expressions(def: &mut TableDef, renaming: &mut Renaming<'_>) -> Result<()> {
    for check in &mut def.checks {
        let mut expression = parse::expression(&check.expression)?;
        let _ = walk_mut(&mut expression, renaming);
        check.expression = expression.to_string();
    }
    for index in &mut def.indexes {
        if index.is_plain() {
            continue;
        }
        let index = Arc::make_mut(index);
        let parts = index
            .parts
            .iter_mut()
            .filter_map(|part| match &mut part.value {
                IndexValue::Expression(expression) => Some(expression),
                IndexValue::Column(_) => None,
            });
        for known in parts.chain(&mut index.predicate) {
            let mut expression = parse::expression(&known.sql)?;
            let _ = walk_mut(&mut expression, renaming);
            known.sql = expression.to_string();
        }
    }
    Ok(())
}

impl VisitorMut for Renaming<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let rename = |ident: &mut Ident, names: Option<(&str, &str)>| {
            if let Some((old, new)) = names
                && names::fold(ident) == old
            {
                *ident = names::ident(new);
            }
        };
        match expr {
            Expr::Identifier(ident) => rename(ident, self.column),
            Expr::CompoundIdentifier(parts) => {
                if let [.., table, column] = parts.as_mut_slice() {
                    rename(table, self.table);
                    rename(column, self.column);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
