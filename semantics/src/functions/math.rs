//! Functions on numbers.

use super::overload::Parameter::{Bigint, Double, Integer, Number, Numeric};
use super::overload::{Call, Function, Overload, Returns};
use crate::decimal::{MAX_DIGITS, Shape, divide_rounded, power_of_ten};
use crate::error::{division_by_zero, invalid, numeric_overflow, out_of_range};
use datafusion::arrow::array::{
    ArrayRef, ArrowPrimitiveType, AsArray, Decimal128Array, PrimitiveArray,
};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{
    DataType, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type,
};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::scalar::ScalarValue;
use std::ops::RangeInclusive;
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// invalid_argument_for_power_function
const BAD_POWER: SqlState = SqlState("2201F");
/// invalid_argument_for_logarithm
const BAD_LOGARITHM: SqlState = SqlState("2201E");

type FunctionBody = fn(&Call) -> Result<ArrayRef>;

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    vec![
        rounding(
            "round",
            |c| by_row(c, f64::round_ties_even),
            |c| whole_numeric(c, divide_rounded),
            |c| digits_numeric(c, divide_rounded),
        ),
        rounding(
            "trunc",
            |c| by_row(c, f64::trunc),
            |c| whole_numeric(c, i128::wrapping_div),
            |c| digits_numeric(c, i128::wrapping_div),
        ),
        whole(
            "ceil",
            |c| by_row(c, f64::ceil),
            |c| whole_numeric(c, ceiling),
        )
        .also(&["ceiling"]),
        whole(
            "floor",
            |c| by_row(c, f64::floor),
            |c| whole_numeric(c, floor),
        ),
        whole(
            "sign",
            |c| by_row(c, signum),
            |c| whole_numeric(c, |v, _| v.signum()),
        ),
        Function::new(
            "abs",
            vec![Overload::new(
                &[Number],
                Returns::Computed(same_type),
                absolute,
            )],
        ),
        Function::new(
            "bit_not",
            vec![Overload::new(
                &[Integer],
                Returns::Computed(same_type),
                complement,
            )],
        ),
    ]
    .into_iter()
    .chain(transcendental())
    .chain(counting())
    .collect()
}

/// Functions that count digits or places.
fn counting() -> [Function; 3] {
    [
        Function::new(
            "scale",
            vec![Overload::new(&[Numeric], SqlType::Integer, |c| {
                let (_, scale) = c.numeric(0)?;
                c.map::<Int32Type>(|_| Ok(Some(i32::from(scale))))
            })],
        ),
        Function::new(
            "min_scale",
            vec![Overload::new(&[Numeric], SqlType::Integer, |c| {
                let (values, scale) = c.numeric(0)?;
                c.map::<Int32Type>(|row| {
                    let value = values.value(row);
                    let is_enough =
                        |kept: &u8| value % power_of_ten(scale.saturating_sub(*kept)) == 0;
                    let least = (0..=scale).find(is_enough).unwrap_or(scale);
                    Ok(Some(i32::from(least)))
                })
            })],
        ),
        Function::new(
            "width_bucket",
            vec![
                Overload::new(&[Double, Double, Double, Bigint], SqlType::Integer, |c| {
                    c.map::<Int32Type>(|row| bucket(c, row).map(Some))
                }),
                Overload::new(
                    &[Numeric, Numeric, Numeric, Bigint],
                    SqlType::Integer,
                    exact_bucket,
                ),
            ],
        ),
    ]
}

fn bucket_fault(message: &str) -> DataFusionError {
    invalid(SqlState("2201G"), message)
}

fn bucket_count(call: &Call, row: usize) -> Result<i32> {
    match i32::try_from(call.bigint(3).value(row)) {
        Ok(count @ 1..) => Ok(count),
        Ok(_) => Err(bucket_fault("count must be greater than zero")),
        Err(_) => Err(out_of_range("integer")),
    }
}

/// [`bucket`] of numerics.
fn exact_bucket(call: &Call) -> Result<ArrayRef> {
    let columns = [call.numeric(0)?, call.numeric(1)?, call.numeric(2)?];
    let scale = columns.iter().map(|(_, scale)| *scale).max().unwrap_or(0);
    call.map::<Int32Type>(|row| {
        let count = bucket_count(call, row)?;
        let mut values = [0; 3];
        for (value, (column, own)) in values.iter_mut().zip(&columns) {
            let scaled = column.value(row).checked_mul(power_of_ten(scale - own));
            *value = scaled.ok_or_else(numeric_overflow)?;
        }
        let [operand, low, high] = values;
        if low == high {
            return Err(bucket_fault("lower bound cannot equal upper bound"));
        }
        let (from_low, width) = match low < high {
            true => (operand.checked_sub(low), high.checked_sub(low)),
            false => (low.checked_sub(operand), low.checked_sub(high)),
        };
        let (Some(from_low), Some(width)) = (from_low, width) else {
            return Err(numeric_overflow());
        };
        if from_low < 0 {
            return Ok(Some(0));
        }
        if from_low >= width {
            let behind = count.checked_add(1);
            return behind.map(Some).ok_or_else(|| out_of_range("integer"));
        }
        let shares = from_low
            .checked_mul(count.into())
            .ok_or_else(numeric_overflow)?;
        Ok(Some((shares / width) as i32 + 1))
    })
}

/// `width_bucket(operand, low, high, count)`: the number of a value's bucket among `count` equal
/// parts of the range from `low` to `high`; 0 and `count + 1` are outside.
fn bucket(call: &Call, row: usize) -> Result<i32> {
    let [operand, low, high] = [0, 1, 2].map(|i| call.double(i, row));
    let count = bucket_count(call, row)?;
    let fault = bucket_fault;
    if operand.is_nan() || low.is_nan() || high.is_nan() {
        return Err(fault("operand, lower bound, and upper bound cannot be NaN"));
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(fault("lower and upper bounds must be finite"));
    }
    if low == high {
        return Err(fault("lower bound cannot equal upper bound"));
    }
    let (is_before, is_behind) = match low < high {
        true => (operand < low, operand >= high),
        false => (operand > low, operand <= high),
    };
    if is_before {
        return Ok(0);
    }
    if is_behind {
        return count.checked_add(1).ok_or_else(|| out_of_range("integer"));
    }
    let share = match (high - low).is_finite() {
        true => (operand - low) / (high - low),
        false => (operand / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0),
    };
    let place = (f64::from(count) * share) as i32;
    Ok(place.min(count - 1) + 1)
}

/// Roots, powers, logarithms; in double precision.
fn transcendental() -> Vec<Function> {
    let double = SqlType::Double;
    vec![
        on_double("sqrt", |c| c.map::<Float64Type>(|r| root(c.double(0, r)))),
        on_double("cbrt", |c| {
            c.map::<Float64Type>(|r| Ok(Some(c.double(0, r).cbrt())))
        }),
        on_double("degrees", |c| {
            c.map::<Float64Type>(|r| Ok(Some(c.double(0, r).to_degrees())))
        }),
        on_double("radians", |c| {
            c.map::<Float64Type>(|r| Ok(Some(c.double(0, r).to_radians())))
        }),
        on_double("acos", |c| within(c, f64::acos, -1.0..=1.0)),
        on_double("asin", |c| within(c, f64::asin, -1.0..=1.0)),
        on_double("acosh", |c| within(c, f64::acosh, 1.0..=f64::INFINITY)),
        on_double("atanh", |c| within(c, f64::atanh, -1.0..=1.0)),
        on_double("exp", |c| {
            c.map::<Float64Type>(|r| exponential(c.double(0, r)))
        }),
        on_double("ln", |c| {
            c.map::<Float64Type>(|r| logarithm(c.double(0, r), f64::ln))
        }),
        on_double("log10", |c| {
            c.map::<Float64Type>(|r| logarithm(c.double(0, r), f64::log10))
        }),
        Function::new(
            "log",
            vec![
                Overload::new(&[Double], double, |c| {
                    c.map::<Float64Type>(|r| logarithm(c.double(0, r), f64::log10))
                }),
                Overload::new(&[Double, Double], double, |c| {
                    c.map::<Float64Type>(|r| logarithm_to_base(c.double(0, r), c.double(1, r)))
                }),
            ],
        ),
        Function::new(
            "power",
            vec![Overload::new(&[Double, Double], double, |c| {
                c.map::<Float64Type>(|r| power(c.double(0, r), c.double(1, r)))
            })],
        )
        .also(&["pow"]),
        Function::new(
            "div",
            vec![Overload::new(
                &[Numeric, Numeric],
                SqlType::Numeric {
                    precision: MAX_DIGITS,
                    scale: 0,
                },
                quotient,
            )],
        ),
    ]
}

fn on_double(name: &'static str, body: FunctionBody) -> Function {
    Function::new(name, vec![Overload::new(&[Double], SqlType::Double, body)])
}

/// `name(double)` and `name(numeric)`, the latter without fractional digits.
fn whole(name: &'static str, on_double: FunctionBody, on_numeric: FunctionBody) -> Function {
    Function::new(
        name,
        vec![
            Overload::new(&[Double], SqlType::Double, on_double),
            Overload::new(&[Numeric], Returns::Computed(scale_zero), on_numeric),
        ],
    )
}

/// [`whole`] and `name(numeric, digits)`.
fn rounding(
    name: &'static str,
    on_double: FunctionBody,
    on_numeric: FunctionBody,
    to_digits: FunctionBody,
) -> Function {
    Function::new(
        name,
        vec![
            Overload::new(&[Double], SqlType::Double, on_double),
            Overload::new(&[Numeric], Returns::Computed(scale_zero), on_numeric),
            Overload::new(
                &[Numeric, Bigint],
                Returns::Computed(scale_of_digits),
                to_digits,
            ),
        ],
    )
}

fn same_type(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(types[0].clone())
}

/// The magnitude; it overflows for the smallest integer.
fn absolute(call: &Call) -> Result<ArrayRef> {
    let array = &call.arrays[0];
    fn checked<P: ArrowPrimitiveType>(
        array: &ArrayRef,
        f: impl Fn(P::Native) -> Option<P::Native>,
        name: &str,
    ) -> Result<ArrayRef> {
        let values = array.as_primitive::<P>();
        let result: PrimitiveArray<P> =
            values.try_unary(|v| f(v).ok_or_else(|| out_of_range(name)))?;
        Ok(Arc::new(result.with_data_type(array.data_type().clone())))
    }
    match array.data_type() {
        DataType::Int16 => checked::<Int16Type>(array, i16::checked_abs, "smallint"),
        DataType::Int32 => checked::<Int32Type>(array, i32::checked_abs, "integer"),
        DataType::Int64 => checked::<Int64Type>(array, i64::checked_abs, "bigint"),
        DataType::Float32 => checked::<Float32Type>(array, |v| Some(v.abs()), "real"),
        DataType::Float64 => checked::<Float64Type>(array, |v| Some(v.abs()), "double precision"),
        DataType::Decimal64(..) => checked::<Decimal64Type>(array, i64::checked_abs, "numeric"),
        _ => checked::<Decimal128Type>(array, i128::checked_abs, "numeric"),
    }
}

/// `~x`
fn complement(call: &Call) -> Result<ArrayRef> {
    let array = &call.arrays[0];
    Ok(match array.data_type() {
        DataType::Int16 => Arc::new(
            array
                .as_primitive::<Int16Type>()
                .unary::<_, Int16Type>(|v| !v),
        ),
        DataType::Int32 => Arc::new(
            array
                .as_primitive::<Int32Type>()
                .unary::<_, Int32Type>(|v| !v),
        ),
        _ => Arc::new(
            array
                .as_primitive::<Int64Type>()
                .unary::<_, Int64Type>(|v| !v),
        ),
    })
}

fn by_row(call: &Call, f: fn(f64) -> f64) -> Result<ArrayRef> {
    call.map::<Float64Type>(|row| Ok(Some(f(call.double(0, row)))))
}

fn signum(value: f64) -> f64 {
    if value == 0.0 || value.is_nan() {
        value
    } else {
        value.signum()
    }
}

fn shape_of(types: &[DataType]) -> Shape {
    types
        .first()
        .and_then(Shape::of)
        .unwrap_or(Shape::new(MAX_DIGITS, 0))
}

/// One digit more than the argument's integer part: rounding may carry.
fn scale_zero(types: &[DataType], _: &[Option<&ScalarValue>]) -> Result<DataType> {
    Ok(Shape::new(shape_of(types).integer_digits() + 1, 0).data_type())
}

/// The fractional digits of the second argument if it is a literal, else those of the first
/// argument.
fn scale_of_digits(types: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let shape = shape_of(types);
    let digits = match literals.get(1) {
        Some(Some(value)) if !value.is_null() => match value.cast_to(&DataType::Int64)? {
            ScalarValue::Int64(Some(digits)) => digits.clamp(0, 38) as u8,
            _ => shape.scale,
        },
        _ => shape.scale,
    };
    Ok(Shape::new(shape.integer_digits() + 1 + digits, digits).data_type())
}

/// Converts 128-bit results to the width of the declared type.
fn finished(values: Decimal128Array, returns: &DataType) -> Result<ArrayRef> {
    match returns {
        DataType::Decimal128(..) => Ok(Arc::new(values.with_data_type(returns.clone()))),
        DataType::Decimal64(p, s) => {
            let wide = values.with_data_type(DataType::Decimal128(*p, *s));
            Ok(cast(&wide, returns)?)
        }
        other => datafusion::common::internal_err!("{other} is not numeric"),
    }
}

/// `f(value, 10^scale)` of every value: a whole number.
fn whole_numeric(call: &Call, f: fn(i128, i128) -> i128) -> Result<ArrayRef> {
    let (values, scale) = call.numeric(0)?;
    let unit = power_of_ten(scale);
    finished(values.unary(|v| f(v, unit)), call.returns)
}

fn ceiling(value: i128, unit: i128) -> i128 {
    value.div_euclid(unit) + i128::from(value.rem_euclid(unit) != 0)
}

fn floor(value: i128, unit: i128) -> i128 {
    value.div_euclid(unit)
}

/// Values cut to a number of digits after (negative: before) the point.
fn digits_numeric(call: &Call, divide: fn(i128, i128) -> i128) -> Result<ArrayRef> {
    let (values, scale) = call.numeric(0)?;
    let digits = call.bigint(1);
    let target = match call.returns {
        DataType::Decimal64(_, s) | DataType::Decimal128(_, s) => *s as i64,
        _ => 0,
    };
    let row = |row: usize| -> Option<i128> {
        let value = values.value(row);
        let keep = digits.value(row).clamp(-38, target);
        let cut = i64::from(scale) - keep;
        let kept = match cut {
            ..=0 => return value.checked_mul(power_of_ten((target - i64::from(scale)) as u8)),
            1..=38 => divide(value, power_of_ten(cut as u8)),
            _ => 0,
        };
        kept.checked_mul(power_of_ten((target - keep).min(38) as u8))
    };
    let results = (0..call.rows)
        .map(|i| match call.any_null(i) {
            true => Ok(None),
            false => row(i).map(Some).ok_or_else(numeric_overflow),
        })
        .collect::<Result<Vec<Option<i128>>>>()?;
    finished(Decimal128Array::from(results), call.returns)
}

/// Applies `f` to numbers within a range; 22003 outside.
fn within(call: &Call, f: fn(f64) -> f64, range: RangeInclusive<f64>) -> Result<ArrayRef> {
    call.map::<Float64Type>(|row| {
        let value = call.double(0, row);
        if !value.is_nan() && !range.contains(&value) {
            let message = "input is out of range";
            return Err(invalid(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
        }
        Ok(Some(f(value)))
    })
}

fn root(value: f64) -> Result<Option<f64>> {
    if value < 0.0 {
        return Err(invalid(
            BAD_POWER,
            "cannot take square root of a negative number",
        ));
    }
    Ok(Some(value.sqrt()))
}

fn range_fault(what: &str) -> DataFusionError {
    invalid(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("value out of range: {what}"),
    )
}

fn exponential(value: f64) -> Result<Option<f64>> {
    let result = value.exp();
    if result.is_infinite() && value.is_finite() {
        return Err(range_fault("overflow"));
    }
    if result == 0.0 && value.is_finite() {
        return Err(range_fault("underflow"));
    }
    Ok(Some(result))
}

fn logarithm(value: f64, f: fn(f64) -> f64) -> Result<Option<f64>> {
    if value == 0.0 {
        return Err(invalid(BAD_LOGARITHM, "cannot take logarithm of zero"));
    }
    if value < 0.0 {
        return Err(invalid(
            BAD_LOGARITHM,
            "cannot take logarithm of a negative number",
        ));
    }
    Ok(Some(f(value)))
}

fn logarithm_to_base(base: f64, value: f64) -> Result<Option<f64>> {
    let (Some(base), Some(value)) = (logarithm(base, f64::ln)?, logarithm(value, f64::ln)?) else {
        return Ok(None);
    };
    if base == 0.0 {
        return Err(division_by_zero());
    }
    Ok(Some(value / base))
}

fn power(base: f64, exponent: f64) -> Result<Option<f64>> {
    if base == 0.0 && exponent < 0.0 {
        return Err(invalid(
            BAD_POWER,
            "zero raised to a negative power is undefined",
        ));
    }
    if base < 0.0 && base.is_finite() && exponent.is_finite() && exponent.fract() != 0.0 {
        let message = "a negative number raised to a non-integer power yields a complex result";
        return Err(invalid(BAD_POWER, message));
    }
    let result = base.powf(exponent);
    let finite = base.is_finite() && exponent.is_finite();
    if result.is_infinite() && finite {
        return Err(range_fault("overflow"));
    }
    if result == 0.0 && base != 0.0 && finite {
        return Err(range_fault("underflow"));
    }
    Ok(Some(result))
}

/// The integer part of a numeric quotient.
fn quotient(call: &Call) -> Result<ArrayRef> {
    let (left, left_scale) = call.numeric(0)?;
    let (right, right_scale) = call.numeric(1)?;
    let scale = left_scale.max(right_scale);
    let row = |row: usize| -> Result<i128> {
        let raised = |v: i128, s: u8| v.checked_mul(power_of_ten(scale - s));
        let divisor = right.value(row);
        if divisor == 0 {
            return Err(division_by_zero());
        }
        match (
            raised(left.value(row), left_scale),
            raised(divisor, right_scale),
        ) {
            (Some(a), Some(b)) => Ok(a / b),
            _ => Err(numeric_overflow()),
        }
    };
    let results = (0..call.rows)
        .map(|i| {
            if call.any_null(i) {
                Ok(None)
            } else {
                row(i).map(Some)
            }
        })
        .collect::<Result<Vec<Option<i128>>>>()?;
    finished(results.into_iter().collect(), call.returns)
}
