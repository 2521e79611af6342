//! Patterns of `to_char` and `to_number` for numbers: `9 0 . D , G L B V S MI PL SG PR TH RN EEEE
//! FM`, and other characters as text. As in PostgreSQL, a number is written position by position.

use crate::decimal::{divide_rounded, power_of_ten};
use crate::error::{invalid, numeric_overflow};
use crate::text::number::parse_decimal;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use strandline_base::SqlState;
mod filling;

use super::pattern::quoted_text;
use super::roman::roman;
use filling::Filling;

/// A part of a pattern.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// `9`
    Digit,
    /// `0`
    Zero,
    /// `.` and `D`
    Point,
    /// `,` and `G`
    Group,
    Currency,
    Minus,
    Plus,
    SignHere,
    Roman,
    RomanLower,
    OrdinalUpper,
    OrdinalLower,
    /// `S`, `PR`, `V`, `B`, `C`, `SP`, `EEEE`, `FM`: they change the output of other parts
    Mark,
    Text(char),
}

/// The position of `S`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Anchor {
    #[default]
    None,
    Before,
    After,
}

/// A parsed pattern.
#[derive(Clone, Debug, Default)]
pub struct NumberPattern {
    parts: Vec<Part>,
    /// digit positions before the point, and after it
    whole: usize,
    fraction: usize,
    /// digit positions after `V`
    shift: usize,
    /// the first and the last `0` before the point, as positions from 1 (0: none)
    zero_start: usize,
    zero_end: usize,
    point: bool,
    shifts: bool,
    unpadded: bool,
    brackets: bool,
    minus: bool,
    plus: bool,
    anchor: Anchor,
    anchored_at: usize,
    roman: bool,
    scientific: bool,
}

/// A number's digits for a pattern's positions.
struct Digits {
    text: String,
    negative: bool,
    /// positions before the point without a digit
    blanks: usize,
}

/// Spellings of the parts, longer ones before their prefixes; each also in small letters.
const SPELLINGS: [(&str, Part); 20] = [
    (",", Part::Group),
    (".", Part::Point),
    ("0", Part::Zero),
    ("9", Part::Digit),
    ("B", Part::Mark),
    ("C", Part::Mark),
    ("D", Part::Point),
    ("EEEE", Part::Mark),
    ("FM", Part::Mark),
    ("G", Part::Group),
    ("L", Part::Currency),
    ("MI", Part::Minus),
    ("PL", Part::Plus),
    ("PR", Part::Mark),
    ("RN", Part::Roman),
    ("SG", Part::SignHere),
    ("SP", Part::Mark),
    ("S", Part::Mark),
    ("TH", Part::OrdinalUpper),
    ("V", Part::Mark),
];

fn fault(message: &str) -> DataFusionError {
    invalid(SqlState::SYNTAX_ERROR, message)
}

impl NumberPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// 42601 for parts that exclude each other.
    pub fn parse(pattern: &str) -> Result<Self> {
        let mut parsed = Self::default();
        let mut rest = pattern;
        while let Some(first) = rest.chars().next() {
            if let Some((spelling, part, lower)) = spelled(rest) {
                parsed.add(spelling, part, lower)?;
                rest = &rest[spelling.len()..];
            } else if let Some(quoted) = rest.strip_prefix('"') {
                rest = quoted_text(quoted, |c| parsed.parts.push(Part::Text(c)));
            } else {
                rest = rest
                    .strip_prefix('\\')
                    .filter(|r| r.starts_with('"'))
                    .unwrap_or(rest);
                let shown = rest.chars().next().unwrap_or(first);
                parsed.parts.push(Part::Text(shown));
                rest = &rest[shown.len_utf8()..];
            }
        }
        Ok(parsed)
    }

    fn has_zero(&self) -> bool {
        self.zero_start > 0
    }

    /// Whether an `S` determines the position of the sign.
    fn is_anchored(&self) -> bool {
        self.anchor != Anchor::None
    }

    fn add(&mut self, spelling: &str, part: Part, lower: bool) -> Result<()> {
        if self.scientific {
            return Err(fault("\"EEEE\" must be the last pattern used"));
        }
        match part {
            Part::Digit if self.brackets => return Err(fault("\"9\" must be ahead of \"PR\"")),
            Part::Zero if self.brackets => return Err(fault("\"0\" must be ahead of \"PR\"")),
            Part::Digit if self.shifts => self.shift += 1,
            Part::Digit if self.point => self.fraction += 1,
            Part::Digit => self.whole += 1,
            Part::Zero => self.add_zero(),
            Part::Point if self.point => return Err(fault("multiple decimal points")),
            Part::Point if self.shifts => {
                return Err(fault("cannot use \"V\" and decimal point together"));
            }
            Part::Point => self.point = true,
            Part::Minus | Part::Plus | Part::SignHere if self.is_anchored() => {
                let message = format!(
                    "cannot use \"S\" and \"{}\" together",
                    spelling.to_uppercase()
                );
                return Err(fault(&message));
            }
            Part::Minus => self.minus = true,
            Part::Plus => self.plus = true,
            Part::SignHere => (self.minus, self.plus) = (true, true),
            Part::Roman => self.roman = true,
            Part::Mark => self.mark(&spelling.to_ascii_uppercase())?,
            _ => {}
        }
        self.parts.push(match part {
            Part::Roman if lower => Part::RomanLower,
            Part::OrdinalUpper if lower => Part::OrdinalLower,
            part => part,
        });
        Ok(())
    }

    fn add_zero(&mut self) {
        if !self.has_zero() && !self.point {
            self.zero_start = self.whole + 1;
        }
        if self.point {
            self.fraction += 1;
        } else {
            self.whole += 1;
        }
        self.zero_end = self.whole + self.fraction;
    }

    fn mark(&mut self, spelling: &str) -> Result<()> {
        let signs = self.plus || self.minus;
        match spelling {
            "FM" => self.unpadded = true,
            "V" if self.point => {
                return Err(fault("cannot use \"V\" and decimal point together"));
            }
            "V" => self.shifts = true,
            "PR" if self.is_anchored() || signs => {
                return Err(fault(
                    "cannot use \"PR\" and \"S\"/\"PL\"/\"MI\"/\"SG\" together",
                ));
            }
            "PR" => self.brackets = true,
            "S" if self.is_anchored() => return Err(fault("cannot use \"S\" twice")),
            "S" if signs || self.brackets => {
                return Err(fault(
                    "cannot use \"S\" and \"PL\"/\"MI\"/\"SG\"/\"PR\" together",
                ));
            }
            "S" if self.point => self.anchor = Anchor::After,
            "S" => {
                self.anchor = Anchor::Before;
                self.anchored_at = self.whole;
            }
            "EEEE"
                if self.unpadded
                    || self.is_anchored()
                    || self.brackets
                    || signs
                    || self.roman
                    || self.shifts =>
            {
                return Err(fault("\"EEEE\" is incompatible with other formats"));
            }
            "EEEE" => self.scientific = true,
            _ => {}
        }
        Ok(())
    }

    /// Digits after the point, including those of `V`.
    pub fn scale(&self) -> u8 {
        (self.fraction + self.shift).min(38) as u8
    }

    /// A numeric in the pattern's form; `#` in every position if it has too many digits.
    ///
    /// # Errors
    /// 22003 for Roman numerals of a number outside the integer range.
    pub fn write(&self, unscaled: i128, scale: u8) -> Result<String> {
        if self.scientific {
            return Ok(scientific(unscaled, scale, self.fraction));
        }
        let target = if self.roman { 0 } else { self.scale() };
        let rounded = if target >= scale {
            unscaled
                .checked_mul(power_of_ten(target - scale))
                .ok_or_else(numeric_overflow)?
        } else {
            divide_rounded(unscaled, power_of_ten(scale - target))
        };
        if self.roman {
            let value = i32::try_from(rounded).map_err(|_| {
                invalid(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range")
            })?;
            return Ok(self.write_roman(value));
        }
        let after_point = usize::from(target) - self.shift.min(usize::from(target));
        let digits = format!("{:0>1$}", rounded.unsigned_abs(), after_point + 1);
        let (whole, fraction) = digits.split_at(digits.len() - after_point);
        let text = match after_point {
            0 => whole.to_string(),
            _ => format!("{whole}.{fraction}"),
        };
        Ok(self.fill(text, rounded < 0))
    }

    /// A double in the pattern's form, with at most 15 digits.
    ///
    /// # Errors
    /// 22003 as for [`Self::write`].
    pub fn write_double(&self, value: f64) -> Result<String> {
        if !value.is_finite() {
            let message = "to_char of infinity or NaN is not supported";
            return Err(invalid(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        if self.scientific {
            let text = format!("{value:.*e}", self.fraction);
            return Ok(with_exponent(&text));
        }
        if self.roman {
            let rounded = value.round_ties_even();
            if rounded.abs() > f64::from(i32::MAX) {
                let message = "integer out of range";
                return Err(invalid(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message));
            }
            return Ok(self.write_roman(rounded as i32));
        }
        let value = value * 10f64.powi(self.shift as i32);
        let whole = format!("{:.0}", value.abs()).len();
        let after_point = self.fraction.min(15usize.saturating_sub(whole));
        let text = format!("{:.*}", after_point, value.abs());
        Ok(self.fill(text, value.is_sign_negative() && value != 0.0))
    }

    fn write_roman(&self, value: i32) -> String {
        let mut out = String::new();
        for part in &self.parts {
            let numeral = match part {
                Part::Roman => roman(value),
                Part::RomanLower => roman(value).to_lowercase(),
                Part::Text(c) => c.to_string(),
                _ => continue,
            };
            match part {
                Part::Text(_) => out.push_str(&numeral),
                _ if self.unpadded => out.push_str(&numeral),
                _ => out.push_str(&format!("{numeral:>15}")),
            }
        }
        out
    }

    /// Writes digits, with an optional fraction, into the pattern's positions.
    fn fill(&self, text: String, negative: bool) -> String {
        let places = self.whole + self.shift;
        let length = text.find('.').unwrap_or(text.len());
        let digits = if length > places {
            let mut crosses = "#".repeat(places);
            if self.point {
                crosses.push('.');
                crosses.push_str(&"#".repeat(self.fraction));
            }
            Digits {
                text: crosses,
                negative,
                blanks: 0,
            }
        } else {
            Digits {
                text,
                negative,
                blanks: places - length,
            }
        };
        Filling::new(self, &digits).run()
    }

    /// Parses a number in the pattern's form: unscaled at [`Self::scale`].
    ///
    /// # Errors
    /// 22P02 for an invalid text; 0A000 for Roman numerals and exponents.
    pub fn read(&self, text: &str) -> Result<i128> {
        if self.roman || self.scientific {
            let name = if self.roman { "RN" } else { "EEEE" };
            let message = format!("\"{name}\" not supported for input");
            return Err(invalid(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let negative = text.contains('-') || (text.contains('<') && text.contains('>'));
        let digits: String = text
            .chars()
            .filter(|c| c.is_ascii_digit() || *c == '.')
            .collect();
        let fault = || {
            invalid(
                SqlState::INVALID_TEXT_REPRESENTATION,
                format!("invalid input syntax for type numeric: \"{text}\""),
            )
        };
        let number = parse_decimal(&digits).map_err(|_| fault())?;
        let shape = crate::decimal::Shape::new(38, self.scale());
        let value = number.at(shape).ok_or_else(fault)?;
        Ok(if negative { -value } else { value })
    }
}

/// The part at the start of a text: its spelling, and whether it is in lower case.
fn spelled(text: &str) -> Option<(&str, Part, bool)> {
    SPELLINGS.iter().find_map(|(spelling, part)| {
        let found = text.get(..spelling.len())?;
        if found == *spelling {
            return Some((found, *part, false));
        }
        (found == spelling.to_ascii_lowercase()).then_some((found, *part, true))
    })
}

/// `d.dd` and an exponent of at least two digits, with a blank for a plus.
fn scientific(unscaled: i128, scale: u8, fraction: usize) -> String {
    let digits = unscaled.unsigned_abs().to_string();
    let mut exponent = digits.len() as i64 - 1 - i64::from(scale);
    let kept = fraction + 1;
    let mut mantissa = unscaled.unsigned_abs();
    if digits.len() > kept {
        let cut = power_of_ten((digits.len() - kept) as u8);
        mantissa = divide_rounded(mantissa as i128, cut) as u128;
    }
    let mut shown = format!("{mantissa:0<kept$}");
    if shown.len() > kept {
        // Rounding has added a digit.
        shown.pop();
        exponent += 1;
    }
    if unscaled == 0 {
        exponent = 0;
    }
    let (first, rest) = shown.split_at(1);
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if unscaled < 0 { '-' } else { ' ' };
    let exponent_sign = if exponent < 0 { '-' } else { '+' };
    format!(
        "{sign}{first}{point}{rest}e{exponent_sign}{:02}",
        exponent.abs()
    )
}

/// Rust's `1.5e-1` as C's ` 1.5e-01`.
fn with_exponent(text: &str) -> String {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let blank = if mantissa.starts_with('-') { "" } else { " " };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{blank}{mantissa}e{sign}{:02}", exponent.abs())
}
