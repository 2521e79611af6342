//! Trigonometry in degrees. Results at multiples of 30 and 45 degrees are exact, as in PostgreSQL:
//! each function is computed near 0 and scaled by its value at such an angle.

use super::overload::Parameter::Double;
use super::overload::{Call, Function, Overload};
use crate::error::invalid;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::Float64Type;
use datafusion::common::Result;
use strandline_base::{SqlState, SqlType};

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let of_angle = |name, body| Function::new(name, vec![angle(body)]);
    vec![
        of_angle("sind", |c| of_finite(c, sine)),
        of_angle("cosd", |c| of_finite(c, cosine)),
        of_angle("tand", |c| of_finite(c, tangent)),
        of_angle("cotd", |c| of_finite(c, cotangent)),
        of_angle("asind", |c| of_ratio(c, arcsine)),
        of_angle("acosd", |c| of_ratio(c, arccosine)),
        of_angle("atand", |c| {
            c.map::<Float64Type>(|row| Ok(Some(eighths(c.double(0, row).atan()))))
        }),
        Function::new(
            "atan2d",
            vec![Overload::new(&[Double, Double], SqlType::Double, |c| {
                c.map::<Float64Type>(|row| {
                    Ok(Some(eighths(c.double(0, row).atan2(c.double(1, row)))))
                })
            })],
        ),
    ]
}

fn angle(body: fn(&Call) -> Result<ArrayRef>) -> Overload {
    Overload::new(&[Double], SqlType::Double, body)
}

fn out_of_range<T>() -> Result<T> {
    let message = "input is out of range";
    Err(invalid(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message))
}

fn of_finite(call: &Call, f: fn(f64) -> f64) -> Result<ArrayRef> {
    call.map::<Float64Type>(|row| match call.double(0, row) {
        value if value.is_infinite() => out_of_range(),
        value if value.is_nan() => Ok(Some(value)),
        value => Ok(Some(f(value))),
    })
}

fn of_ratio(call: &Call, f: fn(f64) -> f64) -> Result<ArrayRef> {
    call.map::<Float64Type>(|row| match call.double(0, row) {
        value if value.is_nan() => Ok(Some(value)),
        value if !(-1.0..=1.0).contains(&value) => out_of_range(),
        value => Ok(Some(f(value))),
    })
}

/// Radians as degrees, exact at multiples of an eighth of the circle.
fn eighths(radians: f64) -> f64 {
    radians / 1f64.atan() * 45.0
}

/// The sine of 0 to 30 degrees.
fn small_sine(angle: f64) -> f64 {
    angle.to_radians().sin() / 30f64.to_radians().sin() / 2.0
}

/// The cosine of 0 to 60 degrees.
fn small_cosine(angle: f64) -> f64 {
    let (rest, whole) = (
        1.0 - angle.to_radians().cos(),
        1.0 - 60f64.to_radians().cos(),
    );
    1.0 - rest / whole / 2.0
}

/// The sine of 0 to 90 degrees.
fn first_sine(angle: f64) -> f64 {
    match angle <= 30.0 {
        true => small_sine(angle),
        false => small_cosine(90.0 - angle),
    }
}

/// The cosine of 0 to 90 degrees.
fn first_cosine(angle: f64) -> f64 {
    match angle <= 60.0 {
        true => small_cosine(angle),
        false => small_sine(90.0 - angle),
    }
}

/// Maps an angle to 0 to 180 degrees, and returns whether that changed the sign of its sine.
fn half_circle(angle: f64) -> (f64, bool) {
    let angle = angle % 360.0;
    let (angle, turned) = (angle.abs(), angle < 0.0);
    match angle > 180.0 {
        true => (360.0 - angle, !turned),
        false => (angle, turned),
    }
}

fn signed(value: f64, is_negative: bool) -> f64 {
    match is_negative {
        true => -value,
        false => value,
    }
}

fn sine(angle: f64) -> f64 {
    let (angle, turned) = half_circle(angle);
    let angle = if angle > 90.0 { 180.0 - angle } else { angle };
    signed(first_sine(angle), turned)
}

fn cosine(angle: f64) -> f64 {
    let (angle, _) = half_circle(angle);
    match angle > 90.0 {
        true => -first_cosine(180.0 - angle),
        false => first_cosine(angle),
    }
}

/// A quotient that changes its sign at 90 degrees, over its value at 45.
fn quotient(angle: f64, f: fn(f64) -> f64) -> f64 {
    let (angle, turned) = half_circle(angle);
    let (angle, turned) = match angle > 90.0 {
        true => (180.0 - angle, !turned),
        false => (angle, turned),
    };
    let value = signed(f(angle) / f(45.0), turned);
    // Avoids a negative zero.
    if value == 0.0 { 0.0 } else { value }
}

fn tangent(angle: f64) -> f64 {
    quotient(angle, |angle| first_sine(angle) / first_cosine(angle))
}

fn cotangent(angle: f64) -> f64 {
    quotient(angle, |angle| first_cosine(angle) / first_sine(angle))
}

/// Degrees from the arc sine of 0 to 0.5.
fn small_arcsine(value: f64) -> f64 {
    value.asin() / 0.5f64.asin() * 30.0
}

/// Degrees from the arc cosine of 0.5 to 1.
fn small_arccosine(value: f64) -> f64 {
    value.acos() / 0.5f64.acos() * 60.0
}

fn arcsine(value: f64) -> f64 {
    let positive = match value.abs() {
        small if small <= 0.5 => small_arcsine(small),
        large => 90.0 - small_arccosine(large),
    };
    signed(positive, value < 0.0)
}

fn arccosine(value: f64) -> f64 {
    if value < 0.0 {
        return 90.0 + arcsine(-value);
    }
    match value <= 0.5 {
        true => 90.0 - small_arcsine(value),
        false => small_arccosine(value),
    }
}
