//! CREATE INDEX: finds the table and the name, and builds the index.
//!
//! Within a transaction block the index is built under the lock of every definition change: its
//! table has no other writer until the block ends. A statement outside a block lets writers
//! continue ([`strandline_engine::Db::create_index`]), with or without CONCURRENTLY.

use super::{define, gone, require_alone};
use crate::catalogs::lookup;
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::statements::ddl::relation_names;
use crate::values::summary::Summary;
use datafusion::sql::sqlparser::ast::CreateIndex;
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, TableId};
use strandline_engine::catalog::index::{IndexDef, IndexId};
use strandline_engine::catalog::{Catalog, TableDef};

/// Executes CREATE INDEX.
pub fn create(context: &StatementContext, create: &CreateIndex) -> Result<Summary> {
    if create.concurrently {
        require_alone(context, "CREATE INDEX CONCURRENTLY")?;
    }
    let table = target(context, create)?;
    let done = Summary::tag("CREATE INDEX");
    if let Some(name) = &create.name {
        let name = names::single(name)?;
        names::check(&name)?;
        if relation_names::is_taken(&context.catalog, &table.schema, &name) {
            context.skip(create.if_not_exists, relation_names::taken(&name))?;
            return Ok(done);
        }
    }
    let def = define::index(context, &table, create)?;
    let mut add = |catalog: &mut Catalog| add(catalog, table.id, &def, create);
    let transaction = context.statement.transaction();
    match context.is_alone {
        true => transaction
            .db()
            .create_index(transaction.options(), &mut add)?,
        false => transaction.change_catalog(&mut |catalog| add(catalog).map(|_| ()))?,
    }
    Ok(done)
}

/// The table of CREATE INDEX.
fn target(context: &StatementContext, create: &CreateIndex) -> Result<Arc<TableDef>> {
    let (schema, name) = lookup::existing(&create.table_name, &context.default_schema)?;
    if context.catalog.view(&schema, &name).is_some() {
        return Err(Error::invalid(
            SqlState::WRONG_OBJECT_TYPE,
            format!("cannot create index on relation \"{name}\""),
        )
        .with_detail("This operation is not supported for views."));
    }
    context.resolve_table(&create.table_name)
}

/// Adds the index to the catalog under its name, or under a free one.
fn add(
    catalog: &mut Catalog,
    table: TableId,
    def: &IndexDef,
    create: &CreateIndex,
) -> Result<(TableId, IndexId)> {
    let mut table = TableDef::clone(catalog.tables.get(&table).ok_or_else(gone)?);
    let mut def = def.clone();
    let is_taken = |name: &str| relation_names::is_taken(catalog, &table.schema, name);
    def.name = match &create.name {
        Some(name) => names::single(name)?,
        None => {
            let columns = define::column_names(&table, &def)?;
            relation_names::choose(&table.name, &columns, "idx", &is_taken)
        }
    };
    relation_names::require_free(catalog, &table.schema, &def.name)?;
    let place = (table.id, push(&mut table, def));
    catalog.put_table(table);
    Ok(place)
}

/// Adds an index to a table's definition under the next number.
fn push(table: &mut TableDef, mut def: IndexDef) -> IndexId {
    let id = IndexId(table.next_index);
    table.next_index += 1;
    def.id = id;
    table.indexes.push(Arc::new(def));
    id
}
