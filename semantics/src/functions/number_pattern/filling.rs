//! Writes a number's digits into the positions of a pattern, one by one as PostgreSQL does.

use super::{Anchor, Digits, NumberPattern, Part};

/// The state of writing one number into a pattern.
pub(super) struct Filling<'a> {
    pattern: &'a NumberPattern,
    digits: &'a [u8],
    negative: bool,
    blanks: usize,
    /// the next digit
    at: usize,
    /// the present position
    place: usize,
    /// the number of positions
    places: usize,
    /// without padding: the last fractional character that is written
    last: Option<usize>,
    anchor: Anchor,
    brackets: bool,
    sign_written: bool,
    /// whether the last position had a digit
    inside: bool,
    out: String,
}

impl<'a> Filling<'a> {
    pub(super) fn new(pattern: &'a NumberPattern, digits: &'a Digits) -> Self {
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

    pub(super) fn run(mut self) -> String {
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
                        let suffix = crate::functions::pattern::ordinal_suffix(self.digits);
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

    /// The sign for `MI`, `PL` or `SG`.
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

    /// Whether the zero before the point is hidden, because no position is a `0`: `9.9` gives `
    /// .1`.
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

    /// Writes one position: a digit, a blank, or the point.
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

/// The last character after the point that is not a zero, or the point itself.
fn last_relevant(text: &[u8]) -> Option<usize> {
    let point = text.iter().position(|c| *c == b'.')?;
    let behind = text[point + 1..].iter().rposition(|c| *c != b'0');
    Some(behind.map_or(point, |i| point + 1 + i))
}
