//! The 64-bit hash of a key. Equal SQL values have equal hashes. The hash is not stored on disk, so
//! it may change from one version to the next.
//!
//! A key of one integer column goes through the SplitMix64 finalizer, a bijection, so such keys
//! never collide. All other keys are absorbed word by word with the multiply-fold step of the
//! wyhash family: the 128-bit product of two words, high half xor low half. Bytes are absorbed
//! after their length, in pairs of words; the last pair is padded with zeros.
//!
//! Equality is SQL's: −0 equals 0, all NaNs are equal, and `real` widens to `double precision`.
//! Integers of different width compare by value. Intervals compare with months of 30 days and days
//! of 24 hours. `char(n)` values arrive padded, numeric values at their column's scale. Keys of one
//! index have the same column types, so types are not hashed.

use std::cmp::Ordering;
use strandline_base::{Interval, Value};

// Odd constants with random-looking bits: the fractional parts of the square roots of 2, 3, 5, 7.
const K0: u64 = 0x6a09_e667_f3bc_c909;
const K1: u64 = 0xbb67_ae85_84ca_a73b;
const K2: u64 = 0x3c6e_f372_fe94_f82b;
const K3: u64 = 0xa54f_f53a_5f1d_36f1;

/// The hash of a key whose columns have these values, in the order of the key's definition.
pub fn hash_key(values: &[Value]) -> u64 {
    match values {
        [Value::BigInt(v)] => hash_integer(*v),
        [Value::Integer(v)] => hash_integer(i64::from(*v)),
        [Value::SmallInt(v)] => hash_integer(i64::from(*v)),
        _ => {
            let state = values.iter().fold(K0, absorb_value);
            fold(state ^ K2, K3)
        }
    }
}

/// Whether two keys of one index are equal by [`hash_key`]'s rules; NULLs never are.
pub fn is_same_key(a: &[Value], b: &[Value]) -> bool {
    let is_same = |(a, b): (&Value, &Value)| match (a, b) {
        (Value::Interval(a), Value::Interval(b)) => interval_nanos(a) == interval_nanos(b),
        (a, b) => a.compare(b) == Some(Ordering::Equal),
    };
    a.len() == b.len() && a.iter().zip(b).all(is_same)
}

/// The hash of bytes.
pub(crate) fn hash_bytes(bytes: &[u8]) -> u64 {
    fold(absorb_bytes(K0, bytes) ^ K2, K3)
}

/// [`hash_key`] of one smallint, integer or bigint.
#[inline]
pub fn hash_integer(v: i64) -> u64 {
    let mut x = (v as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product >> 64) as u64 ^ product as u64
}

/// Absorbs two words. Both are offset, so that neither is zero for values that occur in practice.
/// The rotated state is added again, so that a zero product does not erase it.
#[inline]
fn absorb(state: u64, a: u64, b: u64) -> u64 {
    fold(a ^ state ^ K1, b ^ K2) ^ state.rotate_left(23)
}

fn absorb_value(state: u64, value: &Value) -> u64 {
    let integer = |v: i64| absorb(state, v as u64, 0);
    match value {
        Value::Null => absorb(state, K3, K3),
        Value::Boolean(v) => integer(i64::from(*v)),
        Value::SmallInt(v) => integer(i64::from(*v)),
        Value::Integer(v) | Value::Date(v) => integer(i64::from(*v)),
        Value::BigInt(v) | Value::Time(v) | Value::Timestamp(v) | Value::TimestampTz(v) => {
            integer(*v)
        }
        Value::Real(v) => absorb(state, canonical_bits(f64::from(*v)), 1),
        Value::Double(v) => absorb(state, canonical_bits(*v), 1),
        Value::Numeric(v) => absorb(state, *v as u64, (*v >> 64) as u64),
        Value::Text(v) => absorb_bytes(state, v.as_bytes()),
        Value::Bytea(v) => absorb_bytes(state, v),
        Value::Interval(v) => {
            let nanos = interval_nanos(v);
            absorb(state, nanos as u64, (nanos >> 64) as u64)
        }
        Value::Uuid(v) => absorb_bytes(state, v),
        Value::Point(v) => {
            let [x, y] = v.words();
            absorb(state, x, y)
        }
        Value::Box(v) => absorb_bytes(state, v.as_bytes()),
    }
}

fn absorb_bytes(state: u64, bytes: &[u8]) -> u64 {
    let word = |b: &[u8]| u64::from_le_bytes(b.try_into().expect("eight bytes of a pair"));
    let mut state = absorb(state, bytes.len() as u64, 2);
    let (pairs, rest) = bytes.as_chunks::<16>();
    for pair in pairs {
        state = absorb(state, word(&pair[..8]), word(&pair[8..]));
    }
    if !rest.is_empty() {
        let mut pair = [0; 16];
        pair[..rest.len()].copy_from_slice(rest);
        state = absorb(state, word(&pair[..8]), word(&pair[8..]));
    }
    state
}

/// The bits of a number, with one form of zero and one of NaN.
pub(crate) fn canonical_bits(v: f64) -> u64 {
    if v.is_nan() {
        f64::NAN.to_bits()
    } else if v == 0.0 {
        0.0_f64.to_bits()
    } else {
        v.to_bits()
    }
}

/// The length of an interval with months of 30 days and days of 24 hours.
pub(crate) fn interval_nanos(v: &Interval) -> i128 {
    const DAY_NANOS: i128 = 86_400_000_000_000;
    let days = i128::from(v.months) * 30 + i128::from(v.days);
    days * DAY_NANOS + i128::from(v.nanos)
}

#[cfg(test)]
mod tests;
