//! Fetches rows by the ids that an index has found, and applies all filters to them.

use super::source::Source;
use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt64Array,
};
use datafusion::arrow::compute::{and, filter_record_batch, prep_null_mask_filter};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Error, Result, RowId};
use strandline_engine::{Covering, KeyBytes, RowFilter, RowView};
use strandline_semantics::error::from_arrow;

/// Fetches rows for a scan.
pub struct Fetcher {
    source: Arc<Source>,
    view: RowView,
    /// the scan's output columns, then columns of filters only, then the caller's additional
    /// columns
    columns: Vec<ColumnId>,
    schema: SchemaRef,
}

/// The fetched rows that are visible, before the filters.
pub struct FetchedRows {
    /// ascending
    pub ids: Vec<RowId>,
    /// so many of them were read; the values of the others come from entries
    pub fetched: usize,
    /// the columns that the fetcher reads
    batch: RecordBatch,
}

impl Fetcher {
    /// A fetcher for the rows of `source`, returned with `schema`; it also reads `besides`.
    pub fn new(source: Arc<Source>, schema: SchemaRef, besides: &[ColumnId]) -> Result<Self> {
        let mut columns = source.columns.clone();
        let filtered = source.filters.rows.iter().flat_map(|f| f.columns());
        for id in filtered.chain(besides) {
            if !columns.contains(id) {
                columns.push(*id);
            }
        }
        Ok(Self {
            view: source.view()?,
            source,
            columns,
            schema,
        })
    }

    /// The visible rows of `ids`, which must ascend.
    pub fn fetch(&self, ids: &[RowId]) -> Result<FetchedRows> {
        let (ids, batch) = self.view.fetch(ids, &self.columns)?;
        Ok(FetchedRows {
            fetched: ids.len(),
            ids,
            batch,
        })
    }

    /// The visible rows of `ids`, which must ascend, by their entries `keys` where these are
    /// certain. `covering` has the fetcher's columns.
    pub fn covered(
        &self,
        ids: &[RowId],
        keys: &[Option<KeyBytes>],
        covering: &Covering<'_>,
    ) -> Result<FetchedRows> {
        let (ids, batch, fetched) = self.view.fetch_covered(ids, keys, covering)?;
        Ok(FetchedRows {
            ids,
            fetched,
            batch,
        })
    }

    /// The moment that it reads rows at.
    pub fn ts(&self) -> CommitTs {
        self.view.ts()
    }

    /// The columns that it reads.
    pub fn columns(&self) -> &[ColumnId] {
        &self.columns
    }

    /// Marks the `rows` that pass the filters; None: all.
    pub fn passing(&self, rows: &FetchedRows) -> Result<Option<BooleanArray>> {
        let mut selection: Option<BooleanArray> = None;
        for filter in &self.source.filters.rows {
            let inputs = filter.columns().iter().map(|id| self.column(rows, *id));
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            let mask = filter.evaluate(&anonymous(inputs, rows.ids.len())?)?;
            let mask = match mask.null_count() {
                0 => mask,
                _ => prep_null_mask_filter(&mask),
            };
            selection = Some(match selection {
                None => mask,
                Some(before) => and(&before, &mask).map_err(|e| from_arrow(&e))?,
            });
        }
        Ok(selection.filter(|s| s.true_count() < rows.ids.len()))
    }

    /// The output columns of `rows`.
    pub fn output(&self, rows: &FetchedRows) -> Result<RecordBatch> {
        let mut columns = rows.batch.columns().to_vec();
        columns.truncate(self.source.columns.len());
        if self.source.with_row_id {
            let ids = rows.ids.iter().map(|id| id.0);
            columns.push(Arc::new(UInt64Array::from_iter_values(ids)));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows.ids.len()));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
            .map_err(|e| from_arrow(&e))
    }

    /// The output columns of those `rows` that pass the filters.
    pub fn filtered(&self, rows: &FetchedRows) -> Result<RecordBatch> {
        let output = self.output(rows)?;
        match self.passing(rows)? {
            None => Ok(output),
            Some(passing) => filter_record_batch(&output, &passing).map_err(|e| from_arrow(&e)),
        }
    }

    /// One of the fetched columns.
    pub fn column(&self, rows: &FetchedRows, id: ColumnId) -> Result<ArrayRef> {
        let at = self.columns.iter().position(|column| *column == id);
        let column = at.and_then(|at| rows.batch.columns().get(at));
        column
            .cloned()
            .ok_or_else(|| Error::internal("a filter reads a column that is not fetched"))
    }
}

/// A batch whose columns are known by position.
fn anonymous(columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let fields = columns
        .iter()
        .map(|column| Field::new("", column.data_type().clone(), true));
    let schema = Schema::new(fields.collect::<Vec<_>>());
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options)
        .map_err(|e| from_arrow(&e))
}
