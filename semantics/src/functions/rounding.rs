//! `round_moment(x, p)`: a time, timestamp or interval rounded to `p` digits of a second, like a
//! cast to `timestamp(p)`.

use super::date_units::interval_to;
use super::overload::Parameter::{Bigint, Interval, Time, Timestamp, TimestampTz};
use super::overload::{Call, Function, Overload};
use crate::calendar::timestamp_out_of_range;
use datafusion::arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray};
use datafusion::arrow::datatypes::{
    IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use datafusion::common::Result;
use strandline_base::SqlType;

/// The function.
pub fn functions() -> Vec<Function> {
    vec![Function::new(
        "round_moment",
        vec![
            Overload::new(
                &[Timestamp, Bigint],
                SqlType::Timestamp,
                micros::<TimestampMicrosecondType>,
            ),
            Overload::new(
                &[TimestampTz, Bigint],
                SqlType::TimestampTz,
                micros::<TimestampMicrosecondType>,
            ),
            Overload::new(
                &[Time, Bigint],
                SqlType::Time,
                micros::<Time64MicrosecondType>,
            ),
            Overload::new(&[Interval, Bigint], SqlType::Interval, interval),
        ],
    )]
}

/// The microseconds of the last kept digit.
fn unit(call: &Call, row: usize) -> i64 {
    unit_of(call.bigint(1).value(row))
}

fn unit_of(digits: i64) -> i64 {
    10i64.pow(6 - digits.clamp(0, 6) as u32)
}

/// The nearest multiple of `unit`; halves are rounded away from zero.
fn rounded(value: i64, unit: i64) -> Option<i64> {
    let half = if value < 0 { -(unit / 2) } else { unit / 2 };
    Some(value.checked_add(half)? / unit * unit)
}

fn micros<P: ArrowPrimitiveType<Native = i64>>(call: &Call) -> Result<ArrayRef> {
    let values = call.arrays[0].as_primitive::<P>();
    call.map::<P>(|row| {
        let value = rounded(values.value(row), unit(call, row));
        value.map(Some).ok_or_else(timestamp_out_of_range)
    })
}

fn interval(call: &Call) -> Result<ArrayRef> {
    call.map::<IntervalMonthDayNanoType>(|row| {
        rounded_interval(call.interval(0, row), call.bigint(1).value(row)).map(Some)
    })
}

fn rounded_interval(value: IntervalMonthDayNano, digits: i64) -> Result<IntervalMonthDayNano> {
    let nanos = rounded(value.nanoseconds, unit_of(digits) * 1_000);
    let nanos = nanos.ok_or_else(timestamp_out_of_range)?;
    Ok(IntervalMonthDayNano::new(value.months, value.days, nanos))
}

/// The interval up to a named unit, with the given digits of a second.
pub fn restricted_interval(
    value: IntervalMonthDayNano,
    unit: Option<&str>,
    digits: Option<u64>,
) -> Result<IntervalMonthDayNano> {
    let value = match unit {
        Some(unit) => interval_to(unit, value)?,
        None => value,
    };
    match digits {
        Some(digits) => rounded_interval(value, digits as i64),
        None => Ok(value),
    }
}
