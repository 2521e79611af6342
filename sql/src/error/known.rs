//! Errors that DataFusion reports as text and PostgreSQL has its own words for.

use super::between;
use strandline_base::{Error, SqlState};

/// Planning errors that PostgreSQL has its own words for.
pub fn plan_error(message: &str) -> Option<Error> {
    let error = |state, text: String| Some(Error::invalid(state, text));
    if let Some(call) = between(message, "the given name and argument types '", "'") {
        let call = with_sql_types(call);
        return error(
            SqlState::UNDEFINED_FUNCTION,
            format!("function {call} does not exist"),
        );
    }
    if message.starts_with("Column in ") && message.contains("must be in GROUP BY") {
        let column = between(message, "column \"", "\"").unwrap_or("?");
        return error(
            GROUPING_ERROR,
            format!(
                "column \"{column}\" must appear in the GROUP BY clause or be used in an \
                 aggregate function"
            ),
        );
    }
    if message.starts_with("Aggregate functions are not allowed in the WHERE") {
        return error(
            GROUPING_ERROR,
            "aggregate functions are not allowed in WHERE".into(),
        );
    }
    if let Some((_, returning)) = message.split_once("non-boolean predicate") {
        let given = returning.rsplit("returning ").next().unwrap_or_default();
        return error(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "argument of WHERE must be type boolean, not type {}",
                with_sql_types(given)
            ),
        );
    }
    if let Some((_, given)) = message.split_once("'NOT' requires a boolean expression, got ") {
        return error(
            SqlState::DATATYPE_MISMATCH,
            format!(
                "argument of NOT must be type boolean, not type {}",
                with_sql_types(given)
            ),
        );
    }
    None
}

/// grouping_error
const GROUPING_ERROR: SqlState = SqlState("42803");

/// Arrow's type names in a message as SQL's.
fn with_sql_types(text: &str) -> String {
    let names = [
        ("Utf8View", "text"),
        ("LargeUtf8", "text"),
        ("Utf8", "text"),
        ("Int16", "smallint"),
        ("Int32", "integer"),
        ("Int64", "bigint"),
        ("Float32", "real"),
        ("Float64", "double precision"),
        ("Boolean", "boolean"),
        ("Date32", "date"),
        ("BinaryView", "bytea"),
        ("FixedSizeBinary(16)", "uuid"),
        ("Time64(µs)", "time without time zone"),
        ("Timestamp(µs, \"+00:00\")", "timestamp with time zone"),
        ("Timestamp(µs)", "timestamp without time zone"),
        ("Interval(MonthDayNano)", "interval"),
    ];
    names.iter().fold(text.to_string(), |text, (arrow, sql)| {
        text.replace(arrow, sql)
    })
}

/// A run-time error of one of DataFusion's functions.
pub fn execution_error(message: &str) -> Option<Error> {
    let negative_length = message.starts_with("negative") && message.contains("not allowed");
    negative_length
        .then(|| Error::invalid(SqlState("22011"), "negative substring length not allowed"))
}
