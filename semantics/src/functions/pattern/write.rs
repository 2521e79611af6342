//! `to_char` of moments and intervals.

use super::{Case, DAYS, Field, MONTHS, Part, Pattern, ROMAN_MONTHS};
use crate::calendar::{
    Civil, HOUR, MINUTE, SECOND, civil_from_days, days_from_civil, split_micros,
};
use crate::error::invalid;
use crate::functions::date_units::iso_week;
use datafusion::arrow::datatypes::IntervalMonthDayNano;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use std::fmt::Write;
use strandline_base::SqlState;

/// The fields of a moment or an interval for a pattern.
pub struct Shown {
    /// The astronomical year: 0 is 1 BC. For an interval its whole years.
    year: i64,
    /// 1 to 12; for an interval its months, from -11 to 11.
    month: i64,
    day: i64,
    /// for an interval any number, negative like its minutes and seconds if it is negative
    hour: i64,
    minute: i64,
    second: i64,
    micros: i64,
    /// from 1; for an interval its days, with months of 30 days
    day_of_year: i64,
    /// days since 1970-01-01; None for an interval
    days: Option<i64>,
    zoned: bool,
}

impl Shown {
    /// A moment in microseconds since 1970-01-01; `zoned` if it has a time zone (always UTC).
    pub fn moment(micros: i64, zoned: bool) -> Self {
        let (days, time) = split_micros(micros);
        let Civil { year, month, day } = civil_from_days(days);
        let first = Civil {
            year,
            month: 1,
            day: 1,
        };
        Self {
            year,
            month: month.into(),
            day: day.into(),
            hour: time / HOUR,
            minute: time / MINUTE % 60,
            second: time / SECOND % 60,
            micros: time % SECOND,
            day_of_year: days - days_from_civil(first) + 1,
            days: Some(days),
            zoned,
        }
    }

    /// An interval: its months become years and months, its hours do not become days.
    pub fn interval(value: IntervalMonthDayNano) -> Self {
        let time = value.nanoseconds / 1_000;
        let (months, day) = (i64::from(value.months), i64::from(value.days));
        Self {
            year: months / 12,
            month: months % 12,
            day,
            hour: time / HOUR,
            minute: time / MINUTE % 60,
            second: time / SECOND % 60,
            micros: time % SECOND,
            day_of_year: months * 30 + day,
            days: None,
            zoned: false,
        }
    }

    /// The year as people count: 1 for 1 BC.
    fn counted_year(&self) -> i64 {
        match self.days {
            Some(_) if self.year <= 0 => 1 - self.year,
            _ => self.year,
        }
    }

    /// Days since 1970-01-01.
    fn calendar_day(&self) -> Result<i64> {
        self.days.ok_or_else(|| {
            invalid(
                SqlState::INVALID_DATETIME_FORMAT,
                "invalid format specification for an interval value",
            )
        })
    }
}

/// `st`, `nd`, `rd` or `th` after a number's digits.
pub fn ordinal_suffix(digits: &[u8]) -> &'static str {
    match digits {
        [.., b'1', _] => "th",
        [.., b'1'] => "st",
        [.., b'2'] => "nd",
        [.., b'3'] => "rd",
        _ => "th",
    }
}

impl Pattern {
    /// A moment or an interval in the pattern's form.
    ///
    /// # Errors
    /// 22007 for fields that an interval does not have.
    pub fn write(&self, shown: &Shown) -> Result<String> {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push(*text),
                Part::Field {
                    field,
                    case,
                    unpadded,
                    ordinal,
                } => {
                    if let Some((value, width)) = number(*field, shown)? {
                        let width = if *unpadded { 0 } else { width };
                        let digits = format!("{value:0width$}");
                        out.push_str(&digits);
                        if let Some(case) = ordinal {
                            out.push_str(&case.of(ordinal_suffix(digits.as_bytes())));
                        }
                    } else {
                        write_name(&mut out, *field, *case, *unpadded, shown)?;
                    }
                }
            }
        }
        Ok(out)
    }
}

/// A zero-padded width, one more for a minus.
fn padded(value: i64, width: usize) -> (i64, usize) {
    (value, width + usize::from(value < 0))
}

/// The last digits of a year.
fn year_digits(year: i64, digits: usize) -> (i64, usize) {
    match digits {
        4 => padded(year, 4),
        digits => padded(year % 10i64.pow(digits as u32), digits),
    }
}

/// The number of a field and its padded width; `None` for names.
fn number(field: Field, shown: &Shown) -> Result<Option<(i64, usize)>> {
    let year = shown.counted_year();
    Ok(Some(match field {
        Field::Year(digits) => year_digits(year, digits),
        Field::IsoYear(digits) => year_digits(iso_week(shown.calendar_day()?).0, digits),
        Field::MonthNumber => padded(shown.month, 2),
        Field::DayOfMonth => (shown.day, 2),
        Field::DayOfYear => (shown.day_of_year, 3),
        Field::IsoDayOfYear => {
            let days = shown.calendar_day()?;
            ((iso_week(days).1 - 1) * 7 + (days + 3).rem_euclid(7) + 1, 3)
        }
        Field::DayOfWeek => ((shown.calendar_day()? + 4).rem_euclid(7) + 1, 1),
        Field::IsoDayOfWeek => ((shown.calendar_day()? + 3).rem_euclid(7) + 1, 1),
        Field::Hour12 => match shown.hour % 12 {
            0 => (12, 2),
            hour => padded(hour, 2),
        },
        Field::Hour24 => padded(shown.hour, 2),
        Field::Minute => padded(shown.minute, 2),
        Field::Second => padded(shown.second, 2),
        Field::SecondOfDay => ((shown.hour * 60 + shown.minute) * 60 + shown.second, 1),
        Field::Fraction(digits) => (shown.micros / 10i64.pow(6 - digits as u32), digits),
        Field::Millisecond => (shown.micros / 1_000, 3),
        Field::Microsecond => (shown.micros, 6),
        Field::WeekOfMonth => ((shown.day - 1) / 7 + 1, 1),
        Field::WeekOfYear => ((shown.day_of_year - 1) / 7 + 1, 2),
        Field::IsoWeek => (iso_week(shown.calendar_day()?).1, 2),
        Field::Quarter if shown.month != 0 => ((shown.month - 1) / 3 + 1, 1),
        Field::Century if shown.days.is_none() => padded(year / 100, 2),
        Field::Century if shown.year > 0 => ((year - 1) / 100 + 1, 2),
        Field::Century => padded(-((year + 99) / 100), 2),
        Field::Julian => (shown.calendar_day()? + 2_440_588, 1),
        Field::ZoneMinutes => {
            shown.calendar_day()?;
            (0, 2)
        }
        _ => return Ok(None),
    }))
}

fn write_name(
    out: &mut String,
    field: Field,
    case: Case,
    unpadded: bool,
    shown: &Shown,
) -> Result<(), DataFusionError> {
    let month_name = || -> Result<&str> {
        shown.calendar_day()?;
        Ok(MONTHS[shown.month as usize - 1])
    };
    let day_name =
        || -> Result<&str> { Ok(DAYS[(shown.calendar_day()? + 4).rem_euclid(7) as usize]) };
    let (text, width) = match field {
        Field::MonthName => (case.of(month_name()?), 9),
        Field::MonthShort => (case.of(&month_name()?[..3]), 0),
        Field::MonthRoman if shown.month == 0 && shown.year == 0 => (String::new(), 0),
        Field::MonthRoman => {
            let month = match shown.month {
                0 if shown.year >= 0 => 12,
                0 => 1,
                month => (month - 1).rem_euclid(12) + 1,
            };
            (case.of(ROMAN_MONTHS[month as usize - 1]), 4)
        }
        Field::DayName => (case.of(day_name()?), 9),
        Field::DayShort => (case.of(&day_name()?[..3]), 0),
        Field::HalfDay(dots) => {
            let word = match (shown.hour.rem_euclid(24) >= 12, dots) {
                (false, false) => "AM",
                (true, false) => "PM",
                (false, true) => "A.M.",
                (true, true) => "P.M.",
            };
            (case.of(word), 0)
        }
        Field::Era(dots) => {
            shown.calendar_day()?;
            let word = match (shown.year > 0, dots) {
                (true, false) => "AD",
                (false, false) => "BC",
                (true, true) => "A.D.",
                (false, true) => "B.C.",
            };
            (case.of(word), 0)
        }
        Field::ZoneName => {
            shown.calendar_day()?;
            let name = if shown.zoned { "UTC" } else { "" };
            (case.of(name), 0)
        }
        Field::ZoneOffset | Field::ZoneHours => {
            shown.calendar_day()?;
            ("+00".to_string(), 0)
        }
        Field::YearWithComma => {
            let year = shown.counted_year();
            (format!("{},{:03}", year / 1_000, year % 1_000), 0)
        }
        _ => (String::new(), 0),
    };
    let width = if unpadded { 0 } else { width };
    // Writing to a string cannot fail.
    let _ = write!(out, "{text:width$}");
    Ok(())
}
