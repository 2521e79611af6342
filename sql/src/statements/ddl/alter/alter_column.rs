//! ALTER COLUMN.

use super::{definition, edit};
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::statements::ddl::{column, types, verify};
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation as Operation, DataType, GeneratedAs, Ident,
};
use strandline_base::{ColumnId, Error, Result, SqlState, SqlType, TableId};
use strandline_engine::catalog::{ColumnDef, TableDef};

pub async fn execute(
    context: &StatementContext,
    table: TableId,
    name: &Ident,
    operation: &Operation,
) -> Result<()> {
    let name = names::fold(name);
    let def = definition(context, table)?;
    let column = def.require_column(&name)?.clone();
    match operation {
        Operation::SetNotNull => {
            change(context, table, column.id, &mut |c| c.not_null = true)?;
            verify::not_null(context, &*definition(context, table)?, &name).await
        }
        Operation::DropNotNull => {
            may_be_null(&def, &column)?;
            change(context, table, column.id, &mut |c| c.not_null = false)
        }
        Operation::SetDefault { value } => {
            if column.identity.is_some() {
                return Err(Error::invalid(
                    SqlState::SYNTAX_ERROR,
                    format!(
                        "column \"{name}\" of relation \"{}\" is an identity column",
                        def.name
                    ),
                ));
            }
            let text = column::default_text(context, value, column.sql_type, &name)?;
            change(context, table, column.id, &mut |c| {
                c.default.clone_from(&text)
            })
        }
        Operation::DropDefault => change(context, table, column.id, &mut |c| c.default = None),
        Operation::SetDataType {
            data_type, using, ..
        } => {
            if using.is_some() {
                return Err(rewrite(&name));
            }
            set_type(context, table, &column, data_type)
        }
        Operation::AddGenerated {
            generated_as,
            sequence_options,
        } => {
            if !column.not_null {
                return Err(Error::invalid(
                    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    format!(
                        "column \"{name}\" of relation \"{}\" must be declared NOT NULL before \
                         identity can be added",
                        def.name
                    ),
                ));
            }
            if column.identity.is_some() || column.default.is_some() {
                return Err(Error::invalid(
                    SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
                    format!("column \"{name}\" already has a default value or an identity"),
                ));
            }
            let kind = generated_as.unwrap_or(GeneratedAs::Always);
            let identity = column::identity(&kind, sequence_options, &column)?;
            change(context, table, column.id, &mut |c| {
                c.identity = Some(identity.clone())
            })
        }
    }
}

fn change(
    context: &StatementContext,
    table: TableId,
    column: ColumnId,
    change: &mut dyn FnMut(&mut ColumnDef),
) -> Result<()> {
    edit(context, table, &mut |_, def| {
        def.columns
            .iter_mut()
            .filter(|c| c.id == column)
            .for_each(&mut *change);
        Ok(())
    })
}

fn may_be_null(table: &TableDef, column: &ColumnDef) -> Result<()> {
    if table
        .primary_key()
        .is_some_and(|key| key.columns.contains(&column.id))
    {
        return Err(Error::invalid(
            SqlState::INVALID_TABLE_DEFINITION,
            format!("column \"{}\" is in a primary key", column.name),
        ));
    }
    if column.identity.is_some() {
        return Err(Error::invalid(
            SqlState::SYNTAX_ERROR,
            format!(
                "column \"{}\" of relation \"{}\" is an identity column",
                column.name, table.name
            ),
        ));
    }
    Ok(())
}

/// Changes the type if every stored value stays unchanged: to the same type, or to a text type that
/// holds all old values.
fn set_type(
    context: &StatementContext,
    table: TableId,
    column: &ColumnDef,
    data_type: &DataType,
) -> Result<()> {
    let wanted = types::sql_type(data_type)?;
    let keeps = match (column.sql_type, wanted) {
        (old, new) if old == new => true,
        (SqlType::Varchar(old), SqlType::Varchar(new)) => new >= old,
        (SqlType::Varchar(_) | SqlType::Json, SqlType::Text) => true,
        _ => false,
    };
    if !keeps {
        return Err(rewrite(&column.name));
    }
    change(context, table, column.id, &mut |c| c.sql_type = wanted)
}

fn rewrite(column: &str) -> Error {
    Error::unsupported(format!(
        "changing the type of column \"{column}\" is not supported where it changes stored values"
    ))
    .with_hint("Add a column of the new type, UPDATE it from the old one, then drop the old one.")
}
