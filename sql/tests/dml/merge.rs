//! MERGE.

use super::Fixture;
use strandline::SqlState;

fn fixture() -> Fixture {
    Fixture::new(
        "CREATE TABLE t (k int PRIMARY KEY, v int, note text DEFAULT 'new');
         INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c');
         CREATE TABLE s (k int, d int);
         INSERT INTO s VALUES (1, 1), (2, -20), (4, 4), (5, -5)",
    )
}

const ROWS: &str = "SELECT * FROM t ORDER BY k";

#[test]
fn all_actions() {
    let mut f = fixture();
    f.is(
        "MERGE INTO t USING s ON t.k = s.k
         WHEN MATCHED AND t.v + s.d = 0 THEN DELETE
         WHEN MATCHED THEN UPDATE SET v = t.v + s.d
         WHEN NOT MATCHED AND s.d < 0 THEN DO NOTHING
         WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.d)",
        "MERGE 3",
    );
    f.is(ROWS, "1|11|a / 3|30|c / 4|4|new");
}

#[test]
fn sources_aliases_defaults_and_returning() {
    let mut f = fixture();
    f.is(
        "MERGE INTO t AS x USING (SELECT k, sum(d) AS total FROM s GROUP BY k) AS y ON x.k = y.k
         WHEN MATCHED AND y.total < 0 THEN DO NOTHING
         WHEN MATCHED THEN UPDATE SET v = DEFAULT, note = 'u'
         WHEN NOT MATCHED THEN INSERT VALUES (y.k, y.total, DEFAULT)",
        "MERGE 3",
    );
    f.is(ROWS, "1|NULL|u / 2|20|b / 3|30|c / 4|4|new / 5|-5|new");
    f.is(
        "MERGE INTO t USING (VALUES (3, 'x')) AS y(k, n) ON t.k = y.k
         WHEN MATCHED THEN UPDATE SET note = n RETURNING t.k, t.note, y.n",
        "3|x|x",
    );
    f.is(
        "MERGE INTO t USING s ON t.k = s.k WHEN NOT MATCHED BY SOURCE THEN DELETE
         WHEN MATCHED AND t.k = 5 THEN UPDATE SET v = 0",
        "MERGE 2",
    );
    f.is(ROWS, "1|NULL|u / 2|20|b / 4|4|new / 5|0|new");
}

#[test]
fn a_row_is_affected_once() {
    let mut f = fixture();
    f.script("INSERT INTO s VALUES (1, 7)");
    f.fails(
        "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET v = d",
        SqlState::CARDINALITY_VIOLATION,
        "cannot affect row a second time",
    );
    f.fails(
        "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN DELETE",
        SqlState::CARDINALITY_VIOLATION,
        "cannot affect row a second time",
    );
    f.is(
        "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED AND d = 7 THEN UPDATE SET v = d",
        "MERGE 1",
    );
    f.is(ROWS, "1|7|a / 2|20|b / 3|30|c");
}

#[test]
fn bad_merges() {
    let mut f = fixture();
    f.fails(
        "MERGE INTO t USING s ON t.k = s.k WHEN NOT MATCHED THEN INSERT VALUES (1, 2, 'x', 4)",
        SqlState::SYNTAX_ERROR,
        "more expressions",
    );
    f.fails(
        "MERGE INTO t USING s ON t.k = s.k WHEN MATCHED THEN UPDATE SET z = 1",
        SqlState::UNDEFINED_COLUMN,
        "\"z\"",
    );
    f.fails(
        "MERGE INTO t USING s ON t.k = s.k WHEN NOT MATCHED THEN INSERT VALUES (1, 1)",
        SqlState::UNIQUE_VIOLATION,
        "t_pkey",
    );
    f.is(ROWS, "1|10|a / 2|20|b / 3|30|c");
}
