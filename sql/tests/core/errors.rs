//! Errors carry PostgreSQL's SQLSTATE and speak of the user's things.

use super::{database, error, run};
use strandline::SqlState;

#[test]
fn states_and_messages() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int, s text)",
            "INSERT INTO t VALUES (1, 'x'), (0, 'y')",
        ],
    );
    let cases = [
        (
            "SELECT b FROM t",
            SqlState::UNDEFINED_COLUMN,
            "column \"b\" does not exist",
        ),
        (
            "SELECT t.b FROM t",
            SqlState::UNDEFINED_COLUMN,
            "column t.b does not exist",
        ),
        (
            "SELECT u.a FROM t",
            SqlState::UNDEFINED_TABLE,
            "missing FROM-clause entry for table \"u\"",
        ),
        (
            "SELECT * FROM nope",
            SqlState::UNDEFINED_TABLE,
            "relation \"nope\" does not exist",
        ),
        (
            "SELECT * FROM x.nope",
            SqlState::INVALID_SCHEMA_NAME,
            "schema \"x\" does not exist",
        ),
        (
            "SELECT nofunc(a) FROM t",
            SqlState::UNDEFINED_FUNCTION,
            "nofunc",
        ),
        (
            "SELECT * FROM notablefunc(1)",
            SqlState::UNDEFINED_FUNCTION,
            "notablefunc",
        ),
        (
            "SELECT 1 / a FROM t",
            SqlState::DIVISION_BY_ZERO,
            "division by zero",
        ),
        (
            "SELECT a FROM t, t AS q",
            SqlState::AMBIGUOUS_COLUMN,
            "column reference \"a\" is ambiguous",
        ),
        (
            "SELECT CAST(s AS int) FROM t",
            SqlState::INVALID_TEXT_REPRESENTATION,
            "invalid input syntax",
        ),
        (
            "SELECT 1 FROM t WHERE",
            SqlState::SYNTAX_ERROR,
            "syntax error",
        ),
        (
            "SELECT (SELECT a FROM t)",
            SqlState::CARDINALITY_VIOLATION,
            "more than one row",
        ),
        (
            "SELECT $1",
            SqlState::UNDEFINED_PARAMETER,
            "there is no parameter $1",
        ),
        (
            "SELECT * FROM other.public.t",
            SqlState::FEATURE_NOT_SUPPORTED,
            "cross-database",
        ),
        ("SELECT s, sum(a) FROM t", SqlState("42803"), ""),
    ];
    for (sql, state, part) in cases {
        let error = error(&mut c, sql);
        assert_eq!(error.sqlstate(), state, "{sql}\n{error:?}");
        assert!(error.message().contains(part), "{sql}\n{error:?}");
        for jargon in [
            "DataFusion",
            "External error",
            "Arrow error",
            "backtrace",
            "Execution error",
        ] {
            assert!(!error.to_string().contains(jargon), "{sql}\n{error:?}");
        }
    }
}

#[test]
fn near_misses_get_a_hint() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE t (amount int)"]);
    let error = error(&mut c, "SELECT amout FROM t");
    assert!(
        error.hint().is_some_and(|h| h.contains("amount")),
        "{error}"
    );
}
