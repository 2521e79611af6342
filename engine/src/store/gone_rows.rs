//! Rows that are gone: deleted, and invisible at every moment that may still be read. A sweep of an
//! index takes all their entries out.

use super::StoredRange;
use super::key_sweep::{EMPTIED, Swept};
use strandline_base::{RANGE_ROWS, RowId};
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::base::row_set::RowBits;
use strandline_table::lineage::horizon::Horizon;

/// A set of rows, by range.
pub(crate) struct RowsByRange(Vec<RowsOfRange>);

#[derive(Clone)]
enum RowsOfRange {
    None,
    All,
    Some(RowBits),
}

impl RowsByRange {
    fn of_none(ranges: usize) -> Self {
        Self(vec![RowsOfRange::None; ranges])
    }

    /// No row of the same ranges.
    pub fn none_of_the_same(&self) -> Self {
        Self::of_none(self.0.len())
    }

    /// Whether the row's range was there when the set was made.
    pub fn knows(&self, row: RowId) -> bool {
        (row.range().0 as usize) < self.0.len()
    }

    /// Whether the set has `row`.
    #[inline]
    pub fn has(&self, row: RowId) -> bool {
        match self.0.get(row.range().0 as usize) {
            None | Some(RowsOfRange::None) => false,
            Some(RowsOfRange::All) => true,
            Some(RowsOfRange::Some(bits)) => bits.get(row.slot()),
        }
    }

    /// Adds `row`, if its range is known.
    pub fn add(&mut self, row: RowId) {
        let Some(rows) = self.0.get_mut(row.range().0 as usize) else {
            return;
        };
        if let RowsOfRange::None = rows {
            *rows = RowsOfRange::Some(RowBits::new(RANGE_ROWS));
        }
        if let RowsOfRange::Some(bits) = rows {
            bits.set(row.slot());
        }
    }
}

/// The rows that were deleted and that no moment of `horizon` sees, if the last sweep has not found
/// them gone; all rows of a range that has no others.
pub(crate) fn gone_rows(
    ranges: &[StoredRange],
    done: &mut Swept,
    horizon: &Horizon,
) -> RowsByRange {
    let mut gone = RowsByRange::of_none(ranges.len());
    done.ranges.resize(ranges.len(), 0);
    for (no, range) in ranges.iter().enumerate() {
        let version = range.range().load_full();
        let BaseBody::Chunks(chunks) = &version.base.body else {
            continue;
        };
        if chunks.rows == 0 || done.ranges[no] == chunks.rows {
            if chunks.rows == 0 {
                done.ranges[no] = EMPTIED;
            }
            gone.0[no] = RowsOfRange::All;
            continue;
        }
        if done.unswept(&version, no) == 0 {
            continue;
        }
        let Some(Ok(meta)) = chunks.meta.as_ref().map(|meta| meta.load()) else {
            continue;
        };
        let mut rows = RowBits::new(meta.starts.len());
        let unseen = meta
            .deleted
            .iter()
            .filter(|row| !meta.is_seen(*row, horizon));
        unseen.for_each(|row| {
            rows.set(row);
        });
        done.ranges[no] = rows.count() as u32;
        gone.0[no] = match rows.count() == chunks.rows as usize {
            true => RowsOfRange::All,
            false => RowsOfRange::Some(rows),
        };
    }
    gone
}
