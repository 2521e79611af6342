//! TRUNCATE: the table gets a new, empty storage. The old one stays for AS OF until the retention
//! has passed.

use crate::planning::context::StatementContext;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::{Truncate, TruncateIdentityOption};
use strandline_base::{ColumnId, Error, Result, SqlState};
use strandline_engine::catalog::TableDef;

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
            Err(error) if truncate.if_exists && error.sqlstate() == SqlState::UNDEFINED_TABLE => {}
            Err(error) => return Err(error),
        }
    }
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
                    restart_identity(&mut current);
                }
                catalog.put_table(current);
            }
            Ok(())
        })?;
    Ok(Summary::tag("TRUNCATE TABLE"))
}

/// Counters belong to column ids and the storage is new: identity columns that get new ids count
/// from their start, and go on where they were if the transaction is rolled back.
fn restart_identity(table: &mut TableDef) {
    for column in &mut table.columns {
        if column.identity.is_none() {
            continue;
        }
        let old = std::mem::replace(&mut column.id, ColumnId(table.next_column));
        table.next_column += 1;
        let in_keys = table.keys.iter_mut().flat_map(|key| &mut key.columns);
        for id in in_keys.filter(|id| **id == old) {
            *id = column.id;
        }
    }
}
