//! The rows that a statement has changed: of each table one bitmap of 8 KiB per touched range, so
//! 1.2 MB for a table of ten million rows.

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use std::collections::HashMap;
use strandline_base::{RANGE_ROWS, RowId, TableId};

const WORDS: usize = RANGE_ROWS / 64;

/// The rows that a statement has changed so far, by table. The parts of a statement with changes in
/// WITH share them.
#[derive(Debug, Default)]
pub(crate) struct ChangedRows(Mutex<HashMap<TableId, RowSet>>);

impl ChangedRows {
    /// Those of one table.
    pub(super) fn of(&self, table: TableId) -> MappedMutexGuard<'_, RowSet> {
        MutexGuard::map(self.0.lock(), |tables| tables.entry(table).or_default())
    }
}

/// Rows of one table.
#[derive(Debug, Default)]
pub(super) struct RowSet {
    ranges: HashMap<u32, Box<[u64; WORDS]>>,
}

impl RowSet {
    /// Adds `row`; false if the set has it already.
    pub fn insert(&mut self, row: RowId) -> bool {
        let bits = self
            .ranges
            .entry(row.range().0)
            .or_insert_with(|| Box::new([0; WORDS]));
        let word = &mut bits[row.slot() / 64];
        let bit = 1 << (row.slot() % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_new_once() {
        let mut set = RowSet::default();
        let rows = [0, 1, 63, 64, 65_535, 65_536, 1 << 40, (1 << 40) + 1];
        for row in rows {
            assert!(set.insert(RowId(row)), "{row}");
        }
        for row in rows {
            assert!(!set.insert(RowId(row)), "{row}");
        }
        assert!(set.insert(RowId(2)));
    }
}
