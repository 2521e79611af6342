//! Numbers as text.

use super::{invalid_syntax, out_of_range, trim};
use crate::decimal::{MAX_DIGITS, Shape, divide_rounded, power_of_ten};
use strandline_base::{Error, SqlState};

/// An integer of the type `type_name`, between `least` and `most`.
pub fn parse_integer(input: &str, type_name: &str, least: i64, most: i64) -> Result<i64, Error> {
    let word = trim(input);
    let digits = word.strip_prefix(['+', '-']).unwrap_or(word);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid_syntax(type_name, input));
    }
    match word.parse::<i64>() {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => Err(out_of_range(type_name, input)),
    }
}

/// A double: decimal notation, `Infinity`, `NaN`.
pub fn parse_double(input: &str) -> Result<f64, Error> {
    let name = "double precision";
    if let Some(special) = parse_special(trim(input)) {
        return Ok(special);
    }
    let value = parse_finite(input, name)?;
    let vanished = value == 0.0 && has_nonzero_digit(input);
    if value.is_infinite() || vanished {
        return Err(float_out_of_range(input, name));
    }
    Ok(value)
}

/// A real: as a double, within single precision's range.
pub fn parse_real(input: &str) -> Result<f32, Error> {
    if let Some(special) = parse_special(trim(input)) {
        return Ok(special as f32);
    }
    parse_finite(input, "real")?;
    let value: f32 = trim(input)
        .parse()
        .map_err(|_| invalid_syntax("real", input))?;
    if value.is_infinite() || (value == 0.0 && has_nonzero_digit(input)) {
        return Err(float_out_of_range(input, "real"));
    }
    Ok(value)
}

fn float_out_of_range(input: &str, name: &str) -> Error {
    Error::invalid(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("\"{}\" is out of range for type {name}", trim(input)),
    )
}

fn parse_special(word: &str) -> Option<f64> {
    let (negative, name) = match word.as_bytes().first()? {
        b'-' => (true, &word[1..]),
        b'+' => (false, &word[1..]),
        _ => (false, word),
    };
    let is = |full: &str| name.eq_ignore_ascii_case(full);
    if is("infinity") || is("inf") {
        Some(if negative {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        })
    } else if word.eq_ignore_ascii_case("nan") {
        Some(f64::NAN)
    } else {
        None
    }
}

fn parse_finite(input: &str, name: &str) -> Result<f64, Error> {
    let word = trim(input);
    let plain = word
        .bytes()
        .all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    match word.parse::<f64>() {
        Ok(value) if plain => Ok(value),
        _ => Err(invalid_syntax(name, input)),
    }
}

fn has_nonzero_digit(input: &str) -> bool {
    let mantissa = trim(input).split(['e', 'E']).next().unwrap_or_default();
    mantissa.bytes().any(|b| matches!(b, b'1'..=b'9'))
}

/// An exact decimal number: `unscaled` / 10^`scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    /// All digits as an integer.
    pub unscaled: i128,
    /// Digits after the point; negative for trailing zeros before it.
    pub scale: i32,
    /// Whether digits beyond 38 were dropped; the last kept digit is rounded.
    pub inexact: bool,
}

/// A numeric in decimal or exponent notation, at most 38 significant digits kept.
pub fn parse_decimal(input: &str) -> Result<Decimal, Error> {
    let error = || invalid_syntax("numeric", input);
    let word = trim(input);
    if parse_special(word).is_some() {
        return Err(error().with_hint("Strandline's numeric has neither NaN nor infinity."));
    }
    let (negative, word) = match word.as_bytes().first() {
        Some(b'-') => (true, &word[1..]),
        Some(b'+') => (false, &word[1..]),
        _ => (false, word),
    };
    let (mantissa, exponent) = match word.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, parse_exponent(exponent).ok_or_else(error)?),
        None => (word, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return Err(error());
    }
    let mut number = Decimal {
        unscaled: 0,
        scale: fraction.len() as i32 - exponent,
        inexact: false,
    };
    let mut rounded = false;
    for digit in whole
        .bytes()
        .chain(fraction.bytes())
        .map(|b| i128::from(b - b'0'))
    {
        if number.unscaled < power_of_ten(MAX_DIGITS - 1) && !rounded {
            number.unscaled = number.unscaled * 10 + digit;
            continue;
        }
        number.scale -= 1;
        if !rounded && digit >= 5 {
            number.unscaled += 1;
        }
        rounded = true;
        number.inexact |= digit != 0;
    }
    if negative {
        number.unscaled = -number.unscaled;
    }
    Ok(number)
}

/// The exponent, limited to ±10,000: beyond that any number overflows or vanishes.
fn parse_exponent(text: &str) -> Option<i32> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let magnitude = digits.parse::<i32>().unwrap_or(10_000).min(10_000);
    Some(if text.starts_with('-') {
        -magnitude
    } else {
        magnitude
    })
}

impl Decimal {
    /// The unscaled integer at the shape's scale, rounded half away from zero; `None` if it has
    /// more digits than the shape.
    pub fn at(&self, shape: Shape) -> Option<i128> {
        let shift = i32::from(shape.scale) - self.scale;
        let unscaled = match shift {
            _ if self.unscaled == 0 => 0,
            0..=38 => self.unscaled.checked_mul(power_of_ten(shift as u8))?,
            -38..=-1 => divide_rounded(self.unscaled, power_of_ten(-shift as u8)),
            _ if shift > 38 => return None,
            _ => 0,
        };
        fits(unscaled, shape).then_some(unscaled)
    }
}

/// Whether an unscaled integer has at most the shape's digits.
pub fn fits(unscaled: i128, shape: Shape) -> bool {
    unscaled.unsigned_abs() < power_of_ten(shape.precision) as u128
}

/// 22003 with PostgreSQL's detail.
pub fn field_overflow(shape: Shape) -> Error {
    let bound = match shape.integer_digits() {
        0 => "1".to_string(),
        n => format!("10^{n}"),
    };
    Error::invalid(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        "numeric field overflow",
    )
    .with_detail(format!(
        "A field with precision {}, scale {} must round to an absolute value less than \
             {bound}.",
        shape.precision, shape.scale
    ))
}

/// A numeric of the shape.
pub fn parse_numeric(input: &str, shape: Shape) -> Result<i128, Error> {
    parse_decimal(input)?
        .at(shape)
        .ok_or_else(|| field_overflow(shape))
}
