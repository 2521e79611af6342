//! JSON operators and functions on json kept as text. A part of a document keeps its text: numbers
//! are not parsed and written again.

use super::json_value;
use super::overload::Parameter::{Any, Bigint, Text};
use super::overload::{Call, Function, Overload};
use crate::error::{invalid, raise};
use crate::text::array::{self, Item};
use crate::text::binary::invalid_json;
use crate::types::sql_name;
use datafusion::arrow::array::{Array, ArrayRef, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Int32Type};
use datafusion::common::Result;
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// The functions with a name.
pub fn functions() -> Vec<Function> {
    vec![
        Function::new(
            "json_typeof",
            vec![Overload::new(&[Text], SqlType::Text, type_of)],
        ),
        Function::new(
            "json_array_length",
            vec![Overload::new(&[Text], SqlType::Integer, array_length)],
        ),
        Function::new(
            "json_extract_path",
            vec![Overload::variadic(&[Text, Text], SqlType::Json, |c| {
                extract(c, false)
            })],
        ),
        Function::new(
            "json_extract_path_text",
            vec![Overload::variadic(&[Text, Text], SqlType::Text, |c| {
                extract(c, true)
            })],
        ),
        Function::new(
            "to_json",
            vec![Overload::new(&[Any], SqlType::Json, to_json)],
        ),
        Function::new(
            "row_to_json",
            vec![Overload::new(&[Any], SqlType::Json, |c| {
                only_json(c, |t| matches!(t, DataType::Struct(_)), "row_to_json")
            })],
        ),
        Function::new(
            "array_to_json",
            vec![Overload::new(&[Any], SqlType::Json, |c| {
                only_json(c, |t| matches!(t, DataType::List(_)), "array_to_json")
            })],
        ),
        Function::new(
            "json_build_object",
            vec![
                Overload::new(&[], SqlType::Json, build_object),
                Overload::variadic(&[Any], SqlType::Json, build_object),
            ],
        )
        .not_strict(),
        Function::new(
            "json_build_array",
            vec![
                Overload::new(&[], SqlType::Json, build_array),
                Overload::variadic(&[Any], SqlType::Json, build_array),
            ],
        )
        .not_strict(),
    ]
}

/// Keeps the json type where the Arrow type does not show it.
pub fn as_json() -> Function {
    let body = |c: &Call| Ok(c.arrays[0].clone());
    Function::new("as_json", vec![Overload::new(&[Text], SqlType::Json, body)])
}

/// `->`
pub fn get() -> Function {
    Function::new(
        "json_get",
        vec![
            Overload::new(&[Text, Text], SqlType::Json, |c| field(c, false)),
            Overload::new(&[Text, Bigint], SqlType::Json, |c| element(c, false)),
        ],
    )
}

/// `->>`
pub fn get_text() -> Function {
    Function::new(
        "json_get_text",
        vec![
            Overload::new(&[Text, Text], SqlType::Text, |c| field(c, true)),
            Overload::new(&[Text, Bigint], SqlType::Text, |c| element(c, true)),
        ],
    )
}

/// `#>` and `#>>`; the path is an array's text form, `{a,0,b}`.
pub fn path(as_text: bool) -> Function {
    if as_text {
        return Function::new(
            "json_path_text",
            vec![Overload::new(&[Text, Text], SqlType::Text, |c| {
                by_path(c, true)
            })],
        );
    }
    Function::new(
        "json_path",
        vec![Overload::new(&[Text, Text], SqlType::Json, |c| {
            by_path(c, false)
        })],
    )
}

/// One level of a document; its parts are still text.
enum Level<'a> {
    Object(Vec<(String, &'a str)>),
    Array(Vec<&'a str>),
    String(String),
    Number,
    Boolean,
    Null,
}

/// Checks that `text` is one JSON value and opens its outermost level.
fn open(text: &str) -> Result<Level<'_>> {
    let fault = |e: serde_json::Error| raise(invalid_json(&e));
    serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(fault)?;
    let text = text.trim_ascii();
    Ok(match text.as_bytes().first() {
        Some(b'{') => {
            let mut fields = Vec::new();
            for member in members(text) {
                let key = &member[..value_end(member)];
                let value = member[key.len()..].trim_ascii_start();
                let value = value.strip_prefix(':').unwrap_or(value).trim_ascii_start();
                fields.push((serde_json::from_str(key).map_err(fault)?, value));
            }
            Level::Object(fields)
        }
        Some(b'[') => Level::Array(members(text)),
        Some(b'"') => Level::String(serde_json::from_str(text).map_err(fault)?),
        Some(b'n') => Level::Null,
        Some(b't' | b'f') => Level::Boolean,
        _ => Level::Number,
    })
}

/// The comma-separated parts between a valid value's outermost brackets.
fn members(text: &str) -> Vec<&str> {
    let mut rest = text[1..text.len() - 1].trim_ascii();
    let mut members = Vec::new();
    while !rest.is_empty() {
        let mut end = value_end(rest);
        while rest.as_bytes().get(end).is_some_and(|b| *b != b',') {
            // Blanks, or the colon and the value of an object's member.
            end += if matches!(rest.as_bytes()[end], b':' | b' ' | b'\t' | b'\n' | b'\r') {
                1
            } else {
                value_end(&rest[end..])
            };
        }
        members.push(rest[..end].trim_ascii());
        rest = rest.get(end + 1..).unwrap_or_default().trim_ascii();
    }
    members
}

/// The end of the value at the start of a valid text.
fn value_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut in_string, mut at) = (0, false, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if in_string => at += 1,
            b'"' => {
                in_string = !in_string;
                if !in_string && depth == 0 {
                    return at + 1;
                }
            }
            _ if in_string => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    bytes.len()
}

/// The last field with the name.
fn field_of<'a>(fields: &[(String, &'a str)], key: &str) -> Option<&'a str> {
    fields
        .iter()
        .rev()
        .find(|(name, _)| name == key)
        .map(|(_, value)| *value)
}

/// A part in the form of `->` or `->>`.
fn shown(part: Option<&str>, as_text: bool) -> Result<Option<String>> {
    let Some(part) = part else { return Ok(None) };
    if !as_text {
        return Ok(Some(part.to_string()));
    }
    Ok(match open(part)? {
        Level::Null => None,
        Level::String(text) => Some(text),
        _ => Some(part.to_string()),
    })
}

/// The element at an index from the front; negative: from the end.
fn at<'a>(array: &[&'a str], index: i64) -> Option<&'a str> {
    let index = if index < 0 {
        index + array.len() as i64
    } else {
        index
    };
    array.get(usize::try_from(index).ok()?).copied()
}

fn field(call: &Call, as_text: bool) -> Result<ArrayRef> {
    call.map_text(|row| match open(call.text(0).value(row))? {
        Level::Object(fields) => shown(field_of(&fields, call.text(1).value(row)), as_text),
        _ => Ok(None),
    })
}

fn element(call: &Call, as_text: bool) -> Result<ArrayRef> {
    call.map_text(|row| match open(call.text(0).value(row))? {
        Level::Array(array) => shown(at(&array, call.bigint(1).value(row)), as_text),
        _ => Ok(None),
    })
}

/// The part at the end of a path: fields of objects and, by number, elements of arrays.
fn follow<'a>(text: &'a str, keys: &[&str]) -> Result<Option<&'a str>> {
    let mut part = text;
    for key in keys {
        let next = match open(part)? {
            Level::Object(fields) => field_of(&fields, key),
            Level::Array(array) => key.parse().ok().and_then(|index| at(&array, index)),
            _ => None,
        };
        match next {
            Some(found) => part = found,
            None => return Ok(None),
        }
    }
    Ok(Some(part))
}

fn by_path(call: &Call, as_text: bool) -> Result<ArrayRef> {
    call.map_text(|row| {
        let keys = array::items(call.text(1).value(row)).map_err(raise)?;
        let keys: Option<Vec<&str>> = keys
            .iter()
            .map(|key| match key {
                Item::Text(key) => Some(key.as_str()),
                _ => None,
            })
            .collect();
        let Some(keys) = keys else { return Ok(None) };
        shown(follow(call.text(0).value(row), &keys)?, as_text)
    })
}

fn extract(call: &Call, as_text: bool) -> Result<ArrayRef> {
    call.map_text(|row| {
        let keys: Vec<&str> = (1..call.arrays.len())
            .map(|i| call.text(i).value(row))
            .collect();
        shown(follow(call.text(0).value(row), &keys)?, as_text)
    })
}

fn type_of(call: &Call) -> Result<ArrayRef> {
    call.map_text(|row| {
        let name = match open(call.text(0).value(row))? {
            Level::Null => "null",
            Level::Boolean => "boolean",
            Level::Number => "number",
            Level::String(_) => "string",
            Level::Array(_) => "array",
            Level::Object(_) => "object",
        };
        Ok(Some(name.to_string()))
    })
}

fn array_length(call: &Call) -> Result<ArrayRef> {
    call.map::<Int32Type>(|row| {
        let what = match open(call.text(0).value(row))? {
            Level::Array(array) => return Ok(Some(array.len() as i32)),
            Level::Object(_) => "non-array",
            _ => "scalar",
        };
        Err(invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("cannot get array length of a {what}"),
        ))
    })
}

/// The argument's value as JSON text.
fn json_text(call: &Call, argument: usize, row: usize) -> Result<String> {
    let mut text = String::new();
    json_value::write(
        &mut text,
        &call.arrays[argument],
        &call.fields[argument],
        row,
    )?;
    Ok(text)
}

/// `to_json` for rows only, or for arrays only.
fn only_json(call: &Call, wanted: fn(&DataType) -> bool, name: &str) -> Result<ArrayRef> {
    let data_type = call.arrays[0].data_type();
    if !wanted(data_type) && !data_type.is_null() {
        let message = format!("function {name}({}) does not exist", sql_name(data_type));
        return Err(invalid(SqlState::UNDEFINED_FUNCTION, message));
    }
    to_json(call)
}

fn to_json(call: &Call) -> Result<ArrayRef> {
    call.map_text(|row| Ok(Some(json_text(call, 0, row)?)))
}

fn build_array(call: &Call) -> Result<ArrayRef> {
    every_row(call, |row| {
        let values = (0..call.arrays.len()).map(|i| json_text(call, i, row));
        Ok(format!(
            "[{}]",
            values.collect::<Result<Vec<_>>>()?.join(", ")
        ))
    })
}

fn build_object(call: &Call) -> Result<ArrayRef> {
    let fault = |message: &str| invalid(SqlState::INVALID_PARAMETER_VALUE, message);
    if !call.arrays.len().is_multiple_of(2) {
        return Err(fault("argument list must have even number of elements"));
    }
    every_row(call, |row| {
        let mut fields = Vec::with_capacity(call.arrays.len() / 2);
        for i in (0..call.arrays.len()).step_by(2) {
            if call.arrays[i].is_null(row) || call.arrays[i].data_type().is_null() {
                return Err(fault("null value not allowed for object key"));
            }
            let key = json_text(call, i, row)?;
            let quoted = if key.starts_with('"') {
                key
            } else {
                format!("\"{key}\"")
            };
            fields.push(format!("{quoted} : {}", json_text(call, i + 1, row)?));
        }
        Ok(format!("{{{}}}", fields.join(", ")))
    })
}

/// A text for every row, including rows with NULL arguments.
fn every_row(call: &Call, f: impl Fn(usize) -> Result<String>) -> Result<ArrayRef> {
    let values = (0..call.rows)
        .map(|row| Ok(Some(f(row)?)))
        .collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(values.into_iter().collect::<StringViewArray>()))
}
