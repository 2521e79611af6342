//! The notices of IF EXISTS and IF NOT EXISTS.

use super::{database, fails, run};
use strandline::SqlState;

#[test]
fn a_skipped_object_is_told_with_the_state_of_postgresql() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE SCHEMA s",
            "CREATE TABLE t (a int)",
            "CREATE INDEX i ON t (a)",
            "CREATE ROLE ann",
        ],
    );
    let existing = "relation \"t\" already exists, skipping";
    let cases = [
        ("CREATE TABLE IF NOT EXISTS t (a int)", "42P07", existing),
        (
            "CREATE TABLE IF NOT EXISTS t AS SELECT 1 AS a",
            "42P07",
            existing,
        ),
        (
            "CREATE INDEX IF NOT EXISTS i ON t (a)",
            "42P07",
            "relation \"i\" already exists, skipping",
        ),
        (
            "CREATE SCHEMA IF NOT EXISTS s",
            "42P06",
            "schema \"s\" already exists, skipping",
        ),
        (
            "ALTER TABLE t ADD COLUMN IF NOT EXISTS a text",
            "42701",
            "column \"a\" of relation \"t\" already exists, skipping",
        ),
        (
            "ALTER TABLE IF EXISTS none ADD COLUMN a int",
            "00000",
            "relation \"none\" does not exist, skipping",
        ),
        (
            "ALTER TABLE t DROP COLUMN IF EXISTS b",
            "00000",
            "column \"b\" of relation \"t\" does not exist, skipping",
        ),
        (
            "ALTER TABLE t DROP CONSTRAINT IF EXISTS b",
            "00000",
            "constraint \"b\" of relation \"t\" does not exist, skipping",
        ),
        (
            "DROP TABLE IF EXISTS none",
            "00000",
            "table \"none\" does not exist, skipping",
        ),
        (
            "DROP TABLE IF EXISTS none.t",
            "00000",
            "schema \"none\" does not exist, skipping",
        ),
        (
            "DROP VIEW IF EXISTS none",
            "00000",
            "view \"none\" does not exist, skipping",
        ),
        (
            "DROP INDEX IF EXISTS none",
            "00000",
            "index \"none\" does not exist, skipping",
        ),
        (
            "DROP SCHEMA IF EXISTS none",
            "00000",
            "schema \"none\" does not exist, skipping",
        ),
        (
            "DROP ROLE IF EXISTS none",
            "00000",
            "role \"none\" does not exist, skipping",
        ),
    ];
    c.take_notices();
    for (sql, state, message) in cases {
        run(&mut c, &[sql]);
        let notices = c.take_notices();
        let told: Vec<_> = notices
            .iter()
            .map(|notice| (notice.sqlstate().0, notice.message()))
            .collect();
        assert_eq!(told, [(state, message)], "{sql}");
    }
    fails(&mut c, "DROP TABLE none.t", SqlState::INVALID_SCHEMA_NAME);
    assert!(c.take_notices().is_empty());
}
