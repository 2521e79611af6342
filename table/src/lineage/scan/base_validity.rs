//! The moments at which a range's base alone equals a snapshot.

use crate::lineage::Lineage;
use crate::lineage::base::BaseBody;
use crate::lineage::range::RangeVersion;
use strandline_base::CommitTs;
use strandline_tail::insert_range::InsertRange;
use strandline_tail::merge_watermarks::MergeWatermarks;
use strandline_tail::record_page::RecordKind;
use strandline_tail::tail::Tail;
use strandline_tail::visibility::{RecordState, record_state};
use strandline_txn::StartWord;

/// The moments from `from` up to, but not including, `before`; none if that is not later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BaseValidity {
    /// newest commit in the base
    pub from: CommitTs,
    /// when the first change was committed that the base does not hold
    pub before: CommitTs,
}

impl Lineage {
    /// The moments at which a snapshot of the range needs neither tail nor history, among those
    /// whose commits have finished and whose history is kept. A change that was committed by
    /// `enough` ends the search: `before` is then not later than that, but perhaps not the first.
    pub fn base_validity(&self, version: &RangeVersion, enough: CommitTs) -> BaseValidity {
        match &version.base.body {
            // Its rows are not merged, so only moments before all of them will do.
            BaseBody::Insert(rows) => BaseValidity {
                from: CommitTs::ZERO,
                before: self.first_insert(rows, enough),
            },
            BaseBody::Chunks(chunks) => {
                let mut before = CommitTs::MAX;
                for tail in version.tails.iter().flatten() {
                    let first = self.first_change(tail, &chunks.merged, enough);
                    before = before.min(first);
                    if before <= enough {
                        break;
                    }
                }
                let from = match &chunks.meta {
                    Some(_) => CommitTs(chunks.start_max.max(chunks.last_updated_max)),
                    // Loaded in one piece and unchanged since: all of it is there or nothing.
                    None => CommitTs::ZERO,
                };
                BaseValidity { from, before }
            }
        }
    }

    fn first_insert(&self, rows: &InsertRange, enough: CommitTs) -> CommitTs {
        let mut first = CommitTs::MAX;
        for slot in 0..rows.rows() as usize {
            if let Some((page, i)) = rows.existing_page(slot)
                && let RecordState::Committed(ts) =
                    record_state(page, i, StartWord(0), &self.shared.txns)
            {
                first = first.min(ts);
                if first <= enough {
                    break;
                }
            }
        }
        first
    }

    /// The first change in `tail` that is not in a base that is `merged` so far.
    fn first_change(&self, tail: &Tail, merged: &MergeWatermarks, enough: CommitTs) -> CommitTs {
        let mut first = CommitTs::MAX;
        for page in tail.pages().iter() {
            for i in 0..page.claimed() {
                // The state first: only of a published record the rest may be looked at.
                let state = record_state(page, i, StartWord(0), &self.shared.txns);
                let RecordState::Committed(ts) = state else {
                    continue;
                };
                let kind = page.slot_kind(i).1;
                let is_change = matches!(kind, RecordKind::Update | RecordKind::Delete);
                if is_change && ts < first && !merged.has(ts, page.columns_of(i)) {
                    first = ts;
                    if first <= enough {
                        return first;
                    }
                }
            }
        }
        first
    }
}
