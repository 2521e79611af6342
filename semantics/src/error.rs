//! Converts between DataFusion's errors and ours. A [`DataFusionError`] that reaches the user
//! becomes an [`Error`] with PostgreSQL's SQLSTATE and a message without DataFusion's jargon
//! ("External error:", "Arrow error:", backtraces). Our own errors travel through plans as
//! `DataFusionError::External` and come out unchanged.

use datafusion::arrow::error::ArrowError;
use datafusion::common::SchemaError;
use datafusion::error::DataFusionError;
use datafusion::parquet::errors::ParquetError;
use datafusion::sql::sqlparser::parser::ParserError;
use strandline_base::{Error, ErrorKind, SqlState};

mod known;
mod raise;
#[cfg(test)]
mod tests;
mod wording;

pub use raise::{division_by_zero, invalid, numeric_overflow, out_of_range, raise};

/// The user's error for `error`.
pub fn convert(error: DataFusionError) -> Error {
    match error {
        DataFusionError::External(inner) => external(inner.as_ref()),
        other => from_ref(&other),
    }
}

fn from_ref(error: &DataFusionError) -> Error {
    match error {
        DataFusionError::External(inner) => external(inner.as_ref()),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            from_ref(inner)
        }
        DataFusionError::Shared(inner) => from_ref(inner),
        DataFusionError::Collection(errors) => errors.first().map_or_else(
            || Error::internal("an empty collection of errors"),
            from_ref,
        ),
        DataFusionError::ArrowError(inner, _) => from_arrow(inner),
        DataFusionError::ParquetError(inner) => from_parquet(inner),
        DataFusionError::ObjectStore(inner) => from_source(inner.as_ref()),
        DataFusionError::IoError(inner) => Error::io("reading or writing a file", inner),
        DataFusionError::SQL(inner, _) => from_parser(inner),
        DataFusionError::SchemaError(inner, _) => from_schema(inner),
        DataFusionError::NotImplemented(text) => {
            let text = clean(text).0;
            known::unimplemented(&text)
                .unwrap_or_else(|| Error::unsupported(wording::of_sql(&text)))
        }
        DataFusionError::Plan(text) | DataFusionError::Configuration(text) => from_plan(text),
        DataFusionError::Execution(text) => from_execution(text),
        DataFusionError::ResourcesExhausted(text) => out_of_memory(text),
        DataFusionError::ExecutionJoin(inner) => {
            Error::internal(format!("a query task ended abnormally: {inner}"))
        }
        DataFusionError::Internal(text)
        | DataFusionError::Substrait(text)
        | DataFusionError::Ffi(text) => from_internal(text),
    }
}

fn external(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Error {
    if let Some(ours) = error.downcast_ref::<Error>() {
        return ours.clone();
    }
    if let Some(inner) = error.downcast_ref::<DataFusionError>() {
        return from_ref(inner);
    }
    if let Some(inner) = error.downcast_ref::<ArrowError>() {
        return from_arrow(inner);
    }
    from_source(error)
}

/// Walks a chain of sources for an error of the operating system or one of ours.
fn from_source(error: &(dyn std::error::Error + 'static)) -> Error {
    let mut source = Some(error);
    while let Some(current) = source {
        if let Some(ours) = current.downcast_ref::<Error>() {
            return ours.clone();
        }
        if let Some(io) = current.downcast_ref::<std::io::Error>() {
            return Error::io("reading or writing a file", io);
        }
        source = current.source();
    }
    if let Some(error) = wording::regular_expression(&error.to_string()) {
        return error;
    }
    Error::new(
        ErrorKind::Unavailable,
        SqlState::IO_ERROR,
        error.to_string(),
    )
}

/// The user's error for an error of an Arrow kernel.
pub fn from_arrow(error: &ArrowError) -> Error {
    match error {
        ArrowError::DivideByZero => Error::invalid(SqlState::DIVISION_BY_ZERO, "division by zero"),
        ArrowError::ArithmeticOverflow(_) => {
            Error::invalid(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range")
        }
        ArrowError::ExternalError(inner) => external(inner.as_ref()),
        ArrowError::CastError(text) | ArrowError::ParseError(text) => from_cast(text),
        ArrowError::IoError(text, inner) => Error::io(text, inner),
        ArrowError::CsvError(text) | ArrowError::JsonError(text) => {
            Error::invalid(SqlState::BAD_COPY_FILE_FORMAT, clean(text).0)
        }
        ArrowError::NotYetImplemented(text) => Error::unsupported(clean(text).0),
        ArrowError::InvalidArgumentError(text) | ArrowError::ComputeError(text) => {
            from_execution(text)
        }
        ArrowError::MemoryError(text) => out_of_memory(text),
        other => Error::internal(wording::of_sql(&other.to_string())),
    }
}

fn from_parquet(error: &ParquetError) -> Error {
    match error {
        ParquetError::External(inner) => external(inner.as_ref()),
        ParquetError::NYI(text) => Error::unsupported(text.clone()),
        other => Error::invalid(
            SqlState::BAD_COPY_FILE_FORMAT,
            format!("the Parquet file cannot be read: {other}"),
        ),
    }
}

/// A syntax error in the parser's words.
pub fn from_parser(error: &ParserError) -> Error {
    match error {
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => {
            let text = text.strip_prefix("sql parser error: ").unwrap_or(text);
            let text = text
                .rsplit_once(" at Line: ")
                .map_or(text, |(text, _)| text);
            Error::invalid(SqlState::SYNTAX_ERROR, format!("syntax error: {text}"))
        }
        ParserError::RecursionLimitExceeded => {
            Error::invalid(SqlState("54001"), "the statement is nested too deeply")
        }
    }
}

/// The line and column at the end of the parser's text.
pub fn parser_s_place(error: &ParserError) -> Option<(u64, u64)> {
    let (ParserError::TokenizerError(text) | ParserError::ParserError(text)) = error else {
        return None;
    };
    let (_, place) = text.rsplit_once(" at Line: ")?;
    let (line, column) = place.split_once(", Column: ")?;
    Some((line.parse().ok()?, column.parse().ok()?))
}

fn from_schema(error: &SchemaError) -> Error {
    match error {
        SchemaError::AmbiguousReference { field } => Error::invalid(
            SqlState::AMBIGUOUS_COLUMN,
            format!("column reference \"{}\" is ambiguous", field.name),
        ),
        SchemaError::DuplicateQualifiedField { qualifier, name } => Error::invalid(
            SqlState::DUPLICATE_COLUMN,
            format!(
                "column \"{name}\" of \"{}\" occurs more than once",
                qualifier.table()
            ),
        )
        .with_hint("Give each table in FROM an alias of its own."),
        SchemaError::DuplicateUnqualifiedField { name } => Error::invalid(
            SqlState::DUPLICATE_COLUMN,
            format!("column \"{name}\" specified more than once"),
        ),
        SchemaError::FieldNotFound {
            field,
            valid_fields,
        } => undefined_column(field, valid_fields),
    }
}

fn undefined_column(
    field: &datafusion::common::Column,
    valid: &[datafusion::common::Column],
) -> Error {
    let shown = match &field.relation {
        Some(relation) => {
            let known = valid.iter().any(|v| {
                v.relation
                    .as_ref()
                    .is_some_and(|r| r.table() == relation.table())
            });
            if !known && !valid.is_empty() {
                return Error::invalid(
                    SqlState::UNDEFINED_TABLE,
                    format!(
                        "missing FROM-clause entry for table \"{}\"",
                        relation.table()
                    ),
                );
            }
            format!("column {}.{} does not exist", relation.table(), field.name)
        }
        None => format!("column \"{}\" does not exist", field.name),
    };
    let error = Error::invalid(SqlState::UNDEFINED_COLUMN, shown);
    let wanted = field.name.to_lowercase();
    let near = valid.iter().find(|v| {
        let name = v.name.to_lowercase();
        name == wanted || (wanted.len() > 3 && within_one_edit(&name, &wanted))
    });
    match near {
        Some(v) => match &v.relation {
            Some(relation) => error.with_hint(format!(
                "Perhaps you meant to reference the column \"{}.{}\".",
                relation.table(),
                v.name
            )),
            None => error.with_hint(format!(
                "Perhaps you meant to reference the column \"{}\".",
                v.name
            )),
        },
        None => error,
    }
}

/// Whether one insertion, deletion or replacement turns `a` into `b`.
fn within_one_edit(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let prefix = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let suffix = a[prefix..]
        .iter()
        .rev()
        .zip(b[prefix..].iter().rev())
        .take_while(|(x, y)| x == y)
        .count();
    a.len().max(b.len()) - prefix - suffix <= 1
}

fn from_plan(text: &str) -> Error {
    let (message, hint) = clean(text);
    if let Some(name) = between(&message, "table '", "' not found") {
        let name = name.rsplit('.').next().unwrap_or(name);
        return Error::invalid(
            SqlState::UNDEFINED_TABLE,
            format!("relation \"{name}\" does not exist"),
        );
    }
    if let Some(name) = between(&message, "table function '", "' not found")
        .or_else(|| between(&message, "Invalid function '", "'"))
    {
        let error = Error::invalid(
            SqlState::UNDEFINED_FUNCTION,
            format!("function {name} does not exist"),
        );
        if WINDOW_FUNCTIONS.contains(&name) {
            return Error::invalid(
                SqlState::WRONG_OBJECT_TYPE,
                format!("window function {name} requires an OVER clause"),
            );
        }
        return match hint.as_deref().and_then(|hint| near_miss(name, hint)) {
            Some(near) => error.with_hint(format!(
                "Perhaps you meant to call the function \"{near}\"."
            )),
            None => error,
        };
    }
    // DataFusion keeps only the text of an error that a function's type resolution raised.
    if let Some((_, own)) = message.split_once("coercion failed with: External error: ") {
        let own = own
            .split_once(" No function matches")
            .map_or(own, |(own, _)| own);
        let own = wording::of_call(own.trim_end_matches('.'));
        return Error::invalid(SqlState::UNDEFINED_FUNCTION, own);
    }
    if let Some(schema) = message.strip_prefix("failed to resolve schema: ") {
        return Error::invalid(
            SqlState::INVALID_SCHEMA_NAME,
            format!("schema \"{schema}\" does not exist"),
        );
    }
    if let Some(error) = known::plan_error(&message) {
        return error;
    }
    let state = plan_state(&message);
    let message = wording::of_sql(&message);
    match state == SqlState::FEATURE_NOT_SUPPORTED {
        true => Error::unsupported(message),
        false => Error::invalid(state, message),
    }
}

/// Functions that require OVER.
const WINDOW_FUNCTIONS: &[&str] = &[
    "row_number",
    "rank",
    "dense_rank",
    "percent_rank",
    "cume_dist",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
];

/// The name in DataFusion's "Did you mean 'pi'?", if it differs little from `name`.
fn near_miss<'h>(name: &str, hint: &'h str) -> Option<&'h str> {
    let near = between(hint, "'", "'")?;
    (name.chars().count() > 3 && within_one_edit(near, name)).then_some(near)
}

fn plan_state(message: &str) -> SqlState {
    const STATES: &[(&str, SqlState)] = &[
        ("Unsupported", SqlState::FEATURE_NOT_SUPPORTED),
        ("not supported", SqlState::FEATURE_NOT_SUPPORTED),
        ("not implemented", SqlState::FEATURE_NOT_SUPPORTED),
        (
            "does not support zero arguments",
            SqlState::UNDEFINED_FUNCTION,
        ),
        ("No function matches", SqlState::UNDEFINED_FUNCTION),
        ("Failed to coerce arguments", SqlState::UNDEFINED_FUNCTION),
        ("annot coerce", SqlState::DATATYPE_MISMATCH),
        ("Cannot infer common", SqlState::DATATYPE_MISMATCH),
        ("GROUP BY", SqlState("42803")),
        ("group by", SqlState("42803")),
        ("No field named", SqlState::UNDEFINED_COLUMN),
        ("placeholder", SqlState::UNDEFINED_PARAMETER),
        ("Placeholder", SqlState::UNDEFINED_PARAMETER),
    ];
    STATES
        .iter()
        .find(|(part, _)| message.contains(part))
        .map_or(SqlState::SYNTAX_ERROR, |(_, state)| *state)
}

fn from_execution(text: &str) -> Error {
    let (message, _) = clean(text);
    let known = known::execution_error(&message);
    if let Some(error) = known.or_else(|| wording::regular_expression(&message)) {
        return error;
    }
    let lower = message.to_lowercase();
    if lower.contains("divide by zero") || lower.contains("division by zero") {
        return Error::invalid(SqlState::DIVISION_BY_ZERO, "division by zero");
    }
    if lower.contains("overflow") || lower.contains("out of range") {
        return Error::invalid(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message);
    }
    if lower.contains("subquery returned more than one row")
        || lower.contains("more than one row returned")
    {
        return Error::invalid(
            SqlState::CARDINALITY_VIOLATION,
            "more than one row returned by a subquery used as an expression",
        );
    }
    if lower.contains("cast") || lower.contains("parsing") || lower.contains("parse") {
        return from_cast(&message);
    }
    Error::invalid(SqlState::INVALID_PARAMETER_VALUE, wording::of_sql(&message))
}

/// Converts Arrow's cast errors, which have value and type: `Cannot cast string 'x' to value of
/// Int64 type`.
fn from_cast(text: &str) -> Error {
    let (message, _) = clean(text);
    if let Some(error) = wording::regular_expression(&message) {
        return error;
    }
    let parts = between(&message, "Cannot cast string '", "' to value of ").zip(between(
        &message,
        "' to value of ",
        " type",
    ));
    if let Some((value, arrow)) = parts {
        if arrow.starts_with("UInt") && value.starts_with('-') {
            return Error::invalid(
                SqlState("22013"),
                "the offset of a window's frame must not be negative",
            );
        }
        let name = match arrow {
            "Boolean" => "boolean",
            "Int16" => "smallint",
            "Int32" => "integer",
            "Int64" => "bigint",
            "Float32" => "real",
            "Float64" => "double precision",
            "Date32" => "date",
            other if other.starts_with("UInt") => "bigint",
            other if other.starts_with("Decimal") => "numeric",
            other if other.starts_with("Timestamp") => "timestamp",
            other => other,
        };
        return Error::invalid(
            SqlState::INVALID_TEXT_REPRESENTATION,
            format!("invalid input syntax for type {name}: \"{value}\""),
        );
    }
    let message = wording::of_sql(&message);
    if message.contains("timestamp") || message.contains("date") || message.contains("Date") {
        return Error::invalid(SqlState::INVALID_DATETIME_FORMAT, message);
    }
    if message.contains("out of range") || message.contains("too large") {
        return Error::invalid(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, message);
    }
    Error::invalid(SqlState::INVALID_TEXT_REPRESENTATION, message)
}

fn from_internal(text: &str) -> Error {
    Error::internal(wording::of_sql(&clean(text).0))
}

fn out_of_memory(text: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        SqlState::OUT_OF_MEMORY,
        "the query needs more memory than memory_bytes leaves to queries",
    )
    .with_detail(clean(text).0)
    .with_hint("Raise memory_bytes when opening the database, or let the query keep fewer rows.")
}

/// The message without DataFusion's prefixes and backtrace, and its "Did you mean" as a hint.
fn clean(text: &str) -> (String, Option<String>) {
    let mut text = text.split("\n\nbacktrace:").next().unwrap_or(text).trim();
    if let Some(at) = text.find("This issue was likely caused by a bug in DataFusion") {
        text = text[..at].trim_end_matches(['.', '\n', ' ']);
    }
    const PREFIXES: &[&str] = &[
        "External error: ",
        "Execution error: ",
        "Error during planning: ",
        "Arrow error: ",
        "Compute error: ",
        "Cast error: ",
        "Parser error: ",
        "Invalid argument error: ",
        "Optimizer rule ",
        "type_coercion\ncaused by\n",
        "Internal error: ",
    ];
    while let Some(rest) = PREFIXES.iter().find_map(|p| text.strip_prefix(p)) {
        text = rest;
    }
    match text.split_once('\n') {
        Some((first, rest)) if rest.trim_start().starts_with("Did you mean") => {
            let first = first.trim_end_matches('.');
            (first.to_string(), Some(rest.trim().to_string()))
        }
        _ => (text.to_string(), None),
    }
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let start = text.find(before)? + before.len();
    let len = text[start..].find(after)?;
    Some(&text[start..start + len])
}
