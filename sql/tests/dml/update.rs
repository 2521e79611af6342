//! UPDATE: SET in all its forms, FROM, correlated subqueries.

use super::Fixture;
use strandline::SqlState;

fn fixture() -> Fixture {
    Fixture::new(
        "CREATE TABLE t (id int PRIMARY KEY, a int DEFAULT 7, b text);
         INSERT INTO t VALUES (1, 1, 'x'), (2, 2, 'y'), (3, 3, 'z');
         CREATE TABLE u (id int, v int, w text);
         INSERT INTO u VALUES (1, 100, 'p'), (2, 200, 'q'), (2, 201, 'r')",
    )
}

const ROWS: &str = "SELECT * FROM t ORDER BY id";

#[test]
fn set_forms() {
    let mut f = fixture();
    f.is(
        "UPDATE t SET a = a + 1, b = upper(b) WHERE id = 1",
        "UPDATE 1",
    );
    f.is("UPDATE t SET (a, b) = (20, 'two') WHERE id = 2", "UPDATE 1");
    f.is(
        "UPDATE t SET (b, a) = ROW('three', DEFAULT) WHERE id = 3",
        "UPDATE 1",
    );
    f.is(ROWS, "1|2|X / 2|20|two / 3|7|three");
    f.is(
        "UPDATE t SET a = DEFAULT, b = DEFAULT WHERE id = 1",
        "UPDATE 1",
    );
    f.is(
        "UPDATE t SET (a, b) = (SELECT v, w FROM u WHERE u.id = t.id) WHERE id IN (1, 3)",
        "UPDATE 2",
    );
    f.is(ROWS, "1|100|p / 2|20|two / 3|NULL|NULL");
    f.is("UPDATE t AS x SET a = x.id WHERE x.id = 3", "UPDATE 1");
    f.is(
        "UPDATE public.t SET a = 0 WHERE t.id = 3 RETURNING t.a",
        "0",
    );
}

#[test]
fn bad_sets() {
    let mut f = fixture();
    let syntax = SqlState::SYNTAX_ERROR;
    f.fails(
        "UPDATE t SET a = 1, a = 2",
        syntax,
        "multiple assignments to same column \"a\"",
    );
    f.fails(
        "UPDATE t SET (a, b) = (1, 'x', 2)",
        syntax,
        "number of columns",
    );
    f.fails(
        "UPDATE t SET (a, b) = (SELECT 1)",
        syntax,
        "number of columns",
    );
    f.fails("UPDATE t SET z = 1", SqlState::UNDEFINED_COLUMN, "\"z\"");
    f.fails(
        "UPDATE t SET a = max(a)",
        SqlState("42803"),
        "aggregate functions are not allowed",
    );
    f.fails(
        "UPDATE t SET a = row_number() OVER ()",
        SqlState("42P20"),
        "window functions",
    );
    f.fails(
        "UPDATE t SET a = 'x'::text",
        SqlState::DATATYPE_MISMATCH,
        "rewrite or cast",
    );
    f.fails(
        "UPDATE t SET a = 5000000000",
        SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        "",
    );
    f.fails("UPDATE t JOIN u ON true SET a = 1", syntax, "FROM");
    f.is(ROWS, "1|1|x / 2|2|y / 3|3|z");
}

#[test]
fn from_other_tables() {
    let mut f = fixture();
    f.is(
        "UPDATE t SET a = u.v FROM u WHERE u.id = t.id AND u.w <> 'r'",
        "UPDATE 2",
    );
    f.is(ROWS, "1|100|x / 2|200|y / 3|3|z");
    f.is("UPDATE t SET a = v + other.id FROM u, t AS other WHERE u.id = t.id AND other.id = 3 AND v < 201", "UPDATE 2");
    f.is(ROWS, "1|103|x / 2|203|y / 3|3|z");
    f.is(
        "WITH s AS (SELECT id, sum(v) AS total FROM u GROUP BY id)
         UPDATE t SET a = total FROM s JOIN (SELECT 1 AS one) AS o ON true WHERE s.id = t.id",
        "UPDATE 2",
    );
    f.is(ROWS, "1|100|x / 2|401|y / 3|3|z");
}

#[test]
fn a_row_matched_twice_is_updated_once() {
    let mut f = fixture();
    f.is(
        "UPDATE t SET a = t.a + 1000 FROM u WHERE u.id = t.id",
        "UPDATE 2",
    );
    f.is(ROWS, "1|1001|x / 2|1002|y / 3|3|z");
    f.is(
        "UPDATE t SET a = 0 FROM generate_series(1, 5000) AS g(x)",
        "UPDATE 3",
    );
}

#[test]
fn correlated_subqueries() {
    let mut f = fixture();
    f.is(
        "UPDATE t SET a = (SELECT v FROM u WHERE u.id = t.id) WHERE id <> 2",
        "UPDATE 2",
    );
    f.is(ROWS, "1|100|x / 2|2|y / 3|NULL|z");
    f.fails(
        "UPDATE t SET a = (SELECT v FROM u WHERE u.id = t.id)",
        SqlState::CARDINALITY_VIOLATION,
        "more than one row",
    );
    f.is(
        "UPDATE t SET b = (SELECT w FROM u WHERE u.id = t.id ORDER BY v DESC LIMIT 1) WHERE id = 2",
        "UPDATE 1",
    );
    f.is(
        "UPDATE t SET a = (SELECT max(v) FROM u) WHERE EXISTS (SELECT 1 FROM u WHERE u.id = t.id)",
        "UPDATE 2",
    );
    f.is(ROWS, "1|201|x / 2|201|r / 3|NULL|z");
    f.fails(
        "UPDATE t SET a = (SELECT v FROM u)",
        SqlState::CARDINALITY_VIOLATION,
        "more than one row",
    );
}
