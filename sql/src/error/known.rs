//! Errors that DataFusion reports as text and PostgreSQL has its own words for.

use super::between;
use crate::semantics::sql::output_name;
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
        let column = between(message, "column \"", "\"").map_or("?", output_name);
        return error(
            GROUPING_ERROR,
            format!(
                "column \"{column}\" must appear in the GROUP BY clause or be used in an \
                 aggregate function"
            ),
        );
    }
    if let Some(error) = of_clause(message) {
        return Some(error);
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

/// Faults of one clause.
fn of_clause(message: &str) -> Option<Error> {
    let part = |before, after| between(message, before, after).unwrap_or("?");
    let begins = |start| message.starts_with(start);
    let (state, text) = if let Some(name) = message.strip_prefix("Invalid qualifier ") {
        (
            "42P01",
            format!("missing FROM-clause entry for table \"{name}\""),
        )
    } else if begins("Aggregate function calls cannot be nested") {
        (
            "42803",
            "aggregate function calls cannot be nested".to_string(),
        )
    } else if begins("Order by column out of bounds") {
        let position = part("specified: ", ",");
        (
            "42P10",
            format!("ORDER BY position {position} is not in select list"),
        )
    } else if begins("Cannot find column with position ") {
        let position = part("with position ", " in");
        (
            "42P10",
            format!("GROUP BY position {position} is not in select list"),
        )
    } else if begins("Too many columns! The subquery") {
        ("42601", "subquery must return only one column".to_string())
    } else if begins("Source table contains ") {
        let (columns, names) = (part("contains ", " columns"), part("only ", " names"));
        (
            "42P10",
            format!("the table has {columns} columns but {names} column names are given for it"),
        )
    } else if begins("Inconsistent data length across values list") {
        (
            "42601",
            "VALUES lists must all be the same length".to_string(),
        )
    } else if begins("The window ") {
        (
            "42704",
            format!(
                "window \"{}\" does not exist",
                part("The window ", " is not")
            ),
        )
    } else if begins("LIMIT must be >= 0") {
        ("2201W", "LIMIT must not be negative".to_string())
    } else if begins("OFFSET must be >=") {
        ("2201X", "OFFSET must not be negative".to_string())
    } else if message.contains("queries have different number of columns") {
        let operation = message.split(' ').next().unwrap_or("UNION");
        (
            "42601",
            format!("each {operation} query must have the same number of columns"),
        )
    } else if begins("INTERSECT/EXCEPT query must have the same number of columns") {
        (
            "42601",
            "each INTERSECT or EXCEPT query must have the same number of columns".to_string(),
        )
    } else {
        return of_operator(message);
    };
    Some(Error::invalid(SqlState(state), text))
}

/// Operands of types that an operator does not take.
fn of_operator(message: &str) -> Option<Error> {
    let logical = "argument type for logical boolean operation ";
    let (state, text) = if let Some((_, operation)) = message.split_once(logical) {
        let mut words = operation.split(' ');
        let (left, operator, right) = (words.next()?, words.next()?, words.next()?);
        let given = if left == "Boolean" { right } else { left };
        (
            SqlState::DATATYPE_MISMATCH,
            format!(
                "argument of {operator} must be type boolean, not type {}",
                with_sql_types(given)
            ),
        )
    } else if message.starts_with("Unary operator '-' only supports") {
        (
            SqlState::UNDEFINED_FUNCTION,
            "operator - does not exist for the type of its operand".to_string(),
        )
    } else {
        let given = message.strip_prefix("Expected LIMIT to be an integer or null, but got ")?;
        (
            SqlState::DATATYPE_MISMATCH,
            format!(
                "argument of LIMIT must be type bigint, not type {}",
                with_sql_types(given)
            ),
        )
    };
    Some(Error::invalid(state, text))
}

/// What DataFusion has not implemented, in words of SQL.
pub fn unimplemented(message: &str) -> Option<Error> {
    let form = message.strip_prefix("Physical plan does not support logical expression ")?;
    if form.starts_with("ScalarSubquery") {
        return Some(
            Error::unsupported("a correlated subquery of this form is not supported").with_hint(
                "Compare the outer query's columns with = only, or write a join with GROUP BY.",
            ),
        );
    }
    if form.starts_with("OuterReferenceColumn") {
        return Some(
            Error::unsupported(
                "a subquery in FROM that refers to the tables beside it is not supported",
            )
            .with_hint("Join the tables, with row_number() or GROUP BY to choose among the rows."),
        );
    }
    let condition = ["Exists", "InSubquery", "SetComparison"];
    condition
        .iter()
        .any(|name| form.starts_with(name))
        .then(|| {
            Error::unsupported(
                "EXISTS, IN, ANY or ALL over a subquery is not supported in this place",
            )
            .with_hint("Use it in a condition of WHERE, or write a join.")
        })
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
    let text = names.iter().fold(text.to_string(), |text, (arrow, sql)| {
        text.replace(arrow, sql)
    });
    ["Decimal64", "Decimal128"]
        .iter()
        .fold(text, |text, decimal| {
            without_spaces(&text.replace(decimal, "numeric"))
        })
}

/// `numeric(5, 2)` as PostgreSQL writes it, `numeric(5,2)`.
fn without_spaces(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("numeric(") {
        let end = rest[at..].find(')').map_or(rest.len(), |n| at + n);
        out.push_str(&rest[..at]);
        out.push_str(&rest[at..end].replace(' ', ""));
        rest = &rest[end..];
    }
    out + rest
}

/// A run-time error of one of DataFusion's functions.
pub fn execution_error(message: &str) -> Option<Error> {
    let negative_length = message.starts_with("negative") && message.contains("not allowed");
    negative_length
        .then(|| Error::invalid(SqlState("22011"), "negative substring length not allowed"))
}
