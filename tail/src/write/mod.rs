//! The write protocol: updates, deletes and locks of single rows \[L-Store §3.1, §5.1.1\].
//!
//! Enter the tail, latch the row map entry, check the newest version for a conflict, append an
//! old-value record for columns updated for the first time, append the record, publish it as the
//! row's head, release. [`write`] is the whole protocol; it reads the rows' base through
//! [`RowStorage`]. Rare cases are out of line: a tail that is missing or sealed, a chain whose
//! newest records are tombstones, old values, a page that is full.
//!
//! A row lock is a record as well: it stands in the chain under its transaction's word, so that a
//! writer meets it where it meets uncommitted versions, and becomes a tombstone when the
//! transaction ends. A write examines nothing else. Share locks of several transactions stand one
//! behind the other.
//!
//! Invariants:
//! 1. Of the unfinished records of a row either all are of one transaction, or all are share locks.
//! 2. Chains lead past tombstones: a record's back pointer names the newest record before it that
//!    was not one. So locks and aborted writers do not lengthen them.
//! 3. The latch is held from the check of the newest version until the record is the row's head.
//!
//! Lock order: a row latch is taken inside a tail, with nothing else held; under it, the tail's
//! lock for growing and the locks of a read of the base.
//!
//! Differences from the paper: a writer that meets an uncommitted version reports the transaction
//! to wait for instead of aborting; the caller decides. Locks are ours.

mod append;
mod newest;

use crate::change::{Change, PendingStamp, RowLock, WriteOutcome, Writer};
use crate::column_set::ColumnSet;
use crate::page_memory::PageBytes;
use crate::range::{Range, RangeVersion};
use crate::record_kind::RecordKind;
use crate::schema::StorageSchema;
use crate::tail::Tail;
use crate::tail_pages::locate;
use crate::visibility::RecordState;
use append::Append;
use arc_swap::Guard;
use newest::{Intent, Newest, first_updates, is_held, newest, newest_in_base, past_tombstones};
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Error, Result, RowId, UPDATE_ROWS, Value};
use strandline_txn::{StartWord, TxnManager};

/// The storage that rows are written to: the state shared by its ranges, and the ranges' bases,
/// whose types this crate does not know. Slots are slots of a range.
pub trait RowStorage {
    /// the base of a range
    type Base;

    /// The account of all record pages.
    fn page_bytes(&self) -> &PageBytes;

    /// Resolves start words.
    fn txns(&self) -> &TxnManager;

    /// The current columns.
    fn current_schema(&self) -> Guard<Arc<StorageSchema>>;

    /// The state of a base's newest version of a row for `writer`. `Nothing` for a row that does
    /// not exist, or is deleted as of the writer's snapshot.
    fn base_state(&self, base: &Self::Base, slot: usize, writer: &Writer) -> Result<RecordState>;

    /// The start word of a row in a base, and the statement that inserted it.
    fn base_start(&self, base: &Self::Base, slot: usize) -> Result<(StartWord, u32)>;

    /// Every commit up to this moment is in a base.
    fn merged_through(&self, base: &Self::Base) -> CommitTs;

    /// Takes the columns from `columns` in which a base has merged updates of a row.
    fn remove_updated(&self, base: &Self::Base, slot: usize, columns: &mut ColumnSet)
    -> Result<()>;

    /// The values of a base's row in `columns`, in any order.
    fn base_values(
        &self,
        base: &Self::Base,
        slot: usize,
        columns: &ColumnSet,
        schema: &StorageSchema,
    ) -> Result<Vec<(ColumnId, Value)>>;
}

/// Updates, deletes or locks `row` of `range`. Appends the records to be stamped to `written`.
///
/// # Errors
/// 54000 if the tail has no record numbers left, and those of reading the base. Nothing is written
/// to the row then.
#[inline]
pub fn write<S: RowStorage>(
    storage: &S,
    range: &Range<S::Base>,
    row: RowId,
    change: Change<'_>,
    writer: &Writer,
    written: &mut Vec<PendingStamp>,
) -> Result<WriteOutcome> {
    let at = row.slot() / UPDATE_ROWS;
    match range.enter(at, storage.page_bytes()) {
        Some(entered) => {
            let place = (range, entered.version(), entered.tail());
            write_entered(storage, place, row, change, writer, written)
        }
        None => Ok(WriteOutcome::Busy),
    }
}

/// As [`write`], of a writer that has entered the row's `tail` by `version`.
pub fn write_entered<S: RowStorage>(
    storage: &S,
    (range, version, tail): (&Range<S::Base>, &RangeVersion<S::Base>, &Tail),
    row: RowId,
    change: Change<'_>,
    writer: &Writer,
    written: &mut Vec<PendingStamp>,
) -> Result<WriteOutcome> {
    let slot = row.slot() % UPDATE_ROWS;
    let Some(latch) = tail.row_map().latch(slot) else {
        return Ok(WriteOutcome::Busy);
    };
    let pages = tail.pages();
    let mut head = past_tombstones(&pages, pages.head(latch.entry()));
    let intent = match change {
        Change::Lock(RowLock::Shared) => Intent::Share,
        _ => Intent::Change,
    };
    let base = &*version.base;
    let newest = match newest(storage, (base, &pages), head, row, (writer, intent))? {
        Newest::Free(newest) => newest,
        Newest::Blocked(outcome) => return Ok(outcome),
    };
    if let Change::Lock(lock) = change
        && is_held(&pages, head, lock, writer.word)
    {
        return Ok(WriteOutcome::Done(0));
    }
    let schema = storage.current_schema();
    let mut append = Append {
        tail,
        pages: &pages,
        slot: slot as u16,
        schema: &schema,
        writer,
        written,
        bytes: 0,
    };
    if let Change::Update(set) = change {
        let first_time = first_updates(storage, range, &pages, head, row, set)?;
        if !first_time.is_empty() {
            head = append.old_values(storage, (base, row.slot()), &first_time, head)? + 1;
        }
    }
    // Cumulation is reset at the merge: what base has already is not carried on.
    let carry = newest.filter(|record| {
        let word = record.start();
        word.is_txn() || word.0 > storage.merged_through(base).0
    });
    let seq = append.change(change, carry, head)?;
    latch.publish(seq);
    Ok(WriteOutcome::Done(append.bytes))
}

/// The transaction behind the newest version of `row`, if it is another one than `own` and has not
/// finished; for a `speculative` one, if it is not pre-committed either.
pub fn unfinished_writer<S: RowStorage>(
    storage: &S,
    range: &Range<S::Base>,
    row: RowId,
    own: StartWord,
    speculative: bool,
) -> Result<Option<StartWord>> {
    let version = range.load_full();
    // By this snapshot everything finished is a conflict, and nothing pre-committed is seen.
    let anybody = Writer {
        word: own,
        statement: u32::MAX,
        snapshot: CommitTs::ZERO,
        speculative,
    };
    let base = &*version.base;
    let pages;
    let newest = match &version.tails[row.slot() / UPDATE_ROWS] {
        Some(tail) => {
            let entry = tail.row_map().entry(row.slot() % UPDATE_ROWS);
            pages = tail.pages();
            let head = pages.head(entry);
            newest(storage, (base, &pages), head, row, (&anybody, Intent::Look))?
        }
        None => newest_in_base(storage, base, row, &anybody)?,
    };
    match newest {
        Newest::Blocked(WriteOutcome::Wait(holder)) => Ok(Some(holder)),
        _ => Ok(None),
    }
}

/// Recovery: restores a committed change from a run into the tail of `row`; the changes of a row
/// come in commit order. Unlike a replay of the log it never writes old values: the run has them.
/// The record is cumulative again, which the run's is not.
pub fn restore<S: RowStorage>(
    storage: &S,
    range: &Range<S::Base>,
    row: RowId,
    change: Change<'_>,
    ts: CommitTs,
) -> Result<()> {
    let tail = range.ensure_tail(row.slot() / UPDATE_ROWS, storage.page_bytes());
    let latch = tail.row_map().latch(row.slot() % UPDATE_ROWS);
    let latch = latch.ok_or_else(|| Error::internal("a row is latched during recovery"))?;
    let pages = tail.pages();
    let writer = Writer {
        word: StartWord::committed(ts),
        statement: 0,
        snapshot: CommitTs::MAX,
        speculative: false,
    };
    let mut append = Append {
        tail: &tail,
        pages: &pages,
        slot: (row.slot() % UPDATE_ROWS) as u16,
        schema: &storage.current_schema(),
        writer: &writer,
        written: &mut Vec::new(),
        bytes: 0,
    };
    let head = pages.head(latch.entry());
    let carry = match head {
        0 => None,
        head => match locate(&pages, head - 1) {
            Some((page, i)) => Some(page.record(i)?),
            None => None,
        },
    };
    let carry = carry.filter(|record| record.kind() == RecordKind::Update);
    let seq = append.change(change, carry, head)?;
    latch.publish(seq);
    Ok(())
}
