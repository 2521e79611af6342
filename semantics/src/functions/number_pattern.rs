//! Patterns of `to_char` and `to_number` for numbers: `9 0 . D , G L B V S MI PL SG PR TH RN EEEE
//! FM` and other characters as text. A number is shown place by place, as PostgreSQL does it.

use super::pattern::quoted_text;
use super::roman::roman;
use crate::decimal::{divide_rounded, power_of_ten};
use crate::error::{invalid, numeric_overflow};
use crate::text::number::parse_decimal;
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use strandline_base::SqlState;

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
    /// `S`, `PR`, `V`, `B`, `C`, `SP`, `EEEE`, `FM`: they say how others are shown
    Mark,
    Text(char),
}

/// Where `S` stands.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Anchor {
    #[default]
    None,
    Before,
    After,
}

/// A pattern, taken apart.
#[derive(Clone, Debug, Default)]
pub struct NumberPattern {
    parts: Vec<Part>,
    /// places before the point, and after it
    whole: usize,
    fraction: usize,
    /// places after `V`
    shift: usize,
    /// the first `0` before the point, as a place counted from 1 (0: none is), and the last one
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

/// A number's digits as they are put into a pattern's places.
struct Digits {
    text: String,
    negative: bool,
    /// places before the point that have no digit
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
    /// Takes a pattern apart.
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

    /// Whether an `S` says where the sign stands.
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

    /// Digits after the point, those that `V` asks for among them.
    pub fn scale(&self) -> u8 {
        (self.fraction + self.shift).min(38) as u8
    }

    /// A numeric as the pattern shows it; `#` in every place if it has too many digits.
    ///
    /// # Errors
    /// 22003 if Roman numerals are asked for a number outside an integer.
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

    /// A binary floating-point number as the pattern shows it, with at most 15 digits.
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

    /// Puts digits (with a point if there are some behind it) into the pattern's places.
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

    /// Reads a number written by the pattern: unscaled at [`Self::scale`].
    ///
    /// # Errors
    /// 22P02 if the text is no such number; 0A000 for Roman numerals and exponents.
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

/// The part at the start of a text: its spelling there, and whether it is in small letters.
fn spelled(text: &str) -> Option<(&str, Part, bool)> {
    SPELLINGS.iter().find_map(|(spelling, part)| {
        let found = text.get(..spelling.len())?;
        if found == *spelling {
            return Some((found, *part, false));
        }
        (found == spelling.to_ascii_lowercase()).then_some((found, *part, true))
    })
}

/// `d.dd` and an exponent of at least two digits, a blank in place of a plus.
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
        // Rounding has made one digit more.
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

/// One number on its way into the places of a pattern.
struct Filling<'a> {
    pattern: &'a NumberPattern,
    digits: &'a [u8],
    negative: bool,
    blanks: usize,
    /// the next digit
    at: usize,
    /// the place
    place: usize,
    /// places in all
    places: usize,
    /// without padding: the last character that is shown of what follows the point
    last: Option<usize>,
    anchor: Anchor,
    brackets: bool,
    sign_written: bool,
    /// the last place showed a digit
    inside: bool,
    out: String,
}

impl<'a> Filling<'a> {
    fn new(pattern: &'a NumberPattern, digits: &'a Digits) -> Self {
        let text = digits.text.as_bytes();
        let signs = pattern.plus || pattern.minus;
        let mut filling = Self {
            pattern,
            digits: text,
            negative: digits.negative,
            blanks: digits.blanks,
            at: 0,
            place: 0,
            places: (pattern.whole + pattern.shift + pattern.fraction).saturating_sub(1),
            last: None,
            anchor: pattern.anchor,
            brackets: pattern.brackets,
            sign_written: false,
            inside: false,
            out: String::new(),
        };
        if signs {
            filling.sign_written = !pattern.plus || pattern.minus;
        } else {
            if !digits.negative && pattern.unpadded {
                filling.brackets = false;
            }
            filling.sign_written = !digits.negative && pattern.unpadded && !pattern.is_anchored();
            let at_end = pattern.whole + pattern.shift == pattern.anchored_at;
            if filling.anchor == Anchor::Before && at_end {
                filling.anchor = Anchor::After;
            }
        }
        if pattern.unpadded && pattern.point {
            filling.last = last_relevant(text).map(|last| {
                if pattern.zero_end > digits.blanks {
                    last.max((pattern.zero_end - digits.blanks).min(text.len() - 1))
                } else {
                    last
                }
            });
        }
        if !filling.sign_written && filling.blanks == 0 {
            filling.places += 1;
        }
        filling
    }

    fn run(mut self) -> String {
        let unpadded = self.pattern.unpadded;
        for part in &self.pattern.parts {
            match part {
                Part::Digit | Part::Zero | Part::Point => self.put(*part == Part::Zero),
                Part::Group if self.inside => self.out.push(','),
                Part::Group | Part::Minus | Part::Plus if self.shows(*part).is_none() => {
                    if !unpadded {
                        self.out.push(' ');
                    }
                }
                Part::Minus | Part::Plus | Part::SignHere => self.out.extend(self.shows(*part)),
                Part::Currency => self.out.push(' '),
                Part::OrdinalUpper | Part::OrdinalLower => {
                    let plain = !self.negative && !self.pattern.point;
                    if plain && self.digits.first() != Some(&b'#') {
                        let suffix = super::pattern::ordinal_suffix(self.digits);
                        match part {
                            Part::OrdinalUpper => self.out.push_str(&suffix.to_uppercase()),
                            _ => self.out.push_str(suffix),
                        }
                    }
                }
                Part::Text(c) => self.out.push(*c),
                Part::Group | Part::Roman | Part::RomanLower | Part::Mark => {}
            }
        }
        self.out
    }

    /// The sign that `MI`, `PL` or `SG` shows.
    fn shows(&self, part: Part) -> Option<char> {
        match (part, self.negative) {
            (Part::Minus | Part::SignHere, true) => Some('-'),
            (Part::Plus | Part::SignHere, false) => Some('+'),
            _ => None,
        }
    }

    fn sign(&self) -> char {
        if self.negative { '-' } else { '+' }
    }

    /// A zero before the point for which no place is a `0` is not shown: `9.9` shows ` .1`.
    fn hidden_zero(&self) -> bool {
        let pattern = self.pattern;
        !pattern.has_zero()
            && self.at == 0
            && self.digits.first() == Some(&b'0')
            && pattern.fraction != 0
    }

    fn last_is_point(&self) -> bool {
        self.last.is_some_and(|last| self.digits[last] == b'.')
    }

    fn put_sign(&mut self) {
        if self.pattern.is_anchored() {
            if self.anchor == Anchor::Before {
                self.out.push(self.sign());
                self.sign_written = true;
            }
            return;
        }
        self.sign_written = true;
        match (self.brackets, self.negative) {
            (true, false) => self.out.push(' '),
            (true, true) => self.out.push('<'),
            (false, true) => self.out.push('-'),
            (false, false) if !self.pattern.unpadded => self.out.push(' '),
            (false, false) => {}
        }
    }

    /// One place: a digit, a blank, or the point.
    fn put(&mut self, zero: bool) {
        let pattern = self.pattern;
        // Counted from 0.
        let zero_start = pattern.zero_start.saturating_sub(1);
        let zeros = pattern.has_zero() && zero_start <= self.place;
        self.inside = false;
        let begins = self.place >= self.blanks || (pattern.has_zero() && zero_start == self.place);
        if !self.sign_written && begins && (!self.hidden_zero() || self.last_is_point()) {
            self.put_sign();
        }
        if self.place < self.blanks {
            if zeros {
                self.out.push('0');
                self.inside = true;
            } else if !pattern.unpadded {
                self.out.push(' ');
            }
        } else {
            self.put_digit(zero);
        }
        let mut end = self.places + usize::from(self.blanks > 0) + usize::from(pattern.point);
        if self.last == Some(self.at) {
            end = self.place;
        }
        if self.place + 1 == end {
            if self.sign_written && self.brackets {
                self.out.push(if self.negative { '>' } else { ' ' });
            } else if self.anchor == Anchor::After {
                self.out.push(self.sign());
            }
        }
        self.place += 1;
    }

    fn put_digit(&mut self, zero: bool) {
        match self.digits.get(self.at) {
            None => return,
            Some(b'.') => self.out.push('.'),
            Some(_) if !zero && self.last.is_some_and(|last| self.at > last) => {}
            Some(_) if self.hidden_zero() => {
                if !self.pattern.unpadded {
                    self.out.push(' ');
                } else if self.last_is_point() {
                    self.out.push('0');
                }
            }
            Some(digit) => {
                self.out.push(char::from(*digit));
                self.inside = true;
            }
        }
        self.at += 1;
    }
}

/// The last character behind the point that is not a zero, or the point itself.
fn last_relevant(text: &[u8]) -> Option<usize> {
    let point = text.iter().position(|c| *c == b'.')?;
    let behind = text[point + 1..].iter().rposition(|c| *c != b'0');
    Some(behind.map_or(point, |i| point + 1 + i))
}
