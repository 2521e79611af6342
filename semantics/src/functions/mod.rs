//! SQL functions that DataFusion lacks or computes differently from PostgreSQL.
//!
//! A function is a list of [`Overload`]s. A call takes the overload that needs the fewest implicit
//! casts (integer → bigint → numeric → double precision, date → timestamp → timestamptz, an open
//! literal → anything); without one it is 42883. Most functions are strict: a NULL argument makes
//! the result NULL.

mod alternatives;
mod arrays;
mod bits;
mod date_units;
mod degrees;
mod encoding;
mod format;
mod format_text;
mod geometry;
mod integers;
mod json;
mod json_value;
mod lists;
mod make_interval;
mod math;
mod moment;
mod number_pattern;
mod overload;
mod pattern;
mod quantified;
mod regular;
mod roman;
mod rounding;
pub mod series;
mod subscripts;
mod system;
mod system_types;
mod temporal;
mod text;
mod unsigned_zero;

pub use geometry::SpatialOperator;
pub use make_interval::NAMES as MAKE_INTERVAL_NAMES;
pub use moment::moment_of;
pub use overload::Function;
pub use regular::translated as translated_pattern;
pub use rounding::restricted_interval;
pub use subscripts::{ITEM as ARRAY_ITEM, PART as ARRAY_PART};
pub use system_types::SYSTEM_TYPES;
pub use unsigned_zero::{as_signed, as_signed_physical, is_unsigned, unsigned_zero};

use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Expr, ScalarUDF};
use std::sync::Arc;

/// Every function of this module.
pub fn functions() -> Vec<Arc<ScalarUDF>> {
    [
        text::functions(),
        math::functions(),
        temporal::functions(),
        date_units::functions(),
        json::functions(),
    ]
    .into_iter()
    .chain([
        arrays::functions(),
        lists::functions(),
        regular::functions(),
        integers::functions(),
        rounding::functions(),
        subscripts::functions(),
        encoding::functions(),
        bits::functions(),
        make_interval::functions(),
        degrees::functions(),
        format_text::functions(),
        format::functions(),
        system::functions(),
        geometry::functions(),
    ])
    .flatten()
    .map(Function::into_udf)
    .chain(alternatives::functions())
    .chain(moment::functions())
    .chain(quantified::functions())
    .chain(system_types::functions())
    .map(Arc::new)
    .collect()
}

fn call(function: Function, args: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(function.into_udf()), args))
}

/// `value -> key`
pub fn json_get(value: Expr, key: Expr) -> Expr {
    call(json::get(), vec![value, key])
}

/// `value ->> key`
pub fn json_get_text(value: Expr, key: Expr) -> Expr {
    call(json::get_text(), vec![value, key])
}

/// A text that is valid json, as json.
pub fn as_json(value: Expr) -> Expr {
    call(json::as_json(), vec![value])
}

/// `value #> path` and, as text, `value #>> path`
pub fn json_path(value: Expr, path: Expr, as_text: bool) -> Expr {
    call(json::path(as_text), vec![value, path])
}

/// The operator between points and boxes.
pub fn spatial(operator: SpatialOperator, left: Expr, right: Expr) -> Expr {
    call(operator.function(), vec![left, right])
}

/// `ARRAY[…]`
pub fn array(items: Vec<Expr>) -> Expr {
    alternatives::array(items)
}

/// `EXTRACT(unit FROM value)`
pub fn extract(unit: Expr, value: Expr) -> Expr {
    call(date_units::extract(), vec![unit, value])
}

/// The text of a char(n) without its trailing blanks.
pub fn trim_blanks(value: Expr) -> Expr {
    call(text::trim_blanks(), vec![value])
}

/// The argument of [`trim_blanks`], if `expr` is a call of it.
pub fn trimmed_of_blanks(expr: &Expr) -> Option<&Expr> {
    let Expr::ScalarFunction(call) = expr else {
        return None;
    };
    let is_trim = call.func.inner().is::<Function>() && call.func.name() == text::TRIM_BLANKS;
    call.args.first().filter(|_| is_trim)
}

/// A number that orders intervals as PostgreSQL does: a month is 30 days, a day 24 hours.
pub fn interval_order(value: Expr) -> Expr {
    call(temporal::interval_order(), vec![value])
}

/// A PostgreSQL regular expression in the syntax of the engine's library.
pub fn regular_pattern(text: Expr) -> Expr {
    call(regular::pattern(), vec![text])
}

/// The position of the first NULL in an array; NULL without one.
pub fn position_of_null(array: Expr) -> Expr {
    let null = Expr::Literal(datafusion::scalar::ScalarValue::Null, None);
    call(lists::position_function(), vec![array, null])
}
