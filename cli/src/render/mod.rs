//! Query results as text: aligned tables as psql prints them, CSV, JSON, JSON lines, Markdown.
//!
//! Results are printed batch by batch, so that a large result needs little memory and its first
//! rows come at once. Only the aligned table looks ahead, by one page of rows, to find the columns'
//! widths.

mod aligned;
mod delimited;
mod expanded;
mod json;
mod markdown;
mod pages;
mod text;

pub use text::{display_width, fit, printable};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use clap::ValueEnum;
use std::io::{self, Write};
use strandline::{Error, Result as EngineResult, cell};

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// aligned columns
    Table,
    /// RFC 4180; NULL is an empty field, an empty text is ""
    Csv,
    /// one array of objects
    Json,
    /// one object per line
    Jsonlines,
    /// a GitHub table
    Markdown,
}

/// Whether a table shows one line per value instead of one per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expanded {
    Off,
    On,
    /// when the columns do not fit the terminal
    Auto,
}

/// The settings for how a result looks.
#[derive(Clone, Debug)]
pub struct Style {
    pub format: Format,
    pub expanded: Expanded,
    /// Column names (a Markdown table always has them).
    pub header: bool,
    /// The number of rows under a table, and a blank line after it.
    pub row_count: bool,
    /// The text for NULL (not used in JSON).
    pub null: String,
    /// Columns of the terminal; None: unlimited.
    pub width: Option<usize>,
}

impl Style {
    /// A plain table of unlimited width.
    pub fn table() -> Self {
        Self {
            format: Format::Table,
            expanded: Expanded::Off,
            header: true,
            row_count: true,
            null: String::new(),
            width: None,
        }
    }
}

/// A result that arrives in batches.
pub trait Batches {
    /// Names and types of the columns.
    fn schema(&self) -> SchemaRef;
    /// The next batch; None at the end.
    fn next_batch(&mut self) -> EngineResult<Option<RecordBatch>>;
}

/// The reason why a result could not be printed to its end.
#[derive(Debug)]
pub enum PrintError {
    /// the query failed
    Query(Error),
    /// the output cannot be written
    Output(io::Error),
}

impl From<io::Error> for PrintError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<Error> for PrintError {
    fn from(error: Error) -> Self {
        Self::Query(error)
    }
}

/// Prints a result; returns its number of rows.
pub fn print(
    batches: &mut dyn Batches,
    style: &Style,
    out: &mut dyn Write,
) -> Result<u64, PrintError> {
    match style.format {
        Format::Table => aligned::print(batches, style, out),
        Format::Csv => delimited::print(batches, style, out),
        Format::Json => json::print_array(batches, out),
        Format::Jsonlines => json::print_lines(batches, out),
        Format::Markdown => markdown::print(batches, style, out),
    }
}

/// Prints rows of text (for meta commands, `inspect`, `demo`). `numbers` says which columns are
/// aligned to the right.
pub fn print_text(
    title: Option<&str>,
    columns: &[&str],
    numbers: &[bool],
    rows: &[Vec<String>],
    style: &Style,
    out: &mut dyn Write,
) -> Result<(), PrintError> {
    let mut batches = text::TextBatches::new(columns, numbers, rows);
    if let (Some(title), Format::Table | Format::Markdown) = (title, style.format) {
        writeln!(
            out,
            "{}{title}",
            if style.format == Format::Markdown {
                "### "
            } else {
                ""
            }
        )?;
        if style.format == Format::Markdown {
            writeln!(out)?;
        }
    }
    print(&mut batches, style, out)?;
    Ok(())
}

/// Whether values of this type are numbers, which are aligned to the right and unquoted in JSON.
fn is_number(data_type: &DataType) -> bool {
    data_type.is_numeric()
}

/// `(1 row)`, `(2 rows)`.
fn row_count(rows: u64) -> String {
    format!("({rows} row{})", if rows == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests;
