//! ALTER TABLE.

mod add_column;
mod alter_column;
mod rename;

use super::constraint::{self, Declared};
use super::constraint_names::undefined_constraint;
use super::storage_options::StorageOptions;
use super::{dependents, foreign_key, index, verify};
use crate::catalogs::lookup;
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::statements::roles;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{
    AlterTable, AlterTableOperation as Operation, DropBehavior, Ident, TableConstraint,
};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, TableId};
use strandline_engine::access::Object;
use strandline_engine::catalog::{Catalog, TableDef};

/// Executes ALTER TABLE: its operations one after the other.
pub async fn execute(context: &StatementContext, alter: &AlterTable) -> Result<Summary> {
    let table = match context.resolve_table(&alter.name) {
        Ok(table) => table,
        Err(error) if error.sqlstate() == SqlState::UNDEFINED_TABLE => {
            if let Some((table, name)) = context.find_index(&alter.name)? {
                let mut operations = alter.operations.iter();
                operations.try_for_each(|o| index::alter(context, table, &name, o))?;
                return Ok(Summary::tag("ALTER INDEX"));
            }
            context.skip(alter.if_exists, error)?;
            return Ok(Summary::tag("ALTER TABLE"));
        }
        Err(error) => match given_view(context, alter)? {
            true => return Ok(Summary::tag("ALTER TABLE")),
            false => return Err(error),
        },
    };
    for operation in &alter.operations {
        apply(context, table.id, operation).await?;
    }
    Ok(Summary::tag("ALTER TABLE"))
}

/// Gives a view to another owner, if that is all that is wanted: PostgreSQL takes ALTER TABLE for
/// it.
fn given_view(context: &StatementContext, alter: &AlterTable) -> Result<bool> {
    let (schema, name) = lookup::existing(&alter.name, &context.default_schema)?;
    match alter.operations.as_slice() {
        [Operation::OwnerTo { new_owner }] if context.catalog.view(&schema, &name).is_some() => {
            roles::give_to(context, &Object::View(schema, name), new_owner)?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

async fn apply(context: &StatementContext, table: TableId, operation: &Operation) -> Result<()> {
    match operation {
        Operation::AddColumn {
            if_not_exists,
            column_def,
            ..
        } => add_column::execute(context, table, column_def, *if_not_exists).await,
        Operation::DropColumn {
            column_names,
            if_exists,
            drop_behavior,
            ..
        } => {
            let cascade = matches!(drop_behavior, Some(DropBehavior::Cascade));
            for name in column_names {
                drop_column(context, table, name, *if_exists, cascade).await?;
            }
            Ok(())
        }
        Operation::RenameColumn {
            old_column_name,
            new_column_name,
        } => rename::column(context, table, old_column_name, new_column_name).await,
        Operation::OwnerTo { new_owner } => {
            roles::give_to(context, &Object::Table(table), new_owner)
        }
        Operation::RenameTable { table_name } => rename::table(context, table, table_name).await,
        Operation::RenameConstraint { old_name, new_name } => {
            rename::constraint(context, table, old_name, new_name)
        }
        Operation::AlterColumn { column_name, op } => {
            alter_column::execute(context, table, column_name, op).await
        }
        Operation::AddConstraint {
            constraint,
            not_valid,
        } => add_constraint(context, table, constraint, *not_valid).await,
        Operation::DropConstraint {
            if_exists,
            name,
            drop_behavior,
        } => {
            let cascade = matches!(drop_behavior, Some(DropBehavior::Cascade));
            drop_constraint(context, table, name, *if_exists, cascade)
        }
        Operation::ValidateConstraint { name } => validate(context, table, name).await,
        Operation::SetOptionsParens { options } => {
            let options = StorageOptions::read(options)?;
            edit(context, table, &mut |_, def| options.apply(def))
        }
        other => Err(Error::unsupported(format!(
            "ALTER TABLE … {other} is not supported"
        ))),
    }
}

/// Changes the definition of one table.
fn edit(
    context: &StatementContext,
    table: TableId,
    change: &mut dyn FnMut(&mut Catalog, &mut TableDef) -> Result<()>,
) -> Result<()> {
    context
        .statement
        .transaction()
        .change_catalog(&mut |catalog| {
            let mut def = TableDef::clone(catalog.tables.get(&table).ok_or_else(|| gone(table))?);
            change(catalog, &mut def)?;
            catalog.put_table(def);
            Ok(())
        })
}

/// The table's present definition in the transaction.
fn definition(context: &StatementContext, table: TableId) -> Result<Arc<TableDef>> {
    let catalog = context.statement.transaction().catalog();
    catalog
        .tables
        .get(&table)
        .cloned()
        .ok_or_else(|| gone(table))
}

fn gone(table: TableId) -> Error {
    Error::invalid(
        SqlState::UNDEFINED_TABLE,
        format!("the table (number {table}) was dropped by another transaction"),
    )
}

async fn drop_column(
    context: &StatementContext,
    table: TableId,
    name: &Ident,
    if_exists: bool,
    cascade: bool,
) -> Result<()> {
    let name = names::fold(name);
    let def = definition(context, table)?;
    let Some(column) = def.column(&name) else {
        return match def.require_column(&name) {
            Ok(_) => Ok(()),
            Err(error) => context.skip(if_exists, error),
        };
    };
    let id = column.id;
    let what = format!("column {name} of table {}", def.name);
    edit_with_references(context, table, (&what, &what), cascade, &mut |def| {
        def.columns.retain(|c| c.id != id);
        def.keys.retain(|key| !key.columns.contains(&id));
        def.indexes.retain(|def| !index::needs(def, id));
        def.foreign_keys.retain(|key| !key.columns.contains(&id));
        let checks = std::mem::take(&mut def.checks);
        for check in checks {
            if !names::mentions(&crate::parse::expression(&check.expression)?, &name) {
                def.checks.push(check);
            }
        }
        Ok(())
    })?;
    dependents::settle(context, &what, cascade).await
}

async fn add_constraint(
    context: &StatementContext,
    table: TableId,
    written: &TableConstraint,
    not_valid: bool,
) -> Result<()> {
    match written {
        TableConstraint::PrimaryKeyUsingIndex(using) => {
            return index::promote(context, table, using, true).await;
        }
        TableConstraint::UniqueUsingIndex(using) => {
            return index::promote(context, table, using, false).await;
        }
        TableConstraint::ForeignKey(written) => {
            if let Some(name) = crate::parse::foreign_keys::altered(written) {
                let name = names::fold(name);
                return edit(context, table, &mut |_, def| {
                    foreign_key::alter(def, &name, written)
                });
            }
        }
        _ => {}
    }
    let mut declared = constraint::declare(written)?;
    match &mut declared {
        Declared::ForeignKey(key) => key.not_valid = not_valid,
        _ if not_valid => {
            return Err(Error::unsupported(
                "NOT VALID is supported for foreign keys only",
            ));
        }
        _ => {}
    }
    add_declared(context, table, &declared).await
}

/// VALIDATE CONSTRAINT: checks the rows from before NOT VALID.
async fn validate(context: &StatementContext, table: TableId, name: &Ident) -> Result<()> {
    let name = names::fold(name);
    let def = definition(context, table)?;
    let Some(key) = def.foreign_keys.iter().find(|key| key.name == name) else {
        let is_known = def.checks.iter().any(|check| check.name == name);
        return match is_known {
            true => Ok(()), // it holds for all rows
            false => Err(undefined_constraint(&name, &def.name)),
        };
    };
    if !key.not_valid {
        return Ok(());
    }
    edit(context, table, &mut |_, def| {
        let mut keys = def.foreign_keys.iter_mut();
        if let Some(key) = keys.find(|key| key.name == name) {
            Arc::make_mut(key).not_valid = false;
        }
        Ok(())
    })?;
    verify::foreign_key(context, &*definition(context, table)?, key).await
}

/// Adds a constraint and verifies it.
async fn add_declared(
    context: &StatementContext,
    table: TableId,
    declared: &Declared,
) -> Result<()> {
    edit(context, table, &mut |catalog, def| {
        constraint::add(context, catalog, def, declared)
    })?;
    let def = definition(context, table)?;
    match declared {
        Declared::Key(_) => match def.keys.last() {
            Some(key) => verify::key(context, &def, key).await,
            None => Ok(()),
        },
        Declared::Check { .. } => match def.checks.last() {
            Some(check) => verify::check(context, &def, &check.name, &check.expression).await,
            None => Ok(()),
        },
        Declared::ForeignKey(_) => match def.foreign_keys.last() {
            Some(key) if !key.not_valid => verify::foreign_key(context, &def, key).await,
            _ => Ok(()),
        },
    }
}

fn drop_constraint(
    context: &StatementContext,
    table: TableId,
    name: &Ident,
    if_exists: bool,
    cascade: bool,
) -> Result<()> {
    let name = names::fold(name);
    let def = definition(context, table)?;
    let known = def.keys.iter().any(|k| k.name == name)
        || def.checks.iter().any(|c| c.name == name)
        || def.foreign_keys.iter().any(|k| k.name == name);
    if !known {
        return context.skip(if_exists, undefined_constraint(&name, &def.name));
    }
    let what = format!("constraint {name} on table {}", def.name);
    let needed = format!("index {name}");
    edit_with_references(context, table, (&what, &needed), cascade, &mut |def| {
        def.keys.retain(|k| k.name != name);
        def.checks.retain(|c| c.name != name);
        def.foreign_keys.retain(|k| k.name != name);
        Ok(())
    })
}

/// Changes the definition of one table. Foreign keys that lose their referenced key are dropped too
/// (CASCADE), or forbid the change. For messages: `what` is dropped, and the foreign keys depend on
/// `needed`.
fn edit_with_references(
    context: &StatementContext,
    table: TableId,
    (what, needed): (&str, &str),
    cascade: bool,
    change: &mut dyn FnMut(&mut TableDef) -> Result<()>,
) -> Result<()> {
    let transaction = context.statement.transaction();
    transaction.change_catalog(&mut |catalog| {
        let mut def = TableDef::clone(catalog.tables.get(&table).ok_or_else(|| gone(table))?);
        change(&mut def)?;
        catalog.put_table(def);
        foreign_key::settle(context, catalog, (what, Some(needed)), cascade)
    })
}
