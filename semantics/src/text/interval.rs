//! Intervals as text.
//!
//! Input: `1 year 2 mons -3 days 04:05:06.7`, `1.5 hours`, `2 weeks ago`, `@ 1 minute`, SQL's `1-2
//! 3 4:05:06`, ISO 8601's `P1Y2M3DT4H5M6.7S`. A fraction of a unit spills into smaller units; a
//! month has 30 days. A type with fields, such as `interval minute to second`, gives a meaning to
//! numbers without a unit ([`Reading`]). Output: PostgreSQL's default style.

use super::temporal::parse_fraction;
use super::trim;
use crate::calendar::{DAY, HOUR, MINUTE, SECOND};
use strandline_base::{Error, Interval, SqlState};

fn bad_format(input: &str) -> Error {
    Error::invalid(
        SqlState::INVALID_DATETIME_FORMAT,
        format!("invalid input syntax for type interval: \"{input}\""),
    )
}

/// The meaning of numbers without a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// the unit of a last number without one
    pub bare: &'static str,
    /// whether `1:02` is minutes and seconds
    pub minutes_first: bool,
}

/// The reading of plain `interval`.
pub const PLAIN: Reading = Reading {
    bare: "second",
    minutes_first: false,
};

/// The sums of the fields, wide enough not to overflow.
#[derive(Default)]
struct Sums {
    months: f64,
    days: f64,
    micros: i128,
}

/// The length of a named unit.
enum Unit {
    Months(f64),
    Days(f64),
    Micros(i64),
}

fn unit(name: &str) -> Option<Unit> {
    Some(match name {
        "us" | "usec" | "usecs" | "microsecond" | "microseconds" | "microsecon" => Unit::Micros(1),
        "ms" | "msec" | "msecs" | "millisecond" | "milliseconds" => Unit::Micros(1_000),
        "s" | "sec" | "secs" | "second" | "seconds" => Unit::Micros(SECOND),
        "m" | "min" | "mins" | "minute" | "minutes" => Unit::Micros(MINUTE),
        "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Micros(HOUR),
        "d" | "day" | "days" => Unit::Days(1.0),
        "w" | "week" | "weeks" => Unit::Days(7.0),
        "mon" | "mons" | "month" | "months" => Unit::Months(1.0),
        "y" | "yr" | "yrs" | "year" | "years" => Unit::Months(12.0),
        "dec" | "decade" | "decades" => Unit::Months(120.0),
        "c" | "cent" | "century" | "centuries" => Unit::Months(1_200.0),
        "mil" | "millennium" | "millennia" => Unit::Months(12_000.0),
        _ => return None,
    })
}

impl Sums {
    /// Adds `number` of the unit; `number` is text, so that times are exact.
    fn add(&mut self, number: &str, unit: Unit) -> Option<()> {
        match unit {
            Unit::Months(each) => {
                let months = number.parse::<f64>().ok()? * each;
                self.months += months.trunc();
                self.add_days((months.fract() * 30.0 * 1e6).round() / 1e6);
            }
            Unit::Days(each) => self.add_days(number.parse::<f64>().ok()? * each),
            Unit::Micros(each) => self.micros += micros_of(number, each)?,
        }
        Some(())
    }
    fn add_days(&mut self, days: f64) {
        self.days += days.trunc();
        self.micros += (days.fract() * DAY as f64).round() as i128;
    }
    fn finish(self, input: &str) -> Result<Interval, Error> {
        let within = |v: f64| v >= f64::from(i32::MIN) && v <= f64::from(i32::MAX);
        let nanos = i64::try_from(self.micros * 1_000);
        match nanos {
            Ok(nanos) if within(self.months) && within(self.days) => Ok(Interval {
                months: self.months as i32,
                days: self.days as i32,
                nanos,
            }),
            _ => Err(Error::invalid(
                SqlState::DATETIME_FIELD_OVERFLOW,
                format!("interval field value out of range: \"{input}\""),
            )),
        }
    }
}

/// A decimal number of units of `each` microseconds, computed exactly instead of in floating point.
fn micros_of(number: &str, each: i64) -> Option<i128> {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, number.strip_prefix('+').unwrap_or(number)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let whole = if whole.is_empty() {
        0
    } else {
        whole.parse::<i64>().ok()?
    };
    let part = if each == SECOND {
        i128::from(parse_fraction(fraction)?)
    } else if fraction.is_empty() {
        0
    } else {
        (format!("0.{fraction}").parse::<f64>().ok()? * each as f64).round() as i128
    };
    Some(sign * (i128::from(whole) * i128::from(each) + part))
}

/// An interval.
pub fn parse_interval(input: &str) -> Result<Interval, Error> {
    parse_interval_as(input, PLAIN)
}

/// An interval of a type with fields.
pub fn parse_interval_as(input: &str, reading: Reading) -> Result<Interval, Error> {
    let text = trim(input).to_ascii_lowercase();
    let sums = match text.strip_prefix('p') {
        Some(iso) => parse_iso(iso),
        None => parse_words(&text, reading),
    };
    sums.ok_or_else(|| bad_format(input))?.finish(input)
}

fn parse_words(text: &str, reading: Reading) -> Option<Sums> {
    let tokens = tokens(text)?;
    let mut sums = Sums::default();
    let mut rest = tokens.as_slice();
    let mut ago = false;
    if rest.first().is_some_and(|t| t == "@") {
        rest = &rest[1..];
    }
    if rest.last().is_some_and(|t| t == "ago") {
        ago = true;
        rest = &rest[..rest.len() - 1];
    }
    if rest.is_empty() {
        return None;
    }
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if first.contains(':') {
            sums.micros += parse_clock(first, reading)?;
        } else if is_year_month(first) {
            let (years, months) = first.rsplit_once('-')?;
            let sign = if years.starts_with('-') { "-" } else { "" };
            sums.add(years, Unit::Months(12.0))?;
            sums.add(&format!("{sign}{months}"), Unit::Months(1.0))?;
        } else if let Some((name, tail)) = rest.split_first()
            && name.starts_with(|c: char| c.is_ascii_alphabetic())
        {
            sums.add(first, unit(name)?)?;
            rest = tail;
        } else if rest.first().is_some_and(|t| t.contains(':'))
            || rest.len() == 1 && reading.bare == "hour"
        {
            sums.add(first, Unit::Days(1.0))?;
        } else if rest.is_empty() {
            sums.add(first, unit(reading.bare)?)?;
        } else {
            return None;
        }
    }
    if ago {
        sums = Sums {
            months: -sums.months,
            days: -sums.days,
            micros: -sums.micros,
        };
    }
    Some(sums)
}

/// Splits at blanks and between a number and a name: `1day` is two tokens.
fn tokens(text: &str) -> Option<Vec<String>> {
    let mut tokens: Vec<String> = Vec::new();
    for word in text.split_ascii_whitespace() {
        let mut current = String::new();
        for c in word.chars() {
            let letter = c.is_ascii_alphabetic();
            let was_letter = current.ends_with(|p: char| p.is_ascii_alphabetic());
            if !current.is_empty() && letter != was_letter {
                tokens.push(std::mem::take(&mut current));
            }
            if !(letter || c.is_ascii_digit() || "+-.:@".contains(c)) {
                return None;
            }
            current.push(c);
        }
        tokens.push(current);
    }
    Some(tokens)
}

fn is_year_month(token: &str) -> bool {
    let body = token.strip_prefix(['+', '-']).unwrap_or(token);
    body.split_once('-')
        .is_some_and(|(y, m)| !y.is_empty() && !m.is_empty())
}

/// `-4:05:06.7` or `4:05` in microseconds. With a fraction, two fields are minutes and seconds.
fn parse_clock(token: &str, reading: Reading) -> Option<i128> {
    let (sign, body) = match token.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, token.strip_prefix('+').unwrap_or(token)),
    };
    let fields: Vec<&str> = body.split(':').collect();
    let (hours, minutes, seconds) = match fields[..] {
        [minutes, seconds] if reading.minutes_first || seconds.contains('.') => {
            ("0", minutes, seconds)
        }
        [hours, minutes] => (hours, minutes, "0"),
        [hours, minutes, seconds] => (hours, minutes, seconds),
        _ => return None,
    };
    let hours = hours.parse::<i64>().ok()?;
    let minutes = minutes
        .parse::<i64>()
        .ok()
        .filter(|m| (0..60).contains(m))?;
    let seconds = micros_of(seconds, SECOND).filter(|s| (0..=60_000_000).contains(s))?;
    let whole = i128::from(hours) * i128::from(HOUR) + i128::from(minutes * MINUTE);
    Some(sign * (whole + seconds))
}

/// The part after `P`.
fn parse_iso(text: &str) -> Option<Sums> {
    let (date, time) = text.split_once('t').unwrap_or((text, ""));
    if date.is_empty() && time.is_empty() {
        return None;
    }
    let mut sums = Sums::default();
    for (part, is_time) in [(date, false), (time, true)] {
        let mut rest = part;
        while !rest.is_empty() {
            let at = rest.find(|c: char| c.is_ascii_alphabetic())?;
            let (number, tail) = rest.split_at(at);
            let unit = match (&tail[..1], is_time) {
                ("y", false) => Unit::Months(12.0),
                ("m", false) => Unit::Months(1.0),
                ("w", false) => Unit::Days(7.0),
                ("d", false) => Unit::Days(1.0),
                ("h", true) => Unit::Micros(HOUR),
                ("m", true) => Unit::Micros(MINUTE),
                ("s", true) => Unit::Micros(SECOND),
                _ => return None,
            };
            sums.add(number, unit)?;
            rest = &tail[1..];
        }
    }
    Some(sums)
}
