//! Lifts the literals out of a statement's text: `SELECT v FROM t WHERE k = 7` is `… WHERE k = $1`
//! and 7.
//!
//! Texts that differ only in literals share one parsed and compiled statement, such as the texts of
//! an application that inserts values into them. It is one pass over the bytes, without tokens.
//!
//! Invariants:
//! - A lifted text has the meaning of the original if a parameter without a declared type is read
//!   like the literal of its value, as the row executor does.
//! - Where this is uncertain, nothing is lifted: comments, dollar quotes, parameters, escape
//!   strings, exponents.
//! - A literal stays in the text where it is not a value: after `ORDER BY` or `GROUP BY` (a
//!   column's number), after `ON CONFLICT` (it determines the index), after a word (`date '…'`).

use datafusion::scalar::ScalarValue;

/// Bytes of the longest text that is lifted. Longer texts are bulk data and do not repeat.
const LONGEST: usize = 2048;
/// The most literals. A text with more is bulk data.
const MOST: usize = 64;
/// The first words of lifted texts.
const FIRST_WORDS: [&str; 8] = [
    "select", "insert", "update", "delete", "begin", "commit", "end", "rollback",
];

/// A text without its literals, and the literals.
#[derive(Debug, Default)]
pub struct LiftedText {
    /// with `$1`, `$2`, … in the places of literals
    pub text: String,
    /// the literals' values, as the row executor reads them
    pub values: Vec<ScalarValue>,
}

impl LiftedText {
    /// Lifts the literals of `sql`. Returns false if `sql` must run as it is; the fields are then
    /// invalid. The previous contents are replaced, and their memory is reused.
    pub fn lift(&mut self, sql: &str) -> bool {
        self.text.clear();
        self.values.clear();
        let pass = Pass {
            sql,
            at: 0,
            lifts: true,
            follows: Follows::Other,
            out: self,
        };
        sql.len() <= LONGEST && begins_well(sql) && pass.run().is_some()
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
    /// a sign, AND, BETWEEN or the start: a value follows
    Other,
}

struct Pass<'a> {
    sql: &'a str,
    at: usize,
    /// whether literals are values here
    lifts: bool,
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
                byte if byte.is_ascii_whitespace() => self.copy(1)?,
                _ => self.sign(byte)?,
            }
        }
        Some(())
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.sql.as_bytes().get(self.at + ahead).copied()
    }

    /// Copies the next `bytes`.
    fn copy(&mut self, bytes: usize) -> Option<()> {
        let end = self.at + bytes;
        self.out.text.push_str(self.sql.get(self.at..end)?);
        self.at = end;
        Some(())
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
        self.follows = Follows::Other;
        self.copy(1)
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
        self.follows = match is("and") || is("between") {
            true => Follows::Other,
            false => Follows::Word,
        };
        if is("conflict") {
            return self.copy(self.sql.len() - self.at);
        }
        if is("by") || is("limit") {
            self.lifts = is("limit");
        }
        self.copy(length)
    }

    fn quoted_name(&mut self) -> Option<()> {
        let rest = self.sql.as_bytes().get(self.at + 1..)?;
        let end = rest.iter().position(|byte| *byte == b'"')?;
        self.follows = Follows::Word;
        self.copy(end + 2)
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

    /// A literal of `length` bytes: a parameter and its value, or a copy of it.
    fn literal(&mut self, length: usize, value: ScalarValue, is_value: bool) -> Option<()> {
        self.follows = Follows::Literal;
        if !self.lifts || !is_value {
            return self.copy(length);
        }
        self.at += length;
        self.out.values.push(value);
        let number = self.out.values.len();
        self.out.text.push('$');
        if number >= 10 {
            self.out
                .text
                .push(char::from(b'0' + (number / 10 % 10) as u8));
        }
        self.out.text.push(char::from(b'0' + (number % 10) as u8));
        (number <= MOST).then_some(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn lifted(sql: &str) -> Option<(String, String)> {
        let mut lifted = LiftedText::default();
        let values = |values: &[ScalarValue]| {
            let values: Vec<_> = values.iter().map(|v| format!("{v:?}")).collect();
            values.join(" ")
        };
        let does = lifted.lift(sql);
        does.then(|| (lifted.text.clone(), values(&lifted.values)))
    }

    #[track_caller]
    fn gives(sql: &str, text: &str, values: &str) {
        assert_eq!(lifted(sql), Some((text.to_string(), values.to_string())));
    }

    #[test]
    fn values_are_lifted() {
        gives(
            "SELECT a FROM t WHERE k = 7;",
            "SELECT a FROM t WHERE k = $1;",
            "Int32(7)",
        );
        gives(
            "update t set a=a+-12,b='it''s' where k in (1, 3000000000)",
            "update t set a=a+-$1,b=$2 where k in ($3, $4)",
            "Int32(12) Utf8(\"it's\") Int32(1) Int64(3000000000)",
        );
        gives(
            "INSERT INTO t1 VALUES (1.50, '', NULL, 'ä', now())",
            "INSERT INTO t1 VALUES ($1, $2, NULL, $3, now())",
            "Decimal128(1.50,38,2) Utf8(\"\") Utf8(\"ä\")",
        );
        gives(
            "SELECT a FROM t WHERE s BETWEEN 'a' AND 'b'",
            "SELECT a FROM t WHERE s BETWEEN $1 AND $2",
            "Utf8(\"a\") Utf8(\"b\")",
        );
        gives("BEGIN", "BEGIN", "");
        // A name of other letters is one word; a long number is not lifted.
        gives("SELECT ä1 FROM t", "SELECT ä1 FROM t", "");
        let many: Vec<_> = (10..30).map(|n| n.to_string()).collect();
        let (text, values) =
            lifted(&format!("SELECT a FROM t WHERE k IN ({})", many.join(","))).expect("lifts");
        assert!(text.contains("$9,$10,$11,") && text.ends_with(",$19,$20)"));
        assert!(values.ends_with("Int32(29)"));
    }

    #[test]
    fn what_is_no_value_stays() {
        gives(
            "SELECT a FROM t WHERE d = date '2020-01-01' ORDER BY 1, 2 LIMIT 3",
            "SELECT a FROM t WHERE d = date '2020-01-01' ORDER BY 1, 2 LIMIT $1",
            "Int32(3)",
        );
        gives(
            "INSERT INTO t VALUES (1) ON CONFLICT (k) WHERE a > 5 DO UPDATE SET a = 'x'",
            "INSERT INTO t VALUES ($1) ON CONFLICT (k) WHERE a > 5 DO UPDATE SET a = 'x'",
            "Int32(1)",
        );
        gives(
            "SELECT a AS \"x'1\" FROM t WHERE \"k\" = 1",
            "SELECT a AS \"x'1\" FROM t WHERE \"k\" = $1",
            "Int32(1)",
        );
        gives(
            "SELECT a, \"date\" '2020-01-01'",
            "SELECT a, \"date\" '2020-01-01'",
            "",
        );
        gives(
            "SELECT a1 FROM t2 WHERE s LIKE 'a%'",
            "SELECT a1 FROM t2 WHERE s LIKE 'a%'",
            "",
        );
    }

    #[test]
    fn what_was_lifted_before_is_gone() {
        let mut lifted = LiftedText::default();
        for _ in 0..2 {
            assert!(lifted.lift("SELECT 7"));
            assert_eq!(
                (lifted.text.as_str(), lifted.values.len()),
                ("SELECT $1", 1)
            );
        }
    }

    #[test]
    fn texts_of_doubt_are_left() {
        for sql in [
            "",
            "SELECTED 1",
            "CREATE TABLE t (a int DEFAULT 7)",
            "SELECT 1 -- one",
            "SELECT /* 1 */ 2",
            "SELECT $1",
            "SELECT $$a$$",
            "SELECT E'\\n'",
            "SELECT U&'x'",
            "SELECT 1e5",
            "SELECT .5",
            "SELECT 1..2",
            "SELECT 0xFF",
            "SELECT 123abc",
            "SELECT 'a' 'b'",
            "SELECT 'a'\n'b'",
            "SELECT 'a",
            "SELECT \"a",
            "SELECT a ? 'b'",
            "SELECT a @> 'b'",
            "SELECT a\\b",
            "SELECT a$1 FROM t",
            "SELECT 99999999999999999999",
            "SELECT 1.2345678901234567890123456789012345678",
            "SELECT 1'a'",
            "SELECT 1\"a\"",
            "SELECT a = '\0'",
        ] {
            assert_eq!(lifted(sql), None, "{sql}");
        }
        let long = format!("SELECT a FROM t WHERE k = '{}'", "x".repeat(LONGEST));
        assert_eq!(lifted(&long), None);
        let many = vec!["1"; MOST + 1].join(", ");
        assert_eq!(
            lifted(&format!("SELECT a FROM t WHERE k IN ({many})")),
            None
        );
    }
}
