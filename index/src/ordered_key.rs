//! The bytes of a key in an ordered index. Comparing them as bytes orders keys like ORDER BY.
//!
//! A key is the sequence of its parts. A part is a marker byte, which puts NULL before or behind
//! all values, followed by the value's order-preserving bytes. A descending part has these
//! inverted.
//!
//! | value | bytes |
//! |---|---|
//! | boolean | 1 |
//! | smallint, integer, bigint | 8: big-endian, sign bit inverted |
//! | real, double precision | 8: IEEE 754, inverted below zero, else the sign; one 0 and NaN |
//! | numeric | 16: the unscaled integer, so that one index has one scale |
//! | date; time, timestamp, timestamptz | 4; 8 |
//! | interval | 16: its length with months of 30 days and days of 24 hours |
//! | text, bytea | the bytes with 0 as 1 1 and 1 as 1 2, then 0 |
//! | uuid | 16 |
//! | point, box | 16; 32: for columns beside a key only, since these types have no order |
//!
//! Integers of different width, and both floating types, have the same bytes for equal values, like
//! they have the same hash in a hash index.
//!
//! Invariants:
//! 1. Keys of one index have equal bytes if and only if the values are equal by [`Value::compare`],
//!    where NULL equals NULL, unless they are cut.
//! 2. No key's bytes begin with another key's bytes. So the keys with the same leading parts are
//!    those from these parts' bytes up to the bytes' [`successor`].
//! 3. A key of more than [`PREFIX_BYTES`] bytes is *cut*: it has its first `PREFIX_BYTES` bytes and
//!    a hash of all of them, and [`KeyBytes::is_cut`] is true. Two cut keys with one prefix may be
//!    in any order, and different keys may have the same bytes. A cut key and an uncut one are in
//!    order, because the shorter one does not begin the longer one (2).

mod decode;

use crate::access_method::{KeyBytes, KeyRange};
use crate::key_hash::{canonical_bits, hash_bytes, interval_nanos};
use std::ops::Bound;
use std::sync::Arc;
use strandline_base::Value;

/// Bytes that a cut key keeps.
const PREFIX_BYTES: usize = KeyBytes::CUT_BYTES - size_of::<u64>();

/// Marker of NULL before all values.
const NULL_FIRST: u8 = 0;
/// Marker of a value.
const VALUE: u8 = 1;
/// Marker of NULL behind all values.
const NULL_LAST: u8 = 2;

/// The order of one part of an index's key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PartOrder {
    /// DESC
    pub descending: bool,
    /// NULLS FIRST, independent of the direction
    pub nulls_first: bool,
}

/// The encoder of the keys of one ordered index; cheap to clone.
#[derive(Clone, Debug)]
pub struct OrderedKeys {
    parts: Arc<[PartOrder]>,
}

impl OrderedKeys {
    /// An encoder of keys with these parts, in the order of the index's definition.
    pub fn new(parts: impl Into<Arc<[PartOrder]>>) -> Self {
        Self {
            parts: parts.into(),
        }
    }

    /// The order of the parts.
    pub fn parts(&self) -> &[PartOrder] {
        &self.parts
    }

    /// The bytes of a key, which must have a value for each part.
    pub fn encode(&self, key: &[Value]) -> KeyBytes {
        let mut bytes = Vec::with_capacity(32);
        self.encode_onto(key, &mut bytes);
        KeyBytes::encoded(bytes)
    }

    /// Appends the bytes of a key.
    pub(crate) fn encode_onto(&self, key: &[Value], bytes: &mut Vec<u8>) {
        debug_assert_eq!(key.len(), self.parts.len(), "a value for each part");
        let start = bytes.len();
        self.put_parts(key, bytes);
        if bytes.len() - start > PREFIX_BYTES {
            let hash = hash_bytes(&bytes[start..]);
            bytes.truncate(start + PREFIX_BYTES);
            bytes.extend(hash.to_be_bytes());
        }
    }

    /// The range of keys whose leading parts equal `equal` and whose next part lies within the
    /// bounds. NULL in `equal` means IS NULL.
    ///
    /// `lower` is the bound that a forward cursor meets first; for a descending part that is the
    /// greater value. Keys whose next part is NULL lie outside, unless a bound is NULL: such a
    /// bound is the position of NULL. Without a next part the bounds are ignored.
    ///
    /// Where keys are cut, the range may contain keys outside the bounds; the caller compares the
    /// rows' values anyway.
    pub fn range(&self, equal: &[Value], lower: Bound<&Value>, upper: Bound<&Value>) -> KeyRange {
        let Some(next) = self.parts.get(equal.len()) else {
            let key = self.encode(equal);
            let before = successor(key.as_slice().to_vec());
            return KeyRange {
                from: Some(key),
                before: before.map(KeyBytes::encoded),
            };
        };
        let mut leading = Vec::with_capacity(32);
        self.put_parts(equal, &mut leading);
        let bound = |value: &Value| {
            let mut bytes = leading.clone();
            next.put(value, &mut bytes);
            let is_cut = bytes.len() > PREFIX_BYTES;
            bytes.truncate(PREFIX_BYTES);
            (bytes, is_cut)
        };
        let marker = |marker: u8| {
            let mut bytes = leading.clone();
            bytes.push(marker);
            bytes.truncate(PREFIX_BYTES);
            bytes
        };
        let from = match lower {
            Bound::Unbounded => Some(marker(VALUE)),
            Bound::Included(value) => Some(bound(value).0),
            Bound::Excluded(value) => match bound(value) {
                (bytes, true) => Some(bytes),
                (bytes, false) => successor(bytes),
            },
        };
        let before = match upper {
            Bound::Unbounded => successor(marker(VALUE)),
            Bound::Included(value) => successor(bound(value).0),
            Bound::Excluded(value) => match bound(value) {
                (bytes, true) => successor(bytes),
                (bytes, false) => Some(bytes),
            },
        };
        KeyRange {
            from: from.map(KeyBytes::encoded),
            before: before.map(KeyBytes::encoded),
        }
    }

    /// The range of all keys whose leading parts equal `equal`, whatever the other parts are, NULL
    /// included. NULL in `equal` means IS NULL.
    pub fn prefix(&self, equal: &[Value]) -> KeyRange {
        if equal.len() == self.parts.len() {
            return self.range(equal, Bound::Unbounded, Bound::Unbounded);
        }
        let mut bytes = Vec::with_capacity(32);
        self.put_parts(equal, &mut bytes);
        bytes.truncate(PREFIX_BYTES);
        let from = (!bytes.is_empty()).then(|| KeyBytes::encoded(bytes.as_slice()));
        KeyRange {
            from,
            before: successor(bytes).map(KeyBytes::encoded),
        }
    }

    fn put_parts(&self, values: &[Value], bytes: &mut Vec<u8>) {
        for (part, value) in self.parts.iter().zip(values) {
            part.put(value, bytes);
        }
    }
}

impl PartOrder {
    #[inline]
    fn put(self, value: &Value, bytes: &mut Vec<u8>) {
        if value.is_null() {
            bytes.push(if self.nulls_first {
                NULL_FIRST
            } else {
                NULL_LAST
            });
            return;
        }
        bytes.push(VALUE);
        let start = bytes.len();
        put_value(value, bytes);
        if self.descending {
            bytes[start..].iter_mut().for_each(|byte| *byte = !*byte);
        }
    }
}

#[inline]
fn put_value(value: &Value, bytes: &mut Vec<u8>) {
    let mut put_i64 = |v: i64| bytes.extend((v ^ i64::MIN).to_be_bytes());
    match value {
        Value::Null => {}
        Value::Boolean(v) => bytes.push(u8::from(*v)),
        Value::SmallInt(v) => put_i64(i64::from(*v)),
        Value::Integer(v) => put_i64(i64::from(*v)),
        Value::BigInt(v) | Value::Time(v) | Value::Timestamp(v) | Value::TimestampTz(v) => {
            put_i64(*v);
        }
        Value::Date(v) => bytes.extend((v ^ i32::MIN).to_be_bytes()),
        Value::Real(v) => put_float(f64::from(*v), bytes),
        Value::Double(v) => put_float(*v, bytes),
        Value::Numeric(v) => bytes.extend((v ^ i128::MIN).to_be_bytes()),
        Value::Text(v) => put_escaped(v.as_bytes(), bytes),
        Value::Bytea(v) => put_escaped(v, bytes),
        Value::Interval(v) => bytes.extend((interval_nanos(v) ^ i128::MIN).to_be_bytes()),
        Value::Uuid(v) => bytes.extend(v),
        Value::Point(v) => bytes.extend(v.words().map(u64::to_be_bytes).as_flattened()),
        Value::Box(v) => bytes.extend(v.as_bytes()),
    }
}

fn put_float(v: f64, bytes: &mut Vec<u8>) {
    const SIGN: u64 = 1 << 63;
    let bits = canonical_bits(v);
    let ordered = if bits & SIGN == 0 { bits | SIGN } else { !bits };
    bytes.extend(ordered.to_be_bytes());
}

/// Appends a value that 0 ends, so that a prefix sorts first; 0 and 1 within it are escaped by 1.
fn put_escaped(mut value: &[u8], bytes: &mut Vec<u8>) {
    while let Some(at) = value.iter().position(|byte| *byte < 2) {
        let (plain, rest) = value.split_at(at);
        bytes.extend_from_slice(plain);
        bytes.extend([1, rest[0] + 1]);
        value = &rest[1..];
    }
    bytes.extend_from_slice(value);
    bytes.push(0);
}

/// The smallest bytes greater than all that begin with `bytes`; None if there are none.
fn successor(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = bytes.pop() {
        if last < u8::MAX {
            bytes.push(last + 1);
            return Some(bytes);
        }
    }
    None
}

#[cfg(all(test, not(shuttle)))]
mod tests;
