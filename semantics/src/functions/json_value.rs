//! SQL values as JSON text: numbers, booleans and json unchanged, arrays and rows by their items,
//! moments in ISO 8601, other values as strings.

use crate::text::ValueWriter;
use crate::types::sql_type_of;
use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::Result;
use strandline_base::SqlType;

/// Appends the value at `row` of `array`, whose field is `field`.
pub fn write(out: &mut String, array: &ArrayRef, field: &Field, row: usize) -> Result<()> {
    if array.is_null(row) || array.data_type().is_null() {
        out.push_str("null");
        return Ok(());
    }
    match array.data_type() {
        DataType::List(item) => {
            out.push('[');
            let items = array.as_list::<i32>().value(row);
            for at in 0..items.len() {
                if at > 0 {
                    out.push(',');
                }
                write(out, &items, item, at)?;
            }
            out.push(']');
            return Ok(());
        }
        DataType::Struct(fields) => {
            out.push('{');
            let row_value = array.as_struct();
            for (at, (field, column)) in fields.iter().zip(row_value.columns()).enumerate() {
                if at > 0 {
                    out.push(',');
                }
                string(out, &member_name(field.name(), at));
                out.push(':');
                write(out, column, field, row)?;
            }
            out.push('}');
            return Ok(());
        }
        _ => {}
    }
    let mut text = String::new();
    ValueWriter::new(array)?
        .write(&mut text, row, ["false", "true"])
        .map_err(|_| datafusion::common::internal_datafusion_err!("formatting failed"))?;
    let is_json = sql_type_of(field) == Some(SqlType::Json);
    let is_number = array.data_type().is_numeric() && !text.ends_with(['y', 'N']);
    match array.data_type() {
        _ if is_json || is_number => out.push_str(&text),
        DataType::Boolean => out.push_str(&text),
        DataType::Timestamp(_, zone) => {
            let mut text = text.replacen(' ', "T", 1);
            if zone.is_some()
                && text
                    .rfind(['+', '-'])
                    .is_some_and(|at| text.len() - at == 3)
            {
                text.push_str(":00");
            }
            string(out, &text);
        }
        _ => string(out, &text),
    }
    Ok(())
}

/// The member names of `ROW(…)`, whose columns have no names.
fn member_name(name: &str, at: usize) -> String {
    let unnamed = name.strip_prefix('c').is_some_and(|n| n.parse() == Ok(at));
    match unnamed {
        true => format!("f{}", at + 1),
        false => name.to_string(),
    }
}

fn string(out: &mut String, text: &str) {
    out.push_str(&serde_json::Value::String(text.to_string()).to_string());
}
