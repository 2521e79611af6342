//! Floats of one block, compressed as decimals \[ALP §3\].
//!
//! Most floats of a database come from decimals: prices, readings, coordinates. Such a float is
//! `integer / 10^digits`, correctly rounded, for a small integer. A block stores the number of
//! digits once and the integers as [`integers`]. The encoder tries every number of digits on a
//! sample. Floats that the division does not reproduce bit for bit are *exceptions*: NaNs with
//! their payloads, infinities, −0.0, subnormals, most results of calculations. They are stored in
//! full and applied after the division. A block that decimals do not shrink by a tenth is stored
//! plainly.
//!
//! Invariants:
//! 1. decoding gives the correctly rounded quotient on every processor; the encoder uses an integer
//!    only if that quotient has the bits of the float;
//! 2. every length and every row in the bytes is checked before it is used.
//!
//! Vectors divide slowly, so the decoder multiplies if the processor has a fused multiply-add
//! ([`Inverse`]).
//!
//! Differences from the paper: one exponent replaces two. The paper multiplies by a rounded
//! inverse, whose error a second power of ten must hide. Here integer and power of ten are exact
//! and the quotient is the float nearest to the decimal, so decimals of up to 15 digits are never
//! exceptions. Common factors of the integers are found by their own encoding. `f32` is computed as
//! `f64`. The paper's scheme for floats that are no decimals is not used.

use super::bit_packing::has_fused_multiply_add;
use super::integers::{self, Word};
use super::undecodable;
use arrow_buffer::{ArrowNativeType, ToByteSlice};
use strandline_base::bytes::{ByteReader, PutBytes};
use strandline_base::{Error, Result};

const PLAIN: u8 = 0;
const DECIMALS: u8 = 1;

/// The powers of ten by their exponent, which `f64` represents exactly.
const POWERS: [f64; 19] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18,
];
/// About as many values of a block serve to choose the number of digits.
const SAMPLE_VALUES: usize = 128;
/// Bytes of an exception's row.
const ROW_BYTES: usize = 2;

/// 1.5 × 2^52. Floats of this magnitude are integers, and the low bits of `ROUNDING + n` are those
/// of the integer n. Unlike casts of 64 bits, sums have a vector instruction in every processor.
const ROUNDING: f64 = 6_755_399_441_055_744.0;
/// Up to this magnitude n, `ROUNDING ± n` is exact.
const ROUNDING_RANGE: f64 = (1u64 << 51) as f64;

/// A type of floats.
pub(super) trait Float: ArrowNativeType {
    /// The integers of its decimals, of the same width.
    type Integer: Word;
    /// The greatest magnitude of those integers.
    const GREATEST: f64;
    /// The float with the low bits of `word`.
    fn of_word(word: u64) -> Self;
    /// The bits, zero-extended.
    fn word(self) -> u64;
    /// The same number.
    fn wide(self) -> f64;
    /// The nearest float.
    fn narrow(wide: f64) -> Self;
    /// The number of one of its integers.
    fn number(integer: Self::Integer) -> f64;
    /// The values of little-endian bytes.
    fn of_bytes(bytes: &[u8]) -> impl Iterator<Item = Self>;
}

macro_rules! float {
    ($t:ty, $integer:ty, $greatest:expr, $number:path) => {
        impl Float for $t {
            type Integer = $integer;
            const GREATEST: f64 = $greatest;
            #[inline(always)]
            fn of_word(word: u64) -> Self {
                Self::from_bits(word as $integer)
            }
            #[inline(always)]
            fn word(self) -> u64 {
                u64::from(self.to_bits())
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn narrow(wide: f64) -> Self {
                wide as $t
            }
            #[inline(always)]
            fn number(integer: $integer) -> f64 {
                $number(integer)
            }
            fn of_bytes(bytes: &[u8]) -> impl Iterator<Item = Self> {
                let (values, _) = bytes.as_chunks();
                values.iter().map(|bytes| Self::from_le_bytes(*bytes))
            }
        }
    };
}
float!(f32, u32, i32::MAX as f64, number_of_32);
float!(f64, u64, ROUNDING_RANGE, number_of_52);

/// The number of a sign-extended integer of 32 bits.
#[inline(always)]
fn number_of_32(integer: u32) -> f64 {
    f64::from(integer as i32)
}

/// The number of an integer within [`ROUNDING_RANGE`].
#[inline(always)]
fn number_of_52(integer: u64) -> f64 {
    f64::from_bits(ROUNDING.to_bits().wrapping_add(integer)) - ROUNDING
}

/// The inverse of a power of ten as a sum of two floats, with a relative error below 2^-106.
///
/// `integer × high + integer × low`, rounded once, has an error below 2^-104 before that rounding.
/// A quotient by 10^18 or less that lies between two floats is farther than 2^-97 from the middle
/// between them: `integer / 10^d - middle` is a multiple of a power of two, divided by 5^d. So the
/// sum is rounded to the same float as the quotient.
#[derive(Clone, Copy)]
struct Inverse {
    high: f64,
    low: f64,
}

impl Inverse {
    fn of(power: f64) -> Self {
        let high = 1.0 / power;
        let low = (-power).mul_add(high, 1.0) / power;
        Self { high, low }
    }

    /// `number / power`, rounded to the nearest.
    #[inline(always)]
    fn quotient(self, number: f64) -> f64 {
        number.mul_add(self.high, number * self.low)
    }
}

/// The integer whose quotient is `value`, bit for bit.
fn integer_of<F: Float>(value: F, power: f64) -> Option<i64> {
    let scaled = value.wide() * power;
    // False for NaN.
    if scaled.abs() <= F::GREATEST {
        let integer = (scaled + ROUNDING - ROUNDING) as i64;
        let number = F::number(F::Integer::of(integer as u64));
        return (F::narrow(number / power).word() == value.word()).then_some(integer);
    }
    None
}

/// Appends a block of values.
pub(super) fn encode<F: Float>(values: &[F], out: &mut Vec<u8>) {
    // Floats are kept in the processor's order; the format is little-endian.
    const { assert!(cfg!(target_endian = "little")) };
    let (start, plain) = (out.len(), 1 + size_of_val(values));
    if let Some((digits, power)) = best_power(values) {
        encode_decimals(values, digits, power, out);
        if (out.len() - start) * 10 < plain * 9 {
            return;
        }
        out.truncate(start);
    }
    out.put_u8(PLAIN);
    out.extend_from_slice(values.to_byte_slice());
}

/// The number of digits, and its power of ten, with which decimals of a sample take the fewest
/// bits; `None` if they take no fewer than the floats.
fn best_power<F: Float>(values: &[F]) -> Option<(usize, f64)> {
    // An odd step meets all phases of data with a period of a power of two.
    let step = (values.len() / SAMPLE_VALUES) | 1;
    let sample: Vec<F> = values.iter().copied().step_by(step).collect();
    let sizes = POWERS.iter().enumerate();
    let sizes = sizes.map(|(digits, power)| (decimals_bits(&sample, *power), digits, *power));
    let (bits, digits, power) = sizes.min_by_key(|(bits, ..)| *bits)?;
    (bits < sample.len() * 8 * size_of::<F>()).then_some((digits, power))
}

/// The approximate bits of values as decimals.
fn decimals_bits<F: Float>(values: &[F], power: f64) -> usize {
    let (mut least, mut greatest, mut exceptions) = (i64::MAX, i64::MIN, 0);
    for value in values {
        match integer_of(*value, power) {
            Some(integer) => {
                least = least.min(integer);
                greatest = greatest.max(integer);
            }
            None => exceptions += 1,
        }
    }
    let range = greatest.saturating_sub(least).max(0);
    let bits = (i64::BITS - range.leading_zeros()) as usize;
    values.len() * bits + exceptions * 8 * (ROW_BYTES + size_of::<F>())
}

fn encode_decimals<F: Float>(values: &[F], digits: usize, power: f64, out: &mut Vec<u8>) {
    let integers: Vec<_> = values.iter().map(|v| integer_of(*v, power)).collect();
    // An exception repeats the integer before it, which costs the least space.
    let mut last = integers.iter().flatten().copied().next().unwrap_or(0);
    let filled = integers.iter().map(|integer| {
        last = integer.unwrap_or(last);
        last
    });
    let filled: Vec<i64> = filled.collect();
    let exceptions = integers.iter().zip(values).zip(0u16..);
    let exceptions = exceptions.filter(|((integer, _), _)| integer.is_none());
    let (exact, rows): (Vec<F>, Vec<u16>) = exceptions.map(|((_, v), row)| (*v, row)).unzip();

    out.put_u8(DECIMALS);
    out.put_u8(digits as u8);
    integers::encode::<F::Integer>(&filled, out);
    out.put_varint(rows.len() as u64);
    out.extend_from_slice(rows.to_byte_slice());
    out.extend_from_slice(exact.to_byte_slice());
}

/// Decodes `rows` values that [`encode`] wrote and appends them.
///
/// # Errors
/// Bytes that [`encode`] cannot have written are a corruption error.
pub(super) fn decode<F: Float>(
    rows: usize,
    reader: &mut ByteReader<'_>,
    values: &mut Vec<F>,
) -> Result<()> {
    decode_with(has_fused_multiply_add(), rows, reader, values)
}

fn decode_with<F: Float>(
    is_fused: bool,
    rows: usize,
    reader: &mut ByteReader<'_>,
    values: &mut Vec<F>,
) -> Result<()> {
    match reader.u8().ok_or_else(cut_off)? {
        PLAIN => {
            let bytes = reader.take(rows * size_of::<F>()).ok_or_else(cut_off)?;
            values.extend(F::of_bytes(bytes));
            Ok(())
        }
        DECIMALS => decode_decimals(is_fused, rows, reader, values),
        form => Err(undecodable(format!("unknown form {form} of floats"))),
    }
}

fn decode_decimals<F: Float>(
    is_fused: bool,
    rows: usize,
    reader: &mut ByteReader<'_>,
    values: &mut Vec<F>,
) -> Result<()> {
    let digits = reader.u8().ok_or_else(cut_off)?;
    let power = POWERS.get(usize::from(digits)).copied();
    let power = power.ok_or_else(|| undecodable(format!("decimals of {digits} digits")))?;
    let start = values.len();
    if is_fused {
        let inverse = Inverse::of(power);
        let decimal = |integer| F::narrow(inverse.quotient(F::number(integer)));
        integers::decode_as(rows, reader, values, decimal)?;
    } else {
        let decimal = |integer| F::narrow(F::number(integer) / power);
        integers::decode_as(rows, reader, values, decimal)?;
    }

    let exceptions = reader.varint().and_then(|n| usize::try_from(n).ok());
    let exceptions = exceptions.filter(|&n| n <= rows);
    let exceptions = exceptions.ok_or_else(|| undecodable("more exceptions than rows".into()))?;
    let at = reader.take(exceptions * ROW_BYTES).ok_or_else(cut_off)?;
    let exact = reader.take(exceptions * size_of::<F>());
    let exact = F::of_bytes(exact.ok_or_else(cut_off)?);
    for (row, exact) in at.as_chunks().0.iter().zip(exact) {
        let row = u16::from_le_bytes(*row);
        let value = values.get_mut(start + usize::from(row));
        *value.ok_or_else(|| undecodable(format!("an exception of row {row}")))? = exact;
    }
    Ok(())
}

fn cut_off() -> Error {
    undecodable("the bytes end early".to_owned())
}

#[cfg(test)]
mod tests;
