//! `to_date` and `to_timestamp`.

use super::{DAYS, Field, MONTHS, Part, Pattern, ROMAN_MONTHS, TABLE};
use crate::calendar::{Civil, DAY, HOUR, MINUTE, SECOND, days_from_civil, days_in_month, is_leap};
use crate::error::invalid;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use strandline_base::SqlState;

/// The values that a text gives, field by field.
#[derive(Default)]
struct Said {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    iso_day_of_year: Option<i64>,
    julian: Option<i64>,
    hour: i64,
    minute: i64,
    micros: i64,
    afternoon: Option<bool>,
    before_christ: bool,
    /// east of UTC
    zone_minutes: i64,
    zone_west: bool,
}

impl Pattern {
    /// Parses a text in the pattern's form: microseconds since 1970-01-01. Missing fields at the
    /// end of the text default to 1 BC-01-01, as in PostgreSQL.
    ///
    /// # Errors
    /// 22007 if the text does not match the pattern, 22008 for fields out of range.
    pub fn read(&self, text: &str) -> Result<i64> {
        let mut said = Said::default();
        let mut rest = text.trim_start();
        for (i, part) in self.0.iter().enumerate() {
            if rest.is_empty() {
                break;
            }
            rest = match part {
                Part::Text(expected) => skip_text(rest, *expected),
                Part::Field {
                    field, unpadded, ..
                } => {
                    let next_digits = match self.0.get(i + 1) {
                        Some(Part::Field { field, .. }) => field.is_digits(),
                        Some(Part::Text(c)) => c.is_ascii_digit(),
                        None => false,
                    };
                    let adjacent = next_digits && !unpadded;
                    read_field(rest.trim_start(), *field, adjacent, &mut said)?
                }
            };
        }
        said.moment(text)
    }
}

/// Separators in the pattern match any separator in the text.
fn skip_text(text: &str, expected: char) -> &str {
    if let Some(rest) = text.strip_prefix(expected) {
        return rest;
    }
    let separator = |c: char| !c.is_alphanumeric();
    if separator(expected) {
        return text.strip_prefix(separator).unwrap_or(text);
    }
    let mut characters = text.chars();
    characters.next();
    characters.as_str()
}

fn mismatch(text: &str, field: Field) -> DataFusionError {
    let name = TABLE
        .iter()
        .find(|(_, f)| *f == field)
        .map_or("?", |(name, _)| name);
    invalid(
        SqlState::INVALID_DATETIME_FORMAT,
        format!("invalid value \"{text}\" for \"{name}\""),
    )
}

/// The possible names of the field, longest first where one is a prefix of another.
fn names(field: Field) -> Option<(&'static [&'static str], bool)> {
    Some(match field {
        Field::MonthName => (&MONTHS, false),
        Field::MonthShort => (&MONTHS, true),
        Field::MonthRoman => (&ROMAN_MONTHS, false),
        Field::DayName => (&DAYS, false),
        Field::DayShort => (&DAYS, true),
        _ => return None,
    })
}

fn read_field<'a>(text: &'a str, field: Field, adjacent: bool, said: &mut Said) -> Result<&'a str> {
    let fault = || mismatch(text.split_whitespace().next().unwrap_or(text), field);
    if let Some((names, short)) = names(field) {
        let found = names.iter().enumerate().filter_map(|(i, name)| {
            let name = if short { &name[..3] } else { name };
            let found = text.get(..name.len())?.eq_ignore_ascii_case(name);
            found.then_some((name.len(), i as i64 + 1))
        });
        let (length, index) = found.max().ok_or_else(fault)?;
        if let Field::MonthName | Field::MonthShort | Field::MonthRoman = field {
            said.month = Some(index);
        }
        return Ok(&text[length..]);
    }
    match field {
        Field::HalfDay(_) | Field::Era(_) => return read_word(text, field, said),
        Field::Exact => return Ok(text),
        Field::ZoneName | Field::ZoneOffset | Field::YearWithComma => {
            let message = "formatting field is only supported in to_char";
            return Err(invalid(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        _ => {}
    }
    let unsigned = match field {
        Field::ZoneHours => {
            said.zone_west = text.starts_with('-');
            text.strip_prefix(['+', '-']).unwrap_or(text)
        }
        _ => text,
    };
    let width = width(field);
    let fraction = matches!(
        field,
        Field::Fraction(_) | Field::Millisecond | Field::Microsecond
    );
    let widest = if adjacent || fraction { width } else { 18 };
    let length = unsigned
        .bytes()
        .take(widest)
        .take_while(u8::is_ascii_digit)
        .count();
    if length == 0 || (adjacent && unsigned.len() < width) {
        return Err(fault());
    }
    let value: i64 = unsigned[..length].parse().map_err(|_| fault())?;
    said.set(field, value, length);
    Ok(&unsigned[length..])
}

fn read_word<'a>(text: &'a str, field: Field, said: &mut Said) -> Result<&'a str> {
    let word: String = text
        .chars()
        .take_while(|c| c.is_alphabetic() || *c == '.')
        .collect();
    match word.replace('.', "").to_ascii_lowercase().as_str() {
        "am" => said.afternoon = Some(false),
        "pm" => said.afternoon = Some(true),
        "bc" => said.before_christ = true,
        "ad" => {}
        _ => {
            return Err(mismatch(
                text.split_whitespace().next().unwrap_or(text),
                field,
            ));
        }
    }
    Ok(&text[word.len()..])
}

/// The digits of a field that is followed by another number.
fn width(field: Field) -> usize {
    match field {
        Field::Year(digits) | Field::IsoYear(digits) | Field::Fraction(digits) => digits,
        Field::DayOfYear | Field::IsoDayOfYear | Field::Millisecond => 3,
        Field::Microsecond => 6,
        Field::SecondOfDay => 5,
        Field::Julian => 9,
        Field::DayOfWeek | Field::IsoDayOfWeek | Field::Quarter | Field::WeekOfMonth => 1,
        _ => 2,
    }
}

/// Completes a year of fewer than four digits to the year nearest to 2020.
fn near_2020(year: i64) -> i64 {
    match year {
        ..70 => year + 2_000,
        70..100 => year + 1_900,
        100..520 => year + 2_000,
        520..1_000 => year + 1_000,
        _ => year,
    }
}

impl Said {
    fn set(&mut self, field: Field, value: i64, digits: usize) {
        let year = if digits < 4 { near_2020(value) } else { value };
        let micros = || value * 10i64.pow(6u32.saturating_sub(digits as u32));
        match field {
            Field::Year(4) => self.year = Some(value),
            Field::IsoYear(4) => self.iso_year = Some(value),
            Field::Year(_) => self.year = Some(year),
            Field::IsoYear(_) => self.iso_year = Some(year),
            Field::MonthNumber => self.month = Some(value),
            Field::DayOfMonth => self.day = Some(value),
            Field::DayOfYear => self.day_of_year = Some(value),
            Field::IsoDayOfYear => self.iso_day_of_year = Some(value),
            Field::IsoWeek => self.iso_week = Some(value),
            Field::IsoDayOfWeek => self.iso_day = Some(value),
            Field::Julian => self.julian = Some(value),
            Field::Hour12 | Field::Hour24 => self.hour = value,
            Field::Minute => self.minute = value,
            Field::Second | Field::SecondOfDay => {
                self.micros = self.micros.saturating_add(value.saturating_mul(SECOND));
            }
            Field::Fraction(_) | Field::Millisecond | Field::Microsecond => {
                self.micros = self.micros.saturating_add(micros());
            }
            Field::ZoneHours => self.zone_minutes += value.saturating_mul(60),
            Field::ZoneMinutes => self.zone_minutes += value,
            _ => {}
        }
    }

    /// The day of the ISO calendar's year, week and day of week, if the text gives them.
    fn iso_days(&self) -> Option<i64> {
        if self.iso_week.is_none() && self.iso_day_of_year.is_none() {
            return None;
        }
        let year = self.iso_year.unwrap_or(0);
        let fourth = days_from_civil(Civil {
            year,
            month: 1,
            day: 4,
        });
        let monday = fourth - (fourth + 3).rem_euclid(7);
        Some(match self.iso_day_of_year {
            Some(day) => monday + day - 1,
            None => {
                let week = self.iso_week.unwrap_or(1);
                monday + (week - 1) * 7 + self.iso_day.unwrap_or(1) - 1
            }
        })
    }

    fn days(&self) -> Option<i64> {
        if let Some(julian) = self.julian {
            return Some(julian - 2_440_588);
        }
        if let Some(days) = self.iso_days() {
            return Some(days);
        }
        let mut year = self.year.or(self.iso_year).unwrap_or(0);
        if self.before_christ {
            year = 1 - year;
        }
        let month = self.month.unwrap_or(1);
        let day = self.day.unwrap_or(1);
        if !(1..=12).contains(&month) || !(-4_713..294_277).contains(&year) {
            return None;
        }
        if !(1..=i64::from(days_in_month(year, month as u8))).contains(&day) {
            return None;
        }
        let date = |month, day| {
            days_from_civil(Civil {
                year,
                month: month as u8,
                day: day as u8,
            })
        };
        match self.day_of_year {
            Some(day) if (1..=365 + i64::from(is_leap(year))).contains(&day) => {
                Some(date(1, 1) + day - 1)
            }
            Some(_) => None,
            None => Some(date(month, day)),
        }
    }

    fn moment(&self, text: &str) -> Result<i64> {
        let range = || {
            invalid(
                SqlState::DATETIME_FIELD_OVERFLOW,
                format!("date/time field value out of range: \"{text}\""),
            )
        };
        let days = self.days().ok_or_else(range)?;
        let hour = match self.afternoon {
            None => self.hour,
            Some(_) if !(1..=12).contains(&self.hour) => return Err(range()),
            Some(afternoon) => self.hour % 12 + if afternoon { 12 } else { 0 },
        };
        let bounded = hour <= 24 && self.minute <= 59 && self.zone_minutes < 16 * 60;
        if !bounded || !(0..=DAY).contains(&self.micros) {
            return Err(range());
        }
        let zone = match self.zone_west {
            true => -self.zone_minutes,
            false => self.zone_minutes,
        };
        let time = hour * HOUR + (self.minute - zone) * MINUTE + self.micros;
        let moment = days.checked_mul(DAY).and_then(|d| d.checked_add(time));
        moment.ok_or_else(range)
    }
}
