//! What prepared statements take and give.

use super::{database, rows, run};
use strandline::{
    BoxCorners, Connection, Database, Point, SqlState, SqlType, Started, TransactionStatus, Value,
};

use SqlType::{BigInt, Boolean, Bytea, Date, Double, Integer, SmallInt, Text, TimestampTz, Uuid};

const NUMERIC: SqlType = SqlType::Numeric {
    precision: 38,
    scale: 16,
};

fn tables() -> (Database, Connection) {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (id bigint PRIMARY KEY, i int, s varchar(10), n numeric(10,2), d date, \
             ts timestamptz, ok boolean, x bytea, f double precision, u uuid, k smallint)",
            "INSERT INTO t (id, i, s, n) VALUES (1, 2, 'three', 4.50)",
        ],
    );
    (database, c)
}

/// Parameters' types and the result's columns as `name type`.
fn described(c: &mut Connection, sql: &str) -> (Vec<SqlType>, Option<Vec<String>>) {
    let prepared = c
        .prepare_typed(sql, &[])
        .unwrap_or_else(|e| panic!("{sql}\n{e:?}"));
    let description = c.describe(&prepared).expect("describes");
    let columns = description.result.as_ref().map(|schema| {
        let fields = schema.fields().iter();
        fields
            .map(|f| format!("{} {}", f.name(), f.data_type()))
            .collect()
    });
    (description.parameters.clone(), columns)
}

#[test]
fn places_give_parameters_their_types() {
    let (_database, mut c) = tables();
    let cases: Vec<(&str, Vec<SqlType>)> = vec![
        ("SELECT i FROM t WHERE id = $1", vec![BigInt]),
        (
            "SELECT i FROM t WHERE $1 = id AND s = $2",
            vec![BigInt, Text],
        ),
        ("SELECT $1 + 1", vec![Integer]),
        ("SELECT i + $1 FROM t", vec![Integer]),
        (
            "SELECT id * $1, n - $2, f / $3 FROM t",
            vec![BigInt, NUMERIC, Double],
        ),
        ("SELECT $1", vec![Text]),
        ("SELECT $1::int, CAST($2 AS date)", vec![Integer, Date]),
        (
            "SELECT $1::numeric(10,2), $2::varchar(3)",
            vec![NUMERIC, Text],
        ),
        (
            "SELECT i FROM t WHERE i IN ($1, $2)",
            vec![Integer, Integer],
        ),
        (
            "SELECT i FROM t WHERE n BETWEEN $1 AND $2",
            vec![NUMERIC, NUMERIC],
        ),
        ("SELECT i FROM t WHERE s LIKE $1", vec![Text]),
        ("SELECT i FROM t LIMIT $1 OFFSET $2", vec![BigInt, BigInt]),
        ("SELECT upper($1), length($2)", vec![Text, Text]),
        ("SELECT coalesce(i, $1) FROM t", vec![Integer]),
        (
            "SELECT CASE WHEN ok THEN f ELSE $1 END FROM t",
            vec![Double],
        ),
        (
            "SELECT i FROM t WHERE d < $1 AND ts >= $2 AND ok = $3",
            vec![Date, TimestampTz, Boolean],
        ),
        (
            "SELECT i FROM t WHERE x = $1 AND u = $2 AND k = $3",
            vec![Bytea, Uuid, SmallInt],
        ),
        (
            "SELECT i FROM t FOR SYSTEM_TIME AS OF $1 WHERE id = $2",
            vec![TimestampTz, BigInt],
        ),
        ("SELECT * FROM generate_series(1, $1)", vec![Integer]),
        (
            "SELECT i FROM t WHERE id = (SELECT max(id) FROM t WHERE i = $1)",
            vec![Integer],
        ),
        (
            "INSERT INTO t (id, s, n) VALUES ($1, $2, $3)",
            vec![BigInt, Text, NUMERIC],
        ),
        (
            "INSERT INTO t (id, i) VALUES ($1, $2 + 1), ($3, 4)",
            vec![BigInt, Integer, BigInt],
        ),
        ("INSERT INTO t (id, d) SELECT $1, $2", vec![BigInt, Date]),
        (
            "INSERT INTO t (id, i) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET i = t.i + $3",
            vec![BigInt, Integer, Integer],
        ),
        (
            "UPDATE t SET i = i + $1, s = $2 WHERE id = $3",
            vec![Integer, Text, BigInt],
        ),
        (
            "UPDATE t SET ts = $1 WHERE id = $2",
            vec![TimestampTz, BigInt],
        ),
        ("DELETE FROM t WHERE id = $1 RETURNING i", vec![BigInt]),
        ("EXPLAIN SELECT i FROM t WHERE id = $1", vec![BigInt]),
        (
            "WITH a AS (SELECT $1::int AS v) SELECT v FROM a",
            vec![Integer],
        ),
        (
            "SELECT i FROM t WHERE id = $2 AND i = $1",
            vec![Integer, BigInt],
        ),
        ("SELECT i FROM t WHERE id = $3", vec![Text, Text, BigInt]),
    ];
    for (sql, expected) in cases {
        assert_eq!(described(&mut c, sql).0, expected, "{sql}");
    }
}

#[test]
fn results_are_known_before_they_are_computed() {
    let (_database, mut c) = tables();
    let shown = |c: &mut Connection, sql: &str| described(c, sql).1.map(|v| v.join(", "));
    let cases = [
        (
            "SELECT id, s FROM t WHERE id = $1",
            Some("id Int64, s Utf8View"),
        ),
        ("SELECT $1", Some("?column? Utf8View")),
        ("SELECT $1 + 1 AS x", Some("x Int32")),
        ("SELECT coalesce(i, $1) AS c FROM t", Some("c Int32")),
        ("VALUES (1, 'a')", Some("column1 Int32, column2 Utf8")),
        ("SELECT count(*) FROM t", Some("count Int64")),
        ("SHOW search_path", Some("search_path Utf8")),
        (
            "SHOW TRANSACTION ISOLATION LEVEL",
            Some("transaction_isolation Utf8"),
        ),
        (
            "SHOW ALL",
            Some("name Utf8, setting Utf8, description Utf8, origin Utf8"),
        ),
        ("EXPLAIN DELETE FROM t", Some("QUERY PLAN Utf8")),
        (
            "INSERT INTO t (id) VALUES ($1) RETURNING id, s",
            Some("id Int64, s Utf8View"),
        ),
        ("UPDATE t SET i = 1 RETURNING i + $1 AS n", Some("n Int32")),
        ("DELETE FROM t RETURNING *", None),
        ("INSERT INTO t (id) VALUES ($1)", None),
        ("UPDATE t SET i = 1", None),
        ("CREATE TABLE u (a int)", None),
        ("BEGIN", None),
        ("COMMIT", None),
        ("SET search_path = public", None),
        ("PREPARE p AS SELECT 1", None),
    ];
    for (sql, expected) in cases {
        let shown = shown(&mut c, sql);
        if sql == "DELETE FROM t RETURNING *" {
            assert!(
                shown.is_some_and(|s| s.starts_with("id Int64, i Int32")),
                "{sql}"
            );
            continue;
        }
        assert_eq!(shown.as_deref(), expected, "{sql}");
    }
    run(&mut c, &["PREPARE q (int) AS SELECT i, $1 AS p FROM t"]);
    assert_eq!(
        shown(&mut c, "EXECUTE q(3)").as_deref(),
        Some("i Int32, p Int32")
    );
    // Nothing of it has run.
    assert_eq!(rows(&mut c, "SELECT id, i FROM t"), ["1|2"]);
}

#[test]
fn declared_types_hold() {
    let (_database, mut c) = tables();
    let p = c
        .prepare_typed("SELECT $1 AS a, $2 AS b", &[Some(BigInt), None])
        .expect("prepares");
    let description = c.describe(&p).expect("describes");
    assert_eq!(description.parameters, [BigInt, Text]);
    let result = c
        .run_prepared(
            &p,
            &[scalar(&Value::BigInt(7)), scalar(&Value::Text("x".into()))],
        )
        .expect("runs")
        .into_result()
        .expect("rows");
    assert_eq!(result.schema().field(0).data_type().to_string(), "Int64");
    let text = c.prepare_typed("SELECT i FROM t WHERE i = $1", &[Some(Text)]);
    assert_eq!(text.expect_err("42883").sqlstate(), SqlState("42883"));
}

fn scalar(value: &Value) -> datafusion::scalar::ScalarValue {
    use strandline::Parameter;
    value.to_scalar()
}

#[test]
fn values_keep_their_parameters_types() {
    let (_database, mut c) = tables();
    let cases = [
        (SmallInt, Value::SmallInt(5), "Int16"),
        (Integer, Value::Integer(-5), "Int32"),
        (BigInt, Value::BigInt(5), "Int64"),
        (Double, Value::Double(1.5), "Float64"),
        (Text, "it's".into(), "Utf8View"),
        (Boolean, Value::Boolean(true), "Boolean"),
        (Bytea, Value::Bytea(vec![1, 2].into()), "BinaryView"),
        (Date, Value::Date(19_723), "Date32"),
        (Uuid, Value::Uuid([7; 16]), "FixedSizeBinary(16)"),
        (
            SqlType::Point,
            Value::Point(Point::new([1.5, -0.0])),
            "FixedSizeList(2 x Float64)",
        ),
        (
            SqlType::Box,
            Value::Box(BoxCorners::new([1.0, 2.0], [3.0, 0.5])),
            "FixedSizeList(4 x Float64)",
        ),
    ];
    for (t, value, arrow) in cases {
        let p = c
            .prepare_typed("SELECT $1 AS v", &[Some(t)])
            .expect("prepares");
        for given in [value.clone(), Value::Null] {
            let done = c.run_prepared(&p, &[scalar(&given)]).expect("runs");
            let result = done.into_result().expect("rows");
            assert_eq!(
                result.schema().field(0).data_type().to_string(),
                arrow,
                "{t}"
            );
            let got = strandline::cell(result.batches()[0].column(0), 0);
            assert_eq!(got.is_none(), given == Value::Null, "{t}");
        }
    }
    let p = c
        .prepare_typed("SELECT $1 + 0.5 AS v", &[Some(NUMERIC)])
        .expect("prepares");
    let text = datafusion::scalar::ScalarValue::from("1.25");
    let done = c.run_prepared(&p, &[text]).expect("runs");
    assert_eq!(super::lines(&done.into_result().expect("rows")), ["1.75"]);
}

#[test]
fn the_number_of_values_must_fit() {
    let (_database, mut c) = tables();
    let p = c
        .prepare_typed("SELECT i FROM t WHERE id = $1", &[])
        .expect("prepares");
    for values in [vec![], vec![scalar(&Value::BigInt(1)); 2]] {
        let error = c.run_prepared(&p, &values).expect_err("08P01");
        assert_eq!(error.sqlstate(), SqlState("08P01"));
    }
}

#[test]
fn mistakes_show_when_preparing() {
    let (_database, mut c) = tables();
    for (sql, state) in [
        ("SELECT * FROM missing", SqlState::UNDEFINED_TABLE),
        ("SELECT nothing FROM t", SqlState::UNDEFINED_COLUMN),
        ("SELEC 1", SqlState::SYNTAX_ERROR),
        ("INSERT INTO t (id) VALUES ($1, $2)", SqlState::SYNTAX_ERROR),
    ] {
        let error = c.prepare_typed(sql, &[]).expect_err(sql);
        assert_eq!(error.sqlstate(), state, "{sql}: {error}");
    }
    run(&mut c, &["BEGIN"]);
    assert!(c.prepare_typed("SELECT * FROM missing", &[]).is_err());
    assert_eq!(c.transaction_status(), TransactionStatus::Failed);
    let refused = c.prepare_typed("SELECT 1", &[]).expect_err("failed block");
    assert_eq!(refused.sqlstate(), SqlState::IN_FAILED_SQL_TRANSACTION);
    let end = c.prepare_typed("ROLLBACK", &[]).expect("ends");
    c.run_prepared(&end, &[]).expect("rolls back");
    assert_eq!(c.transaction_status(), TransactionStatus::Idle);
}

#[test]
fn definitions_of_the_open_block_count() {
    let (_database, mut c) = tables();
    run(&mut c, &["BEGIN", "CREATE TABLE mine (a int)"]);
    assert_eq!(
        described(&mut c, "SELECT a FROM mine WHERE a = $1").0,
        [Integer]
    );
    run(&mut c, &["ROLLBACK"]);
    assert!(
        c.prepare_typed("SELECT a FROM mine WHERE a = $1", &[])
            .is_err()
    );
}

#[test]
fn a_result_that_changes_is_refused() {
    let (_database, mut c) = tables();
    let p = c
        .prepare_typed("SELECT * FROM t WHERE id = $1", &[])
        .expect("prepares");
    let narrow = c
        .prepare_typed("SELECT id FROM t WHERE id = $1", &[])
        .expect("prepares");
    let one = [scalar(&Value::BigInt(1))];
    c.run_prepared(&p, &one).expect("runs");
    run(&mut c, &["ALTER TABLE t ADD COLUMN more int"]);
    let error = c.run_prepared(&p, &one).expect_err("another result");
    assert_eq!(error.message(), "cached plan must not change result type");
    assert!(c.run_prepared(&p, &one).is_err(), "still");
    assert_eq!(
        c.run_prepared(&narrow, &one)
            .expect("as before")
            .rows_affected(),
        1
    );
}

#[test]
fn started_results_wait_for_their_owner() {
    let (_database, mut c) = tables();
    run(&mut c, &["BEGIN"]);
    let p = c
        .prepare_typed("SELECT * FROM generate_series(1, 20000)", &[])
        .expect("prepares");
    let Started::Rows(mut running) = c.start(&p, &[]).expect("starts") else {
        panic!("rows")
    };
    let mut count = c
        .next_batch(&mut running)
        .expect("pulls")
        .expect("rows")
        .num_rows();
    run(&mut c, &["UPDATE t SET i = 9", "SAVEPOINT s"]);
    assert_eq!(rows(&mut c, "SELECT i FROM t"), ["9"]);
    while let Some(batch) = c.next_batch(&mut running).expect("pulls") {
        count += batch.num_rows();
    }
    assert_eq!(count, 20_000);
    assert!(c.next_batch(&mut running).expect("ended").is_none());
    drop(running);
    run(&mut c, &["COMMIT"]);
    let series = c.prepare_typed("SELECT * FROM generate_series(1, $1)", &[Some(BigInt)]);
    let series = series.expect("prepares");
    let done = c
        .run_prepared(&series, &[scalar(&Value::BigInt(3))])
        .expect("runs");
    assert_eq!(done.rows_affected(), 3);
    let script = c
        .prepare_script("SELECT 1; BEGIN; SELECT i FROM t; COMMIT")
        .expect("parses");
    assert_eq!(script.len(), 4);
    let Started::Rows(running) = c.start(&script[0], &[]).expect("starts") else {
        panic!("rows")
    };
    drop(running);
    assert!(c.prepare_script("SELECT 1; SELEC").is_err());
    assert!(
        c.prepare_script(" ; -- nothing")
            .expect("nothing")
            .is_empty()
    );
}
