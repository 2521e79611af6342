//! The rows that a search finds: read, kept, locked and put in order.

use super::search::{IndexPath, Sort};
use super::sets::Sets;
use crate::planning::locking::Lock;
use std::cmp::Ordering;
use std::sync::Arc;
use strandline_base::{ColumnId, Error, Result, RowId, Value};
use strandline_engine::catalog::TableDef;
use strandline_engine::{Covering, KeyBytes, RowView, Statement};

/// Whether values have the same place in an order, NULL with NULL.
fn is_equal(a: &Value, b: &Value) -> bool {
    a == b || a.compare(b) == Some(Ordering::Equal)
}

/// The lock that a query takes on its rows.
pub(super) struct Locking<'a> {
    pub statement: &'a Statement,
    pub table: &'a Arc<TableDef>,
    pub lock: Lock,
}

impl Locking<'_> {
    /// Whether the row is locked now.
    pub fn take(&self, row: RowId) -> Result<bool> {
        let (lock, wait) = (self.lock.row_lock(), self.lock.wait);
        let locked = self.statement.lock_rows(self.table, &[row], lock, wait)?;
        Ok(locked == [true])
    }
}

/// Stands for a row's id among the columns that a search reads, of which it is the first.
pub(crate) const ROW_ID: ColumnId = ColumnId(u32::MAX);

/// The columns that are read of the table.
pub(super) fn stored(reads: &[ColumnId]) -> &[ColumnId] {
    match reads.split_first() {
        Some((&ROW_ID, stored)) => stored,
        _ => reads,
    }
}

/// What a row is that an entry of an index leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByEntry {
    /// it is visible, has the entry's key and passes every test
    Found,
    /// it does not pass every test
    Fails,
    /// it is not visible, or has another key
    Gone,
}

/// Rows that are read one by one.
pub(super) struct FoundRows<'a> {
    view: &'a RowView,
    sets: &'a Sets<'a>,
    /// the row that was read last
    values: Vec<Value>,
    /// the rows kept
    found: Vec<Value>,
    ids: Vec<RowId>,
}

impl<'a> FoundRows<'a> {
    pub fn new(view: &'a RowView, sets: &'a Sets<'a>) -> Self {
        Self {
            view,
            sets,
            values: vec![Value::Null; sets.search.reads.len()],
            found: Vec::new(),
            ids: Vec::new(),
        }
    }

    /// The number of rows kept.
    pub fn count(&self) -> usize {
        self.ids.len()
    }

    /// Reads a row; whether it is visible and passes every test.
    pub fn read(&mut self, row: RowId) -> Result<bool> {
        Ok(self.read_values(row)? && self.sets.hold(&self.values))
    }

    /// Reads a row; whether it is visible.
    fn read_values(&mut self, row: RowId) -> Result<bool> {
        let stored = stored(&self.sets.search.reads);
        let values = match self.values.len() > stored.len() {
            false => self.values.as_mut_slice(),
            true => {
                let id = i64::try_from(row.0);
                let id = id.map_err(|_| Error::internal(format!("a row's id is {row:?}")))?;
                self.values[0] = Value::BigInt(id);
                &mut self.values[1..]
            }
        };
        self.view.read(row, stored, values)
    }

    /// The same by the row's entry; None: the row must be read.
    pub fn read_entry(
        &mut self,
        row: RowId,
        key: &KeyBytes,
        covering: &Covering<'_>,
    ) -> Result<Option<bool>> {
        let is_visible = self.view.read_entry(row, key, covering, &mut self.values)?;
        Ok(is_visible.map(|is_visible| is_visible && self.sets.hold(&self.values)))
    }

    /// Reads a row by its entry if that can be. It has an entry for each key that it had.
    pub fn read_by(
        &mut self,
        row: RowId,
        key: &KeyBytes,
        path: &IndexPath,
        covering: Option<&Covering<'_>>,
    ) -> Result<ByEntry> {
        let values = &mut self.values;
        let by_entry = covering.map(|covering| self.view.read_entry(row, key, covering, values));
        let has_key = match by_entry.transpose()?.flatten() {
            Some(is_visible) => is_visible,
            None => self.read_values(row)? && self.has_key(path, key),
        };
        Ok(match has_key {
            false => ByEntry::Gone,
            true if self.sets.hold(&self.values) => ByEntry::Found,
            true => ByEntry::Fails,
        })
    }

    /// Whether the row that was read last has this key.
    fn has_key(&self, path: &IndexPath, bytes: &KeyBytes) -> bool {
        let places = path.key_places.iter();
        let key: Vec<Value> = places.map(|at| self.values[*at].clone()).collect();
        path.keys.encode(&key) == *bytes
    }

    /// Keeps the row that was read last.
    pub fn keep(&mut self, row: RowId) {
        let values = self.values.iter_mut();
        self.found
            .extend(values.map(|value| std::mem::replace(value, Value::Null)));
        self.ids.push(row);
    }

    /// The rows kept, one after the other.
    pub fn into_values(self) -> Vec<Value> {
        self.found
    }

    /// A value of the row that was read last.
    pub fn value(&self, place: usize) -> &Value {
        &self.values[place]
    }

    /// Whether the row that was read last differs from the one kept last, which is not among the
    /// first `settled`, in one of these places.
    fn begins_group(&self, settled: usize, places: &[usize]) -> bool {
        let width = self.values.len();
        let last = self.found.len().checked_sub(width);
        let last = last.filter(|_| self.count() > settled);
        last.is_some_and(|last| {
            let mut places = places.iter();
            places.any(|at| !is_equal(&self.found[last + at], &self.values[*at]))
        })
    }

    /// Puts the rows kept behind the first `settled` in order; false: keys are too long to tell
    /// their order.
    pub fn sort(&mut self, settled: usize, sort: &Sort) -> bool {
        let width = self.values.len();
        let mut keyed = Vec::with_capacity(self.count() - settled);
        let values = self.found.split_off(settled * width);
        let mut values = values.into_iter();
        for id in self.ids.split_off(settled) {
            let row: Vec<Value> = values.by_ref().take(width).collect();
            let key: Vec<Value> = sort.places.iter().map(|at| row[*at].clone()).collect();
            let key = sort.keys.encode(&key);
            if key.is_cut() {
                return false;
            }
            keyed.push((key, row, id));
        }
        keyed.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        for (_, row, id) in keyed {
            self.found.extend(row);
            self.ids.push(id);
        }
        true
    }

    /// Locks rows kept behind the first `settled` in their order, until there are `most` rows, and
    /// drops all others.
    pub fn lock(&mut self, settled: usize, locking: &Locking<'_>, most: usize) -> Result<()> {
        let width = self.values.len();
        let values = self.found.split_off(settled * width);
        let mut values = values.into_iter();
        for id in self.ids.split_off(settled) {
            if self.count() >= most {
                break;
            }
            let row = values.by_ref().take(width);
            match locking.take(id)? {
                true => {
                    self.found.extend(row);
                    self.ids.push(id);
                }
                false => row.for_each(drop),
            }
        }
        Ok(())
    }
}

/// When a walk has its rows.
pub(super) struct End<'a> {
    most: usize,
    locking: Option<&'a Locking<'a>>,
    /// Some: the walk has the order of so many of the first places of a sort
    pub sort: Option<(&'a Sort, usize)>,
    /// the first rows, which are in order and locked
    settled: usize,
    /// keys were too long to tell their order
    is_undecided: bool,
}

impl<'a> End<'a> {
    pub fn new(most: usize, locking: Option<&'a Locking<'a>>) -> Self {
        Self {
            most,
            locking,
            sort: None,
            settled: 0,
            is_undecided: false,
        }
    }

    /// Whether no more rows are to be read.
    pub fn is_reached(&self, rows: &FoundRows<'_>) -> bool {
        let found = match self.sort {
            Some(_) => self.settled,
            None => rows.count(),
        };
        self.is_undecided || found >= self.most
    }

    /// Takes the row that was read last; false: it was the last, or is not needed any more.
    pub fn take(&mut self, rows: &mut FoundRows<'_>, row: RowId) -> Result<bool> {
        match self.sort {
            Some((sort, ordered)) => {
                let ends_group = rows.begins_group(self.settled, &sort.places[..ordered]);
                if ends_group && (!self.settle(rows)? || self.is_reached(rows)) {
                    return Ok(false);
                }
                rows.keep(row);
            }
            None => {
                if self.locking.map_or(Ok(true), |locking| locking.take(row))? {
                    rows.keep(row);
                }
            }
        }
        Ok(!self.is_reached(rows))
    }

    /// Puts the last rows in order; false: that cannot be told.
    pub fn settle(&mut self, rows: &mut FoundRows<'_>) -> Result<bool> {
        let Some((sort, _)) = self.sort.filter(|_| !self.is_undecided) else {
            return Ok(!self.is_undecided);
        };
        self.is_undecided = !rows.sort(self.settled, sort);
        if self.is_undecided {
            return Ok(false);
        }
        if let Some(locking) = self.locking {
            rows.lock(self.settled, locking, self.most)?;
        }
        self.settled = rows.count();
        Ok(true)
    }
}
