//! The product's storage of rows on the rivals' transactions, log, table and interface. It compares
//! L-Store with the two rivals as the paper does, with nothing else between them [L-Store §6].
//!
//! Shared with the product: base chunks and their cache, tails, row map, write protocol, overlays,
//! merges. Left out, as with the rivals: sessions, catalog, runs and checkpoints, SQL. Without runs
//! there is no history. A merge therefore stops at the oldest registered snapshot, so that no
//! reader meets a base newer than its snapshot.
//!
//! Lock order: as in `strandline_table::lineage`. Only the merge thread publishes.

use super::point::{Buffers, Numbers, PointTransaction};
use super::table::Table;
use super::transactions::{FIRST, Transaction, Transactions, conflict};
use crate::Result;
use crate::cpu_time::OVERLAYS;
use crate::lineage::engine::{COLUMNS, Engine, Point, Scanner, Session, Step, first_values};
use datafusion::arrow::array::{ArrayRef, AsArray, Int64Array};
use datafusion::arrow::compute::sum;
use datafusion::arrow::datatypes::Int64Type;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use strandline_base::{
    BLOCK_ROWS, ColumnId, CommitTs, Error, RANGE_ROWS, RangeNo, RowId, SqlType, StorageId, Value,
};
use strandline_device::{Device, MemoryDevice};
use strandline_storage::file::DataFiles;
use strandline_storage::file::data_file::DataFile;
use strandline_storage::pool::Pool;
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::consolidation::Consolidation;
use strandline_table::lineage::horizon::Horizon;
use strandline_table::lineage::merge::MergeOutput;
use strandline_table::lineage::read::NewestRow;
use strandline_table::lineage::scan::ScanCounters;
use strandline_table::lineage::{Lineage, Shared};
use strandline_tail::change::{Change, PendingStamp, WriteOutcome, Writer};
use strandline_tail::schema::StorageSchema;
use strandline_txn::{StartWord, Visibility};

/// The number of records that makes a merge due: half a range, as in the product. In tests it is
/// small, as the tables are.
const MERGE_RECORDS: u32 = if cfg!(test) {
    1_000
} else {
    RANGE_ROWS as u32 / 2
};
/// Cache size that holds everything, as the rivals' memory does.
const CACHE_BYTES: usize = 4 << 30;
/// The statement numbers of a transaction's writes and of its reads, which must be later.
const WRITES: u32 = 1;
const READS: u32 = 2;

/// The engine with the product's storage.
pub struct Storage {
    lineage: Arc<Lineage>,
    table: Table,
    transactions: Transactions,
    consolidation: Arc<Consolidation>,
    overlays: Option<JoinHandle<()>>,
    merges: AtomicU64,
}

impl Storage {
    /// A table of `rows` rows.
    pub fn new(rows: u64, seed: u64) -> Result<Self> {
        let transactions = Transactions::new()?;
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new());
        let consolidation = Arc::<Consolidation>::default();
        let shared = Shared {
            files: DataFiles::new(device),
            pool: Pool::new(CACHE_BYTES),
            txns: transactions.manager().clone(),
            page_bytes: Arc::default(),
            next_file: Arc::new(AtomicU64::new(1)),
            consolidation: consolidation.clone(),
            range_bytes_max: 64 << 20,
            row_bytes_max: 1 << 30,
        };
        let columns = (0..COLUMNS).map(|_| (SqlType::BigInt, Value::Null));
        let lineage = Lineage::new(StorageId(1), StorageSchema::new(columns), shared);
        let mut engine = Self {
            lineage,
            table: Table::new(rows),
            transactions,
            overlays: None,
            consolidation,
            merges: AtomicU64::new(0),
        };
        engine.fill(rows, seed)?;
        let consolidation = engine.consolidation.clone();
        let overlays = std::thread::Builder::new()
            .name(OVERLAYS.to_string())
            .spawn(move || consolidation.run())?;
        engine.overlays = Some(overlays);
        Ok(engine)
    }

    fn fill(&self, rows: u64, seed: u64) -> Result<()> {
        let ids: Vec<ColumnId> = (0..COLUMNS as u32).map(ColumnId).collect();
        let loader = Writer {
            word: StartWord::committed(FIRST),
            statement: 0,
            snapshot: CommitTs::MAX,
            speculative: false,
        };
        for first in (0..rows).step_by(RANGE_ROWS) {
            let keys = first..rows.min(first + RANGE_ROWS as u64);
            let values: Vec<_> = keys.map(|key| first_values(key, seed)).collect();
            let array = |column: usize| -> ArrayRef {
                let values = values.iter().map(|row| row[column]);
                Arc::new(Int64Array::from_iter_values(values))
            };
            let arrays: Vec<ArrayRef> = (0..COLUMNS).map(array).collect();
            self.lineage
                .load_range(&ids, &arrays, values.len(), &loader)?;
        }
        Ok(())
    }

    /// The view of every commit so far and of the changes by the transaction with the word `own`.
    fn newest(&self, own: StartWord) -> Visibility {
        Visibility {
            ts: self.transactions.manager().stable(),
            own,
            statement: READS,
        }
    }

    /// Merges the ranges that are due; returns their number.
    fn merge_due(&self) -> strandline_base::Result<u64> {
        let manager = self.transactions.manager();
        let through = manager.oldest_snapshot().min(manager.stable());
        let horizon = Horizon::new(through, Vec::new(), Vec::new());
        let mut merged = 0;
        for range in self.lineage.ranges() {
            let version = range.load_full();
            let pending = version.tails.iter().flatten().map(|tail| tail.pending());
            if pending.sum::<u32>() < MERGE_RECORDS {
                continue;
            }
            let all = COLUMNS;
            if let Some(new) = self
                .lineage
                .merge_range(&range, through, &horizon, all, false)?
            {
                // Nothing is ever written out, so the merged version counts as persisted at once.
                self.lineage.note_persisted(&version, through);
                remove_replaced(&version.base.body, &new);
                self.lineage.publish_merge(&new);
                merged += 1;
            }
        }
        Ok(merged)
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.consolidation.close();
        if let Some(thread) = self.overlays.take() {
            thread.join().expect("making overlays does not panic");
        }
    }
}

/// Removes the files of chunks that the merge has replaced.
fn remove_replaced(old: &BaseBody, merged: &MergeOutput) {
    let BaseBody::Chunks(old) = old else { return };
    let kept: Vec<u64> = merged
        .chunks()
        .columns
        .iter()
        .flatten()
        .map(|column| column.stored.file.id())
        .collect();
    let files = old
        .columns
        .iter()
        .flatten()
        .map(|column| &column.stored.file);
    for file in files.chain(old.meta.as_ref().map(|meta| &meta.file)) {
        if !kept.contains(&file.id()) {
            DataFile::remove_when_unused(file);
        }
    }
}

impl Engine for Storage {
    fn name(&self) -> &'static str {
        "Strandline's storage"
    }

    fn session(&self, columns: usize) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(StorageSession {
            engine: self,
            transaction: self.transactions.session(),
            buffers: Buffers::new(columns),
            written: Vec::new(),
        }))
    }

    fn scanner(&self) -> Result<Box<dyn Scanner + '_>> {
        Ok(Box::new(self))
    }

    fn merge(&self) -> bool {
        self.transactions.maintain();
        let merged = self.merge_due().expect("memory does not fail");
        self.merges.fetch_add(merged, Ordering::Relaxed);
        merged > 0
    }

    fn merges(&self) -> u64 {
        self.merges.load(Ordering::Relaxed)
    }
}

impl Scanner for &Storage {
    fn sum(&mut self, rows: Range<u64>) -> Result<i64> {
        let snapshot = self.transactions.snapshot()?;
        let visibility = Visibility {
            ts: snapshot.ts(),
            own: StartWord::UNPUBLISHED,
            statement: 0,
        };
        let columns: Arc<[ColumnId]> = Arc::new([ColumnId(0)]);
        let counters = Arc::<ScanCounters>::default();
        let mut total = 0;
        let range_rows = RANGE_ROWS as u64;
        for no in rows.start / range_rows..rows.end.div_ceil(range_rows) {
            let range = self.lineage.range(RangeNo(no as u32));
            let range = range.ok_or("the range exists")?;
            let snapshot = self
                .lineage
                .range_snapshot(range, &visibility, &columns, &counters)?;
            let first = rows.start.saturating_sub(no * range_rows) as usize;
            let end = ((rows.end - no * range_rows) as usize).min(snapshot.rows());
            for block in first / BLOCK_ROWS..end.div_ceil(BLOCK_ROWS) {
                let span = block * BLOCK_ROWS..((block + 1) * BLOCK_ROWS).min(snapshot.rows());
                let values = snapshot.part(span.clone()).column(0)?;
                let (from, to) = (first.max(span.start), end.min(span.end));
                let values = values.slice(from - span.start, to - from);
                total += sum(values.as_primitive::<Int64Type>()).unwrap_or(0);
            }
        }
        Ok(total)
    }
}

struct StorageSession<'e> {
    engine: &'e Storage,
    transaction: Transaction<'e>,
    buffers: Buffers,
    /// records that have this transaction's word
    written: Vec<PendingStamp>,
}

impl Session for StorageSession<'_> {
    fn transaction(&mut self, work: &mut dyn FnMut(&mut dyn Point) -> Step<()>) -> Step<()> {
        self.written.clear();
        let done = work(&mut Numbers {
            transaction: StorageTransaction {
                engine: self.engine,
                transaction: &mut self.transaction,
                written: &mut self.written,
            },
            buffers: &mut self.buffers,
        });
        let done = done.and_then(|()| Ok(self.commit()?));
        if done.is_err() {
            self.transaction.abort();
            self.stamp(StartWord::ABORTED);
        }
        self.transaction.finish();
        done
    }
}

impl StorageSession<'_> {
    fn commit(&mut self) -> strandline_base::Result<()> {
        if !self.written.is_empty() {
            let stamp = self.transaction.commit()?;
            self.stamp(stamp);
        }
        Ok(())
    }

    fn stamp(&self, word: StartWord) {
        self.written.iter().for_each(|written| written.stamp(word));
    }
}

struct StorageTransaction<'e, 's> {
    engine: &'e Storage,
    transaction: &'s mut Transaction<'e>,
    written: &'s mut Vec<PendingStamp>,
}

impl PointTransaction for StorageTransaction<'_, '_> {
    fn get_into(
        &mut self,
        key: &[Value],
        columns: &[ColumnId],
        values: &mut Vec<Value>,
    ) -> strandline_base::Result<bool> {
        let engine = self.engine;
        engine.table.check_columns(columns)?;
        let Some(row) = engine.table.find(key)? else {
            return Ok(false);
        };
        let first = values.len();
        values.resize(first + columns.len(), Value::Null);
        // If a merge in between has made the base newer than the timestamp, take a newer timestamp.
        loop {
            let newest = engine.newest(self.transaction.own());
            let out = &mut values[first..];
            let found = engine.lineage.read_newest(row, &newest, columns, out)?;
            if found == NewestRow::Found {
                return Ok(true);
            }
        }
    }

    fn update(
        &mut self,
        key: &[Value],
        set: &[(ColumnId, Value)],
    ) -> strandline_base::Result<bool> {
        let engine = self.engine;
        engine.table.updated(set)?;
        let Some(row) = engine.table.find(key)? else {
            return Ok(false);
        };
        let word = self.transaction.word()?;
        loop {
            let writer = Writer {
                word,
                statement: WRITES,
                snapshot: engine.transactions.manager().stable(),
                speculative: false,
            };
            let change = Change::Update(set);
            match engine.lineage.write(row, change, &writer, self.written)? {
                WriteOutcome::Done(_) => break,
                // Retry: a commit is newer than the loaded timestamp, or a latch is held.
                WriteOutcome::Conflict(_) | WriteOutcome::Busy => {}
                WriteOutcome::Wait(_) => return Err(conflict()),
                WriteOutcome::Gone => return Err(gone(row)),
            }
        }
        self.transaction.note_update(row, set)?;
        Ok(true)
    }
}

fn gone(row: RowId) -> Error {
    Error::internal(format!("{row:?} is gone, but nothing is ever deleted"))
}
