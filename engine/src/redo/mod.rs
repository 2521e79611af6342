//! The log record of a transaction: everything it did, as one unit, redo only \[L-Store §5.1.3\].
//!
//! Byte-exact in `docs/format.md`. A record is a version byte, the commit timestamp (patched in
//! under the log's lock) and operations. Values carry their type, so that a record can be read
//! without the catalog.

use strandline_base::bytes::{ByteReader, PutBytes, unzigzag, zigzag};
use strandline_base::{
    ColumnId, CommitTs, Error, Interval, Result, RowId, StorageId, TableId, Value,
};
use strandline_table::write::Change;

const VERSION: u8 = 2;
const TS_AT: std::ops::Range<usize> = 1..9;
/// Bytes before the first operation.
pub const HEADER_BYTES: usize = 9;

/// Room for a small transaction's record.
const RECORD_BYTES: usize = 256;

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Redo {
    /// a row came into being
    Insert {
        /// where
        storage: StorageId,
        /// its row id
        row: RowId,
        /// all its columns
        values: Vec<(ColumnId, Value)>,
    },
    /// columns of a row were set
    Update {
        /// where
        storage: StorageId,
        /// its row id
        row: RowId,
        /// the columns set
        values: Vec<(ColumnId, Value)>,
    },
    /// a row ended
    Delete {
        /// where
        storage: StorageId,
        /// its row id
        row: RowId,
    },
    /// a range was loaded in bulk: its files are durable
    Bulk {
        /// where
        storage: StorageId,
        /// the range as JSON of `RangeEntry`
        range: Vec<u8>,
    },
    /// what changed in the catalog (JSON of `CatalogEdit`)
    Catalog(Vec<u8>),
    /// an identity column has given out values up to this one
    Identity {
        /// the table
        table: TableId,
        /// the column
        column: ColumnId,
        /// the last value
        value: i64,
    },
}

/// Starts a record's bytes.
pub fn begin(out: &mut Vec<u8>) {
    out.clear();
    out.reserve(RECORD_BYTES);
    out.put_u8(VERSION);
    out.put_u64(0);
}

/// Puts the commit timestamp into a finished record.
pub fn set_commit_ts(record: &mut [u8], ts: CommitTs) {
    record[TS_AT].copy_from_slice(&ts.0.to_le_bytes());
}

/// Appends an insertion.
pub fn put_insert<'a>(
    out: &mut Vec<u8>,
    storage: StorageId,
    row: RowId,
    values: impl ExactSizeIterator<Item = (ColumnId, &'a Value)>,
) {
    put_row(out, 1, storage, row);
    put_values(out, values);
}

/// Appends a change of a row; nothing for a lock.
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

/// Appends an update.
pub fn put_update<'a>(
    out: &mut Vec<u8>,
    storage: StorageId,
    row: RowId,
    values: impl ExactSizeIterator<Item = (ColumnId, &'a Value)>,
) {
    put_row(out, 2, storage, row);
    put_values(out, values);
}

/// Appends a deletion.
pub fn put_delete(out: &mut Vec<u8>, storage: StorageId, row: RowId) {
    put_row(out, 3, storage, row);
}

/// Appends a bulk-loaded range.
pub fn put_bulk(out: &mut Vec<u8>, storage: StorageId, range: &[u8]) {
    out.put_u8(4);
    out.put_varint(u64::from(storage.0));
    out.put_bytes(range);
}

/// Appends a change of the catalog.
pub fn put_catalog(out: &mut Vec<u8>, json: &[u8]) {
    out.put_u8(5);
    out.put_bytes(json);
}

/// Appends an identity column's last value.
pub fn put_identity(out: &mut Vec<u8>, table: TableId, column: ColumnId, value: i64) {
    out.put_u8(6);
    out.put_varint(u64::from(table.0));
    out.put_varint(u64::from(column.0));
    out.put_varint(zigzag(value));
}

fn put_row(out: &mut Vec<u8>, kind: u8, storage: StorageId, row: RowId) {
    out.put_u8(kind);
    out.put_varint(u64::from(storage.0));
    out.put_varint(row.0);
}

fn put_values<'a>(out: &mut Vec<u8>, values: impl ExactSizeIterator<Item = (ColumnId, &'a Value)>) {
    out.put_varint(values.len() as u64);
    for (column, value) in values {
        out.put_varint(u64::from(column.0));
        put_value(out, value);
    }
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.put_u8(0),
        Value::Boolean(v) => out.put_u8(1 + u8::from(*v)),
        Value::SmallInt(v) => put_integer(out, 3, i64::from(*v)),
        Value::Integer(v) => put_integer(out, 4, i64::from(*v)),
        Value::BigInt(v) => put_integer(out, 5, *v),
        Value::Date(v) => put_integer(out, 6, i64::from(*v)),
        Value::Time(v) => put_integer(out, 7, *v),
        Value::Timestamp(v) => put_integer(out, 8, *v),
        Value::TimestampTz(v) => put_integer(out, 9, *v),
        Value::Real(v) => {
            out.put_u8(10);
            out.put_u32(v.to_bits());
        }
        Value::Double(v) => {
            out.put_u8(11);
            out.put_u64(v.to_bits());
        }
        Value::Numeric(v) => match i64::try_from(*v) {
            Ok(small) => put_integer(out, 12, small),
            Err(_) => {
                out.put_u8(13);
                out.put_u128(*v as u128);
            }
        },
        Value::Text(v) => {
            out.put_u8(14);
            out.put_bytes(v.as_bytes());
        }
        Value::Bytea(v) => {
            out.put_u8(15);
            out.put_bytes(v);
        }
        Value::Interval(v) => {
            out.put_u8(16);
            out.put_varint(zigzag(i64::from(v.months)));
            out.put_varint(zigzag(i64::from(v.days)));
            out.put_varint(zigzag(v.nanos));
        }
        Value::Uuid(v) => {
            out.put_u8(17);
            out.extend_from_slice(v);
        }
    }
}

#[inline]
fn put_integer(out: &mut Vec<u8>, tag: u8, v: i64) {
    out.put_u8(tag);
    out.put_varint(zigzag(v));
}

/// Decodes a record. The log has checked its checksum; what is malformed all the same is damage.
pub fn decode(record: &[u8], place: &str) -> Result<(CommitTs, Vec<Redo>)> {
    decode_record(record)
        .ok_or_else(|| Error::corrupt(place, "a transaction's log record is malformed"))
}

fn decode_record(record: &[u8]) -> Option<(CommitTs, Vec<Redo>)> {
    let mut r = ByteReader::new(record);
    if r.u8()? != VERSION {
        return None;
    }
    let ts = CommitTs(r.u64()?);
    let mut operations = Vec::new();
    while r.remaining() > 0 {
        operations.push(take_operation(&mut r)?);
    }
    Some((ts, operations))
}

fn take_u32(r: &mut ByteReader<'_>) -> Option<u32> {
    u32::try_from(r.varint()?).ok()
}

fn take_operation(r: &mut ByteReader<'_>) -> Option<Redo> {
    let kind = r.u8()?;
    match kind {
        1..=3 => {
            let storage = StorageId(take_u32(r)?);
            let row = RowId(r.varint()?);
            Some(match kind {
                1 => Redo::Insert {
                    storage,
                    row,
                    values: take_values(r)?,
                },
                2 => Redo::Update {
                    storage,
                    row,
                    values: take_values(r)?,
                },
                _ => Redo::Delete { storage, row },
            })
        }
        4 => Some(Redo::Bulk {
            storage: StorageId(take_u32(r)?),
            range: r.bytes()?.to_vec(),
        }),
        5 => Some(Redo::Catalog(r.bytes()?.to_vec())),
        6 => Some(Redo::Identity {
            table: TableId(take_u32(r)?),
            column: ColumnId(take_u32(r)?),
            value: unzigzag(r.varint()?),
        }),
        _ => None,
    }
}

fn take_values(r: &mut ByteReader<'_>) -> Option<Vec<(ColumnId, Value)>> {
    let n = usize::try_from(r.varint()?).ok()?;
    if n > r.remaining() {
        return None;
    }
    (0..n)
        .map(|_| Some((ColumnId(take_u32(r)?), take_value(r)?)))
        .collect()
}

fn take_value(r: &mut ByteReader<'_>) -> Option<Value> {
    let tag = r.u8()?;
    let integer = |r: &mut ByteReader<'_>| Some(unzigzag(r.varint()?));
    Some(match tag {
        0 => Value::Null,
        1 | 2 => Value::Boolean(tag == 2),
        3 => Value::SmallInt(i16::try_from(integer(r)?).ok()?),
        4 => Value::Integer(i32::try_from(integer(r)?).ok()?),
        5 => Value::BigInt(integer(r)?),
        6 => Value::Date(i32::try_from(integer(r)?).ok()?),
        7 => Value::Time(integer(r)?),
        8 => Value::Timestamp(integer(r)?),
        9 => Value::TimestampTz(integer(r)?),
        10 => Value::Real(f32::from_bits(r.u32()?)),
        11 => Value::Double(f64::from_bits(r.u64()?)),
        12 => Value::Numeric(i128::from(integer(r)?)),
        13 => Value::Numeric(r.u128()? as i128),
        14 => Value::Text(std::str::from_utf8(r.bytes()?).ok()?.into()),
        15 => Value::Bytea(r.bytes()?.into()),
        16 => Value::Interval(Interval {
            months: i32::try_from(integer(r)?).ok()?,
            days: i32::try_from(integer(r)?).ok()?,
            nanos: integer(r)?,
        }),
        17 => Value::Uuid(r.take(16)?.try_into().ok()?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_base::rng::Rng;

    fn sample() -> (Vec<u8>, Vec<Redo>) {
        let values = vec![
            (ColumnId(0), Value::BigInt(i64::MIN)),
            (ColumnId(1), Value::Null),
            (ColumnId(2), Value::from("Grüße")),
            (ColumnId(3), Value::Numeric(i128::MAX)),
            (ColumnId(4), Value::Numeric(-5)),
            (ColumnId(5), Value::Boolean(true)),
            (
                ColumnId(6),
                Value::Interval(Interval {
                    months: -1,
                    days: 2,
                    nanos: i64::MAX,
                }),
            ),
            (ColumnId(7), Value::Uuid([7; 16])),
            (ColumnId(8), Value::Double(-0.0)),
            (ColumnId(70), Value::Bytea(vec![0, 255].into())),
        ];
        let refs = || values.iter().map(|(c, v)| (*c, v));
        let (storage, row) = (StorageId(3), RowId(1 << 40));
        let mut out = Vec::new();
        begin(&mut out);
        put_insert(&mut out, storage, row, refs());
        put_update(
            &mut out,
            storage,
            row,
            refs().take(2).collect::<Vec<_>>().into_iter(),
        );
        put_delete(&mut out, storage, row);
        put_bulk(&mut out, storage, b"{}");
        put_catalog(&mut out, b"[]");
        put_identity(&mut out, TableId(1), ColumnId(2), -9);
        set_commit_ts(&mut out, CommitTs(77));
        let expected = vec![
            Redo::Insert {
                storage,
                row,
                values: values.clone(),
            },
            Redo::Update {
                storage,
                row,
                values: values[..2].to_vec(),
            },
            Redo::Delete { storage, row },
            Redo::Bulk {
                storage,
                range: b"{}".to_vec(),
            },
            Redo::Catalog(b"[]".to_vec()),
            Redo::Identity {
                table: TableId(1),
                column: ColumnId(2),
                value: -9,
            },
        ];
        (out, expected)
    }

    #[test]
    fn records_round_trip() {
        let (bytes, expected) = sample();
        assert_eq!(
            decode(&bytes, "log").expect("decodes"),
            (CommitTs(77), expected)
        );
    }

    #[test]
    fn damaged_records_never_panic() {
        let (bytes, _) = sample();
        let mut rng = Rng::new(11);
        for _ in 0..20_000 {
            let mut bad = bytes.clone();
            for _ in 0..=rng.below(3) {
                let at = rng.below(bad.len() as u64) as usize;
                bad[at] = rng.next_u64() as u8;
            }
            bad.truncate(rng.below(bad.len() as u64 + 1) as usize);
            let _ = decode(&bad, "log");
        }
    }
}
