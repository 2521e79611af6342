//! Lifts the literals out of a statement's text: `SELECT v FROM t WHERE k = 7` is `… WHERE k = $1`
//! and 7.
//!
//! Texts that differ only in literals share one parsed and compiled statement, such as the texts of
//! an application that inserts values into them. It is one pass over the bytes, without tokens.
//! Some literals decide what a statement is, such as the digits in `round(a, 2)`. These mostly stay
//! the same while keys differ, so two more forms of a text have fewer parameters. Decimals stay in
//! the first, because a decimal's digits are its type ([`LiftedText::lift_plain`]). The second has
//! parameters only for literals that are compared, assigned or inserted
//! ([`LiftedText::lift_operands`]).
//!
//! Invariants:
//! - A lifted text has the meaning of the original if a parameter without a declared type is read
//!   like the literal of its value.
//! - Where this is uncertain, nothing is lifted: comments, dollar quotes, parameters, escape
//!   strings, exponents.
//! - A literal stays in the text where it is not a value: after `ORDER BY` or `GROUP BY` (a
//!   column's number), after `ON CONFLICT` (it determines the index), after a word (`date '…'`).
//! - Texts whose literals have other types differ: a blank follows the parameter of a bigint.

use datafusion::scalar::ScalarValue;
use std::fmt::Write;

#[cfg(test)]
mod tests;

/// Bytes of the longest text that is lifted. Longer texts are bulk data and do not repeat.
const LONGEST: usize = 8192;
/// The most literals. A text with more is bulk data.
const MOST: usize = 256;
/// The first words of lifted texts.
const FIRST_WORDS: [&str; 9] = [
    "select", "with", "insert", "update", "delete", "begin", "commit", "end", "rollback",
];

/// A text without its literals, and the literals.
#[derive(Debug, Default)]
pub struct LiftedText {
    /// with `$1`, `$2`, … in the places of literals
    pub text: String,
    /// the literals' values, as the row executor reads them
    pub values: Vec<ScalarValue>,
    /// the literals' places in the original text
    places: Vec<Place>,
}

/// The place of a literal in its text.
#[derive(Clone, Copy, Debug)]
struct Place {
    begin: usize,
    end: usize,
    /// whether it is compared, assigned or inserted as it is
    is_operand: bool,
}

impl LiftedText {
    /// Lifts the literals of `sql`. Returns false if `sql` must run as it is; the fields are then
    /// invalid. The previous contents are replaced, and their memory is reused.
    pub fn lift(&mut self, sql: &str) -> bool {
        self.values.clear();
        self.places.clear();
        let pass = Pass {
            sql,
            at: 0,
            level: Level::OUTERMOST,
            outer: Vec::new(),
            opens_list: false,
            is_between: false,
            follows: Follows::Other,
            out: self,
        };
        sql.len() <= LONGEST && begins_well(sql) && pass.run().is_some() && self.write(sql)
    }

    /// Makes this the text in which all literals of `all`, the lifted form of `sql`, are lifted but
    /// decimals: a decimal's digits are its type. Returns false if these are all literals, or none;
    /// there are no values then.
    pub fn lift_plain(&mut self, all: &Self, sql: &str) -> bool {
        self.lift_some(all, sql, |_| true)
    }

    /// As [`LiftedText::lift_plain`], of those literals of `more` that are operands. `more` is the
    /// form of `sql` with the next more literals.
    pub fn lift_operands(&mut self, more: &Self, sql: &str) -> bool {
        self.lift_some(more, sql, |place| place.is_operand)
    }

    fn lift_some(&mut self, more: &Self, sql: &str, lifts: impl Fn(&Place) -> bool) -> bool {
        self.values.clear();
        self.places.clear();
        for (place, value) in more.places.iter().zip(&more.values) {
            if lifts(place) && !value.data_type().is_decimal() {
                self.places.push(*place);
                self.values.push(value.clone());
            }
        }
        let is_other = (1..more.places.len()).contains(&self.places.len());
        if !is_other {
            self.values.clear();
            self.places.clear();
        }
        is_other && self.write(sql)
    }

    /// Writes the text with parameters in the literals' places.
    fn write(&mut self, sql: &str) -> bool {
        self.text.clear();
        let mut from = 0;
        for (at, (place, value)) in self.places.iter().zip(&self.values).enumerate() {
            self.text.push_str(&sql[from..place.begin]);
            let blank = match value {
                ScalarValue::Int64(_) => " ",
                _ => "",
            };
            if write!(self.text, "${}{blank}", at + 1).is_err() {
                return false;
            }
            from = place.end;
        }
        self.text.push_str(&sql[from..]);
        true
    }
}

fn begins_well(sql: &str) -> bool {
    let word = sql.trim_ascii_start().as_bytes();
    FIRST_WORDS.iter().any(|first| {
        let begins = word.get(..first.len());
        let next = word.get(first.len());
        begins.is_some_and(|begins| begins.eq_ignore_ascii_case(first.as_bytes()))
            && next.is_none_or(|next| !is_word(*next))
    })
}

/// The token before the present one.
#[derive(Clone, Copy, PartialEq)]
enum Follows {
    /// a word that may give a type to the string after it
    Word,
    Literal,
    /// a comparison, BETWEEN, LIMIT, or the place before an item of a list of values
    Operator,
    /// another sign, AND, LIKE or the start: a value follows
    Other,
}

/// What is known within the present parentheses.
#[derive(Clone, Copy)]
struct Level {
    /// whether literals are values here
    lifts: bool,
    /// whether it is a list of values
    is_list: bool,
    /// whether lists follow: VALUES
    has_lists: bool,
}

impl Level {
    const OUTERMOST: Self = Self {
        lifts: true,
        is_list: false,
        has_lists: false,
    };
}

struct Pass<'a> {
    sql: &'a str,
    at: usize,
    level: Level,
    /// the levels around the present one
    outer: Vec<Level>,
    /// whether the last token was a word before a list of values: IN, ANY
    opens_list: bool,
    /// whether the next AND belongs to a BETWEEN
    is_between: bool,
    follows: Follows,
    out: &'a mut LiftedText,
}

impl Pass<'_> {
    /// None: nothing can be lifted safely.
    fn run(mut self) -> Option<()> {
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\'' => self.string()?,
                b'"' => self.quoted_name()?,
                b'0'..=b'9' => self.number()?,
                byte if is_word(byte) => self.word()?,
                byte if byte.is_ascii_whitespace() => self.at += 1,
                _ => self.sign(byte)?,
            }
        }
        Some(())
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.sql.as_bytes().get(self.at + ahead).copied()
    }

    fn sign(&mut self, byte: u8) -> Option<()> {
        let next = self.peek(1);
        let is_comment = matches!((byte, next), (b'-', Some(b'-')) | (b'/', Some(b'*')));
        let is_fraction = byte == b'.' && next.is_some_and(|next| next.is_ascii_digit());
        let is_plain = matches!(
            byte,
            b'(' | b')'
                | b','
                | b';'
                | b'.'
                | b'='
                | b'<'
                | b'>'
                | b'+'
                | b'-'
                | b'*'
                | b'/'
                | b'%'
                | b'|'
                | b'!'
                | b':'
                | b'['
                | b']'
        );
        if !is_plain || is_comment || is_fraction {
            return None;
        }
        self.follows = match byte {
            b'(' => self.open(),
            b')' => {
                self.level = self.outer.pop().unwrap_or(Level::OUTERMOST);
                Follows::Other
            }
            b',' if self.level.is_list => Follows::Operator,
            b'=' | b'<' | b'>' | b'!' => self.comparison(),
            b'-' if self.follows == Follows::Operator => Follows::Operator,
            _ => Follows::Other,
        };
        self.opens_list = false;
        self.at += 1;
        Some(())
    }

    /// Enters parentheses.
    fn open(&mut self) -> Follows {
        let is_list = self.opens_list || self.level.has_lists || self.follows == Follows::Operator;
        self.outer.push(self.level);
        self.level = Level {
            is_list,
            has_lists: false,
            ..self.level
        };
        match is_list {
            true => Follows::Operator,
            false => Follows::Other,
        }
    }

    /// A sign of a comparison, of which an operator may have two. A literal that is compared with a
    /// literal is no operand (`1 = 1`), nor is a key of a document (`->> 'key'`).
    fn comparison(&self) -> Follows {
        let before = self.at.checked_sub(1);
        let before = before.and_then(|before| self.sql.as_bytes().get(before));
        match (before, self.follows) {
            (Some(b'-'), _) | (_, Follows::Literal) => Follows::Other,
            (Some(b'=' | b'<' | b'>' | b'!'), follows) => follows,
            _ => Follows::Operator,
        }
    }

    fn word(&mut self) -> Option<()> {
        let rest = self.sql.as_bytes().get(self.at..)?;
        let length = rest.iter().take_while(|byte| is_word(**byte)).count();
        let word = rest.get(..length)?;
        // A word directly before a quote, such as E, changes the string's meaning.
        if rest.get(length) == Some(&b'\'') {
            return None;
        }
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let ends_between = is("and") && std::mem::take(&mut self.is_between);
        self.is_between |= is("between");
        self.follows = if ends_between || is("between") || is("limit") || is("offset") {
            Follows::Operator
        } else if is("and") || is("like") || is("ilike") {
            Follows::Other
        } else {
            Follows::Word
        };
        self.opens_list = is("in") || is("any");
        self.level.has_lists = is("values");
        if is("by") {
            self.level.lifts = false;
        }
        if is("limit") || is("offset") {
            self.level.lifts = true;
        }
        self.at = match is("conflict") {
            true => self.sql.len(),
            false => self.at + length,
        };
        Some(())
    }

    fn quoted_name(&mut self) -> Option<()> {
        let rest = self.sql.as_bytes().get(self.at + 1..)?;
        let end = rest.iter().position(|byte| *byte == b'"')?;
        self.follows = Follows::Word;
        self.opens_list = false;
        self.at += end + 2;
        Some(())
    }

    fn number(&mut self) -> Option<()> {
        let rest = self.sql.get(self.at..)?;
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let mut length = digits(rest);
        if rest.as_bytes().get(length) == Some(&b'.') {
            let fraction = digits(rest.get(length + 1..)?);
            length += 1 + fraction;
        }
        let next = rest.as_bytes().get(length);
        if next.is_some_and(|next| is_word(*next) || matches!(next, b'.' | b'\'' | b'"')) {
            return None;
        }
        let value = number_value(rest.get(..length)?)?;
        self.literal(length, value, true)
    }

    fn string(&mut self) -> Option<()> {
        let rest = self.sql.get(self.at + 1..)?;
        let mut value = String::new();
        let mut from = 0;
        let length = loop {
            let end = from + memchr::memchr(b'\'', rest.as_bytes().get(from..)?)?;
            value.push_str(rest.get(from..end)?);
            if rest.as_bytes().get(end + 1) != Some(&b'\'') {
                break end + 2;
            }
            value.push('\'');
            from = end + 2;
        };
        // Strings on two lines form one literal.
        if self.follows == Follows::Literal || value.contains('\0') {
            return None;
        }
        let is_value = self.follows != Follows::Word;
        self.literal(length, ScalarValue::Utf8(Some(value)), is_value)
    }

    /// A literal of `length` bytes.
    fn literal(&mut self, length: usize, value: ScalarValue, is_value: bool) -> Option<()> {
        let begin = self.at;
        self.at += length;
        if self.level.lifts && is_value {
            self.out.values.push(value);
            self.out.places.push(Place {
                begin,
                end: self.at,
                is_operand: self.follows == Follows::Operator,
            });
        }
        self.follows = Follows::Literal;
        self.opens_list = false;
        (self.out.values.len() <= MOST).then_some(())
    }
}

/// Whether a byte may be part of a name or keyword. A dollar sign within a word is part of it, but
/// a leading one is uncertain.
const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The value of a number literal: digits with an optional point.
pub fn number_value(digits: &str) -> Option<ScalarValue> {
    if digits.bytes().all(|b| b.is_ascii_digit()) {
        if let Ok(v) = digits.parse::<i32>() {
            return Some(ScalarValue::Int32(Some(v)));
        }
        return digits.parse().ok().map(|v| ScalarValue::Int64(Some(v)));
    }
    let (whole, fraction) = digits.split_once('.')?;
    let figures = format!("{whole}{fraction}");
    let is_plain = figures.bytes().all(|b| b.is_ascii_digit()) && (1..=37).contains(&figures.len());
    let scale = i8::try_from(fraction.len()).ok().filter(|_| is_plain)?;
    Some(ScalarValue::Decimal128(figures.parse().ok(), 38, scale))
}
