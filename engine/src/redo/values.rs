//! Values in log records. Each has its type, so that a record can be read without the catalog.

use strandline_base::bytes::{ByteReader, PutBytes, unzigzag, zigzag};
use strandline_base::{BoxCorners, ColumnId, Interval, Point, Value};

/// Appends columns of a row with their values.
pub(super) fn put_values<'a>(
    out: &mut Vec<u8>,
    values: impl ExactSizeIterator<Item = (ColumnId, &'a Value)>,
) {
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
        Value::Point(v) => {
            out.put_u8(18);
            let [x, y] = v.words();
            out.put_u64(x);
            out.put_u64(y);
        }
        Value::Box(v) => {
            out.put_u8(19);
            out.extend_from_slice(v.as_bytes());
        }
    }
}

#[inline]
fn put_integer(out: &mut Vec<u8>, tag: u8, v: i64) {
    out.put_u8(tag);
    out.put_varint(zigzag(v));
}

/// Reads a number below 2^32.
pub(super) fn take_u32(r: &mut ByteReader<'_>) -> Option<u32> {
    u32::try_from(r.varint()?).ok()
}

/// Reads the output of [`put_values`]; None: malformed.
pub(super) fn take_values(r: &mut ByteReader<'_>) -> Option<Vec<(ColumnId, Value)>> {
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
        18 => Value::Point(Point::from_words([r.u64()?, r.u64()?])),
        19 => Value::Box(BoxCorners::from_bytes(r.take(BoxCorners::BYTES)?)?),
        _ => return None,
    })
}
