//! Byte layout of a record within a tail page.
//!
//! A record is its header, then its cells, in one piece: a point read, or a walk along a chain,
//! finds all of it in two or three neighbouring cache lines, and a cumulative record is copied from
//! one piece into another. All records of a page have the same [`RecordLayout`], which has a place
//! for every column of the page; a page is made for the columns that the records of its tail have
//! had so far, or for all columns of a small table.
//!
//! | word | content |
//! |---|---|
//! | 0 | start word |
//! | 1 | slot in the update range (12 bits), kind (4 bits at 12), back pointer (48 bits at 16) |
//! | 2 | statement number |
//! | 3 … | updated-column bits, one word per 64 columns of the storage |
//! | then | cells in column order: one word, two words; text and bytes stand in an array beside |
//!
//! NULLs are bits in an array beside, which comes with a page's first one.
//!
//! Differences from the paper: its tail pages are columnar like base pages. Here a scan reads tails
//! through overlays, which are columnar, and visits a record once; a point read visits one record
//! for many columns.

use crate::column_set::{ColumnSet, columns_of_word, place};
use crate::page_memory::PageMemory;
use crate::record_kind::RecordKind;
use crate::record_layout::{CellForm, HEADER_WORDS, RecordLayout};
use crate::record_words::{LINE_WORDS, RecordWords};
use crate::spare_lines::SpareLines;
use std::sync::Arc;
use strandline_base::cell::Cell;
use strandline_base::sync::{AtomicBool, AtomicU64, OnceLock, Ordering};
use strandline_base::value_words::{Physical, set_word, word_of};
use strandline_base::{ColumnId, Error, Result, UPDATE_ROWS, Value};
use strandline_txn::StartWord;

const START: usize = 0;
const LINK: usize = 1;
const STATEMENT: usize = 2;
const BITS: usize = HEADER_WORDS;

const SLOT_MASK: u64 = UPDATE_ROWS as u64 - 1;
const KIND_SHIFT: u32 = UPDATE_ROWS.ilog2();
const KIND_MASK: u64 = 0xf;
const BACK_SHIFT: u32 = 16;
/// Bits of a back pointer.
pub(crate) const BACK_BITS: u32 = u64::BITS - BACK_SHIFT;

/// The records of a page. The fields that every read needs come first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TailRecords {
    layout: Arc<RecordLayout>,
    words: RecordWords,
    /// whether a record has a NULL other than of text or bytea
    has_nulls: AtomicBool,
    /// `bit_words` per record
    nulls: OnceLock<Box<[AtomicU64]>>,
    /// `byte_columns` per record; unset = NULL
    bytes: OnceLock<Box<[ByteCell]>>,
}

/// A text or bytes.
type ByteCell = OnceLock<Box<[u8]>>;

impl TailRecords {
    /// Room for `records` records.
    pub fn new(records: usize, layout: &Arc<RecordLayout>, spare: &SpareLines) -> Self {
        Self {
            layout: layout.clone(),
            words: spare.take(Self::lines(records, layout)),
            has_nulls: AtomicBool::new(false),
            nulls: OnceLock::new(),
            bytes: OnceLock::new(),
        }
    }
    /// Leaves its lines to other pages. There are no records any more.
    pub fn leave_lines(&mut self, spare: &SpareLines) {
        spare.give(std::mem::take(&mut self.words));
    }
    fn lines(records: usize, layout: &RecordLayout) -> usize {
        (records * layout.stride).div_ceil(LINE_WORDS)
    }
    /// The bytes of [`TailRecords::new`].
    pub fn bytes(records: usize, layout: &RecordLayout) -> usize {
        RecordWords::bytes(Self::lines(records, layout))
    }
    /// The bytes of record `i`.
    #[inline]
    pub fn record_bytes(&self, i: usize) -> usize {
        let words = self.layout.stride * size_of::<u64>();
        let Some(all) = self.bytes.get() else {
            return words;
        };
        let columns = self.layout.byte_columns;
        let cells = &all[i * columns..(i + 1) * columns];
        let bytes = cells.iter().filter_map(OnceLock::get);
        words + size_of_val(cells) + bytes.map(|bytes| bytes.len()).sum::<usize>()
    }
    pub fn layout(&self) -> &Arc<RecordLayout> {
        &self.layout
    }
    /// Places for records; at least the number needed.
    fn records(&self) -> usize {
        self.words.lines() * LINE_WORDS / self.layout.stride
    }

    /// A record.
    #[inline]
    pub fn record(&self, i: usize) -> TailRecord<'_> {
        let stride = self.layout.stride;
        TailRecord {
            records: self,
            i,
            words: self.words.at(i * stride, stride),
        }
    }

    fn set_null(&self, i: usize, column: ColumnId, memory: &PageMemory) {
        let (word, bit) = place(column);
        let bit_words = self.layout.bit_words;
        let nulls = self
            .nulls
            .get_or_init(|| memory.words(self.records() * bit_words));
        let nulls = &nulls[i * bit_words + word];
        // The record's writer is alone with it.
        nulls.store(nulls.load(Ordering::Relaxed) | bit, Ordering::Relaxed);
        self.has_nulls.store(true, Ordering::Relaxed);
    }
    fn set_bytes(&self, i: usize, at: usize, bytes: &[u8], memory: &PageMemory) -> Result<()> {
        let byte_columns = self.layout.byte_columns;
        let all = self.bytes.get_or_init(|| {
            let cells = self.records() * byte_columns;
            memory.add(cells * size_of::<ByteCell>());
            (0..cells).map(|_| ByteCell::new()).collect()
        });
        memory.add(bytes.len());
        all[i * byte_columns + at]
            .set(bytes.into())
            .map_err(|_| Error::internal("a cell of a record page was written twice"))
    }
}

/// A tail record. Before its publication only its writer sees its content.
#[derive(Clone, Copy, Debug)]
pub struct TailRecord<'p> {
    records: &'p TailRecords,
    i: usize,
    words: &'p [AtomicU64],
}

impl<'p> TailRecord<'p> {
    #[inline]
    fn load(&self, at: usize) -> u64 {
        self.words[at].load(Ordering::Relaxed)
    }
    #[inline]
    fn store(&self, at: usize, word: u64) {
        self.words[at].store(word, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn start_word(&self) -> &'p AtomicU64 {
        &self.words[START]
    }
    /// Its start word.
    #[inline]
    pub fn start(&self) -> StartWord {
        StartWord(self.words[START].load(Ordering::Acquire))
    }
    /// The statement that wrote it.
    #[inline]
    pub fn statement(&self) -> u32 {
        self.load(STATEMENT) as u32
    }
    pub(crate) fn set_statement(&self, statement: u32) {
        self.store(STATEMENT, u64::from(statement));
    }
    /// The slot in its update range.
    #[inline]
    pub fn slot(&self) -> u16 {
        (self.load(LINK) & SLOT_MASK) as u16
    }
    /// Its kind.
    #[inline]
    pub fn kind(&self) -> RecordKind {
        RecordKind::of((self.load(LINK) >> KIND_SHIFT & KIND_MASK) as u8)
    }
    /// The previous record's sequence number + 1, or 0.
    #[inline]
    pub fn back(&self) -> u64 {
        self.load(LINK) >> BACK_SHIFT
    }
    pub(crate) fn set_link(&self, slot: u16, kind: RecordKind, back: u64) {
        debug_assert!(u64::from(slot) <= SLOT_MASK && back >> BACK_BITS == 0);
        let kind = u64::from(kind as u8) << KIND_SHIFT;
        self.store(LINK, u64::from(slot) | kind | back << BACK_SHIFT);
    }

    /// A word of updated-column bits; words behind the last are 0.
    #[inline]
    pub(crate) fn bits(&self, word: usize) -> u64 {
        if word >= self.bit_words() {
            return 0;
        }
        self.load(BITS + word)
    }
    /// How many words of updated-column bits there are.
    #[inline]
    pub(crate) fn bit_words(&self) -> usize {
        self.records.layout.bit_words
    }
    #[inline]
    pub(crate) fn has(&self, column: ColumnId) -> bool {
        let (word, bit) = place(column);
        self.bits(word) & bit != 0
    }
    /// Adds the columns it has values of to `columns`.
    #[inline]
    pub fn add_columns(&self, columns: &mut ColumnSet) {
        (0..self.bit_words()).for_each(|word| columns.insert_word(word, self.bits(word)));
    }
    /// Takes the columns it has values of from `columns`.
    #[inline]
    pub fn remove_columns(&self, columns: &mut ColumnSet) {
        (0..self.bit_words()).for_each(|word| columns.remove_word(word, self.bits(word)));
    }
    /// Sets the updated-column bits. The layout has the columns.
    #[inline]
    pub(crate) fn set_columns(&self, columns: &ColumnSet) {
        debug_assert!(self.records.layout.columns.contains_all(columns));
        for word in 0..self.bit_words() {
            self.store(BITS + word, columns.word(word));
        }
    }
    #[inline]
    fn is_null(&self, column: ColumnId) -> bool {
        let (word, bit) = place(column);
        let at = self.i * self.bit_words() + word;
        let nulls = self.records.nulls.get();
        nulls.is_some_and(|nulls| nulls[at].load(Ordering::Relaxed) & bit != 0)
    }

    /// Writes a cell of a column that it has a bit of.
    #[inline]
    pub(crate) fn put(&self, column: ColumnId, cell: Cell<'_>, memory: &PageMemory) -> Result<()> {
        debug_assert!(self.has(column), "column {column} was not announced");
        let place = &self.records.layout.places[column.0 as usize];
        let at = place.at as usize;
        match (place.kind, cell) {
            (CellForm::Held(Physical::Word), Cell::Word(word)) => {
                self.store(at, word);
            }
            (CellForm::Held(Physical::Wide), Cell::Wide([low, high])) => {
                self.store(at, low);
                self.store(at + 1, high);
            }
            (CellForm::Held(Physical::Bytes), Cell::Null) => {}
            (CellForm::Held(Physical::Bytes), Cell::Bytes(bytes)) => {
                self.records.set_bytes(self.i, at, bytes, memory)?;
            }
            (CellForm::Held(Physical::Word | Physical::Wide), Cell::Null) => {
                self.records.set_null(self.i, column, memory);
            }
            (_, cell) => {
                return Err(Error::internal(format!(
                    "{cell:?} in column {column} of a tail page"
                )));
            }
        }
        Ok(())
    }

    /// The content of a cell.
    #[inline]
    pub(crate) fn cell(&self, column: ColumnId) -> Cell<'p> {
        let layout = &*self.records.layout;
        let Some(place) = layout.places.get(column.0 as usize) else {
            return Cell::Absent;
        };
        let at = place.at as usize;
        match place.kind {
            CellForm::Absent => Cell::Absent,
            CellForm::Held(Physical::Bytes) => {
                let cell = self.records.bytes.get();
                let cell = cell.and_then(|all| all[self.i * layout.byte_columns + at].get());
                cell.map_or(Cell::Null, |bytes| Cell::Bytes(bytes))
            }
            CellForm::Held(_) if self.is_null(column) => Cell::Null,
            CellForm::Held(Physical::Word) => Cell::Word(self.load(at)),
            CellForm::Held(Physical::Wide) => Cell::Wide([self.load(at), self.load(at + 1)]),
        }
    }

    /// Sets the places of `out` for those `columns` that the record has and that are not yet
    /// `found` (a bit per place, at most 64), and marks them found.
    #[inline]
    pub fn read(&self, columns: &[ColumnId], out: &mut [Value], found: &mut u64) -> Result<()> {
        let has_nulls = self.records.has_nulls.load(Ordering::Relaxed);
        let layout = &*self.records.layout;
        let first_bits = self.load(BITS);
        // Nearly always there is all that is asked for, in words.
        if layout.is_simple && !has_nulls && *found == 0 {
            let is_missing = |column: &ColumnId| column.0 >= 64 || first_bits >> column.0 & 1 == 0;
            if !columns.iter().any(is_missing) {
                for (column, out) in columns.iter().zip(&mut *out) {
                    let place = &layout.places[column.0 as usize];
                    set_word(out, place.sql_type, self.load(place.at as usize));
                }
                *found = u64::MAX
                    .checked_shr(u64::BITS - columns.len() as u32)
                    .unwrap_or(0);
                return Ok(());
            }
        }
        let mut now = *found;
        for (at, (column, out)) in columns.iter().zip(out).enumerate() {
            let (word, bit) = place(*column);
            let bits = match word {
                0 => first_bits,
                word => self.bits(word),
            };
            if now >> at & 1 == 1 || bits & bit == 0 {
                continue;
            }
            let place = &layout.places[column.0 as usize];
            if place.kind == CellForm::Held(Physical::Word) && !has_nulls {
                set_word(out, place.sql_type, self.load(place.at as usize));
            } else {
                let spec = &layout.storage[column.0 as usize];
                *out = self.cell(*column).value(spec)?;
            }
            now |= 1 << at;
        }
        *found = now;
        Ok(())
    }

    /// Writes the cells of `values`, all of columns that it has bits of.
    #[inline]
    pub(crate) fn put_all(&self, values: &[(ColumnId, Value)], memory: &PageMemory) -> Result<()> {
        let layout = &*self.records.layout;
        for (column, value) in values {
            let place = &layout.places[column.0 as usize];
            if place.kind == CellForm::Held(Physical::Word)
                && let Some(word) = word_of(value)
            {
                self.store(place.at as usize, word);
            } else {
                let spec = &layout.storage[column.0 as usize];
                self.put(*column, Cell::of(value, spec)?, memory)?;
            }
        }
        Ok(())
    }

    /// Copies the cells of `columns` from a record of another page that has them.
    #[inline]
    pub(crate) fn copy(
        &self,
        columns: &ColumnSet,
        from: &TailRecord<'_>,
        memory: &PageMemory,
    ) -> Result<()> {
        let is_same = Arc::ptr_eq(&self.records.layout, &from.records.layout)
            && !from.records.has_nulls.load(Ordering::Relaxed);
        for word in 0..columns.words() {
            for column in columns_of_word(word, columns.word(word)) {
                let place = &self.records.layout.places[column.0 as usize];
                if is_same && place.kind == CellForm::Held(Physical::Word) {
                    let at = place.at as usize;
                    self.store(at, from.load(at));
                } else {
                    self.put(column, from.cell(column), memory)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page_memory::PageBytes;
    use crate::schema::StorageSchema;
    use strandline_base::SqlType;

    /// More than 64 columns, of every physical kind.
    fn schema() -> Arc<StorageSchema> {
        let types = [SqlType::BigInt, SqlType::Uuid, SqlType::Text];
        StorageSchema::new((0..99).map(|i| (types[i % 3], Value::Null)))
    }

    fn value(column: u32, n: u64) -> Value {
        match column % 3 {
            _ if (u64::from(column) + n).is_multiple_of(5) => Value::Null,
            0 => Value::BigInt(n as i64 * 1000 + i64::from(column)),
            1 => Value::Uuid([n as u8 + column as u8; 16]),
            _ => Value::from(format!("{n} in {column}")),
        }
    }

    fn set(columns: impl IntoIterator<Item = u32>) -> ColumnSet {
        columns.into_iter().map(ColumnId).collect()
    }

    fn fill(records: &TailRecords, n: u64, columns: &ColumnSet, memory: &PageMemory) {
        let storage = &records.layout().storage;
        let record = records.record(n as usize);
        record.set_columns(columns);
        // One half cell by cell, the other at once.
        let values = columns.iter().map(|column| (column, value(column.0, n)));
        let (single, many): (Vec<_>, Vec<_>) = values.partition(|(column, _)| column.0 < 50);
        for (column, value) in single {
            let cell = Cell::of(&value, &storage[column.0 as usize]).expect("fits");
            record.put(column, cell, memory).expect("put");
        }
        record.put_all(&many, memory).expect("put");
    }

    fn read(records: &TailRecords, i: usize, columns: &[ColumnId]) -> (Vec<Value>, u64) {
        let (mut out, mut found) = (vec![Value::Boolean(false); columns.len()], 0);
        let record = records.record(i);
        record.read(columns, &mut out, &mut found).expect("reads");
        (out, found)
    }

    #[test]
    fn records_hold_their_columns_and_nothing_of_their_neighbours() {
        let memory = PageMemory::new(&PageBytes::default(), 0);
        let layout = RecordLayout::new(schema().columns(), set((0..99).filter(|c| c % 7 != 6)));
        let records = TailRecords::new(20, &layout, &SpareLines::default());
        let columns_of =
            |n: u64| set((0..99).filter(|c| c % 7 != 6 && (n + u64::from(*c)) % 3 < 2));
        for n in 0..20 {
            fill(&records, n, &columns_of(n), &memory);
        }
        for n in 0..20 {
            let i = n as usize;
            let columns = columns_of(n);
            for column in (0..99).map(ColumnId) {
                assert_eq!(records.record(i).has(column), columns.contains(column));
                if columns.contains(column) {
                    let spec = &layout.storage[column.0 as usize];
                    let cell = records.record(i).cell(column).value(spec).expect("a value");
                    assert_eq!(cell, value(column.0, n), "column {column} of record {n}");
                }
            }
            let asked: Vec<ColumnId> = (40..90).map(ColumnId).collect();
            let (out, found) = read(&records, i, &asked);
            for (at, column) in asked.iter().enumerate() {
                let expected = match columns.contains(*column) {
                    true => value(column.0, n),
                    false => Value::Boolean(false),
                };
                assert_eq!(out[at], expected);
                assert_eq!(found >> at & 1 == 1, columns.contains(*column));
            }
        }
        assert_eq!(records.record(0).cell(ColumnId(6)), Cell::Absent);
        assert_eq!(records.record(0).cell(ColumnId(99)), Cell::Absent);
    }

    #[test]
    fn cells_are_copied_between_layouts() {
        let memory = PageMemory::new(&PageBytes::default(), 0);
        let (narrow, wide) = (set([0, 1, 2, 66, 67, 68]), set(0..99));
        for to in [&narrow, &wide] {
            let from = RecordLayout::new(schema().columns(), narrow.clone());
            let to = match to == &narrow {
                true => from.clone(),
                false => RecordLayout::new(schema().columns(), to.clone()),
            };
            let [from, to] =
                [from, to].map(|layout| TailRecords::new(8, &layout, &SpareLines::default()));
            // Without a NULL, then with them.
            for n in [1, 4, 3, 5] {
                fill(&from, n, &narrow, &memory);
                let copy = to.record(7 - n as usize);
                copy.set_columns(&narrow);
                copy.copy(&narrow, &from.record(n as usize), &memory)
                    .expect("copies");
                for column in narrow.iter() {
                    let spec = &from.layout().storage[column.0 as usize];
                    let copied = copy.cell(column).value(spec);
                    assert_eq!(copied.expect("a value"), value(column.0, n));
                }
            }
        }
    }

    #[test]
    fn headers_keep_their_parts_apart() {
        let records = TailRecords::new(
            2,
            &RecordLayout::new(schema().columns(), set([])),
            &SpareLines::default(),
        );
        let [first, second] = [0, 1].map(|i| records.record(i));
        let (slot, back) = (UPDATE_ROWS as u16 - 1, (1 << BACK_BITS) - 1);
        second.set_link(slot, RecordKind::ShareLock, back);
        second.set_statement(u32::MAX);
        let link = |record: &TailRecord<'_>| (record.slot(), record.kind(), record.back());
        assert_eq!(link(&second), (slot, RecordKind::ShareLock, back));
        assert_eq!(second.statement(), u32::MAX);
        second.set_link(1, RecordKind::Update, 2);
        assert_eq!(link(&second), (1, RecordKind::Update, 2));
        assert_eq!(link(&first), (0, RecordKind::Update, 0));
        assert_eq!(second.start(), StartWord::UNPUBLISHED);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let memory = PageMemory::new(&PageBytes::default(), 0);
        let records = TailRecords::new(
            1,
            &RecordLayout::new(schema().columns(), set([0, 2])),
            &SpareLines::default(),
        );
        let record = records.record(0);
        record.set_columns(&set([0, 2]));
        let put = |column, cell| record.put(ColumnId(column), cell, &memory);
        assert!(put(0, Cell::Wide([1, 2])).is_err());
        assert!(put(0, Cell::Bytes(b"x")).is_err());
        assert!(put(2, Cell::Word(1)).is_err());
        assert!(put(2, Cell::Bytes(b"x")).is_ok());
        assert!(put(2, Cell::Bytes(b"x")).is_err(), "written twice");
    }
}
