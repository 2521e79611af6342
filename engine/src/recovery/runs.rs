//! Putting rows back: what runs say of them, range by range \[L-Store §5.1.3\].
//!
//! Invariants:
//! 1. One thread puts back a range's records, those of each row in commit order.
//! 2. What base has is passed over, so that every step may be repeated.

use crate::store::{RestoredFrom, RowChange, Store};
use strandline_base::{Error, RANGE_ROWS, Result, RowId};
use strandline_table::lineage::range::Range;
use strandline_table::update_run::{RunRecord, RunRecordKind};

/// Does the work of threads 0 to `threads` − 1, that of thread 0 on the calling one; the first
/// error in their order.
pub(super) fn in_parallel(threads: usize, work: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
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
pub(super) fn restore_range(store: &Store, range: &Range) -> Result<u64> {
    let merged_through = range.load().base.merged_through();
    let first = RowId::new(range.no(), 0);
    let end = RowId(first.0 + RANGE_ROWS as u64);
    let mut restored = 0;
    for run in store.lineage().runs().iter().rev() {
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

/// Puts the records of one row, newest first, back; those that base has already are passed over.
/// How many were put back.
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
