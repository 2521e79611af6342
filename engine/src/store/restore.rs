//! Restoring a change of a row: the one way, from runs and from the log.
//!
//! What base has is passed over, so that every step of a recovery may be repeated.

use super::Store;
use strandline_base::{ColumnId, CommitTs, Error, Result, RowId, Value};
use strandline_tail::change::{Change, WriteOutcome, Writer};
use strandline_txn::StartWord;

/// A committed change of a row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RowChange {
    /// it came into being, with all its columns
    Insert(Vec<(ColumnId, Value)>),
    /// columns were set
    Update(Vec<(ColumnId, Value)>),
    /// it ended
    Delete,
}

impl RowChange {
    /// As a write; None of an insertion.
    fn as_change(&self) -> Option<Change<'_>> {
        match self {
            Self::Insert(_) => None,
            Self::Update(values) => Some(Change::Update(values)),
            Self::Delete => Some(Change::Delete),
        }
    }
}

/// Where a change is restored from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RestoredFrom {
    /// an update run, which keeps the values that the change replaces
    Run,
    /// the log, which does not
    Log,
}

impl Store {
    /// Restores a change committed at `ts`, those of each row in commit order; false if base has
    /// it.
    ///
    /// # Errors
    /// XX001 if the log changes a row that cannot be changed.
    pub fn restore(
        &self,
        row: RowId,
        change: &RowChange,
        ts: CommitTs,
        from: RestoredFrom,
    ) -> Result<bool> {
        let lineage = &self.lineage;
        let change = match (change, change.as_change()) {
            (RowChange::Insert(values), _) => {
                lineage.restore_insert(row, values, ts)?;
                return Ok(true);
            }
            (_, Some(change)) => change,
            (_, None) => return Ok(false),
        };
        match from {
            RestoredFrom::Run => {
                let range = lineage.ensure_range(row.range());
                if ts <= range.load().base.merged_through() {
                    return Ok(false);
                }
                lineage.restore_change(row, change, ts)?;
            }
            RestoredFrom::Log => self.redo(row, change, ts)?,
        }
        Ok(true)
    }

    /// Writes a change as its transaction did.
    fn redo(&self, row: RowId, change: Change<'_>, ts: CommitTs) -> Result<()> {
        let writer = Writer {
            word: StartWord::committed(ts),
            statement: 0,
            snapshot: ts,
            speculative: false,
        };
        match self.lineage.write(row, change, &writer, &mut Vec::new())? {
            WriteOutcome::Done(_) => Ok(()),
            outcome => Err(Error::corrupt(
                format!("storage {}, {row:?}", self.id()),
                format!("the log changes a row that cannot be changed ({outcome:?})"),
            )),
        }
    }
}
