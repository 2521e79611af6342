//! Foreign keys within a catalog: the tables that reference each other, and comparisons between
//! referencing and referenced columns of different types.
//!
//! Invariant: `TableDef::referenced_by` of every table has exactly the tables that have a foreign
//! key to it. [`Catalog::link_foreign_keys`] restores it after each change of definitions. A new or
//! dropped foreign key therefore changes both tables' definitions. The change waits for the writers
//! of both, and writers of either notice it.

use crate::catalog::index::{ForeignKeyDef, IndexDef, IndexId, IndexState};
use crate::catalog::{Catalog, TableDef};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::{ColumnId, SqlType, TableId, Value};

/// Whether a column may reference another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparability {
    /// each value of one is equal to at most one value of the other
    Comparable,
    /// PostgreSQL compares them, Strandline does not
    Unsupported,
    /// no operator compares them
    Incompatible,
}

impl Catalog {
    /// The foreign keys that reference `parent`, with their tables, in order of creation.
    pub fn referencing(&self, parent: &TableDef) -> Vec<(Arc<TableDef>, Arc<ForeignKeyDef>)> {
        let tables = parent.referenced_by.iter();
        let mut found: Vec<_> = tables
            .filter_map(|id| self.tables.get(id))
            .flat_map(|child| {
                let keys = child.foreign_keys.iter();
                keys.filter(|key| key.parent == parent.id)
                    .map(|key| (child.clone(), key.clone()))
            })
            .collect();
        found.sort_by_key(|(_, key)| key.number);
        found
    }

    /// The number of the next foreign key.
    pub fn next_foreign_key(&self) -> u32 {
        let keys = self.tables.values().flat_map(|table| &table.foreign_keys);
        keys.map(|key| key.number + 1).max().unwrap_or(1)
    }

    /// Sets `referenced_by` of every table from the foreign keys.
    pub(crate) fn link_foreign_keys(&mut self) {
        let mut children: BTreeMap<TableId, Vec<TableId>> = BTreeMap::new();
        for table in self.tables.values() {
            for key in &table.foreign_keys {
                let known = children.entry(key.parent).or_default();
                if !known.contains(&table.id) {
                    known.push(table.id);
                }
            }
        }
        for (id, table) in &mut self.tables {
            let referenced_by = children.remove(id).unwrap_or_default();
            if table.referenced_by != referenced_by {
                Arc::make_mut(table).referenced_by = referenced_by;
            }
        }
    }
}

/// The constraint or index that makes the values of some columns unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UniqueOver {
    /// a PRIMARY KEY or UNIQUE constraint; indexes `TableDef::keys`
    Key(usize),
    /// a unique index
    Index(IndexId),
}

impl TableDef {
    /// The constraint or index that makes exactly these columns, in any order, a key that foreign
    /// keys may reference. It must be checked at the end of each statement, over all rows.
    pub fn unique_over(&self, columns: &[ColumnId]) -> Option<UniqueOver> {
        let mut keys = self.keys.iter();
        let key = keys.position(|key| !key.is_deferrable() && are_same(&key.columns, columns));
        let serves = |index: &&Arc<IndexDef>| {
            index.unique
                && index.is_plain()
                && index.state == IndexState::Valid
                && are_same(&index.key_columns(), columns)
        };
        let index = || self.indexes.iter().find(serves);
        let index = || index().map(|index| UniqueOver::Index(index.id));
        key.map(UniqueOver::Key).or_else(index)
    }

    /// The index that finds rows by values of these columns: a key over exactly these columns, or
    /// an index that begins with them, in any order.
    pub fn index_over(&self, columns: &[ColumnId]) -> Option<UniqueOver> {
        let mut keys = self.keys.iter();
        let key = keys.position(|key| are_same(&key.columns, columns));
        let serves = |index: &&Arc<IndexDef>| {
            let leading = index.key_columns();
            index.is_plain()
                && index.state == IndexState::Valid
                && leading
                    .get(..columns.len())
                    .is_some_and(|leading| are_same(leading, columns))
        };
        let index = || self.indexes.iter().find(serves);
        let index = || index().map(|index| UniqueOver::Index(index.id));
        key.map(UniqueOver::Key).or_else(index)
    }

    /// The columns that foreign keys of other tables may reference, each once. Empty if there are
    /// no such foreign keys.
    pub fn referenced_columns(&self) -> Vec<ColumnId> {
        let mut columns = Vec::new();
        if !self.referenced_by.is_empty() {
            columns.extend(self.keys.iter().flat_map(|key| &key.columns));
            let unique = self.indexes.iter().filter(|index| index.unique);
            columns.extend(unique.flat_map(|index| index.key_columns()));
        }
        columns.sort_unstable();
        columns.dedup();
        columns
    }
}

/// Whether two lists have the same columns, in any order. No list has a column twice.
fn are_same(a: &[ColumnId], b: &[ColumnId]) -> bool {
    a.len() == b.len() && a.iter().all(|id| b.contains(id))
}

/// Whether a column of type `child` may reference one of type `parent`.
pub fn comparability(child: SqlType, parent: SqlType) -> Comparability {
    use Comparability::{Comparable, Incompatible, Unsupported};
    match (family(child), family(parent)) {
        (a, b) if a == b => Comparable,
        (Family::Integer, Family::Numeric) | (Family::Char, Family::Text) => Comparable,
        (Family::Date, Family::Timestamp) | (Family::Timestamp, Family::Date) => Comparable,
        // Several values of one type would equal one value of the other.
        (Family::Integer | Family::Numeric, Family::Float) | (Family::Text, Family::Char) => {
            Unsupported
        }
        // Their comparison depends on the session's time zone.
        (Family::Date | Family::Timestamp, Family::TimestampTz)
        | (Family::TimestampTz, Family::Date | Family::Timestamp) => Unsupported,
        _ => Incompatible,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Integer,
    Numeric,
    Float,
    Text,
    Char,
    Date,
    Timestamp,
    TimestampTz,
    Other(SqlType),
}

fn family(sql_type: SqlType) -> Family {
    match sql_type {
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => Family::Integer,
        SqlType::Numeric { .. } => Family::Numeric,
        SqlType::Real | SqlType::Double => Family::Float,
        SqlType::Text | SqlType::Varchar(_) => Family::Text,
        SqlType::Char(_) => Family::Char,
        SqlType::Date => Family::Date,
        SqlType::Timestamp => Family::Timestamp,
        SqlType::TimestampTz => Family::TimestampTz,
        other => Family::Other(other),
    }
}

const DAY_MICROS: i64 = 86_400_000_000;

/// The value of type `to` that equals `value` of type `from`; None if there is none. The types must
/// be comparable. NULL stays NULL.
pub fn equal_value(value: &Value, from: SqlType, to: SqlType) -> Option<Value> {
    if from == to || value.is_null() {
        return Some(value.clone());
    }
    match (value, to) {
        (Value::SmallInt(_) | Value::Integer(_) | Value::BigInt(_), _) => {
            integer_as(integer(value)?, to)
        }
        (Value::Numeric(unscaled), SqlType::Numeric { scale, .. }) => {
            rescaled(*unscaled, scale_of(from), scale).map(Value::Numeric)
        }
        (Value::Numeric(unscaled), _) => integer_as(
            i64::try_from(rescaled(*unscaled, scale_of(from), 0)?).ok()?,
            to,
        ),
        (Value::Real(v), SqlType::Double) => Some(Value::Double(f64::from(*v))),
        (Value::Double(v), SqlType::Real) => {
            let narrow = *v as f32;
            let is_equal = f64::from(narrow) == *v || v.is_nan();
            is_equal.then_some(Value::Real(narrow))
        }
        (Value::Text(text), SqlType::Char(width)) => padded(text, width as usize),
        (Value::Text(text), _) if matches!(from, SqlType::Char(_)) => {
            Some(Value::from(text.trim_end_matches(' ')))
        }
        (Value::Text(_), _) => Some(value.clone()),
        (Value::Date(days), SqlType::Timestamp) => {
            Some(Value::Timestamp(i64::from(*days).checked_mul(DAY_MICROS)?))
        }
        (Value::Timestamp(micros), SqlType::Date) if micros % DAY_MICROS == 0 => {
            Some(Value::Date(i32::try_from(micros / DAY_MICROS).ok()?))
        }
        _ => None,
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::SmallInt(v) => Some(i64::from(*v)),
        Value::Integer(v) => Some(i64::from(*v)),
        Value::BigInt(v) => Some(*v),
        _ => None,
    }
}

fn integer_as(v: i64, to: SqlType) -> Option<Value> {
    match to {
        SqlType::SmallInt => i16::try_from(v).ok().map(Value::SmallInt),
        SqlType::Integer => i32::try_from(v).ok().map(Value::Integer),
        SqlType::BigInt => Some(Value::BigInt(v)),
        SqlType::Numeric { scale, .. } => rescaled(i128::from(v), 0, scale).map(Value::Numeric),
        _ => None,
    }
}

fn scale_of(sql_type: SqlType) -> u8 {
    match sql_type {
        SqlType::Numeric { scale, .. } => scale,
        _ => 0,
    }
}

fn rescaled(unscaled: i128, from: u8, to: u8) -> Option<i128> {
    if to >= from {
        return unscaled.checked_mul(10_i128.checked_pow(u32::from(to - from))?);
    }
    let factor = 10_i128.checked_pow(u32::from(from - to))?;
    (unscaled % factor == 0).then_some(unscaled / factor)
}

/// A text of char type padded to `width` characters; None if it is longer without blanks.
fn padded(text: &str, width: usize) -> Option<Value> {
    let text = text.trim_end_matches(' ');
    (text.chars().count() <= width).then(|| Value::from(format!("{text:width$}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numeric(scale: u8) -> SqlType {
        SqlType::Numeric {
            precision: 20,
            scale,
        }
    }

    #[test]
    fn equal_values_of_other_types() {
        use SqlType as T;
        let cases = [
            (
                Value::Integer(7),
                T::Integer,
                T::BigInt,
                Some(Value::BigInt(7)),
            ),
            (Value::BigInt(1 << 40), T::BigInt, T::Integer, None),
            (
                Value::Integer(7),
                T::Integer,
                numeric(2),
                Some(Value::Numeric(700)),
            ),
            (
                Value::Numeric(700),
                numeric(2),
                T::SmallInt,
                Some(Value::SmallInt(7)),
            ),
            (Value::Numeric(701), numeric(2), T::SmallInt, None),
            (
                Value::Numeric(150),
                numeric(2),
                numeric(1),
                Some(Value::Numeric(15)),
            ),
            (Value::Numeric(155), numeric(2), numeric(1), None),
            (
                Value::Real(0.5),
                T::Real,
                T::Double,
                Some(Value::Double(0.5)),
            ),
            (Value::Double(0.1), T::Double, T::Real, None),
            (
                Value::from("ab  "),
                T::Char(4),
                T::Text,
                Some(Value::from("ab")),
            ),
            (
                Value::from("ab  "),
                T::Char(4),
                T::Char(3),
                Some(Value::from("ab ")),
            ),
            (Value::from("abcd"), T::Char(4), T::Char(3), None),
            (
                Value::Date(1),
                T::Date,
                T::Timestamp,
                Some(Value::Timestamp(DAY_MICROS)),
            ),
            (
                Value::Timestamp(DAY_MICROS),
                T::Timestamp,
                T::Date,
                Some(Value::Date(1)),
            ),
            (Value::Timestamp(1), T::Timestamp, T::Date, None),
            (Value::Null, T::Integer, T::BigInt, Some(Value::Null)),
        ];
        for (value, from, to, expected) in cases {
            assert_eq!(comparability(from, from), Comparability::Comparable);
            assert_eq!(equal_value(&value, from, to), expected, "{value:?} as {to}");
        }
    }

    #[test]
    fn types_without_an_operator() {
        assert_eq!(
            comparability(SqlType::Text, SqlType::Integer),
            Comparability::Incompatible
        );
        assert_eq!(
            comparability(numeric(0), SqlType::Integer),
            Comparability::Incompatible
        );
        assert_eq!(
            comparability(SqlType::Text, SqlType::Char(3)),
            Comparability::Unsupported
        );
    }
}
