//! Updates, deletes and inserts of single rows \[L-Store §3.1, §3.2\].
//!
//! The write protocol is [`strandline_tail::write`]. This room finds the range for it and lets it
//! read the range's base ([`row_storage`]); inserts go into the open range's
//! [`InsertRange`](strandline_tail::insert_range::InsertRange).

mod load;
mod release;
mod row_storage;

use crate::lineage::Lineage;
use crate::lineage::base::BaseBody;
use strandline_base::{ColumnId, CommitTs, Result, RowId, Value};
use strandline_column::row_bytes::{set_bytes, values_bytes};
use strandline_tail::change::{Change, PendingStamp, WriteOutcome, Writer};
use strandline_tail::write;
use strandline_txn::StartWord;

impl Lineage {
    /// Updates, deletes or locks `row`. Appends the records to be stamped to `written`.
    pub fn write(
        &self,
        row: RowId,
        change: Change<'_>,
        writer: &Writer,
        written: &mut Vec<PendingStamp>,
    ) -> Result<WriteOutcome> {
        match self.range(row.range()) {
            Some(range) => write::write(self, range, row, change, writer, written),
            None => Ok(WriteOutcome::Gone),
        }
    }

    /// As [`Lineage::check_row_bytes`] for the values that `change` sets. Not part of
    /// [`Lineage::write`]: a database opened with less memory must restore all records of its log.
    #[inline]
    pub fn check_change_bytes(&self, change: Change<'_>) -> Result<()> {
        match change {
            Change::Update(set) => self.check_row_bytes(set_bytes(set)),
            Change::Delete | Change::Lock(_) => Ok(()),
        }
    }

    /// The transaction behind the newest version of `row`, if it is another one than `own` and has
    /// not finished; for a `speculative` one, if it is not pre-committed either.
    pub fn unfinished_writer(
        &self,
        row: RowId,
        own: StartWord,
        speculative: bool,
    ) -> Result<Option<StartWord>> {
        match self.range(row.range()) {
            Some(range) => write::unfinished_writer(self, range, row, own, speculative),
            None => Ok(None),
        }
    }

    /// Inserts one row; `values` by column id, all columns of the current schema.
    pub fn insert(
        &self,
        values: &[Value],
        writer: &Writer,
        written: &mut Vec<PendingStamp>,
    ) -> Result<RowId> {
        let bytes = values_bytes(values);
        self.check_row_bytes(bytes)?;
        let mut full = None;
        loop {
            let open = self.open_range(full)?;
            let Some(slot) = open.rows.insert(values, writer, written)? else {
                full = Some(open.no);
                continue;
            };
            open.note_row(bytes, self.shared.range_bytes_max);
            return Ok(RowId::new(open.no, slot));
        }
    }

    /// Recovery: puts an inserted row back into its slot.
    pub fn restore_insert(
        &self,
        row: RowId,
        values: &[(ColumnId, Value)],
        ts: CommitTs,
    ) -> Result<()> {
        let range = self.ensure_range(row.range());
        let version = range.load_full();
        match &version.base.body {
            BaseBody::Insert(rows) => rows.restore(row.slot() as u16, values, ts),
            BaseBody::Chunks(_) => Ok(()), // merged since
        }
    }

    /// Recovery: restores a committed change from a run into the tail; the changes of a row come in
    /// commit order. Unlike a replay of the log it never writes old values: the run has them.
    pub fn restore_change(&self, row: RowId, change: Change<'_>, ts: CommitTs) -> Result<()> {
        let range = self.ensure_range(row.range());
        write::restore(self, &range, row, change, ts)
    }
}
