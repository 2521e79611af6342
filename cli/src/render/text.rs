//! Widths of text on a terminal, and tables made of text.

use super::Batches;
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;
use strandline::Result;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns that `text` takes on a terminal.
pub fn display_width(text: &str) -> usize {
    text.width()
}

/// `text` cut to `width` columns, with `…` in place of the missing rest.
pub fn fit(text: &str, width: usize) -> String {
    if display_width(text) <= width {
        return text.to_string();
    }
    let mut used = 0;
    let mut out = String::new();
    for c in text.chars() {
        used += c.width().unwrap_or(0);
        if used + 1 > width {
            break;
        }
        out.push(c);
    }
    out.push('…');
    out
}

/// `text` without control characters, which could drive the terminal; line feeds stay.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push(c),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c.is_control() => {
                write!(out, "\\x{:02X}", u32::from(c)).expect("a string cannot refuse");
            }
            c => out.push(c),
        }
    }
    out
}

/// Field metadata that aligns a column of text to the right.
pub const ALIGN_RIGHT: &str = "strandline.align_right";

/// Rows of text as one batch.
pub struct TextBatches {
    batch: Option<RecordBatch>,
    schema: SchemaRef,
}

impl TextBatches {
    /// `numbers` says which columns are aligned to the right.
    pub fn new(columns: &[&str], numbers: &[bool], rows: &[Vec<String>]) -> Self {
        let fields: Vec<Field> = columns
            .iter()
            .enumerate()
            .map(|(i, name)| {
                let field = Field::new(*name, DataType::Utf8, true);
                if numbers.get(i) == Some(&true) {
                    field.with_metadata(HashMap::from([(ALIGN_RIGHT.into(), String::new())]))
                } else {
                    field
                }
            })
            .collect();
        let schema = Arc::new(Schema::new(fields));
        let arrays: Vec<ArrayRef> = (0..columns.len())
            .map(|i| {
                let values = rows.iter().map(|row| row.get(i).map(String::as_str));
                Arc::new(StringArray::from_iter(values)) as ArrayRef
            })
            .collect();
        let batch = RecordBatch::try_new(schema.clone(), arrays)
            .expect("every column is text and has as many values as there are rows");
        Self {
            batch: Some(batch),
            schema,
        }
    }
}

impl Batches for TextBatches {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        Ok(self.batch.take())
    }
}
