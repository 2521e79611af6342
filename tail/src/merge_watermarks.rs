//! How far a range's base is merged: its rows' metadata and each of its columns on their own
//! \[L-Store §4.2\].
//!
//! A merge brings the metadata and the columns it has chosen up to its time; columns that have
//! pending updates and were not chosen *lag*. A tail record is merged when all its columns are, and
//! stays in its tail until then: so a reader of columns with different lineage finds the later
//! values of lagging columns in the tails.
//!
//! Invariant: no column is ahead of the metadata.
//!
//! Differences from the paper: the lineage is a commit timestamp instead of a tail sequence number,
//! and is kept beside the chunks rather than in them, so that a column without pending updates
//! moves on without being written.

use std::collections::BTreeMap;
use strandline_base::{ColumnId, CommitTs};

/// The lineage of a range's base.
#[doc(alias("TPS", "tail-page sequence number"))]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeWatermarks {
    rows: CommitTs,
    lagging: BTreeMap<ColumnId, CommitTs>,
}

impl MergeWatermarks {
    /// Rows and all columns at `ts`.
    pub fn at(ts: CommitTs) -> Self {
        Self {
            rows: ts,
            lagging: BTreeMap::new(),
        }
    }
    /// Rows at `rows`, and so all columns but `lagging`.
    pub fn with_lagging(
        rows: CommitTs,
        lagging: impl IntoIterator<Item = (ColumnId, CommitTs)>,
    ) -> Self {
        let lagging = lagging.into_iter().filter(|(_, ts)| *ts < rows).collect();
        Self { rows, lagging }
    }
    /// Every commit up to it is in the rows' times, updated-column bits and deletions.
    pub fn rows(&self) -> CommitTs {
        self.rows
    }
    /// Every commit up to it is in the chunk of `column`.
    pub fn column(&self, column: ColumnId) -> CommitTs {
        self.lagging.get(&column).copied().unwrap_or(self.rows)
    }
    /// Every commit up to it is in the base.
    pub fn all(&self) -> CommitTs {
        self.lagging.values().copied().min().unwrap_or(self.rows)
    }
    /// The columns that are behind the rows, in order.
    pub fn lagging(&self) -> impl Iterator<Item = (ColumnId, CommitTs)> + '_ {
        self.lagging.iter().map(|(column, ts)| (*column, *ts))
    }
    /// Whether a record of `columns` committed at `ts` is in the base.
    pub fn has(&self, ts: CommitTs, mut columns: impl Iterator<Item = ColumnId>) -> bool {
        ts <= self.rows && (ts <= self.all() || columns.all(|column| ts <= self.column(column)))
    }
}
