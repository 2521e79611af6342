//! The extended protocol: parameters, portals, pipelines.

use crate::support::{TestServer, extended, field, message, query, state, sync, texts};
use futures::TryStreamExt;
use tokio_postgres::types::Type;

#[tokio::test]
async fn prepared_statements_take_values_and_describe_themselves() {
    let server = TestServer::start();
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (a bigint PRIMARY KEY, b text, c numeric(10,2))")
        .await
        .unwrap();
    let insert = client
        .prepare("INSERT INTO t (a, b) VALUES ($1, $2)")
        .await
        .unwrap();
    assert_eq!(insert.params(), [Type::INT8, Type::TEXT]);
    for i in 0..10i64 {
        let text = (i % 2 == 0).then(|| format!("text {i}"));
        assert_eq!(client.execute(&insert, &[&i, &text]).await.unwrap(), 1);
    }
    let select = client
        .prepare("SELECT a, b, c FROM t WHERE a >= $1 ORDER BY a")
        .await
        .unwrap();
    let columns: Vec<(&str, &Type)> = select
        .columns()
        .iter()
        .map(|c| (c.name(), c.type_()))
        .collect();
    assert_eq!(
        columns,
        [
            ("a", &Type::INT8),
            ("b", &Type::TEXT),
            ("c", &Type::NUMERIC)
        ]
    );
    let rows = client.query(&select, &[&8i64]).await.unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].get::<_, i64>(0), 8);
    assert_eq!(rows[0].get::<_, Option<&str>>(1), Some("text 8"));
    assert_eq!(rows[1].get::<_, Option<&str>>(1), None);
    // The parameter is data, whatever it says.
    let hostile = "'; DROP TABLE t; --";
    client
        .execute(&insert, &[&100i64, &Some(hostile)])
        .await
        .unwrap();
    let row = client
        .query_one("SELECT b FROM t WHERE b = $1", &[&hostile])
        .await
        .unwrap();
    assert_eq!(row.get::<_, &str>(0), hostile);
}

#[tokio::test]
async fn portals_give_as_many_rows_as_they_are_asked_for() {
    let server = TestServer::start();
    let mut client = server.connect().await;
    let transaction = client.transaction().await.unwrap();
    let portal = transaction
        .bind("SELECT generate_series(1, 25) AS i", &[])
        .await
        .unwrap();
    let mut sizes = Vec::new();
    loop {
        let rows = transaction.query_portal(&portal, 10).await.unwrap();
        sizes.push(rows.len());
        // Other statements in between do not disturb it.
        transaction.batch_execute("SELECT 1").await.unwrap();
        if rows.len() < 10 {
            break;
        }
    }
    assert_eq!(sizes, [10, 10, 5]);
    let rest = transaction.query_portal(&portal, 0).await;
    assert_eq!(state(rest), "55000");
    transaction.rollback().await.unwrap();
}

#[tokio::test]
async fn rows_come_while_the_query_runs() {
    let server = TestServer::start();
    let client = server.connect().await;
    let rows = client
        .query_raw(
            "SELECT i FROM generate_series(1, 200000) AS t(i)",
            std::iter::empty::<i32>(),
        )
        .await
        .unwrap();
    let count = rows
        .try_fold(0, |n, _| async move { Ok(n + 1) })
        .await
        .unwrap();
    assert_eq!(count, 200_000);
}

#[tokio::test]
async fn what_a_pipeline_says_before_sync_is_one_transaction() {
    let server = TestServer::start();
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (a int PRIMARY KEY)")
        .await
        .unwrap();
    let mut raw = server.raw();
    let mut bytes = extended("INSERT INTO t VALUES (1)");
    bytes.extend(extended("INSERT INTO t VALUES (1)"));
    bytes.extend(extended("INSERT INTO t VALUES (2)"));
    bytes.extend(sync());
    raw.send(&bytes);
    // The second fails, the third is skipped, the first is undone.
    assert_eq!(raw.types_until_ready(), "12nC12nEZ");
    assert_eq!(
        texts(&client, "SELECT count(*) FROM t").await,
        [Some("0".into())]
    );

    let mut bytes = extended("INSERT INTO t VALUES (1)");
    bytes.extend(extended("SELECT a FROM t"));
    bytes.extend(sync());
    bytes.extend(extended("INSERT INTO t VALUES (2)"));
    bytes.extend(sync());
    raw.send(&bytes);
    assert_eq!(raw.types_until_ready(), "12nC12TDCZ");
    assert_eq!(raw.types_until_ready(), "12nCZ");
    assert_eq!(
        texts(&client, "SELECT count(*) FROM t").await,
        [Some("2".into())]
    );

    // BEGIN in a pipeline outlives its Sync.
    let mut bytes = extended("BEGIN");
    bytes.extend(extended("DELETE FROM t"));
    bytes.extend(sync());
    raw.send(&bytes);
    let messages = raw.until(b'Z');
    assert_eq!(messages.last().unwrap().1, b"T");
    raw.send(&query("ROLLBACK"));
    raw.until(b'Z');
    assert_eq!(
        texts(&client, "SELECT count(*) FROM t").await,
        [Some("2".into())]
    );
}

#[test]
fn names_that_mean_nothing_or_too_much_are_errors() {
    let server = TestServer::start();
    let mut raw = server.raw();
    let mut error = |bytes: Vec<u8>| {
        raw.send(&bytes);
        raw.send(&sync());
        let messages = raw.until(b'Z');
        let found = messages.iter().find(|(kind, _)| *kind == b'E');
        found
            .and_then(|(_, body)| field(body, b'C'))
            .unwrap_or_default()
    };
    assert_eq!(error(message(b'B', b"\0none\0\0\0\0\0\0\0")), "26000");
    assert_eq!(error(message(b'E', b"none\0\0\0\0\0")), "34000");
    assert_eq!(error(message(b'D', b"Snone\0")), "26000");
    assert_eq!(error(message(b'D', b"Pnone\0")), "34000");
    assert_eq!(error(message(b'D', b"Xnone\0")), "08P01");
    // Closing what is not there is none.
    assert_eq!(error(message(b'C', b"Snone\0")), "");
    assert_eq!(error(message(b'P', b"one\0SELECT 1\0\0\0")), "");
    assert_eq!(error(message(b'P', b"one\0SELECT 1\0\0\0")), "42P05");
    // One value too many, and a format that does not exist.
    assert_eq!(
        error(message(b'B', b"\0one\0\0\0\0\x01\0\0\0\x01x\0\0")),
        "08P01"
    );
    assert_eq!(
        error(message(b'B', b"\0one\0\0\x01\0\x07\0\0\0\0")),
        "08P01"
    );
    assert_eq!(error(message(b'P', b"\0SELECT 1; SELECT 2\0\0\0")), "42601");
    // An empty text is a statement.
    assert_eq!(error(extended("")), "");
}

#[tokio::test]
async fn statements_end_with_their_session_or_by_name() {
    let server = TestServer::start();
    let mut raw = server.raw();
    raw.send(&message(b'P', b"keep\0SELECT 1\0\0\0"));
    raw.send(&sync());
    raw.until(b'Z');
    raw.send(&query("DEALLOCATE keep"));
    assert_eq!(raw.types_until_ready(), "CZ");
    raw.send(&message(b'D', b"Skeep\0"));
    raw.send(&sync());
    assert_eq!(raw.types_until_ready(), "EZ");
    raw.send(&message(b'P', b"keep\0SELECT 1\0\0\0"));
    raw.send(&sync());
    raw.until(b'Z');
    raw.send(&query("DISCARD ALL"));
    raw.until(b'Z');
    raw.send(&message(b'D', b"Skeep\0"));
    raw.send(&sync());
    assert_eq!(raw.types_until_ready(), "EZ");
}
