//! `make_interval(years, months, weeks, days, hours, mins, secs)`, whose trailing arguments may be
//! missing, and `isfinite`.

use super::overload::Parameter::{Bigint, Date, Double, Interval, Timestamp, TimestampTz};
use super::overload::{Call, Function, Overload, Parameter};
use crate::calendar::interval_out_of_range;
use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::datatypes::{IntervalMonthDayNano, IntervalMonthDayNanoType};
use datafusion::common::Result;
use std::sync::Arc;
use strandline_base::SqlType;

/// The names of the arguments of `make_interval`.
pub const NAMES: [&str; 7] = ["years", "months", "weeks", "days", "hours", "mins", "secs"];

const ALL: &[Parameter] = &[Bigint, Bigint, Bigint, Bigint, Bigint, Bigint, Double];

/// Both functions.
pub fn functions() -> Vec<Function> {
    let made = (0..=ALL.len()).filter_map(|given| ALL.get(..given));
    let made = made.map(|parameters| Overload::new(parameters, SqlType::Interval, made_of));
    let finite = |parameters| Overload::new(parameters, SqlType::Boolean, always);
    vec![
        Function::new("make_interval", made.collect()),
        Function::new(
            "isfinite",
            vec![
                finite(&[Date]),
                finite(&[Timestamp]),
                finite(&[TimestampTz]),
                finite(&[Interval]),
            ],
        ),
    ]
}

/// `isfinite`: dates, timestamps and intervals have no infinity here.
fn always(call: &Call) -> Result<ArrayRef> {
    let values = (0..call.rows).map(|row| (!call.any_null(row)).then_some(true));
    Ok(Arc::new(values.collect::<BooleanArray>()))
}

fn made_of(call: &Call) -> Result<ArrayRef> {
    call.map::<IntervalMonthDayNanoType>(|row| {
        let interval = parts(call, row).ok_or_else(interval_out_of_range)?;
        Ok(Some(interval))
    })
}

/// None: a part is out of range.
fn parts(call: &Call, row: usize) -> Option<IntervalMonthDayNano> {
    const HOUR: i64 = 3_600_000_000;
    let whole = |i: usize| match i < call.arrays.len() {
        true => call.bigint(i).value(row),
        false => 0,
    };
    let sum = |large: i64, factor: i64, small: i64| {
        let total = large.checked_mul(factor)?.checked_add(small)?;
        i32::try_from(total).ok()
    };
    let months = sum(whole(0), 12, whole(1))?;
    let days = sum(whole(2), 7, whole(3))?;
    let seconds = match call.arrays.len() {
        7 => (call.double(6, row) * 1e6).round(),
        _ => 0.0,
    };
    if seconds.is_nan() || seconds.abs() > 9e15 {
        return None;
    }
    let micros = whole(4)
        .checked_mul(HOUR)?
        .checked_add(whole(5).checked_mul(HOUR / 60)?)?
        .checked_add(seconds as i64)?;
    let nanos = micros.checked_mul(1000)?;
    Some(IntervalMonthDayNano::new(months, days, nanos))
}
