//! Errors that DataFusion reports as text, in PostgreSQL's words.

use super::between;
use super::wording::{of_call, with_sql_types};
use crate::output_names::output_name;
use strandline_base::{Error, SqlState};

/// Planning errors in PostgreSQL's words.
pub fn plan_error(message: &str) -> Option<Error> {
    let error = |state, text: String| Some(Error::invalid(state, text));
    if let Some(call) = between(message, "the given name and argument types '", "'") {
        let call = with_sql_types(call);
        return error(
            SqlState::UNDEFINED_FUNCTION,
            of_call(&format!("function {call} does not exist")),
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
    if let Some(error) = of_clause(message).or_else(|| of_types(message)) {
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

/// Beginnings of messages, with the SQLSTATE and PostgreSQL's words.
const WORDS: &[(&str, &str, &str)] = &[
    (
        "Aggregate function calls cannot be nested",
        "42803",
        "aggregate function calls cannot be nested",
    ),
    (
        "Order by index starts at 1",
        "42P10",
        "ORDER BY position 0 is not in select list",
    ),
    (
        "For SELECT DISTINCT, ORDER BY expressions",
        "42P10",
        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
    ),
    (
        "HAVING clause references",
        "42803",
        "columns in HAVING must appear in the GROUP BY clause or be used in an aggregate function",
    ),
    (
        "Too many columns! The subquery",
        "42601",
        "subquery must return only one column",
    ),
    (
        "Inconsistent data length across values list",
        "42601",
        "VALUES lists must all be the same length",
    ),
    (
        "Invalid window frame: start bound cannot be UNBOUNDED FOLLOWING",
        "42P20",
        "frame start cannot be UNBOUNDED FOLLOWING",
    ),
    (
        "Percentile value must be",
        "22003",
        "a percentile must be a number from 0 to 1",
    ),
    (
        "unnest() can only be applied to",
        "42883",
        "unnest takes an array",
    ),
    ("LIMIT must be >= 0", "2201W", "LIMIT must not be negative"),
    ("OFFSET must be >=", "2201X", "OFFSET must not be negative"),
    (
        "INTERSECT/EXCEPT query must have the same number of columns",
        "42601",
        "each INTERSECT or EXCEPT query must have the same number of columns",
    ),
];

/// Errors of one clause.
fn of_clause(message: &str) -> Option<Error> {
    let known = WORDS.iter().find(|(start, ..)| message.starts_with(start));
    if let Some((_, state, text)) = known {
        return Some(Error::invalid(SqlState(state), *text));
    }
    let part = |before, after| between(message, before, after).unwrap_or("?");
    let begins = |start| message.starts_with(start);
    let (state, text) = if let Some(name) = message.strip_prefix("Invalid qualifier ") {
        (
            "42P01",
            format!("missing FROM-clause entry for table \"{name}\""),
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
    } else if begins("Source table contains ") {
        let (columns, names) = (part("contains ", " columns"), part("only ", " names"));
        (
            "42P10",
            format!("the table has {columns} columns but {names} column names are given for it"),
        )
    } else if message.contains("queries have different number of columns") {
        let operation = message.split(' ').next().unwrap_or("UNION");
        (
            "42601",
            format!("each {operation} query must have the same number of columns"),
        )
    } else {
        return of_name(message).or_else(|| of_operator(message));
    };
    Some(Error::invalid(SqlState(state), text))
}

/// Names and words that a clause does not accept.
fn of_name(message: &str) -> Option<Error> {
    let part = |before, after| between(message, before, after).unwrap_or("?");
    let begins = |start| message.starts_with(start);
    let (state, text) = if begins("The window ") {
        (
            "42704",
            format!(
                "window \"{}\" does not exist",
                part("The window ", " is not")
            ),
        )
    } else if begins("WITH query name ") {
        ("42712", message.to_string())
    } else if begins("RANGE requires exactly one ORDER BY") {
        ("42P20", message.to_string())
    } else if begins("There is no built-in encoding named ") {
        (
            "22023",
            format!("unrecognized encoding: \"{}\"", part("named '", "'")),
        )
    } else if message.contains("to grouping function is not in grouping columns") {
        (
            "42803",
            "arguments to GROUPING must be grouping expressions of the associated query level"
                .to_string(),
        )
    } else {
        return None;
    };
    Some(Error::invalid(SqlState(state), text))
}

/// Values of incompatible types.
fn of_types(message: &str) -> Option<Error> {
    let typed = with_sql_types(message);
    let part = |before, after| between(&typed, before, after);
    let (state, text) = if let Some(operation) = typed
        .strip_prefix("Cannot infer common ")
        .and_then(|rest| rest.split_once(" operation "))
        .map(|(_, operation)| operation)
    {
        match operation.split_once(" IS ") {
            Some((given, truth)) if truth.ends_with("DISTINCT FROM boolean") => (
                SqlState::DATATYPE_MISMATCH,
                format!("argument of IS TRUE must be type boolean, not type {given}"),
            ),
            _ => (
                SqlState::UNDEFINED_FUNCTION,
                format!("operator does not exist: {operation}"),
            ),
        }
    } else if let Some(types) = part("There isn't a common type to coerce ", " in LIKE") {
        (
            SqlState::UNDEFINED_FUNCTION,
            format!(
                "operator does not exist: {}",
                types.replace(" and ", " ~~ ")
            ),
        )
    } else if let Some(given) = typed.strip_prefix("Join condition must be boolean type, but got ")
    {
        (
            SqlState::DATATYPE_MISMATCH,
            format!("argument of JOIN/ON must be type boolean, not type {given}"),
        )
    } else if let Some((one, other)) = part("Previous inputs were of type ", ", but got")
        .zip(part("got incompatible type ", " on column"))
    {
        (
            SqlState::DATATYPE_MISMATCH,
            format!("types {one} and {other} of the queries' columns cannot be matched"),
        )
    } else if let Some((one, other)) =
        part("expr type ", " can't cast").zip(part("can't cast to ", " in SetComparison"))
    {
        (
            SqlState::UNDEFINED_FUNCTION,
            format!("values of type {one} cannot be compared with those of type {other}"),
        )
    } else if let Some(given) = part("Cannot access field at argument 1: type ", " is not") {
        (
            SqlState::WRONG_OBJECT_TYPE,
            format!("a value of type {given} has no fields"),
        )
    } else if typed.contains("failed to match any signature") {
        let name = part("Function '", "'").unwrap_or("?");
        (
            SqlState::UNDEFINED_FUNCTION,
            format!("function {name} does not exist for these arguments"),
        )
    } else {
        return None;
    };
    Some(Error::invalid(state, text))
}

/// Operands of types that an operator does not accept.
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

/// Features that DataFusion has not implemented, in words of SQL.
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
    if form.starts_with("WindowFunction") {
        return Some(
            Error::invalid(
                SqlState("42P20"),
                "window functions are not allowed in this place",
            )
            .with_hint("Compute them in a subquery in FROM."),
        );
    }
    let condition = ["Exists", "InSubquery", "SetComparison"];
    Some(match condition.iter().any(|name| form.starts_with(name)) {
        true => Error::unsupported(
            "EXISTS, IN, ANY or ALL over a subquery is not supported in this place",
        )
        .with_hint("Use it in a condition of WHERE, or write a join."),
        false => Error::unsupported("an expression of this form is not supported in this place"),
    })
}

/// grouping_error
const GROUPING_ERROR: SqlState = SqlState("42803");

/// A run-time error of one of DataFusion's functions.
pub fn execution_error(message: &str) -> Option<Error> {
    if let Some(error) = of_types(message) {
        return Some(error);
    }
    if message == "NTILE requires a positive integer" {
        return Some(Error::invalid(
            SqlState("22014"),
            "argument of ntile must be greater than zero",
        ));
    }
    let negative_length = message.starts_with("negative") && message.contains("not allowed");
    negative_length
        .then(|| Error::invalid(SqlState("22011"), "negative substring length not allowed"))
}
