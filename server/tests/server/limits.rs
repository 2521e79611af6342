//! What bounds sessions: cancellation, time, their number, the server's end.

use crate::support::{Raw, TestServer, connect, field, options, query, startup, state, texts};
use std::time::Duration;
use strandline::Database;
use strandline_server::ServerOptions;
use tokio_postgres::NoTls;

const LONG: &str =
    "SELECT count(*) FROM generate_series(1, 3000000) a(x), generate_series(1, 3000000) b(y)";

#[tokio::test]
async fn whoever_knows_the_secret_cancels() {
    let server = TestServer::start();
    let client = server.connect().await;
    let token = client.cancel_token();
    let cancelling = tokio::spawn(async move {
        // A request that comes before the statement is forgotten: ask until it is heard.
        loop {
            token.cancel_query(NoTls).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    assert_eq!(state(client.simple_query(LONG).await), "57014");
    cancelling.abort();
    let _aborted = cancelling.await;
    // One that is still under way may hit the next statement.
    let again = client.simple_query("SELECT 1").await;
    assert!(again.is_ok() || state(again) == "57014");

    let mut wrong = Raw::open(server.address);
    let mut request = vec![0, 0, 0, 16, 4, 210, 22, 46];
    request.extend_from_slice(&[0, 0, 0, 1, 1, 2, 3, 4]);
    wrong.send(&request);
    assert!(wrong.next().is_none());
}

#[tokio::test]
async fn statements_and_idle_clients_have_their_time() {
    let server = TestServer::start();
    let client = server.connect().await;
    client
        .batch_execute("SET statement_timeout = 1")
        .await
        .unwrap();
    assert_eq!(state(client.simple_query(LONG).await), "57014");

    let mut raw = server.raw();
    raw.send(&query("SET idle_in_transaction_session_timeout = 1"));
    raw.until(b'Z');
    raw.send(&query("SELECT 1"));
    raw.until(b'Z');
    raw.send(&query("BEGIN"));
    raw.until(b'Z');
    assert_eq!(raw.last_error().as_deref(), Some("25P03"));

    let mut raw = server.raw();
    raw.send(&query("SET idle_session_timeout = 1"));
    raw.until(b'Z');
    assert_eq!(raw.last_error().as_deref(), Some("57P05"));
}

/// Small statements of others need none of the threads that huge queries keep busy.
#[tokio::test]
async fn huge_queries_starve_nobody() {
    let server = TestServer::start();
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (k int PRIMARY KEY, v text)")
        .await
        .unwrap();
    let huge: Vec<_> = (0..4)
        .map(|_| {
            let mut raw = server.raw();
            raw.send(&query(LONG));
            raw
        })
        .collect();
    let running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE \
                   '%3000000%' AND pid <> pg_backend_pid()";
    while texts(&client, running).await != [Some("4".into())] {}
    for k in 0..10 {
        let insert = format!("INSERT INTO t VALUES ({k}, 'v{k}')");
        client.batch_execute(&insert).await.unwrap();
        let get = format!("SELECT v FROM t WHERE k = {k}");
        assert_eq!(texts(&client, &get).await, [Some(format!("v{k}"))]);
        let count = "SELECT count(*) FROM t GROUP BY v > '' ORDER BY 1";
        assert_eq!(texts(&client, count).await, [Some((k + 1).to_string())]);
    }
    assert_eq!(texts(&client, running).await, [Some("4".into())]);
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE \
               '%3000000%' AND pid <> pg_backend_pid()";
    texts(&client, end).await;
    for mut raw in huge {
        assert_eq!(raw.last_error().as_deref(), Some("57P01"));
    }
}

#[tokio::test]
async fn one_session_ends_another() {
    let server = TestServer::start();
    let mut raw = server.raw();
    raw.send(&query("SELECT pg_backend_pid()"));
    let messages = raw.until(b'Z');
    let pid = String::from_utf8(messages[1].1[6..].to_vec()).unwrap();
    let client = server.connect().await;
    texts(&client, &format!("SELECT pg_terminate_backend({pid})")).await;
    assert_eq!(raw.last_error().as_deref(), Some("57P01"));
    server.wait_for_sessions(1);
}

#[test]
fn clients_that_do_not_say_who_they_are_do_not_stay() {
    let options = ServerOptions {
        authentication_timeout: Duration::from_millis(20),
        ..options()
    };
    let server = TestServer::with(options);
    let mut silent = Raw::open(server.address);
    assert_eq!(silent.last_error().as_deref(), Some("08006"));
    // Neither do those that say it letter by letter, nor is the time for those who have.
    let mut slow = Raw::open(server.address);
    let mut bytes = startup(&[("user", "ada")]).into_iter().cycle();
    slow.send(&[0, 0, 39, 16]);
    use std::io::Write;
    while slow.stream.write_all(&[bytes.next().unwrap()]).is_ok() {}
    let mut raw = server.raw();
    std::thread::yield_now();
    raw.send(&query("SELECT 1"));
    raw.until(b'Z');
}

#[test]
fn more_sessions_than_there_may_be_are_refused() {
    let options = ServerOptions {
        max_connections: 3,
        ..options()
    };
    let server = TestServer::with(options);
    let mut held: Vec<Raw> = (0..3).map(|_| server.raw()).collect();
    let mut refused = Raw::open(server.address);
    refused.send(&startup(&[("user", "ada")]));
    assert_eq!(refused.last_error().as_deref(), Some("53300"));
    held.pop();
    server.wait_for_sessions(2);
    held.push(server.raw());
}

/// The last sessions are for those who can end others.
#[tokio::test]
async fn superusers_get_in_when_nobody_else_does() {
    let database = Database::in_memory().unwrap();
    database.bootstrap_superuser("ada", "lovelace").unwrap();
    let mut ada = database.connect_as("ada").unwrap();
    ada.execute("CREATE USER bob PASSWORD 'byron'", ()).unwrap();
    drop(ada);
    let options = ServerOptions {
        max_connections: 4,
        superuser_reserved_connections: 2,
        ..options()
    };
    let server = TestServer::of(database, options);
    let mut bob = server.config();
    bob.user("bob").password("byron");
    let mut ada = server.config();
    ada.password("lovelace");
    let mut held = vec![connect(&bob).await.unwrap(), connect(&bob).await.unwrap()];
    let refused = connect(&bob).await.map(drop).unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "53300");
    assert_eq!(
        refused.message(),
        "remaining connection slots are reserved for non-replication superuser connections"
    );
    held.push(connect(&ada).await.unwrap());
    held.push(connect(&ada).await.unwrap());
    for config in [&bob, &ada] {
        let refused = connect(config).await.map(drop).unwrap_err();
        let refused = refused.as_db_error().unwrap();
        assert_eq!(refused.message(), "sorry, too many clients already");
    }
    held.truncate(1);
    // The clients' ends need this thread.
    while server.server().session_count() > 1 {
        tokio::task::yield_now().await;
    }
    connect(&bob).await.unwrap();
}

#[test]
fn a_server_that_ends_lets_transactions_finish_and_nobody_new_in() {
    let options = ServerOptions {
        shutdown_grace: crate::support::PATIENCE,
        ..options()
    };
    let mut server = TestServer::with(options);
    let address = server.address;
    let mut idle = server.raw();
    let mut busy = server.raw();
    busy.send(&query("CREATE TABLE t (a int)"));
    busy.until(b'Z');
    busy.send(&query("BEGIN; INSERT INTO t VALUES (1)"));
    busy.until(b'Z');
    let ending = std::thread::spawn(move || server.shut_down());
    assert_eq!(idle.last_error().as_deref(), Some("57P01"));
    let mut late = Raw::open(address);
    late.send(&startup(&[("user", "ada")]));
    assert_eq!(late.last_error().as_deref(), Some("57P03"));
    busy.send(&query("INSERT INTO t VALUES (2)"));
    assert_eq!(busy.types_until_ready(), "CZ");
    busy.send(&query("COMMIT"));
    let messages = busy.until(b'Z');
    assert_eq!(messages[0].0, b'C');
    assert_eq!(busy.last_error().as_deref(), Some("57P01"));
    ending.join().unwrap().unwrap();
}

#[test]
fn transactions_that_do_not_finish_are_ended() {
    let mut server = TestServer::start();
    let mut open = server.raw();
    open.send(&query("BEGIN"));
    open.until(b'Z');
    let mut running = server.raw();
    running.send(&query(LONG));
    server.shut_down().unwrap();
    assert_eq!(open.last_error().as_deref(), Some("57P01"));
    let mut states = Vec::new();
    while let Some((kind, body)) = running.next() {
        if kind == b'E' {
            states.push(field(&body, b'C').unwrap());
        }
    }
    assert_eq!(states.last().map(String::as_str), Some("57P01"));
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_stay() {
    let options = ServerOptions {
        write_timeout: Duration::from_millis(50),
        ..options()
    };
    let server = TestServer::with(options);
    let mut deaf = server.raw();
    deaf.send(&query(
        "SELECT repeat('x', 1000) FROM generate_series(1, 1000000)",
    ));
    server.wait_for_sessions(0);
    let client = server.connect().await;
    assert_eq!(texts(&client, "SELECT 1").await, [Some("1".into())]);
}
