//! Records on their way into a run: versions that no moment sees leave, one record at a time.
//!
//! A row's records come newest first, old values last, and pass three stages: those at or before
//! the oldest moment are *reduced* to the values it sees; a version between two moments is *thinned
//! out*, folded into the next newer one; values that the next older version has too are left out
//! (see [`Repeats`]). Each stage keeps at most one value per column, and the last one a bounded
//! number of bytes.

use super::repeats::Repeats;
use crate::lineage::horizon::Horizon;
use crate::update_run::{Run, RunRecord, RunRecordKind};
use std::collections::BTreeMap;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, RangeNo, Result, RowId, Value};
use strandline_storage::run::RunMerge;

/// The versions that a union of runs leaves out.
pub struct Reduction<'a> {
    /// the moments that may still be read
    pub horizon: &'a Horizon,
    /// how far each range has been merged
    pub merged_through: &'a BTreeMap<RangeNo, CommitTs>,
    /// whether the storage's oldest run is among those united
    pub has_oldest: bool,
    /// when a deleted row of the base began; None: no moment of the horizon sees it
    pub begin: &'a dyn Fn(RowId) -> Result<Option<CommitTs>>,
}

impl Reduction<'_> {
    /// The stages for the row of `newest`, its newest record; None: nothing of the row is kept.
    fn of_row(&self, newest: &RunRecord) -> Result<Option<RowRewrite<'_>>> {
        let no = newest.row.range();
        let through = self.merged_through.get(&no).copied().unwrap_or_default();
        let mut row = RowRewrite::new(self.horizon, through);
        if self.has_oldest {
            if self.is_over(newest, through)? {
                return Ok(None);
            }
            row.reduced_through = Some(self.horizon.oldest().min(through));
        }
        Ok(Some(row))
    }

    /// Whether a row was deleted, base knows that, and no moment of the horizon sees any version of
    /// it.
    fn is_over(&self, newest: &RunRecord, through: CommitTs) -> Result<bool> {
        if newest.kind != RunRecordKind::Delete || newest.ts > through {
            return Ok(false);
        }
        let begin = (self.begin)(newest.row)?;
        Ok(begin.is_none_or(|begin| !self.horizon.sees(begin, newest.ts)))
    }
}

/// Visits the records of neighbouring `runs`, united in run order, without the versions that
/// `reduction` leaves out.
pub fn unite(
    runs: &[Arc<Run>],
    reduction: &Reduction<'_>,
    visit: impl FnMut(RunRecord) -> Result<()>,
) -> Result<()> {
    let mut merge = RunMerge::new(runs, &(RowId(0)..RowId(u64::MAX)), 0);
    rewrite(|| merge.next_record(), reduction, visit)
}

/// Visits what `reduction` leaves of the records that `next` gives in run order.
pub(super) fn rewrite(
    mut next: impl FnMut() -> Result<Option<RunRecord>>,
    reduction: &Reduction<'_>,
    mut visit: impl FnMut(RunRecord) -> Result<()>,
) -> Result<()> {
    let mut current: Option<(RowId, Option<RowRewrite<'_>>)> = None;
    while let Some(record) = next()? {
        if current.as_ref().is_none_or(|(row, _)| *row != record.row) {
            if let Some((_, Some(row))) = current.take() {
                row.finish(&mut visit)?;
            }
            current = Some((record.row, reduction.of_row(&record)?));
        }
        if let Some((_, Some(row))) = &mut current {
            row.push(record, &mut visit)?;
        }
    }
    match current {
        Some((_, Some(row))) => row.finish(&mut visit),
        _ => Ok(()),
    }
}

/// The stages of one row.
pub(super) struct RowRewrite<'a> {
    horizon: &'a Horizon,
    merged_through: CommitTs,
    /// versions at or before it become old values
    reduced_through: Option<CommitTs>,
    reduced: Option<RunRecord>,
    /// older versions than a deletion that is reduced are of no use
    is_ended: bool,
    /// the last record that was thinned out of nothing: it takes on the values of what follows
    newer: Option<RunRecord>,
    repeats: Repeats,
}

impl<'a> RowRewrite<'a> {
    /// Stages that reduce nothing. `merged_through`: of the row's range.
    pub fn new(horizon: &'a Horizon, merged_through: CommitTs) -> Self {
        Self {
            horizon,
            merged_through,
            reduced_through: None,
            reduced: None,
            is_ended: false,
            newer: None,
            repeats: Repeats::default(),
        }
    }

    /// Takes the row's next record; `out` gets those that are done with.
    pub fn push(
        &mut self,
        mut record: RunRecord,
        out: &mut impl FnMut(RunRecord) -> Result<()>,
    ) -> Result<()> {
        record.columns.sort_by_key(|(column, _)| *column);
        match self.reduced_through {
            Some(ts) if record.ts <= ts || record.kind == RunRecordKind::OldValue => {
                self.reduce(record);
                Ok(())
            }
            _ => self.thin(record, out),
        }
    }

    /// Passes on what is left. Another row may follow.
    pub fn finish(mut self, out: &mut impl FnMut(RunRecord) -> Result<()>) -> Result<()> {
        if let Some(reduced) = self.reduced.take().filter(|old| !old.columns.is_empty()) {
            self.thin(reduced, out)?;
        }
        if let Some(newer) = self.newer.take() {
            self.repeats.push(newer, out)?;
        }
        self.repeats.finish(out)
    }

    /// Of the records at or before the horizon only the newest value of each column is kept, as an
    /// old-value record: the moments from the horizon to the next update see this value. A row
    /// whose newest such record is a deletion loses all of them: base knows when it ended.
    fn reduce(&mut self, record: RunRecord) {
        self.is_ended |= record.kind == RunRecordKind::Delete;
        if self.is_ended {
            return;
        }
        let old = self.reduced.get_or_insert_with(|| RunRecord {
            row: record.row,
            ts: CommitTs::ZERO,
            kind: RunRecordKind::OldValue,
            columns: Vec::new(),
        });
        old.ts = old.ts.max(record.ts);
        if record.kind != RunRecordKind::Insert {
            add_missing(&mut old.columns, record.columns);
        }
    }

    /// Folds a version that no moment of the horizon sees into the next newer one. The newest
    /// record stays, since the record that supersedes it may be in a tail or another run. Old
    /// values stay as well, and so does the insertion until it is merged into base.
    fn thin(
        &mut self,
        record: RunRecord,
        out: &mut impl FnMut(RunRecord) -> Result<()>,
    ) -> Result<()> {
        let may_go = match record.kind {
            RunRecordKind::Update => true,
            RunRecordKind::Insert => record.ts <= self.merged_through,
            RunRecordKind::OldValue | RunRecordKind::Delete => false,
        };
        match &mut self.newer {
            Some(newer) if may_go && !self.horizon.sees(record.ts, newer.ts) => {
                fold(newer, record);
                Ok(())
            }
            newer => match newer.replace(record) {
                Some(done) => self.repeats.push(done, out),
                None => Ok(()),
            },
        }
    }
}

/// `newer` takes on the values of an update that it does not set itself. The columns of an
/// insertion it does not need: base and old-value records have them.
fn fold(newer: &mut RunRecord, older: RunRecord) {
    if newer.kind == RunRecordKind::Update && older.kind == RunRecordKind::Update {
        add_missing(&mut newer.columns, older.columns);
    }
}

/// Adds the values of columns that `columns` lacks; both are in the order of columns.
fn add_missing(columns: &mut Vec<(ColumnId, Value)>, more: Vec<(ColumnId, Value)>) {
    let known = columns.len();
    for (column, value) in more {
        if columns[..known]
            .binary_search_by_key(&column, |(c, _)| *c)
            .is_err()
        {
            columns.push((column, value));
        }
    }
    if columns.len() > known {
        columns.sort_by_key(|(column, _)| *column);
    }
}
