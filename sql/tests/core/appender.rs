//! Bulk loads.

use super::{database, rows, run};
use std::sync::Arc;
use strandline::{SqlState, Value};

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};

#[test]
fn rows_and_batches_load() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE t (id bigint PRIMARY KEY, s text)"]);
    let mut appender = c.appender("t").expect("begins");
    for i in 0..70_000i64 {
        appender
            .append_row(&[Value::BigInt(i), format!("row {i}").into()])
            .expect("appends");
    }
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(70_000..80_000));
    let texts: ArrayRef = Arc::new(StringArray::from(vec![None::<&str>; 10_000]));
    let batch = RecordBatch::try_from_iter([("x", ids), ("y", texts)]).expect("batch");
    appender.append_batch(&batch).expect("appends");
    assert_eq!(appender.finish().expect("finishes"), 80_000);
    assert_eq!(
        rows(&mut c, "SELECT count(*), count(s), sum(id) FROM t"),
        ["80000|70000|3199960000"]
    );
    assert_eq!(
        rows(&mut c, "SELECT s FROM t WHERE id = 69999"),
        ["row 69999"]
    );
}

#[test]
fn a_dropped_or_failed_load_leaves_nothing() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &["CREATE TABLE t (id int PRIMARY KEY CHECK (id >= 0), s text NOT NULL)"],
    );
    let row = |i: i32| [Value::Integer(i), "x".into()];
    let mut dropped = c.appender("t").expect("begins");
    dropped.append_row(&row(1)).expect("appends");
    drop(dropped);
    let mut duplicate = c.appender("t").expect("begins");
    for i in [1, 2, 1] {
        duplicate.append_row(&row(i)).expect("appends");
    }
    assert_eq!(
        duplicate.finish().expect_err("key").sqlstate(),
        SqlState::UNIQUE_VIOLATION
    );
    let mut negative = c.appender("t").expect("begins");
    negative.append_row(&row(-1)).expect("buffers");
    assert_eq!(
        negative.finish().expect_err("check").sqlstate(),
        SqlState::CHECK_VIOLATION
    );
    let mut null = c.appender("t").expect("begins");
    null.append_row(&[Value::Integer(1), Value::Null])
        .expect("buffers");
    assert_eq!(
        null.finish().expect_err("null").sqlstate(),
        SqlState::NOT_NULL_VIOLATION
    );
    let mut typed = c.appender("t").expect("begins");
    assert!(typed.append_row(&[Value::BigInt(1), "x".into()]).is_err());
    assert!(typed.append_row(&[Value::Integer(1)]).is_err());
    drop(typed);
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["0"]);
    assert!(c.appender("nope").is_err());
}

#[test]
fn a_load_belongs_to_the_open_block() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE t (id int)", "BEGIN"]);
    let mut appender = c.appender("t").expect("begins");
    for i in 0..10_000 {
        appender.append_row(&[Value::Integer(i)]).expect("appends");
    }
    appender.finish().expect("finishes");
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["10000"]);
    assert_eq!(
        rows(&mut database.connect(), "SELECT count(*) FROM t"),
        ["0"]
    );
    run(&mut c, &["ROLLBACK"]);
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["0"]);
}

#[test]
fn a_json_column_takes_json_only() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE t (id int PRIMARY KEY, j json)"]);
    let row = |id: i32, json: &str| [Value::Integer(id), json.into()];
    let mut appender = c.appender("t").expect("begins");
    let refused = appender.append_row(&row(1, "{")).expect_err("no json");
    assert_eq!(refused.sqlstate(), SqlState::INVALID_TEXT_REPRESENTATION);
    drop(appender);
    let mut appender = c.appender("t").expect("begins");
    appender.append_row(&row(1, "{\"a\": [1]}")).expect("json");
    appender
        .append_row(&[Value::Integer(2), Value::Null])
        .expect("null");
    appender.finish().expect("finishes");
    let mut appender = c.appender("t").expect("begins");
    let ids: ArrayRef = Arc::new(datafusion::arrow::array::Int32Array::from(vec![3, 4]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["1", "oops"]));
    let batch = RecordBatch::try_from_iter([("id", ids), ("j", texts)]).expect("batch");
    let appended = appender
        .append_batch(&batch)
        .and_then(|()| appender.finish());
    let refused = appended.expect_err("no json");
    assert_eq!(refused.sqlstate(), SqlState::INVALID_TEXT_REPRESENTATION);
    let t = c.table("t").expect("table");
    let j = t.column("j").expect("j");
    let mut txn = c.transaction().expect("begins");
    let refused = txn.insert(&t, &row(5, "nope")).expect_err("no json");
    assert_eq!(refused.sqlstate(), SqlState::INVALID_TEXT_REPRESENTATION);
    drop(txn);
    let mut txn = c.transaction().expect("begins");
    let refused = txn.update(&t, &[Value::Integer(1)], &[(j, "nope".into())]);
    let refused = refused.expect_err("no json");
    assert_eq!(refused.sqlstate(), SqlState::INVALID_TEXT_REPRESENTATION);
    drop(txn);
    assert_eq!(
        rows(&mut c, "SELECT id, j FROM t ORDER BY id"),
        ["1|{\"a\": [1]}", "2|NULL"]
    );
}
