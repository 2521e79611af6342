//! The bytes between client and server: TCP, a Unix socket, or TLS over TCP.

use socket2::SockRef;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use tokio_rustls::rustls::{ServerConnection, StreamOwned};

/// A connected byte stream whose calls block, with time limits.
pub(crate) trait Transport: Read + Write + Send {
    /// Limits the wait of a read; None: no limit. After it a read fails with `WouldBlock` or
    /// `TimedOut`.
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()>;
    /// Whether a read returns data, the end or an error at once. Also true if that cannot be
    /// determined without reading.
    fn has_input(&self) -> bool;
    /// The TCP connection, to be encrypted; None for other transports.
    fn into_tcp(self: Box<Self>) -> Option<TcpStream> {
        None
    }
}

impl Transport for TcpStream {
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        TcpStream::set_read_timeout(self, timeout)
    }
    fn has_input(&self) -> bool {
        has_input(&SockRef::from(self))
    }
    fn into_tcp(self: Box<Self>) -> Option<TcpStream> {
        Some(*self)
    }
}

impl Transport for UnixStream {
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        UnixStream::set_read_timeout(self, timeout)
    }
    fn has_input(&self) -> bool {
        has_input(&SockRef::from(self))
    }
}

impl Transport for StreamOwned<ServerConnection, TcpStream> {
    fn set_read_timeout(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.sock.set_read_timeout(timeout)
    }
    fn has_input(&self) -> bool {
        // Decrypted unread data is no longer in the socket.
        !self.conn.wants_read() || has_input(&SockRef::from(&self.sock))
    }
}

fn has_input(socket: &SockRef<'_>) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    let looked = socket.recv_with_flags(&mut byte, libc::MSG_PEEK | libc::MSG_DONTWAIT);
    !matches!(looked, Err(e) if e.kind() == io::ErrorKind::WouldBlock)
}

/// An accepted connection.
pub(crate) enum Accepted {
    /// over TCP
    Tcp(TcpStream),
    /// over the Unix socket
    Unix(UnixStream),
}

/// The time without traffic after which the system probes whether the client still exists, and the
/// time between two probes.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

impl Accepted {
    /// Sends small answers at once, bounds the time of a write, and enables the detection of
    /// vanished clients.
    pub fn configure(&self, write_timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(write_timeout))?;
                let keepalive = socket2::TcpKeepalive::new()
                    .with_time(KEEPALIVE_IDLE)
                    .with_interval(KEEPALIVE_INTERVAL);
                let socket = SockRef::from(stream);
                socket.set_tcp_keepalive(&keepalive)?;
                socket.set_tcp_user_timeout(Some(write_timeout))
            }
            Self::Unix(stream) => stream.set_write_timeout(Some(write_timeout)),
        }
    }

    /// The client's address that others see; empty for the Unix socket.
    pub fn peer(&self) -> String {
        match self {
            Self::Tcp(stream) => stream
                .peer_addr()
                .map(|a| a.to_string())
                .unwrap_or_default(),
            Self::Unix(_) => String::new(),
        }
    }

    /// A handle with which another thread ends this connection's reads.
    pub fn hangup(&self) -> io::Result<Hangup> {
        Ok(match self {
            Self::Tcp(stream) => Hangup::Tcp(stream.try_clone()?),
            Self::Unix(stream) => Hangup::Unix(stream.try_clone()?),
        })
    }
}

/// Ends a connection's reads from another thread: a blocked read returns as if the client had
/// disconnected. Pending output can still be sent.
pub(crate) enum Hangup {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Hangup {
    /// Ends the reads. An error means that the connection is closed already.
    pub fn stop_reading(&self) {
        let _gone = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Read),
            Self::Unix(stream) => stream.shutdown(Shutdown::Read),
        };
    }
}
