//! Rows as bytes in the formats that clients may use too: CSV, PostgreSQL's text format and its
//! binary format.

use super::binary::SIGNATURE;
use super::options::CsvOptions;
use crate::parse::names;
use datafusion::arrow::array::{Array, ArrayRef, RecordBatch};
use datafusion::arrow::datatypes::{Schema, SchemaRef};
use strandline_base::{Error, Result, SqlState};
use strandline_semantics::error::convert;
use strandline_semantics::text::ValueWriter;
use strandline_semantics::wire_format::{ColumnWriter, Format as WireFormat, storable_form};

/// A consumer of one row's bytes.
pub(super) type TakeRow<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

/// Formats rows as bytes.
pub(super) trait RowFormat: Send {
    /// Appends the bytes before the rows.
    fn begin(&mut self, out: &mut Vec<u8>);
    /// Passes the bytes of each row of `batch`, with the row's end, to `take`.
    fn rows(&mut self, batch: &RecordBatch, take: &mut TakeRow<'_>) -> Result<()>;
    /// Appends the bytes after the rows.
    fn end(&mut self, out: &mut Vec<u8>);
}

/// The words for false and true.
const BOOLEANS: [&str; 2] = ["f", "t"];

/// Appends the text of a value that is not NULL.
pub(super) fn write_text(out: &mut String, writer: &ValueWriter<'_>, row: usize) -> Result<()> {
    writer
        .write(out, row, BOOLEANS)
        .map_err(|_| Error::internal("a value could not be written as text"))
}

/// A writer per column.
pub(super) fn value_writers(batch: &RecordBatch) -> Result<Vec<ValueWriter<'_>>> {
    let columns = batch.columns().iter();
    columns
        .map(|array| ValueWriter::new(array).map_err(convert))
        .collect()
}

/// The separation and protection of text fields.
pub(super) trait Fields: Send {
    fn options(&self) -> &CsvOptions;
    /// Appends a field, with quotes or escapes if necessary.
    fn push(&self, column: usize, field: &str, row: &mut String);
    /// Appends a column's name for the header.
    fn push_name(&self, name: &str, row: &mut String);
}

/// Rows of text, a line each.
pub(super) struct Lines<F> {
    fields: F,
    names: Vec<String>,
    row: String,
    field: String,
}

impl<F: Fields> Lines<F> {
    fn new(fields: F, schema: &SchemaRef) -> Self {
        Self {
            fields,
            names: schema.fields().iter().map(|f| f.name().clone()).collect(),
            row: String::new(),
            field: String::new(),
        }
    }
}

impl<F: Fields> RowFormat for Lines<F> {
    fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.fields.options().header {
            return;
        }
        self.row.clear();
        for (i, name) in self.names.iter().enumerate() {
            if i > 0 {
                self.row.push(self.fields.options().delimiter as char);
            }
            self.fields.push_name(name, &mut self.row);
        }
        self.row.push('\n');
        out.extend_from_slice(self.row.as_bytes());
    }

    fn rows(&mut self, batch: &RecordBatch, take: &mut TakeRow<'_>) -> Result<()> {
        let writers = value_writers(batch)?;
        for row in 0..batch.num_rows() {
            self.row.clear();
            for (i, array) in batch.columns().iter().enumerate() {
                if i > 0 {
                    self.row.push(self.fields.options().delimiter as char);
                }
                if array.is_null(row) || array.data_type().is_null() {
                    self.row.push_str(&self.fields.options().null);
                    continue;
                }
                self.field.clear();
                write_text(&mut self.field, &writers[i], row)?;
                self.fields.push(i, &self.field, &mut self.row);
            }
            self.row.push('\n');
            take(self.row.as_bytes())?;
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Vec<u8>) {}
}

/// Fields of CSV, quoted.
pub(super) struct Quoted {
    options: CsvOptions,
    always: Vec<bool>,
}

/// CSV in PostgreSQL's form; 42703 if an option names an unknown column.
pub(super) fn csv(schema: &SchemaRef, options: CsvOptions) -> Result<Lines<Quoted>> {
    let mut always = vec![false; schema.fields().len()];
    for position in columns_named(schema, &options.force_quote)? {
        always[position] = true;
    }
    Ok(Lines::new(Quoted { options, always }, schema))
}

impl Quoted {
    fn push_field(&self, always: bool, field: &str, row: &mut String) {
        let (quote, escape) = (self.options.quote, self.options.escape);
        let special = |b: u8| b == self.options.delimiter || b == quote || b == b'\n' || b == b'\r';
        let is_plain =
            !always && field != self.options.null && !field.bytes().any(special) && field != "\\.";
        if is_plain {
            row.push_str(field);
            return;
        }
        row.push(quote as char);
        for c in field.chars() {
            if c == quote as char || c == escape as char {
                row.push(escape as char);
            }
            row.push(c);
        }
        row.push(quote as char);
    }
}

impl Fields for Quoted {
    fn options(&self) -> &CsvOptions {
        &self.options
    }
    fn push(&self, column: usize, field: &str, row: &mut String) {
        self.push_field(self.always[column], field, row);
    }
    fn push_name(&self, name: &str, row: &mut String) {
        self.push_field(false, name, row);
    }
}

/// Fields of PostgreSQL's text format, with backslashes.
pub(super) struct Escaped {
    options: CsvOptions,
}

/// PostgreSQL's text format.
pub(super) fn text(schema: &SchemaRef, options: CsvOptions) -> Lines<Escaped> {
    Lines::new(Escaped { options }, schema)
}

impl Fields for Escaped {
    fn options(&self) -> &CsvOptions {
        &self.options
    }
    fn push(&self, _: usize, field: &str, row: &mut String) {
        for c in field.chars() {
            let escaped = match c {
                '\\' => '\\',
                '\u{8}' => 'b',
                '\u{c}' => 'f',
                '\n' => 'n',
                '\r' => 'r',
                '\t' => 't',
                '\u{b}' => 'v',
                c if c == self.options.delimiter as char => c,
                c => {
                    row.push(c);
                    continue;
                }
            };
            row.push('\\');
            row.push(escaped);
        }
    }
    fn push_name(&self, name: &str, row: &mut String) {
        self.push(0, name, row);
    }
}

/// PostgreSQL's binary format.
#[derive(Default)]
pub(super) struct Binary {
    row: Vec<u8>,
}

impl RowFormat for Binary {
    fn begin(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(SIGNATURE);
        // No flags and no header extension.
        out.extend_from_slice(&[0; 8]);
    }

    fn rows(&mut self, batch: &RecordBatch, take: &mut TakeRow<'_>) -> Result<()> {
        let columns = batch.columns().iter().map(storable_form);
        let columns: Vec<ArrayRef> = columns.collect::<Result<_>>()?;
        let writers = columns
            .iter()
            .map(|c| ColumnWriter::new(c, WireFormat::Binary));
        let writers: Vec<_> = writers.collect::<Result<_>>()?;
        for row in 0..batch.num_rows() {
            self.row.clear();
            self.row
                .extend_from_slice(&(writers.len() as i16).to_be_bytes());
            for writer in &writers {
                writer.write_with_length(row, &mut self.row)?;
            }
            take(&self.row)?;
        }
        Ok(())
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(-1i16).to_be_bytes());
    }
}

/// A format that the statement selects.
pub(super) type AnyFormat = Box<dyn RowFormat>;

impl RowFormat for AnyFormat {
    fn begin(&mut self, out: &mut Vec<u8>) {
        self.as_mut().begin(out);
    }
    fn rows(&mut self, batch: &RecordBatch, take: &mut TakeRow<'_>) -> Result<()> {
        self.as_mut().rows(batch, take)
    }
    fn end(&mut self, out: &mut Vec<u8>) {
        self.as_mut().end(out);
    }
}

/// The positions of the columns `wanted` (42703).
fn columns_named(schema: &Schema, wanted: &[String]) -> Result<Vec<usize>> {
    wanted
        .iter()
        .map(|name| {
            schema
                .fields()
                .iter()
                .position(|f| f.name() == name)
                .ok_or_else(|| {
                    Error::invalid(
                        SqlState::UNDEFINED_COLUMN,
                        format!("column {} is not copied", names::quote(name)),
                    )
                })
        })
        .collect()
}
