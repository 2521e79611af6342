//! Columnar pages of uncommitted and recently committed records \[L-Store §2.2, §3.1, §3.2\].
//!
//! The same page serves inserts ("table-level tail pages": every column, slot = position) and
//! updates (tail pages: only updated columns, plus slot, back pointer and updated-column bits).
//! Pages are append-only: a record is claimed, filled, and published by storing its start word;
//! after that only its start word changes, once: from a transaction word to a commit timestamp or
//! to ABORTED.
//!
//! Invariants:
//! 1. A record whose start word is 0 has not been published: nobody but its writer looks at it.
//! 2. Everything but the start word is written before the start word is stored with Release;
//!    readers load it with Acquire.
//! 3. A cell is written at most once.
//!
//! What a tail record says beside its values stands together, half a cache line per record: a point
//! read and a walk along a chain touch one line, and a scan reads them one after the other.
//!
//! Differences from the paper: cells of all types share 64-bit words instead of byte-exact pages;
//! variable-length values sit behind a pointer per cell; the page carries statement numbers so that
//! a statement never sees its own records.

use crate::schema::{StorageColumn, StorageSchema};
use crate::value_words::{
    Physical, set_word, value_of_bytes, value_of_wide, value_of_word, wide_of, word_of,
};
use std::sync::Arc;
use strandline_base::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, OnceLock, Ordering};
use strandline_base::{ColumnId, Error, Result, Value};
use strandline_txn::StartWord;

/// What a tail record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// new values of the columns in its bits
    Update,
    /// the values before the first update; says nothing about existence
    OldValue,
    /// the row ends here
    Delete,
    /// nobody else may write or lock the row until the transaction ends; no values, never committed
    Lock,
    /// nobody else may write the row or lock it for itself; likewise
    ShareLock,
}

impl RecordKind {
    /// Whether it only keeps others away.
    pub fn is_lock(self) -> bool {
        matches!(self, Self::Lock | Self::ShareLock)
    }
}

const KIND_SHIFT: u32 = 16;

/// The bytes held by all record pages of a database.
pub type PageBytes = Arc<AtomicUsize>;

/// An append-only columnar page.
#[derive(Debug)]
pub struct RecordPage {
    first: u32,
    capacity: u32,
    schema: Arc<StorageSchema>,
    claimed: AtomicU32,
    has_deletes: AtomicBool,
    records: Records,
    columns: Box<[OnceLock<Cells>]>,
    bytes: PageBytes,
    own_bytes: AtomicUsize,
}

/// What a page knows of its records.
#[derive(Debug)]
enum Records {
    /// inserted rows
    Inserts {
        start: Box<[AtomicU64]>,
        statement: Box<[AtomicU32]>,
    },
    /// changes of rows
    Changes {
        headers: Box<[Header]>,
        /// updated-column bits of columns from the 64th on, `more_words` per record
        more_bits: Box<[AtomicU64]>,
        more_words: usize,
    },
}

/// What a tail record says beside its values.
#[derive(Debug, Default)]
#[repr(align(32))]
struct Header {
    start: AtomicU64,
    /// updated-column bits of the first 64 columns
    bits: AtomicU64,
    /// slot in the update range (low 16 bits) and kind
    slot_kind: AtomicU32,
    /// the row's previous record + 1, or 0
    back: AtomicU32,
    statement: AtomicU32,
}

const _: () = assert!(cfg!(shuttle) || size_of::<Header>() == 32);

/// The cells of one column of one page.
#[derive(Debug)]
enum Cells {
    Word {
        words: Box<[AtomicU64]>,
        nulls: Nulls,
    },
    Wide {
        words: Box<[AtomicU64]>,
        nulls: Nulls,
    },
    /// unset = NULL
    Bytes { cells: Box<[OnceLock<Box<[u8]>>]> },
}

/// A bit per record, from the first NULL on: a read of a column without any looks at no bits.
#[derive(Debug, Default)]
struct Nulls(OnceLock<Box<[AtomicU64]>>);

impl Nulls {
    #[inline]
    fn has(&self, at: usize) -> bool {
        let bits = self.0.get();
        bits.is_some_and(|bits| bits[at / 64].load(Ordering::Relaxed) >> (at % 64) & 1 == 1)
    }
}

fn zeros64(n: usize) -> Box<[AtomicU64]> {
    (0..n).map(|_| AtomicU64::new(0)).collect()
}

fn zeros32(n: usize) -> Box<[AtomicU32]> {
    (0..n).map(|_| AtomicU32::new(0)).collect()
}

impl RecordPage {
    /// A page for inserted rows at positions `first..first + capacity`.
    pub fn insert(
        first: u32,
        capacity: u32,
        schema: &Arc<StorageSchema>,
        bytes: &PageBytes,
    ) -> Self {
        Self::new(first, capacity, schema, bytes, false)
    }

    /// A page for tail records with sequence numbers `first..first + capacity`.
    pub fn tail(first: u32, capacity: u32, schema: &Arc<StorageSchema>, bytes: &PageBytes) -> Self {
        Self::new(first, capacity, schema, bytes, true)
    }

    fn new(
        first: u32,
        capacity: u32,
        schema: &Arc<StorageSchema>,
        bytes: &PageBytes,
        tail: bool,
    ) -> Self {
        let n = capacity as usize;
        let more_words = schema.len().div_ceil(64).saturating_sub(1);
        let (records, record_bytes) = if tail {
            let records = Records::Changes {
                headers: (0..n).map(|_| Header::default()).collect(),
                more_bits: zeros64(n * more_words),
                more_words,
            };
            (records, size_of::<Header>() + 8 * more_words)
        } else {
            let (start, statement) = (zeros64(n), zeros32(n));
            (Records::Inserts { start, statement }, 12)
        };
        let page = Self {
            first,
            capacity,
            schema: schema.clone(),
            claimed: AtomicU32::new(0),
            has_deletes: AtomicBool::new(false),
            records,
            columns: (0..schema.len()).map(|_| OnceLock::new()).collect(),
            bytes: bytes.clone(),
            own_bytes: AtomicUsize::new(0),
        };
        page.account(
            size_of::<Self>() + n * record_bytes + schema.len() * size_of::<OnceLock<Cells>>(),
        );
        page
    }

    fn account(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.own_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The sequence number or position of the first record.
    #[inline]
    pub fn first(&self) -> u32 {
        self.first
    }
    /// How many records fit.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }
    /// Whether it has a place for the record with this number.
    #[inline]
    pub fn has_record(&self, seq: u32) -> bool {
        seq.checked_sub(self.first)
            .is_some_and(|i| i < self.capacity)
    }
    /// Whether the page was made for exactly this schema: a rolled-back change of the table may
    /// leave pages whose columns have other types than later columns with the same ids.
    pub fn is_for(&self, schema: &Arc<StorageSchema>) -> bool {
        Arc::ptr_eq(&self.schema, schema)
    }
    /// How the page holds values of `column`, if it knows the column.
    pub fn physical(&self, column: ColumnId) -> Option<Physical> {
        self.schema.get(column).map(|spec| spec.physical)
    }
    /// Records claimed so far.
    #[inline]
    pub fn claimed(&self) -> u32 {
        self.claimed.load(Ordering::Acquire).min(self.capacity)
    }
    /// Claims the next record; None when the page is full.
    pub fn claim(&self) -> Option<u32> {
        let i = self.claimed.fetch_add(1, Ordering::AcqRel);
        if i < self.capacity {
            return Some(i);
        }
        self.claimed.fetch_sub(1, Ordering::AcqRel);
        None
    }

    #[inline]
    fn start_word(&self, i: u32) -> &AtomicU64 {
        match &self.records {
            Records::Inserts { start, .. } => &start[i as usize],
            Records::Changes { headers, .. } => &headers[i as usize].start,
        }
    }
    #[inline]
    fn statement_number(&self, i: u32) -> &AtomicU32 {
        match &self.records {
            Records::Inserts { statement, .. } => &statement[i as usize],
            Records::Changes { headers, .. } => &headers[i as usize].statement,
        }
    }
    /// The header of a tail record; insert pages have none.
    #[inline]
    fn header(&self, i: u32) -> Option<&Header> {
        match &self.records {
            Records::Inserts { .. } => None,
            Records::Changes { headers, .. } => Some(&headers[i as usize]),
        }
    }
    /// A word of updated-column bits of a tail record.
    #[inline]
    fn bits(&self, i: u32, word: usize) -> Option<&AtomicU64> {
        match &self.records {
            Records::Inserts { .. } => None,
            Records::Changes { headers, .. } if word == 0 => Some(&headers[i as usize].bits),
            Records::Changes {
                more_bits,
                more_words,
                ..
            } => (word <= *more_words).then(|| &more_bits[i as usize * more_words + word - 1]),
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
        self.statement_number(i).load(Ordering::Relaxed)
    }
    /// Sets the statement number before publication.
    pub fn set_statement(&self, i: u32, statement: u32) {
        self.statement_number(i).store(statement, Ordering::Relaxed);
    }
    /// Sets slot, kind and back pointer (previous sequence number + 1, or 0) of a tail record.
    pub fn set_link(&self, i: u32, slot: u16, kind: RecordKind, back: u32) {
        if kind == RecordKind::Delete {
            self.has_deletes.store(true, Ordering::Relaxed);
        }
        let kind = (kind as u32) << KIND_SHIFT;
        if let Some(header) = self.header(i) {
            let slot_kind = u32::from(slot) | kind;
            header.slot_kind.store(slot_kind, Ordering::Relaxed);
            header.back.store(back, Ordering::Relaxed);
        }
    }
    /// Whether some record is a delete. A reader that sees the record published sees this as well.
    pub fn has_deletes(&self) -> bool {
        self.has_deletes.load(Ordering::Relaxed)
    }
    /// Whether some record has a value of `column`, likewise.
    #[inline]
    pub fn has_cells(&self, column: ColumnId) -> bool {
        self.columns
            .get(column.0 as usize)
            .is_some_and(|cells| cells.get().is_some())
    }
    /// The slot (in the update range) and kind of a tail record.
    #[inline]
    pub fn slot_kind(&self, i: u32) -> (u16, RecordKind) {
        let header = self.header(i);
        let v = header.map_or(0, |h| h.slot_kind.load(Ordering::Relaxed));
        let kind = match v >> KIND_SHIFT {
            0 => RecordKind::Update,
            1 => RecordKind::OldValue,
            2 => RecordKind::Delete,
            3 => RecordKind::Lock,
            _ => RecordKind::ShareLock,
        };
        (v as u16, kind)
    }
    /// The previous record's sequence number + 1, or 0.
    #[inline]
    pub fn back(&self, i: u32) -> u32 {
        let header = self.header(i);
        header.map_or(0, |h| h.back.load(Ordering::Relaxed))
    }
    /// Whether tail record `i` has a value of `column`.
    #[inline]
    pub fn has(&self, i: u32, column: ColumnId) -> bool {
        let (word, bit) = (column.0 as usize / 64, column.0 % 64);
        let bits = self.bits(i, word);
        bits.is_some_and(|bits| bits.load(Ordering::Relaxed) >> bit & 1 == 1)
    }
    /// The columns tail record `i` has values of.
    #[inline]
    pub fn columns_of(&self, i: u32) -> impl Iterator<Item = ColumnId> + '_ {
        let words = (0..).map_while(move |w| Some((w, self.bits(i, w)?)));
        words.flat_map(move |(w, bits)| {
            let mut bits = bits.load(Ordering::Relaxed);
            std::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
                (bit < 64).then_some(ColumnId(w as u32 * 64 + bit))
            })
        })
    }

    #[inline]
    fn set_bit(&self, i: u32, column: ColumnId) {
        let (word, bit) = (column.0 as usize / 64, column.0 % 64);
        if let Some(bits) = self.bits(i, word) {
            bits.store(bits.load(Ordering::Relaxed) | 1 << bit, Ordering::Relaxed);
        }
    }

    #[inline]
    fn cells(&self, column: ColumnId, spec: &StorageColumn) -> &Cells {
        let n = self.capacity as usize;
        self.columns[column.0 as usize].get_or_init(|| match spec.physical {
            Physical::Word => {
                self.account(n * 8);
                Cells::Word {
                    words: zeros64(n),
                    nulls: Nulls::default(),
                }
            }
            Physical::Wide => {
                self.account(n * 16);
                Cells::Wide {
                    words: zeros64(n * 2),
                    nulls: Nulls::default(),
                }
            }
            Physical::Bytes => {
                self.account(n * size_of::<OnceLock<Box<[u8]>>>());
                Cells::Bytes {
                    cells: (0..n).map(|_| OnceLock::new()).collect(),
                }
            }
        })
    }

    /// Writes a cell of record `i` before its publication, and its updated-column bit in a tail
    /// page. The value's variant must fit the column's type.
    pub fn put(&self, i: u32, column: ColumnId, spec: &StorageColumn, value: &Value) -> Result<()> {
        self.set_bit(i, column);
        let at = i as usize;
        match self.cells(column, spec) {
            Cells::Word { words, nulls } => match word_of(value) {
                Some(word) => words[at].store(word, Ordering::Relaxed),
                None => self.set_null(nulls, at, value, spec)?,
            },
            Cells::Wide { words, nulls } => match wide_of(value) {
                Some([low, high]) => {
                    words[at * 2].store(low, Ordering::Relaxed);
                    words[at * 2 + 1].store(high, Ordering::Relaxed);
                }
                None => self.set_null(nulls, at, value, spec)?,
            },
            Cells::Bytes { cells } => {
                let bytes: &[u8] = match value {
                    Value::Text(v) => v.as_bytes(),
                    Value::Bytea(v) => v,
                    Value::Null => return Ok(()),
                    other => return Err(wrong_type(other, spec)),
                };
                self.account(bytes.len());
                cells[at]
                    .set(bytes.into())
                    .map_err(|_| Error::internal("a cell of a record page was written twice"))?;
            }
        }
        Ok(())
    }

    /// As [`RecordPage::put`] for a [`Physical::Word`] column; None: NULL.
    #[inline]
    pub fn put_word(
        &self,
        i: u32,
        column: ColumnId,
        spec: &StorageColumn,
        word: Option<u64>,
    ) -> Result<()> {
        let Cells::Word { words, nulls } = self.cells(column, spec) else {
            return Err(Error::internal(
                "a word for a column that is not held in words",
            ));
        };
        self.set_bit(i, column);
        match word {
            Some(word) => words[i as usize].store(word, Ordering::Relaxed),
            None => self.mark_null(nulls, i as usize),
        }
        Ok(())
    }

    fn set_null(
        &self,
        nulls: &Nulls,
        at: usize,
        value: &Value,
        spec: &StorageColumn,
    ) -> Result<()> {
        if !value.is_null() {
            return Err(wrong_type(value, spec));
        }
        self.mark_null(nulls, at);
        Ok(())
    }

    fn mark_null(&self, nulls: &Nulls, at: usize) {
        let words = (self.capacity as usize).div_ceil(64);
        let bits = nulls.0.get_or_init(|| {
            self.account(words * 8);
            zeros64(words)
        });
        bits[at / 64].fetch_or(1 << (at % 64), Ordering::Relaxed);
    }

    /// Copies a cell (and its bit) from another page.
    pub fn copy_cell(
        &self,
        i: u32,
        column: ColumnId,
        spec: &StorageColumn,
        from: &RecordPage,
        j: u32,
    ) -> Result<()> {
        match from.cell(j, column) {
            Cell::Word(word) => self.put_word(i, column, spec, Some(word)),
            _ => self.put(i, column, spec, &from.value(j, column, spec)?),
        }
    }

    /// The value of a cell; the column's `missing` value where the page never had the column.
    #[inline]
    pub fn value(&self, i: u32, column: ColumnId, spec: &StorageColumn) -> Result<Value> {
        match self.cell(i, column) {
            Cell::Absent => Ok(spec.missing.clone()),
            Cell::Null => Ok(Value::Null),
            Cell::Word(w) => Ok(value_of_word(spec.sql_type, w)),
            Cell::Wide(w) => Ok(value_of_wide(spec.sql_type, w)),
            Cell::Bytes(b) => value_of_bytes(spec.sql_type, b),
        }
    }

    /// Sets those of `out` to the values of record `i` in `columns` that it has and that are not
    /// `found` (a bit per place, at most 64) yet, which they are then.
    #[inline]
    pub fn read(
        &self,
        i: u32,
        columns: &[ColumnId],
        out: &mut [Value],
        found: &mut u64,
    ) -> Result<()> {
        let bits = self.bits(i, 0).map_or(0, |b| b.load(Ordering::Relaxed));
        for (at, (column, out)) in columns.iter().zip(out).enumerate() {
            let has = match column.0 {
                0..64 => bits >> column.0 & 1 == 1,
                _ => self.has(i, *column),
            };
            if !has || *found >> at & 1 == 1 {
                continue;
            }
            let spec = self.schema.column(*column);
            match self.cell(i, *column) {
                Cell::Word(word) => set_word(out, spec.sql_type, word),
                _ => *out = self.value(i, *column, spec)?,
            }
            *found |= 1 << at;
        }
        Ok(())
    }

    /// The raw content of a cell.
    #[inline]
    pub fn cell(&self, i: u32, column: ColumnId) -> Cell<'_> {
        let at = i as usize;
        let Some(cells) = self.columns.get(column.0 as usize).and_then(OnceLock::get) else {
            return Cell::Absent;
        };
        match cells {
            Cells::Word { words, nulls } => {
                if nulls.has(at) {
                    return Cell::Null;
                }
                Cell::Word(words[at].load(Ordering::Relaxed))
            }
            Cells::Wide { words, nulls } => {
                if nulls.has(at) {
                    return Cell::Null;
                }
                let word = |k: usize| words[at * 2 + k].load(Ordering::Relaxed);
                Cell::Wide([word(0), word(1)])
            }
            Cells::Bytes { cells } => cells[at].get().map_or(Cell::Null, |b| Cell::Bytes(b)),
        }
    }
}

impl Drop for RecordPage {
    fn drop(&mut self) {
        self.bytes
            .fetch_sub(*self.own_bytes.get_mut(), Ordering::Relaxed);
    }
}

/// A cell as pages hold it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    /// the page never had the column
    Absent,
    /// NULL
    Null,
    /// a fixed-width value of at most 8 bytes
    Word(u64),
    /// a 16-byte value, low half first
    Wide([u64; 2]),
    /// text or bytes
    Bytes(&'a [u8]),
}

fn wrong_type(value: &Value, spec: &StorageColumn) -> Error {
    Error::internal(format!(
        "{value:?} cannot be stored in a column of type {}",
        spec.sql_type
    ))
}
