//! `format('%s, %2$I, %-10L, %*s, %%', …)`.

use super::overload::Parameter::{Any, Text};
use super::overload::{Call, Function, Overload};
use super::text::{quoted_identifier, quoted_literal, write_all};
use crate::error::invalid;
use datafusion::arrow::array::{Array, ArrayRef, StringViewArray, StringViewBuilder};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use std::iter::Peekable;
use std::str::Chars;
use std::sync::Arc;
use strandline_base::{SqlState, SqlType};

/// The function.
pub fn functions() -> Vec<Function> {
    let format = Overload::variadic(&[Text, Any], SqlType::Text, format);
    vec![Function::new("format", vec![format]).not_strict()]
}

/// The first argument is the pattern.
fn format(call: &Call) -> Result<ArrayRef> {
    let values = (1..call.arrays.len())
        .map(|i| write_all(call, i))
        .collect::<Result<Vec<_>>>()?;
    let mut builder = StringViewBuilder::with_capacity(call.rows);
    for row in 0..call.rows {
        if call.arrays[0].is_null(row) {
            builder.append_null();
            continue;
        }
        let mut arguments = Arguments {
            values: &values,
            row,
            next: 0,
        };
        builder.append_value(formatted(call.text(0).value(row), &mut arguments)?);
    }
    Ok(Arc::new(builder.finish()))
}

fn fault(message: impl Into<String>) -> DataFusionError {
    invalid(SqlState::INVALID_PARAMETER_VALUE, message)
}

/// The values of a row.
struct Arguments<'a> {
    values: &'a [StringViewArray],
    row: usize,
    /// the next argument for a specifier without a position
    next: usize,
}

impl<'a> Arguments<'a> {
    /// The argument at `position`, from 1, or the next one.
    fn take(&mut self, position: Option<usize>) -> Result<Option<&'a str>> {
        let at = match position {
            Some(0) => {
                return Err(fault(
                    "format specifies argument 0, but arguments are numbered from 1",
                ));
            }
            Some(position) => position - 1,
            None => self.next,
        };
        self.next = at + 1;
        let array = self.values.get(at);
        let array = array.ok_or_else(|| fault("too few arguments for format()"))?;
        Ok(array.is_valid(self.row).then(|| array.value(self.row)))
    }

    /// An argument as a width.
    fn width(&mut self, position: Option<usize>) -> Result<i64> {
        let Some(text) = self.take(position)? else {
            return Ok(0);
        };
        text.trim().parse().map_err(|_| {
            let message = format!("invalid input syntax for type integer: \"{text}\"");
            invalid(SqlState::INVALID_TEXT_REPRESENTATION, message)
        })
    }
}

fn formatted(pattern: &str, arguments: &mut Arguments) -> Result<String> {
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
        } else if chars.next_if_eq(&'%').is_some() {
            out.push('%');
        } else {
            specifier(&mut out, &mut chars, arguments)?;
        }
    }
    Ok(out)
}

/// `[position$][-][width]type` after a percent sign.
fn specifier(
    out: &mut String,
    chars: &mut Peekable<Chars>,
    arguments: &mut Arguments,
) -> Result<()> {
    let mut position = None;
    let mut width = None;
    if let Some(digits) = number(chars)? {
        match chars.next_if_eq(&'$') {
            Some(_) => position = Some(digits),
            None => width = Some(digits as i64),
        }
    }
    if width.is_none() {
        let left = chars.next_if_eq(&'-').is_some();
        let given = match chars.next_if_eq(&'*') {
            Some(_) => {
                let from = number(chars)?;
                if from.is_some() && chars.next_if_eq(&'$').is_none() {
                    return Err(fault("width argument position must be ended by \"$\""));
                }
                arguments.width(from)?
            }
            None => number(chars)?.unwrap_or(0) as i64,
        };
        width = Some(if left { -given.abs() } else { given });
    }
    let kind = chars
        .next()
        .ok_or_else(|| fault("unterminated format() type specifier"))?;
    if !matches!(kind, 's' | 'I' | 'L') {
        return Err(fault(format!(
            "unrecognized format() type specifier \"{kind}\""
        )));
    }
    let text = match (kind, arguments.take(position)?) {
        ('s', value) => value.unwrap_or_default().to_string(),
        ('I', Some(value)) => quoted_identifier(value),
        ('L', Some(value)) => quoted_literal(value),
        ('L', None) => "NULL".to_string(),
        _ => {
            return Err(fault(
                "null values cannot be formatted as an SQL identifier",
            ));
        }
    };
    let width = width.unwrap_or(0);
    let missing = usize::try_from(width.unsigned_abs()).unwrap_or(usize::MAX);
    let missing = missing.saturating_sub(text.chars().count());
    if missing >= super::text::MAX_BYTES {
        return Err(fault("number is out of range"));
    }
    let blanks = " ".repeat(missing);
    match width < 0 {
        true => out.extend([text, blanks]),
        false => out.extend([blanks, text]),
    }
    Ok(())
}

/// Decimal digits, if there are any.
fn number(chars: &mut Peekable<Chars>) -> Result<Option<usize>> {
    let mut found = None;
    while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
        chars.next();
        let value = found.unwrap_or(0usize).checked_mul(10);
        let value = value.and_then(|v| v.checked_add(digit as usize));
        let in_range = value.filter(|v| *v <= i32::MAX as usize);
        found = Some(in_range.ok_or_else(|| fault("number is out of range"))?);
    }
    Ok(found)
}
