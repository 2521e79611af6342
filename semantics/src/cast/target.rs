//! The result type of a cast whose written type is incomplete: `CAST(x AS numeric)`.

use crate::decimal::{AVERAGE_SCALE, MAX_DIGITS, Shape, digits};
use crate::error::raise;
use crate::text::number::parse_decimal;
use crate::types::{arrow_type, is_unconstrained_numeric, sql_type_of};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::Result;
use datafusion::scalar::ScalarValue;
use strandline_base::SqlType;

/// The SQL result type of a cast from `source` to the planned field `target`; `None` if the field
/// has no SQL type. `literal` is the operand if it is a literal.
pub fn cast_target(
    literal: Option<&ScalarValue>,
    source: &DataType,
    target: &Field,
) -> Result<Option<SqlType>> {
    if is_unconstrained_numeric(target) {
        return unconstrained(literal, source).map(Some);
    }
    Ok(sql_type_of(target).filter(|to| arrow_type(*to) == *target.data_type()))
}

/// The shape of `CAST(x AS numeric)`: the operand's own.
fn unconstrained(literal: Option<&ScalarValue>, source: &DataType) -> Result<SqlType> {
    let text = literal.and_then(|value| value.try_as_str()).flatten();
    let shape = match (Shape::of(source), text) {
        (Some(shape), _) => shape,
        (None, Some(text)) => literal_shape(text)?,
        (None, None) => Shape::new(MAX_DIGITS, AVERAGE_SCALE),
    };
    Ok(SqlType::Numeric {
        precision: shape.precision,
        scale: shape.scale,
    })
}

/// The shape with exactly the digits of a numeric literal.
pub fn literal_shape(text: &str) -> Result<Shape> {
    let number = parse_decimal(text).map_err(raise)?;
    let scale = number.scale.clamp(0, MAX_DIGITS.into()) as u8;
    let trailing = (-number.scale).clamp(0, MAX_DIGITS.into()) as u8;
    Ok(Shape::new(
        digits(number.unscaled).saturating_add(trailing),
        scale,
    ))
}
