//! What a tail page holds: records, each in one piece.
//!
//! A record is what it says of itself, then its cells: all that a point read or a walk along a
//! chain wants of it is in two or three neighbouring cache lines, and a cumulative record is copied
//! from one piece into another. All records of a page have the same [`RecordLayout`], which has a
//! place for every column of the page; a page is made for the columns that the records of its tail
//! have had so far, or for all columns of a small table.
//!
//! | word | content |
//! |---|---|
//! | 0 | start word |
//! | 1 | slot in the update range (16 bits), kind (8 bits at 16), back pointer (upper half) |
//! | 2 | statement number |
//! | 3 … | updated-column bits, one word per 64 columns of the storage |
//! | then | cells in column order: one word, two words; text and bytes stand in an array beside |
//!
//! NULLs are bits in an array beside, which comes with a page's first one.
//!
//! Differences from the paper: its tail pages are columnar like base pages. A scan takes tails in
//! through overlays, which are columnar, and visits a record once; whoever reads rows visits the
//! same record for many columns.

use crate::cell::Cell;
use crate::column_set::{ColumnSet, columns_of_word, place};
use crate::page_memory::PageMemory;
use crate::schema::StorageSchema;
use crate::spare_lines::SpareLines;
use crate::value_words::{Physical, set_word};
use std::sync::Arc;
use strandline_base::sync::{AtomicU64, OnceLock, Ordering};
use strandline_base::{ColumnId, Error, Result, SqlType, Value};

const START: usize = 0;
const LINK: usize = 1;
const STATEMENT: usize = 2;
const BITS: usize = 3;

const KIND_SHIFT: u32 = 16;
const BACK_SHIFT: u32 = 32;

/// Where the parts of a page's records are.
#[derive(Debug)]
pub(crate) struct RecordLayout {
    schema: Arc<StorageSchema>,
    columns: ColumnSet,
    /// by column id
    places: Box<[Place]>,
    /// words of updated-column bits, and of NULL bits
    bit_words: usize,
    /// words of a record
    stride: usize,
    /// text and bytes columns
    byte_columns: usize,
}

/// Where a column's cell is.
#[derive(Clone, Copy, Debug)]
struct Place {
    sql_type: SqlType,
    kind: PlaceKind,
    /// the word in the record, or the position among the text and bytes columns
    at: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceKind {
    /// the page does not have the column
    Absent,
    Held(Physical),
}

impl RecordLayout {
    /// The columns that a layout for records with values of `columns` or of fewer has: all if the
    /// table is so small that they fit a cache line anyway.
    pub fn covered(schema: &StorageSchema, columns: ColumnSet) -> ColumnSet {
        let words = |physical| match physical {
            Physical::Word | Physical::Bytes => 1,
            Physical::Wide => 2,
        };
        let all: usize = schema.iter().map(|(_, spec)| words(spec.physical)).sum();
        match all < LINE_WORDS - BITS {
            true => schema.iter().map(|(id, _)| id).collect(),
            false => columns,
        }
    }
    /// A layout for records with values of `columns`.
    pub fn new(schema: &Arc<StorageSchema>, columns: ColumnSet) -> Arc<Self> {
        let bit_words = schema.len().div_ceil(64).max(1);
        let (mut stride, mut byte_columns) = (BITS + bit_words, 0);
        let places = schema.iter().map(|(id, column)| {
            let has = columns.contains(id);
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
            Place {
                sql_type: column.sql_type,
                kind: match has {
                    true => PlaceKind::Held(column.physical),
                    false => PlaceKind::Absent,
                },
                at: at as u32,
            }
        });
        let places = places.collect();
        Arc::new(Self {
            schema: schema.clone(),
            columns,
            places,
            bit_words,
            stride,
            byte_columns,
        })
    }
    /// The columns of the storage.
    pub fn schema(&self) -> &Arc<StorageSchema> {
        &self.schema
    }
    /// The columns it has places for.
    pub fn columns(&self) -> &ColumnSet {
        &self.columns
    }
}

/// The records of a page. What every look at one needs comes first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TailRecords {
    layout: Arc<RecordLayout>,
    lines: Box<[Line]>,
    /// `bit_words` per record
    nulls: OnceLock<Box<[AtomicU64]>>,
    /// `byte_columns` per record; unset = NULL
    bytes: OnceLock<Box<[ByteCell]>>,
}

/// A text or bytes.
type ByteCell = OnceLock<Box<[u8]>>;

/// Words in one cache line: a record of four values fills just one.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Line(pub [AtomicU64; LINE_WORDS]);

impl Line {
    pub fn zero() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

const LINE_WORDS: usize = 8;

impl TailRecords {
    /// Room for `records` records.
    pub fn new(records: usize, layout: &Arc<RecordLayout>, spare: &SpareLines) -> Self {
        Self {
            layout: layout.clone(),
            lines: spare.take(Self::lines(records, layout)),
            nulls: OnceLock::new(),
            bytes: OnceLock::new(),
        }
    }
    /// Leaves its lines to other pages. There are no records any more.
    pub fn leave_lines(&mut self, spare: &SpareLines) {
        spare.give(std::mem::take(&mut self.lines));
    }
    fn lines(records: usize, layout: &RecordLayout) -> usize {
        (records * layout.stride).div_ceil(LINE_WORDS)
    }
    /// The bytes of [`TailRecords::new`].
    pub fn bytes(records: usize, layout: &RecordLayout) -> usize {
        Self::lines(records, layout) * size_of::<Line>()
    }
    pub fn layout(&self) -> &Arc<RecordLayout> {
        &self.layout
    }
    /// Places for records, or some more.
    fn records(&self) -> usize {
        self.lines.len() * LINE_WORDS / self.layout.stride
    }

    /// A word of a record.
    #[inline]
    fn word(&self, i: usize, at: usize) -> &AtomicU64 {
        self.at(i * self.layout.stride + at)
    }
    /// A word by its place in the page.
    #[inline]
    fn at(&self, word: usize) -> &AtomicU64 {
        &self.lines[word / LINE_WORDS].0[word % LINE_WORDS]
    }
    #[inline]
    fn load(&self, i: usize, at: usize) -> u64 {
        self.word(i, at).load(Ordering::Relaxed)
    }
    #[inline]
    fn store(&self, i: usize, at: usize, word: u64) {
        self.word(i, at).store(word, Ordering::Relaxed);
    }

    #[inline]
    pub fn start(&self, i: usize) -> &AtomicU64 {
        self.word(i, START)
    }
    #[inline]
    pub fn statement(&self, i: usize) -> u32 {
        self.load(i, STATEMENT) as u32
    }
    pub fn set_statement(&self, i: usize, statement: u32) {
        self.store(i, STATEMENT, u64::from(statement));
    }
    /// The slot, the kind's number and the back pointer.
    #[inline]
    pub fn link(&self, i: usize) -> (u16, u8, u32) {
        let link = self.load(i, LINK);
        let back = (link >> BACK_SHIFT) as u32;
        (link as u16, (link >> KIND_SHIFT) as u8, back)
    }
    pub fn set_link(&self, i: usize, (slot, kind, back): (u16, u8, u32)) {
        let kind = u64::from(kind) << KIND_SHIFT;
        let link = u64::from(slot) | kind | u64::from(back) << BACK_SHIFT;
        self.store(i, LINK, link);
    }

    /// A word of updated-column bits; words behind the last are 0.
    #[inline]
    pub fn bits(&self, i: usize, word: usize) -> u64 {
        if word >= self.layout.bit_words {
            return 0;
        }
        self.load(i, BITS + word)
    }
    /// How many words of updated-column bits there are.
    #[inline]
    pub fn bit_words(&self) -> usize {
        self.layout.bit_words
    }
    #[inline]
    pub fn has(&self, i: usize, column: ColumnId) -> bool {
        let (word, bit) = place(column);
        self.bits(i, word) & bit != 0
    }
    /// Sets the updated-column bits. The layout has the columns.
    pub fn set_columns(&self, i: usize, columns: &ColumnSet) {
        debug_assert!(self.layout.columns.contains_all(columns));
        for word in 0..self.layout.bit_words {
            self.store(i, BITS + word, columns.word(word));
        }
    }

    #[inline]
    fn is_null(&self, i: usize, column: ColumnId) -> bool {
        let (word, bit) = place(column);
        self.nulls.get().is_some_and(|nulls| {
            nulls[i * self.layout.bit_words + word].load(Ordering::Relaxed) & bit != 0
        })
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

    /// Writes a cell of a column that the record has a bit of.
    #[inline]
    pub fn put(
        &self,
        i: usize,
        column: ColumnId,
        cell: Cell<'_>,
        memory: &PageMemory,
    ) -> Result<()> {
        debug_assert!(self.has(i, column), "column {column} was not announced");
        let place = self.layout.places[column.0 as usize];
        let at = place.at as usize;
        match (place.kind, cell) {
            (PlaceKind::Held(Physical::Word), Cell::Word(word)) => {
                self.store(i, at, word);
            }
            (PlaceKind::Held(Physical::Wide), Cell::Wide([low, high])) => {
                self.store(i, at, low);
                self.store(i, at + 1, high);
            }
            (PlaceKind::Held(Physical::Bytes), Cell::Null) => {}
            (PlaceKind::Held(Physical::Bytes), Cell::Bytes(bytes)) => {
                self.set_bytes(i, at, bytes, memory)?;
            }
            (PlaceKind::Held(Physical::Word | Physical::Wide), Cell::Null) => {
                self.set_null(i, column, memory);
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
    pub fn cell(&self, i: usize, column: ColumnId) -> Cell<'_> {
        let Some(place) = self.layout.places.get(column.0 as usize) else {
            return Cell::Absent;
        };
        let at = place.at as usize;
        match place.kind {
            PlaceKind::Absent => Cell::Absent,
            PlaceKind::Held(Physical::Bytes) => {
                let cell = self.bytes.get();
                let cell = cell.and_then(|all| all[i * self.layout.byte_columns + at].get());
                cell.map_or(Cell::Null, |bytes| Cell::Bytes(bytes))
            }
            PlaceKind::Held(_) if self.is_null(i, column) => Cell::Null,
            PlaceKind::Held(Physical::Word) => Cell::Word(self.load(i, at)),
            PlaceKind::Held(Physical::Wide) => Cell::Wide([self.load(i, at), self.load(i, at + 1)]),
        }
    }

    /// Sets those of `out` to the values of record `i` in `columns` that it has and that are not
    /// `found` (a bit per place, at most 64) yet, which they are then.
    #[inline]
    pub fn read(
        &self,
        i: usize,
        columns: &[ColumnId],
        out: &mut [Value],
        found: &mut u64,
    ) -> Result<()> {
        let has_nulls = self.nulls.get().is_some();
        let layout = &*self.layout;
        let (first, first_bits) = (i * layout.stride, self.bits(i, 0));
        let mut now = *found;
        for (at, (column, out)) in columns.iter().zip(out).enumerate() {
            let (word, bit) = place(*column);
            let bits = match word {
                0 => first_bits,
                word => self.bits(i, word),
            };
            if now >> at & 1 == 1 || bits & bit == 0 {
                continue;
            }
            let place = &layout.places[column.0 as usize];
            if place.kind == PlaceKind::Held(Physical::Word) && !has_nulls {
                let cell = self.at(first + place.at as usize);
                set_word(out, place.sql_type, cell.load(Ordering::Relaxed));
            } else {
                let spec = layout.schema.column(*column);
                *out = self.cell(i, *column).value(spec)?;
            }
            now |= 1 << at;
        }
        *found = now;
        Ok(())
    }

    /// Copies the cells of `columns` from a record of another page that has them.
    pub fn copy(
        &self,
        i: usize,
        columns: &ColumnSet,
        (from, j): (&Self, usize),
        memory: &PageMemory,
    ) -> Result<()> {
        let is_same = Arc::ptr_eq(&self.layout, &from.layout) && from.nulls.get().is_none();
        for word in 0..columns.words() {
            for column in columns_of_word(word, columns.word(word)) {
                let place = self.layout.places[column.0 as usize];
                if is_same && place.kind == PlaceKind::Held(Physical::Word) {
                    let at = place.at as usize;
                    self.store(i, at, from.load(j, at));
                } else {
                    self.put(i, column, from.cell(j, column), memory)?;
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
        let schema = records.layout().schema();
        records.set_columns(n as usize, columns);
        for column in columns.iter() {
            let value = value(column.0, n);
            let cell = Cell::of(&value, schema.column(column)).expect("fits");
            records.put(n as usize, column, cell, memory).expect("put");
        }
    }

    fn read(records: &TailRecords, i: usize, columns: &[ColumnId]) -> (Vec<Value>, u64) {
        let (mut out, mut found) = (vec![Value::Boolean(false); columns.len()], 0);
        records
            .read(i, columns, &mut out, &mut found)
            .expect("reads");
        (out, found)
    }

    #[test]
    fn records_hold_their_columns_and_nothing_of_their_neighbours() {
        let memory = PageMemory::new(&PageBytes::default(), 0);
        let layout = RecordLayout::new(&schema(), set((0..99).filter(|c| c % 7 != 6)));
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
                assert_eq!(records.has(i, column), columns.contains(column));
                if columns.contains(column) {
                    let spec = layout.schema().column(column);
                    let cell = records.cell(i, column).value(spec).expect("a value");
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
        assert_eq!(records.cell(0, ColumnId(6)), Cell::Absent);
        assert_eq!(records.cell(0, ColumnId(99)), Cell::Absent);
    }

    #[test]
    fn cells_are_copied_between_layouts() {
        let memory = PageMemory::new(&PageBytes::default(), 0);
        let (narrow, wide) = (set([0, 1, 2, 66, 67, 68]), set(0..99));
        for to in [&narrow, &wide] {
            let from = RecordLayout::new(&schema(), narrow.clone());
            let to = match to == &narrow {
                true => from.clone(),
                false => RecordLayout::new(&schema(), to.clone()),
            };
            let [from, to] =
                [from, to].map(|layout| TailRecords::new(8, &layout, &SpareLines::default()));
            // Without a NULL, then with them.
            for n in [1, 4, 3, 5] {
                fill(&from, n, &narrow, &memory);
                to.set_columns(7 - n as usize, &narrow);
                to.copy(7 - n as usize, &narrow, (&from, n as usize), &memory)
                    .expect("copies");
                for column in narrow.iter() {
                    let spec = from.layout().schema().column(column);
                    let copied = to.cell(7 - n as usize, column).value(spec);
                    assert_eq!(copied.expect("a value"), value(column.0, n));
                }
            }
        }
    }

    #[test]
    fn headers_keep_their_parts_apart() {
        let records = TailRecords::new(
            2,
            &RecordLayout::new(&schema(), set([])),
            &SpareLines::default(),
        );
        records.set_link(1, (u16::MAX, 4, u32::MAX));
        records.set_statement(1, u32::MAX);
        assert_eq!(records.link(1), (u16::MAX, 4, u32::MAX));
        assert_eq!(records.statement(1), u32::MAX);
        records.set_link(1, (1, 0, 2));
        assert_eq!((records.link(1), records.link(0)), ((1, 0, 2), (0, 0, 0)));
        assert_eq!(records.start(1).load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let memory = PageMemory::new(&PageBytes::default(), 0);
        let records = TailRecords::new(
            1,
            &RecordLayout::new(&schema(), set([0, 2])),
            &SpareLines::default(),
        );
        records.set_columns(0, &set([0, 2]));
        let put = |column, cell| records.put(0, ColumnId(column), cell, &memory);
        assert!(put(0, Cell::Wide([1, 2])).is_err());
        assert!(put(0, Cell::Bytes(b"x")).is_err());
        assert!(put(2, Cell::Word(1)).is_err());
        assert!(put(2, Cell::Bytes(b"x")).is_ok());
        assert!(put(2, Cell::Bytes(b"x")).is_err(), "written twice");
    }
}
