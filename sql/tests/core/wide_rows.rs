//! Wide rows and little memory: batches and results are bounded in bytes, whatever their rows.

use super::{fails, rows, run};
use std::sync::Arc;
use strandline::{Database, Progress, Settings, SqlState, Value};
use strandline_column::row_bytes::batch_bytes;
use strandline_device::MemoryDevice;

/// Partitions of a query.
const PARTITIONS: usize = 2;

/// The least memory that there can be.
fn small_database() -> Database {
    let settings = Settings {
        memory_bytes: Settings::MEMORY_BYTES_MIN,
        background_maintenance: false,
        ..Settings::default()
    };
    Database::on_device(Arc::new(MemoryDevice::new()))
        .settings(settings)
        .query_threads(PARTITIONS)
        .build()
        .expect("opens")
}

fn counter(database: &Database, name: &str) -> u64 {
    let counters = database.counters();
    let found = counters.iter().find(|(counter, _)| *counter == name);
    found.expect("a counter").1
}

#[test]
fn computed_rows_come_in_batches_of_bounded_bytes() {
    let database = small_database();
    let mut c = database.connect();
    let sql =
        "SELECT n, repeat(chr(65 + n % 26), 100000) AS wide FROM generate_series(1, 600) s(n)";
    let mut total = 0;
    for batch in c.query_stream(sql, ()).expect("runs") {
        let batch = batch.expect("a batch");
        let bytes = batch_bytes(&batch);
        assert!(bytes <= 8 << 20, "a batch of {bytes}");
        total += batch.num_rows();
    }
    assert_eq!(total, 600);
    // Narrow rows stay together but for the first of each partition.
    let sql = "SELECT 'row ' || n FROM generate_series(1, 5000) s(n)";
    let stream = c.query_stream(sql, ()).expect("runs");
    let sizes: Vec<usize> = stream.map(|b| b.expect("a batch").num_rows()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 5000);
    let first = sizes.iter().filter(|rows| **rows == 64).count();
    assert!(first <= PARTITIONS, "{sizes:?}");
    assert!(sizes.len() <= 5000 / 512 + 1 + 2 * PARTITIONS, "{sizes:?}");
}

#[test]
fn wide_rows_are_inserted_read_and_changed() {
    let database = small_database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (id int PRIMARY KEY, wide text)",
            "INSERT INTO t SELECT n, n || repeat('x', 100000) FROM generate_series(1, 400) s(n)",
            "UPDATE t SET wide = id || repeat('y', 100000) WHERE id % 50 = 0",
            "DELETE FROM t WHERE id % 50 = 1",
            "CHECKPOINT",
        ],
    );
    let most = counter(&database, "load_bytes_max");
    let bound = database.engine().settings().load_bytes() as u64;
    assert!((1..=bound).contains(&most), "loads held {most}");
    assert_eq!(
        rows(
            &mut c,
            "SELECT count(*), sum(length(wide)), count(*) FILTER (WHERE wide LIKE '%y') FROM t"
        ),
        ["392|39201071|8"]
    );
    assert_eq!(
        rows(&mut c, "SELECT left(wide, 4) FROM t WHERE id IN (50, 52)"),
        ["50yy", "52xx"]
    );
    let stream = c.query_stream("SELECT * FROM t", ()).expect("runs");
    for batch in stream {
        let bytes = batch_bytes(&batch.expect("a batch"));
        assert!(bytes <= 4 << 20, "a batch of {bytes}");
    }
}

#[test]
fn a_result_that_is_gathered_is_taken_from_queries_memory() {
    let database = small_database();
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE t (id int PRIMARY KEY, wide text)"]);
    let insert = "INSERT INTO t SELECT n, repeat('x', 100000) FROM generate_series(1, 200) s(n)";
    let state = SqlState::OUT_OF_MEMORY;
    fails(&mut c, &format!("{insert} RETURNING *"), state);
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["0"]);
    run(&mut c, &[insert]);
    fails(&mut c, "SELECT * FROM t", state);
    fails(&mut c, "SELECT * FROM t FOR UPDATE", state);
    // Rows that are thrown away or pulled one after the other are no such result.
    assert_eq!(c.execute("SELECT * FROM t", ()).expect("runs"), 200);
    let pulled = c.query_stream("SELECT * FROM t", ()).expect("runs");
    assert_eq!(
        pulled
            .map(|b| b.expect("a batch").num_rows())
            .sum::<usize>(),
        200
    );
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["200"]);
    // In a block the statement fails as others do.
    run(&mut c, &["BEGIN"]);
    fails(&mut c, "SELECT * FROM t", state);
    fails(&mut c, "SELECT 1", SqlState::IN_FAILED_SQL_TRANSACTION);
    run(&mut c, &["ROLLBACK"]);
    assert_eq!(counter(&database, "query_bytes"), 0);
}

#[test]
fn appended_rows_are_handed_on_by_bytes() {
    let database = small_database();
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE t (id int, wide text)"]);
    let mut appender = c.appender("t").expect("begins");
    for n in 0..200 {
        let wide = Value::from("x".repeat(100_000));
        appender
            .append_row(&[Value::Integer(n), wide])
            .expect("appends");
        let held = appender.buffered_bytes();
        assert!(held < 1 << 20, "{held} bytes wait after row {n}");
    }
    assert_eq!(appender.finish().expect("finishes"), 200);
    assert_eq!(
        rows(&mut c, "SELECT count(*), min(length(wide)) FROM t"),
        ["200|100000"]
    );
}

#[test]
fn a_value_larger_than_the_memory_is_refused() {
    let database = small_database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (id int PRIMARY KEY, wide text)",
            "INSERT INTO t VALUES (1, '')",
        ],
    );
    let state = SqlState::PROGRAM_LIMIT_EXCEEDED;
    fails(
        &mut c,
        "INSERT INTO t SELECT 2, repeat('x', 20000000)",
        state,
    );
    fails(&mut c, "UPDATE t SET wide = repeat('x', 20000000)", state);
    assert_eq!(rows(&mut c, "SELECT * FROM t"), ["1|"]);
}

/// Rows are read from files in batches of bounded bytes: those that progress is told of.
#[test]
fn files_of_wide_rows_are_read_by_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = small_database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (id int, wide text)",
            "INSERT INTO t SELECT n, n || repeat('x', 100000) FROM generate_series(1, 300) s(n)",
        ],
    );
    for format in ["parquet", "binary", "csv", "text"] {
        let path = directory.path().join(format).display().to_string();
        let to = format!("COPY t TO '{path}' (FORMAT {format})");
        let from = format!("COPY u FROM '{path}' (FORMAT {format})");
        run(&mut c, &["CREATE TABLE u (id int, wide text)", &to]);
        let told = Arc::new(std::sync::Mutex::new(vec![0]));
        let hook = told.clone();
        let hook = move |progress: Progress| hook.lock().expect("hook").push(progress.rows);
        c.on_progress(Some(Arc::new(hook)));
        run(&mut c, &[&from]);
        c.on_progress(None);
        let mut told = told.lock().expect("told").clone();
        told.sort_unstable();
        let most = told.windows(2).map(|w| w[1] - w[0]).max();
        assert_eq!(told.last(), Some(&300), "{format}");
        assert!(most <= Some(60), "{format}: {told:?}");
        let right = "SELECT count(*) FROM u WHERE wide LIKE id || 'x%'
                     AND length(wide) = 100000 + length(id::text)";
        assert_eq!(rows(&mut c, right), ["300"], "{format}");
        run(&mut c, &["DROP TABLE u"]);
    }
}

/// Operators gather rows up to a number of them: it follows from the tables' width.
#[test]
fn batches_of_operators_follow_from_the_rows_width() {
    let database = small_database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (id int, wide text)",
            "INSERT INTO t SELECT n, n || repeat('x', 100000) FROM generate_series(1, 300) s(n)",
        ],
    );
    // The condition is not one for the scan.
    let filtered = "SELECT * FROM t WHERE random() + id >= 0";
    let mut total = 0;
    for batch in c.query_stream(filtered, ()).expect("runs") {
        let batch = batch.expect("a batch");
        let bytes = batch_bytes(&batch);
        assert!(bytes <= 8 << 20, "a batch of {bytes}");
        total += batch.num_rows();
    }
    assert_eq!(total, 300);
}

/// A sort counts what its batches share once for each: few rows a batch would make it fail.
#[test]
fn narrow_rows_are_sorted_with_little_memory() {
    let settings = Settings {
        memory_bytes: 128 << 20,
        background_maintenance: false,
        ..Settings::default()
    };
    let database = Database::on_device(Arc::new(MemoryDevice::new()))
        .settings(settings)
        .query_threads(PARTITIONS)
        .build()
        .expect("opens");
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (id int, name text)",
            "INSERT INTO t SELECT n, 'the name of number ' || n FROM generate_series(1, 200000) s(n)",
        ],
    );
    let sql = "SELECT count(*), max(r) FROM
               (SELECT row_number() OVER (ORDER BY name, id) AS r FROM t) x";
    assert_eq!(rows(&mut c, sql), ["200000|200000"]);
}
