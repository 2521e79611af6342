//! COPY with a client.

use crate::support::{TestServer, field, message, query, texts};
use bytes::Bytes;
use futures::{SinkExt, TryStreamExt};
use std::pin::pin;
use tokio_postgres::Client;

async fn copy_in(client: &Client, sql: &str, data: &[u8]) -> Result<u64, tokio_postgres::Error> {
    let mut sink = pin!(client.copy_in(sql).await?);
    // Pieces that end anywhere.
    for piece in data.chunks(7) {
        sink.send(Bytes::copy_from_slice(piece)).await?;
    }
    sink.finish().await
}

async fn copy_out(client: &Client, sql: &str) -> Vec<u8> {
    let stream = client.copy_out(sql).await.unwrap();
    let pieces: Vec<Bytes> = stream.try_collect().await.unwrap();
    pieces.concat()
}

const TABLE: &str = "CREATE TABLE t (a int PRIMARY KEY, b text, c numeric(10,2), d timestamp)";

/// psql sends the marker of its data's end as data, and then CopyDone.
#[test]
fn data_may_end_with_a_marker() {
    let server = TestServer::start();
    let mut raw = server.raw();
    raw.send(&query("CREATE TABLE t (a int PRIMARY KEY)"));
    raw.until(b'Z');
    let pieces: [&[&[u8]]; 5] = [
        &[b"1\n2\n\\.\n"],
        &[b"3\n4\n", b"\\.\n"],
        &[b"5\n6\n\\.", b"\n"],
        &[b"7\n8\n\\."],
        &[b"9\r\n10\r\n\\.\r\n"],
    ];
    for (n, pieces) in pieces.iter().enumerate() {
        raw.send(&query("COPY t FROM STDIN"));
        raw.until(b'G');
        for piece in *pieces {
            raw.send(&message(b'd', piece));
        }
        raw.send(&message(b'c', b""));
        let answers = raw.until(b'Z');
        assert_eq!(answers[0], (b'C', b"COPY 2\0".to_vec()), "{n}");
    }
    raw.send(&query("SELECT count(*) FROM t"));
    assert_eq!(raw.types_until_ready(), "TDCZ");
}

#[tokio::test]
async fn what_goes_in_comes_out_in_every_format() {
    let server = TestServer::start();
    let client = server.connect().await;
    client.batch_execute(TABLE).await.unwrap();
    let text = b"1\tone\\ttab\\nline \\\\ back\t1.50\t2024-01-02 03:04:05\n2\t\\N\t\\N\t\\N\n3\t\t-0.01\t\\N\n";
    assert_eq!(
        copy_in(&client, "COPY t FROM STDIN", text).await.unwrap(),
        3
    );
    assert_eq!(copy_out(&client, "COPY t TO STDOUT").await, text);
    for options in [
        "(FORMAT text)",
        "(FORMAT csv, HEADER)",
        "(FORMAT binary)",
        "(FORMAT csv, DELIMITER '|', NULL 'null')",
    ] {
        let data = copy_out(&client, &format!("COPY t TO STDOUT WITH {options}")).await;
        client.batch_execute("DELETE FROM t").await.unwrap();
        let sql = format!("COPY t FROM STDIN WITH {options}");
        assert_eq!(copy_in(&client, &sql, &data).await.unwrap(), 3, "{options}");
        assert_eq!(
            copy_out(&client, "COPY t TO STDOUT").await,
            text,
            "{options}"
        );
    }
    let csv = copy_out(
        &client,
        "COPY (SELECT a, b FROM t ORDER BY a) TO STDOUT CSV HEADER",
    )
    .await;
    let expected = "a,b\n1,\"one\ttab\nline \\ back\"\n2,\n3,\"\"\n";
    assert_eq!(String::from_utf8(csv).unwrap(), expected);
}

#[tokio::test]
async fn much_data_is_not_gathered() {
    let server = TestServer::start();
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE big (a bigint, b text)")
        .await
        .unwrap();
    let rows: String = (0..100_000)
        .map(|i| format!("{i}\tsome text of row {i}\n"))
        .collect();
    let mut sink = pin!(
        client
            .copy_in("COPY big FROM STDIN (FREEZE ON)")
            .await
            .unwrap()
    );
    for piece in rows.as_bytes().chunks(60_000) {
        sink.send(Bytes::copy_from_slice(piece)).await.unwrap();
    }
    assert_eq!(sink.finish().await.unwrap(), 100_000);
    let sums = texts(&client, "SELECT sum(a) FROM big").await;
    assert_eq!(sums, [Some((0..100_000u64).sum::<u64>().to_string())]);
    // Threads read parts of the table; who wants an order says so.
    let ordered = "COPY (SELECT * FROM big ORDER BY a) TO STDOUT";
    let back = copy_out(&client, ordered).await;
    assert!(back == rows.as_bytes(), "{} bytes came back", back.len());
}

#[test]
fn a_copy_that_fails_leaves_the_session_in_order() {
    let server = TestServer::start();
    let mut raw = server.raw();
    raw.send(&query(TABLE));
    raw.until(b'Z');
    let mut failed = |sql: &str, data: &[&[u8]], end: (u8, &[u8])| {
        raw.send(&query(sql));
        for piece in data {
            raw.send(&message(b'd', piece));
        }
        raw.send(&message(end.0, end.1));
        let messages = raw.until(b'Z');
        let error = messages.iter().find(|(kind, _)| *kind == b'E');
        let error = error.map(|(_, body)| (field(body, b'C').unwrap(), field(body, b'M').unwrap()));
        raw.send(&query("SELECT count(*) FROM t"));
        assert_eq!(raw.types_until_ready(), "TDCZ");
        error.unwrap_or_default()
    };
    let done = (b'c', &b""[..]);
    let (state, text) = failed("COPY t (a, b) FROM STDIN", &[b"1\tx\n", b"x\ty\n"], done);
    assert_eq!(state, "22P02");
    assert!(text.contains("line 2, column a"), "{text}");
    let (state, text) = failed(
        "COPY t (a, b) FROM STDIN",
        &[b"1\tx\n"],
        (b'f', b"no more\0"),
    );
    assert_eq!(
        (state.as_str(), text.as_str()),
        ("57014", "COPY from stdin failed: no more")
    );
    assert_eq!(
        failed("COPY t (a, b) FROM STDIN", &[b"1\n"], done).0,
        "22P04"
    );
    assert_eq!(
        failed("COPY t FROM STDIN BINARY", &[b"no signature at all"], done).0,
        "22P04"
    );
    // Nobody asked for the data, which is thrown away.
    assert_eq!(
        failed("COPY nothing FROM STDIN", &[b"1\tx\n"], done).0,
        "42P01"
    );
    assert_eq!(
        failed("COPY t (a, b) FROM STDIN", &[b"1\tx\n"], done),
        Default::default()
    );
}

/// A COPY that has been cancelled is silent, though the thread that sends its rows goes on until
/// it notices.
#[test]
fn a_cancelled_copy_sends_nothing_into_later_answers() {
    let server = TestServer::start();
    let mut raw = server.raw();
    let copy = "COPY (SELECT repeat('x', 500) FROM generate_series(1, 1000000000000)) TO STDOUT";
    for _ in 0..10 {
        raw.send(&query("SET statement_timeout = '50ms'"));
        assert_eq!(raw.types_until_ready(), "CZ");
        raw.send(&query(copy));
        let messages = raw.until(b'Z');
        let (_, error) = &messages[messages.len() - 2];
        assert_eq!(field(error, b'C').as_deref(), Some("57014"));
        raw.send(&query("SET statement_timeout = 0"));
        assert_eq!(raw.types_until_ready(), "CZ");
        raw.send(&query("SELECT count(*) FROM generate_series(1, 3000000)"));
        assert_eq!(raw.types_until_ready(), "TDCZ");
    }
}
