//! The keys that an INSERT … ON CONFLICT has inserted itself. The engine does not show a statement
//! its own rows, so a second proposed row with the same key is found here.

use super::operation::Operation;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::row::{OwnedRow, RowConverter, SortField};
use std::collections::HashSet;
use strandline_base::{Error, Result};
use strandline_column::types::arrow_type;

/// The inserted keys of each arbiter.
pub(super) struct InsertedKeys {
    arbiters: Vec<Inserted>,
}

struct Inserted {
    /// positions of the key's columns in the table
    columns: Vec<usize>,
    nulls_are_equal: bool,
    converter: Option<RowConverter>,
    seen: HashSet<OwnedRow>,
}

impl InsertedKeys {
    /// The keys at the start of a statement: none.
    pub fn new(operation: &Operation) -> Self {
        let arbiters = operation
            .arbiters
            .iter()
            .filter_map(|arbiter| {
                // The engine refuses a repeated value of an expression or of a partial index.
                let ids = arbiter.columns(&operation.table)?;
                let columns = ids.iter();
                let columns = columns.filter_map(|id| operation.table.position(*id));
                Some(Inserted {
                    columns: columns.collect(),
                    nulls_are_equal: arbiter.nulls_are_equal(&operation.table),
                    converter: None,
                    seen: HashSet::new(),
                })
            })
            .collect();
        Self { arbiters }
    }

    /// Adds the keys of the rows marked in `inserts`. Returns the rows whose key was inserted
    /// before. A key with NULL repeats only if NULLs are not distinct.
    pub fn repeated(
        &mut self,
        operation: &Operation,
        batch: &RecordBatch,
        inserts: &[bool],
    ) -> Result<Vec<usize>> {
        let mut repeated = vec![false; inserts.len()];
        for arbiter in &mut self.arbiters {
            let arrays = arbiter
                .columns
                .iter()
                .map(|position| {
                    let index = operation.layout.columns[*position]
                        .ok_or_else(|| Error::internal("a key column was not computed"))?;
                    Ok(batch.column(index).clone())
                })
                .collect::<Result<Vec<ArrayRef>>>()?;
            arbiter.mark(operation, &arrays, inserts, &mut repeated)?;
        }
        Ok((0..inserts.len()).filter(|row| repeated[*row]).collect())
    }
}

impl Inserted {
    fn mark(
        &mut self,
        operation: &Operation,
        arrays: &[ArrayRef],
        inserts: &[bool],
        repeated: &mut [bool],
    ) -> Result<()> {
        let bad = |e| strandline_semantics::error::from_arrow(&e);
        let converter = match &mut self.converter {
            Some(converter) => converter,
            unset => {
                let fields = self
                    .columns
                    .iter()
                    .map(|p| SortField::new(arrow_type(operation.table.columns[*p].sql_type)))
                    .collect();
                unset.insert(RowConverter::new(fields).map_err(bad)?)
            }
        };
        let keys = converter.convert_columns(arrays).map_err(bad)?;
        for (row, is_insert) in inserts.iter().enumerate() {
            let has_null = arrays.iter().any(|a| a.is_null(row));
            let counts = self.nulls_are_equal || !has_null;
            if *is_insert && !repeated[row] && counts && !self.seen.insert(keys.row(row).owned()) {
                repeated[row] = true;
            }
        }
        Ok(())
    }
}
