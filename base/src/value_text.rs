//! The text of single values, as PostgreSQL prints them.

use crate::calendar::{Civil, HOUR, MINUTE, SECOND, civil_from_days, split_micros};
use crate::value::Interval;
use std::fmt::{self, Write};

/// Writes an unscaled integer with its point.
pub fn write_numeric(out: &mut impl Write, unscaled: i128, scale: u8) -> fmt::Result {
    if scale == 0 {
        return write!(out, "{unscaled}");
    }
    let sign = if unscaled < 0 { "-" } else { "" };
    let divisor = 10_u128.pow(scale.into());
    let magnitude = unscaled.unsigned_abs();
    let width = usize::from(scale);
    write!(
        out,
        "{sign}{}.{:0width$}",
        magnitude / divisor,
        magnitude % divisor
    )
}

/// A double in its shortest form that reads back as the same value.
pub fn write_double(out: &mut impl Write, value: f64) -> fmt::Result {
    write_float(
        out,
        value.is_nan(),
        value.is_infinite(),
        value < 0.0,
        15,
        format_args!("{value:e}"),
    )
}

/// A real in its shortest form that reads back as the same value.
pub fn write_real(out: &mut impl Write, value: f32) -> fmt::Result {
    write_float(
        out,
        value.is_nan(),
        value.is_infinite(),
        value < 0.0,
        6,
        format_args!("{value:e}"),
    )
}

/// Writes a float; `scientific` is Rust's shortest form, `d.ddde±x`. PostgreSQL uses exponent
/// notation below 10^-4 and from 10^`digits` on.
fn write_float(
    out: &mut impl Write,
    nan: bool,
    infinite: bool,
    negative: bool,
    digits: i32,
    scientific: fmt::Arguments,
) -> fmt::Result {
    if nan {
        return out.write_str("NaN");
    }
    if infinite {
        return out.write_str(if negative { "-Infinity" } else { "Infinity" });
    }
    let text = scientific.to_string();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..digits).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return write!(out, "{mantissa}e{sign}{:02}", exponent.abs());
    }
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let figures: String = mantissa.chars().filter(|c| *c != '.').collect();
    out.write_str(sign)?;
    if exponent < 0 {
        let zeros = "0".repeat((-exponent - 1) as usize);
        return write!(out, "0.{zeros}{figures}");
    }
    let point = exponent as usize + 1;
    if figures.len() <= point {
        return write!(out, "{figures}{}", "0".repeat(point - figures.len()));
    }
    write!(out, "{}.{}", &figures[..point], &figures[point..])
}

/// `2024-01-02`, years before 1 with ` BC`.
pub fn write_date(out: &mut impl Write, days: i64) -> fmt::Result {
    let bc = write_day(out, days)?;
    out.write_str(bc)
}

/// Writes year-month-day and returns the suffix.
fn write_day(out: &mut impl Write, days: i64) -> Result<&'static str, fmt::Error> {
    let Civil { year, month, day } = civil_from_days(days);
    let (shown, suffix) = if year > 0 {
        (year, "")
    } else {
        (1 - year, " BC")
    };
    write!(out, "{shown:04}-{month:02}-{day:02}")?;
    Ok(suffix)
}

/// `03:04:05.678`, the fraction without trailing zeros.
pub fn write_time(out: &mut impl Write, micros: i64) -> fmt::Result {
    let (hours, minutes) = (micros / HOUR, micros / MINUTE % 60);
    write!(out, "{hours:02}:{minutes:02}:")?;
    write_seconds(out, micros % MINUTE)
}

/// Seconds with two digits and a fraction without trailing zeros.
fn write_seconds(out: &mut impl Write, micros: i64) -> fmt::Result {
    write!(out, "{:02}", micros / SECOND)?;
    let fraction = micros % SECOND;
    if fraction == 0 {
        return Ok(());
    }
    let digits = format!("{fraction:06}");
    write!(out, ".{}", digits.trim_end_matches('0'))
}

/// `2024-01-02 03:04:05`
pub fn write_timestamp(out: &mut impl Write, micros: i64) -> fmt::Result {
    let (days, time) = split_micros(micros);
    let suffix = write_day(out, days)?;
    out.write_char(' ')?;
    write_time(out, time)?;
    out.write_str(suffix)
}

/// `2024-01-02 03:04:05+00`
pub fn write_timestamptz(out: &mut impl Write, micros: i64) -> fmt::Result {
    let (days, time) = split_micros(micros);
    let suffix = write_day(out, days)?;
    out.write_char(' ')?;
    write_time(out, time)?;
    out.write_str("+00")?;
    out.write_str(suffix)
}

/// `1 year 2 mons -3 days +04:05:06.7`
pub fn write_interval(out: &mut impl Write, interval: Interval) -> fmt::Result {
    let (mut empty, mut negative) = (true, false);
    let parts = [
        (i64::from(interval.months / 12), "year"),
        (i64::from(interval.months % 12), "mon"),
        (i64::from(interval.days), "day"),
    ];
    for (value, name) in parts.into_iter().filter(|(value, _)| *value != 0) {
        let space = if empty { "" } else { " " };
        let plus = if negative && value > 0 { "+" } else { "" };
        let plural = if value == 1 { "" } else { "s" };
        write!(out, "{space}{plus}{value} {name}{plural}")?;
        negative = value < 0;
        empty = false;
    }
    let micros = interval.nanos / 1_000;
    if micros == 0 && !empty {
        return Ok(());
    }
    let space = if empty { "" } else { " " };
    let sign = match (micros < 0, negative) {
        (true, _) => "-",
        (false, true) => "+",
        (false, false) => "",
    };
    let magnitude = micros.unsigned_abs();
    let (hours, minutes) = (magnitude / HOUR as u64, magnitude / MINUTE as u64 % 60);
    write!(out, "{space}{sign}{hours:02}:{minutes:02}:")?;
    write_seconds(out, (magnitude % MINUTE as u64) as i64)
}

/// The text of a point.
pub fn write_point(out: &mut impl Write, [x, y]: [f64; 2]) -> fmt::Result {
    out.write_char('(')?;
    write_double(out, x)?;
    out.write_char(',')?;
    write_double(out, y)?;
    out.write_char(')')
}

/// The text of a box: the upper right corner first.
pub fn write_box(out: &mut impl Write, high: [f64; 2], low: [f64; 2]) -> fmt::Result {
    write_point(out, high)?;
    out.write_char(',')?;
    write_point(out, low)
}

/// bytea in hexadecimal notation.
pub fn write_bytea(out: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    out.write_str("\\x")?;
    bytes.iter().try_for_each(|b| write!(out, "{b:02x}"))
}

/// A uuid in its usual form.
pub fn write_uuid(out: &mut impl Write, bytes: &[u8]) -> fmt::Result {
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.write_char('-')?;
        }
        write!(out, "{byte:02x}")?;
    }
    Ok(())
}
