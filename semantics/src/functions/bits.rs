//! Functions on the bits and bytes of bytea, and on texts as bytes of an encoding.

use super::overload::Parameter::{Bigint, Bytea, Text};
use super::overload::{Call, Function, Overload};
use crate::error::{invalid, raise};
use crate::text::utf8;
use datafusion::arrow::array::{ArrayRef, AsArray, BinaryViewBuilder};
use datafusion::arrow::datatypes::{Int32Type, Int64Type};
use datafusion::common::Result;
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    of_bits().into_iter().chain(of_encodings()).collect()
}

fn of_bits() -> [Function; 5] {
    let (bytea, integer) = (SqlType::Bytea, SqlType::Integer);
    [
        Function::new(
            "get_byte",
            vec![Overload::new(&[Bytea, Bigint], integer, |c| {
                c.map::<Int32Type>(|row| {
                    let (bytes, at) = (bytes(c, row), c.bigint(1).value(row));
                    let found = usize::try_from(at).ok().and_then(|at| bytes.get(at));
                    found.map_or_else(
                        || out_of_range(at, bytes.len()),
                        |byte| Ok(Some(i32::from(*byte))),
                    )
                })
            })],
        ),
        Function::new(
            "get_bit",
            vec![Overload::new(&[Bytea, Bigint], integer, |c| {
                c.map::<Int32Type>(|row| {
                    let (bytes, at) = (bytes(c, row), c.bigint(1).value(row));
                    let found = usize::try_from(at / 8).ok().filter(|_| at >= 0);
                    found.and_then(|byte| bytes.get(byte)).map_or_else(
                        || out_of_range(at, bytes.len().saturating_mul(8)),
                        |byte| Ok(Some(i32::from(byte >> (at % 8) & 1))),
                    )
                })
            })],
        ),
        Function::new(
            "set_byte",
            vec![Overload::new(&[Bytea, Bigint, Bigint], bytea, |c| {
                map_bytes(c, |row| set_byte(c, row))
            })],
        ),
        Function::new(
            "set_bit",
            vec![Overload::new(&[Bytea, Bigint, Bigint], bytea, |c| {
                map_bytes(c, |row| set_bit(c, row))
            })],
        ),
        Function::new(
            "bit_count",
            vec![Overload::new(&[Bytea], SqlType::BigInt, |c| {
                c.map::<Int64Type>(|row| {
                    let ones = bytes(c, row).iter().map(|b| i64::from(b.count_ones()));
                    Ok(Some(ones.sum()))
                })
            })],
        )
        .beside_bit_strings(),
    ]
}

fn of_encodings() -> [Function; 3] {
    let bytea = SqlType::Bytea;
    [
        Function::new(
            "convert_from",
            vec![Overload::new(&[Bytea, Text], SqlType::Text, |c| {
                c.map_text(|row| {
                    let encoding = Encoding::named(c.text(1).value(row))?;
                    encoding.read(bytes(c, row)).map(Some)
                })
            })],
        ),
        Function::new(
            "convert_to",
            vec![Overload::new(&[Text, Text], bytea, |c| {
                map_bytes(c, |row| {
                    let encoding = Encoding::named(c.text(1).value(row))?;
                    encoding.write(c.text(0).value(row))
                })
            })],
        ),
        Function::new(
            "convert",
            vec![Overload::new(&[Bytea, Text, Text], bytea, |c| {
                map_bytes(c, |row| {
                    let from = Encoding::named(c.text(1).value(row))?;
                    let to = Encoding::named(c.text(2).value(row))?;
                    to.write(&from.read(bytes(c, row))?)
                })
            })],
        ),
    ]
}

/// The number of characters of a row's bytes in an encoding.
pub(super) fn encoded_length(call: &Call, row: usize) -> Result<i32> {
    let encoding = Encoding::named(call.text(1).value(row))?;
    let text = encoding.read(bytes(call, row))?;
    Ok(text.chars().count() as i32)
}

fn bytes<'a>(call: &'a Call, row: usize) -> &'a [u8] {
    call.arrays[0].as_binary_view().value(row)
}

/// A bytea result, NULL if an argument is NULL.
fn map_bytes(call: &Call, f: impl Fn(usize) -> Result<Vec<u8>>) -> Result<ArrayRef> {
    let mut builder = BinaryViewBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        match call.any_null(row) {
            true => builder.append_null(),
            false => builder.append_value(f(row)?),
        }
    }
    Ok(Arc::new(builder.finish()))
}

fn out_of_range<T>(index: i64, length: usize) -> Result<T> {
    let last = length as i64 - 1;
    let message = format!("index {index} out of valid range, 0..{last}");
    Err(invalid(SqlState("2202E"), message))
}

fn set_byte(call: &Call, row: usize) -> Result<Vec<u8>> {
    let mut changed = bytes(call, row).to_vec();
    let (at, length) = (call.bigint(1).value(row), changed.len());
    match usize::try_from(at).ok().and_then(|at| changed.get_mut(at)) {
        Some(byte) => *byte = (call.bigint(2).value(row) & 0xff) as u8,
        None => return out_of_range(at, length),
    }
    Ok(changed)
}

fn set_bit(call: &Call, row: usize) -> Result<Vec<u8>> {
    let mut changed = bytes(call, row).to_vec();
    let (at, length) = (call.bigint(1).value(row), changed.len());
    let place = usize::try_from(at / 8).ok().filter(|_| at >= 0);
    let Some(byte) = place.and_then(|place| changed.get_mut(place)) else {
        return out_of_range(at, length.saturating_mul(8));
    };
    let mask = 1 << (at % 8);
    match call.bigint(2).value(row) {
        0 => *byte &= !mask,
        1 => *byte |= mask,
        _ => {
            let message = "new bit must be 0 or 1";
            return Err(invalid(SqlState::INVALID_PARAMETER_VALUE, message));
        }
    }
    Ok(changed)
}

/// An encoding of characters as bytes.
#[derive(Clone, Copy)]
enum Encoding {
    Utf8,
    Latin1,
}

impl Encoding {
    fn named(name: &str) -> Result<Self> {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        match plain.to_ascii_lowercase().as_str() {
            "utf8" | "unicode" => Ok(Encoding::Utf8),
            "latin1" | "iso88591" => Ok(Encoding::Latin1),
            _ => {
                let message = format!("encoding \"{name}\" is not supported");
                Err(invalid(SqlState::FEATURE_NOT_SUPPORTED, message))
            }
        }
    }

    fn read(self, bytes: &[u8]) -> Result<String> {
        match self {
            Encoding::Latin1 if !bytes.contains(&0) => {
                Ok(bytes.iter().map(|byte| char::from(*byte)).collect())
            }
            _ => utf8(bytes).map(str::to_string).map_err(raise),
        }
    }

    fn write(self, text: &str) -> Result<Vec<u8>> {
        match self {
            Encoding::Utf8 => Ok(text.as_bytes().to_vec()),
            Encoding::Latin1 => text
                .chars()
                .map(|c| {
                    u8::try_from(u32::from(c)).map_err(|_| {
                        let message = format!(
                            "character \"{c}\" in encoding \"UTF8\" has no equivalent in encoding \
                             \"LATIN1\""
                        );
                        invalid(SqlState("22P05"), message)
                    })
                })
                .collect(),
        }
    }
}
