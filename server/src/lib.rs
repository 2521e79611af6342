//! The server around the database: configuration, log, metrics.
//!
//! * [`config`] reads file, environment and flags; [`options`] is what a server is started with.
//! * [`logging`] writes what happens to standard error.
//! * [`metrics`] counts, and answers Prometheus and health checks.

pub mod config;
pub mod logging;
pub mod metrics;
mod options;

pub use options::{DEFAULT_PORT, ServerOptions, TlsFiles};
