//! CREATE SCHEMA and ALTER SCHEMA.

use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::statements::roles;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{AlterSchema, AlterSchemaOperation, SchemaName};
use strandline_base::{Error, Result, SqlState};
use strandline_engine::access::Object;

/// Executes CREATE SCHEMA.
pub fn create(
    context: &StatementContext,
    name: &SchemaName,
    if_not_exists: bool,
) -> Result<Summary> {
    let SchemaName::Simple(name) = name else {
        return Err(
            Error::unsupported("CREATE SCHEMA … AUTHORIZATION is not supported")
                .with_hint("An embedded database has no roles."),
        );
    };
    let name = names::single(name)?;
    names::check(&name)?;
    if name.starts_with("pg_") || crate::catalogs::information_schema::is_system_schema(&name) {
        return Err(Error::invalid(
            SqlState("42939"),
            format!("unacceptable schema name \"{name}\""),
        )
        .with_detail("The prefix \"pg_\" and information_schema are reserved."));
    }
    context
        .statement
        .transaction()
        .change_catalog(&mut |catalog| {
            if catalog.schemas.contains_key(&name) {
                let message = format!("schema \"{name}\" already exists");
                let taken = Error::invalid(SqlState::DUPLICATE_SCHEMA, message);
                return context.skip(if_not_exists, taken);
            }
            catalog.schemas.insert(name.clone(), None);
            Ok(())
        })?;
    Ok(Summary::tag("CREATE SCHEMA"))
}

/// Executes ALTER SCHEMA … OWNER TO.
pub fn alter(context: &StatementContext, alter: &AlterSchema) -> Result<Summary> {
    let name = names::single(&alter.name)?;
    if !context.catalog.schemas.contains_key(&name) {
        return Err(names::undefined_schema(&name));
    }
    for operation in &alter.operations {
        match operation {
            AlterSchemaOperation::OwnerTo { owner } => {
                roles::give_to(context, &Object::Schema(name.clone()), owner)?;
            }
            other => {
                return Err(Error::unsupported(format!(
                    "ALTER SCHEMA … {other} is not supported"
                )));
            }
        }
    }
    Ok(Summary::tag("ALTER SCHEMA"))
}
