//! The server as clients see it: tokio-postgres for what a well-behaved client does, raw sockets
//! for the rest.

mod authentication;
mod copy;
mod crash;
mod extended;
mod failed_block;
mod hostile;
mod limits;
mod simple;
mod stalled;
mod support;
mod types;
