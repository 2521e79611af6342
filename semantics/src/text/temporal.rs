//! Dates, times and timestamps as text.

use super::{invalid_syntax, trim};
use crate::calendar::{
    Civil, DAY, HOUR, MINUTE, SECOND, checked_day, days_from_civil, days_in_month,
};
use strandline_base::{Error, SqlState};

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// 22007
fn bad_format(type_name: &str, input: &str) -> Error {
    let wrong = invalid_syntax(type_name, input);
    Error::invalid(SqlState::INVALID_DATETIME_FORMAT, wrong.message())
}

/// 22008
fn field_out_of_range(input: &str) -> Error {
    Error::invalid(
        SqlState::DATETIME_FIELD_OVERFLOW,
        format!("date/time field value out of range: \"{input}\""),
    )
}

/// The parts of a date/time text.
#[derive(Default)]
struct Parts {
    date: Option<Civil>,
    time: Option<i64>,
    offset: Option<i64>,
    before_christ: bool,
}

/// The fault of a date/time text.
enum Fault {
    Format,
    Range,
    /// an offset from UTC of 16 hours or more
    Offset,
}

impl Fault {
    fn error(self, type_name: &str, input: &str) -> Error {
        match self {
            Fault::Format => bad_format(type_name, input),
            Fault::Range => field_out_of_range(input),
            Fault::Offset => Error::invalid(
                SqlState("22009"),
                format!("time zone displacement out of range: \"{input}\""),
            ),
        }
    }
}

fn parse_parts(input: &str) -> Result<Parts, Fault> {
    let mut parts = Parts::default();
    let mut words: Vec<&str> = trim(input).split_ascii_whitespace().collect();
    // "2024-01-02T03:04:05" is read as two words.
    if let Some(first) = words.first().copied()
        && let Some((date, time)) = first.split_once(['T', 't'])
        && date.contains('-')
        && time.starts_with(|c: char| c.is_ascii_digit())
    {
        words.splice(0..1, [date, time]);
    }
    if let Some(count) = named_month_date(&words, &mut parts)? {
        words.drain(..count);
    }
    for word in words {
        parse_word(word, &mut parts)?;
    }
    if parts.before_christ {
        let date = parts.date.as_mut().ok_or(Fault::Format)?;
        date.year = 1 - date.year;
    }
    if let Some(date) = parts.date {
        let valid = (1..=12).contains(&date.month)
            && (1..=days_in_month(date.year, date.month)).contains(&date.day);
        if !valid {
            return Err(Fault::Range);
        }
    }
    Ok(parts)
}

/// Reads `Jan 2 2024`, `2 Jan 2024`, `January 2, 2024`; returns the number of words.
fn named_month_date(words: &[&str], parts: &mut Parts) -> Result<Option<usize>, Fault> {
    let [first, second, third, ..] = words else {
        return Ok(None);
    };
    let (month, day) = match (month_of(first), month_of(second)) {
        (Some(month), _) => (month, second.trim_end_matches(',')),
        (None, Some(month)) => (month, *first),
        _ => return Ok(None),
    };
    let year = third
        .trim_end_matches(',')
        .parse()
        .map_err(|_| Fault::Format)?;
    let day = day.parse().map_err(|_| Fault::Format)?;
    parts.date = Some(Civil { year, month, day });
    Ok(Some(3))
}

fn month_of(word: &str) -> Option<u8> {
    let word = word.trim_end_matches([',', '.']).to_ascii_lowercase();
    if word.len() < 3 {
        return None;
    }
    MONTHS
        .iter()
        .position(|m| m.starts_with(&word))
        .map(|i| i as u8 + 1)
}

fn parse_word(word: &str, parts: &mut Parts) -> Result<(), Fault> {
    let lower = word.to_ascii_lowercase();
    match lower.as_str() {
        "ad" => return Ok(()),
        "bc" => {
            parts.before_christ = true;
            return Ok(());
        }
        "z" | "utc" | "gmt" | "zulu" => {
            parts.offset = Some(0);
            return Ok(());
        }
        "pm" | "am" => return half_day(&lower, parts),
        _ => {}
    }
    if parts.time.is_some() && lower.starts_with(['+', '-']) {
        parts.offset = Some(parse_offset(&lower)?);
        return Ok(());
    }
    let (date, offset) = split_offset(&lower);
    if date.contains(':') {
        return parse_time_word(&lower, parts);
    }
    if parts.date.is_some() {
        return Err(Fault::Format);
    }
    parts.date = Some(parse_date_word(date)?);
    if let Some(offset) = offset {
        parts.offset = Some(match offset.starts_with('+') {
            true => parse_offset(offset)?,
            false => 0,
        });
    }
    Ok(())
}

/// `2001-01-01+05`, `2001-01-01z`: splits a date from its offset, which has no minus.
fn split_offset(word: &str) -> (&str, Option<&str>) {
    let zone = || {
        ["utc", "gmt", "zulu", "z"]
            .iter()
            .find(|zone| word.ends_with(*zone))
    };
    let at = word.find('+').or_else(|| Some(word.len() - zone()?.len()));
    match at.filter(|at| *at > 0) {
        Some(at) => (&word[..at], Some(&word[at..])),
        None => (word, None),
    }
}

fn half_day(word: &str, parts: &mut Parts) -> Result<(), Fault> {
    let time = parts.time.as_mut().ok_or(Fault::Format)?;
    if *time >= 13 * HOUR {
        return Err(Fault::Range);
    }
    *time %= 12 * HOUR;
    if word == "pm" {
        *time += 12 * HOUR;
    }
    Ok(())
}

/// `2024-01-02`, `2024/1/2`, `20240102`, `2024-Jan-02`.
fn parse_date_word(word: &str) -> Result<Civil, Fault> {
    if word.len() == 8 && word.bytes().all(|b| b.is_ascii_digit()) {
        let number = |s: &str| s.parse::<u8>().map_err(|_| Fault::Format);
        let year = word[..4].parse().map_err(|_| Fault::Format)?;
        return Ok(Civil {
            year,
            month: number(&word[4..6])?,
            day: number(&word[6..])?,
        });
    }
    let separator = ['-', '/', '.']
        .into_iter()
        .find(|c| word.contains(*c))
        .ok_or(Fault::Format)?;
    let pieces: Vec<&str> = word.split(separator).collect();
    let [year, month, day] = pieces[..] else {
        return Err(Fault::Format);
    };
    let is_number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if !is_number(year) || !is_number(day) || day.len() > 2 || !(3..=6).contains(&year.len()) {
        return Err(Fault::Format);
    }
    let month = match month_of(month) {
        Some(month) => month,
        None if is_number(month) && month.len() <= 2 => month.parse().map_err(|_| Fault::Format)?,
        None => return Err(Fault::Format),
    };
    let year = year.parse().map_err(|_| Fault::Format)?;
    Ok(Civil {
        year,
        month,
        day: day.parse().map_err(|_| Fault::Format)?,
    })
}

/// Reads `03:04`, `03:04:05.678`, with an optional offset `+02`, `-03:30` or `Z`.
fn parse_time_word(word: &str, parts: &mut Parts) -> Result<(), Fault> {
    if parts.time.is_some() {
        return Err(Fault::Format);
    }
    let end = word.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.'));
    let (time, rest) = word.split_at(end.unwrap_or(word.len()));
    parts.time = Some(parse_clock(time)?);
    match rest {
        "" => Ok(()),
        "am" | "pm" => half_day(rest, parts),
        "z" => {
            parts.offset = Some(0);
            Ok(())
        }
        _ => {
            parts.offset = Some(parse_offset(rest)?);
            Ok(())
        }
    }
}

fn parse_clock(text: &str) -> Result<i64, Fault> {
    let mut fields = text.split(':');
    let mut number = || -> Result<Option<&str>, Fault> { Ok(fields.next()) };
    let hours = whole(number()?.ok_or(Fault::Format)?)?;
    let minutes = whole(number()?.ok_or(Fault::Format)?)?;
    let micros = match number()? {
        Some(seconds) => parse_seconds(seconds)?,
        None => 0,
    };
    if fields.next().is_some() {
        return Err(Fault::Format);
    }
    let total = hours * HOUR + minutes * MINUTE + micros;
    // 24:00:00 and a leap second's :60 are accepted, as in PostgreSQL.
    if minutes > 59 || micros > 60 * SECOND || total > DAY {
        return Err(Fault::Range);
    }
    Ok(total)
}

fn whole(text: &str) -> Result<i64, Fault> {
    if text.is_empty() || text.len() > 2 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Fault::Format);
    }
    text.parse().map_err(|_| Fault::Format)
}

/// Seconds with a fraction as microseconds, rounded.
fn parse_seconds(text: &str) -> Result<i64, Fault> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    Ok(whole(seconds)? * SECOND + parse_fraction(fraction).ok_or(Fault::Format)?)
}

/// The digits after a point as microseconds, rounded half up.
pub(super) fn parse_fraction(digits: &str) -> Option<i64> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let figure = |i: usize| digits.as_bytes().get(i).map_or(0, |b| i64::from(b - b'0'));
    let micros = (0..6).fold(0, |sum, i| sum * 10 + figure(i));
    Some(micros + i64::from(figure(6) >= 5))
}

/// `+02`, `-03:30`, `+0530`, `+05:30:15` in microseconds east of UTC.
pub fn parse_offset_text(text: &str) -> Option<i64> {
    parse_offset(&text.to_ascii_lowercase()).ok()
}

fn parse_offset(text: &str) -> Result<i64, Fault> {
    let sign = match text.as_bytes().first() {
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return Err(Fault::Format),
    };
    let digits: String = match text[1..].split_once(':') {
        Some((hours, rest)) => format!("{hours:0>2}{}", rest.replace(':', "")),
        None => text[1..].to_string(),
    };
    let field = |range: std::ops::Range<usize>| match digits.get(range) {
        Some(text) => text.parse::<i64>().map_err(|_| Fault::Format),
        None => Ok(0),
    };
    if !matches!(digits.len(), 1 | 2 | 4 | 6) {
        return Err(Fault::Format);
    }
    let hours = if digits.len() == 1 {
        field(0..1)?
    } else {
        field(0..2)?
    };
    let (minutes, seconds) = (field(2..4)?, field(4..6)?);
    if hours > 15 || minutes > 59 || seconds > 59 {
        return Err(Fault::Offset);
    }
    Ok(sign * (hours * HOUR + minutes * MINUTE + seconds * SECOND))
}

/// The moment of a special word.
fn special(input: &str) -> Option<i64> {
    trim(input).eq_ignore_ascii_case("epoch").then_some(0)
}

/// Days since 1970-01-01; a time in the text is ignored.
pub fn parse_date(input: &str) -> Result<i32, Error> {
    if let Some(micros) = special(input) {
        return Ok((micros / DAY) as i32);
    }
    let parts = parse_parts(input).map_err(|f| f.error("date", input))?;
    let date = parts.date.ok_or_else(|| bad_format("date", input))?;
    checked_day(days_from_civil(date)).ok_or_else(|| field_out_of_range(input))
}

/// Microseconds since midnight; a date in the text is ignored.
pub fn parse_time(input: &str) -> Result<i64, Error> {
    let parts = parse_parts(input).map_err(|f| f.error("time", input))?;
    parts.time.ok_or_else(|| bad_format("time", input))
}

/// Microseconds since 1970-01-01; an offset in the text is ignored.
pub fn parse_timestamp(input: &str) -> Result<i64, Error> {
    moment(input, "timestamp", false)
}

/// Microseconds since 1970-01-01 UTC; without an offset in the text it is UTC.
pub fn parse_timestamptz(input: &str) -> Result<i64, Error> {
    moment(input, "timestamp with time zone", true)
}

fn moment(input: &str, type_name: &str, zoned: bool) -> Result<i64, Error> {
    if let Some(micros) = special(input) {
        return Ok(micros);
    }
    let parts = parse_parts(input).map_err(|f| f.error(type_name, input))?;
    let date = parts.date.ok_or_else(|| bad_format(type_name, input))?;
    let offset = if zoned { parts.offset.unwrap_or(0) } else { 0 };
    let micros = days_from_civil(date).checked_mul(DAY);
    micros
        .and_then(|m| m.checked_add(parts.time.unwrap_or(0) - offset))
        .ok_or_else(|| field_out_of_range(input))
}
