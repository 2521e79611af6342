//! Single values as bytes: one tag byte that determines the length, then the value. It is used for
//! the bounds in chunk footers and for single values of update runs. A reader can skip a value
//! without knowing the column's type.
//!
//! | tag | value | bytes after the tag |
//! |---|---|---|
//! | 0 | NULL | none |
//! | 1 | boolean, integers, dates, times, numerics that fit 64 bits | zigzag varint of the word |
//! | 2 | real, double precision | varint length 4 or 8, then the bits, little-endian |
//! | 3 | other numerics, interval, uuid, point | the two words, 16 bytes little-endian |
//! | 4 | text, bytea, box | varint length, then the bytes |

use std::borrow::Cow;
use strandline_base::bytes::{ByteReader, PutBytes, unzigzag, zigzag};
use strandline_base::value_words::{
    Physical, physical, value_of_bytes, value_of_wide, value_of_word, wide_of, word_of,
};
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
        Value::Box(v) => {
            out.put_u8(BYTES);
            out.put_bytes(v.as_bytes());
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

/// A stored value, without the column's type.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredValue<'a> {
    /// NULL
    Null,
    /// a word that is not a float
    Integer(i64),
    /// the bits of a real
    Real(u32),
    /// the bits of a double precision
    Double(u64),
    /// two words
    Wide([u64; 2]),
    /// text, bytea or a box
    Bytes(Cow<'a, [u8]>),
}

impl<'a> StoredValue<'a> {
    /// Reads a value of [`put_value`]; `None`: the bytes are truncated or invalid.
    pub fn take(reader: &mut ByteReader<'a>) -> Option<Self> {
        Some(match reader.u8()? {
            NULL => Self::Null,
            INTEGER => Self::Integer(unzigzag(reader.varint()?)),
            FLOAT => {
                let bits = reader.bytes()?;
                match bits.len() {
                    4 => Self::Real(u32::from_le_bytes(bits.try_into().ok()?)),
                    _ => Self::Double(u64::from_le_bytes(bits.try_into().ok()?)),
                }
            }
            WIDE => Self::Wide([reader.u64()?, reader.u64()?]),
            BYTES => Self::Bytes(reader.bytes()?.into()),
            _ => return None,
        })
    }

    /// The value of type `t`; `None`: invalid for that type, or not UTF-8.
    pub fn value(&self, t: SqlType) -> Option<Value> {
        match (self, physical(t)) {
            (Self::Null, _) => Some(Value::Null),
            (Self::Integer(v), Physical::Word) if !matches!(t, SqlType::Real | SqlType::Double) => {
                Some(value_of_word(t, *v as u64))
            }
            (Self::Integer(v), Physical::Wide) if matches!(t, SqlType::Numeric { .. }) => {
                Some(Value::Numeric(i128::from(*v)))
            }
            (Self::Real(bits), _) if t == SqlType::Real => Some(Value::Real(f32::from_bits(*bits))),
            (Self::Double(bits), _) if t == SqlType::Double => {
                Some(Value::Double(f64::from_bits(*bits)))
            }
            (Self::Wide(words), Physical::Wide) => Some(value_of_wide(t, *words)),
            (Self::Bytes(bytes), Physical::Bytes) => value_of_bytes(t, bytes).ok(),
            _ => None,
        }
    }
}

/// Reads a value of type `t` written by [`put_value`]; `None` if the bytes are truncated, invalid
/// for that type or not UTF-8.
pub fn take_value(reader: &mut ByteReader<'_>, t: SqlType) -> Option<Value> {
    StoredValue::take(reader)?.value(t)
}
