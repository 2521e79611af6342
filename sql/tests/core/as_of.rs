//! FOR SYSTEM_TIME AS OF and row histories.

use super::{database_with_clock, error, fails, rows, run};
use strandline::{SqlState, Value};

const SECOND: u64 = 1_000_000;

#[test]
fn every_reference_has_its_own_moment() {
    let (database, clock) = database_with_clock();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int PRIMARY KEY, v int)",
            "INSERT INTO t VALUES (1, 10), (2, 20)",
        ],
    );
    clock.advance(10 * SECOND);
    run(
        &mut c,
        &["UPDATE t SET v = v + 1", "DELETE FROM t WHERE a = 2"],
    );
    clock.advance(10 * SECOND);
    run(&mut c, &["INSERT INTO t VALUES (2, 99)"]);
    let now = "SELECT a, v FROM t ORDER BY a";
    assert_eq!(rows(&mut c, now), ["1|11", "2|99"]);
    let first = "'2024-01-01 00:00:05'";
    let second = "'2024-01-01 00:00:15'";
    let at = |moment: &str| format!("SELECT a, v FROM t FOR SYSTEM_TIME AS OF {moment} ORDER BY a");
    assert_eq!(rows(&mut c, &at(first)), ["1|10", "2|20"]);
    assert_eq!(rows(&mut c, &at(second)), ["1|11"]);
    assert_eq!(
        rows(&mut c, &at("now() - interval '15 seconds'")),
        ["1|10", "2|20"]
    );
    assert_eq!(
        rows(&mut c, &at("timestamp '2024-01-01 00:00:15'")),
        ["1|11"]
    );
    assert_eq!(rows(&mut c, &at("now()")), ["1|11", "2|99"]);
    let joined = format!(
        "SELECT old.v, new.v FROM t FOR SYSTEM_TIME AS OF {first} AS old
         JOIN t AS new ON new.a = old.a ORDER BY old.a"
    );
    assert_eq!(rows(&mut c, &joined), ["10|11", "20|99"]);
    let nested =
        format!("SELECT a FROM t WHERE v > (SELECT max(v) FROM t FOR SYSTEM_TIME AS OF {first})");
    assert_eq!(rows(&mut c, &nested), ["2"]);
    let moment = Value::TimestampTz(1_704_067_205_000_000);
    let result = c
        .query("SELECT sum(v) FROM t FOR SYSTEM_TIME AS OF $1", (moment,))
        .expect("parameter");
    assert_eq!(result.single::<i64>().expect("sum"), 30);
}

#[test]
fn the_schema_is_that_of_the_moment() {
    let (database, clock) = database_with_clock();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int, b text)",
            "INSERT INTO t VALUES (1, 'x')",
        ],
    );
    clock.advance(10 * SECOND);
    run(
        &mut c,
        &[
            "ALTER TABLE t DROP COLUMN b",
            "ALTER TABLE t ADD COLUMN c int DEFAULT 7",
        ],
    );
    clock.advance(10 * SECOND);
    run(&mut c, &["CREATE TABLE later (z int)", "DROP TABLE t"]);
    let then = "FOR SYSTEM_TIME AS OF '2024-01-01 00:00:05'";
    assert_eq!(rows(&mut c, &format!("SELECT * FROM t {then}")), ["1|x"]);
    let between = "FOR SYSTEM_TIME AS OF '2024-01-01 00:00:15'";
    assert_eq!(rows(&mut c, &format!("SELECT * FROM t {between}")), ["1|7"]);
    let missing = error(&mut c, &format!("SELECT * FROM later {then}"));
    assert_eq!(missing.sqlstate(), SqlState::UNDEFINED_TABLE);
    assert!(
        missing.detail().is_some_and(|d| d.contains("moment")),
        "{missing}"
    );
    fails(&mut c, "SELECT * FROM t", SqlState::UNDEFINED_TABLE);
}

#[test]
fn views_reach_the_past_of_their_tables() {
    let (database, clock) = database_with_clock();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int)",
            "CREATE VIEW total AS SELECT sum(a) AS s FROM t",
            "INSERT INTO t VALUES (1)",
        ],
    );
    clock.advance(10 * SECOND);
    run(&mut c, &["INSERT INTO t VALUES (2)"]);
    let then = "FOR SYSTEM_TIME AS OF '2024-01-01 00:00:05'";
    assert_eq!(rows(&mut c, "SELECT s FROM total"), ["3"]);
    assert_eq!(rows(&mut c, &format!("SELECT s FROM total {then}")), ["1"]);
    run(
        &mut c,
        &[&format!(
            "CREATE VIEW past AS SELECT x.a FROM t {then} AS x"
        )],
    );
    assert_eq!(rows(&mut c, "SELECT a FROM past"), ["1"]);
}

#[test]
fn moments_that_cannot_be_are_errors() {
    let (database, _clock) = database_with_clock();
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE t (a int)"]);
    let at = |moment: &str| format!("SELECT * FROM t FOR SYSTEM_TIME AS OF {moment}");
    for moment in ["now() + interval '1 second'", "NULL", "'2999-01-01'"] {
        fails(&mut c, &at(moment), SqlState::INVALID_PARAMETER_VALUE);
    }
    fails(&mut c, &at("a"), SqlState::UNDEFINED_COLUMN);
    assert!(c.query(&at("'not a time'"), ()).is_err());
    assert!(c.query(&at("'1960-01-01'"), ()).is_err());
}

#[test]
fn histories_list_every_version() {
    let (database, clock) = database_with_clock();
    let mut c = database.connect();
    run(
        &mut c,
        &["CREATE TABLE t (k text, n int, v int, PRIMARY KEY (n, k))"],
    );
    run(&mut c, &["INSERT INTO t VALUES ('x', 1, 10)"]);
    clock.advance(10 * SECOND);
    run(&mut c, &["UPDATE t SET v = 11"]);
    clock.advance(10 * SECOND);
    run(&mut c, &["DELETE FROM t"]);
    let history =
        "SELECT v, valid_to IS NULL FROM strandline_history('t', 1, 'x') ORDER BY valid_from";
    assert_eq!(rows(&mut c, history), ["10|f", "11|f"]);
    run(&mut c, &["INSERT INTO t VALUES ('x', 1, 12)"]);
    assert_eq!(rows(&mut c, history), ["10|f", "11|f", "12|t"]);
    assert_eq!(
        rows(&mut c, "SELECT * FROM strandline_history('t', 2, 'x')").len(),
        0
    );
    fails(
        &mut c,
        "SELECT * FROM strandline_history('t', 1)",
        SqlState::UNDEFINED_FUNCTION,
    );
    fails(
        &mut c,
        "SELECT * FROM strandline_history('u', 1)",
        SqlState::UNDEFINED_TABLE,
    );
    fails(
        &mut c,
        "SELECT * FROM strandline_history()",
        SqlState::UNDEFINED_FUNCTION,
    );
}

#[test]
fn intervals_are_tables_like_any() {
    let (database, clock) = database_with_clock();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int PRIMARY KEY, v int)",
            "INSERT INTO t VALUES (1, 10), (2, 20)",
        ],
    );
    clock.advance(10 * SECOND);
    run(&mut c, &["UPDATE t SET v = v + 1 WHERE a = 1"]);
    clock.advance(10 * SECOND);
    run(&mut c, &["DELETE FROM t WHERE a = 2"]);
    let moments = (
        Value::TimestampTz(1_704_067_205_000_000),
        Value::TimestampTz(1_704_067_215_000_000),
    );
    let sum = "SELECT sum(v) FROM t FOR SYSTEM_TIME FROM $1 TO $2";
    let result = c.query(sum, moments).expect("parameters");
    assert_eq!(result.single::<i64>().expect("sum"), 41);
    run(
        &mut c,
        &[
            "PREPARE p AS SELECT a, v FROM t FOR SYSTEM_TIME BETWEEN $1 AND $2 ORDER BY a, v",
            "CREATE TABLE versions AS SELECT * FROM t FOR SYSTEM_TIME BETWEEN '2024-01-01' AND now()",
        ],
    );
    let executed = rows(
        &mut c,
        "EXECUTE p('2024-01-01 00:00:12', timestamp '2024-01-01 00:00:19')",
    );
    assert_eq!(executed, ["1|11", "2|20"]);
    let cte = "WITH h AS (SELECT * FROM t FOR SYSTEM_TIME FROM '2024-01-01' TO now())
        SELECT a FROM h WHERE valid_to IS NOT NULL EXCEPT SELECT a FROM t";
    assert_eq!(rows(&mut c, cte), ["2"]);
    assert_eq!(rows(&mut c, "SELECT count(*) FROM versions"), ["3"]);
    let plan = rows(
        &mut c,
        "EXPLAIN SELECT v FROM t FOR SYSTEM_TIME FROM '2024-01-01' TO now() WHERE a = 1",
    );
    let scan = plan.iter().any(|line| {
        line.contains("TableVersions: t, from=1704067200000000, through=")
            && line.contains("columns=[a, v]")
    });
    assert!(scan, "{plan:?}");
}

#[test]
fn a_serializable_transaction_has_read_what_an_interval_shows() {
    let (database, _clock) = database_with_clock();
    let (mut a, mut b) = (database.connect(), database.connect());
    run(
        &mut a,
        &[
            "CREATE TABLE t (a int)",
            "INSERT INTO t VALUES (1)",
            "CREATE TABLE seen (n bigint)",
            "BEGIN ISOLATION LEVEL SERIALIZABLE",
            "INSERT INTO seen SELECT count(*) FROM t
             FOR SYSTEM_TIME BETWEEN now() AND now()",
        ],
    );
    run(&mut b, &["INSERT INTO t VALUES (2)"]);
    fails(&mut a, "COMMIT", SqlState::SERIALIZATION_FAILURE);
}

#[test]
fn retention_is_a_table_option() {
    let (database, _clock) = database_with_clock();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int) WITH (history = 'forever')",
            "ALTER TABLE t SET (history = '7 days')",
            "ALTER TABLE t SET (history = 'none')",
        ],
    );
    fails(
        &mut c,
        "ALTER TABLE t SET (history = 'soon')",
        SqlState::INVALID_PARAMETER_VALUE,
    );
    fails(
        &mut c,
        "ALTER TABLE t SET (fillfactr = 70)",
        SqlState::INVALID_PARAMETER_VALUE,
    );
}
