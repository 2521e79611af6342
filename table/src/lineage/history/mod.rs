//! Versions that base no longer holds: read from the update runs \[L-Store §4.3\].
//!
//! Differences from the paper: historic tail records are not a separate structure. The runs that
//! checkpoints write anyway are sorted by row and hold every committed record, old-value records
//! included; those at or below a range's `merged_through` are its history.
//!
//! Versions that no moment of the [`Horizon`] sees leave the runs in two ways. Versions at or
//! before the oldest moment are *reduced* to the values it sees, when the oldest run is rewritten.
//! A version between two moments is *thinned out*, whenever a run that has it is written: the next
//! newer record takes on its values, and so is as right for recovery as both were.
//!
//! Tail records are cumulative; records of runs are not: see [`drop_repeats`].

pub mod pending;

use crate::lineage::Lineage;
use crate::lineage::base::BaseBody;
use crate::lineage::base::row_meta::NEVER;
use crate::lineage::horizon::Horizon;
use crate::lineage::range::Range;
use crate::update_run::{Run, RunRecord, RunRecordKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, RangeNo, Result, RowId, UPDATE_ROWS, Value};
use strandline_storage::run::RowMerge;
use strandline_tail::record_page::{RecordKind, RecordPage};
use strandline_tail::tail_pages::locate;
use strandline_tail::visibility::{RecordState, record_state};
use strandline_txn::StartWord;

impl Lineage {
    /// The records of rows `from..to` committed at or before `ts`, by row, newest first; old-value
    /// records last. Records that several runs hold come once.
    pub fn history_records(&self, from: RowId, to: RowId, ts: CommitTs) -> Result<Vec<RunRecord>> {
        let mut records = Vec::new();
        for run in self.runs().iter() {
            if run.min_ts() > ts || run.max_row() < from || run.min_row() >= to {
                continue;
            }
            run.records(from, to, &mut |record| {
                if record.ts <= ts {
                    records.push(record);
                }
                Ok(())
            })?;
        }
        sort_newest_first(&mut records);
        Ok(records)
    }

    /// The rows of a range that had an update of any of `columns`, as far as anything kept shows.
    pub fn rows_with_updates_of(
        &self,
        range: &Range,
        columns: &[ColumnId],
    ) -> Result<BTreeSet<RowId>> {
        let version = range.load_full();
        let mut rows = BTreeSet::new();
        if let BaseBody::Chunks(chunks) = &version.base.body
            && let Some(meta) = &chunks.meta
        {
            let meta = meta.load()?;
            for bits in columns.iter().filter_map(|c| meta.updated.get(c)) {
                rows.extend(bits.iter().map(|slot| RowId::new(range.no(), slot as u16)));
            }
        }
        for (at, tail) in version.tails.iter().enumerate() {
            let Some(tail) = tail else { continue };
            for page in tail.pages().iter() {
                for i in 0..page.claimed() {
                    if columns.iter().any(|c| page.has(i, *c)) {
                        let slot = at * UPDATE_ROWS + usize::from(page.slot_kind(i).0);
                        rows.insert(RowId::new(range.no(), slot as u16));
                    }
                }
            }
        }
        Ok(rows)
    }

    /// When versions of `row` began or ended, ascending: its insertion, updates and deletion, as
    /// far as they are kept.
    pub fn version_times(&self, row: RowId) -> Result<Vec<CommitTs>> {
        let Some(range) = self.range(row.range()) else {
            return Ok(Vec::new());
        };
        let version = range.load_full();
        let mut times = BTreeSet::new();
        match &version.base.body {
            BaseBody::Insert(rows) => {
                if let Some((page, i)) = rows.existing_page(row.slot()) {
                    self.add_commit(page, i, &mut times);
                }
            }
            BaseBody::Chunks(chunks) if row.slot() < chunks.rows as usize => match &chunks.meta {
                Some(meta) => {
                    let meta = meta.load()?;
                    let kept = [meta.starts[row.slot()], meta.last_updated(row.slot())];
                    times.extend(
                        kept.into_iter()
                            .filter(|t| *t != NEVER && *t != 0)
                            .map(CommitTs),
                    );
                }
                None => {
                    times.extend(chunks.start.load().commit_ts());
                }
            },
            BaseBody::Chunks(_) => {}
        }
        if let Some(tail) = &version.tails[row.slot() / UPDATE_ROWS] {
            let entry = tail.row_map().entry(row.slot() % UPDATE_ROWS);
            let pages = tail.pages();
            let mut next = pages.head(entry);
            while next != 0 {
                let Some((page, i)) = locate(&pages, next - 1) else {
                    break;
                };
                next = page.back(i);
                let kind = page.slot_kind(i).1;
                if kind != RecordKind::OldValue && !kind.is_lock() {
                    self.add_commit(page, i, &mut times);
                }
            }
        }
        for record in self.history_records(row, RowId(row.0 + 1), CommitTs::MAX)? {
            times.insert(record.ts);
        }
        Ok(times.into_iter().collect())
    }

    fn add_commit(&self, page: &RecordPage, i: u32, times: &mut BTreeSet<CommitTs>) {
        let state = record_state(page, i, StartWord(0), &self.shared.txns);
        if let RecordState::Committed(ts) = state {
            times.insert(ts);
        }
    }
}

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
    /// The records of one row without versions that no moment of the horizon sees.
    fn of(&self, row: &[RunRecord], no: RangeNo) -> Result<Vec<RunRecord>> {
        let through = self.merged_through.get(&no).copied().unwrap_or_default();
        if !self.has_oldest {
            return Ok(thinned(row.to_vec(), self.horizon, through));
        }
        let reduced = reduced(row, self.horizon.oldest().min(through));
        let records = thinned(reduced, self.horizon, through);
        if self.is_over(&records, through)? {
            return Ok(Vec::new());
        }
        Ok(records)
    }

    /// Whether a row consists only of a deletion that base knows and of earlier versions that no
    /// moment of the horizon sees.
    fn is_over(&self, records: &[RunRecord], through: CommitTs) -> Result<bool> {
        let Some((deletion, before)) = records.split_first() else {
            return Ok(false);
        };
        if deletion.kind != RunRecordKind::Delete || deletion.ts > through {
            return Ok(false);
        }
        let begin = match before.last() {
            Some(first) if first.kind == RunRecordKind::Insert => Some(first.ts),
            _ => (self.begin)(deletion.row)?,
        };
        Ok(begin.is_none_or(|begin| !self.horizon.sees(begin, deletion.ts)))
    }
}

/// Visits the records of neighbouring `runs`, united in run order, without the versions that
/// `reduction` leaves out.
pub fn unite(
    runs: &[Arc<Run>],
    reduction: &Reduction<'_>,
    mut visit: impl FnMut(RunRecord) -> Result<()>,
) -> Result<()> {
    let mut merge = RowMerge::new(runs);
    let mut records = Vec::new();
    while let Some(row) = merge.next_row(&mut records)? {
        sort_newest_first(&mut records);
        let mut kept = reduction.of(&records, row.range())?;
        drop_repeats(&mut kept);
        kept.into_iter().try_for_each(&mut visit)?;
        records.clear();
    }
    Ok(())
}

/// The records of one row without versions that no snapshot at or after `horizon` sees.
///
/// Of the records at or before the horizon only the newest value of each column is kept, as an
/// old-value record: the moments from the horizon to the next update see this value. A row whose
/// newest such record is a deletion loses all of them: base knows when it ended.
fn reduced(row: &[RunRecord], horizon: CommitTs) -> Vec<RunRecord> {
    let old = |r: &&RunRecord| r.ts <= horizon || r.kind == RunRecordKind::OldValue;
    let mut out: Vec<RunRecord> = row.iter().filter(|r| !old(r)).cloned().collect();
    let mut kept: Vec<(ColumnId, Value)> = Vec::new();
    let mut kept_ts = CommitTs::ZERO;
    for record in row.iter().filter(old) {
        if record.kind == RunRecordKind::Delete {
            break;
        }
        kept_ts = kept_ts.max(record.ts);
        for (column, value) in &record.columns {
            if record.kind != RunRecordKind::Insert && kept.iter().all(|(c, _)| c != column) {
                kept.push((*column, value.clone()));
            }
        }
    }
    if let Some(first) = row.first().filter(|_| !kept.is_empty()) {
        out.push(RunRecord {
            row: first.row,
            ts: kept_ts,
            kind: RunRecordKind::OldValue,
            columns: kept,
        });
    }
    out
}

/// Folds versions that no moment of the horizon sees into the next newer ones, among the `records`
/// of one row. The newest record stays, since the record that supersedes it may be in a tail or
/// another run. Old values stay as well, and so does the insertion until it is merged into base.
pub(crate) fn thinned(
    records: Vec<RunRecord>,
    horizon: &Horizon,
    merged_through: CommitTs,
) -> Vec<RunRecord> {
    let mut out: Vec<RunRecord> = Vec::with_capacity(records.len());
    for record in records {
        let may_go = match record.kind {
            RunRecordKind::Update => true,
            RunRecordKind::Insert => record.ts <= merged_through,
            RunRecordKind::OldValue | RunRecordKind::Delete => false,
        };
        match out.last_mut() {
            Some(newer) if may_go && !horizon.sees(record.ts, newer.ts) => fold(newer, record),
            _ => out.push(record),
        }
    }
    out
}

/// `newer` takes on the values of an update that it does not set itself. The columns of an
/// insertion it does not need: base and old-value records have them.
fn fold(newer: &mut RunRecord, older: RunRecord) {
    if newer.kind != RunRecordKind::Update || older.kind != RunRecordKind::Update {
        return;
    }
    for (column, value) in older.columns {
        if newer.columns.iter().all(|(c, _)| *c != column) {
            newer.columns.push((column, value));
        }
    }
}

/// Removes repeated values from the updates of one row, newest first: a value that the next older
/// record with the column has too. A reader that looks for the column's value continues to that
/// record.
///
/// The older record must be an update. An insertion may leave the runs while later updates stay,
/// and old values do not say when a value was set. Both records are in one run, so they are
/// rewritten together. When a version is folded into the next newer one, or into old values, its
/// values move along. A version without remaining values stays: it records when the row was
/// updated.
pub(crate) fn drop_repeats(records: &mut [RunRecord]) {
    let is_update = |record: &&RunRecord| record.kind == RunRecordKind::Update;
    if records.iter().filter(is_update).count() < 2 {
        return;
    }
    let mut known: BTreeMap<ColumnId, Value> = BTreeMap::new();
    for record in records.iter_mut().rev() {
        match record.kind {
            RunRecordKind::OldValue => {}
            RunRecordKind::Insert | RunRecordKind::Delete => known.clear(),
            RunRecordKind::Update => record.columns.retain(|(column, value)| {
                let is_repeat = known.get(column).is_some_and(|v| is_same(v, value));
                if !is_repeat {
                    known.insert(*column, value.clone());
                }
                !is_repeat
            }),
        }
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

/// By row, newest first, old values last; records that several runs hold once.
fn sort_newest_first(records: &mut Vec<RunRecord>) {
    records.sort_by_key(|r| {
        (
            r.row,
            r.kind == RunRecordKind::OldValue,
            std::cmp::Reverse(r.ts),
        )
    });
    records.dedup();
}

#[cfg(test)]
mod tests;
