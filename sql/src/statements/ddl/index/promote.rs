//! ALTER TABLE … ADD CONSTRAINT … USING INDEX: a unique index becomes a constraint, which has its
//! own index.

use super::undefined;
use crate::parse::names;
use crate::planning::context::StatementContext;
use crate::statements::ddl::{foreign_key, ordered_keys, relation_names, verify};
use datafusion::sql::sqlparser::ast::ConstraintUsingIndex;
use strandline_base::{ColumnId, Error, Result, SqlState, TableId};
use strandline_engine::catalog::index::{IndexDef, IndexState, IndexStorage, IndexValue};
use strandline_engine::catalog::{Catalog, KeyDef, TableDef};

/// Makes the given index a key of `table`.
pub async fn promote(
    context: &StatementContext,
    table: TableId,
    written: &ConstraintUsingIndex,
    primary: bool,
) -> Result<()> {
    let timing = foreign_key::timing(written.characteristics.as_ref())?;
    let index = names::fold(&written.index_name);
    let name = written.name.as_ref().map_or(index.clone(), names::fold);
    names::check(&name)?;
    let mut made = None;
    context
        .statement
        .transaction()
        .change_catalog(&mut |catalog| {
            let table = catalog.tables.get(&table).ok_or_else(super::gone)?;
            let mut table = TableDef::clone(table);
            let (key, storage) = key_of(catalog, &mut table, &index, &name, primary)?;
            let key = KeyDef { timing, ..key };
            let key = ordered_keys::in_place_of(context, &table, key, storage)?;
            table.keys.push(key.clone());
            made = Some((table.clone(), key));
            catalog.put_table(table);
            Ok(())
        })?;
    match made {
        Some((table, key)) => verify::key(context, &table, &key).await,
        None => Ok(()),
    }
}

/// Removes the index from `table` and returns the key that replaces it, and the index's storage.
fn key_of(
    catalog: &Catalog,
    table: &mut TableDef,
    index: &str,
    name: &str,
    primary: bool,
) -> Result<(KeyDef, IndexStorage)> {
    let Some(at) = table.indexes.iter().position(|def| def.name == index) else {
        return Err(not_usable(catalog, table, index));
    };
    if table.indexes[at].storage.blocks().is_some() {
        let message = format!("index \"{index}\" has LIDBlocks, which keys cannot have");
        return Err(Error::unsupported(message)
            .with_hint("ALTER INDEX … SET (lid_block = 'none') leaves the index on pages."));
    }
    let columns = columns_of(&table.indexes[at])?;
    if primary && table.primary_key().is_some() {
        return Err(Error::invalid(
            SqlState::INVALID_TABLE_DEFINITION,
            format!(
                "multiple primary keys for table \"{}\" are not allowed",
                table.name
            ),
        ));
    }
    let is_check = table.checks.iter().any(|check| check.name == name);
    if is_check || (name != index && relation_names::is_taken(catalog, &table.schema, name)) {
        return Err(relation_names::taken(name));
    }
    let def = table.indexes.remove(at);
    if primary {
        for column in &mut table.columns {
            column.not_null |= columns.contains(&column.id);
        }
    }
    let mut key = KeyDef::new(name, primary, columns);
    key.nulls_not_distinct = def.nulls_not_distinct;
    Ok((key, def.storage))
}

fn not_usable(catalog: &Catalog, table: &TableDef, index: &str) -> Error {
    let state = SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE;
    if table.keys.iter().any(|key| key.name == index) {
        let message = format!("index \"{index}\" is already associated with a constraint");
        return Error::invalid(state, message);
    }
    let mut others = catalog.tables.values();
    if others.any(|t| t.schema == table.schema && relation_names::has_index(t, index)) {
        let message = format!(
            "index \"{index}\" does not belong to table \"{}\"",
            table.name
        );
        return Error::invalid(state, message);
    }
    undefined(index)
}

/// The columns of an index that can become a constraint.
fn columns_of(def: &IndexDef) -> Result<Vec<ColumnId>> {
    let name = &def.name;
    let refused = |message: String| {
        Err(Error::invalid(SqlState::WRONG_OBJECT_TYPE, message)
            .with_detail("Cannot create a primary key or unique constraint using such an index."))
    };
    if !def.unique {
        return refused(format!("\"{name}\" is not a unique index"));
    }
    if def.predicate.is_some() {
        return refused(format!("\"{name}\" is a partial index"));
    }
    if def.state != IndexState::Valid {
        return refused(format!("index \"{name}\" is not valid"));
    }
    if !def.include.is_empty() {
        return Err(Error::unsupported(format!(
            "index \"{name}\" includes columns, which a constraint's does not"
        )));
    }
    let mut columns = Vec::with_capacity(def.parts.len());
    for (i, part) in def.parts.iter().enumerate() {
        match part.value {
            IndexValue::Expression(_) => {
                return refused(format!("index \"{name}\" contains expressions"));
            }
            IndexValue::Column(_) if part.descending || part.nulls_first => {
                return refused(format!(
                    "index \"{name}\" column number {} does not have default sorting behavior",
                    i + 1
                ));
            }
            IndexValue::Column(id) => columns.push(id),
        }
    }
    Ok(columns)
}
