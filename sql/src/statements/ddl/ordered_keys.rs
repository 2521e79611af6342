//! WITH (key_index = …): whether the index of a key is ordered, and so serves the key's prefixes,
//! ranges and orders, and whether it is in a page file.

use std::sync::Arc;
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_engine::catalog::index::{IndexDef, IndexMethod};
use strandline_engine::catalog::{KeyDef, TableDef};

/// The key with an index as the table's `key_index` says; hash if it says nothing.
///
/// # Errors
/// 42704 if the key is to be ordered and has a column of a type without an order.
pub fn with_index(table: &TableDef, key: KeyDef) -> Result<KeyDef> {
    if table.key_index != Some(IndexMethod::Ordered) {
        return Ok(KeyDef {
            ordered: None,
            ..key
        });
    }
    for id in &key.columns {
        if let Some(column) = table.column_by_id(*id) {
            check_type(column.sql_type)?;
        }
    }
    let is_known = |known: &Arc<IndexDef>| known.storage == table.key_storage;
    Ok(match key.ordered.as_ref().is_some_and(is_known) {
        true => key,
        false => key.with_ordered_index(table.key_storage),
    })
}

/// Gives the table's keys, and those added later, the indexes that a word of `key_index` means.
///
/// # Errors
/// 22023 for an unknown word; those of [`with_index`].
pub fn set_key_index(table: &mut TableDef, word: &str) -> Result<()> {
    if !table.set_key_index(word) {
        let message = format!("invalid value for key_index: \"{word}\"");
        return Err(Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message)
            .with_hint("Valid values are 'hash', 'ordered' and 'btree'."));
    }
    let keys = table.keys.iter().map(|key| with_index(table, key.clone()));
    table.keys = keys.collect::<Result<_>>()?;
    Ok(())
}

/// Refuses a type whose values have no order.
pub fn check_type(sql_type: SqlType) -> Result<()> {
    match sql_type {
        SqlType::Json => Err(Error::invalid(
            SqlState::UNDEFINED_OBJECT,
            format!(
                "data type {sql_type} has no default operator class for access method \"btree\""
            ),
        )
        .with_hint(
            "You must specify an operator class for the index or define a default operator class \
             for the data type.",
        )),
        _ => Ok(()),
    }
}
