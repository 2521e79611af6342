//! Cancelling and time limits.

use super::{database, fails, rows, run};
use std::sync::mpsc::{TryRecvError, channel};
use strandline::{SqlState, TransactionStatus};

const ENDLESS: &str =
    "SELECT count(*) FROM generate_series(1, 1000000000000) AS a(x) WHERE x % 7 = 3";

#[test]
fn another_thread_cancels() {
    let database = database();
    let mut c = database.connect();
    let handle = c.cancel_handle();
    handle.cancel();
    assert_eq!(rows(&mut c, "SELECT 1"), ["1"]);
    let (finished, done) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // A cancellation before the statement begins is forgotten: repeat until it is done.
            while done.try_recv() == Err(TryRecvError::Empty) {
                handle.cancel();
                std::thread::yield_now();
            }
        });
        fails(&mut c, ENDLESS, SqlState::QUERY_CANCELED);
        finished.send(()).expect("the other side listens");
    });
    assert_eq!(rows(&mut c, "SELECT 1"), ["1"]);
}

/// A cancellation holds for all of a scope, wherever in it it came; a timeout and what came before
/// the scope do not.
#[test]
fn a_scope_is_cancelled_as_a_whole() {
    let database = database();
    let mut c = database.connect();
    let handle = c.cancel_handle();
    handle.cancel();
    let scope = c.cancel_scope();
    assert_eq!(rows(&mut c, "SELECT 1"), ["1"]);
    run(&mut c, &["CREATE TABLE t (a int PRIMARY KEY)", "BEGIN"]);
    handle.cancel();
    fails(&mut c, "INSERT INTO t VALUES (1)", SqlState::QUERY_CANCELED);
    run(&mut c, &["ROLLBACK"]);
    fails(&mut c, "INSERT INTO t VALUES (1)", SqlState::QUERY_CANCELED);
    fails(&mut c, ENDLESS, SqlState::QUERY_CANCELED);
    let inner = c.cancel_scope();
    fails(&mut c, ENDLESS, SqlState::QUERY_CANCELED);
    drop(inner);
    fails(&mut c, ENDLESS, SqlState::QUERY_CANCELED);
    drop(scope);
    let scope = c.cancel_scope();
    run(&mut c, &["SET statement_timeout = '20ms'"]);
    fails(&mut c, ENDLESS, SqlState::QUERY_CANCELED);
    run(&mut c, &["SET statement_timeout = 0"]);
    assert_eq!(rows(&mut c, "SELECT count(*) FROM t"), ["0"]);
    drop(scope);
    let termination = c.termination();
    termination.request();
    let _scope = c.cancel_scope();
    fails(&mut c, "SELECT 1", SqlState("57P01"));
}

#[test]
fn statements_time_out() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, &["SET statement_timeout = '20ms'", "BEGIN"]);
    let message = fails(&mut c, ENDLESS, SqlState::QUERY_CANCELED);
    assert_eq!(message, "canceling statement due to statement timeout");
    assert_eq!(c.transaction_status(), TransactionStatus::Failed);
    run(&mut c, &["ROLLBACK"]);
    assert_eq!(rows(&mut c, "SELECT 1"), ["1"]);
}

#[test]
fn lock_waits_time_out() {
    let database = database();
    let (mut a, mut b) = (database.connect(), database.connect());
    run(
        &mut a,
        &[
            "CREATE TABLE t (a int PRIMARY KEY, v int)",
            "INSERT INTO t VALUES (1, 1)",
            "BEGIN",
            "UPDATE t SET v = 2",
        ],
    );
    run(&mut b, &["SET lock_timeout = '20ms'"]);
    fails(&mut b, "UPDATE t SET v = 3", SqlState::LOCK_NOT_AVAILABLE);
    run(&mut a, &["COMMIT"]);
    run(&mut b, &["UPDATE t SET v = 3"]);
}

/// The limit is the statement's, not a batch's.
#[test]
fn a_query_that_keeps_giving_rows_times_out() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, &["SET statement_timeout = '500ms'"]);
    let rows = "SELECT x FROM generate_series(1, 1000000000000) AS a(x)";
    let stream = c.query_stream(rows, ()).expect("starts");
    // So many batches take far longer.
    let ended = stream.take(50_000).find_map(Result::err);
    let error = ended.expect("a time limit");
    assert_eq!(error.sqlstate(), SqlState::QUERY_CANCELED);
    assert_eq!(
        error.message(),
        "canceling statement due to statement timeout"
    );
}

/// COMMIT has the limit too: its deferred checks may wait for others.
#[test]
fn a_commit_times_out_in_its_deferred_checks() {
    let database = database();
    let (mut a, mut b) = (database.connect(), database.connect());
    run(
        &mut a,
        &[
            "CREATE TABLE t (a int UNIQUE DEFERRABLE INITIALLY DEFERRED)",
            "BEGIN",
            "INSERT INTO t VALUES (1)",
        ],
    );
    run(
        &mut b,
        &[
            "SET lock_timeout = '10s'",
            "SET statement_timeout = '500ms'",
            "BEGIN",
            "INSERT INTO t VALUES (1)",
        ],
    );
    let message = fails(&mut b, "COMMIT", SqlState::QUERY_CANCELED);
    assert_eq!(message, "canceling statement due to statement timeout");
    assert_eq!(b.transaction_status(), TransactionStatus::Idle);
    run(&mut a, &["COMMIT"]);
    assert_eq!(rows(&mut b, "SELECT * FROM t"), ["1"]);
}
