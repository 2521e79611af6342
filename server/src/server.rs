//! A running server: its listeners, the state shared by its sessions, its shutdown.
//!
//! One thread per listener accepts, and one thread per connection serves. During a shutdown the
//! listeners refuse clients until the last session has ended.

use crate::backends::Phase;
use crate::metrics::Metrics;
use crate::options::{DEFAULT_PORT, ServerOptions};
use crate::shared::Shared;
use crate::startup;
use crate::transport::Accepted;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use strandline::{Database, Error, Result, SqlState};

/// The most connections besides the sessions: cancel requests, clients that are being authenticated
/// or refused.
const CONNECTIONS_BESIDE: usize = 64;
/// The pause after a failure to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Bytes of stack of a connection's thread; only its used part takes memory. It is enough for the
/// deepest statements that the parser accepts, in a build without optimisation.
const STACK_BYTES: usize = 128 << 20;

/// A server that listens and serves until it is shut down.
///
/// ```no_run
/// use strandline::Database;
/// use strandline_server::{Server, ServerOptions};
///
/// let database = Database::open("/var/lib/strandline")?;
/// let server = Server::start(database, ServerOptions::default(), None)?;
/// println!("listening on {:?}", server.addresses());
/// server.shut_down()?;
/// # Ok::<(), strandline::Error>(())
/// ```
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<SocketAddr>,
    socket_path: Option<PathBuf>,
    listeners: Vec<Listener>,
}

enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

struct Listener {
    socket: Arc<Socket>,
    thread: JoinHandle<()>,
}

impl Server {
    /// Listens according to `options` and serves `database` to its users; `metrics` counts events.
    ///
    /// # Errors
    /// 55000 if there are no users and an address is reachable from other machines; the system's
    /// errors for addresses, files and threads.
    pub fn start(
        database: Database,
        options: ServerOptions,
        metrics: Option<Arc<Metrics>>,
    ) -> Result<Self> {
        if !database.has_users() {
            require_loopback(&options.listen)?;
        }
        let shared = Shared::new(database, options, metrics)?;
        let (sockets, addresses, socket_path) = bind(&shared.options)?;
        let listeners = sockets.into_iter().map(|socket| listen(&shared, socket));
        Ok(Self {
            listeners: listeners.collect::<Result<_>>()?,
            shared,
            addresses,
            socket_path,
        })
    }

    /// The TCP addresses that it listens on, with the ports chosen for port 0.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The path of its Unix socket.
    pub fn socket_path(&self) -> Option<&Path> {
        self.socket_path.as_deref()
    }

    /// The number of sessions.
    pub fn session_count(&self) -> usize {
        self.shared.backends.count()
    }

    /// Refuses new clients (57P03), lets running statements and open transactions finish within the
    /// grace period, and ends the remaining sessions (57P01). Then writes a checkpoint and closes
    /// the database.
    pub fn shut_down(self) -> Result<()> {
        tracing::info!("shutting down");
        if let Some(metrics) = &self.shared.metrics {
            metrics.stopping();
        }
        self.shared
            .backends
            .shut_down(self.shared.options.shutdown_grace);
        for listener in &self.listeners {
            // An error means that the listener's thread has ended.
            let _ended = match &*listener.socket {
                Socket::Tcp(s) => socket2::SockRef::from(s).shutdown(std::net::Shutdown::Both),
                Socket::Unix(s) => socket2::SockRef::from(s).shutdown(std::net::Shutdown::Both),
            };
        }
        for listener in self.listeners {
            // The thread has reported its panic itself.
            let _ended = listener.thread.join();
        }
        if let Some(path) = &self.socket_path {
            // The next start replaces a remaining socket.
            let _left = std::fs::remove_file(path);
        }
        self.shared.database.close()
    }
}

fn require_loopback(addresses: &[SocketAddr]) -> Result<()> {
    match addresses.iter().find(|a| !a.ip().is_loopback()) {
        None => Ok(()),
        Some(public) => Err(Error::invalid(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!(
                "without a user, nobody but this machine may connect: not listening on {public}"
            ),
        )
        .with_hint(
            "Start with --superuser NAME --superuser-password-file FILE, or create a superuser \
             first: CREATE USER admin SUPERUSER PASSWORD '…'.",
        )),
    }
}

type Bound = (Vec<Socket>, Vec<SocketAddr>, Option<PathBuf>);

fn bind(options: &ServerOptions) -> Result<Bound> {
    let mut sockets = Vec::new();
    let mut addresses = Vec::new();
    for address in &options.listen {
        let failed = |e| Error::io(format!("listening on {address}"), &e);
        let listener = TcpListener::bind(address).map_err(failed)?;
        addresses.push(listener.local_addr().map_err(failed)?);
        sockets.push(Socket::Tcp(listener));
    }
    let mut socket_path = None;
    if let Some(directory) = &options.unix_socket_directory {
        let port = addresses.first().map_or(DEFAULT_PORT, SocketAddr::port);
        let path = directory.join(format!(".s.PGSQL.{port}"));
        sockets.push(Socket::Unix(bind_unix(&path)?));
        socket_path = Some(path);
    }
    Ok((sockets, addresses, socket_path))
}

/// Binds the socket at `path`, replacing a socket without a listener.
fn bind_unix(path: &Path) -> Result<UnixListener> {
    let failed = |e| Error::io(format!("listening on \"{}\"", path.display()), &e);
    match UnixListener::bind(path) {
        Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(failed(e));
            }
            std::fs::remove_file(path).map_err(failed)?;
            UnixListener::bind(path).map_err(failed)
        }
        other => other.map_err(failed),
    }
}

fn listen(shared: &Arc<Shared>, socket: Socket) -> Result<Listener> {
    let socket = Arc::new(socket);
    let (server, accepting) = (shared.clone(), socket.clone());
    let thread = std::thread::Builder::new()
        .name("strandline-accept".into())
        .spawn(move || accept_all(&server, &accepting))
        .map_err(|e| Error::io("starting a thread", &e))?;
    Ok(Listener { socket, thread })
}

fn accept_all(server: &Arc<Shared>, socket: &Socket) {
    loop {
        let accepted = match socket {
            Socket::Tcp(listener) => listener.accept().map(|(s, _)| Accepted::Tcp(s)),
            Socket::Unix(listener) => listener.accept().map(|(s, _)| Accepted::Unix(s)),
        };
        match accepted {
            Ok(accepted) => serve(server, accepted),
            // Accepting fails in this way only after the socket is shut down.
            Err(e) if e.kind() == std::io::ErrorKind::InvalidInput => return,
            Err(error) => {
                if server.backends.phase() != Phase::Serving && server.backends.count() == 0 {
                    return;
                }
                // Mostly too many open files, which ending sessions release.
                tracing::warn!(%error, "cannot accept a connection");
                std::thread::sleep(ACCEPT_PAUSE);
            }
        }
    }
}

/// Serves a connection on its own thread; beyond the limit it is dropped unanswered.
fn serve(server: &Arc<Shared>, accepted: Accepted) {
    let most = server.options.max_connections + CONNECTIONS_BESIDE;
    let Some(serving) = server.backends.enter(most) else {
        tracing::warn!("too many connections: one is dropped");
        return;
    };
    let server = server.clone();
    let started = std::thread::Builder::new()
        .name("strandline-session".into())
        .stack_size(STACK_BYTES)
        .spawn(move || startup::serve(&server, accepted, serving));
    if let Err(error) = started {
        tracing::warn!(%error, "cannot start a thread for a connection");
    }
}
