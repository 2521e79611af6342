//! WITH (key_index = …): whether the index of a key is ordered, and so serves the key's prefixes,
//! ranges and orders.

use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_engine::catalog::index::{IndexMethod, IndexStorage};
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
    Ok(match key.ordered {
        Some(_) => key,
        None => key.with_ordered_index(IndexStorage::Memory),
    })
}

/// Gives the table's keys, and those added later, indexes of this method.
///
/// # Errors
/// As [`with_index`].
pub fn set_method(table: &mut TableDef, method: IndexMethod) -> Result<()> {
    table.key_index = Some(method);
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
