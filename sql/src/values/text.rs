//! Values as text in PostgreSQL's form, for every Arrow type of a result.
//!
//! [`strandline_semantics::text`] writes the types that tables store. Other types (other units of
//! time, lists) are cast to a stored type or written here.

use datafusion::arrow::array::cast::AsArray;
use datafusion::arrow::array::{Array, ArrayRef};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use strandline_semantics::cast::strict_cast;
use strandline_semantics::text::write_value;

#[cfg(test)]
mod tests;

/// The value at `row`; None for NULL. Booleans are `t` and `f`.
pub fn cell(array: &ArrayRef, row: usize) -> Option<String> {
    if array.is_null(row) || array.data_type() == &DataType::Null {
        return None;
    }
    if let Some(items) = list_at(array, row) {
        return Some(list(&items));
    }
    let one = array.slice(row, 1);
    let written = match stored_form(array.data_type()) {
        Some(form) => strict_cast(&one, &form)
            .ok()
            .and_then(|cast| write_value(&cast, 0).ok()),
        None => write_value(&one, 0).ok(),
    };
    Some(written.flatten().unwrap_or_else(|| "?".to_string()))
}

/// The stored type to which a time of another unit is cast; None if it is stored already.
fn stored_form(t: &DataType) -> Option<DataType> {
    match t {
        DataType::Timestamp(TimeUnit::Microsecond, _) | DataType::Time64(TimeUnit::Microsecond) => {
            None
        }
        DataType::Timestamp(_, zone) => {
            Some(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
        }
        DataType::Time32(_) | DataType::Time64(_) => Some(DataType::Time64(TimeUnit::Microsecond)),
        DataType::Date64 => Some(DataType::Date32),
        DataType::LargeUtf8 => Some(DataType::Utf8View),
        DataType::LargeBinary => Some(DataType::BinaryView),
        DataType::Dictionary(_, values) => Some(values.as_ref().clone()),
        _ => None,
    }
}

fn list_at(array: &ArrayRef, row: usize) -> Option<ArrayRef> {
    match array.data_type() {
        DataType::List(_) => Some(array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => Some(array.as_list::<i64>().value(row)),
        _ => None,
    }
}

fn list(items: &ArrayRef) -> String {
    let shown: Vec<String> = (0..items.len())
        .map(|i| match cell(items, i) {
            None => "NULL".to_string(),
            Some(text) if list_at(items, i).is_none() && needs_quotes(&text) => {
                format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
            }
            Some(text) => text,
        })
        .collect();
    format!("{{{}}}", shown.join(","))
}

fn needs_quotes(text: &str) -> bool {
    text.is_empty()
        || text.eq_ignore_ascii_case("null")
        || text.contains(|c: char| c.is_whitespace() || matches!(c, ',' | '{' | '}' | '"' | '\\'))
}
