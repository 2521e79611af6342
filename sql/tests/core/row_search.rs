//! Searches of the row executor: what they note, what they see, and where they give way.

use super::{database, fails, rows, run};
use std::sync::atomic::{AtomicBool, Ordering};
use strandline::{Connection, Database, SqlState};

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
        (
            "SELECT b FROM t WHERE id BETWEEN 58 AND 70",
            "INSERT INTO t VALUES (66, 3, 9)",
            true,
        ),
        (
            "SELECT b FROM t WHERE id BETWEEN 58 AND 70",
            "INSERT INTO t VALUES (71, 3, 9)",
            false,
        ),
        (
            "SELECT b FROM t WHERE id > 40 ORDER BY id LIMIT 2",
            "UPDATE t SET b = 0 WHERE id = 42",
            true,
        ),
        (
            "SELECT b FROM t WHERE id > 40 ORDER BY id LIMIT 2",
            "UPDATE t SET b = 0 WHERE id = 40",
            false,
        ),
        (
            "SELECT id FROM t WHERE (a, b) < (3, 30) ORDER BY a DESC, b LIMIT 2",
            "INSERT INTO t VALUES (99, 3, 29)",
            true,
        ),
        (
            "SELECT id FROM t WHERE (a, b) < (3, 30) ORDER BY a DESC, b LIMIT 2",
            "INSERT INTO t VALUES (99, 4, 29)",
            false,
        ),
        (
            "SELECT b FROM t WHERE id = 7 OR s = 'none'",
            "INSERT INTO t VALUES (99, 0, 0, 'none')",
            true,
        ),
        (
            "SELECT b FROM t WHERE id = 7 OR s = 'none'",
            "INSERT INTO t VALUES (99, 0, 0, 'some')",
            false,
        ),
        (
            "SELECT b FROM t WHERE id = (SELECT min(id) FROM t WHERE a = 3 AND b > 20)",
            "UPDATE t SET b = 0 WHERE id = 23",
            true,
        ),
        (
            "SELECT b FROM t WHERE id = (SELECT min(id) FROM t WHERE a = 3 AND b > 20)",
            "UPDATE t SET b = 0 WHERE id = 24",
            false,
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
        (
            "SELECT b FROM t WHERE id >= 3 AND b > 5 ORDER BY id LIMIT 2",
            "RowExecutor: select t, key=t_pkey (id >=), filters=[b >], order=forward, limit",
        ),
        (
            "SELECT s FROM t WHERE (a, s) >= (3, 's3') ORDER BY a, s LIMIT 2",
            "RowExecutor: select t, index=t_a_b (a >=), filters=[(a, s) >=], \
             order=forward and sorted, limit",
        ),
        (
            "SELECT b FROM t WHERE id = 3 OR a = 3 AND b < 9",
            "RowExecutor: select t, key=t_pkey (id =) or index=t_a_b (a = AND b <)",
        ),
        (
            "UPDATE t SET b = 1 WHERE id = (SELECT id FROM t WHERE s >= 's3' ORDER BY s LIMIT 1 \
             FOR UPDATE)",
            "RowExecutor: update t, key=t_pkey; value 1: select t, index=t_s (s >=), \
             order=forward, limit, FOR UPDATE",
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

/// Pairs and triples with NULLs, and indexes in both directions.
const PAIRS: &[&str] = &[
    "CREATE TABLE p (id int PRIMARY KEY, a int, b int, c int, n int NOT NULL, m int NOT NULL)",
    "CREATE INDEX p_a_b ON p (a, b)",
    "CREATE INDEX p_n_m ON p (n, m DESC)",
    "CREATE INDEX p_m ON p (m DESC, n DESC)",
    "INSERT INTO p SELECT x, nullif(x % 7, 6), nullif(x % 5, 4), x % 3, x % 10, x \
     FROM generate_series(1, 90) AS g(x)",
];

#[test]
fn comparisons_of_rows_are_ranges_of_an_index() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, PAIRS);
    let constants = [
        "(3, 2)",
        "(3, 4)",
        "(0, 0)",
        "(5, 3)",
        "(9, 9)",
        "(3, NULL)",
    ];
    for constant in constants {
        for op in [">", ">=", "<", "<="] {
            let queries = [
                format!("SELECT id FROM p WHERE (a, b) {op} {constant} ORDER BY a, b, id LIMIT 7"),
                format!(
                    "SELECT id FROM p WHERE (a, b) {op} {constant} ORDER BY a DESC, b DESC, id \
                     LIMIT 3 OFFSET 2"
                ),
                format!(
                    "SELECT id FROM p WHERE {constant} {op} (a, b) ORDER BY a, b, c, id LIMIT 5"
                ),
                format!("SELECT id FROM p WHERE (m, n) {op} {constant} ORDER BY m, n LIMIT 4"),
                format!(
                    "SELECT id FROM p WHERE (m, n) {op} {constant} ORDER BY m DESC, n DESC LIMIT 4"
                ),
                format!("SELECT id FROM p WHERE (n, m) {op} {constant} ORDER BY n, m DESC LIMIT 4"),
                format!("SELECT id FROM p WHERE (n, m) {op} {constant} ORDER BY n, m LIMIT 12"),
                format!("SELECT id FROM p WHERE a = 2 AND (b, id) {op} {constant} ORDER BY id"),
                format!("SELECT count(*), max(id) FROM p WHERE a = 2 AND (c, b) {op} {constant}"),
            ];
            for sql in queries {
                short(&database, &mut c, &sql);
            }
        }
    }
    let triple =
        "SELECT id FROM p WHERE (a, b, c) > (3, 1, 1) AND c < 2 ORDER BY a, b, c, id LIMIT 9";
    assert_eq!(short(&database, &mut c, triple).len(), 9);
    let equal = "SELECT id FROM p WHERE (a, b) = (3, 1) AND (c, 1) = (1, c) ORDER BY id";
    assert_eq!(short(&database, &mut c, equal), ["31"]);
    // The whole of two groups is read to find its first rows.
    let first = "SELECT a, id FROM p WHERE a > 1 ORDER BY a, id DESC LIMIT 2";
    assert_eq!(short(&database, &mut c, first), ["2|86", "2|79"]);
    run(&mut c, &["BEGIN", "UPDATE p SET a = 1 WHERE id = 86"]);
    assert_eq!(short(&database, &mut c, first), ["2|79", "2|72"]);
    let locked = format!("{first} FOR UPDATE");
    assert_eq!(short(&database, &mut c, &locked), ["2|79", "2|72"]);
    run(&mut c, &["ROLLBACK"]);
}

#[test]
fn a_walk_that_sorts_locks_the_rows_it_gives() {
    let database = database();
    let (mut a, mut b) = (database.connect(), database.connect());
    run(&mut a, PAIRS);
    run(
        &mut a,
        &["BEGIN", "SELECT 1 FROM p WHERE id IN (2, 9) FOR UPDATE"],
    );
    let next = "SELECT a, id FROM p WHERE a > 1 ORDER BY a, id LIMIT 2 FOR UPDATE SKIP LOCKED";
    run(&mut b, &["BEGIN"]);
    let before = point_runs(&database);
    assert_eq!(rows(&mut b, next), ["2|16", "2|23"]);
    assert_eq!(point_runs(&database), before + 1);
    let free = "SELECT id FROM p WHERE a = 2 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED";
    assert_eq!(rows(&mut a, free), ["2"]);
    let others = "SELECT id FROM p WHERE a = 2 AND id > 10 ORDER BY id LIMIT 1 \
                  FOR UPDATE SKIP LOCKED";
    assert_eq!(rows(&mut a, others), ["30"]);
    run(&mut a, &["ROLLBACK"]);
    run(&mut b, &["ROLLBACK"]);
}

#[test]
fn ranges_of_integers_are_looked_up_number_by_number() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, TABLE);
    run(
        &mut c,
        &[
            "CREATE TABLE u (g text, n smallint, v int, PRIMARY KEY (n, g)) WITH (key_index = 'hash')",
            "INSERT INTO u SELECT 'g' || x % 3, x, x FROM generate_series(1, 30) AS g(x)",
            "DELETE FROM t WHERE id IN (8, 30)",
            // A row moves to a number that another row had.
            "UPDATE t SET id = 8 WHERE id = 5",
        ],
    );
    let cases: [(&str, &[&str]); 12] = [
        (
            "SELECT id, b FROM t WHERE id BETWEEN 4 AND 9 ORDER BY id LIMIT 4",
            &["4|4", "6|6", "7|7", "8|5"],
        ),
        (
            "SELECT id FROM t WHERE id > 28 ORDER BY id LIMIT 2",
            &["29", "31"],
        ),
        (
            "SELECT id FROM t WHERE id < 9 ORDER BY id DESC LIMIT 2 OFFSET 1",
            &["7", "6"],
        ),
        (
            "SELECT id FROM t WHERE id >= 57 AND id < 100 ORDER BY id DESC",
            &["60", "59", "58", "57"],
        ),
        (
            "SELECT max(b), count(*) FROM t WHERE id BETWEEN 3 AND 8",
            &["7|5"],
        ),
        ("SELECT max(id) FROM t WHERE id < 31", &["29"]),
        (
            "SELECT id FROM t WHERE id BETWEEN 3 AND 8 AND s > 's6' ORDER BY s",
            &["7"],
        ),
        ("SELECT id FROM t WHERE id BETWEEN 9 AND 3", &[]),
        ("SELECT id FROM t WHERE id BETWEEN 3 AND NULL", &[]),
        (
            "SELECT v FROM u WHERE g = 'g1' AND n >= 5 ORDER BY n LIMIT 2",
            &["7", "10"],
        ),
        (
            "SELECT v FROM u WHERE g IN ('g0', 'g1') AND n BETWEEN 5 AND 9 ORDER BY v DESC",
            &["9", "7", "6"],
        ),
        (
            "SELECT id FROM t WHERE id BETWEEN 4 AND 6 AND id < 6 ORDER BY id FOR UPDATE",
            &["4"],
        ),
    ];
    for (sql, wanted) in cases {
        assert_eq!(short(&database, &mut c, sql), wanted, "{sql}");
    }
    // Numbers without rows, and ranges of many numbers, are left to the full path.
    for sql in [
        "SELECT id FROM t WHERE id > 58 ORDER BY id LIMIT 5",
        "SELECT id FROM t WHERE id BETWEEN 3 AND 1000 ORDER BY b",
        "SELECT v FROM u WHERE n > 5 AND g > 'g1'",
    ] {
        let before = point_runs(&database);
        rows(&mut c, sql);
        assert_eq!(point_runs(&database), before, "{sql}");
    }
    let before = point_runs(&database);
    run(
        &mut c,
        &[
            "DELETE FROM t WHERE id BETWEEN 4 AND 6",
            "UPDATE t SET b = 0 WHERE id <= 2 AND id > 0",
        ],
    );
    assert_eq!(point_runs(&database), before + 2);
    assert_eq!(
        rows(
            &mut c,
            "SELECT count(*), min(id), sum(b) FROM t WHERE id < 8"
        ),
        ["4|1|10"]
    );
}

#[test]
fn several_paths_lead_to_the_rows_of_an_or() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, TABLE);
    let cases: [(&str, &[&str]); 8] = [
        (
            "SELECT id FROM t WHERE id = 7 OR s = 's9' ORDER BY id",
            &["7", "9"],
        ),
        ("SELECT id FROM t WHERE id = 7 OR s = 's7'", &["7"]),
        (
            "SELECT id FROM t WHERE (id = 7 AND b = 8) OR (s = 's9' AND a = 9)",
            &["9"],
        ),
        (
            "SELECT id FROM t WHERE (id = 7 OR (a = 3 AND b > 30)) AND b < 50 ORDER BY b DESC LIMIT 2",
            &["43", "33"],
        ),
        (
            "SELECT count(*), sum(b) FROM t WHERE id IN (1, 2) OR a = 3 OR s = NULL",
            &["8|171"],
        ),
        (
            "SELECT id FROM t WHERE (id = 7 OR s = 's9') AND (b = 9 OR a = 0) AND length(s) = 2",
            &["9"],
        ),
        (
            "SELECT id FROM t WHERE a = 3 AND (b = 3 OR s = 's13') ORDER BY id",
            &["3", "13"],
        ),
        (
            "SELECT id FROM t WHERE id IS NOT DISTINCT FROM 5 OR id = 6 ORDER BY id FOR UPDATE",
            &["5", "6"],
        ),
    ];
    for (sql, wanted) in cases {
        assert_eq!(short(&database, &mut c, sql), wanted, "{sql}");
    }
    let without_path = "SELECT id FROM t WHERE id = 7 OR b = 9 ORDER BY id";
    let before = point_runs(&database);
    assert_eq!(rows(&mut c, without_path), ["7", "9"]);
    run(&mut c, &["UPDATE t SET b = -1 WHERE id = 7 OR s = 's9'"]);
    run(&mut c, &["DELETE FROM t WHERE s = 's9' OR a = 5"]);
    assert_eq!(point_runs(&database), before + 2);
    assert_eq!(rows(&mut c, "SELECT count(*), min(b) FROM t"), ["53|-1"]);
}

#[test]
fn arrays_of_another_integer_type_are_lists() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, TABLE);
    let found = short(
        &database,
        &mut c,
        "SELECT id FROM t WHERE id = ANY(ARRAY[7, 9]) ORDER BY id",
    );
    assert_eq!(found, ["7", "9"]);
    for item in ["smallint", "bigint", "int"] {
        let sql = format!("SELECT id FROM t WHERE id = ANY(CAST($1 AS {item}[])) ORDER BY id");
        let list = c.prepare(&sql).expect("prepared");
        let before = point_runs(&database);
        let rows = c.query_prepared(&list, ("{3,4,NULL,3,-7}",)).expect("rows");
        assert_eq!(rows.row_count(), 2, "{item}");
        assert_eq!(point_runs(&database), before + 1, "{item}");
        for wrong in ["{x}", "{1.5}", "{99999999999999999999}", "{70000}"] {
            let mut answers = [true, false].map(|may| {
                c.use_row_executor(may);
                let found = c.query_prepared(&list, (wrong,));
                found
                    .map(|rows| rows.row_count())
                    .map_err(|e| e.message().to_string())
            });
            c.use_row_executor(true);
            let [short, full] = &mut answers;
            assert_eq!(short, full, "{item} {wrong}");
        }
    }
}

#[test]
fn values_of_subqueries_are_of_the_statement_s_snapshot() {
    let database = database();
    let (mut c, mut other) = (database.connect(), database.connect());
    run(&mut c, TABLE);
    let cases: [(&str, &[&str]); 6] = [
        (
            "SELECT id FROM t WHERE id = (SELECT max(id) FROM t WHERE a = 3)",
            &["53"],
        ),
        (
            "SELECT id FROM t WHERE a = (SELECT a FROM t WHERE id = 13) AND b < 20 ORDER BY id",
            &["3", "13"],
        ),
        (
            "SELECT id FROM t WHERE id = (SELECT id FROM t WHERE s = 'none')",
            &[],
        ),
        (
            "SELECT id FROM t WHERE id = (SELECT min(b) FROM t WHERE a = (SELECT a FROM t WHERE id = 12))",
            &["2"],
        ),
        (
            "SELECT count(*) FROM t WHERE a = 3 AND b > (SELECT b FROM t WHERE id = 30)",
            &["3"],
        ),
        (
            "SELECT id FROM t AS x WHERE x.id = (SELECT y.b FROM t AS y WHERE y.a = 3 \
             ORDER BY y.b DESC LIMIT 1) FOR UPDATE",
            &["53"],
        ),
    ];
    for (sql, wanted) in cases {
        assert_eq!(short(&database, &mut c, sql), wanted, "{sql}");
    }
    fails(
        &mut c,
        "SELECT id FROM t WHERE id = (SELECT id FROM t WHERE a = 3)",
        SqlState("21000"),
    );
    // Not decided by its own rows alone.
    let correlated =
        "SELECT id FROM t AS x WHERE id = (SELECT max(id) FROM t WHERE a = x.a) ORDER BY id";
    let before = point_runs(&database);
    assert_eq!(rows(&mut c, correlated).len(), 10);
    assert_eq!(point_runs(&database), before);
    let changes = [
        (
            "UPDATE t SET b = (SELECT max(b) FROM t WHERE a = 3) + 1 WHERE id = 1",
            1,
        ),
        (
            "UPDATE t SET b = (SELECT max(b) FROM t WHERE a = 3) WHERE id = 2",
            1,
        ),
        (
            "DELETE FROM t WHERE id = (SELECT min(id) FROM t WHERE a = 9)",
            1,
        ),
        (
            "DELETE FROM t WHERE id = (SELECT min(id) FROM t WHERE a = 99)",
            0,
        ),
    ];
    for (sql, count) in changes {
        let done = c.execute(sql, ()).expect(sql);
        assert_eq!(done, count, "{sql}");
    }
    assert_eq!(
        rows(
            &mut other,
            "SELECT id, b FROM t WHERE id IN (1, 2, 9) ORDER BY id"
        ),
        ["1|54", "2|53"]
    );
    // Both parts read as of one moment, whatever commits between them.
    run(&mut c, &["INSERT INTO t VALUES (500, 77, 0)"]);
    let is_done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for turn in 0..300 {
                let sql = format!("UPDATE t SET b = {turn} WHERE id = 500");
                other.execute(&sql, ()).expect("an update");
            }
            is_done.store(true, Ordering::Relaxed);
        });
        let same = "SELECT count(*) FROM t WHERE a = 77 AND b = (SELECT b FROM t WHERE a = 77)";
        while !is_done.load(Ordering::Relaxed) {
            assert_eq!(rows(&mut c, same), ["1"]);
        }
    });
}
