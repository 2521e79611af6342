//! Transaction blocks as PostgreSQL runs them.

use super::{database, fails, rows, run};
use strandline::{SqlState, TransactionStatus};

#[test]
fn a_failed_statement_fails_the_block() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int)",
            "BEGIN",
            "INSERT INTO t VALUES (1)",
        ],
    );
    fails(&mut c, "SELECT 1 / 0", SqlState::DIVISION_BY_ZERO);
    assert_eq!(c.transaction_status(), TransactionStatus::Failed);
    let message = fails(&mut c, "SELECT 1", SqlState::IN_FAILED_SQL_TRANSACTION);
    assert_eq!(
        message,
        "current transaction is aborted, commands ignored until end of transaction block"
    );
    fails(&mut c, "SHOW timezone", SqlState::IN_FAILED_SQL_TRANSACTION);
    let done = c.execute_script("COMMIT").expect("ends");
    assert_eq!(done[0].command_tag(), "ROLLBACK");
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["0"]);
    run(&mut c, &["BEGIN"]);
    fails(&mut c, "SELEC 1", SqlState::SYNTAX_ERROR);
    assert_eq!(c.transaction_status(), TransactionStatus::Failed);
    run(&mut c, &["ROLLBACK"]);
    assert_eq!(c.transaction_status(), TransactionStatus::Idle);
}

#[test]
fn savepoints_nest_and_revive_a_failed_block() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int)",
            "BEGIN",
            "INSERT INTO t VALUES (1)",
            "SAVEPOINT s",
            "INSERT INTO t VALUES (2)",
            "SAVEPOINT s",
            "INSERT INTO t VALUES (3)",
            "ROLLBACK TO s",
        ],
    );
    assert_eq!(rows(&mut c, "SELECT a FROM t ORDER BY a"), ["1", "2"]);
    fails(&mut c, "SELECT nothing", SqlState::UNDEFINED_COLUMN);
    run(
        &mut c,
        &["ROLLBACK TO SAVEPOINT s", "RELEASE s", "ROLLBACK TO s"],
    );
    assert_eq!(rows(&mut c, "SELECT a FROM t ORDER BY a"), ["1"]);
    fails(&mut c, "ROLLBACK TO nowhere", SqlState::INVALID_SAVEPOINT);
    fails(&mut c, "SELECT 1", SqlState::IN_FAILED_SQL_TRANSACTION);
    run(&mut c, &["ROLLBACK TO s", "COMMIT"]);
    assert_eq!(rows(&mut c, "SELECT a FROM t"), ["1"]);
    fails(&mut c, "SAVEPOINT x", SqlState::NO_ACTIVE_SQL_TRANSACTION);
}

#[test]
fn begin_and_commit_out_of_place_are_warnings() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, &["COMMIT", "ROLLBACK", "BEGIN", "BEGIN", "COMMIT"]);
    let states: Vec<_> = c.take_notices().iter().map(|n| n.sqlstate()).collect();
    let none = SqlState::NO_ACTIVE_SQL_TRANSACTION;
    assert_eq!(states, [none, none, SqlState::ACTIVE_SQL_TRANSACTION]);
    assert!(c.take_notices().is_empty());
}

#[test]
fn isolation_levels() {
    let database = database();
    let (mut a, mut b) = (database.connect(), database.connect());
    run(
        &mut a,
        &[
            "CREATE TABLE t (a int PRIMARY KEY, v int)",
            "INSERT INTO t VALUES (1, 0)",
        ],
    );
    run(&mut a, &["BEGIN ISOLATION LEVEL REPEATABLE READ"]);
    assert_eq!(rows(&mut a, "SELECT v FROM t"), ["0"]);
    run(&mut b, &["UPDATE t SET v = 1"]);
    assert_eq!(rows(&mut a, "SELECT v FROM t"), ["0"]);
    fails(
        &mut a,
        "UPDATE t SET v = v + 1",
        SqlState::SERIALIZATION_FAILURE,
    );
    run(&mut a, &["ROLLBACK", "BEGIN"]);
    assert_eq!(rows(&mut a, "SELECT v FROM t"), ["1"]);
    run(&mut b, &["UPDATE t SET v = 2"]);
    assert_eq!(rows(&mut a, "SELECT v FROM t"), ["2"]);
    run(&mut a, &["UPDATE t SET v = v + 1", "COMMIT"]);
    assert_eq!(rows(&mut b, "SELECT v FROM t"), ["3"]);
}

#[test]
fn samples_are_refused_not_ignored() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE t (a int)"]);
    let sample = "SELECT * FROM t TABLESAMPLE SYSTEM (10)";
    fails(&mut c, sample, SqlState::FEATURE_NOT_SUPPORTED);
    assert_eq!(c.transaction_status(), TransactionStatus::Idle);
}

#[test]
fn read_only_transactions_refuse_writes() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, &["CREATE TABLE t (a int)", "BEGIN READ ONLY"]);
    let message = fails(
        &mut c,
        "INSERT INTO t VALUES (1)",
        SqlState::READ_ONLY_SQL_TRANSACTION,
    );
    assert_eq!(message, "cannot execute INSERT in a read-only transaction");
    run(
        &mut c,
        &["ROLLBACK", "SET default_transaction_read_only = on"],
    );
    fails(
        &mut c,
        "CREATE TABLE u (a int)",
        SqlState::READ_ONLY_SQL_TRANSACTION,
    );
    run(
        &mut c,
        &[
            "RESET default_transaction_read_only",
            "INSERT INTO t VALUES (1)",
        ],
    );
}

#[test]
fn set_transaction_comes_first() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &["BEGIN", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"],
    );
    assert_eq!(
        rows(&mut c, "SHOW transaction_isolation"),
        ["repeatable read"]
    );
    rows(&mut c, "SELECT 1");
    fails(
        &mut c,
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        SqlState::ACTIVE_SQL_TRANSACTION,
    );
}

#[test]
fn concurrent_updates_of_one_row_all_count_under_read_committed() {
    let database = database();
    run(
        &mut database.connect(),
        &[
            "CREATE TABLE t (a int PRIMARY KEY, n int)",
            "INSERT INTO t VALUES (1, 0)",
        ],
    );
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let database = database.clone();
            scope.spawn(move || {
                let mut c = database.connect();
                for _ in 0..25 {
                    c.execute("UPDATE t SET n = n + 1 WHERE a = 1", ())
                        .expect("updates");
                }
            });
        }
    });
    assert_eq!(rows(&mut database.connect(), "SELECT n FROM t"), ["100"]);
}

#[test]
fn a_dropped_connection_rolls_back() {
    let database = database();
    let mut c = database.connect();
    run(
        &mut c,
        &[
            "CREATE TABLE t (a int)",
            "BEGIN",
            "INSERT INTO t VALUES (1)",
        ],
    );
    drop(c);
    let mut c = database.connect();
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["0"]);
    run(
        &mut c,
        &["BEGIN", "INSERT INTO t VALUES (2)", "COMMIT AND CHAIN"],
    );
    assert_eq!(c.transaction_status(), TransactionStatus::Open);
    run(&mut c, &["INSERT INTO t VALUES (3)", "ROLLBACK"]);
    assert_eq!(rows(&mut c, "SELECT a FROM t"), ["2"]);
}
