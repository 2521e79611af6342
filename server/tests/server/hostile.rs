//! Input that no client sends.

use crate::support::{Raw, TestServer, extended, message, query, startup, sync};
use std::io::Write;

#[test]
fn packets_before_the_session() {
    let server = TestServer::start();
    let error = |bytes: &[u8]| {
        let mut raw = Raw::open(server.address);
        raw.send(bytes);
        raw.stream.shutdown(std::net::Shutdown::Write).unwrap();
        raw.last_error()
    };
    let version = 196_608i32.to_be_bytes();
    let long = [&9_999_999i32.to_be_bytes()[..], &version].concat();
    let negative = [&(-1i32).to_be_bytes()[..], &version].concat();
    let short = [&7i32.to_be_bytes()[..], &version].concat();
    for bytes in [&long, &negative, &short] {
        assert_eq!(error(bytes).as_deref(), Some("08P01"), "{bytes:?}");
    }
    assert_eq!(error(b"GET / HTTP/1.1\r\n\r\n").as_deref(), Some("08P01"));
    assert_eq!(
        error(&startup(&[("database", "x")])).as_deref(),
        Some("28000")
    );
    assert_eq!(
        error(&startup(&[("user", "a"), ("no_such", "x")])).as_deref(),
        Some("42704")
    );
    assert_eq!(
        error(&startup(&[("user", "a"), ("replication", "true")])).as_deref(),
        Some("0A000")
    );
    let old = [&8i32.to_be_bytes()[..], &131_072i32.to_be_bytes()].concat();
    assert_eq!(error(&old).as_deref(), Some("0A000"));
    let unended = [&13i32.to_be_bytes()[..], &version, b"user\0"].concat();
    assert_eq!(error(&unended).as_deref(), Some("08P01"));
    // Half a packet and silence: there is nothing to say.
    assert_eq!(error(&startup(&[("user", "a")])[..10]), None);
    server.wait_for_sessions(0);
}

#[test]
fn messages_that_are_none_end_the_session() {
    let server = TestServer::start();
    let error = |bytes: &[u8]| {
        let mut raw = server.raw();
        // The server may hang up before everything is sent.
        let _sent = raw.stream.write_all(bytes);
        raw.last_error()
    };
    for bytes in [
        &b"\0\0\0\0\x04"[..],
        b"~\0\0\0\x04",
        b"Q\0\0\0\x03",
        b"Q\xff\xff\xff\xff",
        // More than any message may have, announced only.
        b"Q\x7f\xff\xff\xff",
        b"P\x3f\xff\xff\xff",
        b"E\0\x01\0\0",
        b"S\0\0\xff\xff",
    ] {
        assert_eq!(error(bytes).as_deref(), Some("08P01"), "{bytes:?}");
    }
    server.wait_for_sessions(0);
}

#[test]
fn bodies_that_are_wrong_are_errors_and_no_more() {
    let server = TestServer::start();
    let mut raw = server.raw();
    for (kind, body) in [
        (b'P', &b""[..]),
        (b'P', b"a"),
        (b'P', b"a\0"),
        (b'P', b"a\0SELECT 1\0"),
        (b'P', b"a\0SELECT 1\0\xff\xff"),
        (b'P', b"a\0SELECT \xff\0\0\0"),
        (b'P', b"a\0SELECT 1\0\0\0rest"),
        (b'B', b""),
        (b'B', b"\0\0\xff\xff"),
        (b'B', b"\0\0\0\0\xff\xff"),
        (b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xff"),
        (b'B', b"\0\0\0\0\0\x01\xff\xff\xff\xfe"),
        (b'D', b""),
        (b'D', b"S"),
        (b'E', b"\0\0\0"),
        (b'C', b"P"),
    ] {
        raw.send(&message(kind, body));
        raw.send(&sync());
        assert_eq!(raw.types_until_ready(), "EZ", "{} {body:?}", kind as char);
    }
    raw.send(&message(b'Q', b"SELECT 1"));
    assert_eq!(raw.types_until_ready(), "EZ");
    raw.send(&message(b'Q', b"SELECT '\xff'\0"));
    assert_eq!(raw.types_until_ready(), "EZ");
    raw.send(&message(b'F', b"\0\0\0\0"));
    assert_eq!(raw.types_until_ready(), "EZ");
    raw.send(&[extended("SELECT 1"), sync()].concat());
    assert_eq!(raw.types_until_ready(), "12TDCZ");
}

#[test]
fn a_flood_of_connections_leaves_the_sessions_alone() {
    let server = TestServer::start();
    let mut raw = server.raw();
    let mut flood = Vec::new();
    for i in 0..400 {
        let mut stream = std::net::TcpStream::connect(server.address).unwrap();
        if i % 2 == 0 {
            let _sent = stream.write_all(&startup(&[("user", "a")])[..i % 9]);
        }
        flood.push(stream);
    }
    raw.send(&query("SELECT 1"));
    assert_eq!(raw.types_until_ready(), "TDCZ");
    drop(flood);
    server.wait_for_sessions(1);
    raw.send(&query("SELECT 1"));
    assert_eq!(raw.types_until_ready(), "TDCZ");
}
