//! The PostgreSQL wire protocol in front of the engine.
//!
//! [`Server`] listens on TCP addresses and a Unix socket. As with PostgreSQL's processes, every
//! connection has its own thread, which blocks in its socket, in row locks and in commits.
//!
//! * `startup`: TLS, authentication (`auth`), settings; `session`: the messages after startup.
//! * `wire` frames messages over a `transport`, `message` reads the client's messages, `reply` and
//!   `report` write the server's. [`strandline::wire_format`] encodes values.
//! * `backends` lists the sessions for other threads, which cancel, end and count them.
//! * [`config`] reads file, environment and flags; [`ServerOptions`] are the options of a server.
//!   [`logging`] writes events to standard error; [`metrics`] counts, and answers Prometheus and
//!   health checks.

mod auth;
mod backends;
pub mod config;
#[cfg(test)]
mod fuzz;
pub mod logging;
mod message;
pub mod metrics;
mod options;
mod polling;
mod reply;
mod report;
mod server;
mod session;
mod shared;
mod startup;
mod tls;
mod transport;
mod wire;

pub use options::{DEFAULT_PORT, ServerOptions, TlsFiles};
pub use server::Server;
