//! Comma-separated values (RFC 4180 with line feeds). NULL is an empty field (or the null text) and
//! an empty text is `""`, so that the two stay distinct.

use super::{Batches, PrintError, Style, cell};
use std::io::Write;

pub(super) fn print(
    batches: &mut dyn Batches,
    style: &Style,
    out: &mut dyn Write,
) -> Result<u64, PrintError> {
    if style.header {
        let schema = batches.schema();
        let names: Vec<String> = schema
            .fields()
            .iter()
            .map(|f| field(f.name(), ""))
            .collect();
        writeln!(out, "{}", names.join(","))?;
    }
    let mut rows = 0;
    let mut line = String::new();
    while let Some(batch) = batches.next_batch()? {
        for row in 0..batch.num_rows() {
            line.clear();
            for (i, array) in batch.columns().iter().enumerate() {
                if i > 0 {
                    line.push(',');
                }
                match cell(array, row) {
                    Some(value) => line.push_str(&field(&value, &style.null)),
                    None => line.push_str(&style.null),
                }
            }
            writeln!(out, "{line}")?;
        }
        rows += batch.num_rows() as u64;
    }
    Ok(rows)
}

/// A value, quoted if CSV requires it or if it could be taken for NULL.
fn field(text: &str, null: &str) -> String {
    if text == null || text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}
