//! Casts to `time(p)`, `timestamp(p)` and `interval(p)`: a cast, then rounding to `p` digits of a
//! second.

use super::calls::call;
use super::cast_syntax::cast;
use super::numbers;
use datafusion::sql::sqlparser::ast::{DataType, Expr, Value};
use strandline_base::{Error, Result, SqlState};

/// The digits of a second that all moments have.
const ALL: u64 = 6;

fn precision(data_type: &mut DataType) -> Option<&mut Option<u64>> {
    match data_type {
        DataType::Time(precision, _) | DataType::Timestamp(precision, _) => Some(precision),
        DataType::Interval {
            fields: None,
            precision,
        } => Some(precision),
        _ => None,
    }
}

/// Removes the precision from the type of a cast; `None` without one, or if it has all digits.
pub fn take_precision(expr: &mut Expr) -> Result<Option<u64>> {
    let Expr::Cast { data_type, .. } = expr else {
        return Ok(None);
    };
    let name = data_type.to_string();
    match precision(data_type).and_then(Option::take) {
        None | Some(ALL) => Ok(None),
        Some(digits) if digits < ALL => Ok(Some(digits)),
        Some(_) => Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("type {name}: a second has at most {ALL} digits here"),
        )),
    }
}

/// `timestamp(3) 'text'` as a cast; `None` if the type has no precision.
pub fn typed_with_precision(expr: &mut Expr) -> Option<Expr> {
    let Expr::TypedString(typed) = expr else {
        return None;
    };
    precision(&mut typed.data_type)?.as_ref()?;
    let text = match &typed.value.value {
        Value::SingleQuotedString(text) => Value::SingleQuotedString(text.clone()),
        _ => return None,
    };
    Some(cast(Expr::Value(text.into()), typed.data_type.clone()))
}

/// Rounds `expr` to `digits` digits of a second.
pub fn round(expr: &mut Expr, digits: Option<u64>) {
    if let Some(digits) = digits {
        let moment = std::mem::replace(expr, Expr::Value(Value::Null.into()));
        *expr = call(
            "round_moment",
            vec![moment, numbers::plain(&digits.to_string())],
        );
    }
}
