//! Patterns of `to_char`, `to_date` and `to_timestamp` for dates and times.
//!
//! A pattern is a sequence of [`Field`]s and literal text. Supported are the fields of [`TABLE`],
//! the prefix `FM` (no padding), the suffixes `TH` and `th`, and text in double quotes.

use super::temporal::iso_week;
use crate::semantics::calendar::{
    Civil, DAY, HOUR, MINUTE, SECOND, civil_from_days, days_from_civil, days_in_month, split_micros,
};
use crate::semantics::error::invalid;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use std::fmt::Write;
use strandline_base::SqlState;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// How a name is spelled.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Case {
    Upper,
    Title,
    Lower,
}

/// A field of a pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Field {
    Year(usize),
    YearWithComma,
    IsoYear,
    MonthNumber,
    MonthName(Case),
    MonthShort(Case),
    DayOfMonth,
    DayOfYear,
    DayOfWeek,
    IsoDayOfWeek,
    DayName(Case),
    DayShort(Case),
    Hour12,
    Hour24,
    Minute,
    Second,
    SecondOfDay,
    Millisecond,
    Microsecond,
    HalfDay(Case, bool),
    WeekOfMonth,
    WeekOfYear,
    IsoWeek,
    Quarter,
    Century,
    Julian,
    ZoneName,
    ZoneOffset,
    Era(Case),
}

/// Spellings, longer ones before their prefixes.
const TABLE: [(&str, Field); 52] = [
    ("Y,YYY", Field::YearWithComma),
    ("YYYY", Field::Year(4)),
    ("YYY", Field::Year(3)),
    ("YY", Field::Year(2)),
    ("Y", Field::Year(1)),
    ("yyyy", Field::Year(4)),
    ("yy", Field::Year(2)),
    ("IYYY", Field::IsoYear),
    ("MONTH", Field::MonthName(Case::Upper)),
    ("Month", Field::MonthName(Case::Title)),
    ("month", Field::MonthName(Case::Lower)),
    ("MON", Field::MonthShort(Case::Upper)),
    ("Mon", Field::MonthShort(Case::Title)),
    ("mon", Field::MonthShort(Case::Lower)),
    ("MM", Field::MonthNumber),
    ("mm", Field::MonthNumber),
    ("DAY", Field::DayName(Case::Upper)),
    ("Day", Field::DayName(Case::Title)),
    ("day", Field::DayName(Case::Lower)),
    ("DY", Field::DayShort(Case::Upper)),
    ("Dy", Field::DayShort(Case::Title)),
    ("dy", Field::DayShort(Case::Lower)),
    ("DDD", Field::DayOfYear),
    ("DD", Field::DayOfMonth),
    ("dd", Field::DayOfMonth),
    ("D", Field::DayOfWeek),
    ("ID", Field::IsoDayOfWeek),
    ("HH24", Field::Hour24),
    ("hh24", Field::Hour24),
    ("HH12", Field::Hour12),
    ("hh12", Field::Hour12),
    ("HH", Field::Hour12),
    ("MI", Field::Minute),
    ("mi", Field::Minute),
    ("SSSS", Field::SecondOfDay),
    ("SS", Field::Second),
    ("ss", Field::Second),
    ("MS", Field::Millisecond),
    ("US", Field::Microsecond),
    ("A.M.", Field::HalfDay(Case::Upper, true)),
    ("P.M.", Field::HalfDay(Case::Upper, true)),
    ("AM", Field::HalfDay(Case::Upper, false)),
    ("PM", Field::HalfDay(Case::Upper, false)),
    ("am", Field::HalfDay(Case::Lower, false)),
    ("pm", Field::HalfDay(Case::Lower, false)),
    ("WW", Field::WeekOfYear),
    ("W", Field::WeekOfMonth),
    ("IW", Field::IsoWeek),
    ("Q", Field::Quarter),
    ("CC", Field::Century),
    ("J", Field::Julian),
    ("TZ", Field::ZoneName),
];
/// Spellings that would hide shorter ones of [`TABLE`] in it.
const MORE: [(&str, Field); 4] = [
    ("OF", Field::ZoneOffset),
    ("BC", Field::Era(Case::Upper)),
    ("AD", Field::Era(Case::Upper)),
    ("tz", Field::ZoneName),
];

/// A part of a pattern.
#[derive(Debug, PartialEq)]
enum Part {
    Field {
        field: Field,
        unpadded: bool,
        ordinal: Option<Case>,
    },
    Text(String),
}

/// A pattern, taken apart.
#[derive(Debug)]
pub struct Pattern(Vec<Part>);

impl Pattern {
    /// Takes a pattern apart; what is no field is text.
    pub fn parse(pattern: &str) -> Self {
        let mut parts = Vec::new();
        let mut rest = pattern;
        let mut unpadded = false;
        while let Some(first) = rest.chars().next() {
            if let Some(tail) = rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
                unpadded = true;
                rest = tail;
                continue;
            }
            if let Some((spelling, field)) = TABLE
                .iter()
                .chain(&MORE)
                .find(|(spelling, _)| rest.starts_with(spelling))
            {
                rest = &rest[spelling.len()..];
                let ordinal = match rest.get(..2) {
                    Some("TH") => Some(Case::Upper),
                    Some("th") => Some(Case::Lower),
                    _ => None,
                };
                if ordinal.is_some() {
                    rest = &rest[2..];
                }
                parts.push(Part::Field {
                    field: *field,
                    unpadded,
                    ordinal,
                });
                unpadded = false;
                continue;
            }
            if let Some(quoted) = rest.strip_prefix('"') {
                let (text, tail) = quoted.split_once('"').unwrap_or((quoted, ""));
                parts.push(Part::Text(text.to_string()));
                rest = tail;
                continue;
            }
            parts.push(Part::Text(first.to_string()));
            rest = &rest[first.len_utf8()..];
        }
        Self(parts)
    }

    /// The moment as the pattern shows it; `zoned` if it has a time zone (always UTC).
    pub fn write(&self, micros: i64, zoned: bool) -> String {
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Field {
                    field,
                    unpadded,
                    ordinal,
                } => {
                    write_field(&mut out, *field, *unpadded, *ordinal, micros, zoned);
                }
            }
        }
        out
    }
}

fn spelled(name: &str, case: Case) -> String {
    match case {
        Case::Upper => name.to_uppercase(),
        Case::Title => name.to_string(),
        Case::Lower => name.to_lowercase(),
    }
}

/// The number a field shows and the digits it is padded to; `None` for names.
fn number(field: Field, micros: i64) -> Option<(i64, usize)> {
    let (days, time) = split_micros(micros);
    let Civil { year, month, day } = civil_from_days(days);
    let year_shown = if year > 0 { year } else { 1 - year };
    let day_of_year =
        days - days_from_civil(Civil {
            year,
            month: 1,
            day: 1,
        }) + 1;
    let hour = time / HOUR;
    Some(match field {
        Field::Year(4) => (year_shown, 4),
        Field::Year(digits) => (year_shown % 10i64.pow(digits as u32), digits),
        Field::IsoYear => (iso_week(days).0, 4),
        Field::MonthNumber => (month.into(), 2),
        Field::DayOfMonth => (day.into(), 2),
        Field::DayOfYear => (day_of_year, 3),
        Field::DayOfWeek => ((days + 4).rem_euclid(7) + 1, 1),
        Field::IsoDayOfWeek => ((days + 3).rem_euclid(7) + 1, 1),
        Field::Hour12 => (if hour % 12 == 0 { 12 } else { hour % 12 }, 2),
        Field::Hour24 => (hour, 2),
        Field::Minute => (time / MINUTE % 60, 2),
        Field::Second => (time / SECOND % 60, 2),
        Field::SecondOfDay => (time / SECOND, 1),
        Field::Millisecond => (time % SECOND / 1_000, 3),
        Field::Microsecond => (time % SECOND, 6),
        Field::WeekOfMonth => ((i64::from(day) - 1) / 7 + 1, 1),
        Field::WeekOfYear => ((day_of_year - 1) / 7 + 1, 2),
        Field::IsoWeek => (iso_week(days).1, 2),
        Field::Quarter => ((i64::from(month) + 2) / 3, 1),
        Field::Century => ((year_shown + 99) / 100, 2),
        Field::Julian => (days + 2_440_588, 1),
        _ => return None,
    })
}

fn write_field(
    out: &mut String,
    field: Field,
    unpadded: bool,
    ordinal: Option<Case>,
    micros: i64,
    zoned: bool,
) {
    if let Some((value, digits)) = number(field, micros) {
        // Writing to a string cannot fail.
        let _ = match unpadded {
            true => write!(out, "{value}"),
            false => write!(out, "{value:0digits$}"),
        };
        if let Some(case) = ordinal {
            let suffix = match (value % 10, value % 100) {
                (_, 11..=13) => "th",
                (1, _) => "st",
                (2, _) => "nd",
                (3, _) => "rd",
                _ => "th",
            };
            out.push_str(&spelled(suffix, case));
        }
        return;
    }
    let (days, time) = split_micros(micros);
    let Civil { year, month, .. } = civil_from_days(days);
    let month_name = MONTHS[usize::from(month) - 1];
    let day_name = DAYS[(days + 4).rem_euclid(7) as usize];
    let afternoon = time >= 12 * HOUR;
    let (text, width) = match field {
        Field::MonthName(case) => (spelled(month_name, case), 9),
        Field::MonthShort(case) => (spelled(&month_name[..3], case), 0),
        Field::DayName(case) => (spelled(day_name, case), 9),
        Field::DayShort(case) => (spelled(&day_name[..3], case), 0),
        Field::HalfDay(case, dots) => {
            let word = match (afternoon, dots) {
                (false, false) => "AM",
                (true, false) => "PM",
                (false, true) => "A.M.",
                (true, true) => "P.M.",
            };
            (spelled(word, case), 0)
        }
        Field::Era(case) => (spelled(if year > 0 { "AD" } else { "BC" }, case), 0),
        Field::ZoneName if zoned => ("UTC".to_string(), 0),
        Field::ZoneOffset => ("+00".to_string(), 0),
        Field::YearWithComma => (format!("{},{:03}", year / 1_000, year % 1_000), 0),
        _ => (String::new(), 0),
    };
    let width = if unpadded { 0 } else { width };
    let _ = write!(out, "{text:width$}");
}

/// What a text said, field by field.
#[derive(Default)]
struct Said {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour: i64,
    minute: i64,
    micros: i64,
    afternoon: Option<bool>,
    before_christ: bool,
}

impl Pattern {
    /// Reads a text written by the pattern: microseconds since 1970-01-01.
    ///
    /// # Errors
    /// 22007 if the text does not follow the pattern, 22008 for fields out of range.
    pub fn read(&self, text: &str) -> Result<i64> {
        let mut said = Said::default();
        let mut rest = text.trim_start();
        for (i, part) in self.0.iter().enumerate() {
            rest = match part {
                Part::Text(expected) => skip_text(rest, expected),
                Part::Field { field, .. } => {
                    let adjacent = matches!(self.0.get(i + 1), Some(Part::Field { .. }));
                    read_field(rest.trim_start(), *field, adjacent, &mut said)?
                }
            };
        }
        said.moment(text)
    }
}

/// Separators in the pattern match any separator in the text.
fn skip_text<'a>(text: &'a str, expected: &str) -> &'a str {
    if let Some(rest) = text.strip_prefix(expected) {
        return rest;
    }
    let separator = |c: char| !c.is_alphanumeric();
    if expected.chars().all(separator) {
        return text.strip_prefix(separator).unwrap_or(text);
    }
    let mut characters = text.chars();
    characters.next();
    characters.as_str()
}

fn mismatch(text: &str, field: Field) -> DataFusionError {
    let name = TABLE
        .iter()
        .chain(&MORE)
        .find(|(_, f)| *f == field)
        .map_or("?", |(name, _)| name);
    invalid(
        SqlState::INVALID_DATETIME_FORMAT,
        format!("invalid value \"{text}\" for \"{name}\""),
    )
}

fn read_field<'a>(text: &'a str, field: Field, adjacent: bool, said: &mut Said) -> Result<&'a str> {
    let fault = || mismatch(text.split_whitespace().next().unwrap_or(text), field);
    let named = |names: &[&str], short: bool| -> Option<(i64, usize)> {
        names.iter().enumerate().find_map(|(i, name)| {
            let name = if short { &name[..3] } else { name };
            let found = text.get(..name.len())?.eq_ignore_ascii_case(name);
            found.then_some((i as i64 + 1, name.len()))
        })
    };
    let name = match field {
        Field::MonthName(_) => Some(named(&MONTHS, false)),
        Field::MonthShort(_) => Some(named(&MONTHS, true)),
        Field::DayName(_) => Some(named(&DAYS, false)),
        Field::DayShort(_) => Some(named(&DAYS, true)),
        _ => None,
    };
    if let Some(found) = name {
        let (index, length) = found.ok_or_else(fault)?;
        if let Field::MonthName(_) | Field::MonthShort(_) = field {
            said.month = Some(index);
        }
        return Ok(&text[length..]);
    }
    if let Field::HalfDay(..) | Field::Era(_) = field {
        let word: String = text
            .chars()
            .take_while(|c| c.is_alphabetic() || *c == '.')
            .collect();
        match word.replace('.', "").to_ascii_lowercase().as_str() {
            "am" => said.afternoon = Some(false),
            "pm" => said.afternoon = Some(true),
            "bc" => said.before_christ = true,
            "ad" => {}
            _ => return Err(fault()),
        }
        return Ok(&text[word.len()..]);
    }
    let widest = match field {
        Field::Year(4) | Field::IsoYear if !adjacent => 9,
        Field::Year(digits) => digits,
        Field::IsoYear => 4,
        Field::DayOfYear | Field::Millisecond => 3,
        Field::Microsecond => 6,
        Field::SecondOfDay | Field::Julian => 9,
        Field::DayOfWeek | Field::IsoDayOfWeek | Field::Quarter | Field::WeekOfMonth => 1,
        Field::ZoneName | Field::ZoneOffset | Field::YearWithComma => {
            return Err(invalid(
                SqlState::FEATURE_NOT_SUPPORTED,
                "formatting field is only supported in to_char",
            ));
        }
        _ => 2,
    };
    let length = text
        .bytes()
        .take(widest)
        .take_while(u8::is_ascii_digit)
        .count();
    let digits = &text[..length];
    let value: i64 = digits.parse().map_err(|_| fault())?;
    said.set(field, value, length);
    Ok(&text[length..])
}

impl Said {
    fn set(&mut self, field: Field, value: i64, digits: usize) {
        match field {
            // Two digits are of the years 1970 to 2069.
            Field::Year(2) => {
                self.year = Some(if value < 70 {
                    2_000 + value
                } else {
                    1_900 + value
                })
            }
            Field::Year(_) | Field::IsoYear => self.year = Some(value),
            Field::MonthNumber => self.month = Some(value),
            Field::DayOfMonth => self.day = Some(value),
            Field::DayOfYear => self.day_of_year = Some(value),
            Field::Hour12 | Field::Hour24 => self.hour = value,
            Field::Minute => self.minute = value,
            Field::Second => self.micros += value * SECOND,
            Field::SecondOfDay => self.micros += value * SECOND,
            Field::Millisecond => self.micros += value * 10i64.pow(6 - digits as u32),
            Field::Microsecond => self.micros += value * 10i64.pow(6 - digits as u32),
            _ => {}
        }
    }

    fn moment(&self, text: &str) -> Result<i64> {
        let range = || {
            invalid(
                SqlState::DATETIME_FIELD_OVERFLOW,
                format!("date/time field value out of range: \"{text}\""),
            )
        };
        let mut year = self.year.unwrap_or(1);
        if self.before_christ {
            year = 1 - year;
        }
        let month = self.month.unwrap_or(1);
        let day = self.day.unwrap_or(1);
        if !(1..=12).contains(&month) || !(-4_713..294_277).contains(&year) {
            return Err(range());
        }
        if !(1..=i64::from(days_in_month(year, month as u8))).contains(&day) {
            return Err(range());
        }
        let mut days = days_from_civil(Civil {
            year,
            month: month as u8,
            day: day as u8,
        });
        if let Some(day_of_year) = self.day_of_year {
            days = days_from_civil(Civil {
                year,
                month: 1,
                day: 1,
            }) + day_of_year
                - 1;
        }
        let hour = match self.afternoon {
            None => self.hour,
            Some(_) if !(1..=12).contains(&self.hour) => return Err(range()),
            Some(afternoon) => self.hour % 12 + if afternoon { 12 } else { 0 },
        };
        if hour > 24 || self.minute > 59 || self.micros > DAY {
            return Err(range());
        }
        Ok(days * DAY + hour * HOUR + self.minute * MINUTE + self.micros)
    }
}
