//! The relations that names mean in statements that change or describe existing ones. PostgreSQL
//! searches `pg_catalog` before the schemas of `search_path`, so a bare name of a system table
//! means the system table, even if a user has a table of that name.

use super::{information_schema, pg_catalog};
use crate::parse::names;
use datafusion::sql::sqlparser::ast::ObjectName;
use strandline_base::{Error, Result, SqlState};

/// (schema, name) of an existing relation. A new relation gets [`names::qualified`].
pub fn existing(name: &ObjectName, default_schema: &str) -> Result<(String, String)> {
    let (schema, relation) = names::qualified(name, default_schema)?;
    match name.0.len() == 1 && pg_catalog::has(&relation) {
        true => Ok((pg_catalog::PG_CATALOG.to_string(), relation)),
        false => Ok((schema, relation)),
    }
}

/// 42501 for every name in a schema of the system.
pub fn refuse_system(schema: &str, name: &str) -> Result<()> {
    match schema == pg_catalog::PG_CATALOG || information_schema::is_system_schema(schema) {
        true => Err(Error::invalid(
            SqlState("42501"),
            format!("permission denied: \"{name}\" is a system catalog"),
        )),
        false => Ok(()),
    }
}
