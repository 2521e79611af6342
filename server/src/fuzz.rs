//! Feeds the whole message path with bytes that resemble a session. It must not panic, and the
//! serving thread must end.

use crate::options::ServerOptions;
use crate::shared::Shared;
use crate::startup;
use crate::transport::Accepted;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use strandline::Database;
use strandline_base::rng::Rng;

fn server() -> &'static Arc<Shared> {
    static SERVER: OnceLock<Arc<Shared>> = OnceLock::new();
    SERVER.get_or_init(|| {
        let database = Database::in_memory().unwrap();
        database
            .connect()
            .execute("CREATE TABLE t (a int, b text)", ())
            .unwrap();
        Shared::new(database, ServerOptions::default(), None).unwrap()
    })
}

/// Sends `bytes`, closes the sending side, serves the connection; returns the answers.
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

/// Messages of a realistic client, with complete bodies.
const SENSIBLE: &[(u8, &[u8])] = &[
    (b'Q', b"SELECT 1; SELECT a FROM t\0"),
    (b'Q', b"BEGIN; INSERT INTO t VALUES (1, 'x')\0"),
    (b'Q', b"COPY t FROM STDIN\0"),
    (b'Q', b"COPY t TO STDOUT BINARY\0"),
    (b'd', b"1\tx\n2\t\\N\n"),
    (b'c', b""),
    (b'f', b"no\0"),
    (b'P', b"s\0SELECT a + $1 FROM t\0\0\x01\0\0\0\x17"),
    (b'P', b"\0SELECT $1\0\0\0"),
    (
        b'B',
        b"p\0s\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\0\x07\0\x01\0\x01",
    ),
    (b'B', b"\0\0\0\0\0\x01\0\0\0\x01x\0\0"),
    (b'D', b"Sp\0"),
    (b'D', b"P\0"),
    (b'E', b"p\0\0\0\0\x01"),
    (b'E', b"\0\0\0\0\0"),
    (b'C', b"Ss\0"),
    (b'S', b""),
    (b'H', b""),
    (b'X', b""),
];

fn random_bytes(rng: &mut Rng, most: u64) -> Vec<u8> {
    let count = rng.below(most);
    (0..count).map(|_| rng.next_u64() as u8).collect()
}

/// Mostly realistic messages, some with any type and body, some random bytes; then a few bytes are
/// changed.
fn session(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..rng.below(12) {
        match rng.below(11) {
            0..8 => {
                let (kind, body) = SENSIBLE[rng.below(SENSIBLE.len() as u64) as usize];
                bytes.extend(message(kind, body));
            }
            8..10 => {
                let (kind, body) = (rng.next_u64() as u8, random_bytes(rng, 40));
                bytes.extend(message(kind, &body));
            }
            _ => bytes.extend(random_bytes(rng, 20)),
        }
    }
    for _ in 0..rng.below(3) {
        if !bytes.is_empty() {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
    }
    bytes
}

#[test]
fn sessions_end_whatever_they_are_sent() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let starts = !rng.one_in(4);
        let mut bytes = if starts { hello() } else { Vec::new() };
        bytes.extend(session(&mut rng));
        let answers = serve(bytes);
        if starts {
            assert!(answers.starts_with(b"R\0\0\0\x08\0\0\0\0"), "seed {seed}");
        }
    }
}
