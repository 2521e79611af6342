//! PostgreSQL's text format: a line per row, fields between delimiters, backslashes before special
//! characters.

use super::lines::{Block, is_escaped};
use super::options::CsvOptions;
use super::source::{BlockParser, FileColumn, at};
use datafusion::arrow::array::ArrayRef;
use std::path::{Path, PathBuf};
use strandline_base::{Error, Result, SqlState};
use strandline_semantics::column_builder::ColumnBuilder;

/// Parses blocks of text.
pub(super) struct TextParser {
    path: PathBuf,
    options: CsvOptions,
    columns: Vec<FileColumn>,
}

impl TextParser {
    /// A parser of data with `columns`.
    pub fn new(path: &Path, options: CsvOptions, columns: Vec<FileColumn>) -> Self {
        Self {
            path: path.to_path_buf(),
            options,
            columns,
        }
    }

    fn error(&self, line: u64, message: impl std::fmt::Display) -> Error {
        Error::invalid(
            SqlState::BAD_COPY_FILE_FORMAT,
            format!("{}, line {line}: {message}", self.path.display()),
        )
    }

    fn take_record(
        &self,
        builders: &mut [ColumnBuilder],
        record: &str,
        line: u64,
        scratch: &mut Vec<u8>,
    ) -> Result<()> {
        let mut rest = Some(record);
        for (column, builder) in self.columns.iter().zip(builders.iter_mut()) {
            let Some(text) = rest else {
                let message = format!("missing data for column \"{}\"", column.name);
                return Err(self.error(line, message));
            };
            let (field, after) = self.split_field(text);
            rest = after;
            if field == self.options.null {
                builder.push_null();
                continue;
            }
            let pushed = match field.contains('\\') {
                false => builder.push(field),
                true => unescape(field, scratch).and_then(|text| builder.push(text)),
            };
            pushed.map_err(|e| {
                let path = self.path.display();
                at(e, format!("{path}, line {line}, column {}", column.name))
            })?;
        }
        match rest {
            // A table without columns has empty lines.
            Some(text) if !(self.columns.is_empty() && text.is_empty()) => {
                Err(self.error(line, "extra data after last expected column"))
            }
            _ => Ok(()),
        }
    }

    /// The first field of `text`, and the rest after its delimiter.
    fn split_field<'a>(&self, text: &'a str) -> (&'a str, Option<&'a str>) {
        let bytes = text.as_bytes();
        for end in memchr::memchr_iter(self.options.delimiter, bytes) {
            if !is_escaped(bytes, end) {
                return (&text[..end], Some(&text[end + 1..]));
            }
        }
        (text, None)
    }
}

impl BlockParser for TextParser {
    fn parse(&self, block: &Block) -> Result<(usize, Vec<ArrayRef>)> {
        let columns = self.columns.iter();
        let mut builders: Vec<_> = columns.map(|c| ColumnBuilder::new(c.sql_type)).collect();
        let mut scratch = Vec::new();
        let (mut rows, mut line, mut from) = (0, block.first_line, 0);
        let bytes = block.text.as_bytes();
        while from < bytes.len() {
            let mut ends = memchr::memchr_iter(b'\n', &bytes[from..]).map(|end| from + end);
            let end = ends.find(|end| !is_escaped(&bytes[from..], end - from));
            let record = &block.text[from..end.unwrap_or(bytes.len())];
            let lines = 1 + memchr::memchr_iter(b'\n', record.as_bytes()).count() as u64;
            let record = record.strip_suffix('\r').unwrap_or(record);
            from = end.map_or(bytes.len(), |end| end + 1);
            if !(self.options.header && line == 1) {
                self.take_record(&mut builders, record, line, &mut scratch)?;
                rows += 1;
            }
            line += lines;
        }
        let finished = builders.iter_mut().map(ColumnBuilder::finish);
        Ok((rows, finished.collect()))
    }
}

/// Resolves the backslashes of a field.
fn unescape<'a>(field: &str, scratch: &'a mut Vec<u8>) -> Result<&'a str> {
    scratch.clear();
    let mut rest = field.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let Some((&escaped, after)) = rest.split_first().filter(|_| byte == b'\\') else {
            scratch.push(byte);
            continue;
        };
        rest = after;
        let (value, used) = match escaped {
            b'b' => (0x08, 0),
            b'f' => (0x0c, 0),
            b'n' => (b'\n', 0),
            b'r' => (b'\r', 0),
            b't' => (b'\t', 0),
            b'v' => (0x0b, 0),
            b'0'..=b'7' => number(escaped - b'0', rest, 8, 2),
            b'x' if rest.first().is_some_and(u8::is_ascii_hexdigit) => number(0, rest, 16, 2),
            other => (other, 0),
        };
        scratch.push(value);
        rest = &rest[used..];
    }
    strandline_semantics::wire_format::utf8(scratch)
}

/// The number of `first` and at most `most` digits of `rest`, and the count of these digits.
fn number(first: u8, rest: &[u8], radix: u32, most: usize) -> (u8, usize) {
    let digits = rest.iter().take(most);
    let digits = digits.map_while(|b| (*b as char).to_digit(radix));
    digits.fold((first, 0), |(value, used), digit| {
        (
            value.wrapping_mul(radix as u8).wrapping_add(digit as u8),
            used + 1,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::AsArray;
    use strandline_base::SqlType;

    fn parse(text: &str) -> Result<Vec<(Option<String>, Option<String>)>> {
        let column = |name: &str| FileColumn {
            name: name.into(),
            sql_type: SqlType::Text,
        };
        let options = CsvOptions::of_text();
        let parser = TextParser::new(Path::new("f"), options, vec![column("a"), column("b")]);
        let block = Block {
            text: text.into(),
            first_line: 1,
            end: text.len() as u64,
        };
        let (rows, columns) = parser.parse(&block)?;
        let texts = |i: usize| columns[i].as_string_view().iter();
        let pairs: Vec<_> = texts(0)
            .zip(texts(1))
            .map(|(a, b)| (a.map(String::from), b.map(String::from)))
            .collect();
        assert_eq!(pairs.len(), rows);
        Ok(pairs)
    }

    #[test]
    fn fields_are_read_as_postgresql_reads_them() {
        for (text, a, b) in [
            ("x\ty\n", Some("x"), Some("y")),
            ("\\N\t\n", None, Some("")),
            ("\\\\N\t\\\\\n", Some("\\N"), Some("\\")),
            ("a\\tb\tc\\\td\n", Some("a\tb"), Some("c\td")),
            ("\\101\\x42\\q\t\\n\r\n", Some("ABq"), Some("\n")),
            ("one\\\ntwo\tx", Some("one\ntwo"), Some("x")),
        ] {
            let expected = vec![(a.map(String::from), b.map(String::from))];
            assert_eq!(parse(text).expect(text), expected, "{text:?}");
        }
    }

    #[test]
    fn faults_name_their_line() {
        for (text, message) in [
            ("a\tb\nc\n", "f, line 2: missing data for column \"b\""),
            (
                "a\tb\tc\n",
                "f, line 1: extra data after last expected column",
            ),
            (
                "a\tb\na\t\\xff\n",
                "f, line 2, column b: invalid byte sequence",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message().starts_with(message), "{error}");
        }
    }
}
