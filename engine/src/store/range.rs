//! Ranges of a storage as the engine's callers see them: numbers and states. How a range keeps its
//! rows is known in this room only, so that a second kind of table makes [`StoredRange`] an enum
//! and changes no caller.

use super::{Store, all_rows};
use std::sync::Arc;
use strandline_base::{CommitTs, RANGE_ROWS, RangeNo, Result};
use strandline_table::lineage::base::BaseBody;
use strandline_table::lineage::range::{Range, RangeVersion};

/// One range of a storage.
#[derive(Clone)]
pub(crate) struct StoredRange(Arc<Range>);

/// The form of a range's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeForm {
    /// record pages, one slot per row
    Insert {
        /// it takes no more rows
        is_full: bool,
    },
    /// immutable chunks, one per column
    Chunks,
}

/// The state of a range at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangeSummary {
    pub form: RangeForm,
    /// slots in use
    pub rows: u32,
    /// rows marked deleted
    pub deleted: u32,
    /// tail records that no merge has folded into base
    pub pending: u32,
    /// every commit up to it is in base
    pub merged_through: CommitTs,
}

impl RangeSummary {
    /// The state of one version of a range.
    pub fn of(version: &RangeVersion) -> Self {
        let (form, rows, deleted) = match &version.base.body {
            BaseBody::Insert(rows) => {
                let is_full = rows.is_closed() || rows.rows() as usize >= RANGE_ROWS;
                (RangeForm::Insert { is_full }, rows.rows(), 0)
            }
            BaseBody::Chunks(chunks) => (RangeForm::Chunks, chunks.rows, chunks.deleted),
        };
        Self {
            form,
            rows,
            deleted,
            pending: version.tails.iter().flatten().map(|t| t.pending()).sum(),
            merged_through: version.base.merged_through(),
        }
    }

    /// Rows that are not marked deleted.
    pub fn live_rows(&self) -> u32 {
        self.rows.saturating_sub(self.deleted)
    }
}

impl StoredRange {
    /// The range's number.
    pub fn no(&self) -> RangeNo {
        self.0.no()
    }

    /// The state of the range now.
    pub fn summary(&self) -> RangeSummary {
        RangeSummary::of(&self.0.load())
    }

    /// Slots that may hold a row.
    pub fn slots(&self) -> u32 {
        all_rows::slots(&self.0)
    }

    /// Bytes of the range's record pages.
    pub fn memory_bytes(&self) -> usize {
        let version = self.0.load();
        let inserted = match &version.base.body {
            BaseBody::Insert(rows) => rows.memory_bytes(),
            BaseBody::Chunks(_) => 0,
        };
        let tails = version.tails.iter().flatten();
        inserted + tails.map(|tail| tail.memory_bytes()).sum::<usize>()
    }

    /// The range as a lineage table has it.
    pub(super) fn range(&self) -> &Arc<Range> {
        &self.0
    }
}

impl Store {
    /// All ranges there are now, by number.
    pub fn ranges(&self) -> Vec<StoredRange> {
        self.lineage.ranges().into_iter().map(StoredRange).collect()
    }

    /// Range `no`, if it exists.
    pub fn range(&self, no: RangeNo) -> Option<StoredRange> {
        self.lineage.range(no).cloned().map(StoredRange)
    }

    /// Whether a merge may take all rows of a range: each one was inserted by a commit at or before
    /// `through`, or by a transaction that was rolled back.
    pub fn is_decided(&self, range: &StoredRange, through: CommitTs) -> bool {
        match &range.0.load().base.body {
            BaseBody::Insert(rows) => {
                rows.rows() > 0 && self.lineage.insert_range_is_finished(rows, through)
            }
            BaseBody::Chunks(_) => true,
        }
    }

    /// Number and bytes of the update runs.
    pub fn run_size(&self) -> (usize, u64) {
        let runs = self.lineage.runs();
        (runs.len(), runs.iter().map(|run| run.bytes()).sum())
    }

    /// Bytes of chunk files in use that newer files have superseded.
    pub fn superseded_bytes(&self) -> u64 {
        let bytes = |range: &Arc<Range>| match &range.load().base.body {
            BaseBody::Chunks(chunks) => chunks.superseded_bytes(),
            BaseBody::Insert(_) => 0,
        };
        self.lineage.ranges().iter().map(bytes).sum()
    }

    /// 54000 if a row of `bytes` is more than this database may hold in memory at a time.
    pub fn check_row_bytes(&self, bytes: usize) -> Result<()> {
        self.lineage.check_row_bytes(bytes)
    }
}
