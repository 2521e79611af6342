//! Who is connected and what they run; cancelling and ending other sessions.

use super::{database, fails, rows, run};
use std::sync::mpsc::channel;
use strandline::{Activity, SqlState};

#[test]
fn sessions_are_listed_until_they_are_dropped() {
    let database = database();
    let mut c = database.connect();
    let mut other = database.connect();
    run(
        &mut other,
        &["SET application_name = 'loader'", "BEGIN", "SELECT 1"],
    );
    other.set_client("192.0.2.7:4711");
    let others = format!(
        "SELECT application_name, client_addr, client_port, state, query, xact_start IS NOT NULL
         FROM pg_stat_activity WHERE pid = {}",
        other.backend_id()
    );
    assert_eq!(
        rows(&mut c, &others),
        ["loader|192.0.2.7|4711|idle in transaction|SELECT 1|t"]
    );
    assert!(other.execute("SELECT 1/0", ()).is_err());
    assert!(rows(&mut c, &others)[0].contains("|idle in transaction (aborted)|SELECT 1/0|"));
    run(&mut other, &["ROLLBACK"]);
    assert!(rows(&mut c, &others)[0].contains("|idle|ROLLBACK|f"));
    let own = "SELECT state, query LIKE 'SELECT state%' FROM pg_stat_activity
        WHERE pid = pg_backend_pid()";
    assert_eq!(rows(&mut c, own), ["active|t"]);
    assert_eq!(database.sessions().len(), 2);
    drop(other);
    assert_eq!(rows(&mut c, &others), Vec::<String>::new());
    assert_eq!(database.sessions().len(), 1);
}

#[test]
fn a_query_is_active_while_its_rows_are_pulled() {
    let database = database();
    let mut c = database.connect();
    let mut stream = c
        .query_stream("SELECT * FROM generate_series(1, 100000)", ())
        .expect("starts");
    assert!(stream.next().is_some());
    assert_eq!(database.sessions()[0].activity, Activity::Active);
    drop(stream);
    assert_eq!(database.sessions()[0].activity, Activity::Idle);
}

#[test]
fn pg_sleep_is_cancelled_by_others_and_by_time() {
    let database = database();
    let mut c = database.connect();
    assert_eq!(rows(&mut c, "SELECT pg_sleep(0) IS NOT NULL"), ["t"]);
    run(&mut c, &["SET statement_timeout = '20ms'"]);
    let message = fails(&mut c, "SELECT pg_sleep(1000)", SqlState::QUERY_CANCELED);
    assert_eq!(message, "canceling statement due to statement timeout");
    run(&mut c, &["RESET statement_timeout"]);
    let pid = c.backend_id();
    let mut other = database.connect();
    let (ended, end) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let cancel = format!("SELECT pg_cancel_backend({pid})");
            // A cancellation before the statement begins is forgotten: repeat until it is done.
            while end.try_recv().is_err() {
                assert_eq!(rows(&mut other, &cancel), ["t"]);
                std::thread::yield_now();
            }
        });
        let message = fails(&mut c, "SELECT pg_sleep(1000)", SqlState::QUERY_CANCELED);
        assert_eq!(message, "canceling statement due to user request");
        ended.send(()).expect("the other side listens");
    });
    assert_eq!(rows(&mut c, "SELECT pg_cancel_backend(99999)"), ["f"]);
}

#[test]
fn a_terminated_session_runs_nothing_more() {
    let database = database();
    let mut c = database.connect();
    let mut other = database.connect();
    let termination = other.termination();
    assert!(!termination.is_requested());
    let terminate = format!("SELECT pg_terminate_backend({})", other.backend_id());
    assert_eq!(rows(&mut c, &terminate), ["t"]);
    assert!(termination.is_requested());
    for sql in ["SELECT 1", "BEGIN", "SELECT pg_sleep(1000)"] {
        let message = fails(&mut other, sql, SqlState("57P01"));
        assert_eq!(
            message,
            "terminating connection due to administrator command"
        );
    }
    drop(other);
    assert_eq!(database.sessions().len(), 1);
}

#[test]
fn cancelling_needs_the_session_s_secret() {
    let database = database();
    let c = database.connect();
    assert!(!database.cancel(c.backend_id(), c.secret().wrapping_add(1)));
    assert!(!database.cancel(c.backend_id() + 1, c.secret()));
    assert!(database.cancel(c.backend_id(), c.secret()));
}

#[test]
fn passwords_are_not_listed() {
    let database = database();
    let mut c = database.connect();
    run(&mut c, &["CREATE USER ann PASSWORD 'geheim'"]);
    let query = database.sessions()[0].query.clone().expect("a statement");
    assert!(
        query.starts_with("CREATE USER ann") && !query.contains("geheim"),
        "{query}"
    );
    let message = fails(
        &mut c,
        "ALTER USER ann PASSWORD 'geheim' nonsense",
        SqlState("42601"),
    );
    assert!(!message.contains("geheim"), "{message}");
}
