//! Checked integer arithmetic: every result that does not fit its type is an error (22003), never
//! a wrapped value; division truncates towards zero, a remainder has the dividend's sign.

use super::Operation;
use super::operand::{Operand, Pair, any_valid, zip};
use crate::error::{division_by_zero, out_of_range};
use datafusion::arrow::array::ArrowPrimitiveType;
use datafusion::arrow::datatypes::{Int16Type, Int32Type, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::ColumnarValue;

/// The integers of SQL. The `*_flagged` functions return the wrapped result and a word whose sign
/// bit marks an overflow, so that a loop can collect overflows without branching.
pub trait Integer: Copy + PartialEq + std::ops::BitOr<Output = Self> + PartialOrd {
    /// The SQL name.
    const NAME: &'static str;
    /// 0
    const ZERO: Self;
    /// Sum and fault.
    fn add_flagged(self, other: Self) -> (Self, Self);
    /// Difference and fault.
    fn sub_flagged(self, other: Self) -> (Self, Self);
    /// Product and fault.
    fn mul_flagged(self, other: Self) -> (Self, Self);
    /// Quotient and fault; 0 and no fault for a zero divisor.
    fn div_flagged(self, other: Self) -> (Self, Self);
    /// Remainder; 0 for a zero divisor.
    fn rem_total(self, other: Self) -> Self;
}

macro_rules! integer {
    ($native:ty, $name:literal) => {
        impl Integer for $native {
            const NAME: &'static str = $name;
            const ZERO: Self = 0;
            fn add_flagged(self, other: Self) -> (Self, Self) {
                let sum = self.wrapping_add(other);
                (sum, (self ^ sum) & (other ^ sum))
            }
            fn sub_flagged(self, other: Self) -> (Self, Self) {
                let difference = self.wrapping_sub(other);
                (difference, (self ^ other) & (self ^ difference))
            }
            fn mul_flagged(self, other: Self) -> (Self, Self) {
                let (product, fault) = self.overflowing_mul(other);
                (product, if fault { Self::MIN } else { 0 })
            }
            fn div_flagged(self, other: Self) -> (Self, Self) {
                if other == 0 {
                    return (0, 0);
                }
                let (quotient, fault) = self.overflowing_div(other);
                (quotient, if fault { Self::MIN } else { 0 })
            }
            fn rem_total(self, other: Self) -> Self {
                if other == 0 {
                    0
                } else {
                    self.wrapping_rem(other)
                }
            }
        }
    };
}
integer!(i16, "smallint");
integer!(i32, "integer");
integer!(i64, "bigint");

/// `operation` on two arguments of the type `P`.
fn compute<P: ArrowPrimitiveType>(operation: Operation, pair: &Pair) -> Result<ColumnarValue>
where
    P::Native: Integer,
{
    let (a, b) = (pair.left.operand::<P>(), pair.right.operand::<P>());
    if matches!(operation, Operation::Divide | Operation::Modulo) {
        let zero = P::Native::ZERO;
        let divisor_is_zero = match b {
            Operand::Constant(divisor) => divisor == zero,
            Operand::Column(divisors) => divisors.contains(&zero),
        };
        if divisor_is_zero && any_valid(pair.rows, pair.nulls.as_ref(), |i| b.get(i) == zero) {
            return Err(division_by_zero());
        }
    }
    let values = match operation {
        Operation::Add => checked(pair, a, b, P::Native::add_flagged)?,
        Operation::Subtract => checked(pair, a, b, P::Native::sub_flagged)?,
        Operation::Multiply => checked(pair, a, b, P::Native::mul_flagged)?,
        Operation::Divide => checked(pair, a, b, P::Native::div_flagged)?,
        Operation::Modulo => zip(pair.rows, a, b, P::Native::rem_total),
    };
    pair.finish::<P>(values, &P::DATA_TYPE)
}

fn checked<T: Integer>(
    pair: &Pair,
    a: Operand<T>,
    b: Operand<T>,
    f: impl Fn(T, T) -> (T, T),
) -> Result<Vec<T>> {
    let mut faults = T::ZERO;
    let values = zip(pair.rows, a, b, |x, y| {
        let (value, fault) = f(x, y);
        faults = faults | fault;
        value
    });
    let at_fault = |i| f(a.get(i), b.get(i)).1 < T::ZERO;
    if faults < T::ZERO && any_valid(pair.rows, pair.nulls.as_ref(), at_fault) {
        return Err(out_of_range(T::NAME));
    }
    Ok(values)
}

/// `operation` on two smallints.
pub fn smallint(operation: Operation, pair: &Pair) -> Result<ColumnarValue> {
    compute::<Int16Type>(operation, pair)
}

/// `operation` on two integers.
pub fn integer(operation: Operation, pair: &Pair) -> Result<ColumnarValue> {
    compute::<Int32Type>(operation, pair)
}

/// `operation` on two bigints.
pub fn bigint(operation: Operation, pair: &Pair) -> Result<ColumnarValue> {
    compute::<Int64Type>(operation, pair)
}
