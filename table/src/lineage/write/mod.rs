//! Updates, deletes and inserts of single rows \[L-Store §3.1, §3.2, §5.1.1\].
//!
//! The write protocol of an update or delete: enter the tail, latch the row map entry, check the
//! newest version for a conflict, append an old-value record for columns updated for the first
//! time, append the record, publish it as the row's head, release.
//!
//! A row lock is a record as well: it stands in the chain under its transaction's word, so that
//! whoever comes to write meets it where it meets uncommitted versions, and becomes a tombstone
//! when the transaction ends. Nothing else has to be looked at on the way to a write. Share locks
//! of several transactions stand one behind the other.
//!
//! Invariants:
//! 1. Of the unfinished records of a row either all are of one transaction, or all are share locks.
//! 2. Chains lead past tombstones: a record's back pointer names the newest record before it that
//!    was not one. So locks and aborted writers do not lengthen them.
//!
//! Differences from the paper: a writer that meets an uncommitted version reports whom to wait for
//! instead of aborting; the caller decides. Locks are ours.

mod append;
mod load;
mod release;

use crate::lineage::Lineage;
use crate::lineage::base::row_meta::NEVER;
use crate::lineage::base::{BaseBody, UniformStart};
use crate::lineage::range::{Range, RangeVersion};
use crate::lineage::write::append::Append;
use std::sync::Arc;
use strandline_base::{ColumnId, CommitTs, Error, Result, RowId, UPDATE_ROWS, Value};
use strandline_column::row_bytes::{set_bytes, values_bytes};
use strandline_tail::column_set::ColumnSet;
use strandline_tail::record_page::{RecordKind, RecordPage, TailRecord};
use strandline_tail::tail_pages::{Claimed, Tail, TailPages, locate};
use strandline_tail::visibility::{RecordState, record_state, resolve};
use strandline_txn::StartWord;

/// Who writes.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// the transaction's start word
    pub word: StartWord,
    /// the statement's number
    pub statement: u32,
    /// versions committed after it are conflicts
    pub snapshot: CommitTs,
    /// the snapshot may reach pre-committed versions: those after it are conflicts already
    pub speculative: bool,
}

/// What to do to a row.
#[derive(Clone, Copy, Debug)]
pub enum Change<'a> {
    /// set these columns
    Update(&'a [(ColumnId, Value)]),
    /// end the row
    Delete,
    /// keep others from changing it until the transaction ends
    Lock(RowLock),
}

/// What others may still do to a locked row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowLock {
    /// read it
    Exclusive,
    /// read it and lock it in the same way
    Shared,
}

/// A record whose start word its transaction will stamp.
#[derive(Clone, Debug)]
pub enum Written {
    /// record(s) `from..to` of a page
    Records(Arc<RecordPage>, u32, u32),
    /// a row lock, which ends as a tombstone whatever becomes of the transaction
    Lock(Arc<RecordPage>, u32),
    /// a bulk-loaded range
    Range(Arc<UniformStart>),
}

impl Written {
    /// Stamps the records with their final start word.
    pub fn stamp(&self, word: StartWord) {
        match self {
            Written::Records(page, from, to) => (*from..*to).for_each(|i| page.set_start(i, word)),
            Written::Lock(page, i) => page.set_start(*i, StartWord::ABORTED),
            Written::Range(start) => start.store(word),
        }
    }
    /// Bytes of memory that the records take.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Written::Records(page, from, to) => (*from..*to).map(|i| page.record_bytes(i)).sum(),
            Written::Lock(page, i) => page.record_bytes(*i),
            Written::Range(_) => 0,
        }
    }
}

/// How a write ended.
#[derive(Debug)]
pub enum WriteOutcome {
    /// done; the records are appended to the caller's list, and take so many bytes of memory
    Done(usize),
    /// the newest version is of a transaction that has not finished
    Wait(StartWord),
    /// the newest version committed after the snapshot
    Conflict(CommitTs),
    /// there is no such row (any more)
    Gone,
    /// somebody holds the row's latch, or keeps its tail sealed, for longer than an append takes:
    /// nothing was written; try again unless the statement should end
    Busy,
}

/// What the newest version of a row means to a writer.
enum Newest<'p> {
    /// go ahead; the record to accumulate from, if there is one in the live tail
    Free(Option<TailRecord<'p>>),
    Blocked(WriteOutcome),
}

/// What somebody wants of a row's newest version.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Intent {
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

impl Lineage {
    /// Updates, deletes or locks `row`. Appends what must be stamped to `written`.
    pub fn write(
        &self,
        row: RowId,
        change: Change<'_>,
        writer: &Writer,
        written: &mut Vec<Written>,
    ) -> Result<WriteOutcome> {
        let Some(range) = self.range(row.range()) else {
            return Ok(WriteOutcome::Gone);
        };
        let at = row.slot() / UPDATE_ROWS;
        let outcome = range.append_to(at, &self.shared.page_bytes, |version, tail| {
            self.write_latched((range, version, tail), row, change, writer, written)
        });
        outcome.unwrap_or(Ok(WriteOutcome::Busy))
    }

    /// As [`Lineage::check_row_bytes`] for the values that `change` sets. Not part of
    /// [`Lineage::write`]: a database opened with less memory takes back what is in its log.
    #[inline]
    pub fn check_change_bytes(&self, change: Change<'_>) -> Result<()> {
        match change {
            Change::Update(set) => self.check_row_bytes(set_bytes(set)),
            Change::Delete | Change::Lock(_) => Ok(()),
        }
    }

    pub(crate) fn write_latched(
        &self,
        (range, version, tail): (&Range, &RangeVersion, &Tail),
        row: RowId,
        change: Change<'_>,
        writer: &Writer,
        written: &mut Vec<Written>,
    ) -> Result<WriteOutcome> {
        let slot = row.slot() % UPDATE_ROWS;
        let Some(latch) = tail.row_map().latch(slot) else {
            return Ok(WriteOutcome::Busy);
        };
        let pages = tail.pages();
        let head = past_tombstones(&pages, pages.head(latch.entry()));
        let intent = match change {
            Change::Lock(RowLock::Shared) => Intent::Share,
            _ => Intent::Change,
        };
        let newest = match self.newest(version, &pages, head, row, (writer, intent))? {
            Newest::Free(newest) => newest,
            Newest::Blocked(outcome) => return Ok(outcome),
        };
        if let Change::Lock(lock) = change
            && is_held(&pages, head, lock, writer.word)
        {
            return Ok(WriteOutcome::Done(0));
        }
        let mut append = Append {
            lineage: self,
            tail,
            pages: &pages,
            slot: slot as u16,
            schema: &self.load_schema(),
            writer,
            written,
            bytes: 0,
        };
        let mut head = head;
        if let Change::Update(set) = change {
            let first_time = self.first_updates(range, &pages, head, row, set)?;
            if !first_time.is_empty() {
                head = append.old_values(&version.base, row, &first_time, head)? + 1;
            }
        }
        // Cumulation is reset at the merge: what base has already is not carried on.
        let carry = newest.filter(|record| {
            let word = record.start();
            word.is_txn() || word.0 > version.base.merged_through().0
        });
        let seq = append.change(change, carry, head)?;
        latch.publish(seq);
        Ok(WriteOutcome::Done(append.bytes))
    }

    /// The transaction behind the newest version of `row`, if it is another one than `own` and has
    /// not finished; for a `speculative` one, if it is not pre-committed either.
    pub fn unfinished_writer(
        &self,
        row: RowId,
        own: StartWord,
        speculative: bool,
    ) -> Result<Option<StartWord>> {
        let Some(range) = self.range(row.range()) else {
            return Ok(None);
        };
        let version = range.load_full();
        // By this snapshot everything finished is a conflict, and nothing pre-committed is seen.
        let anybody = Writer {
            word: own,
            statement: u32::MAX,
            snapshot: CommitTs::ZERO,
            speculative,
        };
        let pages;
        let newest = match &version.tails[row.slot() / UPDATE_ROWS] {
            Some(tail) => {
                let entry = tail.row_map().entry(row.slot() % UPDATE_ROWS);
                pages = tail.pages();
                let head = pages.head(entry);
                self.newest(&version, &pages, head, row, (&anybody, Intent::Look))?
            }
            None => self.newest_in_base(&version, row, &anybody)?,
        };
        match newest {
            Newest::Blocked(WriteOutcome::Wait(holder)) => Ok(Some(holder)),
            _ => Ok(None),
        }
    }

    /// Finds the newest version and says whether the writer may do what it intends.
    fn newest<'p>(
        &self,
        version: &RangeVersion,
        pages: &'p TailPages,
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
            let state = resolve(|| record.start(), writer.word, &self.shared.txns);
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
        self.newest_in_base(version, row, writer)
    }

    fn newest_in_base(
        &self,
        version: &RangeVersion,
        row: RowId,
        writer: &Writer,
    ) -> Result<Newest<'static>> {
        let txns = &self.shared.txns;
        let state = match &version.base.body {
            BaseBody::Insert(rows) => match rows.existing_page(row.slot()) {
                Some((page, i)) => record_state(page, i, writer.word, txns),
                None => RecordState::Nothing,
            },
            BaseBody::Chunks(chunks) if row.slot() >= chunks.rows as usize => RecordState::Nothing,
            BaseBody::Chunks(chunks) => match &chunks.meta {
                None => resolve(|| chunks.start.load(), writer.word, txns),
                Some(meta) => {
                    let meta = meta.load()?;
                    let newest = meta.starts[row.slot()].max(meta.last_updated(row.slot()));
                    let deleted = meta.deleted.get(row.slot()) && newest <= writer.snapshot.0;
                    if deleted || meta.starts[row.slot()] == NEVER {
                        RecordState::Nothing
                    } else {
                        RecordState::Committed(CommitTs(newest))
                    }
                }
            },
        };
        if state == RecordState::Nothing {
            return Ok(Newest::Blocked(WriteOutcome::Gone));
        }
        Ok(blocked(state, writer).map_or(Newest::Free(None), Newest::Blocked))
    }

    /// The columns of `set` that neither the chain nor base's bits show as updated; the row's latch
    /// is held.
    ///
    /// The walk ends at the newest update, which is cumulative: the updates of columns that it does
    /// not carry were in its writer's base. The version loaded here is that one or a later one,
    /// whatever version this writer entered with, and its bits show them. Behind the update there
    /// may be old values of another one that was aborted; then they are written once more, which
    /// does no harm.
    fn first_updates(
        &self,
        range: &Range,
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
            // An old-value record counts also if the update after it was aborted; an aborted
            // update does not.
            if record.start() == StartWord::ABORTED {
                continue;
            }
            record.remove_columns(&mut missing);
            if record.kind() == RecordKind::Update {
                break;
            }
        }
        if missing.is_empty() {
            return Ok(missing);
        }
        if let BaseBody::Chunks(chunks) = &range.load().base.body
            && let Some(meta) = &chunks.meta
        {
            let meta = meta.load()?;
            missing.retain(|column| !meta.was_updated(row.slot(), column));
        }
        Ok(missing)
    }

    /// Inserts one row; `values` by column id, all columns of the current schema.
    pub fn insert(
        &self,
        values: &[Value],
        writer: &Writer,
        written: &mut Vec<Written>,
    ) -> Result<RowId> {
        let bytes = values_bytes(values);
        self.check_row_bytes(bytes)?;
        let mut full = None;
        loop {
            let open = self.open_range(full)?;
            let Some(slots) = open.rows.claim(1) else {
                full = Some(open.no);
                continue;
            };
            let row = RowId::new(open.no, slots.start as u16);
            let (page, i) = open.rows.page(slots.start as usize);
            let claimed = Claimed::new(page, i);
            open.rows.schema().iter().try_for_each(|(column, spec)| {
                let value = values.get(column.0 as usize).unwrap_or(&Value::Null);
                page.put(i, column, spec, value)
            })?;
            page.set_statement(i, writer.statement);
            claimed.publish(writer.word);
            written.push(Written::Records(page.clone(), i, i + 1));
            open.note_row(bytes, self.shared.range_bytes_max);
            return Ok(row);
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
        let BaseBody::Insert(rows) = &version.base.body else {
            return Ok(()); // merged into chunks since
        };
        rows.claim_through(row.slot() as u32);
        let (page, i) = rows.page(row.slot());
        if page.start(i) != StartWord::UNPUBLISHED {
            return Ok(()); // a run and the log may both have it
        }
        let schema = rows.schema();
        if let Some((column, _)) = values.iter().find(|(c, _)| c.0 as usize >= schema.len()) {
            return Err(Error::internal(format!(
                "{row:?} has a value of column {column}, its range has {} columns",
                schema.len()
            )));
        }
        // Other rows of the page may have columns that this row is older than.
        for (column, spec) in schema.iter() {
            let value = values.iter().find(|(c, _)| *c == column);
            page.put(i, column, spec, value.map_or(&spec.missing, |(_, v)| v))?;
        }
        page.set_start(i, StartWord::committed(ts));
        Ok(())
    }

    /// Recovery: puts a committed change that a run holds back into the tail, those of a row in
    /// commit order. Unlike a replay of the log it never writes old values: the run has them. The
    /// record is cumulative again, which the run's is not.
    pub fn restore_change(&self, row: RowId, change: Change<'_>, ts: CommitTs) -> Result<()> {
        let range = self.ensure_range(row.range());
        let tail = range.ensure_tail(row.slot() / UPDATE_ROWS, &self.shared.page_bytes);
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
            lineage: self,
            tail: &tail,
            pages: &pages,
            slot: (row.slot() % UPDATE_ROWS) as u16,
            schema: &self.load_schema(),
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
}

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
fn past_tombstones(pages: &TailPages, mut head: u64) -> u64 {
    while head != 0
        && let Some((page, i)) = locate(pages, head - 1)
        && page.start(i) == StartWord::ABORTED
    {
        head = page.back(i);
    }
    head
}

/// Whether the transaction of `own` keeps others from a row at least as `lock` does.
fn is_held(pages: &TailPages, mut head: u64, lock: RowLock, own: StartWord) -> bool {
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
