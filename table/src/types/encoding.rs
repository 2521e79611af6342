//! Single values as bytes: one tag byte that gives the length away, then the value. Used for the
//! bounds in chunk footers and for the values of update runs; a reader that does not know the
//! column's type can still skip the value.
//!
//! | tag | value | bytes after the tag |
//! |---|---|---|
//! | 0 | NULL | none |
//! | 1 | boolean, integers, dates, times, numerics that fit 64 bits | zigzag varint of the word |
//! | 2 | real, double precision | varint length 4 or 8, then the bits, little-endian |
//! | 3 | other numerics, interval, uuid | the two words, 16 bytes little-endian |
//! | 4 | text, bytea | varint length, then the bytes |

use super::{Physical, physical, value_of_bytes, value_of_wide, value_of_word, wide_of, word_of};
use strandline_base::bytes::{ByteReader, PutBytes, unzigzag, zigzag};
use strandline_base::{SqlType, Value};

const NULL: u8 = 0;
const INTEGER: u8 = 1;
const FLOAT: u8 = 2;
const WIDE: u8 = 3;
const BYTES: u8 = 4;

/// Appends the encoded value.
pub fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => out.put_u8(NULL),
        Value::Real(v) => {
            out.put_u8(FLOAT);
            out.put_bytes(&v.to_bits().to_le_bytes());
        }
        Value::Double(v) => {
            out.put_u8(FLOAT);
            out.put_bytes(&v.to_bits().to_le_bytes());
        }
        Value::Text(v) => {
            out.put_u8(BYTES);
            out.put_bytes(v.as_bytes());
        }
        Value::Bytea(v) => {
            out.put_u8(BYTES);
            out.put_bytes(v);
        }
        _ => match (word_of(value), wide_of(value)) {
            (Some(word), _) => {
                out.put_u8(INTEGER);
                out.put_varint(zigzag(word as i64));
            }
            (None, Some([low, high])) => {
                out.put_u8(WIDE);
                out.put_u64(low);
                out.put_u64(high);
            }
            (None, None) => unreachable!("every value is NULL, a word, two words or bytes"),
        },
    }
}

/// Reads a value of type `t` that [`put_value`] wrote; `None` when the bytes end early, are not a
/// value of that type or not UTF-8.
pub fn take_value(reader: &mut ByteReader<'_>, t: SqlType) -> Option<Value> {
    let tag = reader.u8()?;
    match (tag, physical(t)) {
        (NULL, _) => Some(Value::Null),
        (INTEGER, Physical::Word) if !matches!(t, SqlType::Real | SqlType::Double) => {
            Some(value_of_word(t, unzigzag(reader.varint()?) as u64))
        }
        (INTEGER, Physical::Wide) if matches!(t, SqlType::Numeric { .. }) => {
            Some(Value::Numeric(i128::from(unzigzag(reader.varint()?))))
        }
        (FLOAT, Physical::Word) => {
            let bits = reader.bytes()?;
            match t {
                SqlType::Real => Some(Value::Real(f32::from_le_bytes(bits.try_into().ok()?))),
                SqlType::Double => Some(Value::Double(f64::from_le_bytes(bits.try_into().ok()?))),
                _ => None,
            }
        }
        (WIDE, Physical::Wide) => Some(value_of_wide(t, [reader.u64()?, reader.u64()?])),
        (BYTES, Physical::Bytes) => value_of_bytes(t, reader.bytes()?).ok(),
        _ => None,
    }
}

/// Steps over one value of any type.
pub fn skip_value(reader: &mut ByteReader<'_>) -> Option<()> {
    match reader.u8()? {
        NULL => {}
        INTEGER => {
            reader.varint()?;
        }
        WIDE => {
            reader.take(16)?;
        }
        FLOAT | BYTES => {
            reader.bytes()?;
        }
        _ => return None,
    }
    Some(())
}
