//! The values of one column in consecutive versions of a row, each as the difference to the one
//! before \[L-Store §4.3, delta compression\].
//!
//! Invariants:
//! 1. values are read bit for bit as they were written, NaNs and −0.0 included;
//! 2. a sequence never takes more bytes than its values one by one and the byte that says so;
//! 3. a reader that does not know the column's type can step over a sequence.

use strandline_base::Value;
use strandline_base::bytes::{ByteReader, PutBytes, unzigzag, zigzag};
use strandline_base::value_words::{bytes_of, wide_of, word_of};
use strandline_column::types::{StoredValue, put_value};

/// Each value by itself.
const SINGLE: u8 = 0;
/// Words that are no floats: each minus the one before.
const INTEGERS: u8 = 1;
/// Reals: the bits that differ from the value before.
const REALS: u8 = 2;
/// The same of doubles.
const DOUBLES: u8 = 3;
/// Text, bytea and boxes: the bytes between the prefix and the suffix shared with the value before.
const BYTES: u8 = 4;
/// Two words: as bytes.
const WIDE: u8 = 5;
/// Added if the sequence has NULLs.
const HAS_NULLS: u8 = 0x80;

/// Appends at least one value.
pub(super) fn put_values(out: &mut Vec<u8>, values: &[&Value]) {
    if let [value] = values {
        return put_value(out, value);
    }
    let start = out.len();
    out.put_u8(SINGLE);
    values.iter().for_each(|value| put_value(out, value));
    let deltas = deltas(values).filter(|deltas| deltas.len() < out.len() - start);
    if let Some(deltas) = deltas {
        out.truncate(start);
        out.extend_from_slice(&deltas);
    }
}

/// The values as differences; None: they are not of one kind.
fn deltas(values: &[&Value]) -> Option<Vec<u8>> {
    let valid: Vec<&Value> = values.iter().copied().filter(|v| !v.is_null()).collect();
    let (form, deltas) = match valid.first()? {
        Value::Real(_) => (REALS, reals(&valid)?),
        Value::Double(_) => (DOUBLES, doubles(&valid)?),
        Value::Text(_) | Value::Bytea(_) | Value::Box(_) => (BYTES, strings(&valid)?),
        _ => match integers(&valid) {
            Some(deltas) => (INTEGERS, deltas),
            None => (WIDE, wides(&valid)?),
        },
    };
    let mut out = Vec::with_capacity(1 + values.len().div_ceil(8) + deltas.len());
    if valid.len() == values.len() {
        out.put_u8(form);
    } else {
        out.put_u8(form | HAS_NULLS);
        put_bitmap(&mut out, values.iter().map(|v| v.is_null()));
    }
    out.extend_from_slice(&deltas);
    Some(out)
}

fn integers(values: &[&Value]) -> Option<Vec<u8>> {
    let (mut out, mut before) = (Vec::new(), 0);
    for value in values {
        let word = word_of(value)?;
        out.put_varint(zigzag(word.wrapping_sub(before) as i64));
        before = word;
    }
    Some(out)
}

/// Digits that differ are at the low end of a fraction seldom, at the high end often: bytes are
/// swapped, so that equal low bytes cost nothing.
fn reals(values: &[&Value]) -> Option<Vec<u8>> {
    let (mut out, mut before) = (Vec::new(), 0);
    for value in values {
        let Value::Real(value) = value else {
            return None;
        };
        let bits = value.to_bits();
        out.put_varint(u64::from((bits ^ before).swap_bytes()));
        before = bits;
    }
    Some(out)
}

fn doubles(values: &[&Value]) -> Option<Vec<u8>> {
    let (mut out, mut before) = (Vec::new(), 0);
    for value in values {
        let Value::Double(value) = value else {
            return None;
        };
        let bits = value.to_bits();
        out.put_varint((bits ^ before).swap_bytes());
        before = bits;
    }
    Some(out)
}

fn strings(values: &[&Value]) -> Option<Vec<u8>> {
    let (mut out, mut before): (_, &[u8]) = (Vec::new(), &[]);
    for value in values {
        let bytes = bytes_of(value)?;
        put_string(&mut out, bytes, before);
        before = bytes;
    }
    Some(out)
}

fn wides(values: &[&Value]) -> Option<Vec<u8>> {
    let (mut out, mut before) = (Vec::new(), Vec::new());
    for value in values {
        let [low, high] = wide_of(value)?;
        let mut bytes = Vec::with_capacity(16);
        bytes.put_u64(low);
        bytes.put_u64(high);
        put_string(&mut out, &bytes, &before);
        before = bytes;
    }
    Some(out)
}

/// The first and the last bytes that `bytes` shares with `before`, by number, and the others.
fn put_string(out: &mut Vec<u8>, bytes: &[u8], before: &[u8]) {
    let same = |(a, b): &(&u8, &u8)| a == b;
    let first = bytes.iter().zip(before).take_while(same).count();
    let ((_, bytes), (_, before)) = (bytes.split_at(first), before.split_at(first));
    let last = bytes.iter().rev().zip(before.iter().rev());
    let last = last.take_while(same).count();
    out.put_varint(first as u64);
    out.put_varint(last as u64);
    out.put_bytes(bytes.split_at(bytes.len() - last).0);
}

fn take_string(reader: &mut ByteReader<'_>, before: &[u8]) -> Option<Vec<u8>> {
    let first = before.get(..usize::try_from(reader.varint()?).ok()?)?;
    let last = usize::try_from(reader.varint()?).ok()?;
    let rest = before.get(first.len()..)?;
    let last = rest.get(rest.len().checked_sub(last)?..)?;
    Some([first, reader.bytes()?, last].concat())
}

/// Reads `count` values that [`put_values`] wrote; `None`: malformed.
pub(super) fn take_values<'a>(
    reader: &mut ByteReader<'a>,
    count: usize,
) -> Option<Vec<StoredValue<'a>>> {
    if count == 1 {
        return Some(vec![StoredValue::take(reader)?]);
    }
    let form = reader.u8()?;
    if form == SINGLE {
        return (0..count).map(|_| StoredValue::take(reader)).collect();
    }
    let nulls = match form & HAS_NULLS {
        0 => vec![false; count],
        _ => take_bitmap(reader, count)?,
    };
    let mut before = Before::default();
    let mut value = |is_null| match is_null {
        true => Some(StoredValue::Null),
        false => before.next(form & !HAS_NULLS, reader),
    };
    nulls.into_iter().map(&mut value).collect()
}

/// The value before: its word or bits, or its bytes.
#[derive(Default)]
struct Before {
    word: u64,
    bytes: Vec<u8>,
}

impl Before {
    fn next(&mut self, form: u8, reader: &mut ByteReader<'_>) -> Option<StoredValue<'static>> {
        Some(match form {
            INTEGERS => {
                self.word = self.word.wrapping_add(unzigzag(reader.varint()?) as u64);
                StoredValue::Integer(self.word as i64)
            }
            REALS => {
                let bits = u32::try_from(reader.varint()?).ok()?.swap_bytes();
                self.word ^= u64::from(bits);
                StoredValue::Real(self.word as u32)
            }
            DOUBLES => {
                self.word ^= reader.varint()?.swap_bytes();
                StoredValue::Double(self.word)
            }
            BYTES => {
                self.bytes = take_string(reader, &self.bytes)?;
                StoredValue::Bytes(self.bytes.clone().into())
            }
            WIDE => {
                self.bytes = take_string(reader, &self.bytes)?;
                let bytes = <[u8; 16]>::try_from(self.bytes.as_slice()).ok()?;
                let words = u128::from_le_bytes(bytes);
                StoredValue::Wide([words as u64, (words >> 64) as u64])
            }
            _ => return None,
        })
    }
}

/// Appends a bit per item, the first in the lowest bit of the first byte.
pub(super) fn put_bitmap(out: &mut Vec<u8>, bits: impl Iterator<Item = bool>) {
    let mut bits = bits.peekable();
    while bits.peek().is_some() {
        let byte = (0..8).zip(&mut bits);
        out.put_u8(byte.fold(0, |byte, (at, bit)| byte | u8::from(bit) << at));
    }
}

/// Reads `count` bits that [`put_bitmap`] wrote; `None`: malformed.
pub(super) fn take_bitmap(reader: &mut ByteReader<'_>, count: usize) -> Option<Vec<bool>> {
    let bytes = reader.take(count.div_ceil(8))?;
    let bits_of = |byte: &u8| {
        let byte = *byte;
        (0..8).map(move |at| byte >> at & 1 == 1)
    };
    let bits: Vec<bool> = bytes.iter().flat_map(bits_of).collect();
    let (bits, behind) = bits.split_at(count);
    (!behind.contains(&true)).then(|| bits.to_vec())
}
