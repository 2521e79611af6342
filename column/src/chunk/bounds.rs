//! Bounds of the non-null values of one block, for pruning.
//!
//! Bounds follow the order of [`Value::compare`](strandline_base::Value::compare): a NaN makes the
//! upper bound NaN. A zero becomes −0.0 as lower and +0.0 as upper bound, so that the bounds also
//! hold under IEEE 754's total order. Text and bytea are cut to [`MAX_BOUND_BYTES`]: the lower
//! bound is a prefix, the upper bound the smallest string that is greater than everything with the
//! prefix.

use crate::types::bytes_at;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type,
    Int16Type, Int32Type, Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef};
use strandline_base::value_words::{
    Physical, physical, value_of_bytes, value_of_wide, value_of_word,
};
use strandline_base::{SqlType, Value};

/// Bytes to which text and bytea bounds are cut.
pub const MAX_BOUND_BYTES: usize = 64;

/// Bounds of one block.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Bounds {
    pub min: Option<Value>,
    pub max: Option<Value>,
    pub exact: bool,
    /// Whether all non-null values have the same bits (and `max` is that value).
    pub constant: bool,
}

/// The bounds of the non-null values of `block`, an array of the type's Arrow type.
pub(super) fn bounds_of(t: SqlType, block: &ArrayRef) -> Bounds {
    if block.null_count() == block.len() {
        return Bounds {
            exact: true,
            ..Bounds::default()
        };
    }
    match t {
        SqlType::Boolean => booleans(block),
        SqlType::SmallInt => integers::<Int16Type>(t, block),
        SqlType::Integer => integers::<Int32Type>(t, block),
        SqlType::BigInt => integers::<Int64Type>(t, block),
        SqlType::Date => integers::<Date32Type>(t, block),
        SqlType::Time => integers::<Time64MicrosecondType>(t, block),
        SqlType::Timestamp | SqlType::TimestampTz => integers::<TimestampMicrosecondType>(t, block),
        SqlType::Numeric { .. } if physical(t) == Physical::Word => {
            integers::<Decimal64Type>(t, block)
        }
        SqlType::Numeric { .. } => {
            let (min, max) = extremes(values::<Decimal128Type>(block), |a, b| a < b);
            let constant = min == max;
            Bounds {
                min: Some(Value::Numeric(min)),
                max: Some(Value::Numeric(max)),
                exact: true,
                constant,
            }
        }
        SqlType::Real => floats::<Float32Type>(block, Value::Real),
        SqlType::Double => floats::<Float64Type>(block, Value::Double),
        SqlType::Uuid => uuids(block),
        SqlType::Interval | SqlType::Json | SqlType::Point | SqlType::Box => Bounds::default(),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Bytea => bytes(t, block),
    }
}

fn values<P: ArrowPrimitiveType>(block: &ArrayRef) -> Box<dyn Iterator<Item = P::Native> + '_> {
    let array = block.as_primitive::<P>();
    match array.nulls() {
        None => Box::new(array.values().iter().copied()),
        Some(nulls) => Box::new(nulls.valid_indices().map(|i| array.value(i))),
    }
}

/// Least and greatest of at least one value.
fn extremes<T: Copy>(mut values: impl Iterator<Item = T>, less: fn(&T, &T) -> bool) -> (T, T) {
    let first = values.next().expect("the block has a non-null value");
    values.fold((first, first), |(min, max), v| {
        (
            if less(&v, &min) { v } else { min },
            if less(&max, &v) { v } else { max },
        )
    })
}

fn integers<P: ArrowPrimitiveType>(t: SqlType, block: &ArrayRef) -> Bounds
where
    P::Native: Ord + Into<i64>,
{
    let array = block.as_primitive::<P>();
    let (min, max) = if array.null_count() == 0 {
        // Two passes over plain slices run at vector speed.
        let slice = array.values();
        let min = slice.iter().copied().min().expect("the block has a value");
        (
            min,
            slice.iter().copied().max().expect("the block has a value"),
        )
    } else {
        extremes(values::<P>(block), |a, b| a < b)
    };
    let value = |v: P::Native| Some(value_of_word(t, v.into() as u64));
    Bounds {
        min: value(min),
        max: value(max),
        exact: true,
        constant: min == max,
    }
}

fn booleans(block: &ArrayRef) -> Bounds {
    let array = block.as_boolean();
    let (trues, valid) = (array.true_count(), array.len() - array.null_count());
    Bounds {
        min: Some(Value::Boolean(trues == valid)),
        max: Some(Value::Boolean(trues > 0)),
        exact: true,
        constant: trues == 0 || trues == valid,
    }
}

fn floats<P: ArrowPrimitiveType>(block: &ArrayRef, value: fn(P::Native) -> Value) -> Bounds
where
    P::Native: Float,
{
    let first = values::<P>(block)
        .next()
        .expect("the block has a non-null value");
    let same = values::<P>(block).all(|v| v.bits() == first.bits());
    let (min, max) = extremes(values::<P>(block), |a, b| a.pg_less(*b));
    let max = max.upper_zero();
    Bounds {
        min: Some(value(min.lower_zero())),
        max: Some(value(max)),
        exact: true,
        // A block of −0.0 only is not constant: its upper bound is +0.0.
        constant: same && max.bits() == first.bits(),
    }
}

/// The operations that bounds need on `f32` and `f64`.
trait Float: Copy {
    fn bits(self) -> u64;
    /// PostgreSQL's order: NaN is greatest and equal to itself.
    fn pg_less(self, other: Self) -> bool;
    fn lower_zero(self) -> Self;
    fn upper_zero(self) -> Self;
}

macro_rules! float {
    ($t:ty) => {
        impl Float for $t {
            fn bits(self) -> u64 {
                u64::from(self.to_bits())
            }
            fn pg_less(self, other: Self) -> bool {
                self < other || (other.is_nan() && !self.is_nan())
            }
            fn lower_zero(self) -> Self {
                if self == 0.0 { -0.0 } else { self }
            }
            fn upper_zero(self) -> Self {
                if self == 0.0 { 0.0 } else { self }
            }
        }
    };
}
float!(f32);
float!(f64);

fn uuids(block: &ArrayRef) -> Bounds {
    let array = block.as_fixed_size_binary();
    let valid = (0..array.len())
        .filter(|&i| array.is_valid(i))
        .map(|i| array.value(i));
    let (min, max) = extremes(valid, |a, b| a < b);
    let value = |v: &[u8]| {
        let bytes: [u8; 16] = v.try_into().expect("uuid arrays hold 16 bytes");
        let whole = u128::from_le_bytes(bytes);
        Some(value_of_wide(
            SqlType::Uuid,
            [whole as u64, (whole >> 64) as u64],
        ))
    };
    Bounds {
        min: value(min),
        max: value(max),
        exact: true,
        constant: min == max,
    }
}

fn bytes(t: SqlType, block: &ArrayRef) -> Bounds {
    let valid = (0..block.len()).filter_map(|row| bytes_at(t, block, row));
    let (min, max) = extremes(valid, |a, b| a < b);
    let text = t != SqlType::Bytea;
    let value = |bytes: &[u8]| value_of_bytes(t, bytes).ok();
    Bounds {
        min: value(cut(min, text)),
        max: if max.len() <= MAX_BOUND_BYTES {
            value(max)
        } else {
            next_after_prefix(cut(max, text), text).and_then(|b| value(&b))
        },
        exact: min.len() <= MAX_BOUND_BYTES && max.len() <= MAX_BOUND_BYTES,
        constant: min == max && max.len() <= MAX_BOUND_BYTES,
    }
}

/// The longest prefix of at most [`MAX_BOUND_BYTES`] bytes, of whole characters if `text`.
fn cut(bytes: &[u8], text: bool) -> &[u8] {
    if bytes.len() <= MAX_BOUND_BYTES {
        return bytes;
    }
    let mut end = MAX_BOUND_BYTES;
    while text && bytes[end] & 0xc0 == 0x80 {
        end -= 1;
    }
    &bytes[..end]
}

/// The least string that is greater than every string with the prefix `prefix`; `None` if there is
/// none (the prefix has only the greatest character).
pub(super) fn next_after_prefix(prefix: &[u8], text: bool) -> Option<Vec<u8>> {
    if !text {
        let last = prefix.iter().rposition(|&b| b != 0xff)?;
        let mut out = prefix[..=last].to_vec();
        out[last] += 1;
        return Some(out);
    }
    let mut chars: Vec<char> = std::str::from_utf8(prefix).ok()?.chars().collect();
    while let Some(last) = chars.pop() {
        // The code points above U+D7FF continue at U+E000.
        let next = if last == '\u{d7ff}' {
            0xe000
        } else {
            u32::from(last) + 1
        };
        if let Some(next) = char::from_u32(next) {
            chars.push(next);
            return Some(chars.into_iter().collect::<String>().into_bytes());
        }
    }
    None
}
