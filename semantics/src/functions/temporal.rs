//! Functions that make or change dates, times, timestamps and intervals; time zones. `date_units`
//! has the functions that read or truncate them by unit.

use super::overload::Parameter::{Bigint, Double, Interval, Text, Timestamp, TimestampTz};
use super::overload::{Call, Function, Overload};
use crate::calendar::{
    Civil, DAY, HOUR, MINUTE, checked_day, civil_from_days, days_from_civil, days_in_month,
    interval_out_of_range, split_micros, timestamp_out_of_range,
};
use crate::error::{invalid, raise};
use crate::text::temporal::parse_offset_text;
use datafusion::arrow::array::{ArrayRef, ArrowPrimitiveType};
use datafusion::arrow::datatypes::{
    Date32Type, Decimal128Type, IntervalMonthDayNano, IntervalMonthDayNanoType,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use strandline_base::{Error, SqlState, SqlType};

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let mut all = vec![interval_order()];
    all.extend(makers());
    all.extend(interval_functions());
    all.push(timezone());
    all
}

/// The number by which intervals are compared.
pub fn interval_order() -> Function {
    Function::new(
        "interval_order",
        vec![Overload::new(
            &[Interval],
            SqlType::Numeric {
                precision: 38,
                scale: 0,
            },
            |call| {
                call.map::<Decimal128Type>(|row| {
                    let value = call.interval(0, row);
                    let days = i128::from(value.months) * 30 + i128::from(value.days);
                    Ok(Some(
                        days * i128::from(DAY) * 1_000 + i128::from(value.nanoseconds),
                    ))
                })
            },
        )],
    )
}

fn field_fault(message: &str) -> DataFusionError {
    invalid(SqlState::DATETIME_FIELD_OVERFLOW, message)
}

/// Days since the epoch of a date given by its fields; negative years are BC.
fn checked_date(year: i64, month: i64, day: i64) -> Result<i64> {
    let fault = || {
        field_fault(&format!(
            "date field value out of range: {year}-{month:02}-{day:02}"
        ))
    };
    let astronomical = if year < 0 { year + 1 } else { year };
    if year.abs() > 300_000 || !(1..=12).contains(&month) {
        return Err(fault());
    }
    let month = month as u8;
    if !(1..=i64::from(days_in_month(astronomical, month))).contains(&day) {
        return Err(fault());
    }
    let days = days_from_civil(Civil {
        year: astronomical,
        month,
        day: day as u8,
    });
    checked_day(days).map(i64::from).ok_or_else(fault)
}

fn checked_time(hour: i64, minute: i64, seconds: f64) -> Result<i64> {
    let micros = (seconds * 1e6).round();
    let valid =
        (0..=24).contains(&hour) && (0..60).contains(&minute) && (0.0..=60e6).contains(&micros);
    let time = hour * HOUR + minute * MINUTE + micros as i64;
    if valid && time <= DAY {
        Ok(time)
    } else {
        Err(field_fault("time field value out of range"))
    }
}

fn whole(call: &Call, argument: usize, row: usize) -> i64 {
    call.bigint(argument).value(row)
}

fn moment_of(call: &Call, row: usize) -> Result<Option<i64>> {
    let days = checked_date(
        whole(call, 0, row),
        whole(call, 1, row),
        whole(call, 2, row),
    )?;
    let time = checked_time(
        whole(call, 3, row),
        whole(call, 4, row),
        call.double(5, row),
    )?;
    Ok(Some(days * DAY + time))
}

fn makers() -> Vec<Function> {
    let moment = |c: &Call| c.map::<TimestampMicrosecondType>(|row| moment_of(c, row));
    const MOMENT: &[super::overload::Parameter] = &[Bigint, Bigint, Bigint, Bigint, Bigint, Double];
    vec![
        Function::new(
            "make_date",
            vec![Overload::new(
                &[Bigint, Bigint, Bigint],
                SqlType::Date,
                |c| {
                    c.map::<Date32Type>(|row| {
                        let days =
                            checked_date(whole(c, 0, row), whole(c, 1, row), whole(c, 2, row))?;
                        Ok(Some(days as i32))
                    })
                },
            )],
        ),
        Function::new(
            "make_time",
            vec![Overload::new(
                &[Bigint, Bigint, Double],
                SqlType::Time,
                |c| {
                    c.map::<Time64MicrosecondType>(|row| {
                        checked_time(whole(c, 0, row), whole(c, 1, row), c.double(2, row)).map(Some)
                    })
                },
            )],
        ),
        Function::new(
            "make_timestamp",
            vec![Overload::new(MOMENT, SqlType::Timestamp, moment)],
        ),
        Function::new(
            "make_timestamptz",
            vec![Overload::new(MOMENT, SqlType::TimestampTz, moment)],
        ),
    ]
}

fn interval_functions() -> Vec<Function> {
    type Change = fn(IntervalMonthDayNano) -> Option<IntervalMonthDayNano>;
    fn changed(call: &Call, f: Change) -> Result<ArrayRef> {
        call.map::<IntervalMonthDayNanoType>(|row| {
            f(call.interval(0, row))
                .map(Some)
                .ok_or_else(interval_out_of_range)
        })
    }
    let on_interval = |name, body| {
        Function::new(
            name,
            vec![Overload::new(&[Interval], SqlType::Interval, body)],
        )
    };
    let age = |c: &Call| {
        c.map::<IntervalMonthDayNanoType>(|row| Ok(Some(age(c.micros(0, row), c.micros(1, row)))))
    };
    vec![
        on_interval("justify_hours", |c| changed(c, justify_hours)),
        on_interval("justify_days", |c| changed(c, justify_days)),
        on_interval("justify_interval", |c| changed(c, justify_interval)),
        Function::new(
            "age",
            vec![
                Overload::new(&[TimestampTz, TimestampTz], SqlType::Interval, age),
                Overload::new(&[Timestamp, Timestamp], SqlType::Interval, age),
            ],
        ),
    ]
}

/// Converts 24 hours to a day.
fn justify_hours(value: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    let day = DAY * 1_000;
    let mut days = value
        .days
        .checked_add(i32::try_from(value.nanoseconds / day).ok()?)?;
    let mut nanos = value.nanoseconds % day;
    if days > 0 && nanos < 0 {
        nanos += day;
        days -= 1;
    } else if days < 0 && nanos > 0 {
        nanos -= day;
        days += 1;
    }
    Some(IntervalMonthDayNano::new(value.months, days, nanos))
}

/// Converts 30 days to a month.
fn justify_days(value: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    let mut months = value.months.checked_add(value.days / 30)?;
    let mut days = value.days % 30;
    if months > 0 && days < 0 {
        days += 30;
        months -= 1;
    } else if months < 0 && days > 0 {
        days -= 30;
        months += 1;
    }
    Some(IntervalMonthDayNano::new(months, days, value.nanoseconds))
}

/// Does both, and gives all fields one sign.
fn justify_interval(value: IntervalMonthDayNano) -> Option<IntervalMonthDayNano> {
    let day = DAY * 1_000;
    let mut days = value
        .days
        .checked_add(i32::try_from(value.nanoseconds / day).ok()?)?;
    let mut nanos = value.nanoseconds % day;
    let mut months = value.months.checked_add(days / 30)?;
    days %= 30;
    if months > 0 && (days < 0 || (days == 0 && nanos < 0)) {
        days += 30;
        months -= 1;
    } else if months < 0 && (days > 0 || (days == 0 && nanos > 0)) {
        days -= 30;
        months += 1;
    }
    if days > 0 && nanos < 0 {
        nanos += day;
        days -= 1;
    } else if days < 0 && nanos > 0 {
        nanos -= day;
        days += 1;
    }
    Some(IntervalMonthDayNano::new(months, days, nanos))
}

/// The difference in years, months, days and time that a calendar shows.
fn age(later: i64, earlier: i64) -> IntervalMonthDayNano {
    if later < earlier {
        let positive = age(earlier, later);
        return IntervalMonthDayNano::new(-positive.months, -positive.days, -positive.nanoseconds);
    }
    let ((days_a, time_a), (days_b, time_b)) = (split_micros(later), split_micros(earlier));
    let (a, b) = (civil_from_days(days_a), civil_from_days(days_b));
    let mut months = (a.year - b.year) * 12 + i64::from(a.month) - i64::from(b.month);
    let mut days = i64::from(a.day) - i64::from(b.day);
    let mut time = time_a - time_b;
    if time < 0 {
        time += DAY;
        days -= 1;
    }
    if days < 0 {
        // The borrowed month has the length of the earlier date's month.
        days += i64::from(days_in_month(b.year, b.month));
        months -= 1;
    }
    IntervalMonthDayNano::new(months as i32, days as i32, time * 1_000)
}

/// `timezone(zone, x)`, which implements `x AT TIME ZONE zone`. A timestamp is read as the zone's
/// local time, a timestamptz is shown in it. Zones are UTC and fixed offsets.
fn timezone() -> Function {
    fn shifted<P: ArrowPrimitiveType<Native = i64>>(call: &Call, sign: i64) -> Result<ArrayRef> {
        call.map::<P>(|row| {
            let offset = zone_offset(call.text(0).value(row))?;
            let moved = call.micros(1, row).checked_add(sign * offset);
            moved.map(Some).ok_or_else(timestamp_out_of_range)
        })
    }
    Function::new(
        "timezone",
        vec![
            Overload::new(&[Text, TimestampTz], SqlType::Timestamp, |c| {
                shifted::<TimestampMicrosecondType>(c, 1)
            }),
            Overload::new(&[Text, Timestamp], SqlType::TimestampTz, |c| {
                shifted::<TimestampMicrosecondType>(c, -1)
            }),
        ],
    )
}

/// Microseconds east of UTC.
pub fn zone_offset(zone: &str) -> Result<i64> {
    let name = zone.trim();
    if ["utc", "gmt", "z", "zulu", "etc/utc"]
        .iter()
        .any(|z| name.eq_ignore_ascii_case(z))
    {
        return Ok(0);
    }
    // As in POSIX, a bare offset in a zone's name counts west of Greenwich.
    parse_offset_text(name)
        .map(|offset| -offset)
        .ok_or_else(|| {
            raise(
                Error::invalid(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("time zone \"{zone}\" not recognized"),
                )
                .with_hint("Strandline knows UTC and fixed offsets such as '+02'."),
            )
        })
}
