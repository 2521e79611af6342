//! WITH (key_index = 'ordered'), and 'btree' for the same in a page file: keys whose index serves their
//! prefixes, ranges and orders.

use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_engine::catalog::index::IndexMethod;
use strandline_engine::catalog::{KeyDef, TableDef};

/// The key with an index as the table's `key_index` says; hash if it says nothing.
///
/// # Errors
/// 42704 if the key is to be ordered and has a column of a type without an order.
pub fn with_index(table: &TableDef, key: KeyDef) -> Result<KeyDef> {
    if table.key_index != Some(IndexMethod::Ordered) {
        return Ok(key);
    }
    for id in &key.columns {
        if let Some(column) = table.column_by_id(*id) {
            check_type(column.sql_type)?;
        }
    }
    Ok(key.with_ordered_index(table.key_storage))
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
