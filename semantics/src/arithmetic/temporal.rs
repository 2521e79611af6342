//! Arithmetic on dates, times, timestamps and intervals.
//!
//! | left | | right | result |
//! |---|---|---|---|
//! | date | `+` `-` | integer | date |
//! | date | `-` | date | integer (days) |
//! | date | `+` | time | timestamp |
//! | date, timestamp, timestamptz | `+` `-` | interval | timestamp, timestamptz |
//! | timestamp(tz) | `-` | timestamp(tz) | interval of days and time |
//! | time | `+` `-` | interval | time, around the clock |
//! | time | `-` | time | interval |
//! | interval | `+` `-` | interval | interval |
//! | interval | `*` `/` | double | interval |
//!
//! As in PostgreSQL, an interval is applied months first (cut to the month's length), then days,
//! then time. Fractions from `*` and `/` spill from months to days (30 a month) and from days to
//! time. Days and hours are in UTC.

use super::Operation;
use super::operand::{Pair, any_valid, zip};
use crate::calendar::{
    DAY, add_months, checked_day, date_out_of_range, interval_out_of_range, split_micros,
    timestamp_out_of_range,
};
use crate::error::division_by_zero;
use datafusion::arrow::array::ArrowPrimitiveType;
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Float64Type, Int32Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    IntervalUnit, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::ColumnarValue;

const INTERVAL: DataType = DataType::Interval(IntervalUnit::MonthDayNano);
const TIME: DataType = DataType::Time64(TimeUnit::Microsecond);
const TIMESTAMP: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The types to which the operands are converted, and the result's type.
#[derive(Debug, PartialEq)]
pub struct Typed {
    /// Types of the left and the right operand.
    pub operands: [DataType; 2],
    /// Type of the result.
    pub result: DataType,
}

fn typed(left: &DataType, right: &DataType, result: &DataType) -> Option<Typed> {
    Some(Typed {
        operands: [left.clone(), right.clone()],
        result: result.clone(),
    })
}

/// Converts any unit to microseconds.
fn micros(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Time32(_) | DataType::Time64(_) => TIME,
        DataType::Interval(_) | DataType::Duration(_) => INTERVAL,
        DataType::Date64 => DataType::Date32,
        other => other.clone(),
    }
}

/// The typing of the table above; `None` if there is no such operator.
pub fn resolve(operation: Operation, left: &DataType, right: &DataType) -> Option<Typed> {
    use DataType::{Date32, Float64, Int32, Interval, Time64, Timestamp};
    use Operation::{Add, Divide, Multiply, Subtract};
    let (left, right) = (&micros(left), &micros(right));
    let number = |t: &DataType| t.is_numeric();
    match (left, operation, right) {
        (Date32, Add | Subtract, t) if t.is_integer() => typed(left, &Int32, &Date32),
        (t, Add, Date32) if t.is_integer() => typed(&Int32, right, &Date32),
        (Date32, Subtract, Date32) => typed(left, right, &Int32),
        (Date32, Add, Time64(_)) | (Time64(_), Add, Date32) => typed(left, right, &TIMESTAMP),
        (Date32, Add | Subtract, Interval(_)) => typed(&TIMESTAMP, right, &TIMESTAMP),
        (Interval(_), Add, Date32) => typed(left, &TIMESTAMP, &TIMESTAMP),
        (Timestamp(..), Add | Subtract, Interval(_)) => typed(left, right, left),
        (Interval(_), Add, Timestamp(..)) => typed(left, right, right),
        (Timestamp(..), Subtract, Timestamp(..)) => typed(left, right, &INTERVAL),
        (Timestamp(..), Subtract, Date32) => typed(left, &TIMESTAMP, &INTERVAL),
        (Date32, Subtract, Timestamp(..)) => typed(&TIMESTAMP, right, &INTERVAL),
        (Time64(_), Add | Subtract, Interval(_)) => typed(left, right, left),
        (Interval(_), Add, Time64(_)) => typed(left, right, right),
        (Time64(_), Subtract, Time64(_)) => typed(left, right, &INTERVAL),
        (Interval(_), Add | Subtract, Interval(_)) => typed(left, right, left),
        (Interval(_), Multiply | Divide, t) if number(t) => typed(left, &Float64, left),
        (t, Multiply, Interval(_)) if number(t) => typed(&Float64, right, right),
        _ => None,
    }
}

/// The operation on operands of the types from [`resolve`].
pub fn compute(operation: Operation, pair: &Pair, result: &DataType) -> Result<ColumnarValue> {
    use DataType::{Date32, Float64, Int32, Interval, Time64, Timestamp};
    let sign = if operation == Operation::Subtract {
        -1
    } else {
        1
    };
    match (pair.left.data_type(), pair.right.data_type()) {
        (Date32, Int32) => days(pair, false, sign),
        (Int32, Date32) => days(pair, true, sign),
        (Date32, Date32) => date_difference(pair),
        (Date32, Time64(_)) => date_and_time(pair, false),
        (Time64(_), Date32) => date_and_time(pair, true),
        (Timestamp(..), Interval(_)) => moved_timestamp(pair, false, sign, result),
        (Interval(_), Timestamp(..)) => moved_timestamp(pair, true, sign, result),
        (Timestamp(..), Timestamp(..)) => timestamp_difference(pair),
        (Time64(_), Interval(_)) => moved_time(pair, false, sign),
        (Interval(_), Time64(_)) => moved_time(pair, true, sign),
        (Time64(_), Time64(_)) => time_difference(pair),
        (Interval(_), Interval(_)) => interval_sum(pair, sign),
        (Interval(_), Float64) => scaled(pair, false, operation == Operation::Divide),
        (Float64, Interval(_)) => scaled(pair, true, false),
        (left, right) => {
            datafusion::common::internal_err!("no temporal arithmetic on {left} and {right}")
        }
    }
}

/// Runs a fallible kernel; `error` is raised if a row that is not NULL has no result.
fn attempt<A, B, O>(
    pair: &Pair,
    swapped: bool,
    f: impl Fn(A::Native, B::Native) -> Option<O::Native>,
    error: fn() -> DataFusionError,
    result: &DataType,
) -> Result<ColumnarValue>
where
    A: ArrowPrimitiveType,
    B: ArrowPrimitiveType,
    O: ArrowPrimitiveType,
{
    let (first, second) = if swapped {
        (&pair.right, &pair.left)
    } else {
        (&pair.left, &pair.right)
    };
    let (a, b) = (first.operand::<A>(), second.operand::<B>());
    let mut fault = false;
    let values = zip(pair.rows, a, b, |x, y| {
        f(x, y).unwrap_or_else(|| {
            fault = true;
            O::Native::default()
        })
    });
    let at_fault = |i| f(a.get(i), b.get(i)).is_none();
    if fault && any_valid(pair.rows, pair.nulls.as_ref(), at_fault) {
        return Err(error());
    }
    pair.finish::<O>(values, result)
}

fn days(pair: &Pair, swapped: bool, sign: i32) -> Result<ColumnarValue> {
    let f = |date: i32, days: i32| checked_day(i64::from(date) + i64::from(days) * i64::from(sign));
    attempt::<Date32Type, Int32Type, Date32Type>(
        pair,
        swapped,
        f,
        date_out_of_range,
        &DataType::Date32,
    )
}

fn date_difference(pair: &Pair) -> Result<ColumnarValue> {
    attempt::<Date32Type, Date32Type, Int32Type>(
        pair,
        false,
        i32::checked_sub,
        date_out_of_range,
        &DataType::Int32,
    )
}

fn date_and_time(pair: &Pair, swapped: bool) -> Result<ColumnarValue> {
    let f = |date: i32, time: i64| i64::from(date).checked_mul(DAY)?.checked_add(time);
    attempt::<Date32Type, Time64MicrosecondType, TimestampMicrosecondType>(
        pair,
        swapped,
        f,
        timestamp_out_of_range,
        &TIMESTAMP,
    )
}

/// `micros` since the epoch plus (`sign` = 1) or minus (-1) an interval.
pub fn move_timestamp(micros: i64, interval: IntervalMonthDayNano, sign: i32) -> Option<i64> {
    let (mut day, time) = split_micros(micros);
    day = add_months(day, interval.months.checked_mul(sign)?);
    day += i64::from(interval.days) * i64::from(sign);
    let time = time + interval.nanoseconds / 1_000 * i64::from(sign);
    day.checked_mul(DAY)?.checked_add(time)
}

fn moved_timestamp(
    pair: &Pair,
    swapped: bool,
    sign: i32,
    result: &DataType,
) -> Result<ColumnarValue> {
    attempt::<TimestampMicrosecondType, IntervalMonthDayNanoType, TimestampMicrosecondType>(
        pair,
        swapped,
        |micros, interval| move_timestamp(micros, interval, sign),
        timestamp_out_of_range,
        result,
    )
}

/// An interval of days and a time of the same sign.
fn days_and_time(micros: i64) -> Option<IntervalMonthDayNano> {
    let days = i32::try_from(micros / DAY).ok()?;
    Some(IntervalMonthDayNano::new(0, days, micros % DAY * 1_000))
}

fn timestamp_difference(pair: &Pair) -> Result<ColumnarValue> {
    attempt::<TimestampMicrosecondType, TimestampMicrosecondType, IntervalMonthDayNanoType>(
        pair,
        false,
        |a, b| days_and_time(a.checked_sub(b)?),
        interval_out_of_range,
        &INTERVAL,
    )
}

fn moved_time(pair: &Pair, swapped: bool, sign: i32) -> Result<ColumnarValue> {
    let f = |time: i64, interval: IntervalMonthDayNano| {
        let step = interval.nanoseconds / 1_000 % DAY * i64::from(sign);
        Some((time + step).rem_euclid(DAY))
    };
    attempt::<Time64MicrosecondType, IntervalMonthDayNanoType, Time64MicrosecondType>(
        pair,
        swapped,
        f,
        interval_out_of_range,
        &TIME,
    )
}

fn time_difference(pair: &Pair) -> Result<ColumnarValue> {
    attempt::<Time64MicrosecondType, Time64MicrosecondType, IntervalMonthDayNanoType>(
        pair,
        false,
        |a, b| Some(IntervalMonthDayNano::new(0, 0, (a - b) * 1_000)),
        interval_out_of_range,
        &INTERVAL,
    )
}

/// The sum of an interval and `sign` times another.
pub fn add_intervals(
    a: IntervalMonthDayNano,
    b: IntervalMonthDayNano,
    sign: i32,
) -> Option<IntervalMonthDayNano> {
    Some(IntervalMonthDayNano::new(
        a.months.checked_add(b.months.checked_mul(sign)?)?,
        a.days.checked_add(b.days.checked_mul(sign)?)?,
        a.nanoseconds
            .checked_add(b.nanoseconds.checked_mul(i64::from(sign))?)?,
    ))
}

fn interval_sum(pair: &Pair, sign: i32) -> Result<ColumnarValue> {
    attempt::<IntervalMonthDayNanoType, IntervalMonthDayNanoType, IntervalMonthDayNanoType>(
        pair,
        false,
        |a, b| add_intervals(a, b, sign),
        interval_out_of_range,
        &INTERVAL,
    )
}

fn scaled(pair: &Pair, swapped: bool, divide: bool) -> Result<ColumnarValue> {
    if divide {
        let divisor = pair.right.operand::<Float64Type>();
        if any_valid(pair.rows, pair.nulls.as_ref(), |i| divisor.get(i) == 0.0) {
            return Err(division_by_zero());
        }
    }
    let f = |interval, x| {
        if divide {
            scale(interval, |v| v / x)
        } else {
            scale(interval, |v| v * x)
        }
    };
    attempt::<IntervalMonthDayNanoType, Float64Type, IntervalMonthDayNanoType>(
        pair,
        swapped,
        f,
        interval_out_of_range,
        &INTERVAL,
    )
}

/// Applies `f` to every field. Fractions of months become days, and fractions of days become time.
/// Noise of the multiplication below a microsecond is rounded away before a fraction is cut.
pub fn scale(
    interval: IntervalMonthDayNano,
    f: impl Fn(f64) -> f64,
) -> Option<IntervalMonthDayNano> {
    let round_micros = |seconds: f64| (seconds * 1e6).round() / 1e6;
    let months = f(f64::from(interval.months));
    let days = f(f64::from(interval.days));
    let whole_months = whole(months)?;
    let whole_days = whole(days)?;
    let mut spilled_days = round_micros((months - f64::from(whole_months)) * 30.0);
    let mut seconds =
        round_micros((days - f64::from(whole_days) + spilled_days.fract()) * 86_400.0);
    spilled_days = spilled_days.trunc();
    if seconds.abs() >= 86_400.0 {
        spilled_days += (seconds / 86_400.0).trunc();
        seconds %= 86_400.0;
    }
    let micros = f(interval.nanoseconds as f64 / 1e3).round() + (seconds * 1e6).round();
    // Nanoseconds must fit 64 bits; NaN is refused too.
    if micros.is_nan() || micros.abs() >= 9.2e15 {
        return None;
    }
    let days = whole_days.checked_add(whole(spilled_days)?)?;
    Some(IntervalMonthDayNano::new(
        whole_months,
        days,
        micros as i64 * 1_000,
    ))
}

fn whole(value: f64) -> Option<i32> {
    let value = value.trunc();
    (value >= f64::from(i32::MIN) && value <= f64::from(i32::MAX)).then_some(value as i32)
}
