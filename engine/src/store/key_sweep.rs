//! The state of a key index's sweeps: the rows whose entries may go, and the outcome of the last
//! sweep. `maintenance::key_sweep` does the work.

use super::StoredRange;
use super::left_rows::{LeftRows, Taken};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use strandline_base::sync::Mutex;
use strandline_base::{CommitTs, RANGE_ROWS, RangeNo, RowId};
use strandline_index::RowKeys;
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::range::RangeVersion;

/// A sweep is due when one entry in so many may go.
const DUE_PART: u64 = 8;
/// In [`Swept::ranges`]: nothing is left of the range but its number.
pub(super) const EMPTIED: u32 = u32::MAX;

/// An index's rows whose entries may be removable.
pub(crate) struct KeySweep {
    /// keeps the entering of keys that a row may have had, and the removal of its entries, apart
    pub row_keys: RowKeys,
    /// rows that have left a key
    left: Mutex<LeftRows>,
    /// those that sweeps under way have taken: they come here under the lock of `left`, and leave
    /// when those that are left to the next sweep are back there
    in_hand: Mutex<Vec<Arc<[RowId]>>>,
    pub done: Mutex<Swept>,
    /// when the index was first found to have been dropped; 0: not yet
    dropped: AtomicU64,
}

/// Outcome of the last sweep.
#[derive(Default)]
pub(crate) struct Swept {
    /// by range how many of its rows were gone, or [`EMPTIED`]
    pub(super) ranges: Vec<u32>,
    /// readable rows that it had to leave
    pub kept: u64,
    /// rows that have left a key and could not be read
    pub unreadable: u64,
    /// everything deleted or left by then was looked at
    pub through: CommitTs,
    /// the oldest moment that might be asked for
    pub oldest: CommitTs,
}

impl KeySweep {
    /// Of an empty index, whose memory counts in `memory`.
    pub fn counted(memory: Arc<AtomicUsize>) -> Self {
        Self {
            row_keys: RowKeys::default(),
            left: Mutex::new(LeftRows::counted(memory)),
            in_hand: Mutex::default(),
            done: Mutex::default(),
            dropped: AtomicU64::new(0),
        }
    }

    /// Notes that the index is missing in the catalog since `newest`; returns the first such
    /// moment.
    pub fn dropped_before(&self, newest: CommitTs) -> CommitTs {
        let first =
            self.dropped
                .compare_exchange(0, newest.0, Ordering::Relaxed, Ordering::Relaxed);
        CommitTs(first.map_or_else(|first| first, |_| newest.0))
    }

    /// `row` has left a key by a commit at `ts`.
    pub fn note_left(&self, row: RowId, ts: CommitTs) {
        self.left.lock().note(row, ts);
    }

    /// A rollback has left an entry of `row` that may be needed or not: the next sweep may look.
    pub fn note_undone(&self, row: RowId) {
        self.left.lock().note(row, CommitTs::ZERO);
    }

    /// The same as [`KeySweep::note_left`] for many, in any order.
    pub fn note_all_left(&self, rows: impl IntoIterator<Item = (CommitTs, RowId)>) {
        self.left.lock().note_all(rows);
    }

    /// How often a row left a key at or before `ts`.
    pub fn left_by(&self, ts: CommitTs) -> u64 {
        self.left.lock().updates_by(ts)
    }

    /// The rows that have left a key and that no sweep has done with since.
    pub fn left_rows(&self) -> HashSet<RowId> {
        let left = self.left.lock();
        let mut rows = left.rows();
        rows.extend(self.in_hand.lock().iter().flat_map(|rows| rows.iter()));
        rows
    }

    /// Takes rows that left a key at or before `ts`, of ranges from `from` on; see
    /// [`LeftRows::take_by`]. As long as the second result lives they are still told by
    /// [`KeySweep::left_rows`].
    pub fn take_left_by(&self, ts: CommitTs, from: RangeNo, at_most: usize) -> (Taken, InHand<'_>) {
        let mut left = self.left.lock();
        let taken = left.take_by(ts, from, at_most);
        let rows: Arc<[RowId]> = taken.rows.iter().map(|(_, row)| *row).collect();
        self.in_hand.lock().push(rows.clone());
        (taken, InHand { sweep: self, rows })
    }
}

/// Rows that a sweep has taken and not done with.
pub(crate) struct InHand<'a> {
    sweep: &'a KeySweep,
    rows: Arc<[RowId]>,
}

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        let mut in_hand = self.sweep.in_hand.lock();
        in_hand.retain(|rows| !Arc::ptr_eq(rows, &self.rows));
    }
}

impl Swept {
    /// Rows deleted in the base of `version` that the last sweep has not found gone.
    pub(super) fn unswept(&self, version: &RangeVersion, no: usize) -> u64 {
        let swept = self.ranges.get(no).copied().unwrap_or(0);
        match &version.base.body {
            BaseBody::Chunks(_) if swept == EMPTIED => 0,
            BaseBody::Chunks(chunks) if chunks.rows == 0 => {
                u64::from((RANGE_ROWS as u32).saturating_sub(swept))
            }
            BaseBody::Chunks(chunks) => u64::from(chunks.deleted.saturating_sub(swept)),
            BaseBody::Insert(_) => 0,
        }
    }

    /// The same of all ranges.
    pub fn unswept_of_all(&self, ranges: &[StoredRange]) -> u64 {
        let each = ranges.iter().enumerate();
        each.map(|(no, range)| self.unswept(&range.range().load(), no))
            .sum()
    }

    /// Whether enough may go of `entries` if `rows` have been deleted or have left a key, and
    /// `oldest` is the oldest moment that may be asked for.
    pub fn is_due(&self, rows: u64, entries: u64, oldest: CommitTs) -> bool {
        let is_enough = |rows: u64| rows > 0 && rows.saturating_mul(DUE_PART) >= entries;
        let are_over = oldest >= self.through && oldest > self.oldest;
        is_enough(rows.saturating_sub(self.kept)) || (are_over && is_enough(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A check beside a sweep would report their entries otherwise.
    #[test]
    fn rows_that_a_sweep_has_in_hand_are_told() {
        let sweep = KeySweep::counted(Arc::default());
        let rows = [3, 5, 9].map(RowId);
        let told = || {
            let mut rows: Vec<_> = sweep.left_rows().into_iter().collect();
            rows.sort_unstable();
            rows
        };
        for (row, ts) in rows.iter().zip(1..) {
            sweep.note_left(*row, CommitTs(ts));
        }
        let (taken, in_hand) = sweep.take_left_by(CommitTs(2), RangeNo(0), 100);
        assert_eq!(taken.rows.len(), 2);
        assert_eq!(told(), rows);
        let (none, second) = sweep.take_left_by(CommitTs(2), RangeNo(0), 100);
        assert!(none.rows.is_empty());
        drop(second);
        assert_eq!(told(), rows);
        sweep.note_all_left(taken.rows.into_iter().skip(1));
        drop(in_hand);
        assert_eq!(told(), rows[1..]);
    }
}
