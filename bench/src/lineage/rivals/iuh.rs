//! In-place update + history [L-Store §6.1, after Oracle's flashback archive].
//!
//! Rows are updated in place in pages of 32 KB, each under a shared/exclusive latch. The old values
//! go into one history table. Readers find older versions there, and an abort restores rows from
//! it. A page has its newest commit and its number of uncommitted rows. A scan can therefore sum a
//! page without newer changes at full speed.
//!
//! There are two forms. With [`Together`] a page of 32 KB holds all columns of 341 rows, each
//! column contiguous (PAX). A row costs one latch, which few rows share. With [`Apart`] a page
//! holds one column of 4,096 rows, as in the paper, and every column of a row costs a latch.
//!
//! Differences from the paper: undo is not logged, since pages are never written out and the
//! history has it. With [`Apart`] the rows' starts and history positions are a page too; its latch
//! is held while column latches are taken.
//!
//! Pages, latches and history are this engine's own; the rest is [shared](super).
//!
//! Invariant: a transaction whose word is in a page still has its slot, since it stamps the page
//! under the latch before it gives the slot back.
//!
//! Lock order: a page's latch comes last; with [`Apart`] a column's latch follows it. No thread
//! holds two latches of one kind.

use super::point::{Buffers, Numbers, PointTransaction};
use super::table::Table;
use super::transactions::{FIRST, Transaction, Transactions, View, conflict};
use super::versions::{Version, Versions};
use crate::Result;
use crate::lineage::engine::{
    COLUMNS, Engine, Point, Scanner, Session, Step, UPDATED, first_values,
};
use parking_lot::RwLock;
use std::ops::Range;
use strandline_base::{ColumnId, CommitTs, Error, ErrorKind, RowId, SqlState, Value};
use strandline_txn::StartWord;

/// Bytes of a page, as in the paper. They hold each row's columns, start and history position.
const PAGE_BYTES: usize = 32 << 10;
/// Capacity of the history: 2^27 versions.
const HISTORY_CHUNKS: usize = 1 << 17;

/// The storage of the values of a page's rows.
pub trait Columns: Send + Sync + 'static {
    /// The engine's name with this storage.
    const NAME: &'static str;
    /// Rows of a page.
    const ROWS: usize;
    /// A page of zeros.
    fn new() -> Self;
    /// Reads a value.
    fn get(&self, column: usize, slot: usize) -> i64;
    /// Writes a value.
    fn set(&mut self, column: usize, slot: usize, value: i64);
    /// The sum of the first column.
    fn sum(&self, slots: Range<usize>) -> i64;
}

/// All columns in one page, column after column.
pub struct Together(Box<[i64]>);

impl Columns for Together {
    const NAME: &'static str = "IUH";
    const ROWS: usize = PAGE_BYTES / (8 * (COLUMNS + 2));

    fn new() -> Self {
        Self(vec![0; Self::ROWS * COLUMNS].into())
    }
    fn get(&self, column: usize, slot: usize) -> i64 {
        self.0[column * Self::ROWS + slot]
    }
    fn set(&mut self, column: usize, slot: usize, value: i64) {
        self.0[column * Self::ROWS + slot] = value;
    }
    fn sum(&self, slots: Range<usize>) -> i64 {
        self.0[slots].iter().sum()
    }
}

/// A page, and a latch, for each column.
pub struct Apart([RwLock<Box<[i64]>>; COLUMNS]);

impl Columns for Apart {
    const NAME: &'static str = "IUH, a latch per column";
    const ROWS: usize = PAGE_BYTES / 8;

    fn new() -> Self {
        Self(std::array::from_fn(|_| {
            RwLock::new(vec![0; Self::ROWS].into())
        }))
    }
    fn get(&self, column: usize, slot: usize) -> i64 {
        self.0[column].read()[slot]
    }
    fn set(&mut self, column: usize, slot: usize, value: i64) {
        self.0[column].write()[slot] = value;
    }
    fn sum(&self, slots: Range<usize>) -> i64 {
        self.0[0].read()[slots].iter().sum()
    }
}

/// The engine with in-place update and history.
pub struct Iuh<C = Together> {
    table: Table,
    pages: Box<[RwLock<Page<C>>]>,
    history: Versions,
    transactions: Transactions,
}

struct Page<C> {
    columns: C,
    start: Box<[StartWord]>,
    /// Each row's newest version in the history.
    older: Box<[u64]>,
    /// Rows that have a transaction's word.
    marked: u32,
    /// The newest commit that changed a row.
    newest: CommitTs,
}

impl<C: Columns> Iuh<C> {
    /// A table of `rows` rows.
    pub fn new(rows: u64, seed: u64) -> Self {
        let pages = (0..rows.div_ceil(C::ROWS as u64)).map(|page| {
            let mut columns = C::new();
            for slot in 0..C::ROWS {
                let key = page * C::ROWS as u64 + slot as u64;
                if key < rows {
                    for (column, value) in first_values(key, seed).into_iter().enumerate() {
                        columns.set(column, slot, value);
                    }
                }
            }
            let start = vec![StartWord::committed(FIRST); C::ROWS].into_boxed_slice();
            let older = vec![0; C::ROWS].into_boxed_slice();
            RwLock::new(Page {
                columns,
                start,
                older,
                marked: 0,
                newest: FIRST,
            })
        });
        Self {
            table: Table::new(rows),
            pages: pages.collect(),
            history: Versions::new(HISTORY_CHUNKS),
            transactions: Transactions::new().expect("memory does not fail"),
        }
    }

    /// The newest version of `slot` in the history that `view` contains; None if it is the page's.
    fn version(&self, page: &Page<C>, slot: usize, view: View) -> Option<&Version> {
        if self.transactions.sees(view, || page.start[slot]) {
            return None;
        }
        let mut number = page.older[slot];
        loop {
            let version = self.history.get(number);
            if self.transactions.sees(view, || version.start()) {
                return Some(version);
            }
            number = version.older();
        }
    }

    /// The sum of `c1` over slots of a page.
    fn sum_page(&self, page: &Page<C>, slots: Range<usize>, view: View) -> i64 {
        if page.marked == 0 && view.contains(page.newest) {
            return page.columns.sum(slots);
        }
        let value = |slot: usize| match self.version(page, slot, view) {
            Some(version) => version.value(0),
            None => page.columns.get(0, slot),
        };
        slots.map(value).sum()
    }
}

impl<C: Columns> Engine for Iuh<C> {
    fn name(&self) -> &'static str {
        C::NAME
    }

    fn session(&self, columns: usize) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(IuhSession {
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
        false
    }
}

impl<C: Columns> Scanner for &Iuh<C> {
    fn sum(&mut self, rows: Range<u64>) -> Result<i64> {
        let snapshot = self.transactions.snapshot()?;
        let view = View::of(&snapshot);
        let (first, end) = (rows.start as usize, rows.end as usize);
        let mut sum = 0;
        for page in first / C::ROWS..end.div_ceil(C::ROWS) {
            let base = page * C::ROWS;
            let slots = first.max(base) - base..end.min(base + C::ROWS) - base;
            sum += self.sum_page(&self.pages[page].read(), slots, view);
        }
        Ok(sum)
    }
}

struct IuhSession<'e, C> {
    engine: &'e Iuh<C>,
    transaction: Transaction<'e>,
    buffers: Buffers,
    /// Rows with this transaction's word.
    written: Vec<(usize, usize)>,
}

impl<C: Columns> Session for IuhSession<'_, C> {
    fn transaction(&mut self, work: &mut dyn FnMut(&mut dyn Point) -> Step<()>) -> Step<()> {
        self.written.clear();
        let done = work(&mut Numbers {
            transaction: IuhTransaction {
                engine: self.engine,
                transaction: &mut self.transaction,
                written: &mut self.written,
            },
            buffers: &mut self.buffers,
        });
        let done = done.and_then(|()| Ok(self.commit()?));
        if done.is_err() {
            self.roll_back();
        }
        self.transaction.finish();
        done
    }
}

impl<C: Columns> IuhSession<'_, C> {
    fn commit(&mut self) -> strandline_base::Result<()> {
        if self.written.is_empty() {
            return Ok(());
        }
        let word = self.transaction.word()?;
        let stamp = self.transaction.commit()?;
        for &(page, slot) in &self.written {
            let mut page = self.engine.pages[page].write();
            page.newest = page.newest.max(CommitTs(stamp.0));
            // Skip rows that the next writer has taken over already.
            if page.start[slot] == word {
                page.start[slot] = stamp;
                page.marked -= 1;
            }
        }
        Ok(())
    }

    /// Undoes the updates: restores the rows' old values from the history.
    fn roll_back(&mut self) {
        self.transaction.abort();
        for &(page, slot) in &self.written {
            let mut page = self.engine.pages[page].write();
            let version = self.engine.history.get(page.older[slot]);
            page.set(slot, &version.values());
            page.start[slot] = version.start();
            page.older[slot] = version.older();
            page.marked -= 1;
        }
    }
}

impl<C: Columns> Page<C> {
    fn get(&self, slot: usize) -> [i64; UPDATED] {
        std::array::from_fn(|column| self.columns.get(column, slot))
    }

    fn set(&mut self, slot: usize, values: &[i64; UPDATED]) {
        for (column, value) in values.iter().enumerate() {
            self.columns.set(column, slot, *value);
        }
    }
}

struct IuhTransaction<'e, 's, C> {
    engine: &'e Iuh<C>,
    transaction: &'s mut Transaction<'e>,
    written: &'s mut Vec<(usize, usize)>,
}

impl<C: Columns> PointTransaction for IuhTransaction<'_, '_, C> {
    fn get_into(
        &mut self,
        key: &[Value],
        columns: &[ColumnId],
        values: &mut Vec<Value>,
    ) -> strandline_base::Result<bool> {
        self.engine.table.check_columns(columns)?;
        let Some(row) = self.engine.table.find(key)? else {
            return Ok(false);
        };
        let (page, slot) = place::<C>(row);
        let page = self.engine.pages[page].read();
        let version = self.engine.version(&page, slot, self.transaction.view());
        values.extend(columns.iter().map(|column| {
            let column = column.0 as usize;
            Value::BigInt(match version {
                Some(version) if column < UPDATED => version.value(column),
                _ => page.columns.get(column, slot),
            })
        }));
        Ok(true)
    }

    fn update(
        &mut self,
        key: &[Value],
        set: &[(ColumnId, Value)],
    ) -> strandline_base::Result<bool> {
        let values = self.engine.table.updated(set)?;
        let Some(row) = self.engine.table.find(key)? else {
            return Ok(false);
        };
        let word = self.transaction.word()?;
        let (number, slot) = place::<C>(row);
        let mut page = self.engine.pages[number].write();
        // A second update of the row overwrites the first; the old value is already in the history.
        if page.start[slot] != word {
            let start = page.start[slot];
            let committed = self.engine.transactions.committed(|| start);
            let time = committed.ok_or_else(conflict)?;
            let (older, old) = (page.older[slot], page.get(slot));
            let start_of_old = StartWord::committed(time);
            let version = self.engine.history.append(older, start_of_old, &old);
            page.older[slot] = version.ok_or_else(history_is_full)?;
            page.start[slot] = word;
            // A committed row that is not stamped yet is already counted, by its writer.
            if start == start_of_old {
                page.marked += 1;
            }
            page.newest = page.newest.max(time);
            self.written.push((number, slot));
        }
        page.set(slot, &values);
        drop(page);
        self.transaction.note_update(row, set)?;
        Ok(true)
    }
}

/// The page and the slot of a row.
fn place<C: Columns>(row: RowId) -> (usize, usize) {
    (row.0 as usize / C::ROWS, row.0 as usize % C::ROWS)
}

fn history_is_full() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        SqlState::OUT_OF_MEMORY,
        "the history is full",
    )
}
