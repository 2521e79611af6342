//! Clients that ask for much and do not read: writers go on with little memory, files stay bounded,
//! and whoever reads at last gets what the statement saw.

use crate::support::{Raw, TestServer, extended, message, options, query, sync};
use std::sync::Arc;
use strandline::Database;
use strandline_device::{Device, MemoryDevice};
use tokio_postgres::Client;

const ROWS: usize = 12_000;
/// More in all than what sockets between a server and its client hold.
const TEXT_BYTES: usize = 4_000;
const MEMORY: usize = 64 << 20;

/// Execute of the unnamed portal for so many rows.
fn execute(rows: i32) -> Vec<u8> {
    let mut body = vec![0];
    body.extend_from_slice(&rows.to_be_bytes());
    message(b'E', &body)
}

/// A client that has read its statement's first row and reads no more.
fn stalled(server: &TestServer, setup: &[&str], ask: &[u8]) -> Raw {
    let mut raw = server.raw();
    for sql in setup {
        raw.send(&query(sql));
        assert_eq!(raw.types_until_ready(), "CZ", "{sql}");
    }
    raw.send(ask);
    // The statement has its snapshot.
    loop {
        let (kind, body) = raw.next().expect("the session stays open");
        assert_ne!(kind, b'E', "{}", String::from_utf8_lossy(&body));
        if matches!(kind, b'D' | b'd') {
            return raw;
        }
    }
}

/// Rows (or lines) up to ReadyForQuery, after the one that was read. None has one of the `words`.
fn rest(raw: &mut Raw, words: &[&str]) -> usize {
    let mut rows = 1;
    for (kind, body) in raw.until(b'Z') {
        assert_ne!(kind, b'E', "{}", String::from_utf8_lossy(&body));
        for word in words {
            let has_word = body.windows(3).any(|part| part == word.as_bytes());
            assert!(!has_word, "a row of another moment: {word}");
        }
        rows += usize::from(matches!(kind, b'D' | b'd'));
    }
    rows
}

fn file_bytes(device: &MemoryDevice) -> u64 {
    let names = device.list().expect("list");
    let len = |name: &String| device.open(name).map_or(0, |file| file.len().expect("len"));
    names.iter().map(len).sum()
}

/// Updates of four times the memory, of few rows, to texts that begin with a word of three letters;
/// the most bytes of files meanwhile.
async fn write_much(client: &Client, device: &MemoryDevice, word: &str) -> u64 {
    let update = format!("UPDATE t SET b = '{word}' || repeat($2::text, 3997) WHERE a % 100 = $1");
    let update = client.prepare(&update).await.unwrap();
    let bytes_each = ROWS / 100 * TEXT_BYTES;
    let mut most = 0;
    for n in 0..4 * MEMORY / bytes_each {
        let (part, letter) = ((n % 100) as i32, ["x", "y"][n % 2]);
        let written = client.execute(&update, &[&part, &letter]).await.unwrap();
        assert_eq!(written, (ROWS / 100) as u64);
        if n % 8 == 7 {
            client.batch_execute("CHECKPOINT").await.unwrap();
        }
        most = most.max(file_bytes(device));
    }
    most
}

async fn database() -> (TestServer, Client, Arc<MemoryDevice>) {
    let device = Arc::new(MemoryDevice::new());
    let database = Database::on_device(device.clone()).memory_bytes(MEMORY);
    let server = TestServer::of(database.build().unwrap(), options());
    let client = server.connect().await;
    client
        .batch_execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        .await
        .unwrap();
    for first in (1..=ROWS).step_by(ROWS / 12) {
        let last = first + ROWS / 12 - 1;
        let load = format!(
            "INSERT INTO t SELECT g, repeat('o', {TEXT_BYTES}) FROM generate_series({first}, {last}) g"
        );
        client.batch_execute(&load).await.unwrap();
    }
    client.batch_execute("CHECKPOINT").await.unwrap();
    (server, client, device)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_go_on_beside_every_kind_of_read() {
    let (server, client, device) = database().await;
    let before = write_much(&client, &device, "was").await;
    for part in 0..10 {
        let old = format!("UPDATE t SET b = repeat('o', {TEXT_BYTES}) WHERE a % 10 = {part}");
        client.batch_execute(&old).await.unwrap();
    }
    client.batch_execute("CHECKPOINT").await.unwrap();
    let select = "SELECT a, b FROM t";
    let portal = {
        let parts = extended(select);
        // Without its Execute, which is the last message.
        let bound = parts[..parts.len() - 10].to_vec();
        [bound, execute(10), message(b'H', b"")].concat()
    };
    let mut clients = [
        stalled(&server, &[], &query(select)),
        stalled(&server, &[], &query("COPY t TO STDOUT")),
        stalled(&server, &[], &[extended(select), sync()].concat()),
        stalled(
            &server,
            &["BEGIN ISOLATION LEVEL REPEATABLE READ"],
            &query(select),
        ),
    ];
    let mut stale = stalled(
        &server,
        &["SET strandline.max_staleness = '1h'"],
        &query(select),
    );
    let mut suspended = stalled(&server, &["BEGIN"], &portal);
    let most = write_much(&client, &device, "new").await;
    // What they see has to stay, once; when a checkpoint cuts the log is another's business. All
    // that is written would be five times the table.
    let table = (ROWS * TEXT_BYTES) as u64;
    assert!(
        most <= before + 4 * table,
        "{most} bytes of files, {before} without readers"
    );
    for raw in &mut clients {
        assert_eq!(rest(raw, &["was", "new"]), ROWS);
    }
    // It may see the last moment at which all was merged, however long a merge has waited.
    assert_eq!(rest(&mut stale, &["new"]), ROWS);
    suspended.send(&[execute(0), sync()].concat());
    assert_eq!(rest(&mut suspended, &["was", "new"]), ROWS);
}
