//! DROP INDEX.

use super::{require_alone, undefined};
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::statements::ddl::foreign_key;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::ObjectName;
use std::sync::Arc;
use strandline_base::{Error, ErrorKind, Result, SqlState, TableId};
use strandline_engine::catalog::index::IndexId;
use strandline_engine::catalog::{Catalog, TableDef};

/// Executes DROP INDEX of all `names`.
pub fn drop(
    context: &StatementContext,
    names: &[ObjectName],
    if_exists: bool,
    how: How,
) -> Result<Summary> {
    if how.concurrently {
        require_alone(context, "DROP INDEX CONCURRENTLY")?;
        let refused = match (names.len(), how.cascade) {
            (1, false) => None,
            (1, true) => Some("CASCADE"),
            _ => Some("dropping multiple objects"),
        };
        if let Some(what) = refused {
            let message = format!("DROP INDEX CONCURRENTLY does not support {what}");
            return Err(Error::unsupported(message));
        }
    }
    context
        .statement
        .transaction()
        .change_catalog(&mut |catalog| {
            for name in names {
                let (schema, name) = names::qualified(name, &context.default_schema)?;
                match found(catalog, &schema, &name)? {
                    Some((table, index)) => remove(catalog, table, index),
                    None if !catalog.schemas.contains_key(&schema) => {
                        context.skip(if_exists, names::undefined_schema(&schema))?;
                    }
                    None => context.skip(if_exists, undefined(&name))?,
                }
            }
            let shown: Vec<String> = names.iter().map(|name| format!("index {name}")).collect();
            let what = shown.join(", ");
            foreign_key::settle(context, catalog, (&what, Some(&what)), how.cascade)
        })?;
    Ok(Summary::tag("DROP INDEX"))
}

/// The options of DROP INDEX.
#[derive(Clone, Copy)]
pub struct How {
    /// CONCURRENTLY
    pub concurrently: bool,
    /// CASCADE
    pub cascade: bool,
}

/// The index `name`; an error if another relation or a constraint has the name.
fn found(catalog: &Catalog, schema: &str, name: &str) -> Result<Option<(TableId, IndexId)>> {
    let tables = catalog.tables.values().filter(|t| t.schema == schema);
    for table in tables {
        if let Some(index) = table.indexes.iter().find(|index| index.name == name) {
            return Ok(Some((table.id, index.id)));
        }
        if table.keys.iter().any(|key| key.name == name) {
            return Err(required(table, name));
        }
    }
    let other = match (catalog.table(schema, name), catalog.view(schema, name)) {
        (Some(_), _) => "Use DROP TABLE to remove a table.",
        (None, Some(_)) => "Use DROP VIEW to remove a view.",
        (None, None) => return Ok(None),
    };
    Err(Error::invalid(
        SqlState::WRONG_OBJECT_TYPE,
        format!("\"{name}\" is not an index"),
    )
    .with_hint(other))
}

/// The error for dropping the index of a constraint.
fn required(table: &TableDef, name: &str) -> Error {
    Error::new(
        ErrorKind::Invalid,
        SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
        format!(
            "cannot drop index {name} because constraint {name} on table {} requires it",
            table.name
        ),
    )
    .with_hint(format!(
        "You can drop constraint {name} on table {} instead.",
        table.name
    ))
}

fn remove(catalog: &mut Catalog, table: TableId, index: IndexId) {
    if let Some(table) = catalog.tables.get_mut(&table) {
        Arc::make_mut(table).indexes.retain(|def| def.id != index);
    }
}
