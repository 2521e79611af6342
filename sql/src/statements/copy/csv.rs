//! CSV as PostgreSQL reads it.
//!
//! An unquoted field equal to the NULL string (by default the empty one) is NULL, a quoted one is
//! text: `,,` is NULL, `,"",` an empty text. Other CSV readers, including Arrow's, do not
//! distinguish them, so this reader is our own. A quote may open and close anywhere in a field. A
//! line has exactly one field per column.

use super::lines::{Block, Quoting};
use super::options::CsvOptions;
use super::source::{BlockParser, FileColumn, at};
use datafusion::arrow::array::ArrayRef;
use std::path::{Path, PathBuf};
use strandline_base::{Error, Result, SqlState};
use strandline_semantics::column_builder::ColumnBuilder;

/// Parses blocks of CSV.
pub(super) struct CsvParser {
    path: PathBuf,
    options: CsvOptions,
    columns: Vec<FileColumn>,
    null_rules: Vec<NullRule>,
}

/// The condition under which a field equal to the NULL string is NULL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NullRule {
    Unquoted,
    Never,
    Always,
}

impl CsvParser {
    /// A parser of files with `columns`; 42703 if an option names a column that is not among them.
    pub fn new(path: &Path, options: CsvOptions, columns: Vec<FileColumn>) -> Result<Self> {
        for name in options.force_null.iter().chain(&options.force_not_null) {
            if !columns.iter().any(|c| c.name == *name) {
                return Err(Error::invalid(
                    SqlState::UNDEFINED_COLUMN,
                    format!("column \"{name}\" of FORCE_NULL or FORCE_NOT_NULL is not copied"),
                ));
            }
        }
        let rule = |column: &FileColumn| {
            if options.force_not_null.contains(&column.name) {
                NullRule::Never
            } else if options.force_null.contains(&column.name) {
                NullRule::Always
            } else {
                NullRule::Unquoted
            }
        };
        let null_rules = columns.iter().map(rule).collect();
        Ok(Self {
            path: path.to_path_buf(),
            options,
            columns,
            null_rules,
        })
    }

    /// The quoting that hides line ends in records.
    pub fn quoting(&self) -> Quoting {
        Quoting {
            quote: self.options.quote,
            escape: self.options.escape,
        }
    }

    fn error(&self, line: u64, message: impl std::fmt::Display) -> Error {
        Error::invalid(
            SqlState::BAD_COPY_FILE_FORMAT,
            format!("{}, line {line}: {message}", self.path.display()),
        )
    }

    /// Appends a field to its column.
    fn take_field(
        &self,
        builders: &mut [ColumnBuilder],
        index: usize,
        field: &Field<'_>,
        line: u64,
    ) -> Result<()> {
        let Some(builder) = builders.get_mut(index) else {
            return Err(self
                .error(line, "extra data after last expected column")
                .with_detail(format!("{} columns are expected.", self.columns.len())));
        };
        let can_be_null = match self.null_rules[index] {
            NullRule::Unquoted => !field.quoted,
            NullRule::Never => false,
            NullRule::Always => true,
        };
        if can_be_null && field.text == self.options.null {
            builder.push_null();
            return Ok(());
        }
        builder.push(field.text).map_err(|e| {
            at(
                e,
                format!(
                    "{}, line {line}, column {}",
                    self.path.display(),
                    self.columns[index].name
                ),
            )
        })
    }
}

impl BlockParser for CsvParser {
    fn parse(&self, block: &Block) -> Result<(usize, Vec<ArrayRef>)> {
        let mut builders: Vec<ColumnBuilder> = self
            .columns
            .iter()
            .map(|c| ColumnBuilder::new(c.sql_type))
            .collect();
        let mut reader = FieldReader::new(&block.text, &self.options);
        let mut line = block.first_line;
        let mut rows = 0;
        if self.options.header && block.first_line == 1 {
            while !reader.next().map_err(|m| self.error(line, m))?.1 {}
            line += reader.take_lines();
        }
        while !reader.is_done() {
            let mut index = 0;
            loop {
                let (field, ends_record) = reader.next().map_err(|m| self.error(line, m))?;
                self.take_field(&mut builders, index, &field, line)?;
                index += 1;
                if ends_record {
                    break;
                }
            }
            if let Some(missing) = self.columns.get(index) {
                return Err(self
                    .error(
                        line,
                        format!("missing data for column \"{}\"", missing.name),
                    )
                    .with_detail(format!("{} columns are expected.", self.columns.len())));
            }
            line += reader.take_lines();
            rows += 1;
        }
        Ok((
            rows,
            builders.iter_mut().map(ColumnBuilder::finish).collect(),
        ))
    }
}

/// A field without quotes and escapes.
struct Field<'a> {
    text: &'a str,
    quoted: bool,
}

/// Splits text into fields.
struct FieldReader<'a> {
    text: &'a str,
    at: usize,
    delimiter: u8,
    quote: u8,
    escape: u8,
    /// the text of the last field with quotes
    unescaped: String,
    /// the number of line ends passed
    lines: u64,
}

impl<'a> FieldReader<'a> {
    fn new(text: &'a str, options: &CsvOptions) -> Self {
        Self {
            text,
            at: 0,
            delimiter: options.delimiter,
            quote: options.quote,
            escape: options.escape,
            unescaped: String::new(),
            lines: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.at >= self.text.len()
    }

    /// Takes the number of line ends since the last call.
    fn take_lines(&mut self) -> u64 {
        std::mem::take(&mut self.lines)
    }

    /// The next field, and whether it is the record's last.
    fn next(&mut self) -> Result<(Field<'_>, bool), &'static str> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut end = start;
        while let Some(&b) = bytes.get(end) {
            if b == self.delimiter {
                self.at = end + 1;
                return Ok((
                    Field {
                        text: &self.text[start..end],
                        quoted: false,
                    },
                    false,
                ));
            }
            if b == self.quote {
                return self.next_quoted(start, end);
            }
            if b == b'\n' || b == b'\r' {
                self.pass_line_end(end)?;
                return Ok((
                    Field {
                        text: &self.text[start..end],
                        quoted: false,
                    },
                    true,
                ));
            }
            end += 1;
        }
        self.at = end;
        Ok((
            Field {
                text: &self.text[start..end],
                quoted: false,
            },
            true,
        ))
    }

    /// [`Self::next`] for a field with a quote at `quote_at`.
    fn next_quoted(
        &mut self,
        start: usize,
        quote_at: usize,
    ) -> Result<(Field<'_>, bool), &'static str> {
        let bytes = self.text.as_bytes();
        self.unescaped.clear();
        self.unescaped.push_str(&self.text[start..quote_at]);
        let mut at = quote_at;
        let mut ends_record = true;
        let mut in_quotes = false;
        // Copies the runs between special bytes.
        let mut run = at;
        while let Some(&b) = bytes.get(at) {
            if in_quotes {
                if b == self.escape
                    && bytes
                        .get(at + 1)
                        .is_some_and(|n| *n == self.quote || *n == self.escape)
                {
                    self.unescaped.push_str(&self.text[run..at]);
                    run = at + 1;
                    at += 2;
                    continue;
                }
                if b == self.quote {
                    self.unescaped.push_str(&self.text[run..at]);
                    run = at + 1;
                    in_quotes = false;
                } else if b == b'\n' {
                    self.lines += 1;
                }
            } else if b == self.quote {
                self.unescaped.push_str(&self.text[run..at]);
                run = at + 1;
                in_quotes = true;
            } else if b == self.delimiter {
                ends_record = false;
                break;
            } else if b == b'\n' || b == b'\r' {
                break;
            }
            at += 1;
        }
        if in_quotes {
            return Err("unterminated CSV quoted field");
        }
        self.unescaped.push_str(&self.text[run..at]);
        if !ends_record {
            self.at = at + 1;
        } else if at < bytes.len() {
            self.pass_line_end(at)?;
        } else {
            self.at = at;
        }
        Ok((
            Field {
                text: &self.unescaped,
                quoted: true,
            },
            ends_record,
        ))
    }

    fn pass_line_end(&mut self, at: usize) -> Result<(), &'static str> {
        let bytes = self.text.as_bytes();
        self.at = match (bytes[at], bytes.get(at + 1)) {
            (b'\n', _) => at + 1,
            (_, Some(b'\n')) => at + 2,
            (_, None) => at + 1,
            _ => return Err("unquoted carriage return found in data"),
        };
        self.lines += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
