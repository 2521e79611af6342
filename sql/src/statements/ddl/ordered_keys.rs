//! The index of a key: a hash of whole keys, or an ordered one that serves the key's prefixes,
//! ranges and orders as well, in memory or in a file.
//!
//! A table's `key_index` decides; without it the setting `strandline.key_index`; if that is `auto`,
//! the key's columns ([`of_columns`]).

use crate::planning::context::StatementContext;
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_engine::catalog::index::IndexStorage;
use strandline_engine::catalog::{KeyDef, KeyIndex, TableDef};

/// The key with its index.
///
/// # Errors
/// 42704 if the key has a point or a box, or is to be ordered and has a column of a type without an
/// order.
pub fn with_index(context: &StatementContext, table: &TableDef, key: KeyDef) -> Result<KeyDef> {
    match table.key_index().or(context.key_index) {
        Some(index) => Ok(KeyDef {
            // The table's own word says so of all its keys.
            stays_in_memory: table.key_index.is_none() && index.is_in_memory(),
            ..with_given(table, key, index)?
        }),
        None => {
            let types = types_of(table, &key);
            types.iter().copied().try_for_each(check_equality)?;
            let index = of_columns(&types);
            Ok(key.with_index(index))
        }
    }
}

/// The key with its index, in place of a secondary index with this storage: one on pages stays on
/// pages, unless the table's `key_index` says otherwise.
///
/// # Errors
/// Those of [`with_index`].
pub fn in_place_of(
    context: &StatementContext,
    table: &TableDef,
    key: KeyDef,
    storage: IndexStorage,
) -> Result<KeyDef> {
    match (table.key_index(), storage) {
        (None, IndexStorage::Pages) => with_given(table, key, KeyIndex::Btree),
        _ => with_index(context, table, key),
    }
}

/// The index of a key over columns of these types.
///
/// Numbers that applications count up, dates and times are looked up one by one, and a hash index
/// keeps sequences of integers in no memory. Other keys are read by prefixes, ranges and in their
/// order as well. Types of which an ordered index does not know the exact values gain less by it.
fn of_columns(types: &[SqlType]) -> KeyIndex {
    match types {
        [t] if is_counted(*t) => KeyIndex::Hash,
        types if types.iter().copied().all(has_exact_order) => KeyIndex::Ordered,
        _ => KeyIndex::Hash,
    }
}

fn is_counted(t: SqlType) -> bool {
    use SqlType as T;
    matches!(
        t,
        T::SmallInt | T::Integer | T::BigInt | T::Date | T::Time | T::Timestamp | T::TimestampTz
    )
}

/// Whether the key bytes of an ordered index have a type's exact values.
fn has_exact_order(t: SqlType) -> bool {
    use SqlType as T;
    !matches!(t, T::Real | T::Double | T::Interval | T::Json)
}

/// Gives the table's keys, and those added later, the indexes that a word of `key_index` means.
///
/// # Errors
/// 22023 for an unknown word; those of [`with_index`].
pub fn set_key_index(table: &mut TableDef, word: &str) -> Result<()> {
    let Some(index) = KeyIndex::of_word(word) else {
        let message = format!("invalid value for key_index: \"{word}\"");
        return Err(Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message)
            .with_hint("Valid values are 'hash', 'ordered', 'btree' and 'fdtree'."));
    };
    table.set_key_index(index);
    let keys = table.keys.iter();
    let keys = keys.map(|key| with_given(table, key.clone(), index));
    table.keys = keys.collect::<Result<_>>()?;
    Ok(())
}

fn with_given(table: &TableDef, key: KeyDef, index: KeyIndex) -> Result<KeyDef> {
    let check = match index {
        KeyIndex::Hash => check_equality,
        _ => check_type,
    };
    types_of(table, &key).into_iter().try_for_each(check)?;
    Ok(key.with_index(index))
}

fn types_of(table: &TableDef, key: &KeyDef) -> Vec<SqlType> {
    let columns = key.columns.iter();
    let columns = columns.filter_map(|id| table.column_by_id(*id));
    columns.map(|column| column.sql_type).collect()
}

/// Refuses a type whose values have neither an order nor an equality.
fn check_equality(sql_type: SqlType) -> Result<()> {
    match sql_type {
        SqlType::Point | SqlType::Box => check_type(sql_type),
        _ => Ok(()),
    }
}

/// Refuses a type whose values have no order.
pub fn check_type(sql_type: SqlType) -> Result<()> {
    match sql_type {
        SqlType::Json | SqlType::Point | SqlType::Box => Err(Error::invalid(
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
