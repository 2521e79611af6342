//! The ranges that a transaction has written to, and the memory of its records.
//!
//! A rollback releases memory by these ranges. Backpressure compares the bytes of writers that
//! share the memory. Consecutive writes in one range share an entry, so a statement that goes
//! through a table in order adds one entry per range.

use crate::db::backpressure::OpenBytes;
use crate::db::memory_account::HeldBytes;
use std::collections::BTreeMap;
use strandline_base::{RangeNo, RowId, StorageId, UPDATE_ROWS};
use strandline_tail::release::TailMask;

/// The footprint; see the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Footprint {
    /// bytes of records and inserted rows, without undone ones
    pub bytes: usize,
    /// the bytes visible to other transactions
    pub shown: OpenBytes,
    /// bytes of the transaction's lists; None: few
    pub lists: Option<HeldBytes>,
    latest: Option<Touched>,
    /// None: no further ranges, as in most transactions
    before: Option<Box<Ranges>>,
}

type Ranges = BTreeMap<(StorageId, RangeNo), Touched>;

/// A range that a transaction has written to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touched {
    pub storage: StorageId,
    pub range: RangeNo,
    /// the update ranges
    pub tails: TailMask,
    /// changes, undone changes included
    pub records: usize,
    /// length of the transaction's list of writes after its last write in the range
    end: usize,
}

impl Touched {
    fn key(&self) -> (StorageId, RangeNo) {
        (self.storage, self.range)
    }
    fn add(&mut self, later: &Self) {
        self.tails |= later.tails;
        self.records += later.records;
        self.end = later.end;
    }
}

impl Footprint {
    /// Records a change of `row` that takes `bytes`; `end` is the length of the list of writes
    /// after it.
    #[inline]
    pub fn note(&mut self, storage: StorageId, row: RowId, bytes: usize, end: usize) {
        self.bytes += bytes;
        let touched = Touched {
            storage,
            range: row.range(),
            tails: 1 << (row.slot() / UPDATE_ROWS),
            records: 1,
            end,
        };
        match &mut self.latest {
            Some(latest) if latest.key() == touched.key() => latest.add(&touched),
            latest => {
                if let Some(before) = latest.replace(touched) {
                    self.put(before);
                }
            }
        }
    }

    #[cold]
    fn put(&mut self, touched: Touched) {
        let known = self.before.get_or_insert_default().entry(touched.key());
        known
            .and_modify(|known| known.add(&touched))
            .or_insert(touched);
    }

    /// The ranges with changes after the first `written` items of the list of writes. `bytes` is
    /// the memory of the items before.
    pub fn cut(&mut self, written: usize, bytes: usize) -> Vec<Touched> {
        if let Some(latest) = self.latest.take() {
            self.put(latest);
        }
        self.bytes = bytes;
        let all = self.before.iter().flat_map(|ranges| ranges.values());
        let undone = all.filter(|touched| touched.end > written).copied();
        let undone = undone.collect();
        if written == 0 {
            self.before = None;
        }
        undone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_noted_once_and_cut_at_a_position() {
        let mut footprint = Footprint::default();
        let row = |range, slot| RowId::new(RangeNo(range), slot);
        let (one, two) = (StorageId(1), StorageId(2));
        let writes = [
            (one, row(0, 0)),
            (one, row(0, 4096)),
            (one, row(3, 0)),
            (two, row(0, 1)),
            (one, row(0, 65_535)),
        ];
        for (at, (storage, row)) in writes.into_iter().enumerate() {
            footprint.note(storage, row, 10, at + 1);
        }
        assert_eq!(footprint.bytes, 50);
        let shown = |touched: Vec<Touched>| -> Vec<_> {
            let shown = touched
                .iter()
                .map(|t| (t.storage.0, t.range.0, t.tails, t.records));
            shown.collect()
        };
        let first = (1, 0, 1 << 15 | 0b11, 3);
        assert_eq!(shown(footprint.cut(3, 30)), [first, (2, 0, 1, 1)]);
        assert_eq!(footprint.bytes, 30);
        assert_eq!(
            shown(footprint.cut(0, 0)),
            [first, (1, 3, 1, 1), (2, 0, 1, 1)]
        );
        assert!(footprint.cut(0, 0).is_empty() && footprint.bytes == 0);
    }
}
