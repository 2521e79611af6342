//! ALTER INDEX: changes an index's name, storage and storage parameters. ALTER TABLE with an
//! index's name does the same.

use super::gone;
use super::options::{self, Place};
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::statements::ddl::relation_names;
use datafusion::sql::sqlparser::ast::{
    AlterTableOperation as Operation, RenameTableNameKind, SqlOption,
};
use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, TableId};
use strandline_engine::catalog::index::{IndexDef, IndexId, IndexMethod, IndexState, IndexStorage};
use strandline_engine::catalog::{Catalog, TableDef};

/// One operation on the index `name` of `table`.
pub fn alter(
    context: &StatementContext,
    table: TableId,
    name: &str,
    operation: &Operation,
) -> Result<()> {
    let change = |edit: &mut dyn FnMut(&Catalog, &mut TableDef) -> Result<()>| {
        context
            .statement
            .transaction()
            .change_catalog(&mut |catalog| {
                let mut def = TableDef::clone(catalog.tables.get(&table).ok_or_else(gone)?);
                edit(catalog, &mut def)?;
                catalog.put_table(def);
                Ok(())
            })
    };
    match operation {
        Operation::RenameTable {
            table_name: RenameTableNameKind::To(new) | RenameTableNameKind::As(new),
        } => {
            let new = names::single(new)?;
            names::check(&new)?;
            change(&mut |catalog, table| {
                relation_names::require_free(catalog, &table.schema, &new)?;
                rename(table, name, &new);
                Ok(())
            })
        }
        Operation::SetOptionsParens { options } => {
            change(&mut |_, table| set_options(context, table, name, options))
        }
        other => {
            let text = other.to_string();
            let words: Vec<&str> = text.split_whitespace().take(2).collect();
            Err(Error::invalid(
                SqlState::WRONG_OBJECT_TYPE,
                format!(
                    "ALTER action {} cannot be performed on relation \"{name}\"",
                    words.join(" ")
                ),
            )
            .with_detail("This operation is not supported for indexes."))
        }
    }
}

fn secondary<'a>(table: &'a mut TableDef, name: &str) -> Option<&'a mut IndexDef> {
    let mut indexes = table.indexes.iter_mut();
    indexes.find(|index| index.name == name).map(Arc::make_mut)
}

/// Renames an index, or a key, which shares the name of its index.
fn rename(table: &mut TableDef, old: &str, new: &str) {
    if let Some(index) = secondary(table, old) {
        index.name = new.to_string();
    }
    for key in table.keys.iter_mut().filter(|key| key.name == old) {
        key.name = new.to_string();
    }
}

/// Changes parameters of a secondary index. One with another storage, or with other LIDBlocks, is
/// filled again, under a new number.
fn set_options(
    context: &StatementContext,
    table: &mut TableDef,
    name: &str,
    written: &[SqlOption],
) -> Result<()> {
    let next = table.next_index;
    let Some(index) = secondary(table, name) else {
        return Err(Error::unsupported(
            "storage parameters of a constraint's index are not supported",
        )
        .with_hint(
            "ALTER TABLE … SET (key_index = 'btree') puts the indexes of a table's constraints on \
             pages, 'ordered' into memory.",
        ));
    };
    let mut place = Place::of(index);
    options::alter(written, &mut place, &mut index.options)?;
    let is_spatial = index.method == IndexMethod::Spatial;
    if is_spatial && place.has_blocks() {
        return Err(options::no_blocks());
    }
    let default = match is_spatial {
        // An R-tree has one storage; the engine refuses others.
        true => Some(IndexStorage::Pages),
        false => context.index_storage,
    };
    let storage = place.resolve(default)?;
    index.stays_in_memory = place.stays_in_memory(default);
    index.was_moved &= !place.was_given();
    if storage != index.storage {
        index.storage = storage;
        index.id = IndexId(next);
        index.state = IndexState::Valid;
        table.next_index += 1;
    }
    Ok(())
}
