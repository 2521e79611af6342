//! The form of one value in a record page, and a storage's description of the value's column.

use crate::value_words::{
    Physical, bytes_of, physical, value_of_bytes, value_of_wide, value_of_word, wide_of, word_of,
};
use crate::{Error, Result, SqlType, Value};

/// One column as storage sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct StorageColumn {
    /// the SQL type
    pub sql_type: SqlType,
    /// how tail and insert pages hold it
    pub physical: Physical,
    /// what rows written before the column was added show
    pub missing: Value,
}

impl StorageColumn {
    /// A column of `sql_type`; rows written before it was added show `missing`.
    pub fn new(sql_type: SqlType, missing: Value) -> Self {
        Self {
            sql_type,
            physical: physical(sql_type),
            missing,
        }
    }
}

/// A cell as pages hold it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// the page never had the column
    Absent,
    /// NULL
    Null,
    /// a fixed-width value of at most 8 bytes
    Word(u64),
    /// a 16-byte value, low half first
    Wide([u64; 2]),
    /// text, bytes or a box
    Bytes(&'a [u8]),
}

impl<'a> Cell<'a> {
    /// What a page holds of `value`.
    ///
    /// # Errors
    /// Internal, if a column of `spec` cannot hold it.
    #[inline]
    pub fn of(value: &'a Value, spec: &StorageColumn) -> Result<Self> {
        let cell = match (spec.physical, value) {
            (_, Value::Null) => Some(Self::Null),
            (Physical::Word, value) => word_of(value).map(Self::Word),
            (Physical::Wide, value) => wide_of(value).map(Self::Wide),
            (Physical::Bytes, value) => bytes_of(value).map(Self::Bytes),
        };
        cell.ok_or_else(|| {
            let t = spec.sql_type;
            Error::internal(format!(
                "{value:?} cannot be stored in a column of type {t}"
            ))
        })
    }

    /// The value, in a column of `spec`; its `missing` value where the page never had it.
    #[inline]
    pub fn value(self, spec: &StorageColumn) -> Result<Value> {
        match self {
            Self::Absent => Ok(spec.missing.clone()),
            Self::Null => Ok(Value::Null),
            Self::Word(word) => Ok(value_of_word(spec.sql_type, word)),
            Self::Wide(words) => Ok(value_of_wide(spec.sql_type, words)),
            Self::Bytes(bytes) => value_of_bytes(spec.sql_type, bytes),
        }
    }
}
