//! Bulk loads: rows straight into compressed chunks, a range at a time.
//!
//! Each full range is encoded and written to its own file and published under the transaction's
//! start word; the commit logs which files make up which range. Dropping the load (or rolling the
//! transaction back) leaves invisible ranges and removes the files.
//!
//! A range is full when it has all its rows, or rows of `Settings::range_bytes`: a range of wide
//! rows has fewer. This bounds the bytes of all work that handles one range at a time (encoding,
//! scans, merges). Row ids allow for that: a range's number and slot are no position.
//!
//! Encoding runs on worker threads ([`worker`]), at most one range each, and of no more ranges than
//! `Settings::load_bytes` have room for, so that loading uses all cores with bounded memory. The
//! workers that encode nothing enter loaded ranges into the table's indexes ([`entries`]). An index
//! in levels rewrites a part of itself for each load, so if the table has one, encoded ranges are
//! gathered and entered together. A range is registered with its transaction just before.
//!
//! All loads share `Settings::load_bytes`; what they gather may exceed it by an eighth of a range
//! each. One that is alone may have all of it. Several have half of what the others leave, and make
//! smaller ranges. None waits for another, since its client may have stopped sending. Each has at
//! least an eighth of a range's bytes.

mod entries;
mod worker;

use crate::catalog::TableDef;
use crate::db::memory_account::HeldBytes;
use crate::manifest_state::{RangeEntry, to_json};
use crate::redo;
use crate::statement::write_target::{TableIndexes, WriteTarget};
use crate::statement::{OnInvisibleDuplicate, Statement, not_null_violation};
use crate::store::{BasedRange, Store};
use crate::transaction::Load;
use arrow_array::{Array, ArrayRef, RecordBatch};
use entries::LoadedRange;
use std::collections::VecDeque;
use std::sync::Arc;
use strandline_base::{ColumnId, Error, RANGE_ROWS, Result};
use strandline_column::row_bytes::{batch_bytes, rows_within};
use strandline_storage::file::data_file::DataFile;
use strandline_tail::change::{PendingStamp, Writer};
use strandline_txn::StartWord;
use worker::Worker;

/// Below this many rows the rest of a load goes the way of ordinary inserts: a range of its own
/// would cost more than it saves.
const CHUNK_ROWS_MIN: usize = 4096;
/// Rows of one part in so many of a range's bytes are worth one however few they are.
const CHUNK_BYTES_PART: usize = 8;

/// A bulk load inside a statement.
pub struct BulkInsert {
    statement: Arc<Statement>,
    table: Arc<TableDef>,
    store: Arc<Store>,
    writer: Writer,
    buffered: Vec<RecordBatch>,
    buffered_rows: usize,
    buffered_bytes: HeldBytes,
    encoding: VecDeque<Encoding>,
    /// encoded ranges that are to be entered together
    encoded: VecDeque<Encoded>,
    workers: usize,
    idle: Vec<Worker>,
    loaded: u64,
}

struct Encoding {
    worker: Worker,
    /// values of the indexes' columns
    columns: Vec<Option<ArrayRef>>,
    rows: usize,
    bytes: HeldBytes,
}

/// An encoded range that its transaction does not know yet.
struct Encoded {
    loaded: Loaded,
    /// values of the indexes' columns
    columns: Vec<Option<ArrayRef>>,
    rows: usize,
    /// of these values
    bytes: HeldBytes,
}

struct Loaded {
    based: BasedRange,
    file: Arc<DataFile>,
    written: PendingStamp,
}

impl Statement {
    /// A fast path for bulk loads: rows go straight into compressed chunks.
    pub fn bulk_insert(self: &Arc<Self>, table: &Arc<TableDef>) -> Result<BulkInsert> {
        let WriteTarget { store, writer, .. } = self.writable(table)?;
        let buffered_bytes = self.transaction().db().load_memory.share();
        Ok(BulkInsert {
            statement: self.clone(),
            table: table.clone(),
            store,
            writer,
            buffered: Vec::new(),
            buffered_rows: 0,
            buffered_bytes,
            encoding: VecDeque::new(),
            encoded: VecDeque::new(),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            idle: Vec::new(),
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
            let buffered = self.buffered_bytes.bytes();
            let room = self.buffer_bytes().saturating_sub(buffered);
            let slots = RANGE_ROWS - self.buffered_rows;
            let take = rows_within(&rows, room).min(slots);
            let taken = rows.slice(0, take);
            let bytes = batch_bytes(&taken);
            if bytes > room && self.buffered_rows > 0 {
                // A single row, too wide for what is left of the range or of the share.
                let is_full = buffered + bytes > self.range_bytes();
                match is_full || self.encoding.is_empty() {
                    true => self.start_encoding()?,
                    false => self.finish_one()?,
                }
                continue;
            }
            if take == 1 {
                self.store.check_row_bytes(bytes)?;
            }
            self.buffered.push(taken);
            self.buffered_rows += take;
            self.buffered_bytes.add(bytes);
            rows = rows.slice(take, rows.num_rows() - take);
            if take == slots {
                self.start_encoding()?;
            }
        }
        Ok(())
    }

    fn range_bytes(&self) -> usize {
        self.statement.transaction().db().settings().range_bytes()
    }

    /// Bytes of rows that may wait for a full range.
    fn buffer_bytes(&self) -> usize {
        let db = self.statement.transaction().db();
        let encoding = self.encoding.iter().map(|range| range.bytes.bytes());
        let encoding = encoding.sum::<usize>() + self.encoded_bytes();
        let own = encoding + self.buffered_bytes.bytes();
        let share = match db.load_memory.used().saturating_sub(own) {
            0 => db.settings().load_bytes(),
            others => db.settings().load_bytes().saturating_sub(others) / 2,
        };
        let range = self.range_bytes();
        let share = share.saturating_sub(encoding);
        share.clamp(range / CHUNK_BYTES_PART, range)
    }

    /// Whether the buffered rows fill a range of their own.
    fn has_range(&self) -> bool {
        self.buffered_rows >= CHUNK_ROWS_MIN
            || self.buffered_bytes.bytes() >= self.range_bytes() / CHUNK_BYTES_PART
    }

    /// Loads the rest; returns the rows loaded. Keys are checked by `Statement::finish`.
    pub fn finish(mut self) -> Result<u64> {
        if self.has_range() {
            self.start_encoding()?;
        }
        while !self.encoding.is_empty() {
            self.finish_one()?;
        }
        self.enter_encoded()?;
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
        let bytes = self.buffered_bytes.take();
        self.statement.transaction().db().lend_to_tails();
        while !self.encoding.is_empty() && self.is_busy() {
            self.finish_one()?;
        }
        let least = self.range_bytes() / CHUNK_BYTES_PART;
        if self.is_busy() && self.encoded_bytes() >= least {
            self.enter_encoded()?;
        }
        let arrays = concat_columns(&batches, self.table.columns.len())?;
        // The rows are not in memory twice while they are encoded.
        drop(batches);
        let ids: Vec<ColumnId> = self.table.columns.iter().map(|c| c.id).collect();
        let store = self.store.clone();
        let writer = self.writer;
        let columns = self.key_columns(&arrays);
        let worker = match self.idle.pop() {
            Some(worker) => worker,
            None => Worker::start()?,
        };
        worker.give(move || {
            let (based, file, written) = store.load_range(&ids, &arrays, rows, &writer)?;
            Ok(Loaded {
                based,
                file,
                written,
            })
        })?;
        self.encoding.push_back(Encoding {
            worker,
            columns,
            rows,
            bytes,
        });
        Ok(())
    }

    /// Whether another range has to wait for one that is being encoded.
    fn is_busy(&self) -> bool {
        let db = self.statement.transaction().db();
        self.encoding.len() >= self.workers
            || db.load_memory.used() + self.range_bytes() > db.settings().load_bytes()
    }

    /// The columns that indexes read, in place; nothing of the others is kept.
    fn key_columns(&self, arrays: &[ArrayRef]) -> Vec<Option<ArrayRef>> {
        let mut read: Vec<ColumnId> = Vec::new();
        let keys = self.table.keys.iter();
        read.extend(keys.flat_map(|key| key.columns.iter().copied()));
        let indexes = self.table.indexes.iter();
        read.extend(indexes.flat_map(|index| index.key_columns()));
        let columns = self.table.columns.iter().zip(arrays);
        columns
            .map(|(column, array)| read.contains(&column.id).then(|| array.clone()))
            .collect()
    }

    fn finish_one(&mut self) -> Result<()> {
        let Some(Encoding {
            worker,
            columns,
            rows,
            bytes,
        }) = self.encoding.pop_front()
        else {
            return Ok(());
        };
        let loaded = worker.result()?;
        self.idle.push(worker);
        let mut held = bytes;
        let arrays = columns.iter().flatten();
        held.set(arrays.map(|array| array.get_buffer_memory_size()).sum());
        self.encoded.push_back(Encoded {
            loaded,
            columns,
            rows,
            bytes: held,
        });
        let is_enough = self.encoded_bytes() >= self.range_bytes() / 2;
        match is_enough || !self.gathers()? {
            true => self.enter_encoded(),
            false => Ok(()),
        }
    }

    /// Whether ranges are entered together: an index is in levels.
    fn gathers(&self) -> Result<bool> {
        let indexes = TableIndexes::of(&self.table, &self.store)?;
        let mut all = indexes.keys.iter().chain(&indexes.secondary);
        Ok(all.any(|index| index.is_in_levels()))
    }

    /// Bytes that encoded ranges keep.
    fn encoded_bytes(&self) -> usize {
        let encoded = self.encoded.iter().map(|range| range.bytes.bytes());
        encoded.sum()
    }

    /// Registers the encoded ranges with the transaction, then enters them into the indexes. A
    /// range that the transaction does not take stays, to be given up.
    fn enter_encoded(&mut self) -> Result<()> {
        let mut ranges = Vec::with_capacity(self.encoded.len());
        let mut held = Vec::with_capacity(self.encoded.len());
        while let Some(encoded) = self.encoded.pop_front() {
            if let Err(error) = self.register(&encoded.loaded) {
                self.encoded.push_front(encoded);
                return Err(error);
            }
            self.loaded += encoded.rows as u64;
            held.push(encoded.bytes);
            ranges.push(LoadedRange {
                no: encoded.loaded.based.no,
                columns: encoded.columns,
                rows: encoded.rows,
            });
        }
        if ranges.is_empty() {
            return Ok(());
        }
        self.enter_ranges(&ranges)?;
        for range in &ranges {
            self.statement
                .note_loaded(&self.table, &self.store, range.no)?;
        }
        Ok(())
    }

    fn register(&self, loaded: &Loaded) -> Result<()> {
        let json = to_json(&(loaded.based.no, RangeEntry::of(&loaded.based)))?;
        let txn = self.statement.transaction();
        let mut state = txn.state.lock();
        state.check_open()?;
        self.store.unlisted.lock().push(loaded.based.no);
        state.written.push(loaded.written.clone());
        state.rare_work().loads.push(Load {
            file: loaded.file.clone(),
            store: self.store.clone(),
            range: loaded.based.no,
        });
        redo::put_load(&mut state.redo, self.table.storage, &json);
        Ok(())
    }
}

impl Drop for BulkInsert {
    fn drop(&mut self) {
        // A load that was given up: its threads must not outlive it, its files go.
        let encoding = self.encoding.drain(..);
        let ended = encoding.filter_map(|encoding| encoding.worker.result().ok());
        for loaded in ended.chain(self.encoded.drain(..).map(|range| range.loaded)) {
            self.store.unlisted.lock().push(loaded.based.no);
            give_up(&loaded);
        }
    }
}

/// The range becomes invisible for good; a checkpoint empties it.
fn give_up(loaded: &Loaded) {
    loaded.written.stamp(StartWord::ABORTED);
    loaded.file.remove_when_unused();
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
