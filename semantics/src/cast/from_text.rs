//! Text → every other type, through the types' input functions.

use super::Mode;
use crate::decimal::Shape;
use crate::error::raise;
use crate::text::{binary, geometry, interval, number, parse_boolean, temporal};
use crate::types::arrow_type;
use datafusion::arrow::array::{
    ArrayRef, ArrowPrimitiveType, BinaryViewBuilder, BooleanBuilder, FixedSizeBinaryBuilder,
    PrimitiveBuilder, StringViewArray, StringViewBuilder,
};
use datafusion::arrow::datatypes::{
    Date32Type, Decimal64Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use datafusion::common::Result;
use std::sync::Arc;
use strandline_base::{Error, SqlState, SqlType, Value};
use strandline_column::types::array_of;

type Input<'a> = &'a StringViewArray;

/// Parses every value as `to`.
pub fn cast_text(text: Input, to: SqlType, mode: Mode) -> Result<ArrayRef> {
    match to {
        SqlType::Boolean => {
            let mut builder = BooleanBuilder::with_capacity(text.len_hint());
            for value in text.iter() {
                builder.append_option(value.map(parse_boolean).transpose().map_err(raise)?);
            }
            Ok(Arc::new(builder.finish()))
        }
        SqlType::SmallInt => primitive::<Int16Type>(text, to, |s| {
            integer(s, "smallint", i16::MIN.into(), i16::MAX.into()).map(|v| v as i16)
        }),
        SqlType::Integer => primitive::<Int32Type>(text, to, |s| {
            integer(s, "integer", i32::MIN.into(), i32::MAX.into()).map(|v| v as i32)
        }),
        SqlType::BigInt => {
            primitive::<Int64Type>(text, to, |s| integer(s, "bigint", i64::MIN, i64::MAX))
        }
        SqlType::Real => primitive::<Float32Type>(text, to, number::parse_real),
        SqlType::Double => primitive::<Float64Type>(text, to, number::parse_double),
        SqlType::Numeric { precision, scale } => numeric(text, to, Shape::new(precision, scale)),
        SqlType::Date => primitive::<Date32Type>(text, to, temporal::parse_date),
        SqlType::Time => primitive::<Time64MicrosecondType>(text, to, temporal::parse_time),
        SqlType::Timestamp => {
            primitive::<TimestampMicrosecondType>(text, to, temporal::parse_timestamp)
        }
        SqlType::TimestampTz => {
            primitive::<TimestampMicrosecondType>(text, to, temporal::parse_timestamptz)
        }
        SqlType::Interval => primitive::<IntervalMonthDayNanoType>(text, to, |s| {
            let parsed = interval::parse_interval(s)?;
            Ok(IntervalMonthDayNano::new(
                parsed.months,
                parsed.days,
                parsed.nanos,
            ))
        }),
        SqlType::Text => Ok(Arc::new(text.clone())),
        SqlType::Varchar(n) => bounded(text, n, false, mode),
        SqlType::Char(n) => bounded(text, n, true, mode),
        SqlType::Json => {
            text.iter()
                .flatten()
                .try_for_each(binary::check_json)
                .map_err(raise)?;
            Ok(Arc::new(text.clone()))
        }
        SqlType::Bytea => {
            let mut builder = BinaryViewBuilder::new();
            for value in text.iter() {
                builder.append_option(value.map(binary::parse_bytea).transpose().map_err(raise)?);
            }
            Ok(Arc::new(builder.finish()))
        }
        SqlType::Uuid => {
            let mut builder = FixedSizeBinaryBuilder::with_capacity(text.len_hint(), 16);
            for value in text.iter() {
                match value.map(binary::parse_uuid).transpose().map_err(raise)? {
                    Some(bytes) => builder.append_value(bytes)?,
                    None => builder.append_null(),
                }
            }
            Ok(Arc::new(builder.finish()))
        }
        SqlType::Point => values(text, to, |s| geometry::parse_point(s).map(Value::Point)),
        SqlType::Box => values(text, to, |s| geometry::parse_box(s).map(Value::Box)),
    }
}

trait LengthHint {
    fn len_hint(&self) -> usize;
}

impl LengthHint for StringViewArray {
    fn len_hint(&self) -> usize {
        datafusion::arrow::array::Array::len(self)
    }
}

fn integer(text: &str, name: &str, least: i64, most: i64) -> Result<i64, Error> {
    number::parse_integer(text, name, least, most)
}

fn primitive<P: ArrowPrimitiveType>(
    text: Input,
    to: SqlType,
    parse: impl Fn(&str) -> Result<P::Native, Error>,
) -> Result<ArrayRef> {
    let builder = PrimitiveBuilder::<P>::with_capacity(text.len_hint());
    let mut builder = builder.with_data_type(arrow_type(to));
    for value in text.iter() {
        builder.append_option(value.map(&parse).transpose().map_err(raise)?);
    }
    Ok(Arc::new(builder.finish()))
}

fn values(
    text: Input,
    to: SqlType,
    parse: impl Fn(&str) -> Result<Value, Error>,
) -> Result<ArrayRef> {
    let parsed = text
        .iter()
        .map(|value| value.map_or(Ok(Value::Null), &parse));
    let parsed = parsed.collect::<Result<Vec<_>, Error>>().map_err(raise)?;
    array_of(to, &parsed).map_err(raise)
}

fn numeric(text: Input, to: SqlType, shape: Shape) -> Result<ArrayRef> {
    let parse = |s: &str| number::parse_numeric(s, shape);
    if shape.is_narrow() {
        primitive::<Decimal64Type>(text, to, |s| parse(s).map(|v| v as i64))
    } else {
        primitive::<Decimal128Type>(text, to, parse)
    }
}

/// `text` within `n` characters, padded with blanks to `n` if `padded`.
fn bounded(text: Input, n: u32, padded: bool, mode: Mode) -> Result<ArrayRef> {
    let n = n as usize;
    let mut builder = StringViewBuilder::with_capacity(text.len_hint());
    let mut buffer = String::new();
    for value in text.iter() {
        let Some(value) = value else {
            builder.append_null();
            continue;
        };
        let kept = within(value, n, padded, mode).map_err(raise)?;
        let characters = if padded { kept.chars().count() } else { n };
        if characters >= n {
            builder.append_value(kept);
            continue;
        }
        buffer.clear();
        buffer.push_str(kept);
        buffer.extend(std::iter::repeat_n(' ', n - characters));
        builder.append_value(&buffer);
    }
    Ok(Arc::new(builder.finish()))
}

/// The first `n` characters; in an assignment only blanks may be lost.
fn within(value: &str, n: usize, padded: bool, mode: Mode) -> Result<&str, Error> {
    if value.len() <= n {
        return Ok(value);
    }
    let Some((end, _)) = value.char_indices().nth(n) else {
        return Ok(value);
    };
    let (kept, lost) = value.split_at(end);
    if mode == Mode::Assignment && lost.bytes().any(|b| b != b' ') {
        let name = if padded {
            "character"
        } else {
            "character varying"
        };
        return Err(Error::invalid(
            SqlState::STRING_DATA_RIGHT_TRUNCATION,
            format!("value too long for type {name}({n})"),
        ));
    }
    Ok(kept)
}
