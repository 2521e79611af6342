//! `encode` and `decode`: bytes as text in hexadecimal digits, in base64 with line breaks, and with
//! escapes.

use super::overload::Parameter::{Bytea, Text};
use super::overload::{Call, Function, Overload};
use crate::error::{invalid, raise};
use crate::text::binary::parse_bytea;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use datafusion::arrow::array::{ArrayRef, AsArray, BinaryViewBuilder};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use std::fmt::Write;
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// Characters of a line of base64.
const LINE: usize = 76;

/// Both functions.
pub fn functions() -> Vec<Function> {
    vec![
        Function::new(
            "encode",
            vec![Overload::new(&[Bytea, Text], SqlType::Text, |c| {
                let bytes = c.arrays[0].as_binary_view();
                c.map_text(|row| encoded(bytes.value(row), c.text(1).value(row)).map(Some))
            })],
        ),
        Function::new(
            "decode",
            vec![Overload::new(&[Text, Text], SqlType::Bytea, decode)],
        ),
    ]
}

fn unknown(encoding: &str) -> DataFusionError {
    let message = format!("unrecognized encoding: \"{encoding}\"");
    invalid(SqlState::INVALID_PARAMETER_VALUE, message)
}

fn encoded(bytes: &[u8], encoding: &str) -> Result<String> {
    let mut text = String::new();
    match encoding.to_ascii_lowercase().as_str() {
        "hex" => bytes.iter().for_each(|b| {
            let _ = write!(text, "{b:02x}");
        }),
        "base64" => {
            let one_line = STANDARD.encode(bytes);
            for (n, line) in one_line.as_bytes().chunks(LINE).enumerate() {
                if n > 0 {
                    text.push('\n');
                }
                text.extend(line.iter().map(|b| char::from(*b)));
            }
        }
        "escape" => bytes.iter().for_each(|b| match b {
            b'\\' => text.push_str("\\\\"),
            0 | 0x80.. => {
                let _ = write!(text, "\\{b:03o}");
            }
            b => text.push(char::from(*b)),
        }),
        _ => return Err(unknown(encoding)),
    }
    Ok(text)
}

fn decode(call: &Call) -> Result<ArrayRef> {
    let mut builder = BinaryViewBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        match call.any_null(row) {
            true => builder.append_null(),
            false => {
                builder.append_value(decoded(call.text(0).value(row), call.text(1).value(row))?)
            }
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn decoded(text: &str, encoding: &str) -> Result<Vec<u8>> {
    match encoding.to_ascii_lowercase().as_str() {
        "hex" => parse_bytea(&format!("\\x{text}")).map_err(raise),
        "base64" => {
            let blank = |c: &char| matches!(c, ' ' | '\t' | '\n' | '\r');
            let text: String = text.chars().filter(|c| !blank(c)).collect();
            STANDARD.decode(&text).map_err(|_| {
                let message = "invalid base64 end sequence or symbol";
                invalid(SqlState::INVALID_PARAMETER_VALUE, message)
            })
        }
        "escape" if text.starts_with("\\x") => {
            let message = "invalid input syntax for type bytea";
            Err(invalid(SqlState::INVALID_TEXT_REPRESENTATION, message))
        }
        "escape" => parse_bytea(text).map_err(raise),
        _ => Err(unknown(encoding)),
    }
}
