//! CHECK and NOT NULL.

use super::Fixture;
use strandline::SqlState;

#[test]
fn check_constraints() {
    let mut f = Fixture::new(
        "CREATE TABLE t (a int CHECK (a > 0), b int, c text,
                         CONSTRAINT ordered CHECK (a < b), CONSTRAINT short CHECK (length(c) <= 3))",
    );
    let state = SqlState::CHECK_VIOLATION;
    f.is(
        "INSERT INTO t VALUES (1, 2, 'abc'), (NULL, 1, NULL), (5, NULL, '')",
        "INSERT 0 3",
    );
    f.fails(
        "INSERT INTO t VALUES (0, 2, 'x')",
        state,
        "violates check constraint \"t_a_check\"",
    );
    f.fails(
        "INSERT INTO t VALUES (1, 9, 'x'), (3, 2, NULL)",
        state,
        "Failing row contains (3, 2, null)",
    );
    f.fails("INSERT INTO t SELECT 1, 2, 'long'", state, "\"short\"");
    f.fails(
        "UPDATE t SET b = 0 WHERE a = 1",
        state,
        "Failing row contains (1, 0, abc)",
    );
    f.fails("UPDATE t SET c = 'four' WHERE a = 1", state, "\"short\"");
    f.is("UPDATE t SET a = a + 1, b = b + 1 WHERE a = 1", "UPDATE 1");
    f.fails(
        "MERGE INTO t USING (VALUES (2)) AS s(x) ON t.a = s.x WHEN MATCHED THEN UPDATE SET a = 50",
        state,
        "ordered",
    );
    f.is("SELECT a, b FROM t ORDER BY a", "2|3 / 5|NULL / NULL|1");
}

#[test]
fn not_null() {
    let mut f = Fixture::new("CREATE TABLE t (a int NOT NULL, b text NOT NULL DEFAULT 'd', c int)");
    let state = SqlState::NOT_NULL_VIOLATION;
    f.fails(
        "INSERT INTO t (c) VALUES (1)",
        state,
        "null value in column \"a\" of relation \"t\"",
    );
    f.fails(
        "INSERT INTO t VALUES (1, NULL, 2)",
        state,
        "Failing row contains (1, null, 2)",
    );
    f.is(
        "INSERT INTO t VALUES (1, DEFAULT, 2), (3, DEFAULT, NULL)",
        "INSERT 0 2",
    );
    f.fails(
        "UPDATE t SET b = NULL WHERE a = 3",
        state,
        "Failing row contains (3, null, null)",
    );
    f.fails("INSERT INTO t SELECT c FROM t", state, "\"a\"");
    f.is("SELECT * FROM t ORDER BY a", "1|d|2 / 3|d|NULL");
}
