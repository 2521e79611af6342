//! A statement never sees its own changes; the next one does.

use super::Fixture;
use strandline::SqlState;

#[test]
fn insert_from_itself_doubles_once() {
    let mut f = Fixture::new("CREATE TABLE t (a bigint); INSERT INTO t VALUES (1), (2), (3)");
    for round in 1..=15 {
        f.is(
            "INSERT INTO t SELECT a + 1 FROM t",
            &format!("INSERT 0 {}", 3 << (round - 1)),
        );
    }
    f.is("SELECT count(*), min(a), max(a) FROM t", "98304|1|18");
}

#[test]
fn keys_may_move_over_each_other_within_a_statement() {
    let mut f = Fixture::new("CREATE TABLE t (k int PRIMARY KEY, v int)");
    f.script("INSERT INTO t SELECT x, x FROM generate_series(1, 1000) AS g(x)");
    f.is("UPDATE t SET k = k + 1", "UPDATE 1000");
    f.is(
        "SELECT min(k), max(k), count(*), sum(k - v) FROM t",
        "2|1001|1000|1000",
    );
    f.is("UPDATE t SET k = 1003 - k", "UPDATE 1000");
    f.is("SELECT v FROM t WHERE k = 1001", "1");
    f.fails(
        "UPDATE t SET k = 7 WHERE v < 3",
        SqlState::UNIQUE_VIOLATION,
        "t_pkey",
    );
    f.is("SELECT min(k), max(k), count(*) FROM t", "2|1001|1000");
}

#[test]
fn expressions_see_old_values() {
    let mut f = Fixture::new("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2), (3, 4)");
    f.is("UPDATE t SET a = b, b = a", "UPDATE 2");
    f.is("SELECT * FROM t ORDER BY a", "2|1 / 4|3");
    f.is(
        "UPDATE t SET a = (SELECT sum(a) FROM t), b = (SELECT count(*) FROM t)",
        "UPDATE 2",
    );
    f.is("SELECT * FROM t", "6|2 / 6|2");
    f.is("DELETE FROM t WHERE a = (SELECT max(a) FROM t)", "DELETE 2");
}

#[test]
fn a_transaction_sees_its_earlier_statements() {
    let mut f = Fixture::new("CREATE TABLE t (k int PRIMARY KEY, v int)");
    f.script("BEGIN; INSERT INTO t VALUES (1, 1), (2, 2)");
    f.is("UPDATE t SET v = v * 10 WHERE k = 1", "UPDATE 1");
    f.is("DELETE FROM t WHERE k = 2", "DELETE 1");
    f.is("INSERT INTO t VALUES (2, 5) RETURNING v", "5");
    f.is("SELECT * FROM t ORDER BY k", "1|10 / 2|5");
    let mut other = f.database.connect();
    let seen = other
        .query("SELECT count(*) FROM t", ())
        .unwrap()
        .single::<i64>()
        .unwrap();
    assert_eq!(seen, 0);
    f.script("ROLLBACK");
    f.is("SELECT count(*) FROM t", "0");
}

#[test]
fn a_failed_statement_leaves_nothing() {
    let mut f = Fixture::new(
        "CREATE TABLE t (k int PRIMARY KEY, v int CHECK (v < 10)); INSERT INTO t VALUES (1, 1)",
    );
    f.fails(
        "INSERT INTO t VALUES (2, 2), (3, 3), (1, 9)",
        SqlState::UNIQUE_VIOLATION,
        "k",
    );
    f.fails(
        "INSERT INTO t VALUES (4, 4), (5, 50)",
        SqlState::CHECK_VIOLATION,
        "t_v_check",
    );
    f.fails(
        "UPDATE t SET v = v / (k - 1)",
        SqlState::DIVISION_BY_ZERO,
        "division by zero",
    );
    f.is("SELECT * FROM t", "1|1");
    f.script("BEGIN; INSERT INTO t VALUES (2, 2)");
    f.fails(
        "INSERT INTO t VALUES (3, 3), (2, 2)",
        SqlState::UNIQUE_VIOLATION,
        "k",
    );
    f.fails("SELECT 1", SqlState::IN_FAILED_SQL_TRANSACTION, "aborted");
    f.script("ROLLBACK");
    f.is("SELECT * FROM t", "1|1");
}

#[test]
fn large_statements_go_through_the_bulk_load_and_are_undone_as_a_whole() {
    let mut f = Fixture::new("CREATE TABLE t (k int PRIMARY KEY, v text DEFAULT 'd')");
    f.is(
        "INSERT INTO t (k) SELECT * FROM generate_series(1, 100000)",
        "INSERT 0 100000",
    );
    f.is(
        "SELECT count(*), min(v), sum(k) FROM t",
        "100000|d|5000050000",
    );
    f.fails(
        "INSERT INTO t (k) SELECT * FROM generate_series(100001, 200000) UNION ALL SELECT 5",
        SqlState::UNIQUE_VIOLATION,
        "t_pkey",
    );
    f.is("SELECT count(*), max(k) FROM t", "100000|100000");
    f.is("UPDATE t SET v = 'x' WHERE k % 2 = 0", "UPDATE 50000");
    f.is("DELETE FROM t WHERE k % 4 = 0", "DELETE 25000");
    f.is(
        "SELECT v, count(*) FROM t GROUP BY v ORDER BY v",
        "d|50000 / x|25000",
    );
}
