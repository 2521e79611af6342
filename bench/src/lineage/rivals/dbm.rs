//! Delta + blocking merge [L-Store §6.1, after HANA].
//!
//! A range of 4,096 rows has a read-only main and a delta of appended versions, found from one
//! entry per row. The merge of a range is due when its delta has half as many versions as the range
//! has rows. The merge drains the transactions to freeze the delta. It writes a new main beside
//! them, and drains again to install it. Every merge takes all ranges that are due, so that they
//! share the two drains.
//!
//! A writer locks a row by appending a version with its word; nothing is latched. Mains, deltas,
//! their merge and the gate are this engine's own; the rest is [shared](super).
//!
//! Differences from the paper: a scan keeps the mains and deltas that it began with, so a merge
//! does not wait for it. `Layout::Rows` stores the main by rows, which gives the row store of
//! Tables 8 and 9. The paper changed L-Store itself for them.
//!
//! Lock order: the gate, then the locks of log and transactions, or the queue's.

use super::point::{Buffers, Numbers, PointTransaction};
use super::table::Table;
use super::transactions::{Transaction, Transactions, View, conflict};
use super::versions::{Version, Versions};
use crate::Result;
use crate::lineage::engine::{
    COLUMNS, Engine, Point, Scanner, Session, Step, UPDATED, first_values,
};
use parking_lot::{Mutex, RwLock};
use std::ops::Range as Rows;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_base::{ColumnId, RowId, Value};
use strandline_txn::StartWord;

/// Rows of a range: 32 KB per column.
const ROWS: usize = 4_096;
/// The number of versions that makes a merge due: half a range, which the paper finds best.
const MERGE_VERSIONS: u64 = ROWS as u64 / 2;
/// Capacity of a delta: 2^19 versions. If the merge is delayed until it is full, writes to the
/// range are refused as conflicts until the merge has run.
const DELTA_CHUNKS: usize = 1 << 9;

/// The memory layout of a main.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Columns,
    Rows,
}

/// The engine with delta and blocking merge.
pub struct Dbm {
    layout: Layout,
    table: Table,
    /// The gate: transactions hold it shared, a merge exclusively while it swaps.
    ranges: RwLock<Vec<Range>>,
    /// Numbers of the ranges whose merge is due.
    due: Mutex<Vec<usize>>,
    transactions: Transactions,
}

#[derive(Clone)]
struct Range {
    main: Arc<Main>,
    delta: Arc<Delta>,
    /// The delta that is being merged into the main.
    frozen: Option<Arc<Delta>>,
}

enum Main {
    /// One column after the other; a merge rewrites only the updated columns.
    Columns([Arc<[i64]>; COLUMNS]),
    /// One row after the other.
    Rows(Box<[i64]>),
}

impl Main {
    fn new(layout: Layout, first: u64, rows: u64, seed: u64) -> Self {
        let row = |slot: usize| {
            let key = first + slot as u64;
            if key < rows {
                first_values(key, seed)
            } else {
                [0; COLUMNS]
            }
        };
        let values: Vec<[i64; COLUMNS]> = (0..ROWS).map(row).collect();
        match layout {
            Layout::Columns => Self::Columns(std::array::from_fn(|column| {
                values.iter().map(|row| row[column]).collect()
            })),
            Layout::Rows => Self::Rows(values.into_iter().flatten().collect()),
        }
    }

    fn get(&self, slot: usize, column: usize) -> i64 {
        match self {
            Self::Columns(columns) => columns[column][slot],
            Self::Rows(values) => values[slot * COLUMNS + column],
        }
    }

    /// The sum of `c1`.
    fn sum(&self, slots: Rows<usize>) -> i64 {
        match self {
            Self::Columns(columns) => columns[0][slots].iter().sum(),
            Self::Rows(values) => {
                let rows = &values[slots.start * COLUMNS..slots.end * COLUMNS];
                rows.chunks_exact(COLUMNS).map(|row| row[0]).sum()
            }
        }
    }

    /// A new main with all versions of `frozen`, none of which is uncommitted.
    fn merged(&self, frozen: &Delta) -> Self {
        match self {
            Self::Columns(columns) => {
                let mut new = columns.clone();
                for (number, column) in new.iter_mut().enumerate().take(UPDATED) {
                    let value = |slot: usize| match frozen.newest(slot) {
                        Some(version) => version.value(number),
                        None => columns[number][slot],
                    };
                    *column = (0..ROWS).map(value).collect();
                }
                Self::Columns(new)
            }
            Self::Rows(values) => {
                let mut new = values.clone();
                for (slot, row) in new.chunks_exact_mut(COLUMNS).enumerate() {
                    if let Some(version) = frozen.newest(slot) {
                        row[..UPDATED].copy_from_slice(&version.values());
                    }
                }
                Self::Rows(new)
            }
        }
    }
}

struct Delta {
    versions: Versions,
    /// Each row's newest version.
    newest: Box<[AtomicU64]>,
}

impl Delta {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            versions: Versions::new(DELTA_CHUNKS),
            newest: (0..ROWS).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    fn newest(&self, slot: usize) -> Option<&Version> {
        self.older(self.newest[slot].load(Ordering::Acquire))
    }

    fn older(&self, number: u64) -> Option<&Version> {
        (number != 0).then(|| self.versions.get(number))
    }
}

impl Range {
    /// The newest version of a row that `view` contains; None if it is the main's. All versions
    /// have the same columns, so the newest has every update since the main was written.
    fn version(&self, slot: usize, transactions: &Transactions, view: View) -> Option<&Version> {
        [Some(&self.delta), self.frozen.as_ref()]
            .into_iter()
            .flatten()
            .find_map(|delta| {
                let mut found = delta.newest(slot);
                while let Some(version) = found {
                    if transactions.sees(view, || version.start()) {
                        break;
                    }
                    found = delta.older(version.older());
                }
                found
            })
    }

    fn sum(&self, slots: Rows<usize>, transactions: &Transactions, view: View) -> i64 {
        let sum = self.main.sum(slots.clone());
        if self.frozen.is_none() && self.delta.versions.count() == 0 {
            return sum;
        }
        let change = |slot| match self.version(slot, transactions, view) {
            Some(version) => version.value(0) - self.main.get(slot, 0),
            None => 0,
        };
        sum + slots.map(change).sum::<i64>()
    }
}

impl Dbm {
    /// A table of `rows` rows.
    pub fn new(layout: Layout, rows: u64, seed: u64) -> Self {
        let range = |number: u64| Range {
            main: Arc::new(Main::new(layout, number * ROWS as u64, rows, seed)),
            delta: Delta::new(),
            frozen: None,
        };
        let ranges = (0..rows.div_ceil(ROWS as u64)).map(range).collect();
        Self {
            layout,
            table: Table::new(rows),
            ranges: RwLock::new(ranges),
            due: Mutex::new(Vec::new()),
            transactions: Transactions::new().expect("memory does not fail"),
        }
    }
}

impl Engine for Dbm {
    fn name(&self) -> &'static str {
        match self.layout {
            Layout::Columns => "DBM",
            Layout::Rows => "rows",
        }
    }

    fn session(&self, columns: usize) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(DbmSession {
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
        let due = std::mem::take(&mut *self.due.lock());
        if due.is_empty() {
            return false;
        }
        let mut fresh: Vec<Arc<Delta>> = due.iter().map(|_| Delta::new()).collect();
        let mut merging = Vec::new();
        {
            let mut ranges = self.ranges.write();
            for (&number, fresh) in due.iter().zip(&mut fresh) {
                let range = &mut ranges[number];
                std::mem::swap(&mut range.delta, fresh);
                range.frozen = Some(fresh.clone());
                merging.push((range.main.clone(), fresh.clone()));
            }
        }
        let merged = merging
            .iter()
            .map(|(main, frozen)| Arc::new(main.merged(frozen)));
        let merged: Vec<Arc<Main>> = merged.collect();
        // The replaced mains and deltas are freed after the gate is open again.
        let mut ranges = self.ranges.write();
        for (&number, main) in due.iter().zip(merged) {
            ranges[number].main = main;
            ranges[number].frozen = None;
        }
        drop(ranges);
        true
    }
}

impl Scanner for &Dbm {
    fn sum(&mut self, rows: Rows<u64>) -> Result<i64> {
        let (first, end) = (rows.start as usize, rows.end as usize);
        let numbers = first / ROWS..end.div_ceil(ROWS);
        let (snapshot, ranges) = {
            let ranges = self.ranges.read();
            let snapshot = self.transactions.snapshot()?;
            (snapshot, ranges[numbers.clone()].to_vec())
        };
        let view = View::of(&snapshot);
        let sum = |(number, range): (usize, &Range)| {
            let base = number * ROWS;
            let slots = first.max(base) - base..end.min(base + ROWS) - base;
            range.sum(slots, &self.transactions, view)
        };
        Ok(numbers.zip(&ranges).map(sum).sum())
    }
}

struct DbmSession<'e> {
    engine: &'e Dbm,
    transaction: Transaction<'e>,
    buffers: Buffers,
    written: Vec<Written>,
}

/// Range, slot and number of a version that has the transaction's word.
struct Written(usize, usize, u64);

impl Session for DbmSession<'_> {
    fn transaction(&mut self, work: &mut dyn FnMut(&mut dyn Point) -> Step<()>) -> Step<()> {
        let ranges = self.engine.ranges.read();
        self.written.clear();
        let done = work(&mut Numbers {
            transaction: DbmTransaction {
                engine: self.engine,
                ranges: &ranges,
                transaction: &mut self.transaction,
                written: &mut self.written,
            },
            buffers: &mut self.buffers,
        });
        let done = done.and_then(|()| Ok(self.commit(&ranges)?));
        if done.is_err() {
            self.roll_back(&ranges);
        }
        self.transaction.finish();
        done
    }
}

impl DbmSession<'_> {
    fn commit(&mut self, ranges: &[Range]) -> strandline_base::Result<()> {
        if self.written.is_empty() {
            return Ok(());
        }
        let stamp = self.transaction.commit()?;
        for Written(range, _, number) in &self.written {
            ranges[*range].delta.versions.get(*number).stamp(stamp);
        }
        Ok(())
    }

    fn roll_back(&mut self, ranges: &[Range]) {
        self.transaction.abort();
        for Written(range, slot, number) in &self.written {
            let delta = &ranges[*range].delta;
            let version = delta.versions.get(*number);
            // This order matters: a version keeps other writers away as long as its row leads to
            // it.
            delta.newest[*slot].store(version.older(), Ordering::Release);
            version.stamp(StartWord::ABORTED);
        }
    }
}

struct DbmTransaction<'e, 's> {
    engine: &'e Dbm,
    ranges: &'s [Range],
    transaction: &'s mut Transaction<'e>,
    written: &'s mut Vec<Written>,
}

impl DbmTransaction<'_, '_> {
    /// Writes a version of a row.
    fn write(
        &mut self,
        (number, slot): (usize, usize),
        values: &[i64; UPDATED],
    ) -> strandline_base::Result<()> {
        let word = self.transaction.word()?;
        let delta = &self.ranges[number].delta;
        let older = delta.newest[slot].load(Ordering::Acquire);
        if let Some(version) = delta.older(older) {
            if version.start() == word {
                version.set(values);
                return Ok(());
            }
            // A version that is being rolled back is a conflict until it is unlinked.
            let committed = self.engine.transactions.committed(|| version.start());
            committed.ok_or_else(conflict)?;
        }
        let new = delta.versions.append(older, word, values);
        let new = new.ok_or_else(conflict)?;
        if new == MERGE_VERSIONS {
            self.engine.due.lock().push(number);
        }
        let taken =
            delta.newest[slot].compare_exchange(older, new, Ordering::AcqRel, Ordering::Acquire);
        if taken.is_err() {
            delta.versions.get(new).stamp(StartWord::ABORTED);
            return Err(conflict());
        }
        self.written.push(Written(number, slot, new));
        Ok(())
    }
}

impl PointTransaction for DbmTransaction<'_, '_> {
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
        let (number, slot) = place(row);
        let range = &self.ranges[number];
        let view = self.transaction.view();
        let version = range.version(slot, &self.engine.transactions, view);
        values.extend(columns.iter().map(|column| {
            let column = column.0 as usize;
            Value::BigInt(match version {
                Some(version) if column < UPDATED => version.value(column),
                _ => range.main.get(slot, column),
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
        self.write(place(row), &values)?;
        self.transaction.note_update(row, set)?;
        Ok(true)
    }
}

/// The range and the slot of a row.
fn place(row: RowId) -> (usize, usize) {
    (row.0 as usize / ROWS, row.0 as usize % ROWS)
}
