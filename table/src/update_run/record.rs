//! One record of a run.

use strandline_base::{ColumnId, CommitTs, RowId, Value};

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunRecordKind {
    /// The row began to exist with these values.
    Insert,
    /// The row's columns changed to these values.
    Update,
    /// The values that columns had before their first update. The timestamp is the row's original
    /// start time; the record does not say that the row exists.
    OldValue,
    /// The row ceased to exist.
    Delete,
}

/// A committed tail record.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    /// The row.
    pub row: RowId,
    /// When it was committed; of an old-value record, when the row began.
    pub ts: CommitTs,
    /// kind of change
    pub kind: RunRecordKind,
    /// Column values; of a record read from a run, by ascending column id.
    pub columns: Vec<(ColumnId, Value)>,
}
