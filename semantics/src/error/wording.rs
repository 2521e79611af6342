//! SQL's words for the terms of DataFusion, Arrow and the parser: types, and pieces of syntax
//! trees.

use strandline_base::{Error, SqlState};

/// Arrow's type names. A name that contains another one comes first.
const TYPES: [(&str, &str); 29] = [
    ("FixedSizeList(2 x Float64)", "point"),
    ("FixedSizeList(4 x Float64)", "box"),
    ("LargeUtf8", "text"),
    ("Utf8View", "text"),
    ("Utf8", "text"),
    ("UInt16", "integer"),
    ("UInt32", "bigint"),
    ("UInt64", "bigint"),
    ("UInt8", "smallint"),
    ("Int16", "smallint"),
    ("Int32", "integer"),
    ("Int64", "bigint"),
    ("Int8", "smallint"),
    ("Float16", "real"),
    ("Float32", "real"),
    ("Float64", "double precision"),
    ("Boolean", "boolean"),
    ("Date32", "date"),
    ("Date64", "date"),
    ("FixedSizeBinary(16)", "uuid"),
    ("LargeBinary", "bytea"),
    ("BinaryView", "bytea"),
    ("Time64(µs)", "time without time zone"),
    ("Timestamp(µs, \"+00:00\")", "timestamp with time zone"),
    ("Timestamp(µs)", "timestamp without time zone"),
    ("Timestamp(ns)", "timestamp without time zone"),
    ("Interval(MonthDayNano)", "interval"),
    ("Duration(µs)", "interval"),
    ("Duration(ns)", "interval"),
];

/// Replaces Arrow's type names in a message by SQL's.
pub fn with_sql_types(text: &str) -> String {
    let text = TYPES.iter().fold(text.to_string(), |text, (arrow, sql)| {
        text.replace(arrow, sql)
    });
    let decimals = ["Decimal32", "Decimal64", "Decimal128", "Decimal256"];
    let text = decimals
        .iter()
        .fold(text, |text, decimal| text.replace(decimal, "numeric"));
    let text = replaced(&text, "numeric(", |inside| {
        format!("numeric({})", inside.replace(' ', ""))
    });
    let text = replaced(&text, "Struct(", |_| "record".to_string());
    let text = replaced(&text, "LargeList(", |item| format!("{item}[]"));
    replaced(&text, "List(", |item| format!("{item}[]"))
        .replace("(Null,", "(unknown,")
        .replace(", Null,", ", unknown,")
        .replace(", Null)", ", unknown)")
}

/// `text` with `shown` of each part between `open` and its closing parenthesis.
fn replaced(text: &str, open: &str, shown: impl Fn(&str) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(open) {
        let inside = at + open.len();
        let Some(end) = closing(&rest[inside..]) else {
            break;
        };
        out.push_str(&rest[..at]);
        out.push_str(&shown(&rest[inside..inside + end]));
        rest = &rest[inside + end + 1..];
    }
    out + rest
}

/// The position of the parenthesis that closes the one before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(at, c)| {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
        None
    })
}

/// A message of DataFusion's without better words, with SQL's types and without syntax trees.
pub fn of_sql(message: &str) -> String {
    const TREES: [&str; 6] = ["{ ", "Span(", "Ident(", "Identifier(", "Expr(", "Some("];
    let tree = TREES.iter().filter_map(|tree| message.find(tree)).min();
    let Some(tree) = tree else {
        return with_sql_types(message);
    };
    // `Unsupported ast node in sqltorel: Collate { expr: …`
    let before = message[..tree].trim_end();
    let (_, form) = before.rsplit_once([' ', ':', '(']).unwrap_or(("", before));
    match form.chars().all(char::is_alphanumeric) && !form.is_empty() {
        true => format!("{} is not supported here", form.to_uppercase()),
        false => "this form of the statement is not supported".to_string(),
    }
}

/// Rewrites `function f(a, b) does not exist` for a function that implements an operator to an
/// error about the operator.
pub fn of_call(message: &str) -> String {
    const OPERATORS: [(&str, &str); 5] = [
        ("function json_get(", "->"),
        ("function json_get_text(", "->>"),
        ("function json_path(", "#>"),
        ("function json_path_text(", "#>>"),
        ("function bit_not(", "~"),
    ];
    let found = OPERATORS.iter().find_map(|(call, operator)| {
        let types = message
            .strip_prefix(call)?
            .strip_suffix(") does not exist")?;
        Some((operator, types))
    });
    match found.map(|(operator, types)| (operator, types.split_once(", "))) {
        Some((operator, Some((left, right)))) => {
            format!("operator does not exist: {left} {operator} {right}")
        }
        Some((operator, None)) => {
            let given = found.map_or("", |(_, types)| types);
            format!("operator does not exist: {operator} {given}")
        }
        None => message.to_string(),
    }
}

/// An error of the library for regular expressions, whose message spans several lines.
pub fn regular_expression(text: &str) -> Option<Error> {
    let is_one = text.contains("regex parse error")
        || text.contains("Regular expression did not compile")
        || text.contains("regex size limit");
    if !is_one {
        return None;
    }
    let why = text.split("error: ").last().unwrap_or(text);
    let why = why.lines().next().unwrap_or(why).trim();
    let why = why.trim_end_matches(['"', ')', '\\', 'n']);
    Some(match why.contains("unrecognized flag") {
        true => Error::invalid(
            SqlState::INVALID_PARAMETER_VALUE,
            "invalid regular expression option",
        ),
        false => Error::invalid(
            SqlState("2201B"),
            format!("invalid regular expression: {why}"),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_sqls() {
        let cases = [
            ("Int32 and Utf8View", "integer and text"),
            ("UInt64 or Int8", "bigint or smallint"),
            ("Decimal128(8, 2) > Boolean", "numeric(8,2) > boolean"),
            ("f(List(Int64), Null)", "f(bigint[], unknown)"),
            (
                "Struct(\"c0\": Int32, \"c1\": List(Utf8)) > List(Date32)",
                "record > date[]",
            ),
            ("Timestamp(µs, \"+00:00\")", "timestamp with time zone"),
            ("List(", "List("),
        ];
        for (arrow, sql) in cases {
            assert_eq!(with_sql_types(arrow), sql);
        }
    }

    #[test]
    fn operators_are_not_called_functions() {
        let call = |call: &str| of_call(&format!("function {call} does not exist"));
        assert_eq!(call("f(integer)"), "function f(integer) does not exist");
        let arrow = "operator does not exist: integer -> text";
        assert_eq!(call("json_get(integer, text)"), arrow);
        assert_eq!(call("bit_not(real)"), "operator does not exist: ~ real");
    }

    #[test]
    fn syntax_trees_are_left_out() {
        let collate = "Unsupported ast node in sqltorel: Collate { expr: Value(ValueWithSpan";
        assert_eq!(of_sql(collate), "COLLATE is not supported here");
        let odd = "cannot do (Identifier(Ident { value: \"x\" }))";
        assert_eq!(of_sql(odd), "this form of the statement is not supported");
        assert_eq!(of_sql("plain Int32"), "plain integer");
    }

    #[test]
    fn regular_expressions_say_what_is_wrong_in_one_line() {
        let drawn = "regex parse error:\n    (\n    ^\nerror: unclosed group";
        let error = regular_expression(drawn).expect("one");
        assert_eq!(
            error.message(),
            "invalid regular expression: unclosed group"
        );
        assert!(regular_expression("division by zero").is_none());
    }
}
