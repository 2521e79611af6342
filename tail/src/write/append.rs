//! The tail records of one change of a row \[L-Store §3.1\]: the old values of the columns that it
//! updates for the first time, and the change itself, cumulative since the last merge.
//!
//! Invariants:
//! 1. The row's latch is held throughout; the writer has entered the tail.
//! 2. Base is read before a record is claimed: the records after a claimed record in its tail do
//!    not settle until it is published.
//!
//! Differences from the paper: a record whose cells cannot be written stays as a tombstone.

use super::RowStorage;
use crate::change::{Change, PendingStamp, RowLock, Writer};
use crate::column_set::ColumnSet;
use crate::record_kind::RecordKind;
use crate::record_page::{RecordPage, TailRecord};
use crate::schema::StorageSchema;
use crate::tail::{RecordHeader, Tail};
use crate::tail_pages::TailPages;
use crate::visibility::{RecordState, resolve};
use std::sync::Arc;
use strandline_base::Result;
use strandline_txn::StartWord;

/// Appends the records of one change; the row's latch is held.
pub(super) struct Append<'a> {
    pub tail: &'a Tail,
    /// loaded under the latch
    pub pages: &'a TailPages,
    /// in the update range
    pub slot: u16,
    pub schema: &'a Arc<StorageSchema>,
    pub writer: &'a Writer,
    pub written: &'a mut Vec<PendingStamp>,
    /// of the records so far
    pub bytes: usize,
}

impl Append<'_> {
    /// The old-value record of `columns`: the values that `base` has of its row `slot`, under the
    /// row's original start word. Its sequence number.
    #[inline(never)]
    pub fn old_values<S: RowStorage>(
        &mut self,
        storage: &S,
        (base, slot): (&S::Base, usize),
        columns: &ColumnSet,
        back: u64,
    ) -> Result<u64> {
        let (start, statement) = storage.base_start(base, slot)?;
        let word = match start.is_txn() && start != self.writer.word {
            true => self.settled_word(storage, base, slot),
            false => start,
        };
        let header = RecordHeader {
            slot: self.slot,
            kind: RecordKind::OldValue,
            back,
            statement,
            word,
        };
        let values = storage.base_values(base, slot, columns, self.schema)?;
        let fill = |page: &RecordPage, i: u32| page.fill(i, &values, None);
        let place = (self.pages, self.schema);
        let (page, i) = self.tail.append(place, &header, columns, fill)?;
        let seq = page.first() + u64::from(i);
        self.bytes += page.record_bytes(i);
        if start == self.writer.word {
            self.written.push(PendingStamp::Records(page, i, i + 1));
        }
        Ok(seq)
    }

    /// The word of an old-value record of a row that another transaction has inserted. The row's
    /// own may be stamped at any moment, so the record gets the word that it will be stamped with.
    #[cold]
    fn settled_word<S: RowStorage>(&self, storage: &S, base: &S::Base, slot: usize) -> StartWord {
        let start = || storage.base_start(base, slot);
        let load = || start().map_or(StartWord::ABORTED, |(word, _)| word);
        match resolve(load, self.writer.word, storage.txns()) {
            RecordState::Committed(ts) | RecordState::PreCommitted(_, ts) => {
                StartWord::committed(ts)
            }
            RecordState::Own | RecordState::Nothing | RecordState::InProgress(_) => {
                StartWord::ABORTED
            }
        }
    }

    /// Appends the record of the change itself, with the values of `carry` that the change does not
    /// set. Returns its sequence number.
    pub fn change(
        &mut self,
        change: Change<'_>,
        carry: Option<TailRecord<'_>>,
        back: u64,
    ) -> Result<u64> {
        let (kind, set) = match change {
            Change::Update(set) => (RecordKind::Update, set),
            Change::Delete => (RecordKind::Delete, &[][..]),
            Change::Lock(RowLock::Exclusive) => (RecordKind::Lock, &[][..]),
            Change::Lock(RowLock::Shared) => (RecordKind::ShareLock, &[][..]),
        };
        let header = RecordHeader {
            slot: self.slot,
            kind,
            back,
            statement: self.writer.statement,
            word: self.writer.word,
        };
        let mut columns: ColumnSet = set.iter().map(|(column, _)| *column).collect();
        let mut carried = ColumnSet::default();
        let carry = carry.filter(|_| kind == RecordKind::Update);
        if let Some(from) = carry {
            from.add_columns(&mut carried);
            carried.remove_all(&columns);
            columns.insert_all(&carried);
        }
        let fill =
            |page: &RecordPage, i: u32| page.fill(i, set, carry.map(|from| (&carried, from)));
        let place = (self.pages, self.schema);
        let (page, i) = self.tail.append(place, &header, &columns, fill)?;
        let seq = page.first() + u64::from(i);
        self.bytes += page.record_bytes(i);
        self.written.push(match change {
            Change::Lock(_) => PendingStamp::Lock(page, i),
            Change::Update(_) | Change::Delete => PendingStamp::Records(page, i, i + 1),
        });
        Ok(seq)
    }
}
