//! The options of a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The options of a [`Server`](crate::Server); the defaults are the defaults of `strandline serve`.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// TCP addresses to listen on; port 0 takes a free one
    pub listen: Vec<SocketAddr>,
    /// directory of the Unix socket `.s.PGSQL.<port>`; None: no Unix socket
    pub unix_socket_directory: Option<PathBuf>,
    /// sessions at one time; more are refused with 53300
    pub max_connections: usize,
    /// so many of these sessions are only for superusers
    pub superuser_reserved_connections: usize,
    /// the time for a client to connect and authenticate
    pub authentication_timeout: Duration,
    /// how long a session polls for its client's next message before it blocks; zero: no polling
    pub client_poll_time: Duration,
    /// how long a client may leave sent data unread
    pub write_timeout: Duration,
    /// the longest message of an authenticated client in bytes; a longer one ends the connection
    pub max_message_bytes: usize,
    /// certificate and key for TLS; None: no TLS
    pub tls: Option<TlsFiles>,
    /// whether TCP clients without TLS are refused
    pub require_tls: bool,
    /// how long running statements and open transactions may continue after a shutdown is requested
    pub shutdown_grace: Duration,
}

/// PEM files for TLS.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// the certificate chain, the server's own first
    pub certificate: PathBuf,
    /// the private key
    pub key: PathBuf,
}

/// PostgreSQL's port.
pub const DEFAULT_PORT: u16 = 5432;

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::new(
                IpAddr::V4(Ipv4Addr::LOCALHOST),
                DEFAULT_PORT,
            )],
            unix_socket_directory: None,
            max_connections: 200,
            superuser_reserved_connections: 3,
            authentication_timeout: Duration::from_secs(60),
            client_poll_time: Duration::from_micros(200),
            write_timeout: Duration::from_secs(60),
            max_message_bytes: 256 << 20,
            tls: None,
            require_tls: false,
            shutdown_grace: Duration::from_secs(30),
        }
    }
}
