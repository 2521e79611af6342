//! Units of dates, times, timestamps and intervals: EXTRACT, `date_part`, `date_trunc`.

use super::overload::Parameter::{Date, Interval, Text, Time, Timestamp, TimestampTz};
use super::overload::{Call, Function, Overload, Returns};
use crate::calendar::{
    Civil, DAY, HOUR, MINUTE, SECOND, civil_from_days, days_from_civil, split_micros,
    timestamp_out_of_range,
};
use crate::decimal::Shape;
use crate::error::{invalid, raise};
use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal64Type, Decimal128Type, Float64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::scalar::ScalarValue;
use strandline_base::{Error, SqlState, SqlType};

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    vec![extract(), date_part(), date_trunc()]
}

/// A part of a date/time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unit {
    Microseconds,
    Milliseconds,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Epoch,
    Julian,
    Offset,
}

fn unit(name: &str) -> Option<Unit> {
    Some(match name.to_ascii_lowercase().as_str() {
        "microsecond" | "microseconds" | "us" | "usec" => Unit::Microseconds,
        "millisecond" | "milliseconds" | "ms" | "msec" => Unit::Milliseconds,
        "second" | "seconds" | "sec" | "s" => Unit::Second,
        "minute" | "minutes" | "min" | "m" => Unit::Minute,
        "hour" | "hours" | "hr" | "h" => Unit::Hour,
        "day" | "days" | "d" => Unit::Day,
        "week" | "weeks" | "w" => Unit::Week,
        "month" | "months" | "mon" => Unit::Month,
        "quarter" | "quarters" | "qtr" => Unit::Quarter,
        "year" | "years" | "yr" | "y" => Unit::Year,
        "decade" | "decades" => Unit::Decade,
        "century" | "centuries" => Unit::Century,
        "millennium" | "millennia" => Unit::Millennium,
        "dow" => Unit::DayOfWeek,
        "isodow" => Unit::IsoDayOfWeek,
        "doy" => Unit::DayOfYear,
        "isoyear" => Unit::IsoYear,
        "epoch" => Unit::Epoch,
        "julian" => Unit::Julian,
        "timezone" | "timezone_hour" | "timezone_minute" => Unit::Offset,
        _ => return None,
    })
}

fn unit_or_fault(name: &str, type_name: &str) -> Result<Unit> {
    unit(name).ok_or_else(|| {
        invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("unit \"{name}\" not recognized for type {type_name}"),
        )
    })
}

fn no_such_unit(name: Unit, type_name: &str) -> DataFusionError {
    let name = format!("{name:?}").to_ascii_lowercase();
    raise(Error::unsupported(format!(
        "unit \"{name}\" not supported for type {type_name}"
    )))
}

/// `EXTRACT(unit FROM x)`: a numeric with the unit's maximal fractional digits.
pub fn extract() -> Function {
    Function::new(
        "extract",
        part_overloads(Returns::Computed(extract_type), extracted),
    )
}

/// `date_part('unit', x)`: a double.
fn date_part() -> Function {
    Function::new(
        "date_part",
        part_overloads(Returns::Type(SqlType::Double), parted),
    )
}

fn part_overloads(returns: Returns, body: fn(&Call) -> Result<ArrayRef>) -> Vec<Overload> {
    vec![
        Overload::new(&[Text, TimestampTz], returns, body),
        Overload::new(&[Text, Timestamp], returns, body),
        Overload::new(&[Text, Date], returns, body),
        Overload::new(&[Text, Time], returns, body),
        Overload::new(&[Text, Interval], returns, body),
    ]
}

/// Fractional digits of a unit's value.
fn unit_scale(unit: Option<Unit>) -> u8 {
    match unit {
        Some(Unit::Milliseconds) => 3,
        Some(Unit::Second | Unit::Epoch) | None => 6,
        Some(Unit::Julian) => 20,
        _ => 0,
    }
}

fn extract_type(types: &[DataType], literals: &[Option<&ScalarValue>]) -> Result<DataType> {
    let name = literals
        .first()
        .copied()
        .flatten()
        .and_then(|v| v.try_as_str())
        .flatten();
    let unit = name.and_then(unit);
    let scale = match (unit, types.get(1)) {
        // A whole day.
        (Some(Unit::Julian), Some(DataType::Date32)) => 0,
        _ => unit_scale(unit),
    };
    let precision = if scale > 6 { 38 } else { 18 };
    Ok(Shape::new(precision, scale).data_type())
}

/// The value of a unit times 10^scale.
fn extracted(call: &Call) -> Result<ArrayRef> {
    let known = call.constant_text(0).and_then(unit);
    match call.returns {
        DataType::Decimal64(_, scale) => {
            let scale = *scale as u8;
            call.map::<Decimal64Type>(|row| Ok(part(call, known, row, scale)?.map(|v| v as i64)))
        }
        DataType::Decimal128(_, scale) => {
            let scale = *scale as u8;
            call.map::<Decimal128Type>(|row| part(call, known, row, scale))
        }
        other => datafusion::common::internal_err!("extract gives no {other}"),
    }
}

fn parted(call: &Call) -> Result<ArrayRef> {
    let known = call.constant_text(0).and_then(unit);
    call.map::<Float64Type>(|row| {
        // Six digits do not hold the part of a day.
        let is_julian = match known {
            Some(known) => known == Unit::Julian,
            None => unit(call.text(0).value(row)) == Some(Unit::Julian),
        };
        if is_julian && matches!(call.arrays[1].data_type(), DataType::Timestamp(..)) {
            let (days, time) = split_micros(call.micros(1, row));
            let days = day_part(Unit::Julian, days) as f64;
            return Ok(Some(days + time as f64 / DAY as f64));
        }
        Ok(part(call, known, row, 6)?.map(|v| v as f64 / 1e6))
    })
}

/// One row's part times 10^scale. `known` is the unit if it is the same for all rows.
fn part(call: &Call, known: Option<Unit>, row: usize, scale: u8) -> Result<Option<i128>> {
    let unit_of = |type_name: &str| match known {
        Some(unit) => Ok(unit),
        None => unit_or_fault(call.text(0).value(row), type_name),
    };
    let raised = |whole: i64| i128::from(whole) * 10i128.pow(scale.into());
    let micros = |micros: i64| {
        let exact = i128::from(micros) * 10i128.pow(scale.into());
        crate::decimal::divide_rounded(exact, 1_000_000)
    };
    let array = &call.arrays[1];
    Ok(Some(match array.data_type() {
        DataType::Date32 => {
            let days = i64::from(array.as_primitive::<Date32Type>().value(row));
            match unit_of("date")? {
                Unit::Epoch => raised(days * (DAY / SECOND)),
                unit if unit >= Unit::Day && unit != Unit::Offset => raised(day_part(unit, days)),
                unit => return Err(no_such_unit(unit, "date")),
            }
        }
        DataType::Time64(_) => {
            let time = array.as_primitive::<Time64MicrosecondType>().value(row);
            match unit_of("time without time zone")? {
                Unit::Epoch => micros(time),
                unit => match clock_part(unit, time) {
                    Some(Part::Whole(v)) => raised(v),
                    Some(Part::Micros(v)) => micros(v),
                    None => return Err(no_such_unit(unit, "time without time zone")),
                },
            }
        }
        DataType::Interval(_) => {
            let value = call.interval(1, row);
            let unit = unit_of("interval")?;
            match interval_part(unit, value) {
                Some(Part::Whole(v)) => raised(v),
                Some(Part::Micros(v)) => micros(v),
                None => return Err(no_such_unit(unit, "interval")),
            }
        }
        DataType::Timestamp(_, zone) => {
            let type_name = if zone.is_some() {
                "timestamp with time zone"
            } else {
                "timestamp without time zone"
            };
            let unit = unit_of(type_name)?;
            let moment = call.micros(1, row);
            let (days, time) = split_micros(moment);
            match (unit, clock_part(unit, time)) {
                (Unit::Epoch, _) => micros(moment),
                (Unit::Offset, _) if zone.is_some() => 0,
                (Unit::Offset, _) => return Err(no_such_unit(unit, type_name)),
                (Unit::Julian, _) => {
                    let time = crate::decimal::divide_rounded(raised(time), i128::from(DAY));
                    raised(day_part(unit, days)) + time
                }
                (_, Some(Part::Whole(v))) => raised(v),
                (_, Some(Part::Micros(v))) => micros(v),
                (unit, None) => raised(day_part(unit, days)),
            }
        }
        other => return datafusion::common::internal_err!("extract from {other}"),
    }))
}

/// A whole number, or seconds given in microseconds.
enum Part {
    Whole(i64),
    Micros(i64),
}

fn clock_part(unit: Unit, time: i64) -> Option<Part> {
    Some(match unit {
        Unit::Microseconds => Part::Whole(time % MINUTE),
        Unit::Milliseconds => Part::Micros(time % MINUTE * 1_000),
        Unit::Second => Part::Micros(time % MINUTE),
        Unit::Minute => Part::Whole(time / MINUTE % 60),
        Unit::Hour => Part::Whole(time / HOUR),
        _ => return None,
    })
}

fn interval_part(unit: Unit, value: IntervalMonthDayNano) -> Option<Part> {
    let micros = value.nanoseconds / 1_000;
    let (years, months) = (i64::from(value.months / 12), i64::from(value.months % 12));
    Some(match unit {
        Unit::Day => Part::Whole(value.days.into()),
        Unit::Month => Part::Whole(months),
        Unit::Quarter => Part::Whole(months / 3 + 1),
        Unit::Year => Part::Whole(years),
        Unit::Decade => Part::Whole(years / 10),
        Unit::Century => Part::Whole(years / 100),
        Unit::Millennium => Part::Whole(years / 1_000),
        // A year is 365.25 days here, a month 30.
        Unit::Epoch => {
            let days = years * 1_461 / 4 * DAY + years * 1_461 % 4 * (DAY / 4);
            Part::Micros(days + (months * 30 + i64::from(value.days)) * DAY + micros)
        }
        unit => return clock_part(unit, micros),
    })
}

/// A unit of a day since the epoch.
fn day_part(unit: Unit, days: i64) -> i64 {
    let Civil { year, month, day } = civil_from_days(days);
    // There is no year 0: 1 BC is before 1 AD.
    let shown_year = if year > 0 { year } else { year - 1 };
    let centuries = |of: i64| {
        if year > 0 {
            (year + of - 1) / of
        } else {
            -((of - year) / of)
        }
    };
    match unit {
        Unit::Week => iso_week(days).1,
        Unit::IsoYear => {
            let iso = iso_week(days).0;
            if iso > 0 { iso } else { iso - 1 }
        }
        Unit::Month => month.into(),
        Unit::Quarter => (i64::from(month) + 2) / 3,
        Unit::Year => shown_year,
        Unit::Decade => year.div_euclid(10),
        Unit::Century => centuries(100),
        Unit::Millennium => centuries(1_000),
        Unit::DayOfWeek => (days + 4).rem_euclid(7),
        Unit::IsoDayOfWeek => (days + 3).rem_euclid(7) + 1,
        Unit::DayOfYear => {
            days - days_from_civil(Civil {
                year,
                month: 1,
                day: 1,
            }) + 1
        }
        Unit::Julian => days + 2_440_588,
        _ => day.into(),
    }
}

/// ISO 8601 year and week: week 1 is the one with the year's first Thursday.
pub(super) fn iso_week(days: i64) -> (i64, i64) {
    let thursday = days - (days + 3).rem_euclid(7) + 3;
    let year = civil_from_days(thursday).year;
    let first = days_from_civil(Civil {
        year,
        month: 1,
        day: 1,
    });
    (year, (thursday - first) / 7 + 1)
}

/// `date_trunc('unit', x)`
fn date_trunc() -> Function {
    let body = |call: &Call| {
        call.map::<TimestampMicrosecondType>(|row| {
            let unit = unit_or_fault(call.text(0).value(row), "timestamp")?;
            truncated(unit, call.micros(1, row)).map(Some)
        })
    };
    let interval = |call: &Call| {
        call.map::<IntervalMonthDayNanoType>(|row| {
            interval_to(call.text(0).value(row), call.interval(1, row)).map(Some)
        })
    };
    Function::new(
        "date_trunc",
        vec![
            Overload::new(&[Text, TimestampTz], SqlType::TimestampTz, body),
            Overload::new(&[Text, Timestamp], SqlType::Timestamp, body),
            Overload::new(&[Text, Interval], SqlType::Interval, interval),
        ],
    )
}

/// The length of a unit of the clock in microseconds.
fn clock_unit(unit: Unit) -> Option<i64> {
    Some(match unit {
        Unit::Microseconds => 1,
        Unit::Milliseconds => 1_000,
        Unit::Second => SECOND,
        Unit::Minute => MINUTE,
        Unit::Hour => HOUR,
        Unit::Day => DAY,
        _ => return None,
    })
}

fn truncated(unit: Unit, micros: i64) -> Result<i64> {
    if let Some(length) = clock_unit(unit) {
        return Ok(micros - micros.rem_euclid(length));
    }
    let (days, _) = split_micros(micros);
    let Civil { year, month, .. } = civil_from_days(days);
    let first = |year: i64, month: u8| {
        days_from_civil(Civil {
            year,
            month,
            day: 1,
        })
    };
    let start = match unit {
        Unit::Week => days - (days + 3).rem_euclid(7),
        Unit::Month => first(year, month),
        Unit::Quarter => first(year, (month - 1) / 3 * 3 + 1),
        Unit::Year => first(year, 1),
        Unit::Decade => first(year.div_euclid(10) * 10, 1),
        Unit::Century => first((year - 1).div_euclid(100) * 100 + 1, 1),
        Unit::Millennium => first((year - 1).div_euclid(1_000) * 1_000 + 1, 1),
        other => return Err(no_such_unit(other, "timestamp")),
    };
    start.checked_mul(DAY).ok_or_else(timestamp_out_of_range)
}

/// The interval up to a named unit.
pub(super) fn interval_to(name: &str, value: IntervalMonthDayNano) -> Result<IntervalMonthDayNano> {
    truncated_interval(unit_or_fault(name, "interval")?, value)
}

fn truncated_interval(unit: Unit, value: IntervalMonthDayNano) -> Result<IntervalMonthDayNano> {
    let months = |each: i32| IntervalMonthDayNano::new(value.months / each * each, 0, 0);
    if let Some(length) = clock_unit(unit) {
        let micros = value.nanoseconds / 1_000;
        let kept = if unit == Unit::Day {
            0
        } else {
            micros - micros % length
        };
        return Ok(IntervalMonthDayNano::new(
            value.months,
            value.days,
            kept * 1_000,
        ));
    }
    Ok(match unit {
        Unit::Month => months(1),
        Unit::Quarter => months(3),
        Unit::Year => months(12),
        Unit::Decade => months(120),
        Unit::Century => months(1_200),
        Unit::Millennium => months(12_000),
        other => return Err(no_such_unit(other, "interval")),
    })
}
