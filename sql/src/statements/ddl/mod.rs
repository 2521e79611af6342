//! Data definition: statements that change the catalog. Every change goes through
//! `Transaction::change_catalog`: it waits for the table's writers, the transaction's later
//! statements see it, and ROLLBACK undoes it. Constraints on existing rows (SET NOT NULL, ADD
//! CHECK, keys) are verified after the change, when no other transaction can write the table. A
//! violation fails the statement and undoes the change.

pub mod alter;
pub mod column;
pub mod comment;
pub mod constraint;
mod constraint_names;
pub mod create_table;
pub mod create_table_as;
pub mod dependents;
pub mod drop;
pub mod foreign_key;
pub mod history;
pub mod index;
mod ordered_keys;
mod refusals;
pub mod relation_names;
pub mod schema;
mod storage_options;
pub mod truncate;
pub mod types;
pub mod verify;
pub mod view;
mod view_relations;

use crate::planning::context::StatementContext;
use crate::statements::roles;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::Statement as Parsed;
use strandline_base::{Error, Result};

#[cfg(test)]
mod tests;

/// Whether `statement` is data definition.
pub fn handles(statement: &Parsed) -> bool {
    matches!(
        statement,
        Parsed::CreateTable(_)
            | Parsed::CreateView(_)
            | Parsed::CreateSchema { .. }
            | Parsed::AlterSchema(_)
            | Parsed::CreateIndex(_)
            | Parsed::OptimizeTable { .. }
            | Parsed::AlterTable(_)
            | Parsed::Drop { .. }
            | Parsed::Truncate(_)
            | Parsed::Comment { .. }
    )
}

/// Executes a data definition statement.
pub async fn execute(context: &StatementContext, statement: &Parsed) -> Result<Summary> {
    let summary = match roles::handles(statement) {
        true => roles::execute(context, statement)?,
        false => {
            roles::check::ddl(context, statement)?;
            let summary = define(context, statement).await?;
            roles::check::own_what_is_new(context)?;
            summary
        }
    };
    Ok(summary.with_notices(context.take_notices()))
}

async fn define(context: &StatementContext, statement: &Parsed) -> Result<Summary> {
    match statement {
        Parsed::CreateTable(create) if create.query.is_some() => {
            create_table_as::execute(context, create).await
        }
        Parsed::CreateTable(create) => create_table::execute(context, create).await,
        Parsed::CreateView(create) => view::create(context, create).await,
        Parsed::CreateSchema {
            schema_name,
            if_not_exists,
            ..
        } => schema::create(context, schema_name, *if_not_exists),
        Parsed::AlterSchema(alter) => schema::alter(context, alter),
        Parsed::CreateIndex(create) => index::create(context, create),
        Parsed::OptimizeTable {
            name,
            on_cluster: kind,
            include_final: concurrently,
            ..
        } => index::reindex(context, kind.as_ref(), name, *concurrently),
        Parsed::AlterTable(table) => alter::execute(context, table).await,
        Parsed::Drop { .. } => drop::execute(context, statement).await,
        Parsed::Truncate(truncate) => truncate::execute(context, truncate),
        Parsed::Comment { .. } => comment::execute(context, statement),
        other => Err(Error::internal(format!("{other} is no data definition"))),
    }
}
