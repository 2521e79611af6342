//! Conditions that a range's bounds prove or disprove select the same rows as those that are looked
//! at row by row.

use super::{database, rows, run};
use strandline_base::rng::Rng;

/// `a` falls into pieces by range; some of its rows are NULL, changed or gone. Without ORDER BY the
/// threads of the query would decide which rows a range gets.
fn fill(c: &mut strandline::Connection, changes: &[&str]) {
    run(
        c,
        &[
            "CREATE TABLE t AS SELECT g AS n, g / 1000 AS a, (g % 1000) / 8.0 AS p, \
             DATE '2020-01-01' + (g / 1000)::int AS d FROM generate_series(0, 139999) s(g) ORDER BY g",
        ],
    );
    run(c, changes);
}

#[test]
fn conditions_hold_for_the_same_rows_with_and_without_bounds() {
    let changes: [&[&str]; 5] = [
        &[],
        &["UPDATE t SET a = NULL WHERE n % 30000 = 7"],
        &[
            "UPDATE t SET a = -5 WHERE n = 100000",
            "DELETE FROM t WHERE n % 7 = 3",
        ],
        &["INSERT INTO t VALUES (-1, 500, 0, DATE '2021-01-01'), (-2, NULL, 1, NULL)"],
        &["DELETE FROM t WHERE n BETWEEN 60000 AND 140000"],
    ];
    for (settled, changes) in [false, true]
        .into_iter()
        .flat_map(|s| changes.map(|c| (s, c)))
    {
        let database = database();
        let mut c = database.connect();
        fill(&mut c, &[]);
        database.merge_all().expect("merges");
        run(&mut c, changes);
        if settled {
            database.merge_all().expect("merges");
        }
        let mut rng = Rng::new(11 + u64::from(settled));
        for _ in 0..4 {
            let (low, high) = (rng.below(160) as i64 - 10, rng.below(160) as i64 - 10);
            let op = ["<", "<=", ">", ">=", "="][rng.below(5) as usize];
            let by_bounds = [
                format!("a >= {low} AND a < {high}"),
                format!("{low}.5 < a"),
                format!("a {op} {low}"),
                format!("n {op} {} AND a IS NOT NULL", low * 1000),
                format!("d {op} DATE '2020-01-01' + {low}"),
                "a >= 0 AND a < 1000".to_string(),
            ];
            let by_rows = [
                format!("a + 0 >= {low} AND a + 0 < {high}"),
                format!("{low}.5 < a + 0"),
                format!("a + 0 {op} {low}"),
                format!("n + 0 {op} {} AND a IS NOT NULL", low * 1000),
                format!("d + 0 {op} DATE '2020-01-01' + {low}"),
                "a + 0 >= 0 AND a + 0 < 1000".to_string(),
            ];
            for (one, other) in by_bounds.iter().zip(&by_rows) {
                let sum = "SELECT count(*), sum(n), sum(p), min(a) FROM t WHERE";
                let found = rows(&mut c, &format!("{sum} {one}"));
                let expected = rows(&mut c, &format!("{sum} {other}"));
                assert_eq!(
                    found, expected,
                    "{one} after {changes:?}, settled: {settled}"
                );
            }
        }
    }
}

#[test]
fn a_column_whose_condition_holds_anyway_is_not_read() {
    let database = database();
    let mut c = database.connect();
    fill(&mut c, &[]);
    database.merge_all().expect("merges");
    let decoded = |c: &mut strandline::Connection, condition: &str| {
        let sql = format!("EXPLAIN ANALYZE SELECT sum(n) FROM t WHERE {condition}");
        let plan = rows(c, &sql).join("\n");
        let from = plan.split("chunks_decoded=").nth(1).expect("a metric");
        let digits: String = from.chars().take_while(char::is_ascii_digit).collect();
        digits.parse::<u64>().expect("a number")
    };
    let ranges = 140_000_u64.div_ceil(1 << 16);
    assert_eq!(decoded(&mut c, "a >= 0"), ranges);
    assert_eq!(decoded(&mut c, "a + 0 >= 0"), 2 * ranges);
    // One range is pruned, one is in doubt, of the others all rows qualify.
    assert_eq!(decoded(&mut c, "a >= 100"), ranges - 1 + 1);
    run(&mut c, &["UPDATE t SET a = NULL WHERE n = 0"]);
    assert_eq!(decoded(&mut c, "a >= 0"), ranges + 1);
}
