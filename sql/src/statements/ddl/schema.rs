//! CREATE SCHEMA.

use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::SchemaName;
use strandline_base::{Error, Result, SqlState};

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
                if if_not_exists {
                    return Ok(());
                }
                return Err(Error::invalid(
                    SqlState::DUPLICATE_SCHEMA,
                    format!("schema \"{name}\" already exists"),
                ));
            }
            catalog.schemas.insert(name.clone(), None);
            Ok(())
        })?;
    Ok(Summary::tag("CREATE SCHEMA"))
}
