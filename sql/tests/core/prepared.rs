//! Parameters and prepared statements.

use super::{database, fails, lines, rows, run};
use strandline::{SqlState, Value};

#[test]
fn parameters_of_every_kind() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (i int, b bigint, d double precision, n numeric(10,2), s text, x bytea, day date, ts timestamptz, ok boolean)",
        ],
    );
    c.execute(
        "INSERT INTO t VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        (
            7i32,
            i64::MIN,
            0.1f64,
            "12.34",
            "it's",
            vec![0u8, 255],
            Value::Date(19_723),
            Value::TimestampTz(1_704_067_200_000_001),
            true,
        ),
    )
    .expect("inserts");
    assert_eq!(
        rows(&mut c, "SELECT * FROM t"),
        [
            "7|-9223372036854775808|0.1|12.34|it's|\\x00ff|2024-01-01|2024-01-01 00:00:00.000001+00|t"
        ]
    );
    let found = c
        .query(
            "SELECT i FROM t WHERE day = $1 AND s = $2 AND b < $3 LIMIT $4",
            ("2024-01-01", "it's", 0i64, 5i64),
        )
        .expect("finds");
    assert_eq!(found.single::<i32>().expect("7"), 7);
    let none = c
        .query("SELECT i FROM t WHERE i = $1", (None::<i32>,))
        .expect("null");
    assert_eq!(none.row_count(), 0);
    assert_eq!(
        c.query("SELECT 1", (1i64,))
            .expect_err("too many")
            .sqlstate(),
        SqlState("08P01")
    );
}

#[test]
fn sql_prepare_execute_deallocate() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int)",
            "PREPARE ins (int) AS INSERT INTO t VALUES ($1)",
        ],
    );
    run(
        &mut c,
        &[
            "EXECUTE ins(1)",
            "EXECUTE ins(1 + 1)",
            "PREPARE sel AS SELECT a FROM t WHERE a >= $1 ORDER BY a",
        ],
    );
    assert_eq!(rows(&mut c, "EXECUTE sel(2)"), ["2"]);
    assert_eq!(
        lines(&c.query("EXECUTE sel($1)", (1i64,)).expect("nested")),
        ["1", "2"]
    );
    fails(
        &mut c,
        "PREPARE sel AS SELECT 1",
        SqlState::DUPLICATE_PREPARED_STATEMENT,
    );
    fails(&mut c, "EXECUTE sel", SqlState::SYNTAX_ERROR);
    fails(
        &mut c,
        "EXECUTE nope(1)",
        SqlState::INVALID_SQL_STATEMENT_NAME,
    );
    run(&mut c, &["DEALLOCATE sel"]);
    fails(
        &mut c,
        "EXECUTE sel(1)",
        SqlState::INVALID_SQL_STATEMENT_NAME,
    );
    run(
        &mut c,
        &["DEALLOCATE ALL", "PREPARE ins AS SELECT 1", "DISCARD ALL"],
    );
    fails(&mut c, "EXECUTE ins", SqlState::INVALID_SQL_STATEMENT_NAME);
}

#[test]
fn api_prepared_statements_follow_the_schema() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &["CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)"],
    );
    let all = c.prepare("SELECT * FROM t WHERE a = $1").expect("prepares");
    assert_eq!(all.parameter_count(), 1);
    assert_eq!(
        lines(&c.query_prepared(&all, (1i64,)).expect("runs")),
        ["1"]
    );
    run(&mut c, &["ALTER TABLE t ADD COLUMN b int DEFAULT 2"]);
    assert_eq!(
        lines(&c.query_prepared(&all, (1i64,)).expect("runs")),
        ["1|2"]
    );
    let add = c
        .prepare("INSERT INTO t VALUES ($1, $2)")
        .expect("prepares");
    for i in 0..10i64 {
        assert_eq!(c.execute_prepared(&add, (i, i)).expect("inserts"), 1);
    }
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["11"]);
}

/// Long chains of operators are deep trees: they compute, or are refused.
#[test]
fn deep_expressions_end_well() {
    let database = database();
    let mut c = database.connect();
    let nested = format!("SELECT {}1{}", "(".repeat(10_000), ")".repeat(10_000));
    let too_deep = fails(&mut c, &nested, SqlState("54001"));
    assert!(too_deep.contains("deep"), "{too_deep}");
    for operator in [
        " + a",
        " OR a = 1",
        " || a",
        "::text::int",
        " UNION ALL SELECT a",
    ] {
        let chain = format!("SELECT 1{} FROM (VALUES (1)) t(a)", operator.repeat(20_000));
        fails(&mut c, &chain, SqlState("54001"));
    }
    let sum = format!("SELECT a{} FROM (VALUES (1)) t(a)", " + a".repeat(200));
    assert_eq!(rows(&mut c, &sum), ["201"]);
    run(
        &mut c,
        &[
            "CREATE TABLE deep (k int PRIMARY KEY, n int)",
            "INSERT INTO deep VALUES (1, 0)",
        ],
    );
    let update = format!("UPDATE deep SET n = n{} WHERE k = 1", " + 1".repeat(900));
    run(&mut c, &[&update]);
    assert_eq!(rows(&mut c, "SELECT n FROM deep"), ["900"]);
}
