//! The interface of one table's rows, whatever kind of table keeps them.
//!
//! Statements, transactions and keys address rows and columns by id and name a reader's visibility.
//! The table decides how it keeps rows. [`Store::rows`](super::Store::rows) shows a table as this
//! trait and nothing else; calls are resolved when they are compiled, so a row costs no
//! indirection. A second kind of table implements the trait and is chosen there, behind one type:
//! the callers stay as they are.
//!
//! Work range by range (scans, statistics, recovery, sweeps) goes through the methods of
//! [`Store`](super::Store) and [`StoredRange`](super::StoredRange).

use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, RangeNo, Result, RowId, Value};
use strandline_table::lineage::Lineage;
use strandline_table::lineage::read::NewestRow;
use strandline_table::lineage::read::versions::{RowVersion, VersionBounds};
use strandline_tail::change::{Change, PendingStamp, WriteOutcome, Writer};
use strandline_tail::release::TailMask;
use strandline_tail::schema::StorageSchema;
use strandline_txn::{StartWord, Visibility};

/// Undone writes of a tail that pay for a look at so many times as many records.
const LOOKED_AT_PER_UNDONE: usize = 8;

/// The rows of one table: versions of them, by row id.
pub(crate) trait TableStore: Send + Sync {
    /// The current columns.
    fn schema(&self) -> Arc<StorageSchema>;

    /// Adds columns at the end. Rows already there show the columns' missing values.
    fn set_schema(&self, schema: Arc<StorageSchema>);

    /// The change that grew the schema from `before` is rolled back; its transaction is the only
    /// one that has written since.
    fn take_back_schema(&self, before: Arc<StorageSchema>);

    /// Reads `columns` of `row` into `out` (same length) at `visibility`; false if there is no such
    /// row.
    fn read(
        &self,
        row: RowId,
        visibility: &Visibility,
        columns: &[ColumnId],
        out: &mut [Value],
    ) -> Result<bool>;

    /// As [`TableStore::read`], at a moment that is not registered: the versions needed may be
    /// gone, and an invisible row may have been visible just before.
    fn read_newest(
        &self,
        row: RowId,
        visibility: &Visibility,
        columns: &[ColumnId],
        out: &mut [Value],
    ) -> Result<NewestRow>;

    /// Inserts one row; `values` by column id, all columns of the current schema. Appends the
    /// records to be stamped to `written`.
    fn insert(
        &self,
        values: &[Value],
        writer: &Writer,
        written: &mut Vec<PendingStamp>,
    ) -> Result<RowId>;

    /// Updates, deletes or locks `row`. Appends the records to be stamped to `written`.
    fn write(
        &self,
        row: RowId,
        change: Change<'_>,
        writer: &Writer,
        written: &mut Vec<PendingStamp>,
    ) -> Result<WriteOutcome>;

    /// 54000 if the values that `change` sets exceed the bytes that this database may hold in
    /// memory at a time.
    fn check_change_bytes(&self, change: Change<'_>) -> Result<()>;

    /// The transaction behind the newest version of `row`, if it is another one than `own` and has
    /// not finished; for a `speculative` one, if it is not pre-committed either.
    fn unfinished_writer(
        &self,
        row: RowId,
        own: StartWord,
        speculative: bool,
    ) -> Result<Option<StartWord>>;

    /// The rows that a transaction other than `own` has inserted, updated or deleted by a commit
    /// (or pre-commit) after `since`, in row order. The caller has a snapshot at `since`.
    fn changed_since(&self, since: CommitTs, own: StartWord) -> Result<Vec<RowId>>;

    /// Whether `row` is among [`TableStore::changed_since`].
    fn has_changed_since(&self, row: RowId, since: CommitTs, own: StartWord) -> Result<bool>;

    /// Whether no snapshot that may still be asked for sees any version of `row`. Its id is never
    /// used again.
    fn has_expired(&self, row: RowId) -> Result<bool>;

    /// Visits the committed versions of `row`, oldest first, as far as they are kept, in one pass
    /// over its records. Those before the oldest moment that may be asked for may be incomplete.
    fn visit_versions(
        &self,
        row: RowId,
        columns: &[ColumnId],
        bounds: VersionBounds,
        visit: &mut dyn FnMut(RowVersion<'_>) -> Result<()>,
    ) -> Result<()>;

    /// Whether a committed version of `row` may still be read.
    fn has_versions(&self, row: RowId) -> Result<bool>;

    /// Releases the memory of `undone` writes to several tails of a range, if that pays. Returns
    /// whether it did.
    fn release_undone(&self, range: RangeNo, tails: TailMask, undone: usize) -> bool;
}

impl TableStore for Lineage {
    fn schema(&self) -> Arc<StorageSchema> {
        Self::schema(self)
    }

    fn set_schema(&self, schema: Arc<StorageSchema>) {
        Self::set_schema(self, schema);
    }

    fn take_back_schema(&self, before: Arc<StorageSchema>) {
        Self::take_back_schema(self, before);
    }

    #[inline]
    fn read(
        &self,
        row: RowId,
        visibility: &Visibility,
        columns: &[ColumnId],
        out: &mut [Value],
    ) -> Result<bool> {
        Self::read(self, row, visibility, columns, out)
    }

    #[inline]
    fn read_newest(
        &self,
        row: RowId,
        visibility: &Visibility,
        columns: &[ColumnId],
        out: &mut [Value],
    ) -> Result<NewestRow> {
        Self::read_newest(self, row, visibility, columns, out)
    }

    #[inline]
    fn insert(
        &self,
        values: &[Value],
        writer: &Writer,
        written: &mut Vec<PendingStamp>,
    ) -> Result<RowId> {
        Self::insert(self, values, writer, written)
    }

    #[inline]
    fn write(
        &self,
        row: RowId,
        change: Change<'_>,
        writer: &Writer,
        written: &mut Vec<PendingStamp>,
    ) -> Result<WriteOutcome> {
        Self::write(self, row, change, writer, written)
    }

    #[inline]
    fn check_change_bytes(&self, change: Change<'_>) -> Result<()> {
        Self::check_change_bytes(self, change)
    }

    #[inline]
    fn unfinished_writer(
        &self,
        row: RowId,
        own: StartWord,
        speculative: bool,
    ) -> Result<Option<StartWord>> {
        Self::unfinished_writer(self, row, own, speculative)
    }

    fn changed_since(&self, since: CommitTs, own: StartWord) -> Result<Vec<RowId>> {
        Self::changed_since(self, since, own)
    }

    fn has_changed_since(&self, row: RowId, since: CommitTs, own: StartWord) -> Result<bool> {
        Self::has_changed_since(self, row, since, own)
    }

    fn has_expired(&self, row: RowId) -> Result<bool> {
        Self::has_expired(self, row)
    }

    fn visit_versions(
        &self,
        row: RowId,
        columns: &[ColumnId],
        bounds: VersionBounds,
        visit: &mut dyn FnMut(RowVersion<'_>) -> Result<()>,
    ) -> Result<()> {
        Self::visit_versions(self, row, columns, bounds, visit)
    }

    fn has_versions(&self, row: RowId) -> Result<bool> {
        Self::has_versions(self, row)
    }

    fn release_undone(&self, range: RangeNo, tails: TailMask, undone: usize) -> bool {
        pays(self, range, tails, undone) && self.release_aborted(range, tails)
    }
}

/// Whether as much was undone in a range as a look at its tails costs.
fn pays(lineage: &Lineage, range: RangeNo, mask: TailMask, undone: usize) -> bool {
    let Some(range) = lineage.range(range) else {
        return false;
    };
    let version = range.load();
    let tails = version.tails.iter().enumerate();
    let touched_tails = tails.filter(|(at, _)| mask >> at & 1 == 1);
    let records = touched_tails.filter_map(|(_, tail)| tail.as_ref());
    let records: usize = records.map(|tail| tail.pending() as usize).sum();
    undone * LOOKED_AT_PER_UNDONE >= records
}
