//! Scripts and command tags.

use super::{database, rows, run};
use strandline::{Outcome, SqlState};

#[test]
fn every_statement_has_its_tag() {
    let database = database();
    let mut c = database.connect();
    let script = "CREATE TABLE t (a int); INSERT INTO t VALUES (1), (2); -- a comment
        BEGIN; UPDATE t SET a = a + 1; SAVEPOINT s; DELETE FROM t WHERE a = 3; RELEASE s; COMMIT;
        SELECT * FROM t; SHOW timezone; EXPLAIN SELECT 1; TRUNCATE t; DROP TABLE t";
    let tags: Vec<_> = c
        .execute_script(script)
        .expect("runs")
        .iter()
        .map(|done| done.command_tag().to_string())
        .collect();
    let expected = [
        "CREATE TABLE",
        "INSERT 0 2",
        "BEGIN",
        "UPDATE 2",
        "SAVEPOINT",
        "DELETE 1",
        "RELEASE",
        "COMMIT",
        "SELECT 1",
        "SHOW",
        "EXPLAIN",
        "TRUNCATE TABLE",
        "DROP TABLE",
    ];
    assert_eq!(tags, expected);
}

#[test]
fn a_script_stops_at_its_first_error() {
    let database = database();
    let mut c = database.connect();
    let error = c.execute_script("CREATE TABLE t (a int); SELECT nope; INSERT INTO t VALUES (1)");
    assert_eq!(
        error.expect_err("fails").sqlstate(),
        SqlState::UNDEFINED_COLUMN
    );
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["0"]);
    assert!(c.execute_script("SELECT 'open").is_err());
    assert_eq!(c.execute_script(" ; -- nothing").expect("empty").len(), 0);
    assert!(c.execute("SELECT 1; SELECT 2", ()).is_err());
}

#[test]
fn run_tells_rows_from_commands() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE t (a int)"]);
    assert!(matches!(
        c.run("SELECT * FROM t", ()).expect("runs"),
        Outcome::Rows(_)
    ));
    let Outcome::Done(done) = c
        .run("INSERT INTO t VALUES (1) RETURNING a + 1 AS b", ())
        .expect("runs")
    else {
        panic!("a command");
    };
    assert_eq!(
        (done.command_tag(), done.rows_affected()),
        ("INSERT 0 1", 1)
    );
    assert_eq!(done.result().expect("rows").single::<i64>().expect("2"), 2);
}
