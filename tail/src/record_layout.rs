//! Byte layout of a record within a tail page. All records of a page have one layout, which many
//! pages share.

use crate::column_set::ColumnSet;
use crate::record_words::LINE_WORDS;
use std::sync::Arc;
use strandline_base::cell::StorageColumn;
use strandline_base::value_words::Physical;
use strandline_base::{ColumnId, SqlType};

/// The columns of a storage, by id.
pub(crate) type StorageColumns = Arc<[StorageColumn]>;

/// Words that a record begins with, before its updated-column bits.
pub(crate) const HEADER_WORDS: usize = 3;

/// Where the parts of a page's records are.
#[derive(Debug)]
pub(crate) struct RecordLayout {
    /// all columns of the storage
    pub storage: StorageColumns,
    /// columns with a place in the record
    pub columns: ColumnSet,
    /// by column id
    pub places: Box<[CellPosition]>,
    /// words of updated-column bits, and of NULL bits
    pub bit_words: usize,
    /// words of a record
    pub stride: usize,
    /// all columns of the storage are in the first word of bits, and the cells of those it has are
    /// one word each
    pub is_simple: bool,
    /// text and bytes columns
    pub byte_columns: usize,
}

/// Where a column's cell is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CellPosition {
    pub sql_type: SqlType,
    pub kind: CellForm,
    /// the word in the record, or the position among the text and bytes columns
    pub at: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellForm {
    /// the page does not have the column
    Absent,
    Held(Physical),
}

impl RecordLayout {
    /// The columns that a layout for records with values of `columns` or of fewer has: all if the
    /// table is so small that they fit a cache line anyway.
    pub fn covered(storage: &[StorageColumn], columns: ColumnSet) -> ColumnSet {
        let words = |physical| match physical {
            Physical::Word | Physical::Bytes => 1,
            Physical::Wide => 2,
        };
        let all: usize = storage.iter().map(|spec| words(spec.physical)).sum();
        match all < LINE_WORDS - HEADER_WORDS {
            true => (0..storage.len() as u32).map(ColumnId).collect(),
            false => columns,
        }
    }
    /// A layout for records with values of `columns`.
    pub fn new(storage: &StorageColumns, columns: ColumnSet) -> Arc<Self> {
        let bit_words = storage.len().div_ceil(64).max(1);
        let (mut stride, mut byte_columns) = (HEADER_WORDS + bit_words, 0);
        let places = storage.iter().enumerate().map(|(id, column)| {
            let has = columns.contains(ColumnId(id as u32));
            let at = match column.physical {
                Physical::Bytes => byte_columns,
                Physical::Word | Physical::Wide => stride,
            };
            match column.physical {
                _ if !has => {}
                Physical::Word => stride += 1,
                Physical::Wide => stride += 2,
                Physical::Bytes => byte_columns += 1,
            }
            CellPosition {
                sql_type: column.sql_type,
                kind: match has {
                    true => CellForm::Held(column.physical),
                    false => CellForm::Absent,
                },
                at: at as u32,
            }
        });
        let places: Box<[CellPosition]> = places.collect();
        let is_word = |place: &CellPosition| {
            matches!(
                place.kind,
                CellForm::Absent | CellForm::Held(Physical::Word)
            )
        };
        Arc::new(Self {
            is_simple: bit_words == 1 && places.iter().all(is_word),
            storage: storage.clone(),
            columns,
            places,
            bit_words,
            stride,
            byte_columns,
        })
    }
}
