//! COMMENT ON INDEX.

use super::undefined;
use crate::parse::names;
use datafusion::sql::sqlparser::ast::ObjectName;
use std::sync::Arc;
use strandline_base::{Error, Result};
use strandline_engine::catalog::Catalog;

/// Sets the comment of the index `name`.
pub fn comment(
    catalog: &mut Catalog,
    name: &ObjectName,
    default_schema: &str,
    comment: Option<&String>,
) -> Result<()> {
    let (schema, name) = names::qualified(name, default_schema)?;
    let tables = catalog.tables.values_mut().filter(|t| t.schema == schema);
    for table in tables {
        if let Some(at) = table.indexes.iter().position(|index| index.name == name) {
            let index = &mut Arc::make_mut(table).indexes[at];
            Arc::make_mut(index).comment = comment.cloned();
            return Ok(());
        }
        if table.keys.iter().any(|key| key.name == name) {
            return Err(Error::unsupported(
                "comments on the indexes of constraints are not supported",
            ));
        }
    }
    Err(undefined(&name))
}
