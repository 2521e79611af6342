//! Exact sums in 128 bits: of integers and decimals, over whole columns, per group, over sliding
//! frames and over distinct values.
//!
//! 64-bit inputs cannot overflow 128 bits before 2^64 rows, so their loops carry no checks. Sums
//! of 128-bit decimals are checked at every addition. The result is checked once against its type.

use crate::decimal::{MAX_DIGITS, divide_rounded, power_of_ten};
use crate::error::{numeric_overflow, out_of_range};
use datafusion::arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, Decimal128Array, Int64Array,
    PrimitiveArray,
};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{
    DataType, Decimal64Type, Decimal128Type, Int16Type, Int32Type, Int64Type, i256,
};
use datafusion::common::{Result, internal_err};

/// Types whose values add up exactly.
pub trait Exact: ArrowPrimitiveType + Send {
    /// Whether 2^64 of its values fit 128 bits.
    const NARROW: bool;
    /// The value.
    fn widen(value: Self::Native) -> i128;
    /// The sum of a slice; `None` if it overflows.
    fn sum(values: &[Self::Native]) -> Option<i128>;
}

macro_rules! exact_narrow {
    ($t:ty, $sum:expr) => {
        impl Exact for $t {
            const NARROW: bool = true;
            fn widen(value: Self::Native) -> i128 {
                i128::from(value)
            }
            fn sum(values: &[Self::Native]) -> Option<i128> {
                Some($sum(values))
            }
        }
    };
}
exact_narrow!(Int16Type, |v: &[i16]| v
    .iter()
    .map(|&x| i64::from(x))
    .sum::<i64>()
    .into());
exact_narrow!(Int32Type, |v: &[i32]| v
    .iter()
    .map(|&x| i64::from(x))
    .sum::<i64>()
    .into());
exact_narrow!(Int64Type, sum_of_words);
exact_narrow!(Decimal64Type, sum_of_words);

impl Exact for Decimal128Type {
    const NARROW: bool = false;
    fn widen(value: i128) -> i128 {
        value
    }
    fn sum(values: &[i128]) -> Option<i128> {
        let mut overflow = false;
        let sum = values.iter().fold(0i128, |sum, &x| {
            let (sum, fault) = sum.overflowing_add(x);
            overflow |= fault;
            sum
        });
        (!overflow).then_some(sum)
    }
}

/// Values whose halves can be summed in 64 bits without overflow.
const WORDS_PER_STEP: usize = 1 << 30;

/// The sum of 64-bit integers. The upper half of each (shifted to be unsigned) and its lower half
/// are summed apart in 64-bit lanes, which the compiler vectorises; two additions per value.
pub fn sum_of_words(values: &[i64]) -> i128 {
    let mut total = 0i128;
    for step in values.chunks(WORDS_PER_STEP) {
        let (mut high, mut low) = (0u64, 0u64);
        for &value in step {
            let biased = (value as u64) ^ (1 << 63);
            high += biased >> 32;
            low += biased & 0xffff_ffff;
        }
        let bias = (step.len() as i128) << 63;
        total += (i128::from(high) << 32) + i128::from(low) - bias;
    }
    total
}

/// The sum and the number of the values that are not NULL; `None` if the sum overflows.
pub fn sum_and_count<P: Exact>(array: &PrimitiveArray<P>) -> Option<(i128, usize)> {
    let count = array.len() - array.null_count();
    let Some(nulls) = array.nulls().filter(|_| count < array.len()) else {
        return Some((P::sum(array.values())?, count));
    };
    let mut sum = 0i128;
    for (start, end) in nulls.valid_slices() {
        let part = if end - start == 1 {
            P::widen(array.value(start))
        } else {
            P::sum(&array.values()[start..end])?
        };
        sum = sum.checked_add(part)?;
    }
    Some((sum, count))
}

/// Calls `$body` with `$P` bound to the array's type.
macro_rules! with_exact_type {
    ($data_type:expr, $P:ident => $body:expr) => {
        match $data_type {
            DataType::Int16 => {
                type $P = Int16Type;
                $body
            }
            DataType::Int32 => {
                type $P = Int32Type;
                $body
            }
            DataType::Int64 => {
                type $P = Int64Type;
                $body
            }
            DataType::Decimal64(..) => {
                type $P = Decimal64Type;
                $body
            }
            DataType::Decimal128(..) => {
                type $P = Decimal128Type;
                $body
            }
            other => internal_err!("no exact sum of {other}"),
        }
    };
}
pub(super) use with_exact_type;

/// [`sum_and_count`] of an array of any exact type; an overflow is 22003.
pub fn sum_and_count_of(array: &ArrayRef) -> Result<(i128, usize)> {
    with_exact_type!(array.data_type(), P => {
        sum_and_count(array.as_primitive::<P>()).ok_or_else(numeric_overflow)
    })
}

/// The conversion of a finished sum (and count) to the result type.
#[derive(Clone, Debug)]
pub enum Finish {
    /// `sum(smallint)`, `sum(integer)`.
    Bigint,
    /// `sum` of bigint and numeric; the scale is the input's.
    Numeric {
        /// Digits after the point.
        scale: i8,
    },
    /// `avg`; the sum has `from` digits after the point, the result `to`.
    Average {
        /// Scale of the sum.
        from: i8,
        /// Scale of the result, at least `from`.
        to: i8,
    },
}

impl Finish {
    /// The result type.
    pub fn data_type(&self) -> DataType {
        match self {
            Finish::Bigint => DataType::Int64,
            Finish::Numeric { scale } | Finish::Average { to: scale, .. } => {
                DataType::Decimal128(MAX_DIGITS, *scale)
            }
        }
    }
    /// The type of partial sums.
    pub fn state_type(&self) -> DataType {
        match self {
            Finish::Bigint => DataType::Decimal128(MAX_DIGITS, 0),
            Finish::Numeric { scale } | Finish::Average { from: scale, .. } => {
                DataType::Decimal128(MAX_DIGITS, *scale)
            }
        }
    }
    /// The result of one group; `count` is positive.
    pub fn value(&self, sum: i128, count: i64) -> Result<i128> {
        match self {
            Finish::Bigint => match i64::try_from(sum) {
                Ok(_) => Ok(sum),
                Err(_) => Err(out_of_range("bigint")),
            },
            Finish::Numeric { .. } => within_digits(sum),
            Finish::Average { from, to } => average(sum, count, (to - from) as u8),
        }
    }
    /// The results of many groups.
    pub fn array(
        &self,
        sums: Vec<i128>,
        counts: impl Iterator<Item = i64>,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        let mut values = sums;
        for (i, (value, count)) in values.iter_mut().zip(counts).enumerate() {
            if nulls.as_ref().is_none_or(|n| n.is_valid(i)) {
                *value = self.value(*value, count)?;
            }
        }
        if let Finish::Bigint = self {
            let values: Vec<i64> = values.into_iter().map(|v| v as i64).collect();
            return Ok(std::sync::Arc::new(Int64Array::new(values.into(), nulls)));
        }
        let array = Decimal128Array::new(values.into(), nulls).with_data_type(self.data_type());
        Ok(std::sync::Arc::new(array))
    }
}

fn within_digits(value: i128) -> Result<i128> {
    if value.unsigned_abs() >= power_of_ten(MAX_DIGITS) as u128 {
        return Err(numeric_overflow());
    }
    Ok(value)
}

/// `sum / count` with `shift` more digits, rounded half away from zero.
fn average(sum: i128, count: i64, shift: u8) -> Result<i128> {
    let factor = power_of_ten(shift);
    if let Some(numerator) = sum.checked_mul(factor) {
        return within_digits(divide_rounded(numerator, i128::from(count)));
    }
    let whole = i256::from_i128(sum / i128::from(count)).wrapping_mul(i256::from_i128(factor));
    let rest = i256::from_i128(sum % i128::from(count)).wrapping_mul(i256::from_i128(factor));
    let rest = rest.to_i128().ok_or_else(numeric_overflow)?;
    let rest = i256::from_i128(divide_rounded(rest, i128::from(count)));
    within_digits(
        whole
            .wrapping_add(rest)
            .to_i128()
            .ok_or_else(numeric_overflow)?,
    )
}

/// The NULLs of `array`, and NULL for the rows that `filter` rejects.
pub fn nulls_with_filter(array: &ArrayRef, filter: Option<&BooleanArray>) -> Option<NullBuffer> {
    let passes = filter.map(|f| match f.nulls() {
        Some(nulls) => NullBuffer::new(f.values() & nulls.inner()),
        None => NullBuffer::new(f.values().clone()),
    });
    NullBuffer::union(array.nulls(), passes.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_sums_match_wide_sums() {
        let mut seed = 7u64;
        let mut next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            seed as i64
        };
        for length in [0, 1, 2, 7, 8, 100, 8_192] {
            let values: Vec<i64> = (0..length).map(|_| next()).collect();
            assert_eq!(
                sum_of_words(&values),
                values.iter().map(|&v| i128::from(v)).sum()
            );
        }
        let extremes = [i64::MIN, i64::MIN, i64::MAX, -1, 0, 1, i64::MIN];
        assert_eq!(
            sum_of_words(&extremes),
            extremes.iter().map(|&v| i128::from(v)).sum()
        );
    }

    #[test]
    fn nulls_do_not_count() {
        let array = Int64Array::from(vec![None, Some(5), None, Some(-7), Some(i64::MAX)]);
        assert_eq!(sum_and_count(&array), Some((i128::from(i64::MAX) - 2, 3)));
        let empty = Int64Array::from(vec![None, None]);
        assert_eq!(sum_and_count(&empty), Some((0, 0)));
    }

    #[test]
    fn averages_round_and_survive_large_sums() {
        assert_eq!(average(10, 4, 1).expect("fits"), 25);
        assert_eq!(average(-1, 3, 2).expect("fits"), -33);
        assert_eq!(average(-2, 3, 0).expect("fits"), -1);
        let sum = 10i128.pow(30);
        assert_eq!(
            average(sum, 1_000_000_000, 16).expect("fits"),
            10i128.pow(37)
        );
        assert!(average(sum, 1, 16).is_err());
    }
}
