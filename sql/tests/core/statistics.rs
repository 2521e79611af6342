//! Statistics guide join order and never answer a query.

use super::{database, rows, run};

#[test]
fn the_small_side_is_built() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE big AS SELECT g AS id, g % 100 AS k FROM generate_series(1, 100000) s(g)",
            "CREATE TABLE small AS SELECT g AS k FROM generate_series(1, 100) s(g)",
        ],
    );
    for sql in [
        "EXPLAIN SELECT count(*) FROM big, small WHERE big.k = small.k",
        "EXPLAIN SELECT count(*) FROM small, big WHERE big.k = small.k",
    ] {
        let plan = rows(&mut c, sql);
        let scans: Vec<_> = plan.iter().filter(|l| l.contains("TableScan")).collect();
        assert!(scans[0].contains("TableScan: small"), "{plan:#?}");
    }
}

#[test]
fn counts_and_bounds_are_of_the_snapshot() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &["CREATE TABLE t AS SELECT g AS a FROM generate_series(1, 70000) s(g)"],
    );
    run(
        &mut c,
        &[
            "DELETE FROM t WHERE a > 69990",
            "UPDATE t SET a = -5 WHERE a = 3",
        ],
    );
    assert_eq!(
        rows(&mut c, "SELECT count(*), min(a), max(a) FROM t"),
        ["69990|-5|69990"]
    );
}
