//! One record of a run and its bytes.

use crate::types::{put_value, skip_value, take_value};
use strandline_base::bytes::{ByteReader, PutBytes, unzigzag, zigzag};
use strandline_base::{ColumnId, CommitTs, RowId, SqlType, Value};

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
    /// Column values, in the writer's order.
    pub columns: Vec<(ColumnId, Value)>,
}

impl RunRecord {
    /// Whether `next` may follow this record in a run.
    pub(super) fn may_precede(&self, next: &Self) -> bool {
        let old = |r: &Self| r.kind == RunRecordKind::OldValue;
        self.row < next.row
            || (self.row == next.row
                && match (old(self), old(next)) {
                    (true, false) => false,
                    (false, true) => true,
                    _ => self.ts >= next.ts,
                })
    }
}

/// What records of a block are encoded relative to: the record before, or the block's first row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Previous {
    pub row: RowId,
    pub ts: CommitTs,
}

fn kind_code(kind: RunRecordKind) -> u8 {
    match kind {
        RunRecordKind::Insert => 0,
        RunRecordKind::Update => 1,
        RunRecordKind::OldValue => 2,
        RunRecordKind::Delete => 3,
    }
}

/// Appends `record`, whose row is not before `previous.row`.
pub(super) fn put_record(out: &mut Vec<u8>, record: &RunRecord, previous: Previous) {
    out.put_varint(record.row.0 - previous.row.0);
    out.put_u8(kind_code(record.kind));
    out.put_varint(zigzag(record.ts.0.wrapping_sub(previous.ts.0) as i64));
    out.put_varint(record.columns.len() as u64);
    for (column, value) in &record.columns {
        out.put_varint(u64::from(column.0));
        put_value(out, value);
    }
}

/// Reads a record that [`put_record`] wrote, without the columns that `type_of` does not know;
/// `None`: malformed.
pub(super) fn take_record(
    reader: &mut ByteReader<'_>,
    previous: Previous,
    wanted: impl Fn(RowId) -> bool,
    type_of: impl Fn(ColumnId) -> Option<SqlType>,
) -> Option<RunRecord> {
    let row = RowId(previous.row.0.checked_add(reader.varint()?)?);
    let kind = match reader.u8()? {
        0 => RunRecordKind::Insert,
        1 => RunRecordKind::Update,
        2 => RunRecordKind::OldValue,
        3 => RunRecordKind::Delete,
        _ => return None,
    };
    let ts = CommitTs(
        previous
            .ts
            .0
            .wrapping_add(unzigzag(reader.varint()?) as u64),
    );
    let count = usize::try_from(reader.varint()?)
        .ok()
        .filter(|&n| n <= reader.remaining())?;
    let mut columns = Vec::new();
    let wanted = wanted(row);
    for _ in 0..count {
        let column = ColumnId(u32::try_from(reader.varint()?).ok()?);
        match type_of(column) {
            Some(t) if wanted => columns.push((column, take_value(reader, t)?)),
            _ => skip_value(reader)?,
        }
    }
    Some(RunRecord {
        row,
        ts,
        kind,
        columns,
    })
}
