//! Functions of whole numbers: `gcd`, `lcm`, `factorial`.

use super::overload::Parameter::{Bigint, Integer};
use super::overload::{Call, Function, Overload, Returns};
use crate::decimal::MAX_DIGITS;
use crate::error::{invalid, numeric_overflow};
use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Int32Type, Int64Type};
use datafusion::common::{Result, ScalarValue};
use strandline_base::{SqlState, SqlType};

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let two = |body| {
        vec![Overload::new(
            &[Integer, Integer],
            Returns::Computed(wider),
            body,
        )]
    };
    vec![
        Function::new("gcd", two(|c| both(c, common_divisor))),
        Function::new("lcm", two(|c| both(c, common_multiple))),
        Function::new(
            "factorial",
            vec![Overload::new(
                &[Bigint],
                SqlType::Numeric {
                    precision: MAX_DIGITS,
                    scale: 0,
                },
                factorial,
            )],
        ),
    ]
}

/// bigint if one argument is bigint, else integer.
fn wider(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(match types.contains(&DataType::Int64) {
        true => DataType::Int64,
        false => DataType::Int32,
    })
}

fn common_divisor(a: i64, b: i64) -> Option<i64> {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).ok()
}

fn common_multiple(a: i64, b: i64) -> Option<i64> {
    if a == 0 || b == 0 {
        return Some(0);
    }
    let divisor = common_divisor(a, b)?;
    (a / divisor).checked_mul(b)?.checked_abs()
}

fn both(call: &Call, f: fn(i64, i64) -> Option<i64>) -> Result<ArrayRef> {
    let wide = |i: usize| cast(&call.arrays[i], &DataType::Int64);
    let (left, right) = (wide(0)?, wide(1)?);
    let (left, right) = (
        left.as_primitive::<Int64Type>(),
        right.as_primitive::<Int64Type>(),
    );
    let fault = |name: &str| {
        let message = format!("{name} out of range");
        invalid(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
    };
    let value = |row: usize| f(left.value(row), right.value(row));
    if *call.returns == DataType::Int64 {
        return call.map::<Int64Type>(|row| value(row).map(Some).ok_or_else(|| fault("bigint")));
    }
    call.map::<Int32Type>(|row| {
        let value = value(row).and_then(|value| i32::try_from(value).ok());
        value.map(Some).ok_or_else(|| fault("integer"))
    })
}

/// `factorial`; 33! is the greatest value of 38 digits.
fn factorial(call: &Call) -> Result<ArrayRef> {
    call.map::<Decimal128Type>(|row| {
        let n = call.bigint(0).value(row);
        if n < 0 {
            let message = "factorial of a negative number is undefined";
            return Err(invalid(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        if n > 33 {
            return Err(numeric_overflow());
        }
        Ok(Some((1..=i128::from(n)).product()))
    })
}
