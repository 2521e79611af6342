//! The whole path of a message, fed with bytes that are nearly a session's: nothing of it panics,
//! and the thread that serves them comes to its end.

use crate::auth::NoUsers;
use crate::options::ServerOptions;
use crate::server::Shared;
use crate::startup;
use crate::transport::Accepted;
use proptest::prelude::*;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use strandline::Database;

fn server() -> &'static Arc<Shared> {
    static SERVER: OnceLock<Arc<Shared>> = OnceLock::new();
    SERVER.get_or_init(|| {
        let database = Database::in_memory().unwrap();
        database
            .connect()
            .execute("CREATE TABLE t (a int, b text)", ())
            .unwrap();
        Shared::new(database, ServerOptions::default(), Arc::new(NoUsers)).unwrap()
    })
}

/// Sends `bytes`, ends the sending, serves; the answers.
fn serve(bytes: Vec<u8>) -> Vec<u8> {
    let (client, accepted) = UnixStream::pair().unwrap();
    let mut reading = client.try_clone().unwrap();
    let answers = std::thread::spawn(move || {
        let mut answers = Vec::new();
        // The server closes its end when it is done.
        let _end = reading.read_to_end(&mut answers);
        answers
    });
    let sending = std::thread::spawn(move || {
        let mut client = client;
        let _sent = client.write_all(&bytes);
        let _ended = client.shutdown(Shutdown::Write);
    });
    let serving = server().backends.enter(usize::MAX).unwrap();
    startup::serve(server(), Accepted::Unix(accepted), serving);
    sending.join().unwrap();
    answers.join().unwrap()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as i32 + 4).to_be_bytes();
    [&[kind][..], &length, body].concat()
}

fn hello() -> Vec<u8> {
    let body = b"\0\x03\0\0user\0ada\0\0";
    [&(body.len() as i32 + 4).to_be_bytes()[..], body].concat()
}

/// Messages that a client might send, their bodies whole.
fn sensible() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(message(b'Q', b"SELECT 1; SELECT a FROM t\0")),
        Just(message(b'Q', b"BEGIN; INSERT INTO t VALUES (1, 'x')\0")),
        Just(message(b'Q', b"COPY t FROM STDIN\0")),
        Just(message(b'Q', b"COPY t TO STDOUT BINARY\0")),
        Just(message(b'd', b"1\tx\n2\t\\N\n")),
        Just(message(b'c', b"")),
        Just(message(b'f', b"no\0")),
        Just(message(b'P', b"s\0SELECT a + $1 FROM t\0\0\x01\0\0\0\x17")),
        Just(message(b'P', b"\0SELECT $1\0\0\0")),
        Just(message(
            b'B',
            b"p\0s\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01"
        )),
        Just(message(b'B', b"\0\0\0\0\0\x01\0\0\0\x01x\0\0")),
        Just(message(b'D', b"Sp\0")),
        Just(message(b'D', b"P\0")),
        Just(message(b'E', b"p\0\0\0\0\x01")),
        Just(message(b'E', b"\0\0\0\0\0")),
        Just(message(b'C', b"Ss\0")),
        Just(message(b'S', b"")),
        Just(message(b'H', b"")),
        Just(message(b'X', b"")),
    ]
}

/// The same, or any type with any body.
fn any_message() -> impl Strategy<Value = Vec<u8>> {
    let random = (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..40));
    prop_oneof![
        8 => sensible(),
        2 => random.prop_map(|(kind, body)| message(kind, &body)),
        1 => proptest::collection::vec(any::<u8>(), 0..20),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn sessions_end_whatever_they_are_sent(
        messages in proptest::collection::vec(any_message(), 0..12),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        starts in any::<bool>(),
    ) {
        let mut bytes: Vec<u8> = messages.concat();
        for (at, value) in flips {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
        }
        let start = if starts { hello() } else { Vec::new() };
        let answers = serve([start, bytes].concat());
        if starts {
            prop_assert!(answers.starts_with(b"R\0\0\0\x08\0\0\0\0"));
        }
    }
}
