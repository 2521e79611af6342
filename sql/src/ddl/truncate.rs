//! TRUNCATE: the table gets a new, empty storage. The old one stays for AS OF until the retention
//! has passed.

use crate::context::StatementContext;
use crate::session::outcome::Summary;
use datafusion::sql::sqlparser::ast::{Truncate, TruncateIdentityOption};
use strandline_base::{Error, Result, SqlState};
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
    if matches!(truncate.identity, Some(TruncateIdentityOption::Restart))
        && tables
            .iter()
            .any(|t| t.columns.iter().any(|c| c.identity.is_some()))
    {
        return Err(
            Error::unsupported("TRUNCATE … RESTART IDENTITY is not supported")
                .with_hint("Identity columns go on counting."),
        );
    }
    context
        .statement
        .transaction()
        .change_catalog(&mut |catalog| {
            for table in &tables {
                let storage = catalog.new_storage_id();
                let Some(current) = catalog.tables.get(&table.id) else {
                    return Err(crate::names::undefined_table(&table.schema, &table.name));
                };
                let current = TableDef {
                    storage,
                    ..TableDef::clone(current)
                };
                catalog.put_table(current);
            }
            Ok(())
        })?;
    Ok(Summary::tag("TRUNCATE TABLE"))
}
