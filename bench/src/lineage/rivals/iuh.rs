//! In-place update + history [L-Store §6.1, after Oracle's flashback archive].
//!
//! Rows are updated in place in pages of 32 KB under each page's shared/exclusive latch; the values
//! before go into one history table, by which readers find older versions and an abort restores the
//! row. A page keeps the newest commit and the number of uncommitted rows in it, so that a scan
//! sums a page without changes after its snapshot at full speed.
//!
//! Differences from the paper's: a page holds all columns of 341 rows, each column in a piece
//! (PAX), instead of one column of 4,096: a row costs one latch instead of one per column, and
//! fewer rows share it. Records of redo and undo are written at commit, as pages are never written
//! out.
//!
//! Lock order: a page's latch, then the log's. No thread holds two latches.

use super::index::HashIndex;
use super::log::{MemoryLog, Record};
use super::transactions::{FIRST, Member, Status, Transactions, View};
use super::versions::Versions;
use crate::Result;
use crate::lineage::engine::{
    COLUMNS, Engine, Failure, Point, Scanner, Session, Step, UPDATED, first_values,
};
use parking_lot::RwLock;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Bytes of a page as in the paper, in which a row has its columns, its start and its history.
const PAGE_BYTES: usize = 32 << 10;
const ROWS: usize = PAGE_BYTES / (8 * (COLUMNS + 2));
/// Room of the history: 2^27 versions.
const HISTORY_CHUNKS: usize = 1 << 17;

/// The engine.
pub struct Iuh {
    index: HashIndex,
    pages: Box<[RwLock<Page>]>,
    history: Versions,
    transactions: Transactions,
    log: MemoryLog,
}

struct Page {
    /// Column after column.
    values: Box<[i64]>,
    start: Box<[u64]>,
    /// Each row's newest version in the history.
    older: Box<[u64]>,
    /// Rows that carry a mark.
    marked: u32,
    /// The newest commit that changed a row.
    newest: u64,
}

impl Iuh {
    /// A table of `rows` rows.
    pub fn new(rows: u64, seed: u64) -> Self {
        let index = HashIndex::new(rows);
        let pages = (0..rows.div_ceil(ROWS as u64)).map(|page| {
            let mut values = vec![0; ROWS * COLUMNS].into_boxed_slice();
            for slot in 0..ROWS {
                let key = page * ROWS as u64 + slot as u64;
                if key < rows {
                    index.insert(key, key);
                    for (column, value) in first_values(key, seed).into_iter().enumerate() {
                        values[column * ROWS + slot] = value;
                    }
                }
            }
            let start = vec![FIRST; ROWS].into_boxed_slice();
            let older = vec![0; ROWS].into_boxed_slice();
            RwLock::new(Page {
                values,
                start,
                older,
                marked: 0,
                newest: FIRST,
            })
        });
        let pages = pages.collect();
        let (history, log) = (Versions::new(HISTORY_CHUNKS), MemoryLog::new());
        Self {
            index,
            pages,
            history,
            transactions: Transactions::new(),
            log,
        }
    }

    /// The page and the slot of `key`.
    fn find(&self, key: u64) -> Step<(usize, usize)> {
        let row = self.index.get(key);
        let row = row.ok_or_else(|| Failure::Error(format!("no row {key}")))? as usize;
        Ok((row / ROWS, row % ROWS))
    }

    /// The newest version in the history that stands for `slot` in `view`; None: the page's.
    fn version(&self, page: &Page, slot: usize, view: View) -> Option<u64> {
        if self.transactions.sees(view, || page.start[slot]) {
            return None;
        }
        let mut number = page.older[slot];
        loop {
            let version = self.history.get(number);
            if self
                .transactions
                .sees(view, || version.start.load(Ordering::Relaxed))
            {
                return Some(number);
            }
            number = version.older();
        }
    }

    /// The sum of `c1` over slots of a page.
    fn sum_page(&self, page: &Page, slots: Range<usize>, view: View) -> i64 {
        let View::Snapshot(time) = view else {
            unreachable!("scans read snapshots")
        };
        let column = &page.values[..ROWS];
        if page.marked == 0 && page.newest <= time {
            return column[slots].iter().sum();
        }
        let value = |slot: usize| match self.version(page, slot, view) {
            Some(number) => self.history.get(number).value(0),
            None => column[slot],
        };
        slots.map(value).sum()
    }
}

impl Engine for Iuh {
    fn name(&self) -> &'static str {
        "IUH"
    }

    fn session(&self, _columns: usize) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(IuhSession {
            engine: self,
            member: self.transactions.join(),
            record: Record::new(),
            written: Vec::new(),
        }))
    }

    fn scanner(&self) -> Result<Box<dyn Scanner + '_>> {
        Ok(Box::new(self))
    }

    fn merge(&self) -> bool {
        false
    }
}

impl Scanner for &Iuh {
    fn sum(&mut self, rows: Range<u64>) -> Result<i64> {
        let view = self.transactions.snapshot();
        let (first, end) = (rows.start as usize, rows.end as usize);
        let mut sum = 0;
        for page in first / ROWS..end.div_ceil(ROWS) {
            let base = page * ROWS;
            let slots = first.max(base) - base..end.min(base + ROWS) - base;
            sum += self.sum_page(&self.pages[page].read(), slots, view);
        }
        Ok(sum)
    }
}

struct IuhSession<'e> {
    engine: &'e Iuh,
    member: Member<'e>,
    record: Record,
    /// Rows with this transaction's mark.
    written: Vec<(usize, usize)>,
}

impl Session for IuhSession<'_> {
    fn transaction(&mut self, work: &mut dyn FnMut(&mut dyn Point) -> Step<()>) -> Step<()> {
        self.record.clear();
        self.written.clear();
        let mark = self.member.begin();
        let (engine, record, written) = (self.engine, &mut self.record, &mut self.written);
        let done = work(&mut IuhPoint {
            engine,
            mark,
            record,
            written,
        });
        match done {
            Ok(()) => self.commit(mark),
            Err(_) => self.abort(),
        }
        done
    }
}

impl IuhSession<'_> {
    fn commit(&mut self, mark: u64) {
        if self.written.is_empty() {
            return;
        }
        self.engine.log.append(&mut self.record);
        let time = self.member.commit();
        for &(page, slot) in &self.written {
            let mut page = self.engine.pages[page].write();
            page.newest = page.newest.max(time);
            // Unless the next writer has taken the row over already.
            if page.start[slot] == mark {
                page.start[slot] = time;
                page.marked -= 1;
            }
        }
    }

    /// Undo: the rows' values before come back from the history.
    fn abort(&mut self) {
        for &(page, slot) in &self.written {
            let mut page = self.engine.pages[page].write();
            let version = self.engine.history.get(page.older[slot]);
            page.set(slot, &version.values());
            page.start[slot] = version.start.load(Ordering::Relaxed);
            page.older[slot] = version.older();
            page.marked -= 1;
        }
    }
}

impl Page {
    fn get(&self, slot: usize) -> [i64; UPDATED] {
        std::array::from_fn(|column| self.values[column * ROWS + slot])
    }

    fn set(&mut self, slot: usize, values: &[i64; UPDATED]) {
        for (column, value) in values.iter().enumerate() {
            self.values[column * ROWS + slot] = *value;
        }
    }
}

struct IuhPoint<'e, 's> {
    engine: &'e Iuh,
    mark: u64,
    record: &'s mut Record,
    written: &'s mut Vec<(usize, usize)>,
}

impl Point for IuhPoint<'_, '_> {
    fn read(&mut self, key: u64, values: &mut [i64]) -> Step<()> {
        let (page, slot) = self.engine.find(key)?;
        let page = self.engine.pages[page].read();
        for (column, value) in values.iter_mut().enumerate() {
            *value = page.values[column * ROWS + slot];
        }
        let view = View::Newest { mark: self.mark };
        if let Some(number) = self.engine.version(&page, slot, view) {
            let old = self.engine.history.get(number).values();
            let updated = values.len().min(UPDATED);
            values[..updated].copy_from_slice(&old[..updated]);
        }
        Ok(())
    }

    fn update(&mut self, key: u64, values: &[i64; UPDATED]) -> Step<()> {
        let (number, slot) = self.engine.find(key)?;
        let mut page = self.engine.pages[number].write();
        self.record.push(&[key as i64]);
        self.record.push(values);
        // A second update of the row overwrites the first: what was before is in the history.
        if page.start[slot] != self.mark {
            let start = page.start[slot];
            let Status::Committed(time) = self.engine.transactions.status(false, || start) else {
                return Err(Failure::Conflict);
            };
            let old = page.get(slot);
            self.record.push(&old);
            let version = self.engine.history.append(page.older[slot], time, &old);
            page.older[slot] = version.ok_or_else(|| Failure::Error("history is full".into()))?;
            page.start[slot] = self.mark;
            // A committed row that is not stamped yet was counted by its writer.
            if start == time {
                page.marked += 1;
            }
            page.newest = page.newest.max(time);
            self.written.push((number, slot));
        }
        page.set(slot, values);
        Ok(())
    }
}
