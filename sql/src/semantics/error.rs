//! Carrying Strandline's errors through DataFusion and getting them back.
//!
//! Functions and rules inside DataFusion return [`DataFusionError`]; ours travel inside
//! `External` and come out of [`from_datafusion`] unchanged, with SQLSTATE, detail and hint.
//! Errors that DataFusion or Arrow raise by themselves get the SQLSTATE PostgreSQL would use as
//! far as their variant or message tells.

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use strandline_base::{Error, ErrorKind, SqlState};

/// Wraps an error so that it survives a trip through DataFusion.
pub fn raise(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// An error of the request with `state`, ready to be returned inside DataFusion.
pub fn invalid(state: SqlState, message: impl Into<String>) -> DataFusionError {
    raise(Error::invalid(state, message))
}

/// 22003 with PostgreSQL's wording: `bigint out of range`.
pub fn out_of_range(type_name: &str) -> DataFusionError {
    invalid(
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        format!("{type_name} out of range"),
    )
}

/// 22012.
pub fn division_by_zero() -> DataFusionError {
    invalid(SqlState::DIVISION_BY_ZERO, "division by zero")
}

/// 22003: a numeric result that does not fit 38 digits.
pub fn numeric_overflow() -> DataFusionError {
    raise(
        Error::invalid(
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
            "value overflows numeric format",
        )
        .with_hint("Strandline computes numeric values with at most 38 decimal digits."),
    )
}

/// The engine's error inside `error`, or the closest translation of DataFusion's own.
pub fn from_datafusion(error: DataFusionError) -> Error {
    match own_error(&error) {
        Some(own) => own.clone(),
        None => translate(&error),
    }
}

/// Looks for one of our errors in the chain of causes.
fn own_error(error: &DataFusionError) -> Option<&Error> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(own) = current.downcast_ref::<Error>() {
            return Some(own);
        }
        if let Some(datafusion) = current.downcast_ref::<DataFusionError>()
            && let Some(own) = own_inside(datafusion)
        {
            return Some(own);
        }
        if let Some(ArrowError::ExternalError(inner)) = current.downcast_ref::<ArrowError>() {
            cause = Some(inner.as_ref());
            continue;
        }
        cause = current.source();
    }
    None
}

/// Steps into the variants whose `source` skips what they carry.
fn own_inside(error: &DataFusionError) -> Option<&Error> {
    match error {
        DataFusionError::External(inner) => match inner.downcast_ref::<Error>() {
            Some(own) => Some(own),
            None => inner.downcast_ref::<DataFusionError>().and_then(own_error),
        },
        DataFusionError::Collection(errors) => errors.iter().find_map(own_error),
        DataFusionError::Shared(inner) => own_error(inner),
        _ => None,
    }
}

fn translate(error: &DataFusionError) -> Error {
    let root = error.find_root();
    let message = plain_message(root);
    match root {
        DataFusionError::SQL(..) => {
            let text = message.trim_start_matches("sql parser error: ");
            Error::invalid(SqlState::SYNTAX_ERROR, format!("syntax error: {text}"))
        }
        DataFusionError::SchemaError(schema, _) => translate_schema_error(schema),
        DataFusionError::NotImplemented(_) => Error::unsupported(message),
        DataFusionError::ResourcesExhausted(_) => {
            Error::new(ErrorKind::Unavailable, SqlState::OUT_OF_MEMORY, message)
                .with_hint("Raise memory_bytes, or ask for less at once.")
        }
        DataFusionError::IoError(io) => Error::io("input or output", io),
        DataFusionError::ArrowError(arrow, _) => translate_arrow(arrow, message),
        DataFusionError::Plan(_) => translate_plan(message),
        DataFusionError::Execution(_) => translate_execution(message),
        _ => Error::internal(message),
    }
}

fn translate_schema_error(error: &SchemaError) -> Error {
    match error {
        SchemaError::AmbiguousReference { field } => Error::invalid(
            SqlState::AMBIGUOUS_COLUMN,
            format!("column reference \"{}\" is ambiguous", field.name),
        ),
        SchemaError::FieldNotFound { field, .. } => Error::invalid(
            SqlState::UNDEFINED_COLUMN,
            match &field.relation {
                Some(table) => format!("column {}.{} does not exist", table.table(), field.name),
                None => format!("column \"{}\" does not exist", field.name),
            },
        ),
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => Error::invalid(
            SqlState::DUPLICATE_COLUMN,
            format!("column \"{name}\" specified more than once"),
        ),
    }
}

fn translate_arrow(error: &ArrowError, message: String) -> Error {
    match error {
        ArrowError::DivideByZero => Error::invalid(SqlState::DIVISION_BY_ZERO, "division by zero"),
        ArrowError::ArithmeticOverflow(_) => {
            Error::invalid(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message)
        }
        ArrowError::IoError(_, io) => Error::io("input or output", io),
        _ => Error::invalid(state_of_message(&message), message),
    }
}

fn translate_plan(message: String) -> Error {
    // DataFusion keeps only the text of an error that a function's type resolution raised.
    let own = message.split_once("user-defined coercion failed with: External error: ");
    if let Some((_, rest)) = own {
        let text = rest
            .split_once(" No function matches")
            .map_or(rest, |(text, _)| text);
        let text = text.trim_end_matches('.');
        return Error::invalid(SqlState::UNDEFINED_FUNCTION, text);
    }
    if let Some(known) = known_plan_error(&message) {
        return known;
    }
    let lower = message.to_ascii_lowercase();
    let state = if lower.contains("function") {
        SqlState::UNDEFINED_FUNCTION
    } else if lower.contains("coerce") || lower.contains("type") {
        SqlState::DATATYPE_MISMATCH
    } else {
        SqlState::SYNTAX_ERROR
    };
    Error::invalid(state, message)
}

/// The text between two marks.
fn between<'a>(message: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = message.split_once(before)?;
    rest.split_once(after).map(|(text, _)| text)
}

/// Planning errors that PostgreSQL has its own words for.
fn known_plan_error(message: &str) -> Option<Error> {
    let error = |state, text: String| Some(Error::invalid(state, text));
    if let Some(table) = between(message, "table '", "' not found") {
        let name = table.rsplit('.').next().unwrap_or(table);
        return error(
            SqlState::UNDEFINED_TABLE,
            format!("relation \"{name}\" does not exist"),
        );
    }
    if let Some(name) = between(message, "Invalid function '", "'") {
        return error(
            SqlState::UNDEFINED_FUNCTION,
            format!("function {name} does not exist"),
        );
    }
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

fn translate_execution(message: String) -> Error {
    if message.starts_with("Scalar subquery returned more than one row") {
        return Error::invalid(
            SqlState::CARDINALITY_VIOLATION,
            "more than one row returned by a subquery used as an expression",
        );
    }
    if message.starts_with("negative") && message.contains("not allowed") {
        return Error::invalid(SqlState("22011"), "negative substring length not allowed");
    }
    Error::invalid(state_of_message(&message), message)
}

/// DataFusion reports run-time faults as text only.
fn state_of_message(message: &str) -> SqlState {
    let lower = message.to_ascii_lowercase();
    if lower.contains("divide by zero") {
        SqlState::DIVISION_BY_ZERO
    } else if lower.contains("overflow") || lower.contains("out of range") {
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE
    } else if lower.contains("cast") || lower.contains("parse") {
        SqlState::INVALID_TEXT_REPRESENTATION
    } else {
        SqlState::INVALID_PARAMETER_VALUE
    }
}

/// DataFusion's message without the variant's prefix and without a backtrace.
fn plain_message(error: &DataFusionError) -> String {
    let text = error.strip_backtrace();
    let prefixes = [
        "Error during planning: ",
        "Execution error: ",
        "Schema error: ",
        "SQL error: ",
        "Arrow error: ",
        "This feature is not implemented: ",
        "Resources exhausted: ",
        "Invalid argument error: ",
        "Cast error: ",
        "Parser error: ",
    ];
    let mut rest = text.as_str();
    while let Some(shorter) = prefixes.iter().find_map(|p| rest.strip_prefix(p)) {
        rest = shorter;
    }
    rest.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_errors_survive_every_wrapping() {
        let own = || Error::invalid(SqlState::DIVISION_BY_ZERO, "division by zero").with_hint("h");
        let wrappings = [
            raise(own()),
            raise(own()).context("while computing"),
            DataFusionError::Shared(std::sync::Arc::new(raise(own()))),
            DataFusionError::Collection(vec![raise(own())]),
            DataFusionError::External(Box::new(raise(own()))),
            DataFusionError::ArrowError(
                Box::new(ArrowError::ExternalError(Box::new(raise(own())))),
                None,
            ),
        ];
        for wrapped in wrappings {
            let back = from_datafusion(wrapped);
            assert_eq!(back.sqlstate(), SqlState::DIVISION_BY_ZERO);
            assert_eq!(back.hint(), Some("h"));
        }
    }

    #[test]
    fn foreign_errors_get_a_state() {
        let cases = [
            (
                DataFusionError::ArrowError(Box::new(ArrowError::DivideByZero), None),
                SqlState::DIVISION_BY_ZERO,
            ),
            (
                DataFusionError::NotImplemented("x".into()),
                SqlState::FEATURE_NOT_SUPPORTED,
            ),
            (
                DataFusionError::ResourcesExhausted("x".into()),
                SqlState::OUT_OF_MEMORY,
            ),
            (
                DataFusionError::Plan("table 'a' not found".into()),
                SqlState::UNDEFINED_TABLE,
            ),
        ];
        for (error, state) in cases {
            assert_eq!(from_datafusion(error).sqlstate(), state);
        }
    }
}
