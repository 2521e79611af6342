//! Functions on text.

use super::bits::encoded_length;
use super::overload::Parameter::{Any, Bigint, Bytea, Integer, Text};
use super::overload::{Call, Function, Overload};
use crate::error::invalid;
use crate::text::{ValueWriter, with_backslashes};
use datafusion::arrow::array::{Array, ArrayRef, AsArray, StringViewArray, StringViewBuilder};
use datafusion::arrow::datatypes::{DataType, Int16Type, Int32Type, Int64Type};
use datafusion::common::{Result, internal_datafusion_err};
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// invalid_regular_expression
const BAD_PATTERN: SqlState = SqlState("2201B");

/// program_limit_exceeded
const PROGRAM_LIMIT: SqlState = SqlState("54000");

/// The functions of this file.
pub fn functions() -> Vec<Function> {
    let text = SqlType::Text;
    vec![
        Function::new(
            "concat",
            vec![Overload::variadic(&[Any], text, |c| concat(c, 0))],
        )
        .not_strict(),
        Function::new(
            "concat_ws",
            vec![Overload::variadic(&[Text, Any], text, |c| concat(c, 1))],
        )
        .not_strict(),
        Function::new(
            "similar_to",
            vec![Overload::new(&[Text, Text], SqlType::Boolean, |c| {
                similar_to(c, Some('\\'))
            })],
        ),
        Function::new(
            "like_escape",
            vec![Overload::new(&[Text, Text], SqlType::Text, |c| {
                c.map_text(|row| {
                    let escape = c.text(1).value(row).chars().next();
                    Ok(Some(with_backslashes(c.text(0).value(row), escape)))
                })
            })],
        ),
        Function::new("to_hex", vec![Overload::new(&[Integer], text, to_hex)]),
        trim_blanks(),
    ]
    .into_iter()
    .chain(lengths())
    .chain(casing())
    .chain(quoting())
    .chain(lengthening())
    .collect()
}

/// Lengths in characters, bytes and bits.
fn lengths() -> [Function; 3] {
    [
        Function::new(
            "length",
            vec![
                Overload::new(&[Text], SqlType::Integer, |c| {
                    c.map::<Int32Type>(|row| Ok(Some(c.text(0).value(row).chars().count() as i32)))
                }),
                Overload::new(&[Bytea], SqlType::Integer, |c| {
                    let bytes = c.arrays[0].as_binary_view();
                    c.map::<Int32Type>(|row| Ok(Some(bytes.value(row).len() as i32)))
                }),
                Overload::new(&[Bytea, Text], SqlType::Integer, |c| {
                    c.map::<Int32Type>(|row| encoded_length(c, row).map(Some))
                }),
            ],
        )
        .also(&["char_length", "character_length"]),
        Function::new(
            "octet_length",
            vec![
                Overload::new(&[Text], SqlType::Integer, |c| {
                    c.map::<Int32Type>(|row| Ok(Some(c.text(0).value(row).len() as i32)))
                }),
                Overload::new(&[Bytea], SqlType::Integer, |c| {
                    let bytes = c.arrays[0].as_binary_view();
                    c.map::<Int32Type>(|row| Ok(Some(bytes.value(row).len() as i32)))
                }),
            ],
        ),
        Function::new(
            "bit_length",
            vec![
                Overload::new(&[Text], SqlType::Integer, |c| {
                    c.map::<Int32Type>(|row| Ok(Some(c.text(0).value(row).len() as i32 * 8)))
                }),
                Overload::new(&[Bytea], SqlType::Integer, |c| {
                    let bytes = c.arrays[0].as_binary_view();
                    c.map::<Int32Type>(|row| Ok(Some(bytes.value(row).len() as i32 * 8)))
                }),
            ],
        ),
    ]
}

/// Functions between capital and small letters.
fn casing() -> [Function; 2] {
    let text = SqlType::Text;
    [
        Function::new(
            "upper",
            vec![Overload::new(&[Text], text, |c| {
                cased(c, str::to_ascii_uppercase, |letter| {
                    single(letter.to_uppercase(), letter)
                })
            })],
        ),
        Function::new(
            "lower",
            vec![Overload::new(&[Text], text, |c| {
                cased(c, str::to_ascii_lowercase, |letter| {
                    single(letter.to_lowercase(), letter)
                })
            })],
        ),
    ]
}

/// Converts a text letter by letter to the other case.
fn cased(call: &Call, ascii: fn(&str) -> String, letter: fn(char) -> char) -> Result<ArrayRef> {
    let mut builder = StringViewBuilder::with_capacity(call.rows);
    for text in call.text(0).iter() {
        builder.append_option(text.map(|text| match text.is_ascii() {
            true => ascii(text),
            false => text.chars().map(letter).collect(),
        }));
    }
    Ok(Arc::new(builder.finish()))
}

/// A letter whose other case has several letters stays unchanged, as in PostgreSQL: `ß`.
fn single(mut cased: impl Iterator<Item = char>, letter: char) -> char {
    match (cased.next(), cased.next()) {
        (Some(cased), None) => cased,
        _ => letter,
    }
}

/// Functions that write values as SQL text.
fn quoting() -> [Function; 3] {
    let text = SqlType::Text;
    [
        Function::new(
            "quote_ident",
            vec![Overload::new(&[Text], text, |c| {
                c.map_text(|row| Ok(Some(quoted_identifier(c.text(0).value(row)))))
            })],
        ),
        Function::new(
            "quote_literal",
            vec![Overload::new(&[Any], text, |c| {
                let values = write_all(c, 0)?;
                c.map_text(|row| Ok(Some(quoted_literal(values.value(row)))))
            })],
        ),
        Function::new(
            "quote_nullable",
            vec![Overload::new(&[Any], text, |c| {
                let values = write_all(c, 0)?;
                let quoted = values
                    .iter()
                    .map(|value| Some(value.map_or_else(|| "NULL".to_string(), quoted_literal)));
                Ok(Arc::new(quoted.collect::<StringViewArray>()))
            })],
        )
        .not_strict(),
    ]
}

/// Functions whose results may be much longer than their arguments, and `chr`.
fn lengthening() -> [Function; 4] {
    let text = SqlType::Text;
    [
        Function::new("repeat", vec![Overload::new(&[Text, Bigint], text, repeat)]),
        pad("lpad", |c| padded(c, true)),
        pad("rpad", |c| padded(c, false)),
        Function::new(
            "chr",
            vec![Overload::new(&[Bigint], text, |c| {
                c.map_text(|row| character(c.bigint(0).value(row)).map(|c| Some(c.to_string())))
            })],
        ),
    ]
}

/// The most bytes of the result of one call of a lengthening function, as in PostgreSQL.
pub(super) const MAX_BYTES: usize = 1 << 30;

/// `repeat(text, times)`; empty for zero or fewer times.
fn repeat(call: &Call) -> Result<ArrayRef> {
    let times = call.bigint(1);
    let mut total = 0;
    call.map_text(|row| {
        let text = call.text(0).value(row);
        let times = usize::try_from(times.value(row)).unwrap_or(0);
        reserve(&mut total, text.len().saturating_mul(times))?;
        Ok(Some(text.repeat(times)))
    })
}

/// Adds `bytes` to the size of a call's result.
fn reserve(total: &mut usize, bytes: usize) -> Result<()> {
    *total = total.saturating_add(bytes);
    if *total < MAX_BYTES {
        return Ok(());
    }
    Err(invalid(PROGRAM_LIMIT, "requested length too large"))
}

fn pad(name: &'static str, body: fn(&Call) -> Result<ArrayRef>) -> Function {
    let text = SqlType::Text;
    Function::new(
        name,
        vec![
            Overload::new(&[Text, Bigint], text, body),
            Overload::new(&[Text, Bigint, Text], text, body),
        ],
    )
}

/// `lpad(text, length [, fill])`, `rpad`: the text cut or filled to a number of characters.
fn padded(call: &Call, left: bool) -> Result<ArrayRef> {
    let lengths = call.bigint(1);
    let mut total = 0;
    call.map_text(|row| {
        let text = call.text(0).value(row);
        let fill = if call.arrays.len() > 2 {
            call.text(2).value(row)
        } else {
            " "
        };
        let length = usize::try_from(lengths.value(row)).unwrap_or(0);
        let missing = length.saturating_sub(text.chars().count());
        if missing == 0 || fill.is_empty() {
            return Ok(Some(text.chars().take(length).collect()));
        }
        reserve(&mut total, missing.saturating_add(text.len()))?;
        let filling: String = fill.chars().cycle().take(missing).collect();
        Ok(Some(if left {
            filling + text
        } else {
            text.to_string() + &filling
        }))
    })
}

/// `chr(code)`
fn character(code: i64) -> Result<char> {
    let found = u32::try_from(code).ok().and_then(char::from_u32);
    match found {
        Some('\0') => Err(invalid(PROGRAM_LIMIT, "null character not permitted")),
        Some(character) => Ok(character),
        None => Err(invalid(
            PROGRAM_LIMIT,
            format!("requested character not valid for encoding: {code}"),
        )),
    }
}

pub(super) const TRIM_BLANKS: &str = "trim_blanks";

/// char(n) → text.
pub fn trim_blanks() -> Function {
    Function::new(
        TRIM_BLANKS,
        vec![Overload::new(&[Text], SqlType::Text, |c| {
            let mut builder = StringViewBuilder::with_capacity(c.rows);
            for value in c.text(0).iter() {
                builder.append_option(value.map(|v| v.trim_end_matches(' ')));
            }
            Ok(Arc::new(builder.finish()))
        })],
    )
}

/// An argument's values in the form of their types' output functions.
pub(super) fn write_all(call: &Call, argument: usize) -> Result<StringViewArray> {
    let array = &call.arrays[argument];
    let writer = ValueWriter::new(array)?;
    let mut builder = StringViewBuilder::with_capacity(call.rows);
    let mut buffer = String::new();
    for row in 0..call.rows {
        if array.is_null(row) || array.data_type().is_null() {
            builder.append_null();
            continue;
        }
        buffer.clear();
        writer
            .write(&mut buffer, row, ["f", "t"])
            .map_err(|_| internal_datafusion_err!("formatting failed"))?;
        builder.append_value(&buffer);
    }
    Ok(builder.finish())
}

/// Joins the arguments that are not NULL. With `skip` = 1 the first one is the separator, and a
/// NULL separator makes the result NULL.
fn concat(call: &Call, skip: usize) -> Result<ArrayRef> {
    let parts = (skip..call.arrays.len())
        .map(|i| write_all(call, i))
        .collect::<Result<Vec<_>>>()?;
    let mut builder = StringViewBuilder::with_capacity(call.rows);
    let mut buffer = String::new();
    for row in 0..call.rows {
        if skip == 1 && call.arrays[0].is_null(row) {
            builder.append_null();
            continue;
        }
        let separator = if skip == 1 {
            call.text(0).value(row)
        } else {
            ""
        };
        buffer.clear();
        for (n, part) in parts.iter().filter(|p| p.is_valid(row)).enumerate() {
            if n > 0 {
                buffer.push_str(separator);
            }
            buffer.push_str(part.value(row));
        }
        builder.append_value(&buffer);
    }
    Ok(Arc::new(builder.finish()))
}

fn to_hex(call: &Call) -> Result<ArrayRef> {
    let array = &call.arrays[0];
    call.map_text(|row| {
        Ok(Some(match array.data_type() {
            DataType::Int16 => format!(
                "{:x}",
                i32::from(array.as_primitive::<Int16Type>().value(row))
            ),
            DataType::Int32 => format!("{:x}", array.as_primitive::<Int32Type>().value(row)),
            _ => format!("{:x}", array.as_primitive::<Int64Type>().value(row)),
        }))
    })
}

/// Whether a name must be quoted: PostgreSQL's keywords, except unreserved ones.
fn is_keyword(name: &str) -> bool {
    const KEYWORDS: &str = "all analyse analyze and any array as asc asymmetric authorization \
        between bigint binary bit boolean both case cast char character check coalesce collate \
        collation column concurrently constraint create cross current_catalog current_date \
        current_role current_schema current_time current_timestamp current_user dec decimal \
        default deferrable desc distinct do else end except exists extract false fetch float for \
        foreign freeze from full grant greatest group grouping having ilike in initially inner \
        inout int integer intersect interval into is isnull join lateral leading least left like \
        limit localtime localtimestamp national natural nchar none normalize not notnull null \
        nullif numeric offset on only or order out outer overlaps overlay placing position \
        precision primary real references returning right row select session_user setof similar \
        smallint some substring symmetric table tablesample then time timestamp to trailing treat \
        trim true union unique user using values varchar variadic verbose when where window with \
        xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi \
        xmlroot xmlserialize xmltable";
    KEYWORDS.split_ascii_whitespace().any(|word| word == name)
}

pub(super) fn quoted_identifier(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && !is_keyword(name);
    if plain {
        name.to_string()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

pub(super) fn quoted_literal(value: &str) -> String {
    let doubled = value.replace('\'', "''");
    if value.contains('\\') {
        return format!("E'{}'", doubled.replace('\\', "\\\\"));
    }
    format!("'{doubled}'")
}

/// `text SIMILAR TO pattern`: the pattern must match the whole text.
fn similar_to(call: &Call, escape: Option<char>) -> Result<ArrayRef> {
    let mut last: Option<(String, regex::Regex)> = None;
    let mut matches = Vec::with_capacity(call.rows);
    for row in 0..call.rows {
        if call.any_null(row) {
            matches.push(None);
            continue;
        }
        let pattern = call.text(1).value(row);
        let compiled = match last.take() {
            Some((text, compiled)) if text == pattern => compiled,
            _ => compile_similar(pattern, escape)?,
        };
        matches.push(Some(compiled.is_match(call.text(0).value(row))));
        last = Some((pattern.to_string(), compiled));
    }
    Ok(Arc::new(datafusion::arrow::array::BooleanArray::from(
        matches,
    )))
}

/// Translates an SQL regular expression to the library's syntax: `%` and `_` are wildcards, `| * +
/// ? {} () []` keep their meaning, all other characters are literal.
fn compile_similar(pattern: &str, escape: Option<char>) -> Result<regex::Regex> {
    let mut translated = String::from("(?s)^(?:");
    let mut chars = pattern.chars();
    let mut in_brackets = false;
    while let Some(c) = chars.next() {
        match c {
            c if Some(c) == escape => match chars.next() {
                Some(literal) => translated.push_str(&regex::escape(&literal.to_string())),
                None => break,
            },
            '[' => {
                in_brackets = true;
                translated.push(c);
            }
            ']' => {
                in_brackets = false;
                translated.push(c);
            }
            c if in_brackets => translated.push(c),
            '%' => translated.push_str(".*"),
            '_' => translated.push('.'),
            '|' | '*' | '+' | '?' | '{' | '}' | '(' | ')' => translated.push(c),
            other => translated.push_str(&regex::escape(&other.to_string())),
        }
    }
    translated.push_str(")$");
    regex::Regex::new(&translated).map_err(|e| {
        invalid(
            BAD_PATTERN,
            format!("invalid regular expression: \"{pattern}\": {e}"),
        )
    })
}
