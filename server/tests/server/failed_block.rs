//! A block in which a statement has failed holds nothing, whatever its client does next.

use crate::support::{TestServer, field, message, query, state, sync};

#[tokio::test]
async fn a_deadlocks_survivor_does_not_wait_for_the_victims_rollback() {
    let server = TestServer::start();
    let (a, b) = (server.connect().await, server.connect().await);
    a.batch_execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0), (2, 0)",
    )
    .await
    .unwrap();
    for client in [&a, &b] {
        client
            .batch_execute("SET lock_timeout = '20s'; BEGIN")
            .await
            .unwrap();
    }
    let add = |id: i32| format!("UPDATE t SET n = n + 1 WHERE id = {id}");
    let (one, two) = (add(1), add(2));
    a.batch_execute(&one).await.unwrap();
    b.batch_execute(&two).await.unwrap();
    let (mine, theirs) = tokio::join!(a.batch_execute(&two), b.batch_execute(&one));
    let (survivor, victim, error) = match (mine, theirs) {
        (Ok(()), Err(error)) => (a, b, error),
        (Err(error), Ok(())) => (b, a, error),
        other => panic!("{other:?}"),
    };
    assert_eq!(state::<()>(Err(error)), "40P01");
    survivor.batch_execute("COMMIT").await.unwrap();
    assert_eq!(state(victim.batch_execute("SELECT 1").await), "25P02");
    victim.batch_execute("ROLLBACK").await.unwrap();
    let sum = victim.query_one("SELECT sum(n) FROM t", &[]).await.unwrap();
    assert_eq!(sum.get::<_, i64>(0), 2);
}

/// Portals end with the work of a failed block; those from before a savepoint can be read again
/// after ROLLBACK TO.
#[test]
fn portals_of_a_failed_block() {
    let server = TestServer::start();
    let mut raw = server.raw();
    let mut answer = |bytes: &[u8]| {
        raw.send(bytes);
        let messages = raw.until(b'Z');
        let status = messages.last().unwrap().1[0] as char;
        let error = messages.iter().find(|(kind, _)| *kind == b'E');
        let state = error.map(|(_, body)| field(body, b'C').unwrap());
        let rows = messages.iter().filter(|(kind, _)| *kind == b'D').count();
        (status, state.unwrap_or_default(), rows)
    };
    let fetch = |rows: i32| {
        let mut bytes = message(b'E', &[b"p\0", &rows.to_be_bytes()[..]].concat());
        bytes.extend(sync());
        bytes
    };
    let mut open = message(b'P', b"\0SELECT * FROM generate_series(1, 30000)\0\0\0");
    open.extend(message(b'B', b"p\0\0\0\0\0\0\0\0"));
    open.extend(fetch(2));
    let done = |status, rows| (status, String::new(), rows);
    let failed = |state: &str| ('E', state.to_string(), 0);
    assert_eq!(answer(&query("BEGIN")), done('T', 0));
    assert_eq!(answer(&open), done('T', 2));
    assert_eq!(answer(&query("SELECT 1/0")), failed("22012"));
    assert_eq!(answer(&fetch(2)), failed("34000"));
    assert_eq!(answer(&query("ROLLBACK")), done('I', 0));

    assert_eq!(answer(&query("BEGIN")), done('T', 0));
    assert_eq!(answer(&open), done('T', 2));
    assert_eq!(answer(&query("SAVEPOINT s")), done('T', 0));
    assert_eq!(answer(&query("SELECT 1/0")), failed("22012"));
    assert_eq!(answer(&query("ROLLBACK TO s")), done('T', 0));
    assert_eq!(answer(&fetch(3)), done('T', 3));
    assert_eq!(answer(&query("COMMIT")), done('I', 0));
}
