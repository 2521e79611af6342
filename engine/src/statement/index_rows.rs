//! Reading by a secondary index: entries in order, and the rows that they lead to.
//!
//! An entry leads to a row that has, or had, its key: [`IndexRows`] gives candidates. A row may
//! come several times, under keys that it had at different times. Two ways to read are right:
//! * Without an order: gather candidates, sort and dedup them, fetch the visible versions
//!   ([`RowView::fetch`]), and apply the whole filter again.
//! * In the index's order: fetch chunk by chunk with the key's columns, and keep a row only if the
//!   key of its visible version, encoded, is the entry's.
//!
//! [`super::covered_rows`] takes values from entries where these are certain.
//!
//! A transaction's own uncommitted rows have entries as well. Cursors hold no lock between chunks:
//! every entry that was there when the cursor was made and has stayed is given once.

use super::{Statement, record_batch};
use crate::catalog::index::IndexId;
use crate::catalog::{TableDef, column_of};
use crate::request::ScanRequest;
use crate::store::dead_runs::run_of;
use crate::store::{
    RangeSnapshot, Store, StoredIndex, TableStore, find_readable_index, readable_index,
};
use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_schema::{Field, Schema, SchemaRef};
use std::sync::Arc;
use strandline_base::{
    BLOCK_ROWS, ColumnId, CommitTs, Error, RangeNo, Result, RowId, SqlType, Value,
};
use strandline_column::types::{array_of, arrow_type, value_at};
use strandline_index::{Direction, KeyBytes, KeyRange, OrderedKeys, PartOrder};
use strandline_txn::{SnapshotGuard, StartWord, Visibility};

/// So many rows of one block pay for reading the block; fewer are read one by one.
const BLOCK_ROWS_MIN: usize = 64;

/// Entries of a range of an index's keys, in order.
pub struct IndexRows {
    index: Arc<StoredIndex>,
    range: KeyRange,
    direction: Direction,
    /// the last one given
    after: Option<(KeyBytes, RowId)>,
    is_at_end: bool,
    /// the snapshot that rows are read by; None: dead entries are given
    pub(super) read_at: Option<CommitTs>,
}

/// Computes the keys under which an index holds rows.
pub struct RowKeys {
    index: Arc<StoredIndex>,
    /// of the columns that determine a key
    types: Vec<SqlType>,
}

/// A table as one reader sees it, for reading rows by their ids. Nothing that it sees is dropped
/// while it lives.
pub struct RowView {
    pub(super) table: Arc<TableDef>,
    pub(super) store: Arc<Store>,
    pub(super) visibility: Visibility,
    _snapshot: SnapshotGuard,
}

impl Statement {
    /// The encoder of an index's keys: makes the ranges of [`Statement::index_cursor`].
    pub fn index_keys(&self, table: &TableDef, index: IndexId) -> Result<OrderedKeys> {
        let def = table.index(index).ok_or_else(not_defined)?;
        let parts = def.parts.iter().map(|part| PartOrder {
            descending: part.descending,
            nulls_first: part.nulls_first,
        });
        Ok(OrderedKeys::new(parts.collect::<Vec<_>>()))
    }

    /// Whether an index that `table` defines can be read: not if the definition is one of the past
    /// and the index has been dropped since, nor if it could not be built.
    pub fn has_index(&self, table: &TableDef, index: IndexId) -> bool {
        let store = self.txn.db().store(table.storage);
        let index = store.map(|store| find_readable_index(&store, table, index));
        index.is_ok_and(|index| index.is_some_and(|index| index.is_usable()))
    }

    /// Whether the index of a key can be asked; `key` indexes `TableDef::keys`.
    pub fn has_key(&self, table: &TableDef, key: usize) -> bool {
        let store = self.txn.db().store(table.storage);
        let index = store.map(|store| store.key(&table.keys[key].columns));
        index.is_ok_and(|index| index.is_some_and(|index| index.is_usable()))
    }

    /// Entries of an index, and the bytes of its memory or of its file.
    pub fn index_size(&self, table: &TableDef, index: IndexId) -> Result<(usize, usize)> {
        let store = self.txn.db().store(table.storage)?;
        let index = readable_index(&store, table, index)?;
        Ok((index.index.len(), index.bytes() as usize))
    }

    /// The entries of an index within a range of keys; see the module's documentation. A
    /// serializable transaction notes what it reads by [`Statement::note_read`].
    pub fn index_cursor(
        &self,
        table: &Arc<TableDef>,
        index: IndexId,
        range: &KeyRange,
        direction: Direction,
    ) -> Result<IndexRows> {
        let store = self.txn.db().store(table.storage)?;
        Ok(IndexRows {
            index: readable_index(&store, table, index)?,
            range: range.clone(),
            direction,
            after: None,
            is_at_end: false,
            read_at: None,
        })
    }

    /// The computation of the keys that rows of `table` have in an index.
    pub fn row_keys(&self, table: &TableDef, index: IndexId) -> Result<RowKeys> {
        let store = self.txn.db().store(table.storage)?;
        let index = readable_index(&store, table, index)?;
        let columns = index.columns.iter();
        let types = columns.map(|id| Ok(column_of(table, *id)?.sql_type));
        Ok(RowKeys {
            types: types.collect::<Result<_>>()?,
            index,
        })
    }

    /// Notes a read that covers the same rows as a scan with `request`, made by another access
    /// path.
    pub fn note_read(&self, table: &TableDef, request: &ScanRequest) -> Result<()> {
        self.txn.note_scan(table, request, false)
    }

    /// The table as this statement sees it.
    pub fn view(&self, table: &Arc<TableDef>) -> Result<RowView> {
        Ok(RowView {
            store: self.txn.db().store(table.storage)?,
            table: table.clone(),
            visibility: self.visibility,
            _snapshot: self.snapshot.clone(),
        })
    }

    /// The table as of `ts`, which is at most the stable timestamp (later waits; in the future is
    /// an error; older than the retention is 72000). `table` is the definition at that moment.
    pub fn view_as_of(&self, table: &Arc<TableDef>, ts: CommitTs) -> Result<RowView> {
        let db = self.txn.db();
        let snapshot = db.txns().snapshot_at(ts, &|| self.txn.is_cancelled())?;
        // Only from here on nothing of that moment is dropped any more.
        db.check_retained(table, ts)?;
        Ok(RowView {
            store: db.store(table.storage)?,
            table: table.clone(),
            visibility: Visibility {
                ts,
                own: StartWord(0),
                statement: 0,
            },
            _snapshot: snapshot,
        })
    }

    /// Reads columns of rows as this statement sees them; see [`RowView::fetch`].
    pub fn fetch(
        &self,
        table: &Arc<TableDef>,
        rows: &[RowId],
        columns: &[ColumnId],
    ) -> Result<(Vec<RowId>, RecordBatch)> {
        self.view(table)?.fetch(rows, columns)
    }
}

impl IndexRows {
    /// Appends up to `at_most` further entries to `out`; whether there may be more.
    pub fn next_chunk(&mut self, at_most: usize, out: &mut Vec<(KeyBytes, RowId)>) -> Result<bool> {
        if self.is_at_end || at_most == 0 {
            return Ok(!self.is_at_end);
        }
        let index = &self.index.index;
        let mut cursor = match &self.after {
            None => index.cursor(&self.range, self.direction)?,
            Some(after) => index.cursor_after(&self.range, self.direction, after)?,
        };
        let dead = self.read_at.and_then(|ts| {
            let runs = self.index.dead_runs()?.runs_at(ts)?;
            Some((runs, ts))
        });
        let first = out.len();
        while out.len() - first < at_most {
            let Some(entry) = cursor.next()? else {
                self.is_at_end = true;
                break;
            };
            let run = dead
                .as_ref()
                .and_then(|(runs, ts)| run_of(runs, &entry, *ts));
            match run.map(|run| run.end(self.direction)) {
                Some(end) => cursor = index.cursor_after(&self.range, self.direction, end)?,
                None => out.push(entry),
            }
        }
        if let Some(last) = out[first..].last() {
            self.after = Some(last.clone());
        }
        Ok(!self.is_at_end)
    }
}

impl RowKeys {
    /// The columns that determine a row's key.
    pub fn columns(&self) -> &[ColumnId] {
        &self.index.columns
    }

    /// The keys of `rows` rows whose [`RowKeys::columns`] are these; None: the row has no entry.
    ///
    /// # Errors
    /// Those of the index's expressions.
    pub fn of_rows(&self, columns: &[ArrayRef], rows: usize) -> Result<Vec<Option<KeyBytes>>> {
        let types = self.types.iter().copied();
        let parts: Vec<(SqlType, ArrayRef)> = types.zip(columns.iter().cloned()).collect();
        let computed = self.index.computed();
        let computed = computed.map(|key| key.of_rows(&parts)).transpose()?;
        let parts = computed.as_ref().map_or(&parts, |keys| &keys.parts);
        let mut values = vec![Value::Null; parts.len()];
        let keys = (0..rows).map(|row| {
            for (value, (sql_type, array)) in values.iter_mut().zip(parts) {
                *value = value_at(*sql_type, array, row);
            }
            let is_selected = computed.as_ref().is_none_or(|keys| keys.is_selected(row));
            is_selected.then(|| self.index.key_bytes(&values)).flatten()
        });
        Ok(keys.collect())
    }
}

impl RowView {
    /// When it sees the table.
    pub fn ts(&self) -> CommitTs {
        self.visibility.ts
    }

    /// Reads columns of the visible rows among `rows`. Returns their ids in the order given, and a
    /// batch with one row for each. Rows in ascending order are read block by block.
    pub fn fetch(&self, rows: &[RowId], columns: &[ColumnId]) -> Result<(Vec<RowId>, RecordBatch)> {
        let mut fetch = Fetch::new(self, columns)?;
        fetch.read(rows)?;
        fetch.finish()
    }
}

/// Rows on the way into one batch.
pub(super) struct Fetch<'a> {
    view: &'a RowView,
    columns: Arc<[ColumnId]>,
    types: Vec<SqlType>,
    schema: SchemaRef,
    pub(super) ids: Vec<RowId>,
    /// values of rows read one by one since the last of `batches`
    cells: Vec<Vec<Value>>,
    batches: Vec<RecordBatch>,
    /// the range that a block was last read of
    range: Option<(RangeNo, RangeSnapshot)>,
}

impl<'a> Fetch<'a> {
    pub(super) fn new(view: &'a RowView, columns: &[ColumnId]) -> Result<Self> {
        let mut fields = Vec::with_capacity(columns.len());
        let mut types = Vec::with_capacity(columns.len());
        for &id in columns {
            let c = column_of(&view.table, id)?;
            fields.push(Field::new(&c.name, arrow_type(c.sql_type), !c.not_null));
            types.push(c.sql_type);
        }
        Ok(Self {
            view,
            columns: columns.into(),
            types,
            schema: Arc::new(Schema::new(fields)),
            ids: Vec::new(),
            cells: vec![Vec::new(); columns.len()],
            batches: Vec::new(),
            range: None,
        })
    }

    /// Reads the visible ones of `rows`.
    pub(super) fn read(&mut self, rows: &[RowId]) -> Result<()> {
        self.ids.reserve(rows.len());
        let block = |row: &RowId| (row.range(), row.slot() / BLOCK_ROWS);
        for rows in rows.chunk_by(|a, b| block(a) == block(b)) {
            if rows.len() < BLOCK_ROWS_MIN {
                self.read_each(rows)?;
                continue;
            }
            let no = rows[0].range();
            let known = self.range.take_if(|(known, _)| *known == no);
            let range = match known {
                Some(known) => Some(known),
                None => self.snapshot(no)?.map(|snapshot| (no, snapshot)),
            };
            match &range {
                Some((_, snapshot)) => self.read_block(snapshot, rows)?,
                None => self.read_each(rows)?,
            }
            self.range = range;
        }
        Ok(())
    }

    /// Adds a visible row, whose `values` are those of the columns; takes them.
    pub(super) fn push_row(&mut self, row: RowId, values: &mut [Value]) {
        self.ids.push(row);
        for (cells, value) in self.cells.iter_mut().zip(values) {
            cells.push(std::mem::replace(value, Value::Null));
        }
    }

    fn read_each(&mut self, rows: &[RowId]) -> Result<()> {
        let view = self.view;
        let mut values = vec![Value::Null; self.columns.len()];
        let stored = view.store.rows();
        for &row in rows {
            if stored.read(row, &view.visibility, &self.columns, &mut values)? {
                self.push_row(row, &mut values);
            }
        }
        Ok(())
    }

    fn snapshot(&self, no: RangeNo) -> Result<Option<RangeSnapshot>> {
        let store = &self.view.store;
        let Some(range) = store.range(no) else {
            return Ok(None);
        };
        let visibility = &self.view.visibility;
        let counters = Arc::default();
        let columns = &self.columns;
        let snapshot = store.read_range(&range, None, visibility, columns, &counters)?;
        Ok(Some(snapshot))
    }

    /// Reads rows of one block.
    fn read_block(&mut self, snapshot: &RangeSnapshot, rows: &[RowId]) -> Result<()> {
        let first = rows[0].slot() / BLOCK_ROWS * BLOCK_ROWS;
        let end = (first + BLOCK_ROWS).min(snapshot.rows());
        if first >= end {
            return Ok(());
        }
        let part = snapshot.part(first..end);
        let visible = part.visible();
        let is_visible = |row: &&RowId| {
            let slot = row.slot();
            slot < end && visible.as_ref().is_none_or(|bits| bits.value(slot - first))
        };
        let found: Vec<RowId> = rows.iter().filter(is_visible).copied().collect();
        if found.is_empty() {
            return Ok(());
        }
        self.flush()?;
        let slots = found.iter().map(|row| (row.slot() - first) as u32);
        let slots = UInt32Array::from_iter_values(slots);
        let mut arrays = Vec::with_capacity(self.columns.len());
        for at in 0..self.columns.len() {
            let taken = arrow_select::take::take(&part.column(at)?, &slots, None)
                .map_err(|e| Error::internal(format!("taking rows of a block: {e}")))?;
            arrays.push(taken);
        }
        self.push_batch(arrays, found.len())?;
        self.ids.extend(found);
        Ok(())
    }

    fn push_batch(&mut self, arrays: Vec<ArrayRef>, rows: usize) -> Result<()> {
        let batch = record_batch(self.schema.clone(), arrays, rows)?;
        self.batches.push(batch);
        Ok(())
    }

    /// Puts the values read row by row into a batch.
    fn flush(&mut self) -> Result<()> {
        let before: usize = self.batches.iter().map(RecordBatch::num_rows).sum();
        let rows = self.ids.len() - before;
        if rows == 0 {
            return Ok(());
        }
        let mut arrays = Vec::with_capacity(self.types.len());
        for (cells, sql_type) in self.cells.iter_mut().zip(&self.types) {
            arrays.push(array_of(*sql_type, cells)?);
            cells.clear();
        }
        self.push_batch(arrays, rows)
    }

    pub(super) fn finish(mut self) -> Result<(Vec<RowId>, RecordBatch)> {
        self.flush()?;
        let batch = match self.batches.as_slice() {
            [] => RecordBatch::new_empty(self.schema.clone()),
            [one] => one.clone(),
            several => arrow_select::concat::concat_batches(&self.schema, several)
                .map_err(|e| Error::internal(format!("joining batches: {e}")))?,
        };
        Ok((self.ids, batch))
    }
}

#[cold]
fn not_defined() -> Error {
    Error::internal("the table does not define this index")
}
