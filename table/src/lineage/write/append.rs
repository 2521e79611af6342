//! The tail records of one change of a row \[L-Store §3.1\]: the old values of the columns that it
//! updates for the first time, and the change itself, cumulative since the last merge.
//!
//! Invariants:
//! 1. The row's latch is held throughout; who appends has entered the tail.
//! 2. Base is read before a record is claimed: what follows a claimed record in its tail does not
//!    settle until that is published.
//!
//! Differences from the paper: a record whose cells cannot be written stays as a tombstone.

use crate::lineage::Lineage;
use crate::lineage::base::{BaseBody, BaseState, base_value};
use crate::lineage::write::{Change, RowLock, Writer, Written};
use std::sync::Arc;
use strandline_base::{ColumnId, Result, RowId, Value};
use strandline_tail::column_set::ColumnSet;
use strandline_tail::record_page::{RecordKind, RecordPage, TailRecord};
use strandline_tail::schema::StorageSchema;
use strandline_tail::tail_pages::{RecordHeader, Tail, TailPages};
use strandline_tail::visibility::{RecordState, resolve};
use strandline_txn::StartWord;

/// Appends the records of one change; the row's latch is held.
pub(crate) struct Append<'a> {
    pub lineage: &'a Lineage,
    pub tail: &'a Tail,
    /// loaded under the latch
    pub pages: &'a TailPages,
    pub slot: u16,
    pub schema: &'a Arc<StorageSchema>,
    pub writer: &'a Writer,
    pub written: &'a mut Vec<Written>,
    /// of the records so far
    pub bytes: usize,
}

impl Append<'_> {
    /// The old-value record of `columns`: base's values under the row's original start word. Its
    /// sequence number.
    pub fn old_values(
        &mut self,
        base: &BaseState,
        row: RowId,
        columns: &ColumnSet,
        back: u64,
    ) -> Result<u64> {
        let (start, statement) = base_start(base, row.slot())?;
        let header = RecordHeader {
            slot: self.slot,
            kind: RecordKind::OldValue,
            back,
            statement,
            word: self.old_value_word(base, row, start),
        };
        let values = self.base_values(base, row, columns)?;
        let fill = |page: &RecordPage, i: u32| page.fill(i, &values, None);
        let place = (self.pages, self.schema);
        let (page, i) = self.tail.append(place, &header, columns, fill)?;
        let seq = page.first() + u64::from(i);
        self.bytes += page.record_bytes(i);
        if start == self.writer.word {
            self.written.push(Written::Records(page, i, i + 1));
        }
        Ok(seq)
    }

    /// What base has of a row in `columns`.
    fn base_values(
        &self,
        base: &BaseState,
        row: RowId,
        columns: &ColumnSet,
    ) -> Result<Vec<(ColumnId, Value)>> {
        let mut values = Vec::new();
        // What the row's block does not have comes from the chunks themselves.
        let mut others = columns.clone();
        if let BaseBody::Chunks(chunks) = &base.body {
            let pool = &self.lineage.shared.pool;
            chunks.read_row(row.slot(), columns.iter(), pool, |row| {
                others.retain(|column| {
                    let mut value = Value::Null;
                    let is_held = row.read(column, &mut value);
                    if is_held {
                        values.push((column, value));
                    }
                    !is_held
                });
            })?;
        }
        for column in others.iter() {
            let spec = self.schema.column(column);
            let value = base_value(base, row.slot(), column, spec)?;
            values.push((column, value));
        }
        Ok(values)
    }

    /// The word of an old-value record: the row's own, which may be stamped at any moment unless
    /// this transaction inserted the row; so that of others is written as it will be stamped.
    fn old_value_word(&self, base: &BaseState, row: RowId, start: StartWord) -> StartWord {
        if !start.is_txn() || start == self.writer.word {
            return start;
        }
        let load = || base_start(base, row.slot()).map_or(StartWord::ABORTED, |(word, _)| word);
        match resolve(load, self.writer.word, &self.lineage.shared.txns) {
            RecordState::Committed(ts) | RecordState::PreCommitted(_, ts) => {
                StartWord::committed(ts)
            }
            RecordState::Own | RecordState::Nothing | RecordState::InProgress(_) => {
                StartWord::ABORTED
            }
        }
    }

    /// The record of the change itself, with what `carry` has and it does not set: its sequence
    /// number.
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
        let own: ColumnSet = set.iter().map(|(column, _)| *column).collect();
        let carry = carry.filter(|_| kind == RecordKind::Update);
        let mut carried = ColumnSet::default();
        if let Some(from) = carry {
            from.add_columns(&mut carried);
            carried.remove_all(&own);
        }
        let mut columns = own;
        columns.insert_all(&carried);
        let fill =
            |page: &RecordPage, i: u32| page.fill(i, set, carry.map(|from| (&carried, from)));
        let place = (self.pages, self.schema);
        let (page, i) = self.tail.append(place, &header, &columns, fill)?;
        let seq = page.first() + u64::from(i);
        self.bytes += page.record_bytes(i);
        self.written.push(match change {
            Change::Lock(_) => Written::Lock(page, i),
            Change::Update(_) | Change::Delete => Written::Records(page, i, i + 1),
        });
        Ok(seq)
    }
}

/// The start word of a row in base, and the statement that inserted it.
fn base_start(base: &BaseState, slot: usize) -> Result<(StartWord, u32)> {
    Ok(match &base.body {
        BaseBody::Insert(rows) => match rows.existing_page(slot) {
            Some((page, i)) => (page.start(i), page.statement(i)),
            None => (StartWord::ABORTED, 0),
        },
        BaseBody::Chunks(chunks) => match &chunks.meta {
            Some(meta) => (StartWord(meta.load()?.starts[slot]), 0),
            None => (chunks.start.load(), chunks.start.statement),
        },
    })
}
