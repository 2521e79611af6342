//! The row API.

use super::{database, rows, run};
use std::sync::Arc;
use strandline::{Database, Settings, SqlState, Value};
use strandline_device::{Device, MemoryDevice};

fn big(v: i64) -> Value {
    Value::BigInt(v)
}

#[test]
fn get_insert_update_delete() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &["CREATE TABLE t (id bigint PRIMARY KEY, n bigint, s text)"],
    );
    let t = c.table("t").expect("table");
    let (n, s) = (t.column("n").expect("n"), t.column("s").expect("s"));
    let mut txn = c.transaction().expect("begins");
    txn.insert(&t, &[big(1), big(10), "one".into()])
        .expect("inserts");
    txn.insert(&t, &[big(2), Value::Null, Value::Null])
        .expect("inserts");
    assert_eq!(
        txn.get(&t, &[big(1)], &[s, n]).expect("gets"),
        Some(vec!["one".into(), big(10)])
    );
    assert_eq!(txn.get(&t, &[big(3)], &[n]).expect("gets"), None);
    assert!(txn.update(&t, &[big(1)], &[(n, big(11))]).expect("updates"));
    assert!(!txn.update(&t, &[big(9)], &[(n, big(11))]).expect("no row"));
    assert_eq!(
        txn.get(&t, &[big(1)], &[n]).expect("own write"),
        Some(vec![big(11)])
    );
    assert!(txn.delete(&t, &[big(2)]).expect("deletes"));
    assert!(!txn.delete(&t, &[big(2)]).expect("gone"));
    txn.commit().expect("commits");
    assert_eq!(rows(&mut c, "SELECT * FROM t"), ["1|11|one"]);
    let mut txn = c.transaction().expect("begins");
    txn.update(&t, &[big(1)], &[(n, big(0))]).expect("updates");
    drop(txn);
    assert_eq!(rows(&mut c, "SELECT n FROM t"), ["11"]);
}

#[test]
fn types_nulls_keys_and_checks_are_checked() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (id int PRIMARY KEY, v varchar(2), m numeric(4,1) NOT NULL, CHECK (id < m))",
        ],
    );
    let t = c.table("public.t").expect("table");
    let (v, m) = (t.column("v").expect("v"), t.column("m").expect("m"));
    let row = |id: i32, m: i128| [Value::Integer(id), Value::Null, Value::Numeric(m)];
    let mut setup = c.transaction().expect("begins");
    setup.insert(&t, &row(1, 50)).expect("inserts");
    setup.commit().expect("commits");
    let cases: Vec<(Vec<Value>, SqlState)> = vec![
        (
            vec![big(2), Value::Null, Value::Numeric(50)],
            SqlState::DATATYPE_MISMATCH,
        ),
        (
            vec![Value::Integer(2), "abc".into(), Value::Numeric(50)],
            SqlState::STRING_DATA_RIGHT_TRUNCATION,
        ),
        (
            vec![Value::Integer(2), Value::Null, Value::Numeric(10_000)],
            SqlState::NUMERIC_VALUE_OUT_OF_RANGE,
        ),
        (
            vec![Value::Integer(2), Value::Null, Value::Null],
            SqlState::NOT_NULL_VIOLATION,
        ),
        (row(1, 50).to_vec(), SqlState::UNIQUE_VIOLATION),
        (row(7, 50).to_vec(), SqlState::CHECK_VIOLATION),
        (vec![Value::Integer(2)], SqlState::SYNTAX_ERROR),
    ];
    for (row, state) in cases {
        let mut txn = c.transaction().expect("begins");
        let error = txn.insert(&t, &row).expect_err("must fail");
        assert_eq!(error.sqlstate(), state, "{row:?}: {error}");
        let again = txn.get(&t, &[Value::Integer(1)], &[m]).expect_err("failed");
        assert_eq!(again.sqlstate(), SqlState::IN_FAILED_SQL_TRANSACTION);
        assert!(txn.commit().is_err());
    }
    let mut txn = c.transaction().expect("begins");
    assert!(
        txn.get(&t, &[big(1)], &[v]).is_err(),
        "a key of another type"
    );
    let violated = txn.update(&t, &[Value::Integer(1)], &[(m, Value::Numeric(5))]);
    assert_eq!(
        violated.expect_err("check").sqlstate(),
        SqlState::CHECK_VIOLATION
    );
    drop(txn);
    assert_eq!(rows(&mut c, "SELECT id, m FROM t"), ["1|5.0"]);
}

#[test]
fn handles_outlive_definition_changes() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &["CREATE TABLE t (id bigint PRIMARY KEY, a bigint, b bigint)"],
    );
    let t = c.table("t").expect("table");
    let (a, b) = (t.column("a").expect("a"), t.column("b").expect("b"));
    run(
        &mut c,
        &[
            "INSERT INTO t VALUES (1, 2, 3)",
            "ALTER TABLE t ADD COLUMN c int DEFAULT 9",
            "ALTER TABLE t DROP COLUMN a",
        ],
    );
    let mut txn = c.transaction().expect("begins");
    assert_eq!(
        txn.get(&t, &[big(1)], &[b]).expect("gets"),
        Some(vec![big(3)])
    );
    let gone = txn.get(&t, &[big(1)], &[a]).expect_err("dropped");
    assert_eq!(gone.sqlstate(), SqlState::UNDEFINED_COLUMN);
    drop(txn);
    run(&mut c, &["DROP TABLE t"]);
    let mut txn = c.transaction().expect("begins");
    assert_eq!(
        txn.get(&t, &[big(1)], &[b]).expect_err("gone").sqlstate(),
        SqlState::UNDEFINED_TABLE
    );
    drop(txn);
    assert!(c.table("t").is_err());
}

#[test]
fn point_operations_join_a_block() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (id bigint PRIMARY KEY)",
            "BEGIN",
            "INSERT INTO t VALUES (1)",
        ],
    );
    let t = c.table("t").expect("table");
    let mut txn = c.transaction().expect("joins");
    assert!(txn.get(&t, &[big(1)], &[]).expect("own row").is_some());
    txn.insert(&t, &[big(2)]).expect("inserts");
    txn.commit().expect("ends");
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["2"]);
    run(&mut c, &["ROLLBACK"]);
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["0"]);
}

#[test]
fn identities_are_filled() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE t (id serial PRIMARY KEY, v int)"]);
    let t = c.table("t").expect("table");
    let mut txn = c.transaction().expect("begins");
    txn.insert(&t, &[Value::Null, Value::Integer(5)])
        .expect("inserts");
    txn.insert(&t, &[Value::Null, Value::Integer(6)])
        .expect("inserts");
    txn.commit().expect("commits");
    assert_eq!(
        rows(&mut c, "SELECT id, v FROM t ORDER BY id"),
        ["1|5", "2|6"]
    );
}

#[test]
fn concurrent_point_updates_all_count() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (id bigint PRIMARY KEY, n bigint)",
            "INSERT INTO t VALUES (1, 0)",
        ],
    );
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let database = database.clone();
            scope.spawn(move || {
                let mut c = database.connect();
                let t = c.table("t").expect("table");
                let n = t.column("n").expect("n");
                for _ in 0..50 {
                    let mut txn = c.transaction().expect("begins");
                    // The first write takes the row, so the read after it is of the newest.
                    txn.update(&t, &[big(1)], &[(n, big(-1))]).expect("locks");
                    drop(txn);
                    c.execute("UPDATE t SET n = n + 1 WHERE id = 1", ())
                        .expect("adds");
                }
            });
        }
    });
    assert_eq!(rows(&mut c, "SELECT n FROM t"), ["200"]);
}

/// Under read committed nothing is kept for a transaction between its statements.
#[test]
fn an_idle_transaction_keeps_no_old_versions() {
    let device = Arc::new(MemoryDevice::new());
    let settings = Settings {
        background_maintenance: false,
        ..Settings::default()
    };
    let builder = Database::on_device(device.clone()).settings(settings);
    let database = builder.build().expect("opens");
    let mut other = database.connect();
    run(
        &mut other,
        &[
            "CREATE TABLE t (id bigint PRIMARY KEY) WITH (history = 'none')",
            "INSERT INTO t SELECT g FROM generate_series(1, 100) s(g)",
        ],
    );
    database.merge_all().expect("merges");
    let chunk_files = || {
        let names = device.list().expect("lists");
        names.iter().filter(|n| n.starts_with("chunks-")).count()
    };
    assert_eq!(chunk_files(), 1);
    let (mut points, mut queries) = (database.connect(), database.connect());
    let t = points.table("t").expect("table");
    let mut idle = points.transaction().expect("begins");
    assert!(idle.get(&t, &[big(1)], &[]).expect("gets").is_some());
    run(&mut queries, &["BEGIN"]);
    assert_eq!(rows(&mut queries, "SELECT count(*) FROM t"), ["100"]);
    run(&mut other, &["DELETE FROM t"]);
    for _ in 0..3 {
        database.merge_all().expect("merges");
    }
    assert_eq!(chunk_files(), 0, "the deleted rows are gone for good");
    assert!(idle.get(&t, &[big(1)], &[]).expect("gets").is_none());
    assert_eq!(rows(&mut queries, "SELECT count(*) FROM t"), ["0"]);
}
