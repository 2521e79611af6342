//! Parameters in text or binary form as scalars.

use super::Format;
use crate::column_builder::ColumnBuilder;
use crate::error::convert;
use crate::numeric_send::read_numeric;
use crate::text::{number, utf8};
use datafusion::scalar::ScalarValue;
use strandline_base::{Error, Result, SqlState, SqlType};

/// A value of type `t`. Without a type it is read like a quoted literal; its binary form has the
/// bytes of the text.
///
/// # Errors
/// 22P02 and other codes of the type's input function, 22P03 for invalid bytes of the type, 22021
/// for text that is not UTF-8.
pub fn read_parameter(t: Option<SqlType>, format: Format, bytes: &[u8]) -> Result<ScalarValue> {
    match (t, format) {
        (None | Some(SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_)), _) => {
            Ok(ScalarValue::Utf8(Some(utf8(bytes)?.to_string())))
        }
        (Some(t), Format::Text) => from_text(t, utf8(bytes)?),
        (Some(t), Format::Binary) => from_binary(t, bytes),
    }
}

fn from_text(t: SqlType, text: &str) -> Result<ScalarValue> {
    if let SqlType::Numeric { .. } = t {
        let decimal = number::parse_decimal(text)?;
        return numeric(decimal.unscaled, decimal.scale);
    }
    ColumnBuilder::value_of(t, text)
}

fn from_binary(t: SqlType, bytes: &[u8]) -> Result<ScalarValue> {
    match (t, bytes) {
        (SqlType::SmallInt, &[a, b]) => Ok(ScalarValue::Int16(Some(i16::from_be_bytes([a, b])))),
        (SqlType::Integer, &[a, b, c, d]) => {
            Ok(ScalarValue::Int32(Some(i32::from_be_bytes([a, b, c, d]))))
        }
        (SqlType::BigInt, &[a, b, c, d, e, f, g, h]) => {
            Ok(ScalarValue::Int64(Some(i64::from_be_bytes([
                a, b, c, d, e, f, g, h,
            ]))))
        }
        // An oid, which is read as a bigint.
        (SqlType::BigInt, &[a, b, c, d]) => {
            let oid = u32::from_be_bytes([a, b, c, d]);
            Ok(ScalarValue::Int64(Some(oid.into())))
        }
        (SqlType::Numeric { .. }, bytes) => {
            let (unscaled, scale) = read_numeric(bytes)?;
            numeric(unscaled, scale.into())
        }
        (t, bytes) => {
            let mut builder = ColumnBuilder::new(t);
            builder.receive(bytes)?;
            ScalarValue::try_from_array(&builder.finish(), 0).map_err(convert)
        }
    }
}

/// A numeric with exactly its own digits.
fn numeric(unscaled: i128, scale: i32) -> Result<ScalarValue> {
    let out_of_range = || {
        Error::invalid(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            "a numeric has at most 38 digits",
        )
    };
    let (unscaled, scale) = match scale {
        _ if unscaled == 0 => (0, scale.clamp(0, 38)),
        0..=38 => (unscaled, scale),
        -38..=-1 => {
            let factor = 10i128.pow(scale.unsigned_abs());
            (unscaled.checked_mul(factor).ok_or_else(out_of_range)?, 0)
        }
        _ => return Err(out_of_range()),
    };
    if unscaled.unsigned_abs() >= 10u128.pow(38) {
        return Err(out_of_range());
    }
    Ok(ScalarValue::Decimal128(Some(unscaled), 38, scale as i8))
}
