//! INSERT … ON CONFLICT.

use super::Fixture;
use strandline::SqlState;

fn fixture() -> Fixture {
    Fixture::new(
        "CREATE TABLE t (k int PRIMARY KEY, u text UNIQUE, n int NOT NULL DEFAULT 0,
                         CONSTRAINT small CHECK (n < 1000));
         INSERT INTO t VALUES (1, 'a', 10), (2, 'b', 20)",
    )
}

const ROWS: &str = "SELECT * FROM t ORDER BY k";

#[test]
fn do_nothing() {
    let mut f = fixture();
    f.is(
        "INSERT INTO t VALUES (1, 'z', 0), (3, 'c', 30) ON CONFLICT DO NOTHING",
        "INSERT 0 1",
    );
    f.is(
        "INSERT INTO t VALUES (4, 'a', 0) ON CONFLICT DO NOTHING",
        "INSERT 0 0",
    );
    f.is(
        "INSERT INTO t VALUES (5, 'e', 5), (5, 'f', 6), (6, 'e', 7) ON CONFLICT DO NOTHING",
        "INSERT 0 1",
    );
    f.is(
        "INSERT INTO t VALUES (1, 'y', 0) ON CONFLICT (k) DO NOTHING RETURNING k",
        "",
    );
    f.is(
        "INSERT INTO t VALUES (7, 'g', 0), (1, 'g', 0) ON CONFLICT (k) DO NOTHING RETURNING k",
        "7",
    );
    f.fails(
        "INSERT INTO t VALUES (8, 'a', 0) ON CONFLICT (k) DO NOTHING",
        SqlState::UNIQUE_VIOLATION,
        "t_u_key",
    );
    f.is(
        "INSERT INTO t VALUES (8, NULL, 0), (9, NULL, 0) ON CONFLICT (u) DO NOTHING",
        "INSERT 0 2",
    );
    f.is(
        ROWS,
        "1|a|10 / 2|b|20 / 3|c|30 / 5|e|5 / 7|g|0 / 8|NULL|0 / 9|NULL|0",
    );
}

#[test]
fn do_update() {
    let mut f = fixture();
    f.is(
        "INSERT INTO t VALUES (1, 'x', 1), (3, 'c', 3)
         ON CONFLICT (k) DO UPDATE SET n = t.n + excluded.n, u = excluded.u",
        "INSERT 0 2",
    );
    f.is(ROWS, "1|x|11 / 2|b|20 / 3|c|3");
    f.is(
        "INSERT INTO t AS old (k, n) VALUES (1, 5), (2, 50), (4, 4)
         ON CONFLICT ON CONSTRAINT t_pkey DO UPDATE SET n = excluded.n WHERE old.n < excluded.n
         RETURNING k, n, old.u",
        "2|50|b / 4|4|NULL",
    );
    f.is("INSERT INTO t (k, u) VALUES (9, 'b') ON CONFLICT (u) DO UPDATE SET k = excluded.k RETURNING *", "9|b|50");
    f.is("INSERT INTO t (k) VALUES (9) ON CONFLICT (k) DO UPDATE SET n = DEFAULT, u = (SELECT max(u) || '!' FROM t) RETURNING *", "9|x!|0");
    f.is("INSERT INTO t (k, n) VALUES (9, 3) ON CONFLICT (k) DO UPDATE SET (n, u) = (excluded.n * 2, NULL) RETURNING *", "9|NULL|6");
}

#[test]
fn a_row_is_affected_once() {
    let mut f = fixture();
    let again = SqlState::CARDINALITY_VIOLATION;
    f.fails(
        "INSERT INTO t VALUES (1, 'q', 1), (1, 'r', 2) ON CONFLICT (k) DO UPDATE SET n = excluded.n",
        again,
        "cannot affect row a second time",
    );
    f.fails(
        "INSERT INTO t VALUES (8, 'q', 1), (8, 'r', 2) ON CONFLICT (k) DO UPDATE SET n = excluded.n",
        again,
        "cannot affect row a second time",
    );
    f.is(ROWS, "1|a|10 / 2|b|20");
}

#[test]
fn constraints_hold_for_proposed_and_updated_rows() {
    let mut f = fixture();
    let check = SqlState::CHECK_VIOLATION;
    f.fails(
        "INSERT INTO t VALUES (1, 'x', 1000) ON CONFLICT DO NOTHING",
        check,
        "small",
    );
    f.fails(
        "INSERT INTO t VALUES (1, 'x', 1000) ON CONFLICT (k) DO UPDATE SET n = 1",
        check,
        "small",
    );
    f.fails(
        "INSERT INTO t VALUES (1, 'x', 1) ON CONFLICT (k) DO UPDATE SET n = 1000",
        check,
        "small",
    );
    f.fails(
        "INSERT INTO t VALUES (1, 'x', NULL) ON CONFLICT (k) DO UPDATE SET n = 1",
        SqlState::NOT_NULL_VIOLATION,
        "\"n\"",
    );
    f.fails(
        "INSERT INTO t VALUES (1, 'x', 1) ON CONFLICT (k) DO UPDATE SET n = NULL",
        SqlState::NOT_NULL_VIOLATION,
        "\"n\"",
    );
    f.fails(
        "INSERT INTO t VALUES (1, 'x', 1) ON CONFLICT (k) DO UPDATE SET u = 'b'",
        SqlState::UNIQUE_VIOLATION,
        "t_u_key",
    );
    f.is(ROWS, "1|a|10 / 2|b|20");
}

#[test]
fn targets_must_exist() {
    let mut f = fixture();
    f.fails(
        "INSERT INTO t VALUES (1) ON CONFLICT (n) DO NOTHING",
        SqlState("42P10"),
        "no unique",
    );
    f.fails(
        "INSERT INTO t VALUES (1) ON CONFLICT (z) DO NOTHING",
        SqlState::UNDEFINED_COLUMN,
        "\"z\"",
    );
    f.fails(
        "INSERT INTO t VALUES (1) ON CONFLICT ON CONSTRAINT no DO NOTHING",
        SqlState::UNDEFINED_OBJECT,
        "\"no\"",
    );
    f.fails(
        "INSERT INTO t VALUES (1) ON CONFLICT DO UPDATE SET n = 1",
        SqlState::SYNTAX_ERROR,
        "inference",
    );
}

#[test]
fn many_rows() {
    let mut f = Fixture::new("CREATE TABLE c (k int PRIMARY KEY, n bigint)");
    f.script("INSERT INTO c SELECT x, 1 FROM generate_series(1, 50000) AS g(x)");
    f.is(
        "INSERT INTO c SELECT x, 2 FROM generate_series(25001, 75000) AS g(x)
         ON CONFLICT (k) DO UPDATE SET n = c.n + excluded.n",
        "INSERT 0 50000",
    );
    f.is(
        "SELECT n, count(*) FROM c GROUP BY n ORDER BY n",
        "1|25000 / 2|25000 / 3|25000",
    );
    f.is("INSERT INTO c SELECT x % 10, 0 FROM generate_series(1, 20000) AS g(x) ON CONFLICT DO NOTHING", "INSERT 0 1");
}
