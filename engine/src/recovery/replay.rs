//! Putting rows back: what runs and the log say of them, range by range \[L-Store §5.1.3\].
//!
//! Invariants:
//! 1. One thread puts back a range's records, those of each row in commit order.
//! 2. What base has is passed over, so that every step may be repeated.

use crate::redo::Redo;
use crate::store::Store;
use strandline_base::{CommitTs, Error, RANGE_ROWS, Result, RowId, StorageId};
use strandline_table::lineage::Lineage;
use strandline_table::range::Range;
use strandline_table::update_run::{RunRecord, RunRecordKind};
use strandline_table::write::{Change, WriteOutcome, Writer};
use strandline_txn::StartWord;

/// Does the work of threads 0 to `threads` − 1, that of thread 0 on the calling one; the first
/// error in their order.
pub(crate) fn in_parallel(threads: usize, work: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    std::thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = (1..threads as u64)
            .map(|thread| scope.spawn(move || work(thread)))
            .collect();
        let mut outcome = work(0);
        for other in others {
            let panicked = |_| Err(Error::internal("a recovery thread panicked"));
            outcome = outcome.and(other.join().unwrap_or_else(panicked));
        }
        outcome
    })
}

/// Puts the records of a range that runs have and base has not back, oldest run first; how many.
pub(crate) fn restore_range(lineage: &Lineage, range: &Range) -> Result<u64> {
    let merged_through = range.load().base.merged_through();
    let first = RowId::new(range.no(), 0);
    let end = RowId(first.0 + RANGE_ROWS as u64);
    let mut restored = 0;
    for run in lineage.runs().iter().rev() {
        if run.max_ts() <= merged_through || run.max_row() < first || run.min_row() >= end {
            continue;
        }
        let mut rows: Vec<RunRecord> = Vec::new();
        run.records(first, end, &mut |record| {
            if rows.last().is_some_and(|r| r.row != record.row) {
                restored += restore_row(lineage, &mut rows)?;
            }
            rows.push(record);
            Ok(())
        })?;
        restored += restore_row(lineage, &mut rows)?;
    }
    Ok(restored)
}

/// The row that an operation is about.
pub(crate) fn place_of(operation: &Redo) -> Option<(StorageId, RowId)> {
    match operation {
        Redo::Insert { storage, row, .. }
        | Redo::Update { storage, row, .. }
        | Redo::Delete { storage, row } => Some((*storage, *row)),
        Redo::Bulk { .. } | Redo::Catalog(_) | Redo::Identity { .. } => None,
    }
}

/// Applies a logged row operation committed at `ts`.
pub(crate) fn apply_row(store: &Store, ts: CommitTs, operation: &Redo) -> Result<()> {
    let lineage = &store.lineage;
    match operation {
        Redo::Insert { row, values, .. } => lineage.restore_insert(*row, values, ts),
        Redo::Update { row, values, .. } => redo_change(lineage, *row, Change::Update(values), ts),
        Redo::Delete { row, .. } => redo_change(lineage, *row, Change::Delete, ts),
        Redo::Bulk { .. } | Redo::Catalog(_) | Redo::Identity { .. } => Ok(()),
    }
}

fn redo_change(lineage: &Lineage, row: RowId, change: Change<'_>, ts: CommitTs) -> Result<()> {
    let writer = Writer {
        word: StartWord::committed(ts),
        statement: 0,
        snapshot: ts,
        speculative: false,
    };
    match lineage.write(row, change, &writer, &mut Vec::new())? {
        WriteOutcome::Done(_) => Ok(()),
        outcome => Err(Error::corrupt(
            format!("storage {}, {row:?}", lineage.id()),
            format!("the log changes a row that cannot be changed ({outcome:?})"),
        )),
    }
}

/// Puts the records of one row, newest first, back; those that base has already are passed over.
/// How many were put back.
fn restore_row(lineage: &Lineage, records: &mut Vec<RunRecord>) -> Result<u64> {
    let mut restored = 0;
    for record in std::mem::take(records).into_iter().rev() {
        if record.kind == RunRecordKind::OldValue {
            continue; // stays in the run
        }
        if record.kind == RunRecordKind::Insert {
            lineage.restore_insert(record.row, &record.columns, record.ts)?;
            restored += 1;
            continue;
        }
        let range = lineage.ensure_range(record.row.range());
        if record.ts <= range.load().base.merged_through() {
            continue;
        }
        let change = match record.kind {
            RunRecordKind::Delete => Change::Delete,
            _ => Change::Update(&record.columns),
        };
        lineage.restore_change(record.row, change, record.ts)?;
        restored += 1;
    }
    Ok(restored)
}
