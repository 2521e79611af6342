//! The PostgreSQL wire protocol in front of the engine.
//!
//! [`Server`] listens on TCP addresses and a Unix socket; every connection has a thread of its own,
//! which blocks in its socket, in row locks and in commits, as PostgreSQL's processes do.
//!
//! * `startup`: TLS, authentication (`auth`), settings; `session`: the messages after that.
//! * `wire` frames messages over a `transport`, `message` reads the client's, `reply` and `report`
//!   write the server's. Values are encoded by [`strandline::wire_format`].
//! * `backends` lists the sessions for other threads: cancelling them, ending them, counting.
//! * [`config`] reads file, environment and flags; [`ServerOptions`] are the options that a server
//!   is started with. [`logging`] writes events to standard error; [`metrics`] counts, and answers
//!   Prometheus and health checks.

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
