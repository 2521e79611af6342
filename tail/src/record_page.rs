//! Pages of uncommitted and recently committed records \[L-Store §2.2, §3.1, §3.2\].
//!
//! The same page serves inserts ("table-level tail pages": every column, slot = position; see
//! [`crate::inserted_rows`]) and updates (tail pages: only updated columns, plus slot, back pointer
//! and updated-column bits; see [`crate::tail_records`]). Pages are append-only: a record is
//! claimed, filled, and published by storing its start word; after that only its start word
//! changes, once: from a transaction word to a commit timestamp or to ABORTED.
//!
//! Invariants:
//! 1. A record whose start word is 0 has not been published: only its writer reads it.
//! 2. Everything but the start word is written before the start word is stored with Release;
//!    readers load it with Acquire.
//! 3. A cell is written at most once.
//! 4. In a page that is *full* no record is claimed any more: all have been, or the page was closed
//!    because another one follows it.
//!
//! Differences from the paper: cells of all types share 64-bit words instead of byte-exact pages;
//! variable-length values sit behind a pointer per cell; the page carries statement numbers so that
//! a statement never sees its own records; a tail record stands in one piece.

use crate::column_set::{ColumnSet, columns_of_word};
use crate::inserted_rows::InsertedRows;
use crate::page_memory::PageMemory;
use crate::record_layout::{RecordLayout, StorageColumns};
use crate::schema::StorageSchema;
use crate::tail_records::TailRecords;
use std::sync::Arc;
use strandline_base::cell::Cell;
use strandline_base::cell::StorageColumn;
use strandline_base::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use strandline_base::value_words::Physical;
use strandline_base::{ColumnId, Error, Result, Value};
use strandline_txn::StartWord;

pub use crate::page_memory::PageBytes;
pub use crate::record_kind::RecordKind;
pub use crate::tail_records::TailRecord;

/// No record is claimed any more.
const CLOSED: u32 = 1 << 31;

/// An append-only page. The fields that a point read needs share one cache line, apart from the
/// reference counts.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct RecordPage {
    first: u64,
    capacity: u32,
    /// how many records have been, and [`CLOSED`]
    claimed: AtomicU32,
    records: Records,
    storage: StorageColumns,
    has_deletes: AtomicBool,
    memory: PageMemory,
}

#[derive(Debug)]
enum Records {
    Inserts(InsertedRows),
    Changes(TailRecords),
}

impl RecordPage {
    /// A page for inserted rows at positions `first..first + capacity`.
    pub fn insert(
        first: u32,
        capacity: u32,
        schema: &Arc<StorageSchema>,
        bytes: &PageBytes,
    ) -> Self {
        let (rows, width) = (capacity as usize, schema.len());
        let own = InsertedRows::bytes(rows, width);
        let records = Records::Inserts(InsertedRows::new(rows, width));
        let columns = schema.columns();
        Self::new((u64::from(first), capacity), columns, records, own, bytes)
    }

    /// A page for tail records with sequence numbers `first..first + capacity`; fewer if it is
    /// closed before it is full.
    pub(crate) fn tail(
        first: u64,
        capacity: u32,
        layout: &Arc<RecordLayout>,
        bytes: &PageBytes,
    ) -> Self {
        let own = TailRecords::bytes(capacity as usize, layout);
        let records = Records::Changes(TailRecords::new(
            capacity as usize,
            layout,
            bytes.spare_lines(),
        ));
        Self::new((first, capacity), &layout.storage, records, own, bytes)
    }

    fn new(
        (first, capacity): (u64, u32),
        storage: &StorageColumns,
        records: Records,
        own: usize,
        bytes: &PageBytes,
    ) -> Self {
        Self {
            first,
            capacity,
            claimed: AtomicU32::new(0),
            records,
            storage: storage.clone(),
            has_deletes: AtomicBool::new(false),
            memory: PageMemory::new(bytes, size_of::<Self>() + own),
        }
    }

    /// Bytes of the page that record `i` takes, without memory shared with other records.
    pub fn record_bytes(&self, i: u32) -> usize {
        match &self.records {
            Records::Inserts(rows) => rows.row_bytes(i as usize),
            Records::Changes(changes) => changes.record_bytes(i as usize),
        }
    }
    /// The sequence number or position of the first record.
    #[inline]
    pub fn first(&self) -> u64 {
        self.first
    }
    /// Bytes that it holds.
    pub fn memory_bytes(&self) -> usize {
        self.memory.own()
    }
    /// How many records fit.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }
    /// The number behind those of its records: the first one of the page that follows.
    #[inline]
    pub fn end(&self) -> u64 {
        let claimed = self.claimed.load(Ordering::Acquire);
        let records = match claimed & CLOSED {
            0 => self.capacity,
            _ => claimed & !CLOSED,
        };
        self.first + u64::from(records)
    }
    /// The index of the first of its records with this number or a later one.
    pub(crate) fn index_from(&self, seq: u64) -> u32 {
        seq.saturating_sub(self.first).min(u64::from(self.capacity)) as u32
    }
    /// Whether it has a place for the record with this number.
    #[inline]
    pub fn has_record(&self, seq: u64) -> bool {
        (self.first..self.end()).contains(&seq)
    }
    /// Whether the page was made for exactly this schema: a rolled-back change of the table may
    /// leave pages whose columns have other types than later columns with the same ids.
    pub fn is_for(&self, schema: &StorageSchema) -> bool {
        Arc::ptr_eq(&self.storage, schema.columns())
    }
    /// How the page holds values of `column`, if it knows the column.
    pub fn physical(&self, column: ColumnId) -> Option<Physical> {
        self.storage
            .get(column.0 as usize)
            .map(|spec| spec.physical)
    }
    /// The layout of a tail page's records.
    pub(crate) fn layout(&self) -> Option<&Arc<RecordLayout>> {
        self.changes().map(TailRecords::layout)
    }

    /// Records claimed so far.
    #[inline]
    pub fn claimed(&self) -> u32 {
        self.claimed.load(Ordering::Acquire) & !CLOSED
    }
    /// Whether no record is claimed here any more.
    pub fn is_full(&self) -> bool {
        let claimed = self.claimed.load(Ordering::Acquire);
        claimed & CLOSED != 0 || claimed == self.capacity
    }
    /// Ends claims.
    pub(crate) fn close(&self) {
        self.claimed.fetch_or(CLOSED, Ordering::AcqRel);
    }
    /// Claims the next record of a tail page, for values of `columns`; None if it is full or has no
    /// places for them.
    pub(crate) fn claim(&self, columns: &ColumnSet) -> Option<u32> {
        let changes = self.changes()?;
        if !changes.layout().columns.contains_all(columns) {
            return None;
        }
        let mut claimed = self.claimed.load(Ordering::Relaxed);
        loop {
            if claimed >= self.capacity {
                return None; // a closed page too has a great number
            }
            match self.claimed.compare_exchange_weak(
                claimed,
                claimed + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => break,
                Err(now) => claimed = now,
            }
        }
        changes.record(claimed as usize).set_columns(columns);
        Some(claimed)
    }

    #[inline]
    fn changes(&self) -> Option<&TailRecords> {
        match &self.records {
            Records::Inserts(_) => None,
            Records::Changes(changes) => Some(changes),
        }
    }
    /// Tail record `i`.
    ///
    /// # Errors
    /// Internal for an insert page.
    #[inline]
    pub fn record(&self, i: u32) -> Result<TailRecord<'_>> {
        let record = self.changes().map(|changes| changes.record(i as usize));
        record.ok_or_else(no_tail_record)
    }
    #[inline]
    fn start_word(&self, i: u32) -> &AtomicU64 {
        match &self.records {
            Records::Inserts(rows) => rows.start(i as usize),
            Records::Changes(changes) => changes.record(i as usize).start_word(),
        }
    }

    /// The start word of record `i`.
    #[inline]
    pub fn start(&self, i: u32) -> StartWord {
        StartWord(self.start_word(i).load(Ordering::Acquire))
    }
    /// Publishes record `i`, or stamps it with its final start word.
    #[inline]
    pub fn set_start(&self, i: u32, word: StartWord) {
        self.start_word(i).store(word.0, Ordering::Release);
    }
    /// The statement that wrote record `i`.
    #[inline]
    pub fn statement(&self, i: u32) -> u32 {
        match &self.records {
            Records::Inserts(rows) => rows.statement(i as usize),
            Records::Changes(changes) => changes.record(i as usize).statement(),
        }
    }
    /// Sets the statement number before publication.
    pub fn set_statement(&self, i: u32, statement: u32) {
        match &self.records {
            Records::Inserts(rows) => rows.set_statement(i as usize, statement),
            Records::Changes(changes) => changes.record(i as usize).set_statement(statement),
        }
    }
    /// Sets slot, kind and back pointer (previous sequence number + 1, or 0) of a tail record.
    pub fn set_link(&self, i: u32, slot: u16, kind: RecordKind, back: u64) {
        if kind == RecordKind::Delete {
            self.has_deletes.store(true, Ordering::Relaxed);
        }
        if let Some(changes) = self.changes() {
            changes.record(i as usize).set_link(slot, kind, back);
        }
    }
    /// Whether a record is a delete. A reader that sees the record published sees this flag as
    /// well.
    pub fn has_deletes(&self) -> bool {
        self.has_deletes.load(Ordering::Relaxed)
    }
    /// Whether a record may have a value of `column`.
    #[inline]
    pub fn has_cells(&self, column: ColumnId) -> bool {
        match &self.records {
            Records::Inserts(rows) => rows.has_cells(column),
            Records::Changes(changes) => changes.layout().columns.contains(column),
        }
    }
    /// The slot (in the update range) and kind of a tail record.
    #[inline]
    pub fn slot_kind(&self, i: u32) -> (u16, RecordKind) {
        let record = self.changes().map(|changes| changes.record(i as usize));
        record.map_or((0, RecordKind::Update), |record| {
            (record.slot(), record.kind())
        })
    }
    /// The previous record's sequence number + 1, or 0.
    #[inline]
    pub fn back(&self, i: u32) -> u64 {
        self.changes()
            .map_or(0, |changes| changes.record(i as usize).back())
    }
    /// Whether tail record `i` has a value of `column`.
    #[inline]
    pub fn has(&self, i: u32, column: ColumnId) -> bool {
        self.changes()
            .is_some_and(|changes| changes.record(i as usize).has(column))
    }
    /// The words of the column bits of tail record `i`.
    #[inline]
    fn bits(&self, i: u32) -> impl Iterator<Item = (usize, u64)> + '_ {
        let changes = self.changes().into_iter();
        changes.flat_map(move |changes| {
            let record = changes.record(i as usize);
            (0..record.bit_words()).map(move |word| (word, record.bits(word)))
        })
    }
    /// The columns tail record `i` has values of.
    #[inline]
    pub fn columns_of(&self, i: u32) -> impl Iterator<Item = ColumnId> + '_ {
        self.bits(i)
            .flat_map(|(word, bits)| columns_of_word(word, bits))
    }

    /// Writes a cell of record `i` before its publication; a tail record was claimed with its
    /// column. The value's variant must fit the column's type.
    #[inline]
    pub fn put(&self, i: u32, column: ColumnId, spec: &StorageColumn, value: &Value) -> Result<()> {
        let (i, cell) = (i as usize, Cell::of(value, spec)?);
        match &self.records {
            Records::Inserts(rows) => rows.put(i, column, spec, cell, &self.memory),
            Records::Changes(changes) => changes.record(i).put(column, cell, &self.memory),
        }
    }
    /// Writes cells of tail record `i` before its publication: `values`, and the cells that
    /// `carried` takes from another record. The record was claimed with all of their columns.
    pub fn fill(
        &self,
        i: u32,
        values: &[(ColumnId, Value)],
        carried: Option<(&ColumnSet, TailRecord<'_>)>,
    ) -> Result<()> {
        let record = self.record(i)?;
        record.put_all(values, &self.memory)?;
        match carried {
            Some((columns, from)) => record.copy(columns, &from, &self.memory),
            None => Ok(()),
        }
    }

    /// The value of a cell; the column's `missing` value where the page never had the column.
    #[inline]
    pub fn value(&self, i: u32, column: ColumnId, spec: &StorageColumn) -> Result<Value> {
        self.cell(i, column).value(spec)
    }
    /// The raw content of a cell.
    #[inline]
    pub fn cell(&self, i: u32, column: ColumnId) -> Cell<'_> {
        match &self.records {
            Records::Inserts(rows) => rows.cell(i as usize, column),
            Records::Changes(changes) => changes.record(i as usize).cell(column),
        }
    }
}

impl Drop for RecordPage {
    fn drop(&mut self) {
        if let Records::Changes(changes) = &mut self.records {
            changes.leave_lines(self.memory.all().spare_lines());
        }
    }
}

#[cold]
fn no_tail_record() -> Error {
    Error::internal("an inserted row was taken for a tail record")
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::SqlType;

    #[test]
    fn inserted_rows_are_no_tail_records() {
        let schema = StorageSchema::new([(SqlType::BigInt, Value::Null)]);
        let page = RecordPage::insert(0, 4, &schema, &PageBytes::default());
        let column = ColumnId(0);
        assert!(page.record(0).is_err());
        assert!(page.fill(0, &[(column, Value::Null)], None).is_err());
    }
}
