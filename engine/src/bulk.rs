//! Bulk loads: rows straight into compressed chunks, a range at a time.
//!
//! Each full range is encoded and written to its own file and published under the transaction's
//! start word; the commit logs which files make up which range. Dropping the load (or rolling the
//! transaction back) leaves invisible ranges and removes the files.
//!
//! Encoding runs on worker threads, at most one range each, so that loading uses all cores with
//! bounded memory.

use crate::catalog::TableDef;
use crate::manifest_state::{RangeEntry, to_json};
use crate::redo;
use crate::statement::{OnInvisibleDuplicate, Statement, key_index, not_null_violation};
use crate::store::Store;
use crate::transaction::Load;
use arrow_array::{Array, ArrayRef, RecordBatch};
use std::collections::VecDeque;
use std::sync::Arc;
use strandline_base::{ColumnId, Error, RANGE_ROWS, Result, RowId, Value};
use strandline_index::{KeySequence, integer_key};
use strandline_table::data_file::DataFile;
use strandline_table::lineage::BasedRange;
use strandline_table::types::value_at;
use strandline_table::write::{Writer, Written};
use strandline_txn::StartWord;

/// Below this many rows the rest of a load goes the way of ordinary inserts: a range of its own
/// would cost more than it saves.
const CHUNK_ROWS_MIN: usize = 4096;

/// A bulk load inside a statement.
pub struct BulkInsert {
    statement: Arc<Statement>,
    table: Arc<TableDef>,
    store: Arc<Store>,
    writer: Writer,
    buffered: Vec<RecordBatch>,
    buffered_rows: usize,
    encoding: VecDeque<Encoding>,
    workers: usize,
    loaded: u64,
}

struct Encoding {
    thread: std::thread::JoinHandle<Result<Loaded>>,
    columns: Vec<ArrayRef>,
    rows: usize,
}

struct Loaded {
    based: BasedRange,
    file: Arc<DataFile>,
    written: Written,
}

impl Statement {
    /// A fast path for bulk loads: rows go straight into compressed chunks.
    pub fn bulk_insert(self: &Arc<Self>, table: &Arc<TableDef>) -> Result<BulkInsert> {
        let (store, writer) = self.writable(table)?;
        Ok(BulkInsert {
            statement: self.clone(),
            table: table.clone(),
            store,
            writer,
            buffered: Vec::new(),
            buffered_rows: 0,
            encoding: VecDeque::new(),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            loaded: 0,
        })
    }
}

impl BulkInsert {
    /// Takes rows; columns as in `TableDef::columns`.
    pub fn append(&mut self, rows: &RecordBatch) -> Result<()> {
        self.statement.transaction().check_cancelled()?;
        for (column, array) in self.table.columns.iter().zip(rows.columns()) {
            if column.not_null && array.null_count() > 0 {
                return Err(not_null_violation(&self.table, &column.name));
            }
        }
        let mut rows = rows.clone();
        while rows.num_rows() > 0 {
            let take = rows.num_rows().min(RANGE_ROWS - self.buffered_rows);
            self.buffered.push(rows.slice(0, take));
            self.buffered_rows += take;
            rows = rows.slice(take, rows.num_rows() - take);
            if self.buffered_rows == RANGE_ROWS {
                self.start_encoding()?;
            }
        }
        Ok(())
    }

    /// Loads the rest; returns the rows loaded. Keys are checked by `Statement::finish`.
    pub fn finish(mut self) -> Result<u64> {
        if self.buffered_rows >= CHUNK_ROWS_MIN {
            self.start_encoding()?;
        }
        while !self.encoding.is_empty() {
            self.finish_one()?;
        }
        for batch in std::mem::take(&mut self.buffered) {
            let violation = OnInvisibleDuplicate::Violation;
            self.statement.insert(&self.table, &batch, violation)?;
            self.loaded += batch.num_rows() as u64;
        }
        Ok(self.loaded)
    }

    fn start_encoding(&mut self) -> Result<()> {
        let batches = std::mem::take(&mut self.buffered);
        let rows = std::mem::take(&mut self.buffered_rows);
        let columns = concat_columns(&batches, self.table.columns.len())?;
        let ids: Vec<ColumnId> = self.table.columns.iter().map(|c| c.id).collect();
        let lineage = self.store.lineage.clone();
        let (writer, arrays) = (self.writer, columns.clone());
        if self.encoding.len() >= self.workers {
            self.finish_one()?;
        }
        let thread = std::thread::Builder::new()
            .name("strandline-load".into())
            .spawn(move || {
                let load = lineage.load_range(&ids, &arrays, rows, &writer)?;
                Ok(Loaded {
                    based: load.0,
                    file: load.1,
                    written: load.2,
                })
            })
            .map_err(|e| Error::io("starting a loader thread", &e))?;
        self.encoding.push_back(Encoding {
            thread,
            columns,
            rows,
        });
        Ok(())
    }

    fn finish_one(&mut self) -> Result<()> {
        let Some(Encoding {
            thread,
            columns,
            rows,
        }) = self.encoding.pop_front()
        else {
            return Ok(());
        };
        let loaded = thread
            .join()
            .map_err(|_| Error::internal("a loader thread panicked"))??;
        let txn = self.statement.transaction();
        let json = to_json(&(loaded.based.no, RangeEntry::of(&loaded.based)))?;
        self.store.unlisted.lock().push(loaded.based.no);
        {
            let mut state = txn.state.lock();
            if let Err(error) = state.check_open() {
                drop(state);
                give_up(&loaded);
                return Err(error);
            }
            state.written.push(loaded.written);
            state.loads.push(Load {
                file: loaded.file,
                store: self.store.clone(),
                range: loaded.based.no,
            });
            redo::put_bulk(&mut state.redo, self.table.storage, &json);
        }
        self.loaded += rows as u64;
        self.add_keys(&loaded.based, &columns, rows)
    }

    fn add_keys(&self, based: &BasedRange, columns: &[ArrayRef], rows: usize) -> Result<()> {
        for key in 0..self.table.keys.len() {
            let def = &self.table.keys[key];
            let mut parts = Vec::with_capacity(def.columns.len());
            for id in &def.columns {
                let at = self
                    .table
                    .position(*id)
                    .ok_or_else(|| Error::internal("a key column is missing"))?;
                parts.push((self.table.columns[at].sql_type, &columns[at]));
            }
            let mut values = vec![Value::Null; parts.len()];
            let mut entries = Vec::with_capacity(rows);
            for row in 0..rows {
                for (value, (sql_type, array)) in values.iter_mut().zip(&parts) {
                    *value = value_at(*sql_type, array, row);
                }
                let row = RowId::new(based.no, row as u16);
                self.statement
                    .add_bulk_key(&self.table, &self.store, key, &values, row)?;
                entries.push((integer_key(&values), row));
            }
            if let Some(sequence) = KeySequence::of(entries.into_iter()) {
                key_index(&self.store, &def.columns)?
                    .sequences
                    .add(sequence);
            }
        }
        Ok(())
    }
}

impl Drop for BulkInsert {
    fn drop(&mut self) {
        // A load that was given up: its threads must not outlive it, its files go.
        for encoding in self.encoding.drain(..) {
            if let Ok(Ok(loaded)) = encoding.thread.join() {
                self.store.unlisted.lock().push(loaded.based.no);
                give_up(&loaded);
            }
        }
    }
}

/// The range becomes invisible for good; a checkpoint empties it.
fn give_up(loaded: &Loaded) {
    loaded.written.stamp(StartWord::ABORTED);
    loaded.file.doom();
}

fn concat_columns(batches: &[RecordBatch], columns: usize) -> Result<Vec<ArrayRef>> {
    (0..columns)
        .map(|at| {
            let parts: Vec<&dyn Array> = batches.iter().map(|b| b.column(at).as_ref()).collect();
            match parts.as_slice() {
                [_] => Ok(batches[0].column(at).clone()),
                parts => arrow_select::concat::concat(parts)
                    .map_err(|e| Error::internal(format!("joining batches: {e}"))),
            }
        })
        .collect()
}
