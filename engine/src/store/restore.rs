//! Restoring a storage: its ranges and runs as the manifest names them, the runs' pending records
//! range by range \[L-Store §5.1.3\], and changes of rows, from runs and from the log in one way.
//!
//! Invariants:
//! 1. One thread restores a range's records, those of each row in commit order.
//! 2. Changes that base contains are skipped, so every step of a recovery may be repeated.

use super::{Store, StoredRange};
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Error, RANGE_ROWS, RangeNo, Result, RowId, Value};
use strandline_storage::file::DataFiles;
use strandline_storage::file::data_file::DataFile;
use strandline_storage::run::run_file_name;
use strandline_table::lineage::BasedRange;
use strandline_table::lineage::range::Range;
use strandline_table::update_run::{Run, RunRecord, RunRecordKind, UpdateCodec};
use strandline_tail::change::{Change, WriteOutcome, Writer};
use strandline_txn::StartWord;

/// A committed change of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RowChange {
    /// it came into being, with all its columns
    Insert(Vec<(ColumnId, Value)>),
    /// columns were set
    Update(Vec<(ColumnId, Value)>),
    /// it ended
    Delete,
}

impl RowChange {
    /// As a write; None of an insertion.
    fn as_change(&self) -> Option<Change<'_>> {
        match self {
            Self::Insert(_) => None,
            Self::Update(values) => Some(Change::Update(values)),
            Self::Delete => Some(Change::Delete),
        }
    }
}

/// Where a change is restored from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestoredFrom {
    /// an update run, which keeps the values that the change replaces
    Run,
    /// the log, which does not
    Log,
}

impl Store {
    /// Gives range `based.no` its chunks; `file` finds a data file by its number.
    pub fn restore_base(
        &self,
        based: &BasedRange,
        file: &mut dyn FnMut(u64) -> Arc<DataFile>,
    ) -> Result<()> {
        self.lineage.restore_base(based, file)
    }

    /// Opens the runs, newest first, and makes the ranges that have rows in them but no chunks yet.
    pub fn restore_runs(&self, files: &Arc<DataFiles>, ids: &[u64]) -> Result<()> {
        let codec = UpdateCodec::of(&self.lineage.schema());
        let mut runs = Vec::with_capacity(ids.len());
        for &id in ids {
            let run = Run::open(files, &run_file_name(id), id, codec.clone())?;
            runs.push(Arc::new(run));
        }
        if let Some(last) = runs.iter().map(|run| run.max_row().range()).max() {
            self.restore_ranges(last);
        }
        self.lineage.set_runs(runs);
        Ok(())
    }

    /// Makes sure that ranges up to `last` exist; missing ones are empty insert ranges.
    pub fn restore_ranges(&self, last: RangeNo) {
        self.lineage.ensure_range(last);
    }

    /// Restores the records of a range that runs have and base has not; how many. Files have
    /// everything committed up to `covered`.
    pub fn restore_pending(&self, range: &StoredRange, covered: CommitTs) -> Result<u64> {
        let range = range.range();
        let restored = restore_range(self, range)?;
        self.lineage.note_persisted(&range.load_full(), covered);
        Ok(restored)
    }

    /// The rows cannot be restored: frees what is in memory of them.
    pub fn forget_records(&self) {
        self.lineage.forget_records();
    }

    /// Everything is restored: the last range takes new rows if it has room for them.
    pub fn finish_recovery(&self) {
        self.lineage.finish_recovery();
    }

    /// Restores a change committed at `ts`; false if base contains it. The changes of each row come
    /// in commit order.
    ///
    /// # Errors
    /// XX001 if the log changes a row that cannot be changed.
    pub fn restore(
        &self,
        row: RowId,
        change: &RowChange,
        ts: CommitTs,
        from: RestoredFrom,
    ) -> Result<bool> {
        let lineage = &self.lineage;
        let change = match (change, change.as_change()) {
            (RowChange::Insert(values), _) => {
                lineage.restore_insert(row, values, ts)?;
                return Ok(true);
            }
            (_, Some(change)) => change,
            (_, None) => return Ok(false),
        };
        match from {
            RestoredFrom::Run => {
                let range = lineage.ensure_range(row.range());
                if ts <= range.load().base.merged_through() {
                    return Ok(false);
                }
                lineage.restore_change(row, change, ts)?;
            }
            RestoredFrom::Log => self.redo(row, change, ts)?,
        }
        Ok(true)
    }

    /// Writes a change as its transaction did.
    fn redo(&self, row: RowId, change: Change<'_>, ts: CommitTs) -> Result<()> {
        let writer = Writer {
            word: StartWord::committed(ts),
            statement: 0,
            snapshot: ts,
            speculative: false,
        };
        match self.lineage.write(row, change, &writer, &mut Vec::new())? {
            WriteOutcome::Done(_) => Ok(()),
            outcome => Err(Error::corrupt(
                format!("storage {}, {row:?}", self.id()),
                format!("the log changes a row that cannot be changed ({outcome:?})"),
            )),
        }
    }
}

/// Restores the records of a range that runs have and base has not, oldest run first; how many.
fn restore_range(store: &Store, range: &Range) -> Result<u64> {
    let merged_through = range.load().base.merged_through();
    let first = RowId::new(range.no(), 0);
    let end = RowId(first.0 + RANGE_ROWS as u64);
    let mut restored = 0;
    for run in store.lineage.runs().iter().rev() {
        if run.max_ts() <= merged_through || run.max_row() < first || run.min_row() >= end {
            continue;
        }
        let mut rows: Vec<RunRecord> = Vec::new();
        run.records(first, end, &mut |record| {
            if rows.last().is_some_and(|r| r.row != record.row) {
                restored += restore_row(store, &mut rows)?;
            }
            rows.push(record);
            Ok(())
        })?;
        restored += restore_row(store, &mut rows)?;
    }
    Ok(restored)
}

/// Restores the records of one row, given newest first, and skips those that base contains. Returns
/// the number of restored records.
fn restore_row(store: &Store, records: &mut Vec<RunRecord>) -> Result<u64> {
    let mut restored = 0;
    for record in std::mem::take(records).into_iter().rev() {
        let change = match record.kind {
            RunRecordKind::OldValue => continue, // stays in the run
            RunRecordKind::Insert => RowChange::Insert(record.columns),
            RunRecordKind::Delete => RowChange::Delete,
            RunRecordKind::Update => RowChange::Update(record.columns),
        };
        let is_new = store.restore(record.row, &change, record.ts, RestoredFrom::Run)?;
        restored += u64::from(is_new);
    }
    Ok(restored)
}
