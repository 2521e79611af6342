//! A server in this process, and clients for it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use strandline::Database;
use strandline_server::{Server, ServerOptions};
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage};

/// Longer than anything takes that is not stuck.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub struct TestServer {
    server: Option<Server>,
    pub address: SocketAddr,
}

pub fn options() -> ServerOptions {
    ServerOptions {
        listen: vec!["127.0.0.1:0".parse().unwrap()],
        shutdown_grace: Duration::ZERO,
        ..ServerOptions::default()
    }
}

impl TestServer {
    pub fn start() -> Self {
        Self::with(options())
    }

    pub fn with(options: ServerOptions) -> Self {
        Self::of(Database::in_memory().unwrap(), options)
    }

    pub fn of(database: Database, options: ServerOptions) -> Self {
        let server = Server::start(database, options, None).unwrap();
        Self {
            address: server.addresses()[0],
            server: Some(server),
        }
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    pub fn shut_down(&mut self) -> strandline::Result<()> {
        self.server.take().unwrap().shut_down()
    }

    pub fn config(&self) -> Config {
        let mut config = Config::new();
        config
            .host("127.0.0.1")
            .port(self.address.port())
            .user("ada")
            .dbname("strandline");
        config
    }

    pub async fn connect(&self) -> Client {
        connect(&self.config()).await.unwrap()
    }

    /// A connection whose startup is done, to send bytes on.
    pub fn raw(&self) -> Raw {
        let mut raw = Raw::open(self.address);
        raw.send(&startup(&[("user", "ada")]));
        raw.until(b'Z');
        raw
    }

    /// Waits until there are `count` sessions.
    pub fn wait_for_sessions(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.server().session_count() != count {
            assert!(
                Instant::now() < deadline,
                "{} sessions",
                self.server().session_count()
            );
            std::thread::yield_now();
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            let _result = server.shut_down();
        }
    }
}

pub async fn connect(config: &Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The SQLSTATE of a failed call.
pub fn state<T: std::fmt::Debug>(result: Result<T, tokio_postgres::Error>) -> String {
    let error = result.unwrap_err();
    match error.as_db_error() {
        Some(error) => error.code().code().to_string(),
        None => panic!("{error}"),
    }
}

/// The first column of the rows that the simple protocol gives.
pub async fn texts(client: &Client, sql: &str) -> Vec<Option<String>> {
    let messages = client.simple_query(sql).await.unwrap();
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).map(str::to_string)),
        _ => None,
    });
    rows.collect()
}

/// A client that sends whatever it likes.
pub struct Raw {
    pub stream: TcpStream,
}

impl Raw {
    pub fn open(address: SocketAddr) -> Self {
        Self::try_open(address).unwrap()
    }

    /// As [`Raw::open`], of a server that may be gone.
    pub fn try_open(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream })
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// The next message: its type and body; None: the connection is closed.
    pub fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut header = [0; 5];
        if self.stream.read_exact(&mut header).is_err() {
            return None;
        }
        let length = i32::from_be_bytes(header[1..].try_into().unwrap());
        let mut body = vec![0; usize::try_from(length).unwrap() - 4];
        self.stream.read_exact(&mut body).unwrap();
        Some((header[0], body))
    }

    /// The messages up to one of type `last`, which must come.
    pub fn until(&mut self, last: u8) -> Vec<(u8, Vec<u8>)> {
        let mut messages = Vec::new();
        loop {
            let message = self.next().expect("the connection stays open");
            let is_last = message.0 == last;
            messages.push(message);
            if is_last {
                return messages;
            }
        }
    }

    /// The types of the messages up to ReadyForQuery.
    pub fn types_until_ready(&mut self) -> String {
        let messages = self.until(b'Z');
        messages.iter().map(|(kind, _)| *kind as char).collect()
    }

    /// The SQLSTATE of the error that comes before the connection is closed.
    pub fn last_error(&mut self) -> Option<String> {
        let mut state = None;
        while let Some((kind, body)) = self.next() {
            if kind == b'E' {
                state = field(&body, b'C');
            }
        }
        state
    }
}

/// A field of an error or notice.
pub fn field(body: &[u8], letter: u8) -> Option<String> {
    let fields = body.split(|b| *b == 0);
    let mut fields = fields.filter(|field| field.first() == Some(&letter));
    let value = fields.next()?;
    Some(String::from_utf8(value[1..].to_vec()).unwrap())
}

pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&(body.len() as i32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

pub fn startup(settings: &[(&str, &str)]) -> Vec<u8> {
    let mut body = 196_608i32.to_be_bytes().to_vec();
    for (name, value) in settings {
        body.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
    }
    body.push(0);
    let mut bytes = (body.len() as i32 + 4).to_be_bytes().to_vec();
    bytes.extend_from_slice(&body);
    bytes
}

pub fn query(sql: &str) -> Vec<u8> {
    message(b'Q', format!("{sql}\0").as_bytes())
}

/// Parse, Bind, Describe (of the portal) and Execute of a statement without parameters.
pub fn extended(sql: &str) -> Vec<u8> {
    let mut bytes = message(b'P', format!("\0{sql}\0\0\0").as_bytes());
    bytes.extend(message(b'B', b"\0\0\0\0\0\0\0\0"));
    bytes.extend(message(b'D', b"P\0"));
    bytes.extend(message(b'E', b"\0\0\0\0\0"));
    bytes
}

pub fn sync() -> Vec<u8> {
    message(b'S', b"")
}
