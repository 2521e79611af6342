//! bytea and uuid as text.

use super::{invalid_syntax, trim};
use strandline_base::{Error, SqlState};

fn nibble(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|d| d as u8)
}

/// bytea in hexadecimal (`\x…`) or escape notation. As in PostgreSQL, errors of the former are
/// 22023, of the latter 22P02.
pub fn parse_bytea(input: &str) -> Result<Vec<u8>, Error> {
    match input.strip_prefix("\\x") {
        Some(digits) => parse_hex(digits),
        None => parse_escaped(input.as_bytes()).ok_or_else(|| invalid_syntax("bytea", input)),
    }
}

fn parse_hex(digits: &str) -> Result<Vec<u8>, Error> {
    let fault = |message: String| Error::invalid(SqlState::INVALID_PARAMETER_VALUE, message);
    let mut values = digits
        .chars()
        .filter(|c| !c.is_ascii_whitespace())
        .map(|c| {
            let value = c.to_digit(16).map(|digit| digit as u8);
            value.ok_or_else(|| fault(format!("invalid hexadecimal digit: \"{c}\"")))
        });
    let mut bytes = Vec::with_capacity(digits.len() / 2);
    while let Some(high) = values.next() {
        let odd = || fault("invalid hexadecimal data: odd number of digits".to_string());
        let low = values.next().ok_or_else(odd)?;
        bytes.push((high? << 4) | low?);
    }
    Ok(bytes)
}

fn parse_escaped(input: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(input.len());
    let mut rest = input;
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'\\' {
            bytes.push(first);
            continue;
        }
        match rest {
            [b'\\', tail @ ..] => {
                bytes.push(b'\\');
                rest = tail;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = tail;
            }
            _ => return None,
        }
    }
    Some(bytes)
}

/// A uuid: 32 hexadecimal digits, with optional hyphens after groups of four and optional braces.
pub fn parse_uuid(input: &str) -> Result<[u8; 16], Error> {
    let error = || invalid_syntax("uuid", input);
    let word = trim(input);
    let word = match word.strip_prefix('{') {
        Some(inner) => inner.strip_suffix('}').ok_or_else(error)?,
        None => word,
    };
    let mut bytes = [0u8; 16];
    let mut digits = 0;
    for byte in word.bytes() {
        if byte == b'-' {
            if digits == 0 || digits == 32 || digits % 4 != 0 {
                return Err(error());
            }
            continue;
        }
        let value = nibble(byte).ok_or_else(error)?;
        let place = bytes.get_mut(digits / 2).ok_or_else(error)?;
        *place = *place << 4 | value;
        digits += 1;
    }
    if digits == 32 {
        Ok(bytes)
    } else {
        Err(error())
    }
}

/// Checks that the text is one JSON value.
pub fn check_json(input: &str) -> Result<(), Error> {
    serde_json::from_str::<serde::de::IgnoredAny>(input)
        .map(|_| ())
        .map_err(|e| invalid_json(&e))
}

/// 22P02 with the position of the fault.
pub fn invalid_json(fault: &serde_json::Error) -> Error {
    Error::invalid(
        SqlState::INVALID_TEXT_REPRESENTATION,
        "invalid input syntax for type json",
    )
    .with_detail(fault.to_string())
}
