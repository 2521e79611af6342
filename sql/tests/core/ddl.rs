//! Data definition: tables, columns, constraints, schemas, and their transactions.

use super::{database, error, fails, rows, run};
use strandline::SqlState;

#[test]
fn tables_come_and_go_with_their_transaction() {
    let database = database();
    let (mut a, mut b) = (database.connect(), database.connect());
    run(
        &mut a,
        &[
            "BEGIN",
            "CREATE TABLE t (a int)",
            "INSERT INTO t VALUES (1)",
        ],
    );
    assert_eq!(rows(&mut a, "SELECT * FROM t"), ["1"]);
    fails(&mut b, "SELECT * FROM t", SqlState::UNDEFINED_TABLE);
    run(&mut a, &["ROLLBACK"]);
    fails(&mut a, "SELECT * FROM t", SqlState::UNDEFINED_TABLE);
    run(&mut a, &["CREATE TABLE t (a int)", "BEGIN", "DROP TABLE t"]);
    assert_eq!(rows(&mut b, "SELECT count(*) FROM t"), ["0"]);
    run(&mut a, &["ROLLBACK", "DROP TABLE t"]);
    fails(&mut b, "SELECT * FROM t", SqlState::UNDEFINED_TABLE);
}

#[test]
fn names_fold_unless_quoted() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &["CREATE TABLE Foo (Bar int, \"Baz\" int, \"select\" int)"],
    );
    run(
        &mut c,
        &["INSERT INTO FOO (BAR, \"Baz\", \"select\") VALUES (1, 2, 3)"],
    );
    assert_eq!(
        rows(&mut c, "SELECT bAr, \"Baz\", \"select\" FROM foo"),
        ["1|2|3"]
    );
    fails(&mut c, "SELECT Baz FROM foo", SqlState::UNDEFINED_COLUMN);
    fails(&mut c, "SELECT * FROM \"Foo\"", SqlState::UNDEFINED_TABLE);
    run(
        &mut c,
        &[
            "CREATE TABLE \"Größe\" (\"Länge\" int)",
            "INSERT INTO \"Größe\" VALUES (5)",
        ],
    );
    assert_eq!(rows(&mut c, "SELECT \"Länge\" FROM \"Größe\""), ["5"]);
}

#[test]
fn creation_errors_are_postgres() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int PRIMARY KEY)",
            "CREATE TABLE IF NOT EXISTS t (b text)",
        ],
    );
    let cases = [
        ("CREATE TABLE t (a int)", SqlState::DUPLICATE_TABLE),
        ("CREATE TABLE u (a int, a text)", SqlState::DUPLICATE_COLUMN),
        (
            "CREATE TABLE u (a int, _rowid int)",
            SqlState::DUPLICATE_COLUMN,
        ),
        ("CREATE TABLE u (a jsonb)", SqlState::FEATURE_NOT_SUPPORTED),
        ("CREATE TABLE u (a strange)", SqlState::UNDEFINED_OBJECT),
        (
            "CREATE TABLE u (a int PRIMARY KEY, b int PRIMARY KEY)",
            SqlState::INVALID_TABLE_DEFINITION,
        ),
        (
            "CREATE TABLE u (a int, UNIQUE (b))",
            SqlState::UNDEFINED_COLUMN,
        ),
        (
            "CREATE TABLE u (a int, UNIQUE (a, a))",
            SqlState::DUPLICATE_COLUMN,
        ),
        (
            "CREATE TABLE u (a text REFERENCES t)",
            SqlState::DATATYPE_MISMATCH,
        ),
        (
            "CREATE TABLE u (a int, FOREIGN KEY (a) REFERENCES t (nothing))",
            SqlState::UNDEFINED_COLUMN,
        ),
        (
            "CREATE TABLE u (a int CHECK (b > 0))",
            SqlState::UNDEFINED_COLUMN,
        ),
        (
            "CREATE TABLE u (a int CHECK (a + 1))",
            SqlState::DATATYPE_MISMATCH,
        ),
        (
            "CREATE TABLE u (a int CHECK (a > (SELECT 1)))",
            SqlState::FEATURE_NOT_SUPPORTED,
        ),
        (
            "CREATE TABLE u (a int DEFAULT b)",
            SqlState::FEATURE_NOT_SUPPORTED,
        ),
        (
            "CREATE TABLE nowhere.u (a int)",
            SqlState::INVALID_SCHEMA_NAME,
        ),
        (
            "CREATE TABLE u (a int) USING sorted",
            SqlState::FEATURE_NOT_SUPPORTED,
        ),
        (
            "CREATE TABLE u (a int) USING heap",
            SqlState::UNDEFINED_OBJECT,
        ),
        (
            "CREATE TEMP TABLE u (a int)",
            SqlState::FEATURE_NOT_SUPPORTED,
        ),
        (
            "CREATE INDEX i ON t USING hash (a)",
            SqlState::FEATURE_NOT_SUPPORTED,
        ),
        (
            "CREATE TABLE u (a text GENERATED ALWAYS AS IDENTITY)",
            SqlState::INVALID_PARAMETER_VALUE,
        ),
        (
            "CREATE TABLE u (a serial DEFAULT 5)",
            SqlState::SYNTAX_ERROR,
        ),
        ("GRANT SELECT ON t TO x", SqlState::UNDEFINED_OBJECT),
        (
            "GRANT SELECT (a) ON t TO public",
            SqlState::FEATURE_NOT_SUPPORTED,
        ),
    ];
    for (sql, state) in cases {
        fails(&mut c, sql, state);
    }
    run(&mut c, &["CREATE TABLE u (a int) USING lineage"]);
}

#[test]
fn keys_and_checks_are_enforced() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int PRIMARY KEY, b int UNIQUE, c int CHECK (c > 0), CHECK (a < b))",
            "INSERT INTO t VALUES (1, 2, 3), (2, NULL, NULL)",
        ],
    );
    let duplicate = error(&mut c, "INSERT INTO t VALUES (1, 9, 1)");
    assert_eq!(duplicate.sqlstate(), SqlState::UNIQUE_VIOLATION);
    assert!(duplicate.message().contains("t_pkey"), "{duplicate}");
    fails(
        &mut c,
        "INSERT INTO t VALUES (0, 2, 1)",
        SqlState::UNIQUE_VIOLATION,
    );
    fails(
        &mut c,
        "INSERT INTO t VALUES (NULL, 5, 1)",
        SqlState::NOT_NULL_VIOLATION,
    );
    fails(
        &mut c,
        "INSERT INTO t VALUES (4, 5, 0)",
        SqlState::CHECK_VIOLATION,
    );
    fails(&mut c, "UPDATE t SET b = 0", SqlState::CHECK_VIOLATION);
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["2"]);
    assert_eq!(database.check().expect("checks"), Vec::<String>::new());
}

#[test]
fn added_columns_show_their_default_in_old_rows() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &["CREATE TABLE t (a int)", "INSERT INTO t VALUES (1), (2)"],
    );
    run(
        &mut c,
        &[
            "ALTER TABLE t ADD COLUMN b int DEFAULT 7",
            "ALTER TABLE t ADD c varchar(3) NOT NULL DEFAULT 'x'",
            "ALTER TABLE t ADD COLUMN d numeric(5,2) DEFAULT 1.5, ADD COLUMN e date",
            "ALTER TABLE t ADD COLUMN IF NOT EXISTS b text",
            "INSERT INTO t (a) VALUES (3)",
            "INSERT INTO t (a, b, c, d, e) VALUES (4, NULL, 'y', 2, '2024-01-01')",
        ],
    );
    let expected = [
        "1|7|x|1.50|NULL",
        "2|7|x|1.50|NULL",
        "3|7|x|1.50|NULL",
        "4|NULL|y|2.00|2024-01-01",
    ];
    assert_eq!(rows(&mut c, "SELECT * FROM t ORDER BY a"), expected);
    assert_eq!(
        rows(&mut c, "SELECT a FROM t WHERE b = 7 ORDER BY a"),
        ["1", "2", "3"]
    );
    database.merge_all().expect("merges");
    assert_eq!(rows(&mut c, "SELECT * FROM t ORDER BY a"), expected);
    fails(
        &mut c,
        "ALTER TABLE t ADD COLUMN a int",
        SqlState::DUPLICATE_COLUMN,
    );
    fails(
        &mut c,
        "ALTER TABLE t ADD COLUMN f int NOT NULL",
        SqlState::NOT_NULL_VIOLATION,
    );
    assert_eq!(
        rows(&mut c, "SELECT count(*) FROM t WHERE c IS NOT NULL"),
        ["4"]
    );
    run(
        &mut c,
        &[
            "CREATE TABLE empty (a int)",
            "ALTER TABLE empty ADD COLUMN b int NOT NULL",
        ],
    );
    fails(
        &mut c,
        "INSERT INTO empty VALUES (1)",
        SqlState::NOT_NULL_VIOLATION,
    );
}

#[test]
fn identities_and_volatile_defaults_give_each_row_its_own() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int)",
            "INSERT INTO t VALUES (1), (2), (3)",
        ],
    );
    run(
        &mut c,
        &[
            "ALTER TABLE t ADD COLUMN id bigserial",
            "ALTER TABLE t ADD COLUMN r float8 DEFAULT random()",
        ],
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT count(DISTINCT id), count(DISTINCT r) FROM t"
        ),
        ["3|3"]
    );
    run(&mut c, &["INSERT INTO t (a) VALUES (4)"]);
    assert_eq!(rows(&mut c, "SELECT id FROM t WHERE a = 4"), ["4"]);
    run(
        &mut c,
        &[
            "CREATE TABLE s (id int GENERATED ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY 5), v int)",
        ],
    );
    run(&mut c, &["INSERT INTO s (v) VALUES (1), (2)"]);
    assert_eq!(rows(&mut c, "SELECT id FROM s ORDER BY v"), ["10", "15"]);
    fails(
        &mut c,
        "INSERT INTO s VALUES (1, 1)",
        SqlState::GENERATED_ALWAYS,
    );
}

#[test]
fn columns_drop_rename_and_change() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int PRIMARY KEY, b int CHECK (b > 0), c text, d int UNIQUE)",
            "INSERT INTO t VALUES (1, 2, 'x', 4)",
            "ALTER TABLE t DROP COLUMN c",
            "ALTER TABLE t DROP COLUMN IF EXISTS c",
            "ALTER TABLE t RENAME COLUMN b TO bb",
            "ALTER TABLE t RENAME a TO \"A\"",
        ],
    );
    assert_eq!(rows(&mut c, "SELECT * FROM t"), ["1|2|4"]);
    fails(&mut c, "UPDATE t SET bb = -1", SqlState::CHECK_VIOLATION);
    fails(
        &mut c,
        "ALTER TABLE t DROP COLUMN c",
        SqlState::UNDEFINED_COLUMN,
    );
    fails(
        &mut c,
        "ALTER TABLE t RENAME bb TO d",
        SqlState::DUPLICATE_COLUMN,
    );
    run(
        &mut c,
        &[
            "ALTER TABLE t DROP COLUMN d",
            "ALTER TABLE t DROP COLUMN bb",
            "INSERT INTO t VALUES (2)",
        ],
    );
    run(&mut c, &["ALTER TABLE t ADD COLUMN c int"]);
    assert_eq!(
        rows(&mut c, "SELECT * FROM t ORDER BY 1"),
        ["1|NULL", "2|NULL"]
    );
    run(
        &mut c,
        &["ALTER TABLE t RENAME TO u", "INSERT INTO u VALUES (3, 3)"],
    );
    fails(&mut c, "SELECT * FROM t", SqlState::UNDEFINED_TABLE);
    run(
        &mut c,
        &[
            "CREATE TABLE v (s varchar(3))",
            "ALTER TABLE v ALTER s TYPE varchar(10)",
        ],
    );
    run(
        &mut c,
        &[
            "INSERT INTO v VALUES ('long one')",
            "ALTER TABLE v ALTER COLUMN s SET DATA TYPE text",
        ],
    );
    fails(
        &mut c,
        "ALTER TABLE v ALTER s TYPE int",
        SqlState::FEATURE_NOT_SUPPORTED,
    );
}

#[test]
fn constraints_verify_the_rows_there_are() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int, b int)",
            "INSERT INTO t VALUES (1, 1), (1, NULL)",
        ],
    );
    let violated = error(&mut c, "ALTER TABLE t ADD CONSTRAINT k UNIQUE (a)");
    assert_eq!(violated.sqlstate(), SqlState::UNIQUE_VIOLATION);
    assert_eq!(violated.detail(), Some("Key (a)=(1) is duplicated."));
    fails(
        &mut c,
        "ALTER TABLE t ADD PRIMARY KEY (b)",
        SqlState::NOT_NULL_VIOLATION,
    );
    fails(
        &mut c,
        "ALTER TABLE t ALTER b SET NOT NULL",
        SqlState::NOT_NULL_VIOLATION,
    );
    fails(
        &mut c,
        "ALTER TABLE t ADD CHECK (a > 1)",
        SqlState::CHECK_VIOLATION,
    );
    run(&mut c, &["INSERT INTO t VALUES (1, NULL)"]);
    run(
        &mut c,
        &[
            "DELETE FROM t WHERE b IS NULL",
            "ALTER TABLE t ALTER b SET NOT NULL",
        ],
    );
    fails(
        &mut c,
        "INSERT INTO t VALUES (2, NULL)",
        SqlState::NOT_NULL_VIOLATION,
    );
    run(
        &mut c,
        &[
            "ALTER TABLE t ALTER b DROP NOT NULL",
            "INSERT INTO t VALUES (2, NULL)",
        ],
    );
    run(&mut c, &["ALTER TABLE t ADD CONSTRAINT k PRIMARY KEY (a)"]);
    fails(
        &mut c,
        "INSERT INTO t VALUES (2, 3)",
        SqlState::UNIQUE_VIOLATION,
    );
    fails(
        &mut c,
        "ALTER TABLE t ALTER a DROP NOT NULL",
        SqlState::INVALID_TABLE_DEFINITION,
    );
    run(
        &mut c,
        &[
            "ALTER TABLE t RENAME CONSTRAINT k TO kk",
            "ALTER TABLE t DROP CONSTRAINT kk",
        ],
    );
    run(
        &mut c,
        &[
            "INSERT INTO t VALUES (2, 3)",
            "ALTER TABLE t DROP CONSTRAINT IF EXISTS kk",
        ],
    );
    fails(
        &mut c,
        "ALTER TABLE t DROP CONSTRAINT kk",
        SqlState::UNDEFINED_OBJECT,
    );
}

#[test]
fn defaults_change_for_later_rows() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int, b int DEFAULT 1)",
            "INSERT INTO t (a) VALUES (1)",
            "ALTER TABLE t ALTER b SET DEFAULT 1 + 1",
            "INSERT INTO t (a) VALUES (2)",
            "ALTER TABLE t ALTER b DROP DEFAULT",
            "INSERT INTO t (a) VALUES (3)",
        ],
    );
    assert_eq!(
        rows(&mut c, "SELECT b FROM t ORDER BY a"),
        ["1", "2", "NULL"]
    );
}

#[test]
fn create_table_as_and_truncate() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &["CREATE TABLE t AS SELECT g AS a, 'x' || g AS b FROM generate_series(1, 10000) s(g)"],
    );
    assert_eq!(
        rows(&mut c, "SELECT count(*), max(b) FROM t"),
        ["10000|x9999"]
    );
    run(
        &mut c,
        &["CREATE TABLE u (n, m) AS SELECT a, b FROM t WHERE a < 3"],
    );
    assert_eq!(
        rows(&mut c, "SELECT n, m FROM u ORDER BY n"),
        ["1|x1", "2|x2"]
    );
    fails(
        &mut c,
        "CREATE TABLE u AS SELECT 1 AS a",
        SqlState::DUPLICATE_TABLE,
    );
    fails(
        &mut c,
        "CREATE TABLE w (n int, m) AS SELECT 1, 2",
        SqlState::SYNTAX_ERROR,
    );
    fails(
        &mut c,
        "CREATE TABLE w (n int) AS SELECT 1",
        SqlState::SYNTAX_ERROR,
    );
    fails(
        &mut c,
        "CREATE TABLE w AS SELECT 1 AS a, 2 AS a",
        SqlState::DUPLICATE_COLUMN,
    );
    run(&mut c, &["CREATE TABLE IF NOT EXISTS u AS SELECT 1 AS a"]);
    run(&mut c, &["BEGIN", "TRUNCATE t, u"]);
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["0"]);
    run(&mut c, &["ROLLBACK"]);
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["10000"]);
    run(
        &mut c,
        &["TRUNCATE TABLE t", "INSERT INTO t VALUES (1, 'y')"],
    );
    assert_eq!(rows(&mut c, "SELECT * FROM t"), ["1|y"]);
}

#[test]
fn schemas_hold_tables() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE SCHEMA sales",
            "CREATE SCHEMA IF NOT EXISTS sales",
            "CREATE TABLE sales.t (a int)",
            "CREATE TABLE t (a int)",
            "INSERT INTO sales.t VALUES (1)",
        ],
    );
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["0"]);
    run(&mut c, &["SET search_path = sales"]);
    assert_eq!(rows(&mut c, "SELECT a FROM t"), ["1"]);
    assert_eq!(rows(&mut c, "SELECT count(*) FROM public.t"), ["0"]);
    fails(&mut c, "CREATE SCHEMA sales", SqlState::DUPLICATE_SCHEMA);
    fails(
        &mut c,
        "DROP SCHEMA sales",
        SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
    );
    run(
        &mut c,
        &[
            "DROP SCHEMA sales CASCADE",
            "RESET search_path",
            "DROP SCHEMA IF EXISTS sales",
        ],
    );
    fails(
        &mut c,
        "SELECT * FROM sales.t",
        SqlState::INVALID_SCHEMA_NAME,
    );
    fails(&mut c, "CREATE SCHEMA pg_mine", SqlState("42939"));
}

#[test]
fn comments_are_kept() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int)",
            "CREATE VIEW v AS SELECT a FROM t",
            "COMMENT ON TABLE t IS 'it''s a table'",
            "COMMENT ON COLUMN t.a IS 'a column'",
            "COMMENT ON VIEW v IS 'a view'",
            "COMMENT ON SCHEMA public IS 'the schema'",
        ],
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT comment FROM information_schema.tables WHERE table_name IN ('t', 'v') ORDER BY 1"
        ),
        ["a view", "it's a table"]
    );
    assert_eq!(
        rows(
            &mut c,
            "SELECT comment FROM information_schema.columns WHERE table_name = 't'"
        ),
        ["a column"]
    );
    run(&mut c, &["COMMENT ON TABLE t IS NULL"]);
    fails(
        &mut c,
        "COMMENT ON TABLE u IS 'x'",
        SqlState::UNDEFINED_TABLE,
    );
    fails(
        &mut c,
        "COMMENT ON COLUMN t.z IS 'x'",
        SqlState::UNDEFINED_COLUMN,
    );
}

#[test]
fn definitions_survive_reopening() {
    let device = std::sync::Arc::new(strandline_device::MemoryDevice::new());
    {
        let database = strandline::Database::on_device(device.clone())
            .build()
            .expect("opens");
        let mut c = database.connect();
        run(
            &mut c,
            &[
                "CREATE TABLE t (a int PRIMARY KEY, b text DEFAULT 'd' CHECK (b <> ''))",
                "CREATE VIEW v AS SELECT * FROM t",
                "INSERT INTO t (a) VALUES (1)",
            ],
        );
        drop(c);
        database.close().expect("closes");
    }
    let database = strandline::Database::on_device(device)
        .build()
        .expect("reopens");
    let mut c = database.connect();
    assert_eq!(rows(&mut c, "SELECT * FROM v"), ["1|d"]);
    fails(
        &mut c,
        "INSERT INTO t VALUES (1, 'x')",
        SqlState::UNIQUE_VIOLATION,
    );
    fails(
        &mut c,
        "INSERT INTO t VALUES (2, '')",
        SqlState::CHECK_VIOLATION,
    );
}

/// A transaction with a fixed snapshot accepts no constraint that rows violate which others have
/// committed since, whatever the transaction itself has renamed or added.
#[test]
fn constraints_hold_for_rows_committed_since_the_snapshot() {
    let cases: &[(&[&str], &str)] = &[
        (
            &["ALTER TABLE t RENAME a TO b"],
            "ALTER TABLE t ADD CHECK (b > 0)",
        ),
        (
            &["ALTER TABLE t RENAME TO s"],
            "ALTER TABLE s ADD CHECK (a > 0)",
        ),
        (&[], "ALTER TABLE t ADD CHECK (a > 0)"),
        (
            &["ALTER TABLE t RENAME n TO m"],
            "ALTER TABLE t ALTER m SET NOT NULL",
        ),
        (
            &["ALTER TABLE t ADD COLUMN c int DEFAULT -1"],
            "ALTER TABLE t ADD CHECK (c > 0)",
        ),
        (
            &["CREATE TABLE q (a int PRIMARY KEY)"],
            "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES q",
        ),
        (
            &["ALTER TABLE p RENAME TO q", "ALTER TABLE t RENAME a TO b"],
            "ALTER TABLE t ADD FOREIGN KEY (b) REFERENCES q",
        ),
    ];
    for (before, constraint) in cases {
        let database = database();
        let (mut a, mut b) = (database.connect(), database.connect());
        run(
            &mut a,
            &[
                "CREATE TABLE t (a int, n int)",
                "CREATE TABLE p (a int PRIMARY KEY)",
                "BEGIN ISOLATION LEVEL REPEATABLE READ",
                "SELECT * FROM t",
            ],
        );
        run(&mut b, &["INSERT INTO t VALUES (-1, NULL)"]);
        run(&mut a, before);
        fails(&mut a, constraint, SqlState::SERIALIZATION_FAILURE);
        run(&mut a, &["ROLLBACK"]);
    }
}

/// Its own rows may need the transaction's own changes to satisfy a constraint.
#[test]
fn a_fixed_snapshot_adds_constraints_to_what_it_has_added() {
    let database = database();
    let mut a = database.connect();
    run(
        &mut a,
        &[
            "CREATE TABLE t (a int)",
            "INSERT INTO t VALUES (1)",
            "BEGIN ISOLATION LEVEL REPEATABLE READ",
            "ALTER TABLE t ADD COLUMN c int",
            "UPDATE t SET c = 5",
            "ALTER TABLE t ALTER c SET NOT NULL",
            "ALTER TABLE t ADD CHECK (c > 0)",
            "CREATE TABLE p (a int PRIMARY KEY)",
            "INSERT INTO p VALUES (1)",
            "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES p",
            "COMMIT",
        ],
    );
}
