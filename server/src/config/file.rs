//! The configuration file: parses TOML into names, values and lines.

use std::ops::Range;
use std::path::Path;
use strandline::{Error, Result, SqlState};
use toml::de::{DeTable, DeValue};

/// A key of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// the name, prefixed by its tables' names and dots
    pub key: String,
    /// the value in the form of SET
    pub value: String,
    /// the line, from 1
    pub line: usize,
}

/// All keys of the file at `path` with content `text`.
pub fn entries(path: &Path, text: &str) -> Result<Vec<Entry>> {
    let table = DeTable::parse(text).map_err(|e| {
        let line = e.span().map_or(1, |span| line_of(text, &span));
        wrong(path, line, e.message())
    })?;
    let mut entries = Vec::new();
    collect(path, text, "", table.get_ref(), &mut entries)?;
    Ok(entries)
}

fn collect(
    path: &Path,
    text: &str,
    prefix: &str,
    table: &DeTable<'_>,
    entries: &mut Vec<Entry>,
) -> Result<()> {
    for (key, value) in table.iter() {
        let line = line_of(text, &key.span());
        let key = format!("{prefix}{}", key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => collect(path, text, &format!("{key}."), inner, entries)?,
            value => {
                let value = text_of(value).ok_or_else(|| {
                    wrong(
                        path,
                        line,
                        &format!("\"{key}\" takes a text, a number or a boolean"),
                    )
                })?;
                entries.push(Entry { key, value, line });
            }
        }
    }
    Ok(())
}

/// A value in the form of SET; commas separate the items of a list.
fn text_of(value: &DeValue<'_>) -> Option<String> {
    Some(match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Boolean(on) => if *on { "on" } else { "off" }.to_string(),
        DeValue::Integer(number) => number.as_str().replace('_', ""),
        DeValue::Float(number) => number.as_str().replace('_', ""),
        DeValue::Array(values) => {
            let texts: Option<Vec<_>> = values.iter().map(|v| text_of(v.get_ref())).collect();
            texts?.join(", ")
        }
        DeValue::Datetime(_) | DeValue::Table(_) => return None,
    })
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = text.as_bytes().iter().take(span.start);
    1 + before.filter(|byte| **byte == b'\n').count()
}

fn wrong(path: &Path, line: usize, what: &str) -> Error {
    let place = path.display();
    Error::invalid(SqlState("F0000"), format!("{place}:{line}: {what}"))
}
