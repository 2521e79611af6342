//! GitHub's Markdown tables.

use super::{Batches, PrintError, Style, cell, is_number};
use std::io::Write;

pub(super) fn print(
    batches: &mut dyn Batches,
    style: &Style,
    out: &mut dyn Write,
) -> Result<u64, PrintError> {
    // A Markdown table must have a header, so `--no-header` is ignored.
    let schema = batches.schema();
    let names: Vec<String> = schema.fields().iter().map(|f| escape(f.name())).collect();
    writeln!(out, "| {} |", names.join(" | "))?;
    let rule = |f: &std::sync::Arc<arrow::datatypes::Field>| {
        let right = is_number(f.data_type()) || f.metadata().contains_key(super::text::ALIGN_RIGHT);
        if right { "---:" } else { "---" }
    };
    let rules: Vec<&str> = schema.fields().iter().map(rule).collect();
    writeln!(out, "| {} |", rules.join(" | "))?;
    let mut rows = 0;
    while let Some(batch) = batches.next_batch()? {
        for row in 0..batch.num_rows() {
            let mut line = String::from("|");
            for array in batch.columns() {
                let text = cell(array, row).unwrap_or_else(|| style.null.clone());
                line.push(' ');
                line.push_str(&escape(&text));
                line.push_str(" |");
            }
            writeln!(out, "{line}")?;
        }
        rows += batch.num_rows() as u64;
    }
    writeln!(out)?;
    Ok(rows)
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('|', "\\|")
        .replace('\r', "")
        .replace('\n', "<br>")
}
