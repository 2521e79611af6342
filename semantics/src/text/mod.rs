//! The text form of every SQL type in PostgreSQL's format: the input and output functions of casts,
//! COPY, literals and the shell. [`strandline_base::value_text`] writes single values, also for the
//! engine's messages.
//!
//! Input is strict. An invalid value is 22P02 or 22007; a value out of range is 22003 or 22008.
//! Dates are read in ISO order (`DateStyle = ISO, YMD`), and timestamps without a zone are UTC.
//! Intervals are read in PostgreSQL's, ISO 8601's and SQL's notation, and written in PostgreSQL's.

pub mod array;
pub mod binary;
mod escape;
pub mod geometry;
pub mod interval;
pub mod number;
pub mod temporal;
mod utf8;
mod write;

pub use escape::with_backslashes;
pub use utf8::{invalid_sequence, utf8};
pub use write::{ValueWriter, interval_of, write_value};

use strandline_base::{Error, SqlState};

/// 22P02: `invalid input syntax for type integer: "abc"`.
pub fn invalid_syntax(type_name: &str, input: &str) -> Error {
    Error::invalid(
        SqlState::INVALID_TEXT_REPRESENTATION,
        format!("invalid input syntax for type {type_name}: \"{input}\""),
    )
}

/// 22003: `value "99999" is out of range for type smallint`.
pub fn out_of_range(type_name: &str, input: &str) -> Error {
    Error::invalid(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("value \"{input}\" is out of range for type {type_name}"),
    )
}

/// Blanks that input functions skip at both ends.
pub fn trim(input: &str) -> &str {
    input.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\u{b}')
}

/// Any unambiguous prefix of true, yes, on, 1 / false, no, off, 0, in any case.
pub fn parse_boolean(input: &str) -> Result<bool, Error> {
    let word = trim(input).to_ascii_lowercase();
    let is = |full: &str, least: usize| word.len() >= least && full.starts_with(&word);
    if is("true", 1) || is("yes", 1) || is("on", 2) || word == "1" {
        Ok(true)
    } else if is("false", 1) || is("no", 1) || is("off", 2) || word == "0" {
        Ok(false)
    } else {
        Err(invalid_syntax("boolean", input))
    }
}

#[cfg(test)]
mod tests;
