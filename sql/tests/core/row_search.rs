//! Searches of the row executor: what they note, what they see, and where they give way.

use super::{database, rows, run};
use strandline::{Connection, Database};

const TABLE: &[&str] = &[
    "CREATE TABLE t (id int PRIMARY KEY, a int, b int, s text)",
    "CREATE INDEX t_a_b ON t (a, b DESC)",
    "CREATE INDEX t_s ON t (s)",
    "INSERT INTO t SELECT x, x % 10, x, 's' || x FROM generate_series(1, 60) AS g(x)",
];

fn point_runs(database: &Database) -> u64 {
    let counters = database.counters();
    let found = counters
        .iter()
        .find(|(name, _)| *name == "statements_point");
    found.expect("a counter").1
}

/// The rows of a query that the row executor must take, which are those of the full path.
fn short(database: &Database, c: &mut Connection, sql: &str) -> Vec<String> {
    let before = point_runs(database);
    let found = rows(c, sql);
    assert_eq!(point_runs(database), before + 1, "{sql}");
    c.use_row_executor(false);
    assert_eq!(rows(c, sql), found, "{sql}");
    c.use_row_executor(true);
    found
}

#[test]
fn a_serializable_transaction_notes_what_a_search_reads() {
    // A query, a change of another transaction, and whether it changes what the query reads.
    let cases = [
        (
            "SELECT b FROM t WHERE a = 3",
            "UPDATE t SET b = 0 WHERE id = 13",
            true,
        ),
        (
            "SELECT b FROM t WHERE a = 3",
            "UPDATE t SET b = 0 WHERE id = 14",
            false,
        ),
        (
            "SELECT b FROM t WHERE a = 3 AND b > 30",
            "INSERT INTO t VALUES (99, 3, 31)",
            true,
        ),
        (
            "SELECT b FROM t WHERE a = 3 AND b > 30",
            "INSERT INTO t VALUES (99, 3, 30)",
            false,
        ),
        (
            "SELECT b FROM t WHERE a = 3 ORDER BY b DESC LIMIT 1",
            "INSERT INTO t VALUES (99, 3, 100)",
            true,
        ),
        (
            "SELECT b FROM t WHERE a = 3 ORDER BY b DESC LIMIT 1",
            "DELETE FROM t WHERE id = 53",
            true,
        ),
        (
            "SELECT b FROM t WHERE a = 3 ORDER BY b DESC LIMIT 1",
            "INSERT INTO t VALUES (99, 4, 100)",
            false,
        ),
        (
            "SELECT max(a) FROM t",
            "INSERT INTO t VALUES (99, 100, 0)",
            true,
        ),
        (
            "SELECT b FROM t WHERE id IN (7, 99)",
            "INSERT INTO t VALUES (99, 1, 0)",
            true,
        ),
        (
            "SELECT b FROM t WHERE id IN (7, 99)",
            "INSERT INTO t VALUES (98, 1, 0)",
            false,
        ),
        (
            "DELETE FROM t WHERE a = 3 AND b < 10",
            "INSERT INTO t VALUES (99, 3, 9)",
            true,
        ),
    ];
    for (read, change, conflicts) in cases {
        let database = database();
        let (mut reader, mut writer) = (database.connect(), database.connect());
        run(&mut reader, TABLE);
        run(&mut reader, &["BEGIN ISOLATION LEVEL SERIALIZABLE"]);
        let before = point_runs(&database);
        run(&mut reader, &[read]);
        assert_eq!(point_runs(&database), before + 1, "{read}");
        run(&mut writer, &[change]);
        run(&mut reader, &["INSERT INTO t VALUES (1000, 1000, 1000)"]);
        let outcome = reader.execute("COMMIT", ());
        assert_eq!(outcome.is_err(), conflicts, "{read}; {change}");
    }
}

#[test]
fn a_search_sees_its_snapshot_and_its_own_changes() {
    let database = database();
    let (mut c, mut older) = (database.connect(), database.connect());
    run(&mut c, TABLE);
    run(
        &mut older,
        &["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1 FROM t"],
    );
    let queries = [
        "SELECT id, b FROM t WHERE a = 3 ORDER BY b DESC LIMIT 2",
        "SELECT id FROM t WHERE a IN (3, 50) ORDER BY id",
        "SELECT min(a), max(a) FROM t",
        "SELECT id FROM t WHERE id IN (53, 43, 1, 77) ORDER BY id DESC",
    ];
    let before: Vec<_> = queries.map(|sql| short(&database, &mut older, sql)).into();
    assert_eq!(before[0], ["53|53", "43|43"]);
    run(
        &mut c,
        &[
            "BEGIN",
            "UPDATE t SET a = 50 WHERE id = 53",
            "UPDATE t SET b = -1 WHERE a = 3 AND b = 43",
            "DELETE FROM t WHERE a = 0",
        ],
    );
    assert_eq!(short(&database, &mut c, queries[0]), ["33|33", "23|23"]);
    assert_eq!(
        short(&database, &mut c, queries[1]),
        ["3", "13", "23", "33", "43", "53"]
    );
    assert_eq!(short(&database, &mut c, queries[2]), ["1|50"]);
    run(&mut c, &["COMMIT"]);
    for (sql, known) in queries.iter().zip(&before) {
        assert_eq!(short(&database, &mut older, sql), *known, "{sql}");
    }
    run(&mut older, &["COMMIT"]);
    database.merge_all().expect("merged");
    assert_eq!(short(&database, &mut c, queries[0]), ["33|33", "23|23"]);
    assert_eq!(short(&database, &mut c, queries[3]), ["53", "43", "1"]);
}

#[test]
fn arrays_are_lists_of_values() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, TABLE);
    let list = c.prepare("SELECT id FROM t WHERE a = ANY ($1) AND b < 25");
    let list = list.expect("prepared");
    let before = point_runs(&database);
    for (array, found) in [("{3, 4,NULL,3}", 6), ("{}", 0), ("{77}", 0)] {
        let rows = c.query_prepared(&list, (array,)).expect("rows");
        assert_eq!(rows.row_count(), found, "{array}");
    }
    assert_eq!(point_runs(&database), before + 3);
    for wrong in ["{x}", "3", "{{3}}"] {
        c.use_row_executor(false);
        let full = c
            .query_prepared(&list, (wrong,))
            .map(|rows| rows.row_count());
        c.use_row_executor(true);
        let found = c
            .query_prepared(&list, (wrong,))
            .map(|rows| rows.row_count());
        let text = |r: Result<usize, strandline::Error>| r.map_err(|e| e.message().to_string());
        assert_eq!(text(found), text(full), "{wrong}");
    }
}

#[test]
fn keys_that_are_cut_and_many_rows_take_the_full_path() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, TABLE);
    run(
        &mut c,
        &[
            "INSERT INTO t SELECT 100 + x, 100, x, repeat('z', 1100) || (9 - x) \
             FROM generate_series(1, 9) AS g(x)",
            "INSERT INTO t SELECT 1000 + x, 200, x FROM generate_series(1, 600) AS g(x)",
        ],
    );
    let cases = [
        (
            "SELECT id FROM t WHERE s >= 'zz' ORDER BY s LIMIT 3",
            ["109", "108", "107"],
            false,
        ),
        (
            "SELECT id FROM t WHERE s < 'zz' ORDER BY s DESC LIMIT 3",
            ["9", "8", "7"],
            true,
        ),
        (
            "SELECT b FROM t WHERE a = 200 ORDER BY b DESC LIMIT 3",
            ["600", "599", "598"],
            true,
        ),
        (
            "SELECT b FROM t WHERE a = 200 ORDER BY id LIMIT 3",
            ["1", "2", "3"],
            false,
        ),
        (
            "SELECT b FROM t WHERE a = 200 AND id > 1500 ORDER BY b LIMIT 3",
            ["501", "502", "503"],
            false,
        ),
    ];
    for (sql, wanted, is_short) in cases {
        let before = point_runs(&database);
        assert_eq!(rows(&mut c, sql), wanted, "{sql}");
        assert_eq!(point_runs(&database) > before, is_short, "{sql}");
    }
}

#[test]
fn explain_says_what_the_row_executor_does() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, TABLE);
    let cases = [
        (
            "SELECT b FROM t WHERE a = 3 AND b > 5 AND id > 1 ORDER BY b LIMIT 1",
            "RowExecutor: select t, index=t_a_b (a = AND b >), filters=[id >], order=backward, \
             limit",
        ),
        (
            "SELECT b, a FROM t WHERE a = 3 AND b > 5",
            "RowExecutor: select t, index_only=t_a_b (a = AND b >)",
        ),
        (
            "SELECT b FROM t WHERE id IN (1, 2)",
            "RowExecutor: select t, key=t_pkey (id IN (2 values))",
        ),
        (
            "SELECT b FROM t WHERE a = 3 ORDER BY id",
            "RowExecutor: select t, index=t_a_b (a =), order=sorted",
        ),
        (
            "DELETE FROM t WHERE a = 3",
            "RowExecutor: delete t, index=t_a_b (a =)",
        ),
        (
            "UPDATE t SET b = 1 WHERE id = 3",
            "RowExecutor: update t, key=t_pkey",
        ),
    ];
    for (sql, wanted) in cases {
        let shown = rows(&mut c, &format!("EXPLAIN {sql}"));
        assert_eq!(shown[0], wanted, "{sql}");
        assert!(shown.len() > 1, "{sql}: the plan is shown as well");
        c.use_row_executor(false);
        let shown = rows(&mut c, &format!("EXPLAIN {sql}"));
        assert!(!shown[0].starts_with("RowExecutor"), "{sql}");
        c.use_row_executor(true);
    }
    let ends = rows(&mut c, "EXPLAIN SELECT min(a), max(a) FROM t");
    assert_eq!(
        ends[0],
        "RowExecutor: ends t, index_only=t_a_b, order=forward, limit; \
         index_only=t_a_b, order=backward, limit"
    );
}

/// MIN and MAX have the type that the full path gives them.
#[test]
fn ends_have_the_types_of_the_full_path() {
    let database = database();
    let mut c = database.connect();
    let types = [
        "smallint",
        "int",
        "bigint",
        "numeric(9,2)",
        "text",
        "varchar(7)",
        "char(3)",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "uuid",
        "bytea",
        "real",
        "double precision",
        "interval",
    ];
    for t in types {
        run(
            &mut c,
            &[
                &format!("CREATE TABLE e (k {t})"),
                "CREATE INDEX e_k ON e (k)",
            ],
        );
        let sql = "SELECT min(k), max(k) FROM e";
        let mut answers = [true, false].map(|may| {
            c.use_row_executor(may);
            let answer = c
                .query(sql, ())
                .map(|rows| (rows.schema().clone(), rows.row_count()));
            answer.map_err(|error| error.message().to_string())
        });
        let [short, full] = &mut answers;
        assert_eq!(short, full, "{t}");
        run(&mut c, &["DROP TABLE e"]);
    }
}
