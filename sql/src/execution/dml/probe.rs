//! INSERT … ON CONFLICT: finds the existing row that each proposed row conflicts with.
//!
//! The input has the proposed rows: all columns of the table in order, as `excluded.c`. The output
//! appends `_rowid`, NULL without a conflict. If the statement updates, it also appends the
//! existing row's columns under the target's name. [`super::keys`] finds conflicts with rows that
//! the same statement inserts.

use super::arbiter::Arbiter;
use super::widen::Widening;
use crate::parse::names::ROW_ID;
use crate::planning::owner::Owner;
use datafusion::arrow::array::{
    ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, UInt64Array, new_null_array,
};
use datafusion::arrow::compute::{concat_batches, take};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::TableReference;
use std::sync::Arc;
use strandline_base::{Error, Result, RowId};
use strandline_column::types::arrow_type;
use strandline_engine::catalog::TableDef;
use strandline_semantics::error::from_arrow;
use strandline_semantics::types;

/// The parameters of the search for conflicts.
pub(super) struct Probe {
    /// the table
    pub table: Arc<TableDef>,
    /// the keys and indexes to search
    pub arbiters: Vec<Arbiter>,
    /// whether to read the existing rows' columns
    pub fetch: bool,
    /// the qualifier of the existing rows' columns
    pub target: TableReference,
    /// the statement that searches
    pub owner: Owner,
}

impl Widening for Probe {
    fn name(&self) -> &'static str {
        "ConflictProbe"
    }

    fn explain(&self) -> String {
        let keys: Vec<_> = self
            .arbiters
            .iter()
            .map(|arbiter| arbiter.name(&self.table))
            .collect();
        format!("{} keys=[{}]", self.table.name, keys.join(", "))
    }

    fn fields(&self) -> Vec<(Option<TableReference>, Field)> {
        let mut fields = vec![(None, Field::new(ROW_ID, DataType::UInt64, true))];
        if self.fetch {
            fields.extend(self.table.columns.iter().map(|c| {
                (
                    Some(self.target.clone()),
                    types::field(&c.name, c.sql_type, true),
                )
            }));
        }
        fields
    }

    fn of(&self, owner: Owner) -> Arc<dyn Widening> {
        Arc::new(Self {
            table: self.table.clone(),
            arbiters: self.arbiters.clone(),
            fetch: self.fetch,
            target: self.target.clone(),
            owner,
        })
    }

    fn extend(&self, proposed: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
        let mut found: Vec<Option<RowId>> = vec![None; proposed.num_rows()];
        for arbiter in &self.arbiters {
            if found.contains(&None) {
                arbiter.require_immediate(&self.table)?;
            }
            let statement = self.owner.statement()?;
            let ids = match *arbiter {
                Arbiter::Key(key) => {
                    statement.find_by_key(&self.table, key, &self.keys(key, proposed)?)?
                }
                Arbiter::Index(at) => {
                    statement.find_by_index(&self.table, self.table.indexes[at].id, proposed)?
                }
            };
            for (known, id) in found.iter_mut().zip(ids) {
                *known = known.or(id);
            }
        }
        let existing = self.existing(&mut found)?;
        let mut columns = proposed.columns().to_vec();
        columns.push(Arc::new(UInt64Array::from_iter(
            found.iter().map(|id| id.map(|r| r.0)),
        )));
        columns.extend(existing);
        let options = RecordBatchOptions::new().with_row_count(Some(proposed.num_rows()));
        RecordBatch::try_new_with_options(schema.clone(), columns, &options)
            .map_err(|e| Error::internal(format!("rows of ON CONFLICT do not fit: {e}")))
    }
}

impl Probe {
    /// The columns of a key of the proposed rows.
    fn keys(&self, key: usize, proposed: &RecordBatch) -> Result<RecordBatch> {
        let positions: Vec<usize> = self.table.keys[key]
            .columns
            .iter()
            .map(|id| {
                self.table
                    .position(*id)
                    .ok_or_else(|| Error::internal("key column is gone"))
            })
            .collect::<Result<_>>()?;
        let fields: Vec<Field> = positions
            .iter()
            .map(|p| {
                let column = &self.table.columns[*p];
                Field::new(&column.name, arrow_type(column.sql_type), true)
            })
            .collect();
        let columns = positions
            .iter()
            .map(|p| proposed.column(*p).clone())
            .collect();
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(|e| from_arrow(&e))
    }

    /// The existing rows' columns, NULL where `found` has no row. Rows that cannot be fetched are
    /// this statement's own inserts, and are removed from `found`.
    fn existing(&self, found: &mut [Option<RowId>]) -> Result<Vec<ArrayRef>> {
        if !self.fetch {
            return Ok(Vec::new());
        }
        let ids: Vec<RowId> = found.iter().flatten().copied().collect();
        let columns: Vec<_> = self.table.columns.iter().map(|c| c.id).collect();
        let mut rows = if ids.is_empty() {
            None
        } else {
            let statement = self.owner.statement()?;
            Some(statement.fetch(&self.table, &ids, &columns)?.1)
        };
        if rows.as_ref().is_some_and(|r| r.num_rows() != ids.len()) {
            rows = self.fetch_one_by_one(found, &columns)?;
        }
        let mut next = 0;
        let indices: UInt32Array = found
            .iter()
            .map(|id| {
                id.map(|_| {
                    next += 1;
                    next - 1
                })
            })
            .collect();
        (0..self.table.columns.len())
            .map(|p| match &rows {
                Some(rows) => take(rows.column(p), &indices, None).map_err(|e| from_arrow(&e)),
                None => {
                    let data_type = arrow_type(self.table.columns[p].sql_type);
                    Ok(new_null_array(&data_type, found.len()))
                }
            })
            .collect()
    }

    fn fetch_one_by_one(
        &self,
        found: &mut [Option<RowId>],
        columns: &[strandline_base::ColumnId],
    ) -> Result<Option<RecordBatch>> {
        let statement = self.owner.statement()?;
        let mut fetched = Vec::new();
        for known in found.iter_mut() {
            let Some(id) = *known else { continue };
            let (_, row) = statement.fetch(&self.table, &[id], columns)?;
            match row.num_rows() {
                0 => *known = None,
                _ => fetched.push(row),
            }
        }
        let Some(first) = fetched.first() else {
            return Ok(None);
        };
        concat_batches(&first.schema(), &fetched)
            .map(Some)
            .map_err(|e| from_arrow(&e))
    }
}
