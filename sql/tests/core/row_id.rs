//! The hidden column `_rowid`.

use super::{database, fails, rows, run};
use strandline::SqlState;

#[test]
fn row_ids_are_seen_only_when_named() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int)",
            "CREATE TABLE u (a int)",
            "INSERT INTO t VALUES (1), (2)",
            "INSERT INTO u VALUES (2)",
        ],
    );
    assert_eq!(
        c.query("SELECT * FROM t", ())
            .expect("all")
            .schema()
            .fields()
            .len(),
        1
    );
    assert_eq!(
        c.query("SELECT *, _rowid FROM t", ())
            .expect("both")
            .schema()
            .fields()
            .len(),
        2
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT count(DISTINCT t._rowid) FROM t JOIN u ON t.a >= u.a"
        ),
        ["1"]
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT a FROM t WHERE _rowid IN (SELECT _rowid FROM t WHERE a = 2)"
        ),
        ["2"]
    );
    assert_eq!(
        rows(&mut c, "SELECT q.a FROM t q ORDER BY q._rowid DESC LIMIT 1"),
        ["2"]
    );
    assert_eq!(
        c.query("SELECT t.*, t._rowid, u.* FROM t, u", ())
            .expect("join")
            .schema()
            .fields()
            .len(),
        3
    );
    fails(
        &mut c,
        "SELECT _rowid FROM (SELECT a FROM t) s",
        SqlState::UNDEFINED_COLUMN,
    );
    run(&mut c, &["CREATE VIEW v AS SELECT a FROM t"]);
    fails(&mut c, "SELECT _rowid FROM v", SqlState::UNDEFINED_COLUMN);
}
