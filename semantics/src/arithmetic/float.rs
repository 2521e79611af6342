//! Floating-point arithmetic with PostgreSQL's errors: an infinite result of finite operands is an
//! overflow, a zero product or quotient of non-zero operands an underflow (both 22003), a zero
//! divisor 22012 (even for a zero dividend; a NaN dividend gives NaN). Of NaN there is one form: a
//! processor makes one with a sign, which would be less than all numbers.

use super::Operation;
use super::operand::{Operand, Pair, any_valid, zip};
use crate::error::{division_by_zero, invalid};
use datafusion::arrow::array::ArrowPrimitiveType;
use datafusion::arrow::datatypes::{Float32Type, Float64Type};
use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;
use strandline_base::SqlState;

/// The operations that the kernels need on `f32` and `f64`.
pub trait Float:
    Copy
    + PartialEq
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
{
    /// 0
    const ZERO: Self;
    /// The one NaN.
    const NAN: Self;
    /// Whether it is ±∞.
    fn infinite(self) -> bool;
    /// Whether it is not a number.
    fn nan(self) -> bool;
}

macro_rules! float {
    ($native:ty) => {
        impl Float for $native {
            const ZERO: Self = 0.0;
            const NAN: Self = <$native>::NAN;
            fn infinite(self) -> bool {
                self.is_infinite()
            }
            fn nan(self) -> bool {
                self.is_nan()
            }
        }
    };
}
float!(f32);
float!(f64);

fn overflows<T: Float>(x: T, y: T, result: T) -> bool {
    result.infinite() & !x.infinite() & !y.infinite()
}

fn product_underflows<T: Float>(x: T, y: T, result: T) -> bool {
    (result == T::ZERO) & (x != T::ZERO) & (y != T::ZERO)
}

fn quotient_underflows<T: Float>(x: T, y: T, result: T) -> bool {
    (result == T::ZERO) & (x != T::ZERO) & !y.infinite()
}

fn compute<P: ArrowPrimitiveType>(operation: Operation, pair: &Pair) -> Result<ColumnarValue>
where
    P::Native: Float,
{
    let (a, b) = (pair.left.operand::<P>(), pair.right.operand::<P>());
    let never = |_, _, _| false;
    let values = match operation {
        Operation::Add => checked(pair, a, b, |x, y| x + y, never)?,
        Operation::Subtract => checked(pair, a, b, |x, y| x - y, never)?,
        Operation::Multiply => checked(pair, a, b, |x, y| x * y, product_underflows)?,
        Operation::Divide => {
            let zero = P::Native::ZERO;
            let divisor_is_zero = match b {
                Operand::Constant(divisor) => divisor == zero,
                Operand::Column(divisors) => divisors.contains(&zero),
            };
            let by_zero = |i| b.get(i) == zero && !a.get(i).nan();
            if divisor_is_zero && any_valid(pair.rows, pair.nulls.as_ref(), by_zero) {
                return Err(division_by_zero());
            }
            checked(pair, a, b, |x, y| x / y, quotient_underflows)?
        }
        Operation::Modulo => {
            return Err(invalid(
                SqlState::UNDEFINED_FUNCTION,
                "operator does not exist: double precision % double precision",
            ));
        }
    };
    pair.finish::<P>(values, &P::DATA_TYPE)
}

fn checked<T: Float>(
    pair: &Pair,
    a: Operand<T>,
    b: Operand<T>,
    f: impl Fn(T, T) -> T,
    underflows: impl Fn(T, T, T) -> bool,
) -> Result<Vec<T>> {
    let (mut fault, mut has_nan) = (false, false);
    let mut values = zip(pair.rows, a, b, |x, y| {
        let value = f(x, y);
        fault |= overflows(x, y, value) | underflows(x, y, value);
        has_nan |= value.nan();
        value
    });
    if has_nan {
        values
            .iter_mut()
            .filter(|v| v.nan())
            .for_each(|v| *v = T::NAN);
    }
    if fault {
        let nulls = pair.nulls.as_ref();
        if any_valid(pair.rows, nulls, |i| {
            overflows(a.get(i), b.get(i), values[i])
        }) {
            return Err(range_error("overflow"));
        }
        if any_valid(pair.rows, nulls, |i| {
            underflows(a.get(i), b.get(i), values[i])
        }) {
            return Err(range_error("underflow"));
        }
    }
    Ok(values)
}

fn range_error(what: &str) -> datafusion::error::DataFusionError {
    invalid(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("value out of range: {what}"),
    )
}

/// `operation` on two reals.
pub fn real(operation: Operation, pair: &Pair) -> Result<ColumnarValue> {
    compute::<Float32Type>(operation, pair)
}

/// `operation` on two doubles.
pub fn double(operation: Operation, pair: &Pair) -> Result<ColumnarValue> {
    compute::<Float64Type>(operation, pair)
}
