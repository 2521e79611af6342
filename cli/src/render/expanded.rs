//! Expanded tables: a block per row, a line per value.

use super::pages::{Page, Pages};
use super::{PrintError, Style, display_width, printable};
use arrow::datatypes::SchemaRef;
use std::io::Write;

/// The minimum length of the rule above a record.
const RULE: usize = 40;

pub(super) fn print(
    schema: &SchemaRef,
    first: Page,
    pages: &mut Pages<'_>,
    style: &Style,
    out: &mut dyn Write,
) -> Result<u64, PrintError> {
    let names: Vec<String> = schema
        .fields()
        .iter()
        .map(|f| printable(f.name()).replace('\n', " "))
        .collect();
    let width = names
        .iter()
        .map(|name| display_width(name))
        .max()
        .unwrap_or(0);
    let mut number = 0;
    let mut page = first;
    while !page.is_empty() {
        for row in &page {
            number += 1;
            if style.header {
                let title = format!("-[ RECORD {number} ]");
                writeln!(out, "{title:-<rule$}", rule = RULE.max(width + 3))?;
            }
            for (name, value) in names.iter().zip(row) {
                let value = value.as_deref().unwrap_or(&style.null);
                let mut label = name.as_str();
                for line in value.split('\n') {
                    let blank = " ".repeat(width - display_width(label));
                    writeln!(out, "{}", format!("{label}{blank} | {line}").trim_end())?;
                    label = "";
                }
            }
        }
        page = pages.next_page()?;
    }
    if style.row_count {
        if number == 0 {
            writeln!(out, "{}", super::row_count(0))?;
        }
        writeln!(out)?;
    }
    Ok(number)
}
