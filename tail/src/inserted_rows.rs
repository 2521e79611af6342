//! Contents of a page of inserted rows: one array per column over the rows, for scans and the first
//! merge. An array is allocated with its first value.

use crate::page_memory::PageMemory;
use crate::record_words::zeros;
use strandline_base::cell::Cell;
use strandline_base::cell::StorageColumn;
use strandline_base::sync::{AtomicU32, AtomicU64, OnceLock, Ordering};
use strandline_base::value_words::Physical;
use strandline_base::{ColumnId, Error, Result};

/// The rows of a page.
#[derive(Debug)]
pub(crate) struct InsertedRows {
    start: Box<[AtomicU64]>,
    statement: Box<[AtomicU32]>,
    columns: Box<[OnceLock<Column>]>,
}

/// One column of a page.
#[derive(Debug)]
enum Column {
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

/// A bit per row, from the first NULL on: a read of a column without any looks at no bits.
#[derive(Debug, Default)]
struct Nulls(OnceLock<Box<[AtomicU64]>>);

impl Nulls {
    #[inline]
    fn has(&self, at: usize) -> bool {
        let bits = self.0.get();
        bits.is_some_and(|bits| bits[at / 64].load(Ordering::Relaxed) >> (at % 64) & 1 == 1)
    }
    fn set(&self, at: usize, rows: usize, memory: &PageMemory) {
        let bits = self.0.get_or_init(|| memory.words(rows.div_ceil(64)));
        bits[at / 64].fetch_or(1 << (at % 64), Ordering::Relaxed);
    }
}

impl InsertedRows {
    /// Room for `rows` rows of `columns` columns.
    pub fn new(rows: usize, columns: usize) -> Self {
        Self {
            start: zeros(rows),
            statement: (0..rows).map(|_| AtomicU32::new(0)).collect(),
            columns: (0..columns).map(|_| OnceLock::new()).collect(),
        }
    }
    /// The bytes of [`InsertedRows::new`].
    pub fn bytes(rows: usize, columns: usize) -> usize {
        rows * (size_of::<u64>() + size_of::<u32>()) + columns * size_of::<OnceLock<Column>>()
    }
    /// The bytes of row `i`.
    pub fn row_bytes(&self, i: usize) -> usize {
        let columns = self.columns.iter().filter_map(OnceLock::get);
        let cells = columns.map(|column| match column {
            Column::Word { .. } => size_of::<u64>(),
            Column::Wide { .. } => 2 * size_of::<u64>(),
            Column::Bytes { cells } => {
                let bytes = cells[i].get().map_or(0, |bytes| bytes.len());
                size_of::<OnceLock<Box<[u8]>>>() + bytes
            }
        });
        size_of::<u64>() + size_of::<u32>() + cells.sum::<usize>()
    }
    #[inline]
    pub fn start(&self, i: usize) -> &AtomicU64 {
        &self.start[i]
    }
    #[inline]
    pub fn statement(&self, i: usize) -> u32 {
        self.statement[i].load(Ordering::Relaxed)
    }
    pub fn set_statement(&self, i: usize, statement: u32) {
        self.statement[i].store(statement, Ordering::Relaxed);
    }

    fn column(&self, id: ColumnId, physical: Physical, memory: &PageMemory) -> &Column {
        let rows = self.start.len();
        self.columns[id.0 as usize].get_or_init(|| match physical {
            Physical::Word => Column::Word {
                words: memory.words(rows),
                nulls: Nulls::default(),
            },
            Physical::Wide => Column::Wide {
                words: memory.words(rows * 2),
                nulls: Nulls::default(),
            },
            Physical::Bytes => {
                memory.add(rows * size_of::<OnceLock<Box<[u8]>>>());
                Column::Bytes {
                    cells: (0..rows).map(|_| OnceLock::new()).collect(),
                }
            }
        })
    }

    /// Writes a cell, which must fit the column.
    pub fn put(
        &self,
        i: usize,
        id: ColumnId,
        spec: &StorageColumn,
        cell: Cell<'_>,
        memory: &PageMemory,
    ) -> Result<()> {
        let rows = self.start.len();
        match (self.column(id, spec.physical, memory), cell) {
            (Column::Word { words, .. }, Cell::Word(word)) => {
                words[i].store(word, Ordering::Relaxed);
            }
            (Column::Wide { words, .. }, Cell::Wide([low, high])) => {
                words[i * 2].store(low, Ordering::Relaxed);
                words[i * 2 + 1].store(high, Ordering::Relaxed);
            }
            (Column::Word { nulls, .. } | Column::Wide { nulls, .. }, Cell::Null) => {
                nulls.set(i, rows, memory);
            }
            (Column::Bytes { .. }, Cell::Null) => {}
            (Column::Bytes { cells }, Cell::Bytes(bytes)) => {
                memory.add(bytes.len());
                cells[i]
                    .set(bytes.into())
                    .map_err(|_| Error::internal("a cell of a record page was written twice"))?;
            }
            (_, cell) => return Err(Error::internal(format!("{cell:?} in column {id}"))),
        }
        Ok(())
    }

    /// The content of a cell.
    #[inline]
    pub fn cell(&self, i: usize, id: ColumnId) -> Cell<'_> {
        let Some(column) = self.columns.get(id.0 as usize).and_then(OnceLock::get) else {
            return Cell::Absent;
        };
        match column {
            Column::Word { nulls, .. } | Column::Wide { nulls, .. } if nulls.has(i) => Cell::Null,
            Column::Word { words, .. } => Cell::Word(words[i].load(Ordering::Relaxed)),
            Column::Wide { words, .. } => {
                let word = |k: usize| words[i * 2 + k].load(Ordering::Relaxed);
                Cell::Wide([word(0), word(1)])
            }
            Column::Bytes { cells } => cells[i].get().map_or(Cell::Null, |b| Cell::Bytes(b)),
        }
    }

    /// Whether a row has a value of a column.
    pub fn has_cells(&self, id: ColumnId) -> bool {
        let column = self.columns.get(id.0 as usize);
        column.is_some_and(|column| column.get().is_some())
    }
}
