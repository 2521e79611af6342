//! ALTER COLUMN.

use super::{definition, edit};
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::statements::ddl::verify::Fit;
use crate::statements::ddl::{column, types, verify};
use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation as Operation, CastKind, Expr, GeneratedAs, Ident,
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
            let wanted = types::sql_type(data_type)?;
            let using = match using {
                None => Using::Assignment,
                Some(using) => Using::of(using, &name, wanted).ok_or_else(|| rewrite(&name))?,
            };
            set_type(context, table, &column, wanted, using).await
        }
        Operation::AddGenerated {
            generated_as,
            sequence_options,
        } => {
            may_be_identity(&def, &column)?;
            let kind = generated_as.unwrap_or(GeneratedAs::Always);
            let identity = column::identity(&kind, sequence_options, &column)?;
            change(context, table, column.id, &mut |c| {
                c.identity = Some(identity.clone())
            })
        }
    }
}

/// 55000 unless a column may become an identity column.
fn may_be_identity(table: &TableDef, column: &ColumnDef) -> Result<()> {
    let refused = |message: String| {
        Err(Error::invalid(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            message,
        ))
    };
    if !column.not_null {
        return refused(format!(
            "column \"{}\" of relation \"{}\" must be declared NOT NULL before identity can be \
             added",
            column.name, table.name
        ));
    }
    if column.identity.is_some() || column.default.is_some() {
        return refused(format!(
            "column \"{}\" already has a default value or an identity",
            column.name
        ));
    }
    Ok(())
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

/// How a value becomes one of the new type.
#[derive(Clone, Copy, PartialEq)]
enum Using {
    /// as in an INSERT: a text that is too long is an error
    Assignment,
    /// `USING column::type`, which cuts it
    Cast,
}

impl Using {
    /// None: the expression is neither the column nor its cast to the new type.
    fn of(using: &Expr, column: &str, wanted: SqlType) -> Option<Self> {
        match using {
            Expr::Nested(inner) => Self::of(inner, column, wanted),
            Expr::Identifier(name) if names::fold(name) == column => Some(Self::Assignment),
            Expr::Cast {
                expr,
                data_type,
                kind: CastKind::Cast | CastKind::DoubleColon,
                ..
            } if types::sql_type(data_type).is_ok_and(|to| to == wanted) => {
                Self::of(expr, column, wanted).map(|_| Self::Cast)
            }
            _ => None,
        }
    }
}

/// Only a change that leaves every stored value as it is: to the same type, or to a text type
/// that holds all values there are.
async fn set_type(
    context: &StatementContext,
    table: TableId,
    column: &ColumnDef,
    wanted: SqlType,
    using: Using,
) -> Result<()> {
    let shorter = match (column.sql_type, wanted) {
        (old, new) if old == new => None,
        (SqlType::Varchar(old), SqlType::Varchar(new)) => (new < old).then_some(new),
        (SqlType::Varchar(_) | SqlType::Json, SqlType::Text) => None,
        (SqlType::Text, SqlType::Varchar(new)) => Some(new),
        _ => return Err(rewrite(&column.name)),
    };
    change(context, table, column.id, &mut |c| c.sql_type = wanted)?;
    let Some(length) = shorter else {
        return Ok(());
    };
    let def = definition(context, table)?;
    match (
        verify::fit(context, &def, &column.name, length).await?,
        using,
    ) {
        (Fit::All, _) => Ok(()),
        (Fit::No, Using::Assignment) => Err(Error::invalid(
            SqlState::STRING_DATA_RIGHT_TRUNCATION,
            format!("value too long for type {wanted}"),
        )),
        _ => Err(rewrite(&column.name)),
    }
}

fn rewrite(column: &str) -> Error {
    Error::unsupported(format!(
        "changing the type of column \"{column}\" is not supported where it changes stored values"
    ))
    .with_hint("Add a column of the new type, UPDATE it from the old one, then drop the old one.")
}
