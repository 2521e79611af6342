//! REINDEX: fills an index again under a new number, without other writers of its table. Indexes of
//! constraints in memory are skipped, because they are built from the rows whenever the database is
//! opened.

use super::{require_alone, undefined};
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName};
use std::sync::Arc;
use strandline_base::{Error, Result, TableId};
use strandline_engine::catalog::index::{IndexDef, IndexId, IndexState};
use strandline_engine::catalog::{Catalog, TableDef};

/// Executes REINDEX of an object of `kind`.
pub fn reindex(
    context: &StatementContext,
    kind: Option<&Ident>,
    name: &ObjectName,
    concurrently: bool,
) -> Result<Summary> {
    let kind = kind.map_or("", |kind| kind.value.as_str());
    if concurrently {
        require_alone(context, "REINDEX CONCURRENTLY")?;
    }
    if matches!(kind, "schema" | "database") {
        require_alone(context, &format!("REINDEX {}", kind.to_uppercase()))?;
    }
    let (tables, only) = match kind {
        "index" => {
            let (table, index) = match context.find_index(name)? {
                Some(found) => found,
                None => return Err(undefined(&name.to_string())),
            };
            (vec![table], Some(index))
        }
        "table" => (vec![context.resolve_table(name)?.id], None),
        "schema" => (in_schema(context, &names::single(name)?)?, None),
        _ => (in_database(context, &names::single(name)?)?, None),
    };
    context
        .statement
        .transaction()
        .change_catalog(&mut |catalog| {
            for table in &tables {
                renew(catalog, *table, only.as_deref());
            }
            Ok(())
        })?;
    Ok(Summary::tag("REINDEX"))
}

fn in_schema(context: &StatementContext, schema: &str) -> Result<Vec<TableId>> {
    if !context.catalog.schemas.contains_key(schema) {
        return Err(names::undefined_schema(schema));
    }
    let tables = context.catalog.tables.values();
    Ok(tables
        .filter(|t| t.schema == schema)
        .map(|t| t.id)
        .collect())
}

fn in_database(context: &StatementContext, name: &str) -> Result<Vec<TableId>> {
    if name != names::DATABASE {
        return Err(Error::unsupported(
            "can only reindex the currently open database",
        ));
    }
    Ok(context.catalog.tables.keys().copied().collect())
}

/// Gives the indexes of a table, or only index `only`, new numbers, so that the engine fills them
/// again.
fn renew(catalog: &mut Catalog, table: TableId, only: Option<&str>) {
    let Some(table) = catalog.tables.get_mut(&table) else {
        return;
    };
    let is_named = |index: &IndexDef| only.is_none_or(|name| index.name == name);
    // Those of constraints in memory are built whenever the database is opened.
    let is_meant =
        |index: &IndexDef, is_key: bool| is_named(index) && (!is_key || index.is_on_device());
    let keys = table.keys.iter().filter_map(|key| key.ordered.as_ref());
    let mut keys = keys.filter(|index| is_meant(index, true));
    if keys.next().is_none() && !table.indexes.iter().any(|index| is_meant(index, false)) {
        return;
    }
    let table: &mut TableDef = Arc::make_mut(table);
    let keys = table.keys.iter_mut().filter_map(|key| key.ordered.as_mut());
    let keys = keys.filter(|index| is_meant(index, true));
    let indexes = table
        .indexes
        .iter_mut()
        .filter(|index| is_meant(index, false));
    for index in indexes.chain(keys) {
        let index = Arc::make_mut(index);
        index.id = IndexId(table.next_index);
        index.state = IndexState::Valid;
        table.next_index += 1;
    }
}
