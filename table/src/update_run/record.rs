//! One record of a run.

use strandline_base::{ColumnId, CommitTs, RowId, Value};

/// What a record says about its row.
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
    /// What happened.
    pub kind: RunRecordKind,
    /// Column values; those of a record that was read by column id ascending.
    pub columns: Vec<(ColumnId, Value)>,
}
