//! Views: their columns, replacement, dependencies.

use super::{database, error, fails, rows, run};
use strandline::SqlState;

#[test]
fn views_show_their_query() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int, b int)",
            "INSERT INTO t VALUES (1, 10), (2, 20)",
            "CREATE VIEW v AS SELECT * FROM t WHERE a > 1",
            "CREATE VIEW w (x, y) AS SELECT a, sum(b) FROM v GROUP BY a",
            "CREATE VIEW IF NOT EXISTS v AS SELECT 1 AS one",
        ],
    );
    assert_eq!(rows(&mut c, "SELECT * FROM v"), ["2|20"]);
    assert_eq!(rows(&mut c, "SELECT w.y + 1, q.x FROM w, w AS q"), ["21|2"]);
    run(&mut c, &["ALTER TABLE t ADD COLUMN c int DEFAULT 5"]);
    assert_eq!(rows(&mut c, "SELECT * FROM v"), ["2|20"]);
    run(
        &mut c,
        &["CREATE OR REPLACE VIEW v AS SELECT a, b, c FROM t"],
    );
    assert_eq!(
        rows(&mut c, "SELECT * FROM v ORDER BY a"),
        ["1|10|5", "2|20|5"]
    );
    fails(
        &mut c,
        "CREATE OR REPLACE VIEW v AS SELECT a FROM t",
        SqlState::INVALID_TABLE_DEFINITION,
    );
    fails(
        &mut c,
        "CREATE VIEW v AS SELECT 1 AS a",
        SqlState::DUPLICATE_TABLE,
    );
    fails(
        &mut c,
        "CREATE VIEW z AS SELECT 1 AS a, 2 AS a",
        SqlState::DUPLICATE_COLUMN,
    );
    fails(
        &mut c,
        "CREATE VIEW z AS SELECT nope FROM t",
        SqlState::UNDEFINED_COLUMN,
    );
    fails(
        &mut c,
        "CREATE VIEW z AS SELECT $1",
        SqlState::UNDEFINED_PARAMETER,
    );
    fails(
        &mut c,
        "CREATE MATERIALIZED VIEW z AS SELECT 1 AS a",
        SqlState::FEATURE_NOT_SUPPORTED,
    );
    fails(
        &mut c,
        "INSERT INTO v VALUES (1, 2, 3)",
        SqlState::WRONG_OBJECT_TYPE,
    );
}

#[test]
fn what_a_view_needs_cannot_go_without_it() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int, b int)",
            "CREATE VIEW v AS SELECT a FROM t",
            "CREATE VIEW w AS SELECT a FROM v",
        ],
    );
    let refused = error(&mut c, "DROP TABLE t");
    assert_eq!(refused.sqlstate(), SqlState::DEPENDENT_OBJECTS_STILL_EXIST);
    assert!(
        refused
            .detail()
            .is_some_and(|d| d.contains("view v depends")),
        "{refused}"
    );
    fails(
        &mut c,
        "ALTER TABLE t DROP COLUMN a",
        SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
    );
    // The views go on under new names.
    run(
        &mut c,
        &[
            "ALTER TABLE t RENAME TO u",
            "ALTER TABLE u RENAME COLUMN a TO c",
        ],
    );
    assert_eq!(rows(&mut c, "SELECT count(a) FROM w"), ["0"]);
    run(
        &mut c,
        &[
            "ALTER TABLE u RENAME COLUMN c TO a",
            "ALTER TABLE u RENAME TO t",
        ],
    );
    fails(
        &mut c,
        "DROP VIEW v",
        SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
    );
    run(
        &mut c,
        &[
            "ALTER TABLE t DROP COLUMN b",
            "DROP VIEW w",
            "CREATE VIEW w AS SELECT a FROM v",
        ],
    );
    assert_eq!(rows(&mut c, "SELECT count(*) FROM w"), ["0"]);
    run(&mut c, &["DROP TABLE t CASCADE"]);
    fails(&mut c, "SELECT * FROM w", SqlState::UNDEFINED_TABLE);
    fails(&mut c, "DROP TABLE t", SqlState::UNDEFINED_TABLE);
    run(&mut c, &["DROP TABLE IF EXISTS t", "DROP VIEW IF EXISTS v"]);
    run(&mut c, &["CREATE TABLE t (a int)"]);
    fails(&mut c, "DROP VIEW t", SqlState::WRONG_OBJECT_TYPE);
}

#[test]
fn a_view_cannot_be_made_of_itself() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE VIEW v AS SELECT 1 AS a",
            "CREATE VIEW w AS SELECT a FROM v",
        ],
    );
    fails(
        &mut c,
        "CREATE OR REPLACE VIEW v AS SELECT a FROM w",
        SqlState("42P17"),
    );
    assert_eq!(rows(&mut c, "SELECT a FROM w"), ["1"]);
}

#[test]
fn bare_names_mean_what_they_meant() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE SCHEMA s",
            "CREATE TABLE public.t (a int)",
            "INSERT INTO t VALUES (1)",
            "CREATE VIEW s.v AS WITH t2 AS (SELECT a FROM t) SELECT a FROM t2",
            "CREATE TABLE s.t (a int)",
            "SET search_path = s",
        ],
    );
    assert_eq!(rows(&mut c, "SELECT a FROM v"), ["1"]);
}
