//! JSON: one array, or one object per line. Numbers are JSON numbers with all their digits; NaN and
//! the infinities, which JSON lacks, are strings. Booleans are booleans, and everything else is a
//! string as PostgreSQL would print it. Columns of the same name get `_2`, `_3`, … appended.

use super::{Batches, PrintError, cell, is_number};
use arrow::array::cast::AsArray;
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use std::collections::HashSet;
use std::io::Write;

pub(super) fn print_array(
    batches: &mut dyn Batches,
    out: &mut dyn Write,
) -> Result<u64, PrintError> {
    let names = names(&batches.schema());
    let mut rows = 0;
    write!(out, "[")?;
    while let Some(batch) = batches.next_batch()? {
        for row in 0..batch.num_rows() {
            let separator = if rows == 0 { "\n" } else { ",\n" };
            write!(out, "{separator}{}", object(&names, &batch, row))?;
            rows += 1;
        }
    }
    writeln!(out, "{}]", if rows == 0 { "" } else { "\n" })?;
    Ok(rows)
}

pub(super) fn print_lines(
    batches: &mut dyn Batches,
    out: &mut dyn Write,
) -> Result<u64, PrintError> {
    let names = names(&batches.schema());
    let mut rows = 0;
    while let Some(batch) = batches.next_batch()? {
        for row in 0..batch.num_rows() {
            writeln!(out, "{}", object(&names, &batch, row))?;
        }
        rows += batch.num_rows() as u64;
    }
    Ok(rows)
}

/// The columns' names as JSON strings, made distinct.
fn names(schema: &SchemaRef) -> Vec<String> {
    let mut taken: HashSet<String> = HashSet::new();
    let mut names = Vec::new();
    for field in schema.fields() {
        let mut name = field.name().clone();
        let mut number = 1;
        while !taken.insert(name.clone()) {
            number += 1;
            name = format!("{}_{number}", field.name());
        }
        names.push(quote(&name));
    }
    names
}

fn object(names: &[String], batch: &RecordBatch, row: usize) -> String {
    let mut out = String::from("{");
    for (i, (name, array)) in names.iter().zip(batch.columns()).enumerate() {
        if i > 0 {
            out.push(',');
        }
        out.push_str(name);
        out.push(':');
        value(array, row, &mut out);
    }
    out.push('}');
    out
}

fn value(array: &ArrayRef, row: usize, out: &mut String) {
    match cell(array, row) {
        None => out.push_str("null"),
        Some(_) if array.data_type() == &DataType::Boolean => {
            out.push_str(if array.as_boolean().value(row) {
                "true"
            } else {
                "false"
            });
        }
        // NaN and the infinities end in letters.
        Some(text) if is_number(array.data_type()) && !text.ends_with(['N', 'y']) => {
            out.push_str(&text);
        }
        Some(text) => out.push_str(&quote(&text)),
    }
}

fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
