//! JSON lines: one object per line, its keys the columns' names. A missing key is NULL; an unknown
//! key is an error, because its data would be lost. Numbers keep all their digits.

use super::lines::Block;
use super::source::{BlockParser, FileColumn, at};
use datafusion::arrow::array::ArrayRef;
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::path::{Path, PathBuf};
use strandline_base::{Error, Result, SqlState, SqlType};
use strandline_semantics::column_builder::ColumnBuilder;

/// Parses blocks of JSON lines.
pub(super) struct JsonParser {
    path: PathBuf,
    columns: Vec<FileColumn>,
}

impl JsonParser {
    /// A parser of files with `columns`.
    pub fn new(path: &Path, columns: Vec<FileColumn>) -> Self {
        Self {
            path: path.to_path_buf(),
            columns,
        }
    }

    fn push(&self, builder: &mut ColumnBuilder, sql_type: SqlType, raw: &str) -> Result<()> {
        match raw.as_bytes().first() {
            Some(b'n') => {
                builder.push_null();
                Ok(())
            }
            Some(b'"') if sql_type == SqlType::Json => builder.push(raw),
            Some(b'"') => {
                let text: String = serde_json::from_str(raw).map_err(|e| malformed(&e))?;
                builder.push(&text)
            }
            Some(b'{' | b'[')
                if !matches!(
                    sql_type,
                    SqlType::Json | SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_)
                ) =>
            {
                Err(Error::invalid(
                    SqlState::DATATYPE_MISMATCH,
                    format!("a column of type {sql_type} cannot take a JSON object or array"),
                ))
            }
            _ => builder.push(raw),
        }
    }
}

impl BlockParser for JsonParser {
    fn parse(&self, block: &Block) -> Result<(usize, Vec<ArrayRef>)> {
        let mut builders: Vec<ColumnBuilder> = self
            .columns
            .iter()
            .map(|c| ColumnBuilder::new(c.sql_type))
            .collect();
        let mut rows = 0;
        for (number, text) in (block.first_line..).zip(block.text.lines()) {
            if text.trim_ascii().is_empty() {
                continue;
            }
            let place = || format!("{}, line {number}", self.path.display());
            let values = Line { text, at: 0 }
                .values(&self.columns)
                .map_err(|e| at(e, place()))?;
            for (i, (value, column)) in values.iter().zip(&self.columns).enumerate() {
                match value {
                    None => builders[i].push_null(),
                    Some(raw) => self
                        .push(&mut builders[i], column.sql_type, raw)
                        .map_err(|e| at(e, format!("{}, column {}", place(), column.name)))?,
                }
            }
            rows += 1;
        }
        Ok((
            rows,
            builders.iter_mut().map(ColumnBuilder::finish).collect(),
        ))
    }
}

fn malformed(what: &dyn std::fmt::Display) -> Error {
    Error::invalid(
        SqlState::BAD_COPY_FILE_FORMAT,
        format!("invalid JSON: {what}"),
    )
}

/// A line and a position in it.
struct Line<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Line<'a> {
    /// The JSON text of each column's value; `None` if its key is missing.
    fn values(mut self, columns: &[FileColumn]) -> Result<Vec<Option<&'a str>>> {
        let mut values = vec![None; columns.len()];
        self.expect(b'{')?;
        if self.peek() != Some(b'}') {
            loop {
                let (key, _) = self.value::<String>()?;
                let index = columns.iter().position(|c| c.name == key).ok_or_else(|| {
                    Error::invalid(
                        SqlState::UNDEFINED_COLUMN,
                        format!("key \"{key}\" is not among the columns copied"),
                    )
                })?;
                self.expect(b':')?;
                let (_, value) = self.value::<IgnoredAny>()?;
                if values[index].replace(value).is_some() {
                    return Err(malformed(&format!("key \"{key}\" occurs twice")));
                }
                if self.peek() != Some(b',') {
                    break;
                }
                self.at += 1;
            }
        }
        self.expect(b'}')?;
        match self.peek() {
            None => Ok(values),
            Some(_) => Err(malformed(&"trailing characters after the object")),
        }
    }

    /// The next byte that is not blank.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|b| b.is_ascii_whitespace()).count();
        self.text.as_bytes().get(self.at).copied()
    }

    fn expect(&mut self, wanted: u8) -> Result<()> {
        match self.peek() {
            Some(b) if b == wanted => {
                self.at += 1;
                Ok(())
            }
            Some(_) => {
                let found: String = self.text[self.at..].chars().take(10).collect();
                Err(malformed(&format!(
                    "expected \"{}\" before \"{found}\"",
                    wanted as char
                )))
            }
            None => Err(malformed(&format!(
                "expected \"{}\" at the end",
                wanted as char
            ))),
        }
    }

    /// The next value, checked, and its JSON text.
    fn value<T: Deserialize<'a>>(&mut self) -> Result<(T, &'a str)> {
        self.peek();
        let rest = &self.text[self.at..];
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<T>();
        let value = match values.next() {
            Some(value) => value.map_err(|e| malformed(&e))?,
            None => return Err(malformed(&"a value is missing")),
        };
        let text = &rest[..values.byte_offset()];
        self.at += text.len();
        Ok((value, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Array, AsArray};
    use datafusion::arrow::datatypes::{Decimal64Type, Int64Type};

    fn parse(text: &str) -> Result<(usize, Vec<ArrayRef>)> {
        let column = |name: &str, sql_type| FileColumn {
            name: name.into(),
            sql_type,
        };
        let columns = vec![
            column("a", SqlType::BigInt),
            column("b", SqlType::Text),
            column(
                "c",
                SqlType::Numeric {
                    precision: 18,
                    scale: 3,
                },
            ),
            column("d", SqlType::Json),
        ];
        let parser = JsonParser::new(Path::new("f.json"), columns);
        parser.parse(&Block {
            text: text.into(),
            first_line: 10,
            end: 0,
        })
    }

    #[test]
    fn objects_become_rows() {
        let text = "{\"a\": 9007199254740993, \"b\": \"x\\n\\u00e4\", \"c\": 123456789012345.678, \
                    \"d\": {\"k\": [1]}}\r\n\n{\"b\": null, \"a\": \"7\"}\n{\"d\": \"s\", \"b\": 5}";
        let (rows, columns) = parse(text).unwrap();
        assert_eq!(rows, 3);
        let a = columns[0].as_primitive::<Int64Type>();
        assert_eq!(
            (a.value(0), a.value(1), a.is_null(2)),
            (9_007_199_254_740_993, 7, true)
        );
        let b: Vec<_> = columns[1].as_string_view().iter().collect();
        assert_eq!(b, [Some("x\nä"), None, Some("5")]);
        assert_eq!(
            columns[2].as_primitive::<Decimal64Type>().value(0),
            123_456_789_012_345_678
        );
        let d: Vec<_> = columns[3].as_string_view().iter().collect();
        assert_eq!(d, [Some("{\"k\": [1]}"), None, Some("\"s\"")]);
    }

    #[test]
    fn errors_name_line_and_column() {
        for (text, line, what) in [
            (
                "{\"a\": 1}\n{\"a\": \"x\"}",
                "line 11, column a",
                "invalid input syntax",
            ),
            ("{\"z\": 1}", "line 10", "key \"z\""),
            ("{\"a\": 1, \"a\": 2}", "line 10", "occurs twice"),
            ("{\"a\": 1", "line 10", "at the end"),
            ("{\"a\": }", "line 10", "expected value"),
            ("{\"a\" 1}", "line 10", "expected \":\""),
            ("{a: 1}", "line 10", "invalid JSON"),
            ("[1]", "line 10", "expected \"{\""),
            ("{\"a\": 1} x", "line 10", "trailing"),
            ("{\"a\": [1]}", "line 10, column a", "object or array"),
            ("{\"a\": 1e3}", "line 10, column a", "invalid input syntax"),
        ] {
            let e = parse(text).unwrap_err();
            assert!(e.message().contains(line), "{text}: {e}");
            assert!(e.message().contains(what), "{text}: {e}");
        }
    }
}
