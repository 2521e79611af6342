//! Plans that are kept from one execution to the next give what a new plan would.

use super::{database, database_with_clock, fails, lines, rows, run};
use arrow::datatypes::DataType;
use std::sync::Arc;
use strandline::{Connection, Database, QueryResult, Settings, SqlState, Value};
use strandline_base::ManualClock;
use strandline_base::SqlType;
use strandline_device::{Device, MemoryDevice};

/// The tables that are read.
const FILL: &[&str] = &[
    "CREATE TABLE t (k int PRIMARY KEY, g int, b bigint, x double precision, s text, \
             day date, at timestamptz, ok boolean)",
    "INSERT INTO t SELECT n, n % 7, n * 10000000000, n / 4.0, 'text ' || n % 5, \
             DATE '2024-01-01' + n % 30, TIMESTAMPTZ '2024-01-01 00:00:00+00' + n * INTERVAL '1 hour', \
             n % 3 = 0 FROM generate_series(1, 200) AS s(n)",
    "INSERT INTO t (k) VALUES (1000)",
    "CREATE TABLE u (g int, name text)",
    "INSERT INTO u VALUES (0, 'zero'), (1, 'one'), (2, NULL)",
    "CREATE VIEW v AS SELECT t.k, u.name FROM t JOIN u ON t.g = u.g",
];

fn filled() -> Database {
    let database = database();
    run(&mut database.connect(), FILL);
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
            "CREATE TABLE numbered (id int GENERATED ALWAYS AS IDENTITY, v int)",
            "CREATE TABLE big (k int PRIMARY KEY, v text) WITH (history = 'none')",
            "INSERT INTO big SELECT n, 'some text ' || n FROM generate_series(1, 20000) s(n)",
        ],
    );
    database.checkpoint().expect("writes");
    for _ in 0..3 {
        rows(&mut pooled, "SELECT sum(v) FROM small WHERE v >= 0");
        run(
            &mut pooled,
            &[
                "UPDATE small SET v = v + 1 WHERE v < 0",
                "INSERT INTO small SELECT k, v FROM small ON CONFLICT DO NOTHING",
                "INSERT INTO numbered (v) SELECT v FROM small WHERE v < 0",
            ],
        );
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

/// The tables that statements of [`CHANGES`] change besides `t`.
const CHANGED: &[&str] = &[
    "CREATE TABLE i (id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, v int, w int DEFAULT 7)",
    "CREATE TABLE c (a int CHECK (a > 0), b varchar(3), made timestamptz DEFAULT now(), \
     k int UNIQUE NOT NULL)",
    "INSERT INTO c (a, b, k) SELECT n, 'b' || n % 10, n FROM generate_series(1, 30) AS s(n)",
];

/// Statements that change rows, of one parameter each, with its type: one plan serves all values.
const CHANGES: &[(&str, SqlType)] = &[
    ("UPDATE t SET g = g + $1 WHERE k < 20", SqlType::Integer),
    ("UPDATE t SET g = 100 / $1 WHERE k < 5", SqlType::Integer),
    (
        "UPDATE t SET k = k + $1 WHERE k > 100 RETURNING k",
        SqlType::Integer,
    ),
    (
        "UPDATE t SET s = $1, day = DEFAULT WHERE g = 3",
        SqlType::Text,
    ),
    ("UPDATE t SET b = $1 WHERE k < 4", SqlType::BigInt),
    ("UPDATE c SET b = $1 WHERE a < 4", SqlType::Text),
    ("UPDATE c SET a = $1 WHERE k = 9 OR k = 10", SqlType::BigInt),
    (
        "UPDATE t SET at = $1 WHERE at > $1 OR k = 7",
        SqlType::TimestampTz,
    ),
    (
        "UPDATE t SET s = u.name FROM u WHERE t.g = u.g AND u.g <> $1 RETURNING t.k, u.name, s",
        SqlType::Integer,
    ),
    (
        "WITH w AS (SELECT g FROM u WHERE g <= $1) UPDATE t SET s = 'w' FROM w WHERE t.g = w.g",
        SqlType::Integer,
    ),
    (
        "UPDATE t SET (g, s) = (SELECT max(g), max(name) FROM u WHERE u.g < $1) WHERE k < 3",
        SqlType::Integer,
    ),
    (
        "DELETE FROM t WHERE k % 50 = $1 RETURNING *",
        SqlType::Integer,
    ),
    (
        "DELETE FROM t USING u WHERE t.g = u.g AND t.k > 90 AND u.g = $1 RETURNING t.k, u.name",
        SqlType::Integer,
    ),
    (
        "INSERT INTO t (k, g) SELECT k + 2000 + $1, g FROM t WHERE k < 5",
        SqlType::Integer,
    ),
    (
        "INSERT INTO t (k, s) SELECT 10 * k + $1, s FROM t WHERE k BETWEEN 30 AND 33 \
         ON CONFLICT (k) DO UPDATE SET s = excluded.s || t.s RETURNING k, s",
        SqlType::Integer,
    ),
    (
        "INSERT INTO t (k) SELECT k + $1 FROM t WHERE k < 9 ON CONFLICT DO NOTHING",
        SqlType::Integer,
    ),
    (
        "INSERT INTO t (k, s) VALUES (3000 + $1, 'a'), (4000 + $1 / 2, 'b') RETURNING k",
        SqlType::Integer,
    ),
    (
        "INSERT INTO t (k, s) VALUES (50, $1), (51, $1 || '!') \
         ON CONFLICT (k) DO UPDATE SET s = excluded.s",
        SqlType::Text,
    ),
    (
        "INSERT INTO i (v) SELECT g FROM u WHERE g <> $1 ORDER BY g DESC RETURNING id, v, w",
        SqlType::Integer,
    ),
    (
        "INSERT INTO i VALUES (DEFAULT, $1, DEFAULT), (900, $1, $1) ON CONFLICT DO NOTHING",
        SqlType::Integer,
    ),
    (
        "INSERT INTO c (a, k) VALUES ($1, 100), ($1, 101) RETURNING made",
        SqlType::Integer,
    ),
    (
        "INSERT INTO c (a, b, k) SELECT 1, $1, 200 + count(*) FROM c",
        SqlType::Text,
    ),
    (
        "MERGE INTO t USING u ON t.g = u.g AND t.k < $1 \
         WHEN MATCHED AND u.name IS NULL THEN DELETE \
         WHEN MATCHED THEN UPDATE SET s = u.name \
         WHEN NOT MATCHED THEN INSERT (k, g) VALUES (7000 + u.g, u.g)",
        SqlType::Integer,
    ),
];

/// Statements that change rows and are planned each time they run.
const PLANNED: &[&str] = &[
    "UPDATE i SET id = DEFAULT WHERE v = $1",
    "MERGE INTO i USING u ON i.v = u.g + $1 WHEN NOT MATCHED THEN INSERT (v) VALUES (u.g)",
    "INSERT INTO i (v) SELECT v FROM i FOR SYSTEM_TIME AS OF now() WHERE v = $1",
    "UPDATE i SET w = (SELECT max(u.g) FROM u WHERE u.g <= i.v) WHERE v > $1",
];

/// Two databases with the same rows and the same clock, which stands still.
fn twins() -> [Database; 2] {
    [(); 2].map(|()| {
        let (database, _) = database_with_clock();
        let mut c = database.connect();
        run(&mut c, FILL);
        run(&mut c, CHANGED);
        database
    })
}

/// What a statement has done: RETURNING's rows in some order, or how many rows it changed.
fn done(c: &mut Connection, sql: &str, t: SqlType, value: &Value) -> Result<Vec<String>, String> {
    let prepared = c.prepare_typed(sql, &[Some(t)]).expect(sql);
    let values = (value.clone(),);
    let done = match sql.contains("RETURNING") {
        true => c.query_prepared(&prepared, values).map(|result| {
            let mut rows = lines(&result);
            rows.sort();
            rows
        }),
        false => c
            .execute_prepared(&prepared, values)
            .map(|rows| vec![rows.to_string()]),
    };
    done.map_err(|e| format!("{e:?}"))
}

/// All rows of all tables.
fn state(c: &mut Connection) -> Vec<String> {
    let mut state = rows(c, "SELECT * FROM t ORDER BY k");
    state.extend(rows(c, "SELECT * FROM i ORDER BY id"));
    state.extend(rows(c, "SELECT * FROM c ORDER BY k"));
    state
}

/// Runs `sql` with each value twice: how many executions used a kept plan, and how many failed.
fn compare_changes(twins: &[Database; 2], sql: &str, t: SqlType, values: &[Value]) -> (u64, u64) {
    let [mut c, mut anew] = twins.each_ref().map(Database::connect);
    c.use_row_executor(false);
    anew.use_row_executor(false);
    let mut counting = twins[0].connect();
    let (mut used, mut failed) = (0, 0);
    for (n, value) in values.iter().chain(values).enumerate() {
        let before = reused(&mut counting);
        let by_kept = done(&mut c, sql, t, value);
        used += reused(&mut counting) - before;
        // A statement that runs for the first time has a plan of its own.
        let by_new = done(&mut anew, &format!("{sql} -- {n}"), t, value);
        failed += u64::from(by_kept.is_err());
        assert_eq!(by_kept, by_new, "{sql} with {value:?}, execution {n}");
        assert_eq!(state(&mut c), state(&mut anew), "{sql} with {value:?}");
    }
    (used, failed)
}

#[test]
fn changes_by_a_kept_plan_are_those_of_a_new_one() {
    let twins = twins();
    for (sql, t) in CHANGES {
        let mut values = samples(*t);
        values.push(Value::Null);
        let (used, failed) = compare_changes(&twins, sql, *t, &values);
        let runs = 2 * values.len() as u64;
        assert!(failed < runs, "{sql} never succeeds");
        // A value that no plan can be made for needs no plan.
        assert!(used + failed >= runs - 2, "{sql}: {used} of {runs}");
    }
    for sql in PLANNED {
        let values = [1, 2, 0].map(Value::Integer);
        let (used, failed) = compare_changes(&twins, sql, SqlType::Integer, &values);
        assert_eq!((used, failed), (0, 0), "{sql}");
    }
}

/// A value that cannot be planned for leaves the slot to others.
#[test]
fn a_value_does_not_spoil_the_plan() {
    let database = filled();
    let mut c = database.connect();
    let sql = "SELECT count(*) FROM t WHERE g >= $1";
    for _ in 0..3 {
        let refused = c.query(sql, ("x",)).expect_err("is no integer");
        assert_eq!(refused.sqlstate(), SqlState::INVALID_TEXT_REPRESENTATION);
    }
    let mut counting = database.connect();
    let before = reused(&mut counting);
    for _ in 0..3 {
        assert_eq!(lines(&c.query(sql, ("7",)).expect("runs")), ["0"]);
    }
    assert_eq!(reused(&mut counting) - before, 2);
}

/// Numbers and moments that a program gives have types of their own: one plan serves them.
#[test]
fn a_program_s_values_share_a_plan() {
    let database = filled();
    let mut c = database.connect();
    let mut counting = database.connect();
    let before = reused(&mut counting);
    for n in 0..6i64 {
        let update = "UPDATE t SET x = x + $1, day = $2 WHERE g < $3 - 100";
        let values = (Value::Double(0.5), Value::Date(n as i32), Value::BigInt(n));
        assert_eq!(c.execute(update, values).expect("runs"), 0);
        let found = c.query("SELECT $1, count(*) FROM t WHERE g = $1", (n,));
        let column = found.expect("runs").schema().field(0).clone();
        assert_eq!(column.data_type(), &DataType::Int32);
    }
    // The short plans are made at the second execution, and run then.
    assert_eq!(reused(&mut counting) - before, 10);
    let wide = c.query("SELECT $1, count(*) FROM t WHERE g = $1", (i64::MAX,));
    let column = wide.expect("runs").schema().field(0).clone();
    assert_eq!(column.data_type(), &DataType::Int64);
}

/// Runs a statement often enough that its plan is kept.
fn often(c: &mut Connection, sql: &str) {
    run(c, &[sql, sql, sql]);
}

#[test]
fn changes_go_by_the_definitions_of_now() {
    let database = filled();
    let mut c = database.connect();
    let mut counting = database.connect();
    let insert = "INSERT INTO w SELECT k, g FROM t WHERE k < 3";
    let update = "UPDATE w SET b = b + 1 WHERE a < 2";
    run(&mut c, &["CREATE TABLE w (a int, b int)"]);
    let before = reused(&mut counting);
    often(&mut c, insert);
    often(&mut c, update);
    assert_eq!(reused(&mut counting) - before, 2);
    assert_eq!(rows(&mut c, "SELECT * FROM w WHERE a = 1"), ["1|4"; 3]);
    // A default, a condition, another type.
    run(
        &mut c,
        &["ALTER TABLE w ADD COLUMN c int DEFAULT 5", "DELETE FROM w"],
    );
    often(&mut c, insert);
    assert_eq!(rows(&mut c, "SELECT * FROM w WHERE a = 1"), ["1|1|5"; 3]);
    run(
        &mut c,
        &[
            "ALTER TABLE w ALTER COLUMN c SET DEFAULT 6",
            "DELETE FROM w",
        ],
    );
    often(&mut c, insert);
    assert_eq!(rows(&mut c, "SELECT * FROM w WHERE a = 1"), ["1|1|6"; 3]);
    run(
        &mut c,
        &["ALTER TABLE w ADD CONSTRAINT small CHECK (b < 3)"],
    );
    run(&mut c, &[update]);
    for _ in 0..3 {
        fails(&mut c, update, SqlState::CHECK_VIOLATION);
    }
    // What is rolled back never was.
    for end in ["ROLLBACK", "COMMIT"] {
        run(&mut c, &["BEGIN", "ALTER TABLE w DROP CONSTRAINT small"]);
        often(&mut c, update);
        run(&mut c, &[end]);
    }
    often(&mut c, update);
    assert_eq!(rows(&mut c, "SELECT b FROM w WHERE a = 1"), ["8"; 3]);
    run(&mut c, &["ALTER TABLE w DROP COLUMN b"]);
    for _ in 0..3 {
        fails(&mut c, update, SqlState::UNDEFINED_COLUMN);
    }
    run(&mut c, &["DROP TABLE w"]);
    for _ in 0..3 {
        fails(&mut c, update, SqlState::UNDEFINED_TABLE);
    }
    run(&mut c, &["CREATE TABLE w (a bigint, b text)"]);
    for _ in 0..3 {
        fails(
            &mut c,
            "UPDATE w SET b = 1 + b WHERE a < 2",
            SqlState("42883"),
        );
        run(&mut c, &["INSERT INTO w SELECT k, g FROM t WHERE k < 3"]);
    }
    // The schema that is searched.
    run(
        &mut c,
        &[
            "CREATE SCHEMA s",
            "CREATE TABLE s.w (a int, b int)",
            "DELETE FROM w",
        ],
    );
    let into = "INSERT INTO w SELECT k, g FROM public.t WHERE k < 3";
    for _ in 0..3 {
        run(&mut c, &["SET search_path = s"]);
        often(&mut c, into);
        run(&mut c, &["SET search_path = public", into]);
    }
    assert_eq!(rows(&mut c, "SELECT count(*) FROM s.w"), ["18"]);
    assert_eq!(rows(&mut c, "SELECT count(*) FROM w"), ["6"]);
}

#[test]
fn changes_need_the_privileges_of_now() {
    let database = filled();
    let mut root = database.connect();
    run(
        &mut root,
        &[
            "CREATE USER writer",
            "GRANT SELECT, UPDATE, INSERT, DELETE ON t TO writer",
        ],
    );
    let mut c = database.connect_as("writer").expect("connects");
    let changes = [
        ("UPDATE t SET g = g + 1 WHERE g < 0", "UPDATE"),
        ("DELETE FROM t WHERE g < -5", "DELETE"),
        ("INSERT INTO t (k) SELECT k FROM t WHERE g < -5", "INSERT"),
        ("INSERT INTO t (k) SELECT k FROM t WHERE k < -5", "SELECT"),
        (
            "WITH w AS (SELECT 1) UPDATE t SET g = g + 2 WHERE g < 0",
            "UPDATE",
        ),
    ];
    for (sql, privilege) in changes {
        often(&mut c, sql);
        run(
            &mut root,
            &[&format!("REVOKE {privilege} ON t FROM writer")],
        );
        for _ in 0..3 {
            fails(&mut c, sql, SqlState("42501"));
        }
        run(&mut root, &[&format!("GRANT {privilege} ON t TO writer")]);
        often(&mut c, sql);
    }
}

/// A statement that meets a newer version runs again by its kept plan, at a new snapshot.
#[test]
fn a_kept_plan_runs_again_after_a_conflict() {
    let database = filled();
    run(&mut database.connect(), &["UPDATE t SET b = 0"]);
    let before = reused(&mut database.connect());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut c = database.connect();
                for _ in 0..25 {
                    run(
                        &mut c,
                        &["UPDATE t SET b = b + 1 WHERE k + 0 BETWEEN 3 AND 5"],
                    );
                    run(
                        &mut c,
                        &["INSERT INTO u SELECT g, 'seen' FROM u WHERE name = 'zero'"],
                    );
                }
            });
        }
    });
    let mut c = database.connect();
    assert!(reused(&mut c) - before >= 4 * 2 * 23);
    assert_eq!(
        rows(&mut c, "SELECT b FROM t WHERE k BETWEEN 2 AND 6 ORDER BY k"),
        ["0", "100", "100", "100", "0"]
    );
    assert_eq!(
        rows(&mut c, "SELECT count(*) FROM u WHERE name = 'seen'"),
        ["100"]
    );
}

#[test]
fn changes_in_a_block_are_undone_with_it() {
    let database = filled();
    let mut c = database.connect();
    let count = "SELECT count(*), sum(g) FROM u";
    let double = "INSERT INTO u SELECT g + 10, name FROM u";
    run(&mut c, &["BEGIN"]);
    for rows_now in ["6|36", "12|132", "24|384"] {
        run(&mut c, &[double]);
        assert_eq!(rows(&mut c, count), [rows_now]);
    }
    run(&mut c, &["ROLLBACK", "BEGIN", "SAVEPOINT a", double]);
    run(&mut c, &["ROLLBACK TO a", double, "COMMIT"]);
    assert_eq!(rows(&mut c, count), ["6|36"]);
}

/// Prepared statements and arguments: each is to give what the statement gives with the arguments
/// in their places.
const EXECUTED: &[(&str, &str, &[&[&str]])] = &[
    (
        "(int) AS SELECT count(*) FROM t WHERE g < $1",
        "SELECT count(*) FROM t WHERE g < $1",
        &[
            &["3::int"],
            &["NULL"],
            &["'4'::int"],
            &["(2.6)::int"],
            &["(-1)::int"],
        ],
    ),
    (
        "AS SELECT k + $1, $1 FROM t WHERE k < $2 ORDER BY 1",
        "SELECT k + $1, $1 FROM t WHERE k < $2 ORDER BY 1",
        &[
            &["1", "4"],
            &["5000000000", "4"],
            &["1.50", "3"],
            &["2", "1 + 2"],
        ],
    ),
    (
        "(date, text) AS SELECT k, $2 FROM t WHERE day = $1 AND s <> $2 ORDER BY k",
        "SELECT k, $2 FROM t WHERE day = $1 AND s <> $2 ORDER BY k",
        &[
            &["DATE '2024-01-03'", "'text 2'::text"],
            &["'2024-01-04'::date", "NULL::text"],
            &["DATE '2024-01-03' + 1", "'it''s'::text"],
        ],
    ),
    (
        "(numeric, varchar(3)) AS SELECT $1 * 2, $2 || '!'",
        "SELECT $1 * 2, $2 || '!'",
        &[
            &["1.25::numeric", "'abcdef'::varchar(3)"],
            &["7::numeric", "'a'"],
        ],
    ),
];

#[test]
fn execute_gives_what_the_statement_gives() {
    let database = filled();
    let mut c = database.connect();
    for (prepared, sql, calls) in EXECUTED {
        run(&mut c, &[&format!("PREPARE p {prepared}")]);
        for arguments in calls.iter().chain(*calls) {
            let mut written = sql.to_string();
            for (n, argument) in arguments.iter().enumerate() {
                written = written.replace(&format!("${}", n + 1), &format!("({argument})"));
            }
            let call = format!("EXECUTE p ({})", arguments.join(", "));
            assert_eq!(rows(&mut c, &call), rows(&mut c, &written), "{call}");
        }
        run(&mut c, &["DEALLOCATE p"]);
    }
}

#[test]
fn execute_keeps_the_plan_of_its_statement() {
    let database = filled();
    let mut c = database.connect();
    let mut counting = database.connect();
    run(
        &mut c,
        &[
            "PREPARE q (int) AS SELECT count(*) FROM t WHERE g < $1",
            "PREPARE w (int, date) AS UPDATE t SET g = g - $1, day = $2 WHERE k < 4 AND g > $1 - 9",
            "PREPARE n AS INSERT INTO u SELECT g, 'new' FROM t WHERE k = $1 OR k = 3 RETURNING g",
        ],
    );
    for (call, times) in [
        ("EXECUTE q ({})", 4),
        ("EXECUTE w ({}, '2024-02-0{}')", 4),
        ("EXECUTE n ({})", 4),
    ] {
        let before = reused(&mut counting);
        for n in 1..=6 {
            run(&mut c, &[&call.replace("{}", &n.to_string())]);
        }
        assert_eq!(reused(&mut counting) - before, times, "{call}");
    }
    assert_eq!(
        rows(&mut c, "SELECT count(*) FROM u WHERE name = 'new'"),
        ["11"]
    );
    // An argument is one value, computed before.
    run(
        &mut c,
        &["PREPARE r AS SELECT count(DISTINCT x) FROM (SELECT $1 AS x FROM t) s"],
    );
    assert_eq!(rows(&mut c, "EXECUTE r (random())"), ["1"]);
    assert_eq!(rows(&mut c, "EXECUTE r ((SELECT max(k) FROM t))"), ["1"]);
    // What is wrong with one says so, and the plan stays.
    let before = reused(&mut counting);
    for _ in 0..2 {
        fails(
            &mut c,
            "EXECUTE q ('x')",
            SqlState::INVALID_TEXT_REPRESENTATION,
        );
        fails(&mut c, "EXECUTE q (3000000000)", SqlState("22003"));
        fails(&mut c, "EXECUTE q (nothing)", SqlState::UNDEFINED_COLUMN);
        fails(
            &mut c,
            "EXECUTE q (generate_series(1, 2))",
            SqlState("0A000"),
        );
        fails(&mut c, "EXECUTE q (1, 2)", SqlState::SYNTAX_ERROR);
        run(&mut c, &["EXECUTE q (2)"]);
    }
    assert_eq!(reused(&mut counting) - before, 2);
    // A name is what it was prepared as last, in the catalog of now.
    run(
        &mut c,
        &["DROP VIEW v", "ALTER TABLE t RENAME COLUMN g TO h"],
    );
    for _ in 0..3 {
        fails(&mut c, "EXECUTE q (1)", SqlState::UNDEFINED_COLUMN);
    }
    run(
        &mut c,
        &["DEALLOCATE q", "PREPARE q (int) AS SELECT $1 + 1"],
    );
    for n in 1..4 {
        assert_eq!(
            rows(&mut c, &format!("EXECUTE q ({n})")),
            [(n + 1).to_string()]
        );
    }
}
