//! Passwords, TLS, the Unix socket, addresses.

use crate::support::{Raw, TestServer, connect, message, options, startup, state};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use strandline::Database;
use strandline_server::{Server, ServerOptions, TlsFiles};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto};

/// A database with one user, `ada`, whose password is `lovelace`.
fn with_ada() -> Database {
    let database = Database::in_memory().unwrap();
    database.bootstrap_superuser("ada", "lovelace").unwrap();
    database
}

#[tokio::test]
async fn passwords_are_checked() {
    let server = TestServer::of(with_ada(), options());
    let mut config = server.config();
    config.password("lovelace");
    let client = connect(&config).await.unwrap();
    client.batch_execute("SELECT 1").await.unwrap();
    config.password("byron");
    assert_eq!(state(connect(&config).await.map(drop)), "28P01");
    // Nobody is told which users there are.
    config.user("charles").password("lovelace");
    assert_eq!(state(connect(&config).await.map(drop)), "28P01");
}

#[test]
fn users_that_do_not_exist_are_asked_like_others() {
    let server = TestServer::of(with_ada(), options());
    let first_answer = |user: &str| {
        let mut raw = Raw::open(server.address);
        raw.send(&startup(&[("user", user)]));
        let (kind, body) = raw.next().unwrap();
        assert_eq!((kind, &body[..4]), (b'R', &[0, 0, 0, 10][..]));
        let client_first = b"n,,n=,r=abcdefghij";
        let mut body = b"SCRAM-SHA-256\0".to_vec();
        body.extend_from_slice(&(client_first.len() as i32).to_be_bytes());
        body.extend_from_slice(client_first);
        raw.send(&message(b'p', &body));
        let (kind, body) = raw.next().unwrap();
        assert_eq!((kind, &body[..4]), (b'R', &[0, 0, 0, 11][..]));
        let text = String::from_utf8(body[4..].to_vec()).unwrap();
        let mut parts = text.split(',').map(str::to_string);
        assert!(parts.next().unwrap().starts_with("r=abcdefghij"));
        (parts.next().unwrap(), parts.next().unwrap())
    };
    let (salt, iterations) = first_answer("nobody");
    assert_eq!((salt.clone(), iterations.clone()), first_answer("nobody"));
    let (known, same) = first_answer("ada");
    assert_eq!(iterations, same);
    assert_eq!(salt.len(), known.len());
}

#[test]
fn without_users_only_this_machine_is_served() {
    let start = |address: &str, database: Database| {
        let options = ServerOptions {
            listen: vec![address.parse().unwrap()],
            ..options()
        };
        Server::start(database, options, None)
    };
    let nobody = || Database::in_memory().unwrap();
    let refused = start("0.0.0.0:0", nobody()).err().unwrap();
    assert_eq!(refused.sqlstate().0, "55000");
    assert!(
        refused
            .hint()
            .unwrap()
            .contains("CREATE USER admin SUPERUSER")
    );
    start("0.0.0.0:0", with_ada()).unwrap().shut_down().unwrap();
    start("127.0.0.1:0", nobody()).unwrap().shut_down().unwrap();
}

#[test]
fn the_unix_socket_is_one_more_way_in() {
    let directory = tempfile::tempdir().unwrap();
    let options = ServerOptions {
        unix_socket_directory: Some(directory.path().to_path_buf()),
        ..options()
    };
    let mut server = TestServer::with(options);
    let path = server.server().socket_path().unwrap().to_path_buf();
    let name = format!(".s.PGSQL.{}", server.address.port());
    assert_eq!(path, directory.path().join(name));
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(&startup(&[("user", "ada")])).unwrap();
    let mut first = [0; 1];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(first, *b"R");
    drop(stream);
    server.shut_down().unwrap();
    assert!(!path.exists());
}

struct Certificate {
    directory: tempfile::TempDir,
    der: CertificateDer<'static>,
}

impl Certificate {
    fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()]).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(
            directory.path().join("key.pem"),
            made.signing_key.serialize_pem(),
        )
        .unwrap();
        Self {
            directory,
            der: made.cert.der().clone(),
        }
    }

    fn options(&self) -> ServerOptions {
        ServerOptions {
            tls: Some(TlsFiles {
                certificate: self.directory.path().join("cert.pem"),
                key: self.directory.path().join("key.pem"),
            }),
            require_tls: true,
            ..options()
        }
    }

    fn client(&self, stream: TcpStream, alpn: bool) -> StreamOwned<ClientConnection, TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).unwrap();
        let provider = Arc::new(crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        if alpn {
            config.alpn_protocols = vec![b"postgresql".to_vec()];
        }
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(connection, stream)
    }
}

const SSL_REQUEST: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];

fn reaches_ready(mut stream: impl Read + Write) -> bool {
    stream.write_all(&startup(&[("user", "ada")])).unwrap();
    let mut bytes = Vec::new();
    let mut piece = [0; 1024];
    while !bytes.ends_with(b"Z\0\0\0\x05I") {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return false,
            Ok(n) => bytes.extend_from_slice(&piece[..n]),
        }
    }
    true
}

#[test]
fn connections_are_encrypted_on_request_at_once_or_not_at_all() {
    let certificate = Certificate::new();
    let server = TestServer::with(certificate.options());

    let mut asked = TcpStream::connect(server.address).unwrap();
    asked.write_all(SSL_REQUEST).unwrap();
    let mut answer = [0];
    asked.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"S");
    assert!(reaches_ready(certificate.client(asked, false)));

    let direct = TcpStream::connect(server.address).unwrap();
    assert!(reaches_ready(certificate.client(direct, true)));
    // Somebody else's protocol might begin with TLS too.
    let other = TcpStream::connect(server.address).unwrap();
    assert!(!reaches_ready(certificate.client(other, false)));

    let mut plain = Raw::open(server.address);
    plain.send(&startup(&[("user", "ada")]));
    assert_eq!(plain.last_error().as_deref(), Some("28000"));

    // What follows the request in the clear would be taken for encrypted.
    let mut stuffed = Raw::open(server.address);
    stuffed.send(&[SSL_REQUEST, &startup(&[("user", "ada")])].concat());
    assert_eq!(stuffed.last_error().as_deref(), Some("08P01"));
}

#[test]
fn servers_without_a_certificate_say_so() {
    let server = TestServer::start();
    let mut raw = Raw::open(server.address);
    raw.send(SSL_REQUEST);
    let mut answer = [0];
    raw.stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"N");
    raw.send(&startup(&[("user", "ada")]));
    raw.until(b'Z');
    let without = ServerOptions {
        require_tls: true,
        ..options()
    };
    let refused = Server::start(Database::in_memory().unwrap(), without, None);
    assert_eq!(refused.err().unwrap().sqlstate().0, "55000");
}

/// The first user who logs in must be able to administer, and nobody can take that away later.
#[tokio::test]
async fn a_client_cannot_lock_all_administrators_out() {
    let server = TestServer::start();
    let first = server.connect().await;
    for sql in [
        "CREATE USER app PASSWORD 'x'",
        "CREATE ROLE app LOGIN PASSWORD 'x'",
        "CREATE USER admin SUPERUSER",
        "CREATE USER admin SUPERUSER PASSWORD NULL",
        "CREATE USER admin SUPERUSER PASSWORD 'x' VALID UNTIL '2000-01-01'",
        "CREATE ROLE admin SUPERUSER PASSWORD 'x'; CREATE USER app PASSWORD 'x'",
    ] {
        let refused = first.batch_execute(sql).await.unwrap_err();
        let refused = refused.as_db_error().expect(sql);
        assert_eq!(refused.code().code(), "55000", "{sql}");
        assert!(refused.hint().unwrap().contains("SUPERUSER"), "{sql}");
    }
    // Nobody had to log in so far.
    server.connect().await;
    let made = "CREATE ROLE readers; CREATE USER admin SUPERUSER PASSWORD 'x'";
    first.batch_execute(made).await.unwrap();
    let mut config = server.config();
    config.password("x");
    assert_eq!(state(connect(&config).await.map(drop)), "28P01");
    let admin = connect(config.user("admin")).await.unwrap();
    admin
        .batch_execute("CREATE USER app PASSWORD 'y'")
        .await
        .unwrap();
    assert_eq!(state(first.batch_execute("DROP USER admin").await), "55000");
    for change in [
        "PASSWORD NULL",
        "PASSWORD ''",
        "NOLOGIN",
        "NOSUPERUSER",
        "VALID UNTIL '2000-01-01'",
    ] {
        let change = format!("ALTER USER admin {change}");
        assert_eq!(
            state(admin.batch_execute(&change).await),
            "55000",
            "{change}"
        );
    }
    let change = "ALTER USER admin PASSWORD 'z'; DROP USER app; ALTER USER admin RENAME TO root";
    admin.batch_execute(change).await.unwrap();
    let second = "CREATE USER other SUPERUSER PASSWORD 'o'; ALTER USER root NOLOGIN";
    admin.batch_execute(second).await.unwrap();
    connect(config.user("other").password("o")).await.unwrap();
}

/// What `docs/server.md` shows about users, word for word.
#[tokio::test]
async fn the_documented_users_work() {
    let server = TestServer::of(with_ada(), options());
    let mut config = server.config();
    let admin = connect(config.password("lovelace")).await.unwrap();
    admin
        .batch_execute("CREATE TABLE account (id int PRIMARY KEY, balance bigint)")
        .await
        .unwrap();
    let page = include_str!("../../../docs/server.md");
    let (_, users) = page.split_once("## Users").unwrap();
    let (_, block) = users.split_once("```sql\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    for sql in block.lines() {
        admin.batch_execute(sql).await.expect(sql);
        if sql.starts_with("GRANT") {
            let app = connect(config.user("app").password("secret"))
                .await
                .unwrap();
            app.batch_execute("INSERT INTO account VALUES (1, 10)")
                .await
                .unwrap();
        }
    }
}
