//! Queries over tables: filters, joins, aggregates, own writes, many ranges.

use super::{database, rows, run};

#[test]
fn filters_joins_and_aggregates() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE dept (id int PRIMARY KEY, name text NOT NULL)",
            "CREATE TABLE emp (id int PRIMARY KEY, dept int, pay numeric(10,2), since date)",
            "INSERT INTO dept VALUES (1, 'tools'), (2, 'toys'), (3, 'empty')",
            "INSERT INTO emp VALUES (1, 1, 10.50, '2020-01-31'), (2, 1, 20.25, '2021-02-28'),
             (3, 2, 30, NULL), (4, NULL, NULL, '2024-02-29')",
        ],
    );
    assert_eq!(
        rows(&mut c, "SELECT id FROM emp WHERE pay > 15 ORDER BY id"),
        ["2", "3"]
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT id FROM emp WHERE since >= '2021-01-01' ORDER BY 1"
        ),
        ["2", "4"]
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT id FROM emp WHERE pay IS NULL OR since IS NULL ORDER BY 1"
        ),
        ["3", "4"]
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT d.name, count(e.id), sum(e.pay) FROM dept d LEFT JOIN emp e ON e.dept = d.id
             GROUP BY d.name ORDER BY d.name"
        ),
        ["empty|0|NULL", "tools|2|30.75", "toys|1|30.00"]
    );
    assert_eq!(rows(&mut c, "SELECT count(*) FROM emp"), ["4"]);
    assert_eq!(rows(&mut c, "SELECT 1 + 1"), ["2"]);
    assert_eq!(
        rows(&mut c, "VALUES (1, 'a'), (2, NULL)"),
        ["1|a", "2|NULL"]
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT name FROM dept WHERE id IN (SELECT dept FROM emp) ORDER BY 1"
        ),
        ["tools", "toys"]
    );
    assert_eq!(
        rows(
            &mut c,
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n, dept
                      WHERE i < 4 AND dept.id = 1) SELECT sum(i) FROM n"
        ),
        ["10"]
    );
}

#[test]
fn scans_cover_many_ranges_once() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &["CREATE TABLE big (id bigint PRIMARY KEY, v bigint)"],
    );
    let loaded = c
        .execute(
            "INSERT INTO big SELECT g, g * 2 FROM generate_series(1, 200000) AS t(g)",
            (),
        )
        .expect("loads");
    assert_eq!(loaded, 200_000);
    let check = |c: &mut strandline::Connection| {
        assert_eq!(
            rows(c, "SELECT count(*), sum(v), min(id), max(id) FROM big"),
            ["200000|40000200000|1|200000"]
        );
        assert_eq!(rows(c, "SELECT v FROM big WHERE id = 150000"), ["300000"]);
        assert_eq!(
            rows(
                c,
                "SELECT count(*) FROM big WHERE id BETWEEN 65530 AND 65545"
            ),
            ["16"]
        );
        assert_eq!(
            rows(c, "SELECT id FROM big ORDER BY id DESC LIMIT 2"),
            ["200000", "199999"]
        );
        assert_eq!(
            c.query("SELECT id FROM big LIMIT 70000", ())
                .expect("limit")
                .row_count(),
            70_000
        );
    };
    check(&mut c);
    database.merge_all().expect("merges");
    check(&mut c);
}

#[test]
fn a_statement_sees_earlier_ones_of_its_transaction_but_not_itself() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int)",
            "INSERT INTO t VALUES (1), (2)",
            "BEGIN",
        ],
    );
    run(&mut c, &["INSERT INTO t SELECT a + 10 FROM t"]);
    assert_eq!(
        rows(&mut c, "SELECT a FROM t ORDER BY a"),
        ["1", "2", "11", "12"]
    );
    run(&mut c, &["UPDATE t SET a = a + 1"]);
    assert_eq!(
        rows(&mut c, "SELECT a FROM t ORDER BY a"),
        ["2", "3", "12", "13"]
    );
    let mut other = database.connect();
    assert_eq!(rows(&mut other, "SELECT a FROM t ORDER BY a"), ["1", "2"]);
    run(&mut c, &["COMMIT"]);
    assert_eq!(rows(&mut other, "SELECT count(*) FROM t"), ["4"]);
}

#[test]
fn streams_pull_batches_and_end_early() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &["CREATE TABLE t AS SELECT g AS a FROM generate_series(1, 100000) AS s(g)"],
    );
    let mut seen = 0;
    for batch in c.query_stream("SELECT a FROM t", ()).expect("streams") {
        seen += batch.expect("batch").num_rows();
    }
    assert_eq!(seen, 100_000);
    let mut stream = c.query_stream("SELECT a FROM t", ()).expect("streams");
    assert!(stream.next().expect("one").is_ok());
    drop(stream);
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["100000"]);
}

#[test]
fn connections_work_side_by_side() {
    let database = database();
    run(&mut database.connect(), &["CREATE TABLE t (a bigint)"]);
    std::thread::scope(|scope| {
        for n in 0..4 {
            let database = database.clone();
            scope.spawn(move || {
                let mut c = database.connect();
                for i in 0..20 {
                    c.execute("INSERT INTO t VALUES ($1)", (i64::from(n * 100 + i),))
                        .expect("inserts");
                    c.query("SELECT sum(a) FROM t", ()).expect("sums");
                }
            });
        }
    });
    assert_eq!(
        rows(&mut database.connect(), "SELECT count(*) FROM t"),
        ["80"]
    );
}
