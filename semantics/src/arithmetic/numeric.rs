//! Exact numeric arithmetic on 64- and 128-bit decimals.
//!
//! Result shapes follow from the operands' shapes (p1,s1) and (p2,s2):
//!
//! | operation | scale | precision |
//! |---|---|---|
//! | `+` `-` | max(s1,s2) | max(p1-s1, p2-s2) + 1 + scale |
//! | `*` | s1+s2; if p1+p2 > 38 at most max(20,s1,s2), rounded | p1+p2 |
//! | `/` | max(20,s1,s2), rounded half away from zero | 38 |
//! | `%` | max(s1,s2), sign of the dividend | min(p1-s1, p2-s2) + scale |
//!
//! A result of at most 18 digits is computed and kept in 64 bits. Otherwise it has 128 bits, and
//! 64-bit operands go straight into the widening kernel: a product of two of them is one machine
//! multiplication, no operand is converted beforehand. Where 38 digits do not provably suffice the
//! kernel checks: first whether a whole batch fits 64 bits (then no product can overflow), else
//! value by value; an overflow is 22003.
//!
//! Differences from PostgreSQL: at most 38 digits instead of 131,072; the scale of quotients and of
//! long products is fixed by the types instead of chosen per value.

use super::Operation;
use super::operand::{Argument, Operand, Pair, any_valid, zip};
use crate::decimal::{
    MAX_DIGITS, PRODUCT_SCALE, QUOTIENT_SCALE, Shape, divide_rounded, power_of_ten,
};
use crate::error::{division_by_zero, numeric_overflow};
use datafusion::arrow::datatypes::{DataType, Decimal64Type, Decimal128Type, i256};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::ColumnarValue;

/// The smallest magnitude that 38 digits cannot hold.
const LIMIT: u128 = 10u128.pow(MAX_DIGITS as u32);

/// The shape of `operation`'s result and whether it provably holds every result.
fn result_shape(operation: Operation, left: Shape, right: Shape) -> (Shape, bool) {
    let scale = left.scale.max(right.scale);
    match operation {
        Operation::Add | Operation::Subtract => {
            let precision = left.integer_digits().max(right.integer_digits()) + 1 + scale;
            (Shape::new(precision, scale), precision <= MAX_DIGITS)
        }
        Operation::Multiply => {
            let (precision, exact) = (left.precision + right.precision, left.scale + right.scale);
            if precision <= MAX_DIGITS {
                (Shape::new(precision, exact), true)
            } else {
                (
                    Shape::new(MAX_DIGITS, exact.min(scale.max(PRODUCT_SCALE))),
                    false,
                )
            }
        }
        Operation::Divide => (Shape::new(MAX_DIGITS, scale.max(QUOTIENT_SCALE)), false),
        Operation::Modulo => {
            let precision = left.integer_digits().min(right.integer_digits()) + scale;
            (Shape::new(precision, scale), precision <= MAX_DIGITS)
        }
    }
}

/// The result type of `operation` on two decimals.
pub fn result_type(operation: Operation, left: Shape, right: Shape) -> DataType {
    result_shape(operation, left, right).0.data_type()
}

/// The left and the right side of a 64- or 128-bit decimal as an operand.
enum Side<'a> {
    Narrow(Operand<'a, i64>),
    Wide(Operand<'a, i128>),
}

impl<'a> Side<'a> {
    fn of(argument: &'a Argument) -> Result<Self> {
        match argument.data_type() {
            DataType::Decimal64(..) => Ok(Self::Narrow(argument.operand::<Decimal64Type>())),
            DataType::Decimal128(..) => Ok(Self::Wide(argument.operand::<Decimal128Type>())),
            other => internal_err!("numeric arithmetic on {other}"),
        }
    }
    fn get(&self, i: usize) -> i128 {
        match self {
            Side::Narrow(values) => i128::from(values.get(i)),
            Side::Wide(values) => values.get(i),
        }
    }
    /// Whether every value fits 64 bits.
    fn fits_narrow(&self) -> bool {
        let fits = |x: i128| i128::from(x as i64) == x;
        match self {
            Side::Narrow(_) => true,
            Side::Wide(Operand::Constant(x)) => fits(*x),
            Side::Wide(Operand::Column(values)) => {
                values.iter().fold(true, |all, &x| all & fits(x))
            }
        }
    }
}

/// `f` of every pair of values widened to 128 bits.
fn widened(rows: usize, a: &Side, b: &Side, mut f: impl FnMut(i128, i128) -> i128) -> Vec<i128> {
    match (a, b) {
        (Side::Narrow(a), Side::Narrow(b)) => {
            zip(rows, *a, *b, |x, y| f(i128::from(x), i128::from(y)))
        }
        (Side::Narrow(a), Side::Wide(b)) => zip(rows, *a, *b, |x, y| f(i128::from(x), y)),
        (Side::Wide(a), Side::Narrow(b)) => zip(rows, *a, *b, |x, y| f(x, i128::from(y))),
        (Side::Wide(a), Side::Wide(b)) => zip(rows, *a, *b, f),
    }
}

/// `operation` on two decimals.
pub fn compute(operation: Operation, pair: &Pair) -> Result<ColumnarValue> {
    let (Some(left), Some(right)) = (
        Shape::of(pair.left.data_type()),
        Shape::of(pair.right.data_type()),
    ) else {
        return internal_err!("numeric arithmetic on a negative scale");
    };
    let (shape, proven) = result_shape(operation, left, right);
    let (a, b) = (Side::of(&pair.left)?, Side::of(&pair.right)?);
    if shape.is_narrow()
        && let (Side::Narrow(a), Side::Narrow(b)) = (&a, &b)
        && operation != Operation::Modulo
    {
        let values = narrow(operation, pair.rows, *a, *b, (left, right, shape));
        return pair.finish::<Decimal64Type>(values, &shape.data_type());
    }
    let values = match operation {
        Operation::Add => sum(pair, &a, &b, (left, right, shape), proven, 1)?,
        Operation::Subtract => sum(pair, &a, &b, (left, right, shape), proven, -1)?,
        Operation::Multiply => {
            let excess = left.scale + right.scale - shape.scale;
            product(pair, &a, &b, excess, proven)?
        }
        Operation::Divide => quotient(pair, &a, &b, shape.scale - left.scale + right.scale)?,
        Operation::Modulo => remainder(pair, &a, &b, (left, right, shape))?,
    };
    if shape.is_narrow() {
        let values = values.into_iter().map(|x| x as i64).collect();
        return pair.finish::<Decimal64Type>(values, &shape.data_type());
    }
    pair.finish::<Decimal128Type>(values, &shape.data_type())
}

/// Sums, differences and products whose result provably fits 18 digits.
fn narrow(
    operation: Operation,
    rows: usize,
    a: Operand<i64>,
    b: Operand<i64>,
    (left, right, shape): (Shape, Shape, Shape),
) -> Vec<i64> {
    if operation == Operation::Multiply {
        return zip(rows, a, b, i64::wrapping_mul);
    }
    let factor = |operand: Shape| power_of_ten(shape.scale - operand.scale) as i64;
    let sign = if operation == Operation::Subtract {
        -1
    } else {
        1
    };
    match (factor(left), factor(right) * sign) {
        (1, 1) => zip(rows, a, b, i64::wrapping_add),
        (1, -1) => zip(rows, a, b, i64::wrapping_sub),
        (fa, fb) => zip(rows, a, b, |x, y| {
            x.wrapping_mul(fa).wrapping_add(y.wrapping_mul(fb))
        }),
    }
}

fn sum(
    pair: &Pair,
    a: &Side,
    b: &Side,
    (left, right, shape): (Shape, Shape, Shape),
    proven: bool,
    sign: i128,
) -> Result<Vec<i128>> {
    let fa = power_of_ten(shape.scale - left.scale);
    let fb = power_of_ten(shape.scale - right.scale) * sign;
    if proven {
        return Ok(match (fa, fb) {
            (1, 1) => widened(pair.rows, a, b, i128::wrapping_add),
            (1, -1) => widened(pair.rows, a, b, i128::wrapping_sub),
            _ => widened(pair.rows, a, b, |x, y| {
                x.wrapping_mul(fa).wrapping_add(y.wrapping_mul(fb))
            }),
        });
    }
    checked(pair, a, b, |x, y| {
        let (x, fault_x) = x.overflowing_mul(fa);
        let (y, fault_y) = y.overflowing_mul(fb);
        let (sum, fault) = x.overflowing_add(y);
        (sum, fault | fault_x | fault_y)
    })
}

fn product(pair: &Pair, a: &Side, b: &Side, excess: u8, proven: bool) -> Result<Vec<i128>> {
    if excess == 0 && proven {
        return Ok(widened(pair.rows, a, b, i128::wrapping_mul));
    }
    if a.fits_narrow() && b.fits_narrow() {
        let exact = |x: i128, y: i128| i128::from(x as i64) * i128::from(y as i64);
        if excess == 0 {
            return Ok(widened(pair.rows, a, b, exact));
        }
        let divisor = power_of_ten(excess);
        return Ok(widened(pair.rows, a, b, |x, y| {
            divide_rounded(exact(x, y), divisor)
        }));
    }
    if excess == 0 {
        return checked(pair, a, b, i128::overflowing_mul);
    }
    let divisor = power_of_ten(excess);
    checked(pair, a, b, |x, y| match x.checked_mul(y) {
        Some(exact) => (divide_rounded(exact, divisor), false),
        None => {
            let exact = i256::from_i128(x).wrapping_mul(i256::from_i128(y));
            flagged(divide_wide(exact, i256::from_i128(divisor)))
        }
    })
}

fn quotient(pair: &Pair, a: &Side, b: &Side, shift: u8) -> Result<Vec<i128>> {
    refuse_zero(pair, b)?;
    let factor = (shift <= MAX_DIGITS).then(|| power_of_ten(shift));
    let wide_factor = i256::from_i128(10).checked_pow(u32::from(shift));
    checked(pair, a, b, |x, y| {
        if y == 0 {
            return (0, false);
        }
        if let Some(numerator) = factor.and_then(|factor| x.checked_mul(factor)) {
            return (divide_rounded(numerator, y), false);
        }
        let numerator = wide_factor.and_then(|factor| i256::from_i128(x).checked_mul(factor));
        flagged(numerator.and_then(|numerator| divide_wide(numerator, i256::from_i128(y))))
    })
}

fn remainder(
    pair: &Pair,
    a: &Side,
    b: &Side,
    (left, right, shape): (Shape, Shape, Shape),
) -> Result<Vec<i128>> {
    refuse_zero(pair, b)?;
    let fa = power_of_ten(shape.scale - left.scale);
    let fb = power_of_ten(shape.scale - right.scale);
    checked(pair, a, b, |x, y| {
        if y == 0 {
            return (0, false);
        }
        match (x.checked_mul(fa), y.checked_mul(fb)) {
            (Some(x), Some(y)) => (x.wrapping_rem(y), false),
            _ => {
                let x = i256::from_i128(x).wrapping_mul(i256::from_i128(fa));
                let y = i256::from_i128(y).wrapping_mul(i256::from_i128(fb));
                flagged(x.wrapping_rem(y).to_i128())
            }
        }
    })
}

fn refuse_zero(pair: &Pair, divisor: &Side) -> Result<()> {
    if any_valid(pair.rows, pair.nulls.as_ref(), |i| divisor.get(i) == 0) {
        return Err(division_by_zero());
    }
    Ok(())
}

/// Runs a kernel that reports faults; also refuses results of more than 38 digits.
fn checked(
    pair: &Pair,
    a: &Side,
    b: &Side,
    f: impl Fn(i128, i128) -> (i128, bool),
) -> Result<Vec<i128>> {
    let flagged = |x, y| {
        let (value, fault) = f(x, y);
        (value, fault | (value.unsigned_abs() >= LIMIT))
    };
    let mut faults = false;
    let values = widened(pair.rows, a, b, |x, y| {
        let (value, fault) = flagged(x, y);
        faults |= fault;
        value
    });
    let at_fault = |i| flagged(a.get(i), b.get(i)).1;
    if faults && any_valid(pair.rows, pair.nulls.as_ref(), at_fault) {
        return Err(numeric_overflow());
    }
    Ok(values)
}

fn flagged(value: Option<i128>) -> (i128, bool) {
    (value.unwrap_or(0), value.is_none())
}

/// Rounded half away from zero; `None` if the quotient does not fit 128 bits.
fn divide_wide(numerator: i256, denominator: i256) -> Option<i128> {
    let quotient = numerator.wrapping_div(denominator);
    let remainder = numerator.wrapping_rem(denominator).wrapping_abs();
    let magnitude = denominator.wrapping_abs();
    let away = remainder != i256::ZERO && remainder >= magnitude.wrapping_sub(remainder);
    let same_sign = numerator.is_negative() == denominator.is_negative();
    let step = if !away {
        i256::ZERO
    } else if same_sign {
        i256::ONE
    } else {
        i256::MINUS_ONE
    };
    quotient.wrapping_add(step).to_i128()
}
