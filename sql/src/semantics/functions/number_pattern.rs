//! Patterns of `to_char` and `to_number` for numbers: `9 0 . D , G S MI PL PR FM` and other
//! characters as text.

use crate::semantics::decimal::{divide_rounded, power_of_ten};
use crate::semantics::error::invalid;
use crate::semantics::text::number::parse_decimal;
use datafusion::common::Result;
use strandline_base::SqlState;

/// Where and how the sign is shown.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Sign {
    /// A blank or a minus before the first digit.
    Leading,
    /// `S` before or after the digits.
    AnchoredFirst,
    AnchoredLast,
    /// `MI` after the digits.
    MinusLast,
    /// `PR`: angle brackets.
    Brackets,
}

/// A pattern, taken apart.
#[derive(Debug)]
pub struct NumberPattern {
    /// The digits' places, separators and text before the point.
    whole: Vec<char>,
    /// Digits after the point; `None` without a point.
    fraction: Option<Vec<char>>,
    sign: Sign,
    unpadded: bool,
}

impl NumberPattern {
    /// Takes a pattern apart.
    pub fn parse(pattern: &str) -> Result<Self> {
        let mut parsed = Self {
            whole: Vec::new(),
            fraction: None,
            sign: Sign::Leading,
            unpadded: false,
        };
        let mut rest = pattern;
        while let Some(c) = rest.chars().next() {
            let upper: String = rest
                .chars()
                .take(2)
                .collect::<String>()
                .to_ascii_uppercase();
            let length = match upper.as_str() {
                "FM" => {
                    parsed.unpadded = true;
                    2
                }
                "MI" => {
                    parsed.sign = Sign::MinusLast;
                    2
                }
                "PR" => {
                    parsed.sign = Sign::Brackets;
                    2
                }
                "PL" | "SG" | "TH" | "RN" | "EE" => {
                    return Err(invalid(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        format!("number format \"{upper}\" is not supported"),
                    ));
                }
                _ => {
                    parsed.place(c)?;
                    c.len_utf8()
                }
            };
            rest = &rest[length..];
        }
        Ok(parsed)
    }

    fn place(&mut self, c: char) -> Result<()> {
        match c {
            'S' | 's' => {
                let first = self.whole.is_empty() && self.fraction.is_none();
                self.sign = if first {
                    Sign::AnchoredFirst
                } else {
                    Sign::AnchoredLast
                };
            }
            '.' | 'D' | 'd' => {
                if self.fraction.replace(Vec::new()).is_some() {
                    return Err(invalid(SqlState::SYNTAX_ERROR, "multiple decimal points"));
                }
            }
            'G' | 'g' => self.whole.push(','),
            other => match &mut self.fraction {
                Some(fraction) => fraction.push(other),
                None => self.whole.push(other),
            },
        }
        Ok(())
    }

    fn is_digit(c: char) -> bool {
        matches!(c, '9' | '0')
    }

    /// Digits after the point.
    pub fn scale(&self) -> u8 {
        let digits = |f: &Vec<char>| f.iter().filter(|c| Self::is_digit(**c)).count();
        self.fraction.as_ref().map_or(0, digits).min(38) as u8
    }

    /// A numeric as the pattern shows it; `#` in every place if it has too many digits.
    pub fn write(&self, unscaled: i128, scale: u8) -> String {
        let target = self.scale();
        let rounded = if target >= scale {
            unscaled.saturating_mul(power_of_ten(target - scale))
        } else {
            divide_rounded(unscaled, power_of_ten(scale - target))
        };
        let negative = rounded < 0;
        let digits = format!("{:0>1$}", rounded.unsigned_abs(), usize::from(target) + 1);
        let (whole, fraction) = digits.split_at(digits.len() - usize::from(target));
        let whole = if whole == "0" { "" } else { whole };
        let places = self.whole.iter().filter(|c| Self::is_digit(**c)).count();
        let overflow = whole.len() > places;
        let mut out = self.write_whole(whole, places, overflow);
        if let Some(pattern) = &self.fraction {
            out.push('.');
            out.push_str(&Self::write_fraction(
                pattern,
                fraction,
                overflow,
                self.unpadded,
            ));
        }
        self.with_sign(out, negative)
    }

    fn write_whole(&self, digits: &str, places: usize, overflow: bool) -> String {
        let forced_from = {
            let mut index = 0;
            let mut first = None;
            for c in &self.whole {
                if Self::is_digit(*c) {
                    if *c == '0' && first.is_none() {
                        first = Some(index);
                    }
                    index += 1;
                }
            }
            first.unwrap_or(places)
        };
        let blanks = places.saturating_sub(digits.len());
        let (mut index, mut started) = (0, false);
        let mut out = String::new();
        for c in &self.whole {
            match c {
                '9' | '0' => {
                    if overflow {
                        out.push('#');
                    } else if index >= blanks {
                        started = true;
                        out.push(digits.as_bytes()[index - blanks] as char);
                    } else if index >= forced_from {
                        started = true;
                        out.push('0');
                    } else if !self.unpadded {
                        out.push(' ');
                    }
                    index += 1;
                }
                ',' if started || overflow => out.push(','),
                ',' if self.unpadded => {}
                ',' => out.push(' '),
                other => out.push(*other),
            }
        }
        // Nothing but 9s for a zero without a fraction still shows it.
        if !overflow && !started && self.fraction.is_none() {
            match out.rfind(' ') {
                Some(at) => out.replace_range(at..=at, "0"),
                None => out.push('0'),
            }
        }
        out
    }

    fn write_fraction(pattern: &[char], digits: &str, overflow: bool, unpadded: bool) -> String {
        let mut digits = digits.chars();
        let mut out: String = pattern
            .iter()
            .map(|c| match c {
                '9' | '0' if overflow => '#',
                '9' | '0' => digits.next().unwrap_or('0'),
                other => *other,
            })
            .collect();
        if unpadded && !overflow {
            // Trailing zeros stay as far as the pattern has a 0.
            let keep = pattern.iter().rposition(|c| *c == '0').map_or(0, |i| i + 1);
            while out.len() > keep && out.ends_with('0') {
                out.pop();
            }
        }
        out
    }

    fn with_sign(&self, body: String, negative: bool) -> String {
        let blanks = body.len() - body.trim_start_matches(' ').len();
        let (blank, digits) = body.split_at(blanks);
        let pad = |sign: &str| match self.unpadded {
            true => format!("{}{digits}", sign.trim()),
            false => format!("{blank}{sign}{digits}"),
        };
        match (self.sign, negative) {
            (Sign::Leading, true) => pad("-"),
            (Sign::Leading, false) => pad(" "),
            (Sign::AnchoredFirst, true) => pad("-"),
            (Sign::AnchoredFirst, false) => pad("+"),
            (Sign::AnchoredLast, true) => format!("{body}-"),
            (Sign::AnchoredLast, false) => format!("{body}+"),
            (Sign::MinusLast, true) => format!("{body}-"),
            (Sign::MinusLast, false) if self.unpadded => body,
            (Sign::MinusLast, false) => format!("{body} "),
            (Sign::Brackets, true) => format!("{blank}<{digits}>"),
            (Sign::Brackets, false) if self.unpadded => body,
            (Sign::Brackets, false) => format!("{blank} {digits} "),
        }
    }

    /// Reads a number written by the pattern: unscaled at [`Self::scale`].
    pub fn read(&self, text: &str) -> Result<i128> {
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
        let shape = crate::semantics::decimal::Shape::new(38, self.scale());
        let value = number.at(shape).ok_or_else(fault)?;
        Ok(if negative { -value } else { value })
    }
}
