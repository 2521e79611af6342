//! The Rust API: databases, connections, bulk loads, rows by key, backup and restore. [`request`]
//! and [`connect`] have the interface for servers.

pub(crate) mod appender;
pub(crate) mod backup;
pub(crate) mod connect;
pub(crate) mod connection;
pub(crate) mod database;
mod directories;
pub(crate) mod execute_many;
pub(crate) mod request;
pub(crate) mod rows;
mod staged_tier;
