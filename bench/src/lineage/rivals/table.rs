//! The parts of a table besides its rows: typed columns and the primary index.
//!
//! Keys, columns and values are checked like in the product's row API (`sql/src/api/rows.rs`). A
//! key is looked up like in `engine/src/statement/point_table.rs`: first in the sequences, which a
//! bulk load makes per range, then in the index, which has every row.

use super::super::engine::{COLUMNS, NAMES, UPDATED};
use strandline_base::{
    ColumnId, Error, ErrorKind, RANGE_ROWS, Result, RowId, SqlState, SqlType, Value,
};
use strandline_index::{HashIndex, KeySequence, KeySequences, Lookup, hash_key, integer_key};

/// The primary key's column.
const KEY: ColumnId = ColumnId(COLUMNS as u32 - 1);

/// The table `point` without its rows.
pub struct Table {
    columns: Vec<Column>,
    index: HashIndex,
    sequences: KeySequences,
}

struct Column {
    name: &'static str,
    sql_type: SqlType,
}

impl Table {
    /// A table of `rows` rows, whose row ids are their keys.
    pub fn new(rows: u64) -> Self {
        let column = |name| Column {
            name,
            sql_type: SqlType::BigInt,
        };
        let (index, sequences) = (HashIndex::new(), KeySequences::default());
        index.reserve(rows as usize);
        let mut others = Vec::new();
        for first in (0..rows).step_by(RANGE_ROWS) {
            let range = first..rows.min(first + RANGE_ROWS as u64);
            for row in range.clone() {
                let hash = hash_key(&[Value::BigInt(row as i64)]);
                index.insert(hash, RowId(row), &mut others);
            }
            let entries = range.map(|row| (Some(row as i64), RowId(row)));
            if let Some(sequence) = KeySequence::of(entries) {
                sequences.add(&[sequence]);
            }
        }
        Self {
            columns: NAMES.into_iter().map(column).collect(),
            index,
            sequences,
        }
    }

    /// The number of the row with this key.
    pub fn find(&self, key: &[Value]) -> Result<Option<RowId>> {
        let [value] = key else {
            return Err(Error::invalid(
                SqlState::SYNTAX_ERROR,
                format!("the primary key has 1 column, {} were given", key.len()),
            ));
        };
        self.column(KEY)?.bigint(value)?;
        if let Some(row) = integer_key(key).and_then(|key| self.sequences.find(key)) {
            return Ok(Some(row));
        }
        match self.index.find(hash_key(key)) {
            Lookup::One(row) => Ok(Some(row)),
            Lookup::None => Ok(None),
            Lookup::Several => Err(Error::internal("two rows have one key")),
        }
    }

    /// Returns an error unless all of these columns exist.
    pub fn check_columns(&self, columns: &[ColumnId]) -> Result<()> {
        columns.iter().try_for_each(|id| self.column(*id).map(drop))
    }

    /// The values of the updated columns, after checks: an update sets all of them and no others.
    pub fn updated(&self, set: &[(ColumnId, Value)]) -> Result<[i64; UPDATED]> {
        let mut values = [None; UPDATED];
        for (id, value) in set {
            let value = self.column(*id)?.bigint(value)?;
            let place = values.get_mut(id.0 as usize).ok_or_else(not_all)?;
            *place = Some(value);
        }
        match values {
            [Some(a), Some(b), Some(c), Some(d)] => Ok([a, b, c, d]),
            _ => Err(not_all()),
        }
    }

    fn column(&self, id: ColumnId) -> Result<&Column> {
        self.columns.get(id.0 as usize).ok_or_else(|| {
            Error::invalid(
                SqlState::UNDEFINED_COLUMN,
                format!("table \"point\" has no column number {id}"),
            )
        })
    }
}

fn not_all() -> Error {
    Error::unsupported(format!(
        "updates set the first {UPDATED} columns, all of them"
    ))
}

impl Column {
    /// The value of a bigint column in its stored form.
    fn bigint(&self, value: &Value) -> Result<i64> {
        match (self.sql_type, value) {
            (SqlType::BigInt, Value::BigInt(value)) => Ok(*value),
            (_, Value::Null) => Err(Error::new(
                ErrorKind::Constraint,
                SqlState::NOT_NULL_VIOLATION,
                format!("null value in column \"{}\"", self.name),
            )),
            (sql_type, value) => Err(Error::invalid(
                SqlState::DATATYPE_MISMATCH,
                format!(
                    "column \"{}\" is of type {sql_type}, not of that of {value:?}",
                    self.name
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_and_only_those() {
        let rows = RANGE_ROWS as u64 + 1;
        let table = Table::new(rows);
        for key in [0, 1, rows - 2, rows - 1] {
            let found = table.find(&[Value::BigInt(key as i64)]).unwrap();
            assert_eq!(found, Some(RowId(key)), "key {key}");
        }
        for key in [-1, rows as i64, i64::MAX] {
            assert_eq!(table.find(&[Value::BigInt(key)]).unwrap(), None);
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let table = Table::new(2);
        assert!(table.find(&[Value::Integer(0)]).is_err());
        assert!(table.find(&[]).is_err());
        assert!(table.check_columns(&[KEY]).is_ok());
        assert!(table.check_columns(&[ColumnId(COLUMNS as u32)]).is_err());
        let set = |values: &[Value]| {
            let columns = (0..).map(ColumnId);
            table.updated(&columns.zip(values.iter().cloned()).collect::<Vec<_>>())
        };
        let numbers = [1, 2, 3, 4].map(Value::BigInt);
        assert_eq!(set(&numbers).unwrap(), [1, 2, 3, 4]);
        assert!(set(&numbers[..3]).is_err());
        assert!(set(&[1, 2, 3, 4, 5].map(Value::BigInt)).is_err());
        for wrong in [Value::Null, Value::Integer(1)] {
            let mut numbers = numbers.clone();
            numbers[2] = wrong;
            assert!(set(&numbers).is_err());
        }
    }
}
