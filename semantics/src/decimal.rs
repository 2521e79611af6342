//! The shapes of numeric values: precision, scale and the width of the integer that holds them.
//!
//! A numeric of at most [`NARROW_DIGITS`] digits is an Arrow `Decimal64`, a wider one a
//! `Decimal128`. A result is narrow only if its precision follows from the operands' precisions.

use datafusion::arrow::datatypes::DataType;
use strandline_base::SqlType;

/// Digits that a 64-bit numeric holds.
pub const NARROW_DIGITS: u8 = strandline_base::value_words::NUMERIC_WORD_PRECISION;
/// Digits that a 128-bit numeric holds, the most in all computations.
pub const MAX_DIGITS: u8 = 38;
/// The least fractional digits of a quotient. PostgreSQL gives a quotient at least 16 significant
/// digits and chooses their number by the values (20 for most below 1); here the types determine
/// it.
pub const QUOTIENT_SCALE: u8 = 20;
/// The least fractional digits of an average, and of numerics of unknown scale.
pub const AVERAGE_SCALE: u8 = 16;
/// The least fractional digits of a product whose exact scale would leave too few integer digits
/// within [`MAX_DIGITS`].
pub const PRODUCT_SCALE: u8 = 20;

/// Precision and scale of a numeric type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Decimal digits in all, 1 to 38.
    pub precision: u8,
    /// Decimal digits after the point, 0 to `precision`.
    pub scale: u8,
}

impl Shape {
    /// A shape; the precision is capped at [`MAX_DIGITS`].
    pub fn new(precision: u8, scale: u8) -> Self {
        let precision = precision.min(MAX_DIGITS).max(scale).max(1);
        Self { precision, scale }
    }
    /// The shape of a decimal or integer type; `None` for other types and negative scales.
    pub fn of(data_type: &DataType) -> Option<Self> {
        let (precision, scale) = match data_type {
            DataType::Decimal32(p, s)
            | DataType::Decimal64(p, s)
            | DataType::Decimal128(p, s)
            | DataType::Decimal256(p, s) => (*p, u8::try_from(*s).ok()?),
            DataType::Int8 => (3, 0),
            DataType::Int16 => (5, 0),
            DataType::Int32 => (10, 0),
            DataType::Int64 => (19, 0),
            _ => return None,
        };
        Some(Self::new(precision, scale))
    }
    /// Digits before the point.
    pub fn integer_digits(self) -> u8 {
        self.precision - self.scale
    }
    /// Whether 64 bits hold it.
    pub fn is_narrow(self) -> bool {
        self.precision <= NARROW_DIGITS
    }
    /// The Arrow type of this shape.
    pub fn data_type(self) -> DataType {
        if self.is_narrow() {
            DataType::Decimal64(self.precision, self.scale as i8)
        } else {
            DataType::Decimal128(self.precision, self.scale as i8)
        }
    }
    /// The smallest shape that holds both operands' values exactly, and whether 38 digits do.
    pub fn common(self, other: Self) -> (Self, bool) {
        let scale = self.scale.max(other.scale);
        let precision = self.integer_digits().max(other.integer_digits()) + scale;
        (Self::new(precision, scale), precision <= MAX_DIGITS)
    }
}

/// 10^`exponent`; `exponent` ≤ 38.
pub fn power_of_ten(exponent: u8) -> i128 {
    10i128.pow(u32::from(exponent))
}

/// Decimal digits of `value`, at least 1.
pub fn digits(value: i128) -> u8 {
    value
        .unsigned_abs()
        .checked_ilog10()
        .map_or(1, |n| n as u8 + 1)
}

/// `numerator / denominator` rounded half away from zero; the denominator is not zero.
pub fn divide_rounded(numerator: i128, denominator: i128) -> i128 {
    let quotient = numerator / denominator;
    let remainder = (numerator % denominator).unsigned_abs();
    if remainder >= denominator.unsigned_abs() - remainder && remainder != 0 {
        quotient
            + if (numerator < 0) == (denominator < 0) {
                1
            } else {
                -1
            }
    } else {
        quotient
    }
}

/// The common type of numbers, numerics among them, that DataFusion makes too narrow: all of them
/// fit 64 bits, but not with the digits of all together; or no numeric of 38 digits can hold these.
/// `None` for other types.
pub fn widest_numeric<'a>(types: impl Iterator<Item = &'a DataType>) -> Option<SqlType> {
    let (mut whole, mut scale) = (0, 0);
    let (mut has_numeric, mut are_narrow) = (false, true);
    for data_type in types {
        let shape = Shape::of(data_type)?;
        whole = whole.max(shape.integer_digits());
        scale = scale.max(shape.scale);
        has_numeric |= data_type.is_decimal();
        are_narrow &= shape.is_narrow();
    }
    let digits = whole + scale;
    let is_too_narrow = digits > MAX_DIGITS || (are_narrow && !Shape::new(digits, 0).is_narrow());
    (has_numeric && is_too_narrow).then_some(SqlType::Numeric {
        precision: digits.min(MAX_DIGITS),
        scale,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_half_away_from_zero() {
        for (n, d, q) in [
            (5, 2, 3),
            (-5, 2, -3),
            (5, -2, -3),
            (4, 3, 1),
            (-4, 3, -1),
            (0, 7, 0),
        ] {
            assert_eq!(divide_rounded(n, d), q, "{n} / {d}");
        }
        assert_eq!(divide_rounded(i128::MAX, i128::MAX - 1), 1);
    }

    #[test]
    fn counts_digits() {
        assert_eq!(
            (digits(0), digits(9), digits(-10), digits(i128::MIN)),
            (1, 1, 2, 39)
        );
    }

    #[test]
    fn narrow_numbers_whose_digits_exceed_64_bits_together_meet_in_a_wide_one() {
        let numeric = |precision, scale| Shape::new(precision, scale).data_type();
        let widest = |types: &[DataType]| match widest_numeric(types.iter()) {
            Some(SqlType::Numeric { precision, scale }) => Some((precision, scale)),
            _ => None,
        };
        assert_eq!(widest(&[numeric(12, 2), numeric(18, 12)]), Some((22, 12)));
        assert_eq!(widest(&[DataType::Int32, numeric(16, 16)]), Some((26, 16)));
        assert_eq!(widest(&[numeric(12, 2), numeric(18, 8)]), None, "18 digits");
        assert_eq!(widest(&[numeric(20, 2), numeric(18, 12)]), None);
        assert_eq!(widest(&[numeric(38, 2), numeric(18, 12)]), Some((38, 12)));
        assert_eq!(widest(&[DataType::Int32, DataType::Int64]), None);
        assert_eq!(widest(&[numeric(12, 2), DataType::Utf8]), None);
    }

    #[test]
    fn shapes_are_narrow_up_to_18_digits() {
        assert_eq!(Shape::new(18, 2).data_type(), DataType::Decimal64(18, 2));
        assert_eq!(Shape::new(19, 2).data_type(), DataType::Decimal128(19, 2));
        assert_eq!(Shape::new(50, 2).precision, 38);
    }
}
