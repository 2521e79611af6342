//! The retention of a table's old versions: `forever`, `none` or an interval.

use strandline_base::{Error, Result, SqlState};
use strandline_engine::catalog::HistoryPolicy;

const SECOND_US: f64 = 1e6;
const DAY_US: f64 = 86_400e6;

/// The policy of a text.
pub fn policy(text: &str) -> Result<HistoryPolicy> {
    match text.trim().to_ascii_lowercase().as_str() {
        "forever" => Ok(HistoryPolicy::Forever),
        "none" => Ok(HistoryPolicy::None),
        interval => microseconds(interval)
            .map(HistoryPolicy::For)
            .ok_or_else(|| {
                Error::invalid(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("invalid value for parameter \"history\": \"{text}\""),
                )
                .with_hint("Use 'forever', 'none' or an interval such as '7 days' or '12:30:00'.")
            }),
    }
}

/// `2 days 3 hours`, `1 day 12:00:00`, `90 s`. Months have 30 days and years 365.25 days, as in
/// PostgreSQL's conversion of intervals to seconds.
fn microseconds(text: &str) -> Option<u64> {
    let mut words = text.split_whitespace().peekable();
    let mut total = 0f64;
    words.peek()?;
    while let Some(word) = words.next() {
        if word.contains(':') {
            total += clock(word)?;
            continue;
        }
        let digits = word
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(word.len());
        let (number, attached) = word.split_at(digits);
        let number: f64 = number.parse().ok()?;
        let unit = if attached.is_empty() {
            words.next()?
        } else {
            attached
        };
        total += number * unit_us(unit)?;
    }
    (total.is_finite() && (0.0..9e18).contains(&total)).then_some(total.round() as u64)
}

fn clock(text: &str) -> Option<f64> {
    let mut parts = text.split(':');
    let hours: u32 = parts.next()?.parse().ok()?;
    let minutes: u32 = parts.next()?.parse().ok().filter(|m| *m < 60)?;
    let seconds: f64 = parts
        .next()
        .unwrap_or("0")
        .parse()
        .ok()
        .filter(|s| *s < 60.0)?;
    if parts.next().is_some() {
        return None;
    }
    Some((f64::from(hours) * 3_600.0 + f64::from(minutes) * 60.0 + seconds) * SECOND_US)
}

fn unit_us(unit: &str) -> Option<f64> {
    Some(match unit.trim_end_matches(',') {
        "us" | "microsecond" | "microseconds" => 1.0,
        "ms" | "millisecond" | "milliseconds" => 1e3,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND_US,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0 * SECOND_US,
        "h" | "hour" | "hours" => 3_600.0 * SECOND_US,
        "d" | "day" | "days" => DAY_US,
        "w" | "week" | "weeks" => 7.0 * DAY_US,
        "mon" | "mons" | "month" | "months" => 30.0 * DAY_US,
        "y" | "year" | "years" => 365.25 * DAY_US,
        _ => return None,
    })
}
