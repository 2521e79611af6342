//! Repeated values: a value of an update that the next older update with the column has too is left
//! out. A reader that looks for the column's value continues to that record.
//!
//! The older record must be an update. An insertion may leave the runs while later updates stay,
//! and old values do not say when a value was set. Both records are in one run, so they are
//! rewritten together. When a version is folded into the next newer one, or into old values, its
//! values move along. A version without remaining values stays: it records when the row was
//! updated.
//!
//! Records come newest first, so a record waits until an older one has decided on each of its
//! values. Those that wait have at most [`WAITING_BYTES`]; a value that is written before it is
//! decided on stays, which costs it once per so many bytes.

use crate::update_run::{RunRecord, RunRecordKind};
use std::collections::{BTreeMap, VecDeque};
use strandline_base::{ColumnId, Result, Value};
use strandline_storage::run::RunItem;

/// So many bytes of records wait for older ones, and one record more.
pub(super) const WAITING_BYTES: usize = 4 << 20;

/// Leaves repeated values out of the updates of one row.
#[derive(Default)]
pub(super) struct Repeats {
    waiting: VecDeque<Waiting>,
    /// the number of the first that waits; records are numbered in order
    first: u64,
    bytes: usize,
    /// the record whose value of a column the next older one decides on
    undecided: BTreeMap<ColumnId, u64>,
}

struct Waiting {
    /// its columns are in order
    record: RunRecord,
    bytes: usize,
    /// values that may be repeats
    undecided: usize,
    /// by position in the columns; empty: none is a repeat
    are_repeats: Vec<bool>,
}

impl Repeats {
    /// Takes the next older record; `out` gets those that have been decided on.
    pub fn push(
        &mut self,
        record: RunRecord,
        out: &mut impl FnMut(RunRecord) -> Result<()>,
    ) -> Result<()> {
        let mut undecided = 0;
        match record.kind {
            RunRecordKind::OldValue => {}
            RunRecordKind::Insert | RunRecordKind::Delete => self.decide_all(),
            RunRecordKind::Update => {
                let number = self.first + self.waiting.len() as u64;
                undecided = record.columns.len();
                for (column, value) in &record.columns {
                    if let Some(newer) = self.undecided.insert(*column, number)
                        && let Some(at) = newer.checked_sub(self.first)
                        && let Some(newer) = self.waiting.get_mut(at as usize)
                    {
                        newer.decide(*column, value);
                    }
                }
            }
        }
        let cells = record.columns.len() * size_of::<(ColumnId, Value)>();
        let bytes = size_of::<Waiting>() + cells + record.single_bytes();
        self.bytes += bytes;
        self.waiting.push_back(Waiting {
            record,
            bytes,
            undecided,
            are_repeats: Vec::new(),
        });
        self.release(WAITING_BYTES, out)
    }

    /// Gives all that wait to `out`.
    pub fn finish(mut self, out: &mut impl FnMut(RunRecord) -> Result<()>) -> Result<()> {
        self.decide_all();
        self.release(0, out)
    }

    fn decide_all(&mut self) {
        self.undecided.clear();
        self.waiting.iter_mut().for_each(|w| w.undecided = 0);
    }

    fn release(
        &mut self,
        most: usize,
        out: &mut impl FnMut(RunRecord) -> Result<()>,
    ) -> Result<()> {
        let may_go = |first: &Waiting, bytes| first.undecided == 0 || bytes > most;
        while self.waiting.front().is_some_and(|w| may_go(w, self.bytes))
            && let Some(done) = self.waiting.pop_front()
        {
            self.first += 1;
            self.bytes -= done.bytes;
            out(done.into_record())?;
        }
        Ok(())
    }
}

impl Waiting {
    /// The next older record that has `column` has this value.
    fn decide(&mut self, column: ColumnId, older: &Value) {
        self.undecided -= 1;
        let columns = &self.record.columns;
        let Ok(at) = columns.binary_search_by_key(&column, |(c, _)| *c) else {
            return;
        };
        if is_same(&columns[at].1, older) {
            self.are_repeats.resize(columns.len(), false);
            self.are_repeats[at] = true;
        }
    }

    fn into_record(self) -> RunRecord {
        let mut record = self.record;
        let mut are_repeats = self.are_repeats.into_iter();
        record
            .columns
            .retain(|_| !are_repeats.next().unwrap_or(false));
        record
    }
}

/// Bit for bit.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Real(a), Value::Real(b)) => a.to_bits() == b.to_bits(),
        (Value::Double(a), Value::Double(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}
