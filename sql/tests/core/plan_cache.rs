//! Plans that are kept from one execution to the next give what a new plan would.

use super::{database, database_with_clock, fails, lines, rows, run};
use arrow::datatypes::DataType;
use std::sync::Arc;
use strandline::{Connection, Database, QueryResult, Settings, SqlState, Value};
use strandline_base::ManualClock;
use strandline_base::SqlType;
use strandline_device::{Device, MemoryDevice};

fn filled() -> Database {
    let database = database();
    run(
        &mut database.connect(),
        &[
            "CREATE TABLE t (k int PRIMARY KEY, g int, b bigint, x double precision, s text, \
             day date, at timestamptz, ok boolean)",
            "INSERT INTO t SELECT n, n % 7, n * 10000000000, n / 4.0, 'text ' || n % 5, \
             DATE '2024-01-01' + n % 30, TIMESTAMPTZ '2024-01-01 00:00:00+00' + n * INTERVAL '1 hour', \
             n % 3 = 0 FROM generate_series(1, 200) AS s(n)",
            "INSERT INTO t (k) VALUES (1000)",
            "CREATE TABLE u (g int, name text)",
            "INSERT INTO u VALUES (0, 'zero'), (1, 'one'), (2, NULL)",
            "CREATE VIEW v AS SELECT t.k, u.name FROM t JOIN u ON t.g = u.g",
        ],
    );
    database
}

/// How many executions have used a kept plan.
fn reused(c: &mut Connection) -> u64 {
    let counter = "SELECT value FROM strandline_stats() WHERE name = 'plans_reused'";
    rows(c, counter)[0].parse().unwrap()
}

/// Queries of one parameter each, with its type: a plan for any value serves all of them.
const GENERIC: &[(&str, SqlType)] = &[
    (
        "SELECT k, s FROM t WHERE g = $1 ORDER BY k",
        SqlType::Integer,
    ),
    (
        "SELECT k + $1, k * $1 - 1 FROM t WHERE g < $1 + 1 ORDER BY 1",
        SqlType::Integer,
    ),
    (
        "SELECT count(*), $1 FROM t WHERE b > $1 GROUP BY 2",
        SqlType::BigInt,
    ),
    ("SELECT sum(x * $1), $1 / 2 FROM t", SqlType::Double),
    (
        "SELECT s || $1, count(*) FROM t WHERE s <> $1 GROUP BY 1 ORDER BY 1",
        SqlType::Text,
    ),
    ("SELECT k FROM t WHERE s LIKE $1 ORDER BY k", SqlType::Text),
    (
        "SELECT k, day - $1 FROM t WHERE day >= $1 ORDER BY k",
        SqlType::Date,
    ),
    (
        "SELECT k FROM t WHERE at = $1 OR at > $1 AND ok ORDER BY k",
        SqlType::TimestampTz,
    ),
    (
        "SELECT count(*) FROM t WHERE ok = $1 OR $1 IS NULL",
        SqlType::Boolean,
    ),
    (
        "SELECT k FROM t WHERE g IN (SELECT g FROM u WHERE g <> $1) ORDER BY k",
        SqlType::Integer,
    ),
    (
        "SELECT k, (SELECT max(name) FROM u WHERE g = $1) FROM t ORDER BY k",
        SqlType::Integer,
    ),
    (
        "SELECT k FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.g = t.g AND u.g > $1) ORDER BY k",
        SqlType::Integer,
    ),
    (
        "WITH w AS (SELECT g, sum(k) AS n FROM t WHERE k > $1 GROUP BY g) SELECT * FROM w ORDER BY g",
        SqlType::Integer,
    ),
    (
        "SELECT name, count(*) FROM v WHERE k < $1 GROUP BY name ORDER BY name",
        SqlType::Integer,
    ),
    (
        "SELECT k, rank() OVER (PARTITION BY g > $1 ORDER BY k) FROM t ORDER BY k",
        SqlType::Integer,
    ),
    (
        "SELECT CASE WHEN k > $1 THEN 'more' ELSE NULL END, $1::text FROM t ORDER BY k",
        SqlType::Integer,
    ),
    ("VALUES ($1, 1), (2, $1)", SqlType::Integer),
    (
        "SELECT k FROM t WHERE k > $1 UNION SELECT g FROM u ORDER BY 1",
        SqlType::Integer,
    ),
    (
        "SELECT DISTINCT g FROM t WHERE g BETWEEN $1 AND $1 + 2 ORDER BY g",
        SqlType::Integer,
    ),
];

/// Queries whose types, or more, go by the parameter's value: no plan serves all.
const BY_VALUE: &[&str] = &[
    "SELECT round(x::numeric(20,6), $1) FROM t ORDER BY k",
    "SELECT k FROM t WHERE round(x::numeric(20,6), $1) = 0.5 ORDER BY k",
    "SELECT sum(trunc(x::numeric(20,6), $1)) FROM t",
    "SELECT round(x::numeric(20,6), $1) FROM t UNION SELECT 1.5 ORDER BY 1",
    "SELECT g + $1, count(*) FROM t GROUP BY ROLLUP (g + $1) ORDER BY 1, 2",
    "SELECT k FROM t ORDER BY k LIMIT $1",
    "SELECT $1, count(*) FROM t GROUP BY CUBE ($1) ORDER BY 1, 2",
];

fn samples(t: SqlType) -> Vec<Value> {
    match t {
        SqlType::Integer => [-1, 0, 1, 2, 5, 150, i32::MAX - 1]
            .map(Value::Integer)
            .into(),
        SqlType::BigInt => [i64::MIN, 0, 1_000_000_000_000].map(Value::BigInt).into(),
        SqlType::Double => [-0.5, 0.0, 1e300].map(Value::Double).into(),
        SqlType::Text => ["text 1", "text%", "", "it's \\ ü"]
            .map(|s| Value::Text(s.into()))
            .into(),
        SqlType::Date => [0, 19_730, 30_000].map(Value::Date).into(),
        SqlType::TimestampTz => [0, 1_704_078_000_000_000].map(Value::TimestampTz).into(),
        SqlType::Boolean => [true, false].map(Value::Boolean).into(),
        other => panic!("no samples of {other}"),
    }
}

/// Names and types; whether a column may be NULL depends on the value.
fn columns(result: &QueryResult) -> Vec<(String, DataType)> {
    let fields = result.schema().fields().iter();
    fields
        .map(|f| (f.name().clone(), f.data_type().clone()))
        .collect()
}

/// Runs `sql` with each value twice, on one connection where its plan may be kept and each time as
/// a new statement.
fn compare(database: &Database, sql: &str, t: SqlType, values: &[Value]) {
    let (mut c, mut fresh) = (database.connect(), database.connect());
    let prepared = c.prepare_typed(sql, &[Some(t)]).expect(sql);
    for (n, value) in values.iter().chain(values).enumerate() {
        let kept = c.query_prepared(&prepared, (value.clone(),));
        // A statement that runs for the first time has a plan of its own.
        let text = format!("{sql} -- {n}");
        let once = fresh.prepare_typed(&text, &[Some(t)]).expect(sql);
        match (kept, fresh.query_prepared(&once, (value.clone(),))) {
            (Ok(kept), Ok(planned)) => {
                assert_eq!(columns(&kept), columns(&planned), "{sql} with {value:?}");
                assert_eq!(lines(&kept), lines(&planned), "{sql} with {value:?}");
            }
            (Err(kept), Err(planned)) => {
                assert_eq!(
                    kept.to_string(),
                    planned.to_string(),
                    "{sql} with {value:?}"
                );
            }
            (kept, planned) => panic!("{sql} with {value:?}: {kept:?} but {planned:?}"),
        }
    }
}

#[test]
fn one_plan_serves_all_values() {
    let database = filled();
    let mut counting = database.connect();
    for (sql, t) in GENERIC {
        let mut values = samples(*t);
        values.push(Value::Null);
        let before = reused(&mut counting);
        compare(&database, sql, *t, &values);
        let times = 2 * values.len() as u64 - 2;
        assert_eq!(reused(&mut counting) - before, times, "{sql}");
        // The counter's own statement has a plan that is kept.
        counting = database.connect();
    }
    for sql in BY_VALUE {
        let values = [1, 3, 0].map(Value::Integer);
        compare(&database, sql, SqlType::Integer, &values);
    }
}

/// A kept plan keeps no snapshot: dropped tables give their files back.
#[test]
fn a_kept_plan_pins_nothing() {
    let device = Arc::new(MemoryDevice::new());
    let clock = Arc::new(ManualClock::new(1_704_067_200_000_000));
    let settings = Settings {
        background_maintenance: false,
        ..Settings::default()
    };
    let database = Database::on_device(device.clone())
        .settings(settings)
        .clock(clock.clone())
        .build()
        .expect("opens");
    let (mut c, mut pooled) = (database.connect(), database.connect());
    run(
        &mut c,
        &[
            "CREATE TABLE small (k int PRIMARY KEY, v int)",
            "INSERT INTO small VALUES (1, 0)",
            "CREATE TABLE big (k int PRIMARY KEY, v text) WITH (history = 'none')",
            "INSERT INTO big SELECT n, 'some text ' || n FROM generate_series(1, 20000) s(n)",
        ],
    );
    database.checkpoint().expect("writes");
    for _ in 0..3 {
        rows(&mut pooled, "SELECT sum(v) FROM small WHERE v >= 0");
    }
    run(&mut c, &["DROP TABLE big"]);
    for _ in 0..4 {
        clock.advance(40 * 24 * 3_600_000_000);
        run(&mut c, &["UPDATE small SET v = v + 1 WHERE k = 1"]);
        database.checkpoint().expect("writes");
    }
    for name in device.list().expect("lists") {
        let bytes = device
            .open(&name)
            .and_then(|file| file.len())
            .expect("is there");
        let is_data = name.contains("run") || name.contains("chunks");
        assert!(!is_data || bytes < 100_000, "{name} has {bytes} bytes");
    }
}

/// What one statement was planned for is nothing to the next.
#[test]
fn small_queries_leave_others_their_partitions() {
    let device = Arc::new(MemoryDevice::new());
    let database = Database::on_device(device)
        .query_threads(4)
        .build()
        .expect("opens");
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE b AS SELECT n FROM generate_series(1, 200000) s(n)",
            "CREATE TABLE u AS SELECT 1 AS n",
        ],
    );
    for _ in 0..3 {
        let small = rows(&mut c, "EXPLAIN SELECT n, count(*) FROM u GROUP BY n");
        assert!(!small.join(" ").contains("Repartition"), "{small:?}");
        let big = rows(&mut c, "EXPLAIN SELECT n, count(*) FROM b GROUP BY n");
        assert!(big.join(" ").contains("Repartition"), "{big:?}");
        let write = rows(
            &mut c,
            "EXPLAIN UPDATE b SET n = 1 WHERE n IN (SELECT n FROM u)",
        );
        assert!(write.join(" ").contains("CoalescePartitions"), "{write:?}");
    }
}

#[test]
fn data_time_and_definitions_are_those_of_now() {
    let (database, clock) = database_with_clock();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int, b int)",
            "CREATE VIEW v AS SELECT a FROM t",
        ],
    );
    let count = "SELECT count(*), now()::text FROM v";
    for n in 0..5 {
        let now = format!("{n}|2024-01-01 00:00:0{n}");
        assert_eq!(rows(&mut c, count)[0][..now.len()], now);
        let past = "SELECT count(*) FROM t FOR SYSTEM_TIME AS OF now()";
        assert_eq!(rows(&mut c, past), [n.to_string()]);
        run(&mut c, &["INSERT INTO t VALUES (1, 2)"]);
        clock.set(1_704_067_200_000_000 + (n + 1) * 1_000_000);
    }
    let all = "SELECT * FROM t LIMIT 1";
    for _ in 0..3 {
        assert_eq!(rows(&mut c, all), ["1|2"]);
    }
    let before = reused(&mut c);
    assert_eq!(rows(&mut c, all), ["1|2"]);
    assert_eq!(reused(&mut c), before + 1);
    run(&mut c, &["ALTER TABLE t ADD COLUMN c int DEFAULT 3"]);
    for _ in 0..3 {
        assert_eq!(rows(&mut c, all), ["1|2|3"]);
    }
    run(
        &mut c,
        &["CREATE OR REPLACE VIEW v AS SELECT a FROM t WHERE a = 2"],
    );
    for _ in 0..3 {
        assert_eq!(&rows(&mut c, count)[0][..2], "0|");
    }
    run(
        &mut c,
        &["DROP VIEW v", "DROP TABLE t", "CREATE TABLE t (z text)"],
    );
    for _ in 0..3 {
        assert_eq!(rows(&mut c, all), [""; 0]);
    }
    run(
        &mut c,
        &["CREATE SCHEMA s", "CREATE TABLE s.t AS SELECT 'other' AS o"],
    );
    for _ in 0..3 {
        run(&mut c, &["SET search_path = s"]);
        assert_eq!(rows(&mut c, all), ["other"]);
        run(&mut c, &["SET search_path = public"]);
        assert_eq!(rows(&mut c, all), [""; 0]);
    }
    // What an open transaction has defined is seen by it alone.
    run(
        &mut c,
        &[
            "BEGIN",
            "ALTER TABLE t ADD COLUMN y int",
            "INSERT INTO t VALUES ('z', 1)",
        ],
    );
    for _ in 0..3 {
        assert_eq!(rows(&mut c, all), ["z|1"]);
    }
    run(&mut c, &["ROLLBACK"]);
    for _ in 0..3 {
        assert_eq!(rows(&mut c, all), [""; 0]);
    }
}

#[test]
fn a_statement_sees_its_own_snapshot() {
    let database = filled();
    let (mut c, mut other) = (database.connect(), database.connect());
    let sum = "SELECT sum(k) FROM t WHERE g = 1";
    let first = rows(&mut c, sum);
    for _ in 0..3 {
        assert_eq!(rows(&mut c, sum), first);
    }
    run(&mut c, &["BEGIN ISOLATION LEVEL REPEATABLE READ"]);
    assert_eq!(rows(&mut c, sum), first);
    run(&mut other, &["DELETE FROM t WHERE g = 1"]);
    assert_eq!(rows(&mut c, sum), first);
    run(&mut c, &["COMMIT"]);
    assert_eq!(rows(&mut c, sum), ["NULL"]);
    // The past is planned each time, and so is what looks at the session.
    let before = reused(&mut c);
    for _ in 0..4 {
        rows(&mut c, "SELECT count(*) FROM t FOR SYSTEM_TIME AS OF now()");
        rows(
            &mut c,
            "SELECT current_user, pg_backend_pid(), k FROM t LIMIT 1",
        );
        rows(
            &mut c,
            "SELECT (SELECT count(*) FROM u WHERE u.g > t.g) FROM t ORDER BY k LIMIT 1",
        );
        rows(&mut c, "SELECT relname FROM pg_class WHERE relname = 't'");
    }
    assert!(reused(&mut c) - before <= 2, "of the counter's own query");
}

#[test]
fn privileges_are_those_of_now() {
    let database = filled();
    let mut root = database.connect();
    run(
        &mut root,
        &["CREATE USER reader", "GRANT SELECT ON t TO reader"],
    );
    let mut c = database.connect_as("reader").expect("connects");
    let query = "SELECT count(*) FROM t WHERE g = 3";
    for _ in 0..3 {
        rows(&mut c, query);
    }
    run(&mut root, &["REVOKE SELECT ON t FROM reader"]);
    for _ in 0..3 {
        fails(&mut c, query, SqlState("42501"));
    }
    run(&mut root, &["GRANT SELECT ON t TO reader"]);
    for _ in 0..3 {
        rows(&mut c, query);
    }
}
