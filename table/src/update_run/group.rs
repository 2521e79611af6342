//! A row's consecutive records side by side: its times, then column by column its values
//! \[L-Store §4.3, Table 6\].
//!
//! Invariants:
//! 1. a group holds at least one record, all of one row;
//! 2. a column that no record of the group has takes no byte;
//! 3. a group's times are relative to the block's times, never to a neighbouring group.

use super::values::{put_bitmap, put_values, take_bitmap, take_values};
use super::{RunRecord, RunRecordKind};
use strandline_base::bytes::{ByteReader, PutBytes, unzigzag, zigzag};
use strandline_base::{ColumnId, CommitTs, RowId, SqlType, Value};

/// Base values of the timestamps in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockTimes {
    /// for versions: inserts, updates, deletes
    versions: CommitTs,
    /// for old values
    starts: CommitTs,
}

impl BlockTimes {
    /// Times near those of the block's first group.
    pub(super) fn near(group: &[RunRecord]) -> Self {
        let first = group.first().map_or(CommitTs::ZERO, |record| record.ts);
        let old = group.iter().find(|r| r.kind == RunRecordKind::OldValue);
        Self {
            versions: first,
            starts: old.map_or(first, |record| record.ts),
        }
    }

    /// Appends them.
    pub(super) fn put(self, out: &mut Vec<u8>) {
        out.put_u64(self.versions.0);
        out.put_u64(self.starts.0);
    }

    /// Reads the output of [`BlockTimes::put`].
    pub(super) fn take(reader: &mut ByteReader<'_>) -> Option<Self> {
        Some(Self {
            versions: CommitTs(reader.u64()?),
            starts: CommitTs(reader.u64()?),
        })
    }

    /// The time that the next record of this kind counts from, to be set to the record's.
    fn of(&mut self, kind: RunRecordKind) -> &mut CommitTs {
        match kind {
            RunRecordKind::OldValue => &mut self.starts,
            RunRecordKind::Insert | RunRecordKind::Update | RunRecordKind::Delete => {
                &mut self.versions
            }
        }
    }
}

/// Appends the records of a row. False, and nothing of use in `out`: a record has a column twice.
pub(super) fn put_records(out: &mut Vec<u8>, records: &[RunRecord], times: BlockTimes) -> bool {
    put_kinds(out, records);
    put_times(out, records, times);
    put_columns(out, records)
}

fn put_kinds(out: &mut Vec<u8>, records: &[RunRecord]) {
    let mut codes = records.iter().map(|record| kind_code(record.kind));
    let first = codes.next().unwrap_or(0);
    let others = records.len() as u64 - 1;
    out.put_varint(others << 2 | u64::from(first));
    let others: Vec<u8> = codes.collect();
    for four in others.chunks(4) {
        let byte = four.iter().rev().fold(0, |byte, code| byte << 2 | code);
        out.put_u8(byte);
    }
}

fn take_kinds(reader: &mut ByteReader<'_>) -> Option<Vec<RunRecordKind>> {
    let first = reader.varint()?;
    // Every record takes at least the byte of its time.
    let others = usize::try_from(first >> 2).ok()?;
    if others >= reader.remaining() {
        return None;
    }
    let mut kinds = vec![kind_of(first as u8)];
    let bytes = reader.take(others.div_ceil(4))?;
    let all = bytes.iter().flat_map(|b| [*b, b >> 2, b >> 4, b >> 6]);
    kinds.extend(all.take(others).map(kind_of));
    let unused = bytes.last().map_or(0, |last| match others % 4 {
        0 => 0,
        used => last >> (2 * used),
    });
    (unused == 0).then_some(kinds)
}

fn kind_code(kind: RunRecordKind) -> u8 {
    match kind {
        RunRecordKind::Insert => 0,
        RunRecordKind::Update => 1,
        RunRecordKind::OldValue => 2,
        RunRecordKind::Delete => 3,
    }
}

/// The kind in the two low bits.
fn kind_of(code: u8) -> RunRecordKind {
    match code & 3 {
        0 => RunRecordKind::Insert,
        1 => RunRecordKind::Update,
        2 => RunRecordKind::OldValue,
        _ => RunRecordKind::Delete,
    }
}

fn put_times(out: &mut Vec<u8>, records: &[RunRecord], mut times: BlockTimes) {
    for record in records {
        let before = std::mem::replace(times.of(record.kind), record.ts);
        out.put_varint(zigzag(record.ts.0.wrapping_sub(before.0) as i64));
    }
}

fn put_columns(out: &mut Vec<u8>, records: &[RunRecord]) -> bool {
    let mut cells: Vec<(ColumnId, usize, &Value)> = Vec::new();
    for (at, record) in records.iter().enumerate() {
        cells.extend(record.columns.iter().map(|(c, v)| (*c, at, v)));
    }
    cells.sort_by_key(|(column, at, _)| (*column, *at));
    let is_good = cells.is_sorted_by(|a, b| (a.0, a.1) < (b.0, b.1));
    let columns = || cells.chunk_by(|a, b| a.0 == b.0);
    out.put_varint(columns().count() as u64);
    let mut last = 0;
    for column in columns() {
        let Some(&(id, ..)) = column.first() else {
            continue;
        };
        out.put_varint(u64::from(id.0 - last));
        last = id.0;
        if records.len() > 1 {
            let mut next = column.iter().map(|(_, at, _)| *at).peekable();
            put_bitmap(
                out,
                (0..records.len()).map(|at| next.next_if_eq(&at).is_some()),
            );
        }
        let values: Vec<&Value> = column.iter().map(|(_, _, value)| *value).collect();
        put_values(out, &values);
    }
    is_good
}

/// The records of `row`, without the columns that `type_of` does not know; `None`: malformed.
pub(super) fn take_records(
    row: RowId,
    bytes: &[u8],
    mut times: BlockTimes,
    type_of: impl Fn(ColumnId) -> Option<SqlType>,
) -> Option<Vec<RunRecord>> {
    let mut reader = ByteReader::new(bytes);
    let kinds = take_kinds(&mut reader)?;
    let mut records = Vec::with_capacity(kinds.len());
    for kind in kinds {
        let time = times.of(kind);
        *time = CommitTs(time.0.wrapping_add(unzigzag(reader.varint()?) as u64));
        records.push(RunRecord {
            row,
            ts: *time,
            kind,
            columns: Vec::new(),
        });
    }
    take_columns(&mut reader, &mut records, type_of)?;
    (reader.remaining() == 0).then_some(records)
}

/// Gives `records` their columns.
fn take_columns(
    reader: &mut ByteReader<'_>,
    records: &mut [RunRecord],
    type_of: impl Fn(ColumnId) -> Option<SqlType>,
) -> Option<()> {
    let mut column = 0u32;
    for at in 0..reader.varint()? {
        let step = u32::try_from(reader.varint()?).ok()?;
        if at > 0 && step == 0 {
            return None;
        }
        column = column.checked_add(step)?;
        let has = match records.len() {
            1 => vec![true],
            count => take_bitmap(reader, count)?,
        };
        let count = has.iter().filter(|has| **has).count();
        if count == 0 {
            return None;
        }
        let values = take_values(reader, count)?;
        let column = ColumnId(column);
        let Some(t) = type_of(column) else { continue };
        let with = records.iter_mut().zip(has).filter(|(_, has)| *has);
        for ((record, _), value) in with.zip(values) {
            record.columns.push((column, value.value(t)?));
        }
    }
    Some(())
}
