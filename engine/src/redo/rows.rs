//! Rows inserted, updated and deleted: kinds 1 to 3.

use super::values::{put_values, take_u32, take_values};
use super::{Operation, RedoKind};
use crate::store::{RestoredFrom, RowChange, Store};
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{ColumnId, CommitTs, Result, RowId, StorageId, Value};
use strandline_tail::change::Change;

pub(super) const INSERT: RedoKind = RedoKind {
    tag: 1,
    name: "insert",
    decode: |r| take_row(r, |r| Some(RowChange::Insert(take_values(r)?))),
};
pub(super) const UPDATE: RedoKind = RedoKind {
    tag: 2,
    name: "update",
    decode: |r| take_row(r, |r| Some(RowChange::Update(take_values(r)?))),
};
pub(super) const DELETE: RedoKind = RedoKind {
    tag: 3,
    name: "delete",
    decode: |r| take_row(r, |_| Some(RowChange::Delete)),
};

/// A logged change of one row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowOperation {
    /// the storage
    pub storage: StorageId,
    /// its row id
    pub row: RowId,
    /// the change of the row
    pub change: RowChange,
}

impl RowOperation {
    /// Whether the operation frees space.
    pub fn frees_space(&self) -> bool {
        self.change == RowChange::Delete
    }

    /// Applies a change that was committed at `ts` to `store`. Skips changes that base contains.
    pub fn restore(&self, store: &Store, ts: CommitTs) -> Result<()> {
        store
            .restore(self.row, &self.change, ts, RestoredFrom::Log)
            .map(|_| ())
    }
}

/// Appends an insertion.
pub fn put_insert<'a>(
    out: &mut Vec<u8>,
    storage: StorageId,
    row: RowId,
    values: impl ExactSizeIterator<Item = (ColumnId, &'a Value)>,
) {
    put_row(out, &INSERT, storage, row);
    put_values(out, values);
}

/// Appends a change of a row; a lock appends nothing.
pub fn put_change(out: &mut Vec<u8>, storage: StorageId, row: RowId, change: Change<'_>) {
    match change {
        Change::Update(set) => {
            let set = set.iter().map(|(column, value)| (*column, value));
            put_update(out, storage, row, set);
        }
        Change::Delete => put_delete(out, storage, row),
        Change::Lock(_) => {}
    }
}

fn put_update<'a>(
    out: &mut Vec<u8>,
    storage: StorageId,
    row: RowId,
    values: impl ExactSizeIterator<Item = (ColumnId, &'a Value)>,
) {
    put_row(out, &UPDATE, storage, row);
    put_values(out, values);
}

fn put_delete(out: &mut Vec<u8>, storage: StorageId, row: RowId) {
    put_row(out, &DELETE, storage, row);
}

fn put_row(out: &mut Vec<u8>, kind: &RedoKind, storage: StorageId, row: RowId) {
    out.put_u8(kind.tag);
    out.put_varint(u64::from(storage.0));
    out.put_varint(row.0);
}

fn take_row(
    r: &mut ByteReader<'_>,
    change: impl FnOnce(&mut ByteReader<'_>) -> Option<RowChange>,
) -> Option<Operation> {
    Some(Operation::Row(RowOperation {
        storage: StorageId(take_u32(r)?),
        row: RowId(r.varint()?),
        change: change(r)?,
    }))
}
