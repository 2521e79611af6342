//! The newest version of a row from a writer's view: free to be changed, or the obstacle.

use super::RowStorage;
use crate::change::{RowLock, WriteOutcome, Writer};
use crate::column_set::ColumnSet;
use crate::range::Range;
use crate::record_kind::RecordKind;
use crate::record_page::TailRecord;
use crate::tail_pages::{TailPages, locate};
use crate::visibility::{RecordState, resolve};
use strandline_base::{ColumnId, Result, RowId, Value};
use strandline_txn::StartWord;

/// The newest version of a row from a writer's view.
pub(super) enum Newest<'p> {
    /// go ahead; the record to accumulate from, if there is one in the live tail
    Free(Option<TailRecord<'p>>),
    Blocked(WriteOutcome),
}

/// The intended use of a row's newest version.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Intent {
    /// put a version or an exclusive lock on top
    Change,
    /// put a share lock on top
    Share,
    /// know whether it is finished
    Look,
}

impl Intent {
    /// Whether another transaction's lock of this kind is in the way.
    fn minds(self, lock: RecordKind) -> bool {
        match self {
            Self::Change => true,
            Self::Share => lock == RecordKind::Lock,
            Self::Look => false,
        }
    }
}

/// Finds the newest version of `row`, in the chain from `head` on or else in `base`, and decides
/// whether the writer may proceed.
#[inline]
pub(super) fn newest<'p, S: RowStorage>(
    storage: &S,
    (base, pages): (&S::Base, &'p TailPages),
    head: u64,
    row: RowId,
    (writer, intent): (&Writer, Intent),
) -> Result<Newest<'p>> {
    let mut next = head;
    while next != 0 {
        let Some((page, i)) = locate(pages, next - 1) else {
            break;
        };
        let record = page.record(i)?;
        next = record.back();
        let kind = record.kind();
        if kind == RecordKind::OldValue {
            continue;
        }
        let state = resolve(|| record.start(), writer.word, storage.txns());
        if kind.is_lock() {
            // That of a finished transaction is about to become a tombstone.
            match blocked(state, writer) {
                Some(outcome @ WriteOutcome::Wait(_)) if intent.minds(kind) => {
                    return Ok(Newest::Blocked(outcome));
                }
                _ => continue,
            }
        }
        if state == RecordState::Nothing {
            continue;
        }
        return Ok(match blocked(state, writer) {
            Some(outcome) => Newest::Blocked(outcome),
            None if kind == RecordKind::Delete => Newest::Blocked(WriteOutcome::Gone),
            None => Newest::Free(Some(record)),
        });
    }
    newest_in_base(storage, base, row, writer)
}

/// As [`newest`] of a row without a tail.
#[inline]
pub(super) fn newest_in_base<S: RowStorage>(
    storage: &S,
    base: &S::Base,
    row: RowId,
    writer: &Writer,
) -> Result<Newest<'static>> {
    let state = storage.base_state(base, row.slot(), writer)?;
    if state == RecordState::Nothing {
        return Ok(Newest::Blocked(WriteOutcome::Gone));
    }
    Ok(blocked(state, writer).map_or(Newest::Free(None), Newest::Blocked))
}

#[inline]
fn blocked(state: RecordState, writer: &Writer) -> Option<WriteOutcome> {
    match state {
        RecordState::InProgress(word) => Some(WriteOutcome::Wait(word)),
        RecordState::PreCommitted(_, ts) if ts <= writer.snapshot => None,
        RecordState::PreCommitted(_, ts) if writer.speculative => Some(WriteOutcome::Conflict(ts)),
        RecordState::PreCommitted(word, _) => Some(WriteOutcome::Wait(word)),
        RecordState::Committed(ts) if ts > writer.snapshot => Some(WriteOutcome::Conflict(ts)),
        RecordState::Committed(_) | RecordState::Own | RecordState::Nothing => None,
    }
}

/// The newest record from `head` on that is not a tombstone: sequence number + 1, or 0.
#[inline]
pub(super) fn past_tombstones(pages: &TailPages, mut head: u64) -> u64 {
    while head != 0
        && let Some((page, i)) = locate(pages, head - 1)
        && page.start(i) == StartWord::ABORTED
    {
        head = page.back(i);
    }
    head
}

/// Whether the transaction of `own` keeps others from a row at least as `lock` does.
#[inline(never)]
pub(super) fn is_held(pages: &TailPages, mut head: u64, lock: RowLock, own: StartWord) -> bool {
    while head != 0
        && let Some((page, i)) = locate(pages, head - 1)
    {
        let kind = page.slot_kind(i).1;
        let is_enough = lock == RowLock::Shared || kind != RecordKind::ShareLock;
        if page.start(i) == own && kind != RecordKind::OldValue && is_enough {
            return true;
        }
        if !kind.is_lock() {
            return false;
        }
        head = page.back(i);
    }
    false
}

/// The columns of `set` that neither the chain nor base's bits show as updated; the row's latch is
/// held.
///
/// The walk ends at the newest update, which is cumulative: the updates of columns that it does not
/// carry were in its writer's base. The version loaded here is that one or a later one, whatever
/// version this writer entered with, and its bits show them. Behind the update there may be old
/// values of another one that was aborted; then they are written once more, which does no harm.
#[inline]
pub(super) fn first_updates<S: RowStorage>(
    storage: &S,
    range: &Range<S::Base>,
    pages: &TailPages,
    head: u64,
    row: RowId,
    set: &[(ColumnId, Value)],
) -> Result<ColumnSet> {
    let mut missing: ColumnSet = set.iter().map(|(column, _)| *column).collect();
    let mut next = head;
    while next != 0 && !missing.is_empty() {
        let Some((page, i)) = locate(pages, next - 1) else {
            break;
        };
        let record = page.record(i)?;
        next = record.back();
        // An old-value record counts also if the update after it was aborted; an aborted update
        // does not.
        if record.start() == StartWord::ABORTED {
            continue;
        }
        record.remove_columns(&mut missing);
        if record.kind() == RecordKind::Update {
            break;
        }
    }
    if !missing.is_empty() {
        storage.remove_updated(&range.load().base, row.slot(), &mut missing)?;
    }
    Ok(missing)
}
