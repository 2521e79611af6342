//! TRUNCATE: the table gets a new, empty storage. The old one stays for AS OF until the retention
//! ends.

use super::foreign_key;
use crate::planning::context::StatementContext;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{CascadeOption, Truncate, TruncateIdentityOption};
use std::sync::Arc;
use strandline_base::{ColumnId, Error, Result, SqlState};
use strandline_engine::catalog::{Catalog, TableDef};

/// Executes TRUNCATE.
pub fn execute(context: &StatementContext, truncate: &Truncate) -> Result<Summary> {
    if truncate.partitions.is_some() || truncate.on_cluster.is_some() {
        return Err(Error::unsupported(
            "this clause of TRUNCATE is not supported",
        ));
    }
    let mut tables = Vec::with_capacity(truncate.table_names.len());
    for target in &truncate.table_names {
        match context.resolve_table(&target.name) {
            Ok(table) => tables.push(table),
            Err(error) if error.sqlstate() == SqlState::UNDEFINED_TABLE => {
                context.skip(truncate.if_exists, error)?;
            }
            Err(error) => return Err(error),
        }
    }
    let cascade = matches!(truncate.cascade, Some(CascadeOption::Cascade));
    foreign_key::truncated_with(context, &mut tables, cascade)?;
    let restart = matches!(truncate.identity, Some(TruncateIdentityOption::Restart));
    context
        .statement
        .transaction()
        .change_catalog(&mut |catalog| {
            for table in &tables {
                let storage = catalog.new_storage_id();
                let Some(current) = catalog.tables.get(&table.id) else {
                    return Err(crate::parse::names::undefined_table(
                        &table.schema,
                        &table.name,
                    ));
                };
                let mut current = TableDef {
                    storage,
                    ..TableDef::clone(current)
                };
                if restart {
                    restart_identity(catalog, &mut current);
                }
                catalog.put_table(current);
            }
            Ok(())
        })?;
    Ok(Summary::tag("TRUNCATE TABLE"))
}

/// Gives the identity columns new ids, so that they count from their start: counters belong to
/// column ids. A rollback restores the old ids with their counters.
fn restart_identity(catalog: &mut Catalog, table: &mut TableDef) {
    let mut renumbered = Vec::new();
    for column in &mut table.columns {
        if column.identity.is_none() {
            continue;
        }
        let old = std::mem::replace(&mut column.id, ColumnId(table.next_column));
        table.next_column += 1;
        renumbered.push((old, column.id));
    }
    let renumber = |ids: &mut Vec<ColumnId>| {
        for id in ids {
            if let Some((_, new)) = renumbered.iter().find(|(old, _)| old == id) {
                *id = *new;
            }
        }
    };
    for key in &mut table.keys {
        renumber(&mut key.columns);
    }
    for index in table.indexes.iter_mut().map(Arc::make_mut) {
        index.renumber(&renumber);
    }
    for key in table.foreign_keys.iter_mut().map(Arc::make_mut) {
        renumber(&mut key.columns);
        renumber(&mut key.delete_sets);
        if key.parent == table.id {
            renumber(&mut key.parent_columns);
        }
    }
    for child in table.referenced_by.iter().filter(|id| **id != table.id) {
        if let Some(child) = catalog.tables.get(child) {
            let mut child = TableDef::clone(child);
            let keys = child.foreign_keys.iter_mut().map(Arc::make_mut);
            for key in keys.filter(|key| key.parent == table.id) {
                renumber(&mut key.parent_columns);
            }
            catalog.put_table(child);
        }
    }
}
