//! The memory of rolled-back writers: tail records (see `strandline_tail::release`) and inserted
//! rows.
//!
//! A full insert range whose rows have all been rolled back becomes an empty range at once, as a
//! merge would make it later. One that still takes rows, or has others, waits for its merge.
//!
//! Invariant: a range is emptied only if no slot of it can be claimed any more and every slot is a
//! tombstone. Only its writers have ever seen a row of it, and none of their tails is left.
//!
//! Lock order: a range's `publish`; then, with nothing held, `grow`.

use crate::lineage::Lineage;
use crate::lineage::base::{BaseBody, BaseState};
use crate::lineage::range::{Range, RangeVersion};
use std::sync::Arc;
use strandline_base::{RANGE_ROWS, RangeNo};
use strandline_tail::insert_range::InsertRange;
use strandline_tail::release::TailMask;
use strandline_txn::StartWord;

impl Lineage {
    /// Releases the memory that rolled-back writers hold in several update ranges of range `no`, or
    /// the whole range if every row was theirs. False if nothing can be released.
    pub fn release_aborted(&self, no: RangeNo, tails: TailMask) -> bool {
        let Some(range) = self.range(no) else {
            return false;
        };
        let released = range.release_aborted(tails);
        self.release_inserts(range) || released
    }

    fn release_inserts(&self, range: &Range) -> bool {
        if !is_rolled_back(&range.load()) {
            return false;
        }
        let rows = Arc::new(InsertRange::new(self.schema(), &self.shared.page_bytes));
        rows.close();
        {
            let right = range.lock();
            if !is_rolled_back(&range.load()) {
                return false;
            }
            let empty = BaseState::new(BaseBody::Insert(rows));
            range.publish(&right, RangeVersion::of(empty));
        }
        self.forget_open(range.no());
        true
    }
}

/// Whether all that was ever in a range are inserted rows that were rolled back.
fn is_rolled_back(version: &RangeVersion) -> bool {
    let BaseBody::Insert(rows) = &version.base.body else {
        return false;
    };
    // Asked first: a full range gets no further row.
    let is_full = rows.is_closed() || rows.rows() as usize >= RANGE_ROWS;
    let is_aborted = |slot: u32| {
        let found = rows.existing_page(slot as usize);
        found.is_some_and(|(page, i)| page.start(i) == StartWord::ABORTED)
    };
    is_full && rows.rows() > 0 && version.has_no_tail() && (0..rows.rows()).all(is_aborted)
}
