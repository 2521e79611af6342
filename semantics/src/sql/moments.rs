//! Casts to `time(p)`, `timestamp(p)`, `interval(p)` and `interval day to hour`: a cast to the type
//! without restriction, then rounding to `p` digits of a second or truncation to the last field.
//! The restriction of a written interval is applied at once, and the fields give its numbers
//! without a unit a meaning.

use super::calls::{call, last_name, plain_argument};
use super::cast_syntax::{cast, string_of};
use super::numbers;
use crate::error::convert;
use crate::functions::restricted_interval;
use crate::text::interval::{PLAIN, Reading, parse_interval_as};
use crate::text::interval_of;
use datafusion::arrow::datatypes::IntervalMonthDayNano;
use datafusion::sql::sqlparser::ast::{
    self, DataType, DateTimeField, Expr, FunctionArg, FunctionArgExpr, FunctionArguments,
    IntervalFields, Value,
};
use strandline_base::value_text::write_interval;
use strandline_base::{Error, Result, SqlState};

/// The digits of a second that all moments have.
const ALL: u64 = 6;

/// What a type keeps of a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Restriction {
    /// the least unit
    unit: Option<&'static str>,
    /// the digits of a second
    digits: Option<u64>,
}

/// The least unit of a type with fields, and the reading of its text.
fn fields_of(fields: &IntervalFields) -> (Option<&'static str>, Reading) {
    use IntervalFields as F;
    let unit = match fields {
        F::Year => "year",
        F::Month | F::YearToMonth => "month",
        F::Day => "day",
        F::Hour | F::DayToHour => "hour",
        F::Minute | F::DayToMinute | F::HourToMinute => "minute",
        F::Second | F::DayToSecond | F::HourToSecond => return (None, PLAIN),
        F::MinuteToSecond => {
            let minutes_first = true;
            return (
                None,
                Reading {
                    minutes_first,
                    ..PLAIN
                },
            );
        }
    };
    (
        Some(unit),
        Reading {
            bare: unit,
            ..PLAIN
        },
    )
}

/// Removes the restriction from the type of a cast. A written interval is restricted at once.
///
/// # Errors
/// 22023 and 42601 for restrictions that the type does not have; errors of the interval's text.
pub fn take_restriction(expr: &mut Expr) -> Result<Restriction> {
    let Expr::Cast {
        expr: operand,
        data_type,
        ..
    } = expr
    else {
        return Ok(Restriction::default());
    };
    let name = data_type.to_string();
    let (precision, fields) = match data_type {
        DataType::Time(precision, _) | DataType::Timestamp(precision, _) => (precision, None),
        DataType::Interval { fields, precision } => (precision, fields.take()),
        _ => return Ok(Restriction::default()),
    };
    let digits = match precision.take() {
        Some(digits) => digits_of(digits, &name)?,
        None => None,
    };
    let (unit, reading) = fields.as_ref().map_or((None, PLAIN), fields_of);
    if digits.is_some() && unit.is_some() {
        return Err(syntax_error(&name));
    }
    let restriction = Restriction { unit, digits };
    let is_restricted = fields.is_some() || digits.is_some();
    if let (DataType::Interval { .. }, true) = (&data_type, is_restricted)
        && let Some(text) = string_of(operand)
    {
        **operand = restricted_literal(&text, reading, restriction)?;
        return Ok(Restriction::default());
    }
    Ok(restriction)
}

fn syntax_error(what: &str) -> Error {
    Error::invalid(
        SqlState::SYNTAX_ERROR,
        format!("syntax error in the type {what}"),
    )
    .with_hint("Only seconds have a precision: interval second(3), interval day to second(3).")
}

/// The text of the interval that `text` is within the type.
fn restricted_literal(text: &str, reading: Reading, restriction: Restriction) -> Result<Expr> {
    let read = parse_interval_as(text, reading)?;
    let read = IntervalMonthDayNano::new(read.months, read.days, read.nanos);
    let kept = restricted_interval(read, restriction.unit, restriction.digits).map_err(convert)?;
    let mut text = String::new();
    write_interval(&mut text, interval_of(kept))
        .map_err(|_| Error::internal("a string takes every text"))?;
    Ok(Expr::Value(Value::SingleQuotedString(text).into()))
}

/// Restricts a moment to what the type keeps of it.
pub fn restrict(expr: &mut Expr, restriction: Restriction) {
    let mut put = |name: &str, in_front: Option<Expr>, behind: Option<Expr>| {
        let moment = std::mem::replace(expr, Expr::Value(Value::Null.into()));
        let args = in_front.into_iter().chain([moment]).chain(behind);
        *expr = call(name, args.collect());
    };
    if let Some(unit) = restriction.unit {
        let unit = Expr::Value(Value::SingleQuotedString(unit.to_string()).into());
        put("date_trunc", Some(unit), None);
    }
    if let Some(digits) = restriction.digits {
        put(
            "round_moment",
            None,
            Some(numbers::plain(&digits.to_string())),
        );
    }
}

/// `CAST(expr AS data_type)` with the type's restriction.
pub fn restricted_cast(expr: Expr, data_type: &DataType) -> Result<Expr> {
    let mut cast = cast(expr, data_type.clone());
    let restriction = take_restriction(&mut cast)?;
    restrict(&mut cast, restriction);
    Ok(cast)
}

/// `timestamp(3) 'text'` as a cast; `None` if the type has no restriction.
pub fn restricted_literal_cast(expr: &Expr) -> Option<Expr> {
    let Expr::TypedString(typed) = expr else {
        return None;
    };
    let is_restricted = match &typed.data_type {
        DataType::Time(precision, _) | DataType::Timestamp(precision, _) => precision.is_some(),
        DataType::Interval { fields, precision } => fields.is_some() || precision.is_some(),
        _ => false,
    };
    let text = string_of(&Expr::Value(typed.value.clone())).filter(|_| is_restricted)?;
    let text = Expr::Value(Value::SingleQuotedString(text).into());
    Some(cast(text, typed.data_type.clone()))
}

/// `current_timestamp(3)` as the moment rounded.
pub fn round_current(expr: &mut Expr) -> Result<()> {
    let Expr::Function(function) = expr else {
        return Ok(());
    };
    let name = last_name(&function.name).unwrap_or_default();
    let takes_digits = [
        "current_timestamp",
        "localtimestamp",
        "current_time",
        "localtime",
    ];
    let FunctionArguments::List(list) = &mut function.args else {
        return Ok(());
    };
    if !takes_digits.contains(&name.as_str()) || list.args.len() != 1 {
        return Ok(());
    }
    let mut given = list.args.pop();
    given.iter_mut().for_each(plain_argument);
    let digits = match &given {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(digits)))) => {
            match &digits.value {
                Value::Number(digits, _) => digits.parse().ok(),
                _ => None,
            }
        }
        _ => None,
    };
    let digits = digits.ok_or_else(|| {
        let argument = given.map(|given| given.to_string()).unwrap_or_default();
        Error::invalid(
            SqlState::SYNTAX_ERROR,
            format!("syntax error: {name} takes a number of digits, not {argument}"),
        )
    })?;
    let digits = digits_of(digits, &name)?;
    restrict(expr, Restriction { unit: None, digits });
    Ok(())
}

/// The digits of a second that a type keeps; None: all of them.
fn digits_of(digits: u64, name: &str) -> Result<Option<u64>> {
    match digits {
        ALL => Ok(None),
        0..ALL => Ok(Some(digits)),
        _ => Err(Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            format!("type {name}: a second has at most {ALL} digits here"),
        )),
    }
}

/// `INTERVAL 'text' [unit [TO unit]]` as a cast of the text, which our input function reads.
///
/// # Errors
/// 42601 for other values and units; errors of the text.
pub fn interval(expr: &mut Expr) -> Result<()> {
    let Expr::Interval(interval) = expr else {
        return Ok(());
    };
    let written = interval.to_string();
    let refused = || {
        Error::invalid(
            SqlState::SYNTAX_ERROR,
            format!("syntax error in \"{written}\""),
        )
        .with_hint("Write the units within the quotes: INTERVAL '2 weeks'.")
    };
    numbers::restore(&mut interval.value);
    let text = string_of(&interval.value).ok_or_else(refused)?;
    let data_type = type_of(interval).ok_or_else(refused)?;
    let text = Expr::Value(Value::SingleQuotedString(text).into());
    *expr = restricted_cast(text, &data_type)?;
    Ok(())
}

/// The type of an interval with units behind it.
fn type_of(interval: &ast::Interval) -> Option<DataType> {
    use DateTimeField as U;
    use IntervalFields as F;
    let first = interval.leading_field.as_ref();
    let (fields, precision) = match (first, interval.last_field.as_ref()) {
        (None, None) => (None, None),
        (Some(U::Second), None) => (Some(F::Second), interval.leading_precision),
        (Some(_), _) if interval.leading_precision.is_some() => return None,
        (Some(U::Year), None) => (Some(F::Year), None),
        (Some(U::Month), None) => (Some(F::Month), None),
        (Some(U::Day), None) => (Some(F::Day), None),
        (Some(U::Hour), None) => (Some(F::Hour), None),
        (Some(U::Minute), None) => (Some(F::Minute), None),
        (Some(U::Year), Some(U::Month)) => (Some(F::YearToMonth), None),
        (Some(U::Day), Some(U::Hour)) => (Some(F::DayToHour), None),
        (Some(U::Day), Some(U::Minute)) => (Some(F::DayToMinute), None),
        (Some(U::Hour), Some(U::Minute)) => (Some(F::HourToMinute), None),
        (Some(first), Some(U::Second)) => {
            let fields = match first {
                U::Day => F::DayToSecond,
                U::Hour => F::HourToSecond,
                U::Minute => F::MinuteToSecond,
                _ => return None,
            };
            (Some(fields), interval.fractional_seconds_precision)
        }
        _ => return None,
    };
    // `second(2, 3)` is not PostgreSQL's.
    if first == Some(&U::Second) && interval.fractional_seconds_precision.is_some() {
        return None;
    }
    Some(DataType::Interval { fields, precision })
}
